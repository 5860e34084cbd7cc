"""What a tool adds to a plain training of short steps: to each step, before the first one and after the last."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from overhead_table import Interval, interval
from rivals_cases import COST_STEPS_MS, cost_case
from rivals_run import RECORD, Record, fit, read, run, step_us
from rivals_tools import ALONE, BARE, Tool

Round = dict[str, tuple[Record, Path]]
"""By tool, the runs made one after another."""


@dataclass(frozen=True)
class Cost:
    """What one tool adds, against the bare run of the same round."""

    tool: str
    step_us: Mapping[float, Interval]
    """By the length of a step in ms."""
    begin_s: Interval | None
    end_s: Interval | None


def measure(tools: Sequence[Tool], rounds: int, folder: Path, python: Path, source: random.Random) -> Iterator[str]:
    """Run all, and say what is being run."""
    for step_ms in COST_STEPS_MS:
        case = cost_case(step_ms)
        plan = fit(case, folder)
        for number in range(rounds):
            for tool in source.sample([ALONE, *tools], len(tools) + 1):
                yield f"{case.name}, round {number + 1} of {rounds}: {tool.name}"
                run(tool, case, number, place(folder, step_ms, number, tool.name), python, plan)


def costs(folder: Path, tools: Sequence[Tool]) -> tuple[list[Cost], Mapping[float, float], int]:
    """What each tool added in the runs of a folder, the bare step in µs by its length asked for, and the rounds."""
    rounds = {step_ms: _rounds(folder, step_ms, tools) for step_ms in COST_STEPS_MS}
    bare = {}
    for step_ms, done in rounds.items():
        alone = [us for each in done if BARE in each and (us := step_us(each[BARE][1], None)) is not None]
        if alone:
            bare[step_ms] = interval(alone).median
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
            found.append(Cost(tool.name, added, begin, end))
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
    rounds: Sequence[Round], tool: Tool, figure: Callable[[tuple[Record, Path]], float | None]
) -> Interval | None:
    """The differences within rounds in which both trainings ended well."""
    differences = []
    for each in rounds:
        if not {tool.name, BARE} <= set(each) or each[tool.name][0].failed or each[BARE][0].failed:
            continue
        watched, bare = figure(each[tool.name]), figure(each[BARE])
        if watched is not None and bare is not None:
            differences.append(watched - bare)
    return interval(differences) if differences else None
