"""Trainings at several batch sizes on the virtual clock, and what is said of the larger one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.crafted import facts_of_run
from whyidle.analyse.cells.batch_size import BatchVerdict, batch_verdict
from whyidle.analyse.run.facts import Facts
from whyidle.scenarios.planted import MS, Step, train

SAMPLES = 1280
"""Of a run, whatever the batch."""
REPEATS = 3


Run = Callable[[Path, int], Any]
"""Trains at a batch size into a folder."""


def always(_: int) -> bool:
    """At every batch size."""
    return True


def judged(tmp_path: Path, run: Run, *sizes: int, repeats: int = REPEATS) -> BatchVerdict:
    """Equal runs of each size: on the virtual clock there is no noise."""
    once = cells_of(tmp_path, {size: [run] for size in sizes})
    return verdict_of({size: runs * repeats for size, runs in once.items()})


def cells_of(folder: Path, runs: Mapping[int, Sequence[Run]]) -> dict[int, list[Facts]]:
    """The recordings of each size, by what trains them."""
    cells: dict[int, list[Facts]] = {size: [] for size in runs}
    for size, of_size in runs.items():
        for number, run in enumerate(of_size):
            run(folder / f"{size}-{number}", size)
            cells[size].append(facts_of_run(folder / f"{size}-{number}"))
    return cells


def verdict_of(cells: Mapping[int, Sequence[Facts]]) -> BatchVerdict:
    """Of sizes whose runs were made in as many rounds."""
    verdict = batch_verdict((size, number, run) for size, runs in cells.items() for number, run in enumerate(runs))
    assert verdict is not None
    return verdict


def steady(
    load_ms: float = 0.1,
    compute_ms: float = 1.0,
    fixed_ms: float = 0.0,
    epochs: int = 4,
    first_ms: float = 0.0,
    samples: Callable[[int], int] = lambda _: SAMPLES,
    **more: Callable[[int], Any],
) -> Run:
    """Times a sample; `fixed_ms` a step; `first_ms` a sample more for the first batch of an epoch; of `more` each is a
    function of the batch."""

    def run(folder: Path, batch: int) -> Any:
        step = {name: value(batch) for name, value in more.items()}
        compute = step.pop("compute_ns", round((batch * compute_ms + fixed_ms) * MS))
        load = step.pop("fetch_ns", round(batch * load_ms * MS))
        rest = [Step(load, compute, **step)] * (samples(batch) // batch // epochs - 1)
        first = Step(load + round(batch * first_ms * MS), compute, **step)
        return train(folder, [[first, *rest]] * epochs, samples=batch)

    return run


def batch_trace(worker: int, begin: int, end: int, **more: Any) -> Any:
    """What a loader tells of a batch: who made it when, and whatever else is given."""
    told: Mapping[str, Any] = dict.fromkeys(
        ("read_ns", "decode_ns", "transform_ns", "collate_ns", "cpu_ns", "minor_faults", "read_bytes")
    )
    return SimpleNamespace(worker=worker, begin_ns=begin, end_ns=end, **(told | {"threads": 1} | more))
