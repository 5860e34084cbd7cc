"""Which of a program's loaders trains, and where its steps begin and end.

Nothing in a program says which loader feeds the training. A loader trains when a backward pass or an optimizer step
comes between its fetches. Until that was seen, a fetch opens a step that is taken back when the next fetch comes with
nothing learnt in between: taken back, it was never stored. The time of a loader that only evaluates, from its `iter()`
to its end, is one boundary.

Where optimizers step again and again with no loader's batch behind it, steps are taken from one optimizer step to the
next; where the program says itself where its steps begin, they begin there.

Pure: no torch, no clock, no threads. The hooks say what happened, in order, as a method of the detector with its
arguments; `LoopDetector.feed` returns what is to be done, as calls of the recorder, and `hooks/loop.py` makes these.
Times are the host's monotonic clock in nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...native import DetectorBase
from ...record.schema import NOT_MEASURED, EventKind
from .loaders import MOST_HELD, MOST_TOGETHER, EvaluatingPasses, Fetched, Iteration, OptimizerPace, Part, Role, Use

if TYPE_CHECKING:
    from ..hooks.loader_facts import LoaderFacts
    from ..session import Session
    from ..steps import QueueLook

ADJACENT_NS = 10_000_000
"""`iter()` and the first fetch, or two fetches, that are closer belong together."""
LEAST_LOST = 0.01
"""Share of a training's optimizer steps that must be missing among its steps to be worth a word."""
LEARNS_ELSEWHERE = 3
"""Backward passes and optimizer steps of another thread, before it is believed to train instead of one that fetches or
learns as well."""


class LoopDetector(DetectorBase):
    """Follows one training thread: takes what happens there, in order, and says what is to be recorded of it."""

    def __init__(self, thread: int, session: Session) -> None:
        self.session = session
        self.steps = session.steps
        self.thread = thread
        """The thread that trains; 0 where nobody is to be followed any longer."""
        self.inside = False
        """The training works on a batch: copies and waits belong to its step."""
        self.learnings = 0
        """Backward passes and optimizer steps begun."""
        self.passes = 0
        """Backward passes begun."""
        self.learnt = False
        """One of them in the open step."""
        self.updated = -1
        """`learnings` at the last optimizer step."""
        self.open: Iteration | None = None
        """Whose fetch opened the step that is open."""
        self.own = Iteration(Role(Use.TRAINS), 0, use=Use.TRAINS)
        """Stands for the loader of steps that no loader's fetch opens."""
        self.shared = False
        """Another loader was fetched from in the open step."""
        self.part = Part.NOTHING
        """What the fetch under way, or the last one, is to the open step."""
        self._actions: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        """What is to be done of the event at hand, in order: calls of the recorder, each with its arguments."""
        self._samples = 0
        """Of the open step."""
        self._delivered = NOT_MEASURED, NOT_MEASURED
        """Loader and batch of the fetch that opened it."""
        self._epochs = 0
        self._facts: LoaderFacts | None = None
        """Of the loader that trains, as last told."""
        self._unsettled = False
        """Which of the fetched batches the open step trains is to be found out at its first optimizer step."""
        self._created = False
        """A fetch was opened by `iter()` and awaits its first batch."""
        self._opened_ns = 0
        """When the open step began."""
        self._last_ns = 0
        """When the program last went on after a loader's call and what was to be done then, which may wait for a
        device."""
        self._asked_ns = 0
        """When the batch was asked for that comes next."""
        self._boundary_ns = 0
        """When the boundary under way began; 0 outside boundaries."""
        self._evaluating = EvaluatingPasses()
        self._marked = False
        """The program says where its steps begin."""
        self._feeds: Role | None = None
        """The loader whose samples count in such a step."""
        self._stopped: Iteration | None = None
        """An iteration that ended, with batches that may be learnt from yet."""
        self._together_told = False
        """That several batches are one step was said."""
        self.waiting: Part | None = None
        """What a wait for data that the program marks is to the steps, while it lasts."""
        self._fetched = False
        """Whether the training thread has asked a loader for a batch."""
        self._fetching: dict[int, str] = {}
        """Names of other threads that have asked a loader for a batch, since this was last told."""
        self._learnings_of: dict[int, int] = {}
        """Backward passes and optimizer steps of other threads."""
        self._elsewhere_told = False
        """That batches are fetched in other threads was said."""
        self._explained = False
        """Why there are no steps was said."""
        self._pace = OptimizerPace()
        self._lost_updates = self._lost_passes = 0
        """Optimizer steps and backward passes that began while no step was open."""
        self._waits: dict[bool, Iteration] = {}
        """Stands for the loader of waits that the program marks: with gradients, and without."""
        self._waits_for: Iteration | None = None
        """Which of the two the last wait began as."""

    def feed(self, happened: Callable[..., None], *facts: Any) -> list[tuple[Callable[..., object], tuple[Any, ...]]]:
        """Take notice of what happened, by the method of that name and what it is to be told; what is to be done now,
        in order."""
        self._actions = []
        happened(*facts)
        return self._actions

    @property
    def undecided(self) -> bool:
        """Whether another thread may turn out to be the one that trains."""
        return self._epochs == 0 != self.thread

    @property
    def in_boundary(self) -> bool:
        return self._boundary_ns != 0

    @property
    def counts_updates(self) -> bool:
        """Whether optimizer steps that end are of interest: where no loader's batch is behind them, or one of its
        first, on which the training may stay."""
        of = self.open
        return of is None or of is self.own or of.fetched <= 2

    @property
    def between_steps(self) -> bool:
        """Whether what begins now begins between two steps, as far as one can tell."""
        of = self.open
        after = self.learnt and self.updated == self.learnings
        return of is None or after or (of is self.own and not self.learnt)

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
            self._later(self.steps.fetch_begin, of.epoch or 0, False, of.queue, now)
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

    def _within_wait(self, of: Iteration) -> bool:
        """A loader's fetch in a wait that the program marks; whether that says all of it."""
        part, self.waiting = self.waiting, Part.EXTENDS
        if part is Part.WITHIN:
            self._later(self.steps.fetch_within_end, self._samples)
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
            self._later(self.steps.fetch_end, samples, now, True, loader, batch, flags)
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
            self._later(self.steps.fetch_end, samples, now, True, loader, batch, flags)
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
        if self._fetching:
            # The training learns, and batches are fetched in other threads.
            names, self._fetching = ", ".join(sorted(self._fetching.values())), {}
            if not self._fetched and not self._elsewhere_told:
                self._explained = self._elsewhere_told = True
                self._say(
                    f"Another thread than the training's fetches batches ({names}). A step is counted from one "
                    "optimizer step to the next."
                )
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

    # What the program says itself.

    def step_marked(self, now: int) -> None:
        """A step begins here."""
        self._marked = True
        self._explained = True
        self._open_own(now)
        self._last_ns = now

    def wait_began(self, now: int, gradients: bool) -> None:
        """It waits for data from here on; not within another wait, nor within a fetch."""
        of = self._waits.get(gradients)
        if of is None:
            use = Use.UNKNOWN if gradients else Use.EVALUATES
            of = self._waits[gradients] = Iteration(Role(use), now, use=use, learnings_then=self.learnings)
        self._waits_for = of
        opened = self.open
        if gradients and opened is not None and opened is not of and (opened is not self.own or self._marked):
            # Something else opened this step: this is a further fetch of it, or a fetch within this opens the next.
            self.part = Part.NOTHING
            self._fetched = True
            self._fetch_further(now)
        else:
            self.fetch_began(of, now, gradients)
        self.waiting = self.part
        self.inside = False

    def wait_ended(self, now: int, failed: bool) -> None:
        """It has its data, or raised."""
        part, self.waiting = self.waiting, None
        of = self._waits_for
        if part is None or of is None:
            return
        self.part = part
        if part is Part.OPENS and failed:
            self._take_back()
        elif part is Part.OPENS or part is Part.NOTHING:
            self.fetch_ended(of, now, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, 0)
        else:
            self._further_ends(now)
        self.inside = self.open is not None and not self._boundary_ns
        self._last_ns = now

    def phase_ended(self, now: int, begin_ns: int, learnings: int, between: bool, name: int) -> None:
        """A part of the training that it names is over.

        `learnings`, `between`: the counter of that name and `between_steps`, when it began; `name`: its number in the
        run's names.
        """
        self._happened(EventKind.PHASE, begin_ns, now, name)
        if not between or self.learnings != learnings or self.waiting is not None:
            return
        self._happened(EventKind.BOUNDARY, begin_ns, now)
        of = self.open
        if self._boundary_ns:
            self._boundary_ns = now
        elif of is self.own:
            if not self.learnt:
                self._later(self.steps.compute_begin)
        elif of is not None and self.learnt:
            self._later(self.steps.end_step, False, begin_ns)
            self.open = None
            self.learnt = self.inside = False

    def boundary_began(self, now: int) -> None:
        """Something outside the steps begins, a checkpoint; not within another boundary, nor within a fetch."""
        of = self.open
        if of is not None and not self.learnt and of.use is Use.UNKNOWN:
            # Too early to take the step back: what trains is not known yet.
            self._boundary_ns, self.inside = now, False
        else:
            self._begin_boundary(now)

    def end_boundary(self, now: int) -> None:
        """The boundary under way, if there is one, is over."""
        begin, self._boundary_ns = self._boundary_ns, 0
        if not begin:
            return
        self._happened(EventKind.BOUNDARY, begin, now)
        self._end_passes(now)
        if self.open is not None:
            # It came between a step's fetch and its computation: that has not begun yet.
            if not self.learnt:
                self._later(self.steps.compute_begin)
            self.inside = True

    # Other threads, and the end.

    def fetched_elsewhere(self, thread: int, name: str) -> None:
        """A thread that is not taken for the training's asks a loader for a batch."""
        if self.undecided and not self._fetched:
            self._fetching[thread] = name

    def learnt_elsewhere(self, now: int, thread: int, name: str, training: str) -> None:
        """Such a thread begins a backward pass or an optimizer step. `training`: name of the thread taken for the
        training's."""
        fetches = thread in self._fetching
        if not self.undecided or (self.learnings and not fetches):
            return
        if not fetches or self.learnings or self._fetched:
            # Where the thread that was taken fetches or learns too, it takes more to believe.
            times = self._learnings_of[thread] = self._learnings_of.get(thread, 0) + 1
            if times < LEARNS_ELSEWHERE:
                return
        self._fetching, self._learnings_of = {}, {}
        if self._fetched:
            # What that thread's fetches opened is no step.
            self._fetching[self.thread] = training
            self._fetched, self.part = False, Part.NOTHING
            self._drop_created()
            self.end_boundary(now)
            if self.open is not None:
                self._take_back()
        self.thread = thread
        self.waiting = None
        self._pace.updates = 0
        self._say(f"The training runs in thread {name}. whyidle recorded that thread once it knew.")

    def finished(self, now: int) -> None:
        """The training is over, or is not watched any longer."""
        if not self._epochs and not self._explained:
            self._explained = True
            if self.passes and self.updated < 0:
                self._happened(EventKind.PASSES_WITHOUT_STEPS, 0, NOT_MEASURED, self.passes)
                passes = "1 backward pass was" if self.passes == 1 else f"{self.passes} backward passes were"
                self._say(
                    f"{passes} seen, but neither a batch of a torch DataLoader nor an optimizer of torch.optim, so "
                    "no step was recorded. Call `whyidle.step()` in the loop, where a step begins."
                )
            else:
                why = "batch of a torch DataLoader" if self.learnings else "backward pass and no optimizer step"
                self._say(f"No {why} was seen, so no step was recorded.")
        elif lost := self._lost_updates or (self._lost_passes if self.updated < 0 else 0):
            updates = self._lost_updates > 0
            of, what = (
                (self.learnings - self.passes, "optimizer steps") if updates else (self.passes, "backward passes")
            )
            if lost > LEAST_LOST * of:
                self._say(
                    f"{lost} of {of} {what} came before whyidle knew what a step is, or outside a step. The recorded "
                    f"steps lack {100 * lost / of:.0f} % of the training."
                )
        self._drop_created()
        self.end_boundary(now)
        if self._idles():
            self._take_back()
        self._later(self.steps.end_step, True)
        self.open = None
        self.inside = False

    def gave_up(self, now: int) -> None:
        """Nothing more will be heard of the steps: leave none open."""
        self._explained = True
        if not self.inside:
            self._later(self.steps.abandon_fetch)
        self.finished(now)
        self.thread = 0

    # The open step.

    def _use_of(self, role: Role, gradients: bool) -> Use:
        """What an iteration that begins now is for, as far as one can tell."""
        if not gradients:
            return Use.EVALUATES
        if role.use is Use.EVALUATES and self._epochs == 0:
            # A pass over the training data before the training, for its mean say, is no reason to miss the first epoch.
            return Use.UNKNOWN
        return role.use

    def _adjacent(self, now: int) -> bool:
        return now - self._last_ns < ADJACENT_NS

    def _joins(self, role: Role, use: Use | None, now: int) -> bool:
        """Whether a fetch belongs to the open step, as with two loaders that feed one step."""
        opened = self.open
        if opened is None or opened.role is role or self.learnt or opened.done or self._unfed():
            return False
        if opened.use is Use.UNKNOWN:
            return use is Use.UNKNOWN and self._adjacent(now) and not self._many(opened)
        return True

    def _open_step(self, of: Iteration | None, first: bool, queue: QueueLook | None, now: int) -> None:
        self.end_boundary(now)
        self._drop_created()
        opened = self.open
        # An iteration left with a batch that was not trained: that step does not exist.
        if opened is not None and self._idles() and (opened is not of or opened.use is Use.UNKNOWN or self._unfed()):
            self._is_none(opened)
        epoch = self._epochs if of is None or of.epoch is None else of.epoch
        self._later(self.steps.fetch_begin, epoch, first, queue, now)
        self._opened_ns = now
        self.open = of
        self.shared = self.learnt = self.inside = self._unsettled = False

    def _open_own(self, now: int) -> None:
        """A step begins with no fetch."""
        first = self.open is not self.own and not self.own.fetched
        self._open_step(self.own, first, None, now)
        self._later(self.steps.compute_begin)
        self.own.fetched += 1
        self._samples, self._feeds = NOT_MEASURED, None
        self._delivered = NOT_MEASURED, NOT_MEASURED
        self.inside = True

    def _idles(self) -> bool:
        """Whether nothing was learnt in the open step, and the program does not say that it is one."""
        return self.open is not None and not self.learnt and not (self.open is self.own and self._marked)

    def _unfed(self) -> bool:
        """Whether the open step was taken from an optimizer step, for want of a fetch."""
        return self.open is self.own and not self._marked

    def _fetch_further(self, now: int) -> None:
        """A further fetch for the step that is open."""
        if not self.learnt and self._adjacent(now):
            self.part = Part.EXTENDS
        else:
            self.part = Part.WITHIN
            self._later(self.steps.fetch_within_begin)

    def _further_ends(self, now: int, flags: int = 0) -> None:
        if self.part is Part.WITHIN:
            self._later(self.steps.fetch_within_end, self._samples, flags)
        else:
            self._later(self.steps.fetch_end, self._samples, now, True, *self._delivered, flags)

    def _further_fails(self) -> None:
        if self.part is Part.WITHIN:
            self._later(self.steps.fetch_within_end, self._samples)
        self.inside = True

    def _take_back(self) -> None:
        self._later(self.steps.abandon_fetch)
        self.open = None
        self.learnt = self.inside = False

    def _is_none(self, opened: Iteration) -> None:
        """Nothing is learnt from what was fetched for the open step: a pass that only looks at its data."""
        self._take_back()
        if self._many(opened) and not self._boundary_ns:
            opened.use = Use.EVALUATES
            self._evaluating.fetches(opened, opened.begin_ns)
            self._happened(EventKind.BOUNDARY, opened.begin_ns, self._last_ns)
            self._end_passes(self._last_ns)

    def _many(self, opened: Iteration) -> bool:
        """Whether more batches were fetched for the open step than are where a batch is held back."""
        return opened.batches.together > 2

    def _drop_created(self) -> None:
        if self._created:
            self._created = False
            self._take_back()

    def _begin_boundary(self, begin_ns: int) -> None:
        if self._boundary_ns:
            return
        self._drop_created()
        opened = self.open
        if opened is not None:
            if self.learnt:
                self._later(self.steps.end_step, False)
                self.open = None
                self.learnt = False
            elif opened.use is Use.UNKNOWN or opened.done:
                self._is_none(opened)
        self._boundary_ns = begin_ns
        self.inside = False

    def _count_epoch(self, of: Iteration) -> None:
        of.epoch = self._epochs
        self._epochs += 1
        self._happened(EventKind.EPOCH_BEGIN, self._opened_ns, NOT_MEASURED, of.epoch)
        if of.facts is not None and of.facts != self._facts:
            self._facts = of.facts
            self._later(self._loader_trains, of.facts)

    # The batches of one update.

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
            self._later(self.steps.amend, samples, begin_ns)
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
            self._later(self.steps.fetch_end, self._samples, now, True, *self._delivered, flags)
        self._later(self.steps.fetch_end, self._samples, now, True, *self._delivered)
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

    # What is to be done.

    def _later(self, call: Callable[..., object], *arguments: Any) -> None:
        """Have this called once it is known all that the event at hand means."""
        self._actions.append((call, arguments))

    def _happened(self, what: int, begin_ns: int, end_ns: int, value: int = NOT_MEASURED) -> None:
        self._later(self.session.event, what, value, end_ns, begin_ns)

    def _end_passes(self, now: int) -> None:
        for event in self._evaluating.end(now):
            self._later(self.session.event, *event)

    def _say(self, text: str) -> None:
        self._later(self.session.notice, text)

    def _loader_trains(self, facts: LoaderFacts) -> None:
        """The settings of the loader that trains are known, or have changed."""

    def _first_learning(self) -> None:
        """The first backward pass or optimizer step of the open step begins."""
