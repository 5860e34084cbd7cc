"""What was measured so far, one entry an order: all that a search knows, and all that is kept of it for another day."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from ...record.tuning import Block, LoaderSettings

Arm = LoaderSettings
"""Settings without `persistent_workers`: within an epoch they do the same, so their blocks count together."""


def arm_of(settings: LoaderSettings) -> Arm:
    return replace(settings, persistent_workers=False)


@dataclass(frozen=True)
class Entry:
    """One order and its answer. Seconds are of the sitting, from its begin."""

    settings: LoaderSettings
    round: int
    """Blocks of a round followed each other, so that drift of the machine hits them alike."""
    sitting: int
    """Counted from 0; a resumed search is another one, on a machine that may have become another as well."""
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

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Entry:
        """Raises ValueError, TypeError or KeyError for what is none."""
        block = given.get("block")
        return cls(
            **{
                **given,
                "settings": LoaderSettings.from_json(given["settings"]),
                "block": None if block is None else Block.from_json(block),
            }
        )
