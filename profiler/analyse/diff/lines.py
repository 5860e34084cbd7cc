"""Lines of code that take more, or less, of the time on one side than on the other, by stack samples.

A line's time is its share of the looks at a thread, times what a sample (or step) takes. Looks are counts, and those
that follow each other may be of one call: their share varies as counts do, or as blocks of them do where that is more.
What runs of one setting differ by comes on top. Line numbers move between two versions of a program, so a line is the
same on both sides where file, function and text are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import PurePath

import numpy as np
import numpy.typing as npt

from ...record.run import open_run
from ...record.stacks import Call
from ..ranks.figures import leading
from ..run.analysis import parts_of
from ..statistics import OUTSIDE, Estimate, students_t
from ..where.looks import Looks, ProcessLooks, looks_at
from ..where.places import place_of
from .sides import Measured, Side
from .times import LEAST_PART_CHANGE, assumed_noise, time_per_unit

MOST_LINES = 5
LEAST_LOOKS = 5
"""Looks that a line needs on one side to be compared: fewer are chance."""
BLOCKS = 16
"""Stretches of a run that a line's share is seen to vary over."""
TRAINING, WORKERS = "training", "workers"


@dataclass(frozen=True)
class MovedLine:
    """A line whose time changed, µs per unit with 95 % intervals; `change` is B less A."""

    call: Call
    """As it stands on side B; where that has it no longer, as on A."""
    whose: str
    """Whose time it is: that of the thread that trains, or of all `workers` together."""
    a: Estimate
    b: Estimate
    change: Estimate


_Line = tuple[str, str, str, str]
"""Whose, file, function, text."""


@dataclass(frozen=True)
class _Threads:
    """The looks at one kind of thread, in the window of one run."""

    time: float
    """µs per unit that all looks together stand for."""
    blocks: npt.NDArray[np.int64]
    """Of each look that saw a stack, which stretch of the run it lies in."""
    lines: npt.NDArray[np.int64]
    """Of each such look the line it saw, by its place in `order`."""
    order: dict[_Line, int]
    calls: dict[_Line, Call]
    """The lines that were seen."""


@dataclass(frozen=True)
class _Run:
    threads: dict[str, _Threads]
    noise: float


def moved_lines(a: Side, b: Side, unit: str, noise: float | None) -> tuple[MovedLine, ...] | None:
    """The lines that surely changed, by how much; at most `MOST_LINES`. `None` where a run has no stack samples.

    `unit`: sample or step. `noise`: standard deviation between runs of one setting, as a share, where the user knows
    it.
    """
    of_a, of_b = ([_seen(run, unit, noise) for run in side.runs] for side in (a, b))
    known_a, known_b = [run for run in of_a if run], [run for run in of_b if run]
    if len(known_a) < len(of_a) or len(known_b) < len(of_b):
        return None
    compared = sorted(_frequent(known_a) | _frequent(known_b))
    whole = max(time_per_unit(run, unit) for run in (*a.runs, *b.runs))
    usual, sure = students_t(BLOCKS - 1), students_t(BLOCKS - 1, OUTSIDE / max(1, len(compared)))
    found = []
    for line in compared:
        (mean_a, var_a), (mean_b, var_b) = (_mean(line, runs) for runs in (known_a, known_b))
        change, error = mean_b - mean_a, sqrt(var_a + var_b)
        # Of so many lines some differ by chance: all together they may be wrong as rarely as one is.
        if abs(change) < LEAST_PART_CHANGE * whole or abs(change) <= sure * error:
            continue
        found.append(
            MovedLine(
                _call(line, (*known_b, *known_a)),
                line[0],
                Estimate.around(mean_a, usual * sqrt(var_a)).positive(),
                Estimate.around(mean_b, usual * sqrt(var_b)).positive(),
                Estimate.around(change, usual * error),
            )
        )
    found.sort(key=lambda each: -abs(each.change.value))
    return tuple(found[:MOST_LINES])


def _seen(run: Measured, unit: str, noise: float | None) -> _Run | None:
    process = leading(run.analysis, [open_run(part) for part in parts_of(run.folder)])
    looks = None if process is None else looks_at(*process)
    if looks is None:
        return None
    kinds = _kinds(run, looks, time_per_unit(run, unit))
    told = {whose: _threads(run, whose, mine, time) for whose, mine, time in kinds}
    seen = {whose: each for whose, each in told.items() if len(each.blocks)}
    return _Run(seen, assumed_noise(run) if noise is None else noise) if TRAINING in seen else None


def _kinds(run: Measured, looks: ProcessLooks, time: float) -> Iterator[tuple[str, Looks, float]]:
    yield TRAINING, looks.training, time
    workers = run.facts.set_workers or len(np.unique(looks.workers.records["process"]))
    yield WORKERS, looks.workers, time * workers


def _threads(run: Measured, whose: str, looks: Looks, time: float) -> _Threads:
    window = run.facts.window
    looks = looks.between(window.begin_ns, window.end_ns)
    places: dict[int, int] = {}
    calls: dict[_Line, Call] = {}
    order: dict[_Line, int] = {}
    for number in np.unique(looks.records["stack"]).tolist():
        stack = looks.table.stack(number)
        if (found := place_of(stack)) is not None:
            line = _line(whose, found[0])
            calls.setdefault(line, found[0])
            places[number] = order.setdefault(line, len(order))
    seen = [places[number] for number in looks.records["stack"].tolist() if number in places]
    blocks = np.arange(len(seen)) * BLOCKS // max(1, len(seen))
    return _Threads(time, blocks, np.array(seen, dtype=np.int64), order, calls)


def _line(whose: str, call: Call) -> _Line:
    """Without the folder, in which two versions of a program differ, and without the number where the text is known."""
    return whose, PurePath(call.file).name, call.function, call.text.strip() or f"line {call.line}"


def _frequent(runs: Sequence[_Run]) -> set[_Line]:
    counts: Counter[_Line] = Counter()
    for run in runs:
        for threads in run.threads.values():
            looks = np.bincount(threads.lines, minlength=len(threads.order)).tolist()
            counts.update(dict(zip(threads.order, looks, strict=True)))
    return {line for line, count in counts.items() if count >= LEAST_LOOKS}


def _mean(line: _Line, runs: Sequence[_Run]) -> tuple[float, float]:
    """(mean over the runs, variance of the mean) of the time in a line."""
    values, variances = zip(*(_time_in(line, run) for run in runs), strict=True)
    count = len(runs)
    between = float(np.var(values, ddof=1)) if count > 1 else 0.0
    return float(np.mean(values)), max(float(np.mean(variances)), between) / count


def _time_in(line: _Line, run: _Run) -> tuple[float, float]:
    """(time in a line, its variance)"""
    threads = run.threads.get(line[0])
    if threads is None:
        return 0.0, 0.0
    count = len(threads.blocks)
    there = threads.lines == threads.order.get(line, -1)
    share = float(there.mean())
    # As if two more looks had been made, of which one saw it: that none did is no proof that it takes no time.
    likely = (there.sum() + 1) / (count + 2)
    variance = float(likely * (1 - likely) / count)
    if count >= BLOCKS:
        by_block = np.bincount(threads.blocks, there) / np.bincount(threads.blocks)
        variance = max(variance, float(np.var(by_block, ddof=1)) / BLOCKS)
    value = share * threads.time
    return value, variance * threads.time**2 + (run.noise * value) ** 2


def _call(line: _Line, runs: Sequence[_Run]) -> Call:
    of = (run.threads[line[0]].calls for run in runs if line[0] in run.threads)
    return next(calls[line] for calls in of if line in calls)
