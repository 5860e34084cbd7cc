"""The steps and boundaries of one training thread, as far as the loop detector knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...native import DetectorBase
from ...record.schema import NOT_MEASURED, EventKind
from .loaders import Iteration, Part, Role, Use

if TYPE_CHECKING:
    from ..hooks.loader_facts import LoaderFacts
    from ..session import Session
    from ..steps import QueueLook

ADJACENT_NS = 10_000_000
"""`iter()` and the first fetch, or two fetches, that are closer belong together."""
MOST_EVALUATIONS = 10_000
"""Evaluating passes recorded one by one."""


class LoopState(DetectorBase):
    """What is open, and the changes that events make of it, each with what is to be done."""

    def __init__(self, thread: int, session: Session) -> None:
        self._session = session
        self._steps = session.steps
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
        """When the program last went on after a loader's call."""
        self._asked_ns = 0
        """When the batch was asked for that comes next."""
        self._boundary_ns = 0
        """When the boundary under way began; 0 outside boundaries."""
        self._evaluating = EvaluatingPasses()
        self._marked = False
        """The program says where its steps begin."""
        self._feeds: Role | None = None
        """The loader whose samples count in such a step."""

    def goes_on(self, now: int) -> None:
        """The program goes on after a loader's call and what was to be done then, which may wait for a device."""
        self._last_ns = now

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
        self._later(self._steps.fetch_begin, epoch, first, queue, now)
        self._opened_ns = now
        self.open = of
        self.shared = self.learnt = self.inside = self._unsettled = False

    def _open_own(self, now: int) -> None:
        """A step begins with no fetch."""
        first = self.open is not self.own and not self.own.fetched
        self._open_step(self.own, first, None, now)
        self._later(self._steps.compute_begin)
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
            self._later(self._steps.fetch_within_begin)

    def _further_ends(self, now: int, flags: int = 0) -> None:
        if self.part is Part.WITHIN:
            self._later(self._steps.fetch_within_end, self._samples, flags)
        else:
            self._later(self._steps.fetch_end, self._samples, now, True, *self._delivered, flags)

    def _further_fails(self) -> None:
        if self.part is Part.WITHIN:
            self._later(self._steps.fetch_within_end, self._samples)
        self.inside = True

    def _take_back(self) -> None:
        self._later(self._steps.abandon_fetch)
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
                self._later(self._steps.end_step, False)
                self.open = None
                self.learnt = False
            elif opened.use is Use.UNKNOWN or opened.done:
                self._is_none(opened)
        self._boundary_ns = begin_ns
        self.inside = False

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
                self._later(self._steps.compute_begin)
            self.inside = True

    def _count_epoch(self, of: Iteration) -> None:
        of.epoch = self._epochs
        self._epochs += 1
        self._happened(EventKind.EPOCH_BEGIN, self._opened_ns, NOT_MEASURED, of.epoch)
        if of.facts is not None and of.facts != self._facts:
            self._facts = of.facts
            self._later(self._loader_trains, of.facts)

    def _later(self, call: Callable[..., object], *arguments: Any) -> None:
        """Have this called once it is known all that the event at hand means."""
        self._actions.append((call, arguments))

    def _happened(self, what: int, begin_ns: int, end_ns: int, value: int = NOT_MEASURED) -> None:
        self._later(self._session.event, what, value, end_ns, begin_ns)

    def _end_passes(self, now: int) -> None:
        for event in self._evaluating.end(now):
            self._later(self._session.event, *event)

    def _say(self, text: str) -> None:
        self._later(self._session.notice, text)

    def _loader_trains(self, facts: LoaderFacts) -> None:
        """The settings of the loader that trains are known, or have changed."""

    def _first_learning(self) -> None:
        """The first backward pass or optimizer step of the open step begins."""


class EvaluatingPasses:
    """Those under way, and how long the program waited for the batches of each."""

    __slots__ = ("_recorded", "_under_way")

    def __init__(self) -> None:
        self._under_way: list[tuple[Iteration, int, int]] = []
        """Each with when it began, and with how many batches fetched before."""
        self._recorded = 0

    def fetches(self, of: Iteration, begin_ns: int) -> None:
        """A batch of an evaluating pass is asked for. `begin_ns`: of the pass, if it is the first."""
        if any(each is of for each, _, _ in self._under_way):
            return
        before = of.fetched if of.begin_ns < begin_ns else 0
        if before:
            of.waited_ns = 0  # what it waited before is recorded, or was no evaluation
        self._under_way.append((of, begin_ns, before))

    def end(self, end_ns: int) -> Iterator[tuple[int, int, int, int]]:
        """The boundary is over: the events to be recorded of the passes within."""
        passes, self._under_way = self._under_way, []
        for of, begin_ns, before in passes:
            if of.fetched == before:
                continue
            self._recorded += 1
            if self._recorded > MOST_EVALUATIONS:
                return
            waited = min(of.waited_ns, end_ns - begin_ns)
            yield EventKind.EVALUATION, waited, end_ns, begin_ns
            if of.facts is not None:
                yield EventKind.EVALUATION_WORKERS, of.facts.workers, NOT_MEASURED, 0
            if of.role.data:
                yield EventKind.EVALUATION_DATA, of.role.data, end_ns, begin_ns
