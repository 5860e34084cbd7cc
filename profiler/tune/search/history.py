"""What was measured so far, one entry an order: all that a search knows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...record.tuning import Block, LoaderSettings

Arm = LoaderSettings
"""Settings without `persistent_workers`: within an epoch they do the same, so their blocks count together."""


def arm_of(settings: LoaderSettings) -> Arm:
    return replace(settings, persistent_workers=False)


@dataclass(frozen=True)
class Entry:
    """One order and its answer. Seconds are those since the search began."""

    settings: LoaderSettings
    round: int
    """Blocks of a round followed each other, so that drift of the machine hits them alike."""
    began_s: float
    ended_s: float
    held: bool = False
    block: Block | None = None
    error: str | None = None
    """Why there is no block."""
    out_of_memory: bool = False
    predicted: float | None = None
    """Samples/s by the model before these settings were first run."""

    @property
    def cost_s(self) -> float:
        return self.ended_s - self.began_s
