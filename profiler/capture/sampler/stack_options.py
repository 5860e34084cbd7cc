"""Which stacks the sampler looks at, as whoever starts it says it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StackOptions:
    """Which stacks are looked at."""

    rate: float = 10.0
    """Looks at a training a second; 0: none at all."""
    source: bool = True
    """Whether lines of source are kept."""
    within: bool = True
    """Whether processes look at their own stacks where the sampler may not look into them."""

    def arguments(self) -> list[str]:
        """For the sampler's command line."""
        off = [("--no-source", self.source), ("--not-within", self.within)]
        return ["--stacks", str(self.rate), *(name for name, wanted in off if not wanted)]


NO_STACKS = StackOptions(rate=0.0)
