"""Pairs of recorded runs with known times: steps of a given length, with noise of their own and of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.crafted import add, add_events, amend, train_on_cpu
from whyidle.analyse.diff.difference import Difference
from whyidle.analyse.diff.sides import side_of
from whyidle.record.reader import Records
from whyidle.record.run import update_run
from whyidle.record.schema import HOST, NOT_MEASURED, EventKind
from whyidle.scenarios.planted import MS, START, Step, train

GAP_MS = 5.0
"""Work of the loop after the optimizer, a step."""
SOME = np.random.default_rng
"""Noise, by its seed."""


def noisy(
    folder: Path,
    rng: np.random.Generator,
    *,
    fetch_ms: float = 10.0,
    compute_ms: float = 20.0,
    steps: int = 200,
    run_noise: float = 0.01,
    step_noise: float = 0.1,
    follow: float = 0.7,
    workers: int | None = None,
    flags: int | None = None,
    samples: int | None = 8,
    **info: Any,
) -> Path:
    """Record one. `run_noise`: standard deviation of its speed; `step_noise`: of a step's, of which the next one
    takes over the share `follow`. `samples`: of a batch, `None`: not known. The rest goes to run.json."""
    of_run = float(np.exp(run_noise * rng.standard_normal()))
    noise = _following(rng, steps, follow)
    factors = of_run * np.maximum(0.2, 1 + step_noise * noise)
    train_on_cpu(
        folder,
        [{"fetch": f * fetch_ms, "end": f * (fetch_ms + compute_ms + GAP_MS), "gap": f * GAP_MS} for f in factors],
    )
    told = [(START, EventKind.LOADER_WORKERS, workers), (START, EventKind.LOADER_FLAGS, flags)]
    add_events(folder, [(*event, NOT_MEASURED) for event in told if event[2] is not None])

    def put_samples(steps: Records) -> None:
        steps["samples"] = NOT_MEASURED if samples is None else samples
        steps["skipped"] = steps["skipped_samples"] = 0

    amend(folder, put_samples)
    update_run(folder, {"command": ["python", "train.py"], "trial": None} | info)
    return folder


def crowded(
    folder: Path, rng: np.random.Generator, *, busy_pct: float = 100.0, running: float | None = None, **how: Any
) -> Path:
    """The same on two CPUs, of which other programs used what this one did not. `running`: share of its time in which
    the training's thread needed a CPU; `None`: not measured."""
    run = noisy(folder, rng, host={"name": "x", "cpus": 2}, **how)
    seen = {"machine_busy_pct": busy_pct, "cpus": 2000}
    if running is not None:
        seen["main_thread_queue_ns"] = 0

        def needed(steps: Records) -> None:
            lasted = steps["step_end_ns"] - steps["fetch_begin_ns"]
            steps["cpu_ns"] = (running * lasted).astype(np.int64)

        amend(run, needed)
    add(run, HOST, [{"t_ns": START + n * 200 * MS, "tree_cpu_ns": n * 20 * MS, **seen} for n in range(1, 30)])
    return run


def ahead(
    folder: Path,
    rng: np.random.Generator,
    *,
    compute_ms: float = 10.0,
    read_every: int = 10,
    pause_ms: float = 0.0,
    run_noise: float = 0.03,
    step_noise: float = 0.1,
) -> Path:
    """Record one of four epochs on an emulated device, whose host runs ahead of it: the loss is read every so many
    steps. `pause_ms`: after each epoch, in which the host waits for the device first."""
    steps, epoch = 240, 60
    factors = np.exp(run_noise * rng.standard_normal()) * np.maximum(0.2, 1 + step_noise * _following(rng, steps, 0.7))
    plan = [
        Step(
            fetch_ns=MS,
            compute_ns=round(factor * compute_ms * MS),
            sync=number % read_every == read_every - 1,
            boundary_ns=round(pause_ms * MS) if number % epoch == epoch - 1 else 0,
        )
        for number, factor in enumerate(factors)
    ]
    train(folder, [plan[begin : begin + epoch] for begin in range(0, steps, epoch)])
    return folder


def _following(rng: np.random.Generator, steps: int, follow: float) -> npt.NDArray[np.float64]:
    """Of deviation 1, of which each takes over the share `follow` from the one before."""
    own = np.sqrt(1 - follow**2) * rng.standard_normal(steps)
    noise = np.zeros(steps)
    noise[0] = rng.standard_normal()
    for number in range(1, steps):
        noise[number] = follow * noise[number - 1] + own[number]
    return noise


def true_ms(fetch_ms: float = 10.0, compute_ms: float = 20.0) -> float:
    """What a step takes without noise."""
    return fetch_ms + compute_ms + GAP_MS


def compare(a: Path | list[Path], b: Path | list[Path], noise: float | None = None) -> Difference:
    sides = [side_of(name, [of] if isinstance(of, Path) else of) for name, of in (("A", a), ("B", b))]
    return Difference(sides[0], sides[1], noise)
