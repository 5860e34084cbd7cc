"""What a tool adds to a plain training of short steps: to each step, before the first one and after the last."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from .cases import COST_STEPS_MS, cost_case
from .run import RECORD, RivalRun, fit, read, run, step_us
from .tool import ALONE, BARE, Tool

RESAMPLES = 2000
Round = dict[str, tuple[RivalRun, Path]]
"""By tool, the runs made one after another."""


@dataclass(frozen=True)
class MedianInterval:
    """A median, and where 90 % of the medians of resampled rounds lie."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            # Of a single value; nothing is known of how sure that is.
            return _figure(self.median)
        return f"{_figure(self.median)} [{_figure(self.low)} {_figure(self.high)}]"


def _figure(value: float) -> str:
    return f"{value:+.1f}" if abs(value) < 100 else f"{value:+.0f}"


def median_interval(values: Sequence[float]) -> MedianInterval:
    """The median and where 90 % of the medians of resampled rounds lie."""
    drawn: npt.NDArray[np.float64] = np.asarray(values, dtype=np.float64)
    source = np.random.default_rng(1)
    medians = np.median(drawn[source.integers(0, len(drawn), (RESAMPLES, len(drawn)))], axis=1)
    low, high = np.quantile(medians, (0.05, 0.95))
    return MedianInterval(float(np.median(drawn)), float(low), float(high))


@dataclass(frozen=True)
class AddedCost:
    """What one tool adds, against the bare run of the same round."""

    tool: str
    step_us: Mapping[float, MedianInterval]
    """By the length of a step in ms."""
    begin_s: MedianInterval | None
    end_s: MedianInterval | None


def measure(tools: Sequence[Tool], rounds: int, folder: Path, python: Path, source: random.Random) -> Iterator[str]:
    """Run all, and say what is being run."""
    for step_ms in COST_STEPS_MS:
        case = cost_case(step_ms)
        plan = fit(case, folder)
        for number in range(rounds):
            for tool in source.sample([ALONE, *tools], len(tools) + 1):
                yield f"{case.name}, round {number + 1} of {rounds}: {tool.name}"
                run(tool, case, number, place(folder, step_ms, number, tool.name), python, plan)


def costs(folder: Path, tools: Sequence[Tool]) -> tuple[list[AddedCost], Mapping[float, float], int]:
    """What each tool added in the runs of a folder, the bare step in µs by its length asked for, and the rounds."""
    rounds = {step_ms: _rounds(folder, step_ms, tools) for step_ms in COST_STEPS_MS}
    bare = {}
    for step_ms, done in rounds.items():
        alone = [us for each in done if BARE in each and (us := step_us(each[BARE][1], None)) is not None]
        if alone:
            bare[step_ms] = median_interval(alone).median
    found = []
    for tool in tools:
        added = {}
        for step_ms, done in rounds.items():
            within = _added(done, tool, lambda each: step_us(each[1], tool.profiled))  # noqa: B023  called at once
            if within is not None:
                added[step_ms] = within
        every = [each for done in rounds.values() for each in done]
        begin = _added(every, tool, lambda each: each[0].begin_s)
        end = _added(every, tool, lambda each: each[0].end_s)
        if added:
            found.append(AddedCost(tool.name, added, begin, end))
    return found, bare, max(len(done) for done in rounds.values())


def place(folder: Path, step_ms: float, number: int, tool: str) -> Path:
    return folder / "costs" / f"{step_ms:g}ms" / f"{number}-{tool}"


def _rounds(folder: Path, step_ms: float, tools: Sequence[Tool]) -> list[Round]:
    rounds: list[Round] = []
    at_length = folder / "costs" / f"{step_ms:g}ms"
    while any(at_length.glob(f"{len(rounds)}-*/{RECORD}")):
        number = len(rounds)
        places = {name: place(folder, step_ms, number, name) for name in (BARE, *(tool.name for tool in tools))}
        rounds.append({name: (read(at), at) for name, at in places.items() if (at / RECORD).exists()})
    return rounds


def _added(
    rounds: Sequence[Round], tool: Tool, figure: Callable[[tuple[RivalRun, Path]], float | None]
) -> MedianInterval | None:
    """The differences within rounds in which both trainings ended well."""
    differences = []
    for each in rounds:
        if not {tool.name, BARE} <= set(each) or each[tool.name][0].failed or each[BARE][0].failed:
            continue
        watched, bare = figure(each[tool.name]), figure(each[BARE])
        if watched is not None and bare is not None:
            differences.append(watched - bare)
    return median_interval(differences) if differences else None
