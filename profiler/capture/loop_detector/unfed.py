"""Trainings whose batches come from no loader that their own thread asks: what their steps are taken from, and which
thread that is."""

from __future__ import annotations

UNFED_UPDATES = 3
"""Optimizer steps in a row without a batch of any loader, before steps are taken from those."""
BATCH_UPDATES = 32
"""Steps of one optimizer on one batch, before the training is taken to go on without a loader."""
IDLE_UPDATES = 16
"""Steps of other optimizers after which the one that set the pace is taken to be out of use."""
LEARNS_ELSEWHERE = 3
"""Backward passes and optimizer steps of another thread, before it is believed to train instead of one that fetches or
learns as well."""


class OptimizerPace:
    """Of several optimizers that take turns, the last one sets the pace: a step of the training ends with its."""

    __slots__ = ("_handed_over", "_idle", "_on_batch", "_optimizers", "_pace", "updates")

    def __init__(self) -> None:
        self.updates = 0
        """Optimizer steps since a loader's batch was learnt from last."""
        self._pace: int | None = None
        self._optimizers: set[int] = set()
        self._idle = 0
        """Steps of other optimizers since the last of the one that sets the pace."""
        self._on_batch: dict[int, int] = {}
        """Steps of each optimizer on one batch."""
        self._handed_over = 0
        """`learnings` when that batch was handed over: no two batches that are learnt from have the same."""

    def unfed(self, optimizer: int) -> bool:
        """An optimizer step is over that belongs to no loader's batch; whether a step of the training ends with it."""
        self.updates += 1
        self._idle += 1
        if optimizer not in self._optimizers or self._idle > IDLE_UPDATES:
            if self._idle > IDLE_UPDATES:
                self._optimizers.clear()
            self._optimizers.add(optimizer)
            self._pace = optimizer
        if optimizer != self._pace:
            return False
        self._idle = 0
        return self.updates >= UNFED_UPDATES

    def again(self, optimizer: int, handed_over: int) -> bool:
        """An optimizer step on the batch of a loader is over; whether there were so many on it that the training is
        taken to go on with what it once fetched."""
        if handed_over != self._handed_over:
            self._handed_over = handed_over
            self._on_batch.clear()
        times = self._on_batch[optimizer] = self._on_batch.get(optimizer, 0) + 1
        return times >= BATCH_UPDATES

    def sets(self, optimizer: int) -> None:
        """Take the training steps from this optimizer from now on."""
        self._pace, self._optimizers, self._idle = optimizer, {optimizer}, 0
        self.updates = UNFED_UPDATES


class OtherThreads:
    """Those beside the one that is taken for the training's: which of them fetch batches, and which learn."""

    __slots__ = ("_learnings", "fetching")

    def __init__(self) -> None:
        self.fetching: dict[int, str] = {}
        """Names of those that have asked a loader for a batch, since this was last told."""
        self._learnings: dict[int, int] = {}
        """Backward passes and optimizer steps of each."""

    def learns(self, thread: int, believed: bool) -> bool:
        """One of them begins a backward pass or an optimizer step; whether it is taken for the training's from now on.

        Args:
            believed: nothing speaks for the thread that is taken for it now, and this one was seen to fetch.
        """
        if not believed:
            learnings = self._learnings[thread] = self._learnings.get(thread, 0) + 1
            if learnings < LEARNS_ELSEWHERE:
                return False
        self.fetching, self._learnings = {}, {}
        return True
