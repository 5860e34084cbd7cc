"""Steps as loaders and learning make them: which fetch opens one, which belongs to one, which evaluates.

Which fetches belong to one step, and which of their batches it trains, as a training turns out to go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...record.schema import NOT_MEASURED, EventKind
from .loaders import MOST_HELD, MOST_TOGETHER, Fetched, Iteration, Part, Use
from .state import LoopState
from .unfed import OptimizerPace, OtherThreads

if TYPE_CHECKING:
    from ..session import Session


class UpdateBatches(LoopState):
    """The part of the loop detector that puts fetches together which one update is made of."""

    def __init__(self, thread: int, session: Session) -> None:
        super().__init__(thread, session)
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
            self._later(self._steps.amend, samples, begin_ns)
        if together != role.together and not of.done:
            role.together = together
            self._happened(EventKind.BATCHES_TOGETHER, 0, NOT_MEASURED, together)
        if role.settled and together > 1 and not self._together_told:
            self._together_told = True
            self._say(
                f"The training fetches {together} batches for each update before it computes the first. One update "
                f"counts as one step, with {together} batches."
            )

    def _deliver_held(self, of: Iteration, now: int) -> None:
        """The open step trains all batches that are left."""
        self._samples = of.batches.samples(None)
        while flags := of.batches.further_flags(None):
            self._later(self._steps.fetch_end, self._samples, now, True, *self._delivered, flags)
        self._later(self._steps.fetch_end, self._samples, now, True, *self._delivered)
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


class LoaderSteps(UpdateBatches):
    """The part of the loop detector that hears of iterators, fetches, backward passes and optimizer steps."""

    def __init__(self, thread: int, session: Session) -> None:
        super().__init__(thread, session)
        self.waiting: Part | None = None
        """What a wait for data that the program marks is to the steps, while it lasts."""
        self._fetched = False
        """Whether the training thread has asked a loader for a batch."""
        self._others = OtherThreads()
        self._elsewhere_told = False
        """That batches are fetched in other threads was said."""
        self._explained = False
        """Why there are no steps was said."""
        self._pace = OptimizerPace()
        self._lost_updates = self._lost_passes = 0
        """Optimizer steps and backward passes that began while no step was open."""

    # The common cases, which hooks may ask for without an event: whatever is called and made costs, most of all when
    # the step has emptied the caches.

    def next_begins(self, of: Iteration, now: int) -> bool:
        """`fetch_began`, where a training that goes on asks for its next batch; all there is to be done then is the
        recorder's `fetch_begin(of.epoch, False, of.queue, now)`. False: it is something else, and nothing changed."""
        if (
            of is not self.open
            or not self.learnt
            or not of.steady
            or of.learnings_then == self.learnings
            or self.shared
            or self.waiting is not None
        ):
            return False
        self.learnt = self.inside = False
        of.role.direct = True
        self.part = Part.OPENS
        self._opened_ns = self._asked_ns = now
        return True

    def next_ends(self, of: Iteration, now: int, samples: int, loader: int, batch: int) -> bool:
        """`fetch_ended` of that; all there is to be done then is the recorder's `fetch_end`. False as above."""
        if not of.steady or of is not self.open or self.part is not Part.OPENS:
            return False
        of.fetched += 1
        of.learnings_then = self.learnings
        self._asked_ns = self._last_ns = now
        self._samples = samples
        self._delivered = loader, batch
        self.inside = True
        return True

    def next_learns(self, updates: bool) -> bool:
        """`learning_began`, within a step that a training opened which goes on; the first time all there is to be done
        then is `_first_learning`, and nothing later. False as above."""
        if not self.learnt:
            of = self.open
            if of is None or not of.steady or self.shared or self._boundary_ns:
                return False
            self.learnt = of.ever_learnt = True
            of.role.use = Use.TRAINS
            self._pace.updates = 0
        elif updates and self._unsettled:
            return False
        self.learnings += 1
        if updates:
            self.updated = self.learnings
        else:
            self.passes += 1
        return True

    # What loaders do.

    def iter_began(self, of: Iteration, now: int, gradients: bool) -> None:
        """A loader is asked for an iterator. `gradients`: autograd records what is computed now, which evaluations
        mostly turn off."""
        use = of.use = self._use_of(of.role, gradients)
        if use is Use.EVALUATES:
            self._begin_boundary(now)
        elif not self._joins(of.role, use, now) and not (self._created and self._adjacent(now)):
            self._open_step(None, True, None, now)
            self._created = True
        self.inside = False

    def iter_ended(self, of: Iteration, now: int) -> None:
        """The loader has made an iterator."""
        self._last_ns = now
        of.learnings_then = self.learnings
        of.waited_ns = now - of.begin_ns
        self.inside = self.open is not None and not self._boundary_ns

    def iter_failed(self) -> None:
        """The loader raised instead."""
        self._drop_created()
        self.inside = self.open is not None and not self._boundary_ns

    def fetch_began(self, of: Iteration, now: int, gradients: bool, computed: bool | None = None) -> None:
        """A batch is asked for.

        `computed`: nodes of autograd's graph were made since the last batch of the open step came, or since the last
        backward pass or optimizer step; `None`: not known.
        """
        if self.next_begins(of, now):
            self._later(self._steps.fetch_begin, of.epoch or 0, False, of.queue, now)
            return
        if of.use is None:
            # Nobody saw its iterator being made.
            of.use, of.learnings_then = self._use_of(of.role, gradients), self.learnings
        of.steady = False
        self.inside = False
        self._fetched = True
        self.part = Part.NOTHING
        self._stopped = None
        self._asked_ns = now
        if self.waiting is not None and self._within_wait(of):
            return
        # What is fetched without gradients evaluates, even if the training went on since, until it was seen to train.
        learnt = of.fetched > 0 and of.learnings_then != self.learnings and (of.use is Use.TRAINS or gradients)
        if learnt:
            of.ever_learnt = True
            of.use = of.role.use = Use.TRAINS
            if self._unsettled and self.open is of:
                self._settle(of)
            together = of.unlearnt_in_row + 1
            if together > 1 and together == self.passes - of.passes_then and not of.computed_between:
                # Each was taken for a step, and then all of them were computed.
                of.role.together, of.role.held = together, of.role.held or 0
            elif of.unlearnt_in_row and of.fetched > 2:
                of.role.sums = True
            of.role.direct |= not (of.role.held or of.unlearnt_in_row) and of.role.together == of.batches.together == 1
            of.unlearnt_in_row = 0
            of.computed_between = False
        elif of.fetched and self._together(of, computed, now):
            self.part = Part.EXTENDS
            return
        elif of.fetched:
            of.computed_between |= computed is not False
            of.unlearnt += 1
            of.unlearnt_in_row += 1
        if of.use is Use.EVALUATES:
            self._begin_boundary(now)
            self._evaluating.fetches(of, now if of.fetched else max(of.begin_ns, self._boundary_ns))
        elif self._marked:
            self.end_boundary(now)
            self._drop_created()
            if self.open is not None:
                self._fetch_further(now)
        elif of.fetched == 0 and self._created and self._adjacent(now):
            self._created = False
            self.open = of
            of.batches.step_begins(of.role.held or 0)
            self.part = Part.OPENS
        else:
            self._fetch_by_role(of, learnt, now)

    def _fetch_by_role(self, of: Iteration, learnt: bool, now: int) -> None:
        """A fetch of a loader that trains, or of which that is not known: does it open a step?"""
        self._drop_created()
        if of.fetched and not learnt:
            # A training's loader may be iterated over for an evaluation too, even with gradients.
            further = of.batches.together - 1 if self.open is of else 0
            idle = of.unlearnt_in_row + further > 1 and not of.ever_learnt and not of.role.sums
            if of.use is Use.UNKNOWN or idle:
                of.use = Use.EVALUATES
                begin = now
                if self.open is of:
                    begin = of.begin_ns
                    self._take_back()
                self._begin_boundary(begin)
                self._evaluating.fetches(of, begin)
                return
            if of.fetched == 1 and self.open is of and not of.role.sums:
                self._take_back()
        if not self.learnt and self._joins(of.role, of.use, now):
            self.shared = True
            self._fetch_further(now)
            return
        self._open_step(of, of.fetched == 0, of.queue, now)
        of.batches.step_begins(of.role.held or 0)
        self.part = Part.OPENS

    def fetch_ended(self, of: Iteration, now: int, samples: int, loader: int, batch: int, flags: int) -> None:
        """The batch was handed over.

        `loader`: which iterator of the process made it, `batch`: its number there, `NOT_MEASURED` where that is not
        known; `flags`: what `StepFlag` says of its shapes.
        """
        if self.next_ends(of, now, samples, loader, batch):
            self._later(self._steps.fetch_end, samples, now, True, loader, batch, flags)
            return
        of.fetched += 1
        of.learnings_then = self.learnings
        asked_ns = self._asked_ns
        of.waited_ns += now - asked_ns
        self._asked_ns = self._last_ns = now
        of.passes_then = self.passes
        if self.part is Part.NOTHING:
            return
        self.inside = True
        if self.part is Part.OPENS or (self.part is Part.EXTENDS and of is self.open):
            fetched = Fetched(samples, flags, asked_ns)
            samples, flags = of.batches.fetched(fetched, of.role.held)
            more = max(of.batches.first, of.batches.together) > 1
            self._unsettled = more and not of.role.settled and of.batches.bursts <= 2
            if self.part is Part.EXTENDS:
                self._samples = samples
        if self.part is Part.OPENS:
            self._samples = samples
            self._delivered = loader, batch
            self._later(self._steps.fetch_end, samples, now, True, loader, batch, flags)
            if of.use is Use.TRAINS and of.epoch is None:
                self._count_epoch(of)
            plain = not of.role.held and of.role.together == 1
            of.steady = of.use is Use.TRAINS and plain and not of.unlearnt_in_row and not self._unsettled
            return
        if self.open is self.own:
            # Of several loaders that feed one marked step, the first has the samples.
            if self._feeds is None:
                self._feeds = of.role
            if self._feeds is of.role and samples >= 0:
                self._samples = max(0, self._samples) + samples
        if of is self.open:
            self._delivered = loader, batch
        self._further_ends(now, flags)

    def fetch_stopped(self, of: Iteration, now: int) -> None:
        """There was no further batch."""
        of.done = of.batches.ended = True
        if self.part is Part.OPENS:
            if of.role.held and of.use is Use.TRAINS:
                # What was held back is trained now; the wait was for the end.
                self._deliver_held(of, now)
            else:
                self._take_back()
                if of.use is Use.TRAINS and of.unlearnt == 1:
                    self._stopped = of
        elif self.part is Part.EXTENDS and of is self.open:
            if of.role.together + (of.role.held or 0) > 1:
                self._deliver_held(of, now)
            elif self._many(of):
                # It may as well have been put into a list.
                self._is_none(of)
                of.role.use = Use.EVALUATES
                self._stopped = of
            else:
                self._further_fails()
        elif self.part is not Part.NOTHING:
            self._further_fails()
        if of.use is Use.EVALUATES:
            if of.role.use is Use.UNKNOWN:
                of.role.use = Use.EVALUATES
            of.waited_ns += now - self._asked_ns
            self.end_boundary(now)
        elif of.use is Use.TRAINS and of.fetched > 1 and not of.ever_learnt:
            of.role.use = Use.UNKNOWN
        self._last_ns = now

    def fetch_failed(self) -> None:
        """The fetch raised; the training may go on all the same."""
        if self.part is Part.OPENS:
            self._take_back()
        elif self.part is not Part.NOTHING:
            self._further_fails()

    # What trains.

    def learning_began(self, now: int, updates: bool) -> None:
        """A backward pass or an optimizer step (`updates`) begins, or a CUDA graph with one is replayed."""
        again = self.learnt
        if self.next_learns(updates):
            if not again:
                self._later(self._first_learning)
            return
        self.learnings += 1
        if updates:
            self.updated = self.learnings
        else:
            self.passes += 1
        if self._others.fetching:
            self._tell_fetchers()
        self._drop_created()
        self.end_boundary(now)
        of = self.open
        if of is None:
            self._lost_updates += updates
            self._lost_passes += not updates
            self._learns_after_stop(updates)
            return
        if of is not self.own:
            self._pace.updates = 0
        self.learnt = True
        if not self.shared:
            of.use = of.role.use = Use.TRAINS
            of.ever_learnt = True
        if of.epoch is None:
            self._count_epoch(of)
        if not again:
            self._later(self._first_learning)
        if updates and self._unsettled:
            self._settle(of)

    def update_ended(self, now: int, optimizer: int) -> None:
        """An optimizer step is over, which no CUDA graph captures. `optimizer`: its identity."""
        of = self.open
        if self._marked or self.waiting is not None:
            return
        if of is None or of is self.own:
            if not self._pace.unfed(optimizer):
                return
        elif of.fetched <= 2 and self._pace.again(optimizer, of.learnings_then):
            self._pace.sets(optimizer)
        else:
            return
        if not self._explained:
            self._explained = True
            self._say(
                "whyidle sees no loader of the training's batches. A step is counted from one optimizer step "
                "to the next."
            )
        self._open_own(now)

    def _within_wait(self, of: Iteration) -> bool:
        """A loader's fetch in a wait that the program marks; whether that says all of it."""
        part, self.waiting = self.waiting, Part.EXTENDS
        if part is Part.WITHIN:
            self._later(self._steps.fetch_within_end, self._samples)
        elif part is Part.OPENS and of.use is not Use.EVALUATES:
            # The wait opened the step that this fetch would open.
            if self.open is not None:
                self.open.fetched += 1
            self.open = of
            self.part = Part.OPENS
            return True
        elif part is Part.NOTHING:
            self.waiting = Part.NOTHING
        return False

    def _tell_fetchers(self) -> None:
        """The training learns, and batches are fetched in other threads."""
        names, self._others.fetching = ", ".join(sorted(self._others.fetching.values())), {}
        if not self._fetched and not self._elsewhere_told:
            self._explained = self._elsewhere_told = True
            self._say(
                f"Another thread than the training's fetches batches ({names}). A step is counted from one "
                "optimizer step to the next."
            )
