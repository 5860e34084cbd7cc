"""Which stacks the sampler looks at: as options of its command line, and as whoever starts it says it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

HIGHEST_RATE = 50.0


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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--stacks", type=float, default=0.0, metavar="HZ", help="stack samples per second (0: none)")
    parser.add_argument("--no-source", action="store_true", help="record no lines of source")
    parser.add_argument("--not-within", action="store_true", help="no process samples its own stacks")


def of(options: argparse.Namespace) -> StackOptions:
    """What a command line of `add_arguments` asks for."""
    return StackOptions(min(options.stacks, HIGHEST_RATE), not options.no_source, not options.not_within)
