"""All runs of a folder, judged."""

from __future__ import annotations

import pickle
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from whyidle.scenarios.faults.case import Case
from whyidle.scenarios.faults.registry import CASES

from .cases import LEAST_SHARE
from .judge import judged
from .run import PLAN, lost_share, read
from .said import said
from .tools import TOOLS, Tool

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
    for name in CASES:
        runs = sorted(path.parent for path in (folder / "cases" / name).glob("*/run.json"))
        if not runs:
            continue
        case: Case = pickle.loads((runs[0] / PLAN).read_bytes())
        cannot = {tool.name: why for tool in tools if (why := tool.cannot(case))}
        named = {tool.name for tool in tools} - set(cannot)
        judgements = [_judgement(case, each) for each in runs if each.name.rpartition("-")[0] in named]
        yield CaseResult(case, judgements, cannot)


def _judgement(case: Case, at: Path) -> Judgement:
    record = read(at)
    share = lost_share(case, record.tool, at)
    seconds = record.seconds[0]
    if record.failed:
        return Judgement(record.tool, FAILED, share, f"exit code {record.exit_codes[-1]}", seconds)
    try:
        verdict = said(record.tool, at)
        level = judged(record.tool, verdict, case)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Judgement(record.tool, FAILED, share, f"unreadable: {error!r}", seconds)
    if share is None or (share < LEAST_SHARE) == bool(case.causes):
        level = NOT_THERE
    return Judgement(record.tool, level, share, verdict.sentence, seconds)


def better(result: CaseResult, order: Sequence[str], ours: str) -> list[str]:
    """Tools whose best judgement of a case comes before the best of `ours` in this order."""
    best = {
        tool: min(order.index(level) for level in result.levels(tool) if level in order)
        for tool in TOOLS
        if any(level in order for level in result.levels(tool))
    }
    return [tool for tool, level in best.items() if ours in best and level < best[ours]]
