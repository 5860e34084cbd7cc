"""Lines of code that take more, or less, of the time on one side than on the other, by stack samples.

A line's time is its share of the stack samples of a thread, times what a sample of the data (or a step) takes. Stack
samples are counts, and those that follow each other may be of one call: their share varies as counts do, or as blocks
of them do where that is more. What runs of one setting differ by comes on top. Line numbers move between two versions
of a program, so a line is the same on both sides where file, function and text are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import PurePath

import numpy as np

from ...record.run import open_run
from ...record.stacks import Call
from ..ranks.figures import leading
from ..run.analysis import parts_of
from ..statistics import OUTSIDE, Estimate, students_t
from ..where.looks import looks_at
from ..where.places import place_of
from .sides import LEAST_PART_CHANGE, Measured, Side, Values, assumed_noise, time_per_unit

MOST_LINES = 5
LEAST_LOOKS = 5
"""Stack samples that a line needs on one side to be compared: fewer are chance."""
BLOCKS = 16
"""Stretches of a run that a line's share is seen to vary over."""
TRAINING, WORKERS = "training", "workers"


@dataclass(frozen=True)
class MovedLine:
    """A line whose time surely changed, µs per unit with 95 % intervals; `change` is B less A."""

    file: str
    """As on side B, like the other words; where that has the line no longer, as on A."""
    line: int
    function: str
    code: str
    """Empty where lines of source are not kept."""
    whose: str
    """Whose time it is: that of the thread that trains, or of all `workers` together."""
    a: Estimate
    b: Estimate
    change: Estimate

    @property
    def call(self) -> Call:
        return Call(self.function, self.file, self.line, self.code)


_Line = tuple[str, str, str, str]
"""Whose, file without its folder (in which two versions differ), function, text (or number where that is unknown)."""


@dataclass(frozen=True)
class _Run:
    """Stack samples of one run in its window, counted by line and by block of consecutive samples."""

    noise: float
    time: dict[str, float]
    """By whose they are, µs per unit that all of them together stand for."""
    looks: dict[str, Values]
    """By whose they are, number by block."""
    lines: dict[_Line, Values]
    """Number by block."""
    calls: dict[_Line, Call]

    def time_in(self, line: _Line) -> tuple[float, float]:
        """(time in a line, its variance)"""
        whose = line[0]
        if whose not in self.looks:
            return 0.0, 0.0
        looks, there = self.looks[whose], self.lines.get(line, np.zeros(BLOCKS))
        count = float(looks.sum())
        # As if two more samples had been taken, of which one saw it: that none did is no proof that it takes no time.
        likely = float(there.sum() + 1) / (count + 2)
        variance = likely * (1 - likely) / count
        if count >= BLOCKS:
            variance = max(variance, float(np.var(there / looks, ddof=1)) / BLOCKS)
        value = float(there.sum()) / count * self.time[whose]
        return value, variance * self.time[whose] ** 2 + (self.noise * value) ** 2


def moved_lines(a: Side, b: Side, unit: str, noise: float | None) -> tuple[MovedLine, ...] | None:
    """Find the lines that surely changed, at most `MOST_LINES`; `None` where a run has no stack samples.

    `unit`: sample or step. `noise`: standard deviation between runs of one setting, as a share, where the user knows
    it.
    """
    of_a, of_b = ([seen for run in side.runs if (seen := _seen(run, unit, noise))] for side in (a, b))
    if (len(of_a), len(of_b)) != (len(a.runs), len(b.runs)):
        return None
    counts: list[Counter[_Line]] = [Counter(), Counter()]
    for number, side in enumerate((of_a, of_b)):
        for run in side:
            counts[number].update({line: int(looks.sum()) for line, looks in run.lines.items()})
    compared = sorted({line for side in counts for line, count in side.items() if count >= LEAST_LOOKS})
    whole = max(time_per_unit(run, unit) for run in (*a.runs, *b.runs))
    usual, sure = students_t(BLOCKS - 1), students_t(BLOCKS - 1, OUTSIDE / max(1, len(compared)))
    found = []
    for line in compared:
        (mean_a, var_a), (mean_b, var_b) = _mean(line, of_a), _mean(line, of_b)
        change, error = mean_b - mean_a, sqrt(var_a + var_b)
        # Of so many lines some differ by chance: all together they may be wrong as rarely as one is.
        if abs(change) < LEAST_PART_CHANGE * whole or abs(change) <= sure * error:
            continue
        call = next(run.calls[line] for run in (*of_b, *of_a) if line in run.calls)
        in_a, in_b = (Estimate.around(m, usual * sqrt(v)).positive() for m, v in ((mean_a, var_a), (mean_b, var_b)))
        moved = Estimate.around(change, usual * error)
        found.append(MovedLine(call.file, call.line, call.function, call.text, line[0], in_a, in_b, moved))
    found.sort(key=lambda each: -abs(each.change.value))
    return tuple(found[:MOST_LINES])


def _seen(run: Measured, unit: str, noise: float | None) -> _Run | None:
    process = leading(run.analysis, [open_run(part) for part in parts_of(run.folder)])
    every = None if process is None else looks_at(*process)
    if every is None:
        return None
    time, window = time_per_unit(run, unit), run.facts.window
    workers = run.facts.set_workers or len(np.unique(every.workers.records["process"]))
    found = _Run(assumed_noise(run) if noise is None else noise, {TRAINING: time, WORKERS: time * workers}, {}, {}, {})
    for whose, looks in ((TRAINING, every.training), (WORKERS, every.workers)):
        stacks = looks.between(window.begin_ns, window.end_ns).records["stack"].tolist()
        lines: dict[int, _Line] = {}
        for number in sorted(set(stacks)):
            if (place := place_of(looks.table.stack(number))) is not None:
                call = place[0]
                text = call.text.strip() or f"line {call.line}"
                lines[number] = (whose, PurePath(call.file).name, call.function, text)
                found.calls.setdefault(lines[number], call)
        seen = [lines[number] for number in stacks if number in lines]
        blocks = [at * BLOCKS // len(seen) for at in range(len(seen))]
        for (line, block), count in Counter(zip(seen, blocks, strict=True)).items():
            found.looks.setdefault(whose, np.zeros(BLOCKS))[block] += count
            found.lines.setdefault(line, np.zeros(BLOCKS))[block] += count
    return found if TRAINING in found.looks else None


def _mean(line: _Line, runs: Sequence[_Run]) -> tuple[float, float]:
    """(mean over the runs, variance of the mean) of the time in a line."""
    values, variances = zip(*(run.time_in(line) for run in runs), strict=True)
    between = float(np.var(values, ddof=1)) if len(runs) > 1 else 0.0
    return float(np.mean(values)), max(float(np.mean(variances)), between) / len(runs)
