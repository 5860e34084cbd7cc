"""Trainings on a virtual clock, with the batches, looks at the host and settings that recordings hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from support.crafted import add, add_events, amend, found, steps_of
from whyidle.devices.emulated import EmulatedSpec
from whyidle.record.reader import Records
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import BATCH, DEVICE, EVENT, HOST, NOT_MEASURED, EventKind, StepFlag
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

OWN = {"trial": None, "command": ["python", "train.py"]}
"""Of run.json, where a training is a user's and no scenario's."""
SEVERITIES = [0.12, 0.3, 0.6]
COMPUTE = 10 * MS
STEPS = 200
ODD = range(15, STEPS, 10)
"""Steps to which something happens."""
Spans = list[tuple[int, int]]
"""Begins and ends."""
H200 = {"kind": "cuda", "name": "cuda", "title": "NVIDIA H200", "count": 1}


def trained(
    folder: Path,
    epochs: Sequence[Sequence[Step]],
    *,
    samples: int = 8,
    workers: PlantedWorkers | None = None,
    spec: EmulatedSpec | None = None,
    cpu_ns: int = MS,
    **info: Any,
) -> Path:
    """Train as planned; each step takes so much CPU time. `info` goes to run.json."""
    train(folder, epochs, samples=samples, workers=workers, spec=spec)
    if any(epochs):
        amend(folder, lambda steps: steps["cpu_ns"].fill(cpu_ns))
    update_run(folder, OWN | info)
    return folder


@dataclass(frozen=True)
class Making:
    """What workers tell of the batches they make; shares are of the time that a batch takes."""

    cpu: float = 0.95
    queued: float = 0.03
    read: float = 0.0
    collate: float = 0.05
    process_cpu: float | None = None
    """Of all threads of the worker; `None`: of the one that makes the batches."""
    stages: tuple[float, float] | None = None
    """Decoding and transforming, where they are told apart."""
    batch_bytes: int | None = 600_000
    sent_bytes: int | None = 400
    read_bytes: int | None = None
    """From storage; of a batch, as all here."""
    read_chars_bytes: int | None = None
    cpus: int | None = None
    """How many each may run on, from the first on."""
    slowest: float = 0.2
    """What the slowest sample takes."""


def pooled(
    folder: Path,
    epochs: Sequence[Sequence[Step]],
    workers: PlantedWorkers,
    making: Making = Making(),
    *,
    flags: int | None = 0,
    persistent: bool = True,
    data_for: int | None = None,
    handed_ns: int = 0,
    **how: Any,
) -> Path:
    """Train with worker processes, each of whose batches takes its step's `fetch_ns`, and record what they tell.

    `handed_ns`: batches were finished so long before they came. `data_for`: only so many workers get data.
    """
    trained(folder, epochs, workers=workers, **how)
    told(folder, workers.number, workers.prefetch, flags)
    steps = steps_of(folder)
    outstanding = workers.number * workers.prefetch
    rows: list[dict[str, float]] = []
    ready_at = np.full(len(steps), NOT_MEASURED)
    first = 0
    for epoch, plan in enumerate(epochs):
        mine = steps[first : first + len(plan)]
        issued = [int(mine["fetch_begin_ns"][0]) + workers.start_ns] * outstanding + mine["fetch_end_ns"].tolist()
        ready: list[int] = []
        for number, step in enumerate(plan):
            free = ready[number - workers.number] if number >= workers.number else 0
            begin = max(issued[number], free)
            ready.append(begin + step.fetch_ns)
            # Batches are handed over in their order: none arrives before those it follows.
            end = min(ready[number], int(mine["fetch_end_ns"][number])) - handed_ns
            worker = number % (data_for or workers.number)
            rows.append(batch(making, worker, end - step.fetch_ns, end, epoch, number, persistent))
        ready_at[first : first + len(plan)] = ready
        first += len(plan)
    add(folder, BATCH, rows)

    def count_ready(steps: Records) -> None:
        for number in range(len(steps)):
            later = slice(number, number + outstanding)
            same = steps["epoch"][later] == steps["epoch"][number]
            steps["queue_ready"][number] = (same & (ready_at[later] <= steps["fetch_begin_ns"][number])).sum()
        steps["queue_capacity"] = outstanding
        steps["loader"] = 1 if persistent else 1 + steps["epoch"]
        begins = np.searchsorted(steps["epoch"], steps["epoch"])
        steps["batch"] = (steps["epoch"] << 32 if persistent else 0) + np.arange(len(steps)) - begins

    amend(folder, count_ready)
    return folder


def batch(
    making: Making, worker: int, begin: int, end: int, epoch: int, number: int, persistent: bool
) -> dict[str, float]:
    """What the worker that made it tells of a batch, the `number`th of its epoch."""
    lasts = end - begin
    shares = {"cpu_ns": making.cpu, "run_queue_ns": making.queued, "read_ns": making.read}
    shares |= {"collate_ns": making.collate, "slowest_ns": making.slowest}
    shares["process_cpu_ns"] = making.cpu if making.process_cpu is None else making.process_cpu
    if making.stages is not None:
        shares |= {"decode_ns": making.stages[0], "transform_ns": making.stages[1]}
    counts = {name: getattr(making, name) for name in ("batch_bytes", "sent_bytes", "read_bytes", "read_chars_bytes")}
    if making.cpus is not None:
        counts |= {"cpus": making.cpus, "first_cpu": 0}
    return {
        "training": os.getpid(),
        "loader": 1 if persistent else 1 + epoch,
        "batch": ((epoch << 32) if persistent else 0) + number,
        "worker": worker,
        "samples": 8,
        "begin_ns": begin,
        "end_ns": end,
        "threads": 1,
        "skipped": 0,
        "skipped_samples": 0,
        "skipped_ns": 0,
        "slowest_index": 1000 + number % 17,
        "minor_faults": 12,
        **{name: round(share * lasts) for name, share in shares.items()},
        **{name: value for name, value in counts.items() if value is not None},
    }


def batch_trace(worker: int, begin: int, end: int, **more: Any) -> Any:
    """What a loader tells of a batch: who made it when, and whatever else is given."""
    told: Mapping[str, Any] = dict.fromkeys(
        ("read_ns", "decode_ns", "transform_ns", "collate_ns", "cpu_ns", "minor_faults", "read_bytes")
    )
    return SimpleNamespace(worker=worker, begin_ns=begin, end_ns=end, **(told | {"threads": 1} | more))


def serial(folder: Path, steps: int, fetch_ms: float, making: Making, **how: Any) -> Path:
    """Train on batches that the training makes itself."""
    trained(folder, [[Step(fetch_ns=round(fetch_ms * MS))] * steps], **how)
    told(folder, 0, None, 0)
    rows = [
        batch(making, 0, int(step["fetch_begin_ns"]), int(step["fetch_end_ns"]), 0, number, True)
        for number, step in enumerate(steps_of(folder))
    ]
    add(folder, BATCH, rows)

    def number_them(steps: Records) -> None:
        steps["loader"], steps["batch"] = 1, np.arange(len(steps))

    amend(folder, number_them)
    return folder


def told(folder: Path, workers: int, prefetch: int | None, flags: int | None) -> None:
    """The settings of torch's DataLoader."""
    rows = [(EventKind.LOADER_WORKERS, workers), (EventKind.LOADER_PREFETCH, prefetch), (EventKind.LOADER_FLAGS, flags)]
    add_events(folder, [(START, what, value, NOT_MEASURED) for what, value in rows if value is not None])


def until(folder: Path) -> int:
    """When the last step ended."""
    return int(steps_of(folder)["step_end_ns"].max())


def hosted(
    folder: Path,
    used: float,
    budget: float,
    machine_pct: float | None = 50.0,
    *,
    throttled: float = 0.0,
    queued: float | None = None,
    **fields: float,
) -> Path:
    """Looks at a host whose CPUs the job uses so much of. `throttled`: seconds a second that a quota stops it;
    `queued`: share of the time that the training's thread waits for a CPU."""
    rows = []
    for number, at in enumerate(range(START, until(folder) + 200 * MS, 200 * MS)):
        passed = at - START
        row: dict[str, float] = {"t_ns": at, "late_ns": 0, "cpus": round(1000 * budget), "steal_pct": 0.0}
        row |= {"tree_cpu_ns": round(used * passed), "main_cpu_ns": round(0.3 * passed), "tree_processes": 3}
        row |= {"throttled_us": round(throttled * passed / 1000), "throttled_periods": number if throttled else 0}
        row |= {"tree_rss_bytes": 2 * 10**9, "memory_available_bytes": 10**10} | fields
        if machine_pct is not None:
            row["machine_busy_pct"] = machine_pct
        if queued is not None:
            row["main_thread_queue_ns"] = round(queued * passed)
        rows.append(row)
    add(folder, HOST, rows)
    return folder


def looked(folder: Path, *states: Mapping[str, float], utilisation_pct: float | None = None) -> Path:
    """Looks at the device every 50 ms, the states in turns; utilisation in windows as long."""
    rows: list[dict[str, float]] = []
    for number, at in enumerate(range(START, until(folder), 50 * MS)):
        rows.append({"t_ns": at, "device": 0, **states[number % len(states)]})
        if utilisation_pct is not None:
            rows.append({"t_ns": at, "device": 0, "window_ns": 50 * MS, "utilisation_pct": utilisation_pct})
    add(folder, DEVICE, rows)
    return folder


def happened(folder: Path, what: int, value: int, when: Callable[[Records], Iterable[tuple[int, int]]]) -> Path:
    """Further events that last, placed by the steps."""
    add_events(folder, [(begin, what, value, end) for begin, end in when(steps_of(folder))])
    return folder


def slower_steps(odd: Iterable[int], by_ns: int, fetch_ns: int = 0) -> list[list[Step]]:
    """Steps of 10 ms, of which some compute so much longer."""
    longer = set(odd)
    return [[Step(fetch_ns, COMPUTE + (by_ns if n in longer else 0), sync=True) for n in range(STEPS)]]


def computing(folder: Path, odd_ns: int = 0, odd: Iterable[int] = ODD, fetch_ns: int = 0) -> Path:
    train(folder, slower_steps(odd, odd_ns, fetch_ns))
    return folder


def clocked(mhz: float, reasons: int, most: float = 1500) -> dict[str, float]:
    return {"sm_clock_mhz": round(mhz), "sm_clock_max_mhz": most, "throttle_reasons": reasons}


def shares(folder: Path) -> dict[str | None, float]:
    return {cause: finding.share for cause, finding in found(folder).items()}


def elements(folder: Path, count: Any, flags: Any = StepFlag.SHAPE_KNOWN) -> Path:
    """The batches hold so many elements, all or each."""
    more = flags | np.int64(count) << StepFlag.ELEMENTS_SHIFT
    amend(folder, lambda steps: np.bitwise_or(steps["flags"], more, out=steps["flags"]))
    return folder


def shapes(folder: Path, new: Iterable[int] = ODD) -> Path:
    """The batches of some steps are the first of their shape."""
    is_new = np.isin(steps_of(folder)["step"], list(new))
    return elements(folder, 1000, StepFlag.SHAPE_KNOWN | np.where(is_new, StepFlag.NEW_SHAPE, 0))


def retries(folder: Path, steps: Iterable[int] = ODD) -> None:
    """The allocator tried again in some steps, and was asked right after each."""
    ends = steps_of(folder)["step_end_ns"]
    asked = [(int(ends[n]), EventKind.ALLOCATOR_RETRIES, count, NOT_MEASURED) for count, n in enumerate(steps, 1)]
    add_events(folder, asked)


def threads(folder: Path, cpus: float = 1.0) -> Path:
    """Other Python threads that keep so many CPUs busy."""
    looks = range(START, until(folder), 20 * MS)
    add_events(folder, [(t, EventKind.PYTHON_THREADS, round(cpus * (t - START)), NOT_MEASURED) for t in looks])
    return folder


def boundaries(folder: Path) -> Spans:
    """When the training was outside its steps."""
    events = open_run(folder).records(EVENT)
    spans = events[events["what"] == EventKind.BOUNDARY]
    return list(zip(spans["t_ns"].tolist(), spans["end_ns"].tolist(), strict=True))


def evaluated(folder: Path, spans: Spans, waited: float, workers: int | None = None) -> None:
    """Validation all that time, waiting for data for such a part of it."""
    rows = [(begin, EventKind.EVALUATION, round(waited * (end - begin)), end) for begin, end in spans]
    if workers is not None:
        rows += [(end, EventKind.EVALUATION_WORKERS, workers, NOT_MEASURED) for _, end in spans]
    add_events(folder, sorted(rows))
