"""Which fetches belong to one step, and which of their batches it trains, as a training turns out to go."""

from __future__ import annotations

from ...record.schema import NOT_MEASURED, EventKind
from .actions import Amend, Deliver
from .batches import MOST_HELD, MOST_TOGETHER
from .loaders import Iteration, Use
from .state import LoopState


class UpdateBatches(LoopState):
    """The part of the loop detector that puts fetches together which one update is made of."""

    def __init__(self, thread: int) -> None:
        super().__init__(thread)
        self._stopped: Iteration | None = None
        """An iteration that ended, with batches that may be learnt from yet."""
        self._together_told = False
        """That several batches are one step was said."""

    def _together(self, of: Iteration, computed: bool | None, now: int) -> bool:
        """Whether a fetch with nothing learnt since the one before it is for the same step: of a batch to be held back,
        or of a further micro-batch of an update."""
        role, together = of.role, of.batches.together
        if self.open is not of or of.use is Use.EVALUATES:
            return False
        if computed is not True and together < role.together + (role.held or 0):
            return True
        if role.direct or together >= MOST_TOGETHER:
            return False
        if of.fetched == 1:
            # The forward pass of the batch before may lie between the two, and so may the first use of a device.
            return role.held == 1 or computed is False or self._adjacent(now)
        return (computed is False or (computed is None and not role.sums)) and self._adjacent(now)

    def _settle(self, of: Iteration) -> None:
        """Which of the batches fetched does the open step train? A step of their loader reached its optimizer."""
        self._unsettled = False
        role, batches = of.role, of.batches
        begin_ns = 0
        if of.done:
            together = batches.trained(0)
        elif batches.bursts > 1:
            spare = batches.first - batches.together
            role.settled, role.held = True, spare if 0 <= spare <= MOST_HELD else 0
            together = batches.together
        else:
            spare = batches.spare(self.passes - of.passes_then)
            if spare > MOST_HELD:
                begin_ns, spare = batches.skip(spare), 0
            role.held = spare
            together = batches.trained(spare)
        samples = batches.samples(role.held)
        if begin_ns or samples != self._samples:
            self._samples = samples
            self._actions.append(Amend(samples, begin_ns))
        if together != role.together and not of.done:
            role.together = together
            self._happened(EventKind.BATCHES_TOGETHER, 0, NOT_MEASURED, together)
        if role.settled and together > 1 and not self._together_told:
            self._together_told = True
            self._say(
                f"The training fetches {together} batches for each update before it computes the first: such an update "
                f"is one step, with {together} batches."
            )

    def _deliver_held(self, of: Iteration, now: int) -> None:
        """The open step trains all batches that are left."""
        self._samples = of.batches.samples(None)
        while flags := of.batches.further_flags(None):
            self._actions.append(Deliver(self._samples, now, True, *self._delivered, flags))
        self._actions.append(Deliver(self._samples, now, True, *self._delivered))
        self.inside = True

    def _learns_after_stop(self, updates: bool) -> None:
        """Something is learnt with no step open, perhaps from batches of a pass that is over."""
        of = self._stopped
        if of is None:
            return
        if not self._many(of):
            # Two fetches came before the first batch was learnt from, and a batch is left after the last.
            of.role.held = 1
        elif not updates:
            return
        elif self.passes - of.passes_then == of.batches.first:
            # All of a pass were the micro-batches of one update.
            of.role.use, of.role.together, of.role.held = Use.TRAINS, of.batches.first, 0
        self._stopped = None
