"""Planted faults: what the first advice promised, against the planted work's own share of the time.

Nothing is followed here: the training's stamps say how long what was planted held it up, and without that it takes so
much less. An advice that leaves some of it behind says so in its promise.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from whyidle.analyse.cells.comparison import cell_of
from whyidle.record.comparison import read_comparison

from ..confusion import JudgedRun
from ..faults import judged_runs
from .judge import PLANTED, Followed, Promise


def planted(folder: Path) -> Iterator[Followed]:
    """The first advice for each run of a single fault whose cause was named first, and whose cost is known.

    Args:
        folder: that a matrix of `faults` filled.

    Raises:
        RecordError: there is no such folder, or a run of it cannot be read.
    """
    setting, records = read_comparison(folder)
    cells = [cell_of(folder, record) for record in records]
    for run in judged_runs(folder, setting, records, cells):
        if (found := held(run)) is not None:
            yield found


def held(run: JudgedRun) -> Followed | None:
    """`None` where another cause was named first than was planted, or nothing is advised."""
    if run.verdict is None or run.verdict not in run.planted or run.advice is None:
        return None
    told, share = run.advice.speedup, run.truth.get(run.verdict)
    return Followed(
        run.case,
        run.verdict,
        run.advice.kind,
        run.advice.change,
        PLANTED,
        None if told is None else Promise(told.value, told.low, told.high),
        told is not None and told.to_try,
        None if share is None or share >= 1 else 1 / (1 - share),
    )
