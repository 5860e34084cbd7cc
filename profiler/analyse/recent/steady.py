"""Which verdict is shown, and since when: one that does not flicker between two causes that are about as good."""

from __future__ import annotations

from ..causes.finding import Finding
from .judged import Judged

HOLD_NS = 5_000_000_000
"""How long another cause has to come first before it takes the place of the one shown."""
ABOUT_AS_GOOD = 0.8
"""Share of the first cause's gain that lets the one shown stay."""


class Steady:
    """Told of every judgement in the order of time."""

    def __init__(self) -> None:
        self._shown: Finding | None = None
        self._since_ns = 0
        self._other: tuple[str | None, int] | None = None
        """Another cause that comes first, and since when."""

    def told(self, judgement: Judged, at_ns: int) -> tuple[Finding, int]:
        """(the verdict to show, since when it has named this cause)."""
        verdict = judgement.verdict
        if self._shown is None or verdict.cause == self._shown.cause or self._gives_way(judgement, at_ns):
            if self._shown is None or verdict.cause != self._shown.cause:
                self._since_ns = self._other[1] if self._other is not None else at_ns
            self._shown, self._other = verdict, None
            return verdict, self._since_ns
        still = next((f for f in judgement.findings if f.cause == self._shown.cause), None)
        self._shown = still or self._shown
        return self._shown, self._since_ns

    def since(self, since_ns: int) -> None:
        """What is shown is known to hold for longer."""
        self._since_ns = min(self._since_ns, since_ns)

    def _gives_way(self, judgement: Judged, at_ns: int) -> bool:
        verdict, shown = judgement.verdict, self._shown
        assert shown is not None
        if shown.cause is None:
            return True
        if self._other is None or self._other[0] != verdict.cause:
            self._other = verdict.cause, at_ns
        still = next((f for f in judgement.findings if f.cause == shown.cause), None)
        if still is not None and still.gain >= ABOUT_AS_GOOD * verdict.gain:
            return False
        return at_ns - self._other[1] >= HOLD_NS
