"""Where settings are tried: a training that can be told with which of them to go on."""

from __future__ import annotations

from typing import Protocol

from ...errors import WhyidleError
from ...record.tuning import Block, LoaderSettings


class TrialFailed(WhyidleError):
    """These settings do not work here; others may. `ended`: the training came to its end meanwhile; a shorter block may
    fit into it."""

    def __init__(self, message: str, out_of_memory: bool = False, ended: bool = False) -> None:
        super().__init__(message)
        self.out_of_memory = out_of_memory
        self.ended = ended


class BenchEnded(WhyidleError):
    """The training is gone, and could not be started again: nothing more can be measured."""


class Bench(Protocol):
    """A training under way, or a simulated one."""

    @property
    def baseline(self) -> LoaderSettings:
        """As the program sets them itself."""
        ...

    @property
    def batches_per_epoch(self) -> int | None:
        """At the baseline's batch size; `None` where that is not known."""
        ...

    def now(self) -> float:
        """Seconds, on a clock that only goes forward; of a simulation its own."""
        ...

    def measure(self, settings: LoaderSettings, seconds: float) -> Block:
        """Train on with these settings and measure so long, or as long as the block needs to mean anything.

        Raises:
            TrialFailed: these settings do not work.
            BenchEnded: nothing works any more.
        """
        ...

    def held(self, seconds: float, batch_size: int | None = None) -> Block:
        """The same with batches that were fetched before: what the training does without a loader. Raises as above.

        Args:
            batch_size: of those batches; `None`: the baseline's.
        """
        ...

    def close(self, settings: LoaderSettings) -> None:
        """These will not be asked for again."""
        ...
