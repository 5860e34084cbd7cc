"""Two batch sizes of a sweep, side by side: what the rules ask about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...run.facts import Facts
from ...run.stall_breakdown import PARTS, TOTAL
from ...shares import MOSTLY
from ...statistics import Estimate, median_of_known
from .fit import SweepFit

CONSIDERABLE_CHANGE = 0.05
"""Change of a term, as a share of the time per sample at the smaller size, below which it counts as none. More than
`diff`'s `LEAST_PART_CHANGE`, from which a part has a line of its own: a verdict on batch sizes rests on this."""
UNSURE = 0.10
"""Half the interval of the time per sample, as a share of it, from which runs that show no change prove none either."""


@dataclass(frozen=True)
class Compared:
    """Two batch sizes of a sweep."""

    fit: SweepFit
    smaller: int
    larger: int
    before: Sequence[Facts]
    """The runs of the smaller size."""
    after: Sequence[Facts]
    """The runs of the larger size."""

    def times(self, term: str) -> tuple[float, float]:
        """A term at both sizes, µs per sample."""
        return self.fit.at(self.smaller, term).value, self.fit.at(self.larger, term).value

    def change(self, term: str) -> Estimate:
        """What a term grew by from the smaller to the larger size, µs per sample."""
        return self.fit.change(self.smaller, self.larger, term)

    def values(self, value: Callable[[Facts], float | None]) -> tuple[float, float] | None:
        """A figure of both sizes, the median over their runs; `None` unless both are known."""
        before, after = (median_of_known(value(run) for run in runs) for runs in (self.before, self.after))
        return None if before is None or after is None else (before, after)

    @property
    def slower(self) -> bool:
        """Whether a sample surely takes longer at the larger size, and considerably so."""
        return self._rose(TOTAL)

    @property
    def faster(self) -> bool:
        """Whether a sample surely takes less time at the larger size, and considerably so."""
        change = self.change(TOTAL)
        return change.high < 0 and -change.value > self._least

    @property
    def unsure(self) -> bool:
        """Whether the runs differ by too much to tell slower from faster."""
        return not self.slower and not self.faster and self.reach > UNSURE

    @property
    def reach(self) -> float:
        """Half the interval of the total's change, as a share of the time per sample."""
        change = self.change(TOTAL)
        return (change.high - change.value) / self.times(TOTAL)[0]

    @cached_property
    def risen(self) -> list[str]:
        """The parts that surely grew, the one that did most first."""
        rose = [part for part in PARTS if self._rose(part)]
        return sorted(rose, key=lambda part: -self.change(part).value)

    @property
    def grew(self) -> str | None:
        """The part that grew most, of those that surely did."""
        return self.risen[0] if self.risen else None

    @property
    def waiter(self) -> str:
        """Who waits for data, in a sentence."""
        return self.after[0].waiter

    @property
    def growth(self) -> float:
        """What the part that grew most grew by, µs per sample; 0 where none did."""
        return self.change(self.grew).value if self.grew is not None else 0.0

    def is_due_to(self, *names: str) -> bool:
        """Whether these terms together grew by most of `growth`; not if one of them is not known."""
        return sum(self.change(name).value for name in names) >= MOSTLY * self.growth

    def _rose(self, term: str) -> bool:
        change = self.change(term)
        return change.low > 0 and change.value > self._least

    @property
    def _least(self) -> float:
        return CONSIDERABLE_CHANGE * self.times(TOTAL)[0]
