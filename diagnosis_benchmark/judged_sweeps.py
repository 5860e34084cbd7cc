"""Verdicts on sweeps over batch sizes against what was planted: cause, term, and how much the time per sample grew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from whyidle.analyse.cells.batch_size import BatchVerdict
from whyidle.analyse.run.stall_breakdown import TOTAL


@dataclass(frozen=True)
class Growth:
    """From the one batch size to the other, as shares of the time per sample at the smaller one."""

    true: float
    reported: float

    @property
    def error(self) -> float:
        """How far the report is off, in percentage points."""
        return 100 * abs(self.reported - self.true)


@dataclass(frozen=True)
class JudgedSweep:
    """One sweep of which it is known what a larger batch does, and what was said about it."""

    name: str
    cause: str
    """Planted."""
    grew: str | None
    """The term that was planted to grow."""
    verdict: BatchVerdict | None
    """`None` where fewer than two sizes ran."""
    truth: Mapping[int, Mapping[str, float]]
    """Batch size → term → µs a sample, the mean over the runs; without sizes of which nothing is known."""

    @property
    def right(self) -> bool:
        """Whether both the cause and the term are named as planted."""
        return self.verdict is not None and (self.verdict.cause, self.verdict.grew) == (self.cause, self.grew)

    @property
    def growth(self) -> Growth | None:
        """Of the term that was planted to grow, or of the whole where none was, between the two sizes that the verdict
        compares; `None` where that is not known."""
        verdict, term = self.verdict, self.grew or TOTAL
        if verdict is None or verdict.smaller not in self.truth or verdict.larger not in self.truth:
            return None
        before, after = self.truth[verdict.smaller], self.truth[verdict.larger]
        return Growth(
            (after[term] - before[term]) / before[TOTAL],
            verdict.changes[term].value / verdict.terms[verdict.smaller][TOTAL].value,
        )
