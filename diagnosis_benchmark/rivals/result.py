"""All runs of a folder, judged."""

from __future__ import annotations

import pickle
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whyidle_bench.cases.case import Case
from whyidle_bench.cases.registry import CASES

from .cases import LEAST_SHARE
from .judge import judged
from .run import PLAN, lost_share, read
from .tool import Tool

FAILED, NOT_THERE = "failed", "not judged"
"""The tool or its run ended with an error; the fault cost too little in this run, or a control's training too much."""


@dataclass(frozen=True)
class Judgement:
    """What one tool made of one run."""

    tool: str
    level: str
    share: float | None
    """Lost to the fault, or by a healthy training to anything, 0..1."""
    sentence: str
    seconds: float


@dataclass(frozen=True)
class CaseResult:
    """A case, and what each tool made of it."""

    case: Case
    judgements: Sequence[Judgement]
    cannot: dict[str, str]
    """By tool, why it was not given the case."""

    def of(self, tool: str) -> list[Judgement]:
        return [each for each in self.judgements if each.tool == tool]

    def levels(self, tool: str) -> Counter[str]:
        return Counter(each.level for each in self.of(tool))

    @property
    def share(self) -> tuple[float, float, float] | None:
        """Lowest, median and highest over the tools' runs: they are not the same run."""
        shares = sorted(each.share for each in self.judgements if each.share is not None)
        return (shares[0], statistics.median(shares), shares[-1]) if shares else None


def place(folder: Path, case: str, tool: str, repeat: int) -> Path:
    return folder / "cases" / case / f"{tool}-{repeat}"


def results(folder: Path, tools: Sequence[Tool]) -> Iterator[CaseResult]:
    """In the order of the registry."""
    by_name = {tool.name: tool for tool in tools}
    for name in CASES:
        runs = sorted(path.parent for path in (folder / "cases" / name).glob("*/run.json"))
        if not runs:
            continue
        case: Case = pickle.loads((runs[0] / PLAN).read_bytes())
        cannot = {tool.name: why for tool in tools if (why := tool.cannot(case))}
        given = [(each, each.name.rpartition("-")[0]) for each in runs]
        judgements = [
            _judgement(case, by_name[tool], each) for each, tool in given if tool in by_name and tool not in cannot
        ]
        yield CaseResult(case, judgements, cannot)


def _judgement(case: Case, tool: Tool, at: Path) -> Judgement:
    record = read(at)
    share = lost_share(case, tool, at)
    seconds = record.seconds[0]
    if record.failed:
        return Judgement(tool.name, FAILED, share, f"exit code {record.exit_codes[-1]}", seconds)
    try:
        verdict = tool.read(at)
        level = judged(tool, verdict, case)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Judgement(tool.name, FAILED, share, f"unreadable: {error!r}", seconds)
    if share is None or (share < LEAST_SHARE) == bool(case.causes):
        level = NOT_THERE
    return Judgement(tool.name, level, share, verdict.sentence, seconds)


def better(result: CaseResult, tools: Sequence[Tool], order: Sequence[str], ours: str) -> list[str]:
    """Names of the tools whose best judgement of a case comes before the best of `ours` in this order."""
    best = {
        tool.name: min(levels)
        for tool in tools
        if (levels := [order.index(level) for level in result.levels(tool.name) if level in order])
    }
    return [tool for tool, level in best.items() if ours in best and level < best[ours]]
