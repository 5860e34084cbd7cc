"""Which of a program's loaders trains, and where its steps begin and end.

Nothing in a program says which loader feeds the training. A loader trains when a backward pass or an optimizer step
comes between its fetches. Until that was seen, a fetch opens a step that is taken back when the next fetch comes with
nothing learnt in between: taken back, it was never stored. The time of a loader that only evaluates, from its `iter()`
to its end, is one boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from threading import current_thread, get_ident

import torch

from ...record.schema import EventKind
from ..session import Session
from ..steps import QueueLook

ADJACENT_NS = 10_000_000
"""`iter()` and the first fetch, or two fetches, that are closer belong together."""


class Use(Enum):
    UNKNOWN = auto()
    TRAINS = auto()
    EVALUATES = auto()


@dataclass(frozen=True)
class LoaderFacts:
    """A training loader's settings."""

    workers: int
    """0: batches are made in the training itself."""
    prefetch: int | None
    """Batches each worker prepares ahead; `None` without workers."""
    pin_memory: bool
    persistent_workers: bool


@dataclass(slots=True)
class Role:
    """What is known of one loader, over all its iterations."""

    use: Use = Use.UNKNOWN


@dataclass(slots=True)
class Iteration:
    """One pass of a program over a loader."""

    role: Role
    use: Use
    begin_ns: int
    facts: LoaderFacts | None = None
    queue: QueueLook | None = None
    epoch: int | None = None
    """Its number among those that train; `None` until it was seen to."""
    fetched: int = 0
    learnings_then: int = 0
    """`Loop.learnings` at the end of its last fetch."""
    ever_learnt: bool = False
    ahead: bool = False
    """Whoever iterates holds one batch back, as accelerate and Lightning do: a step trains the batch before."""
    held_samples: int = 0
    """Samples of the last batch fetched."""
    steady: bool = False
    """It trains, and nothing is special about it: once its last batch was learnt from, its next fetch begins a step."""
    done: bool = False


class Part(Enum):
    """What a fetch under way is to the steps."""

    NOTHING = auto()
    OPENS = auto()
    EXTENDS = auto()
    """It belongs to the fetch that opened the step."""


class Loop:
    """Follows one training thread. The hooks tell it what happens; it tells the recorder."""

    def __init__(self, session: Session, now: Callable[[], int]) -> None:
        self._session = session
        self._steps = session.steps
        self._now = now
        self.thread = get_ident()
        """The thread that trains; 0 in a forked child, where nothing is recorded."""
        self.inside = False
        """The training works on a batch: copies and waits belong to its step."""
        self.fetching = False
        """A fetch is under way: whatever is called within it is part of it."""
        self.learnings = 0
        """Backward passes and optimizer steps begun."""
        self.learnt = False
        """One of them in the open step."""
        self.epochs = 0
        self._fetched = False
        """Whether the training thread has asked a loader for a batch."""
        self._elsewhere: dict[int, str] = {}
        """Other threads that have."""
        self.capturing: Callable[[], bool] | None = None
        """Whether a CUDA graph is being captured: a mark set now would become part of it."""
        self.on_learning: Callable[[], object] | None = None
        """Called at the first backward pass or optimizer step of each step, unless a CUDA graph captures it."""
        self._explained = False
        """Why there are no steps was said."""
        self._facts: LoaderFacts | None = None
        # Read and set by the loader's hook too, which does not call anything here in the common case.
        self.open: Iteration | None = None
        """Whose fetch opened the step that is open."""
        self.shared = False
        """Another loader was fetched from in this step."""
        self.samples = 0
        self.part = Part.NOTHING
        self._created = False
        """A fetch was opened by `iter()` and awaits its first batch."""
        self._fetch_begin = 0
        self.last_ns = 0
        """When a loader last returned."""
        self._boundary_begin = 0
        """0 outside boundaries."""

    @property
    def in_boundary(self) -> bool:
        return self._boundary_begin != 0

    def iter_begins(self, role: Role, now: int) -> Use:
        """A loader is asked for an iterator; what it will be used for, as far as one can tell."""
        use = self.use_of(role)
        if use is Use.EVALUATES:
            self._begin_boundary(now)
        elif not self._joins(role, use, now) and not (self._created and self._adjacent(now)):
            self._open_fetch(None, True, None, now)
            self._created = True
        self.inside = False
        return use

    def iter_ends(self, role: Role, use: Use, begin_ns: int) -> Iteration:
        """It has made one."""
        self.last_ns = self._now()
        self.inside = self.open is not None and not self._boundary_begin
        return Iteration(role, use, begin_ns, learnings_then=self.learnings)

    def iter_fails(self) -> None:
        self._drop_created()
        self.inside = self.open is not None and not self._boundary_begin

    def fetch_begins(self, of: Iteration, now: int) -> None:
        """A batch is asked for."""
        self.inside = False
        self._fetched = True
        self.part = Part.NOTHING
        learnt = of.fetched > 0 and of.learnings_then != self.learnings
        if learnt:
            of.ever_learnt = True
            of.use = of.role.use = Use.TRAINS
        if of.use is Use.EVALUATES:
            self._begin_boundary(now)
            return
        if of.fetched == 0 and self._created and self._adjacent(now):
            self._created = False
            self.open = of
            self.part = Part.OPENS
            return
        if self._created:
            self._drop_created()
        if of.fetched and not learnt:
            if of.fetched == 1 and self.open is of and self._adjacent(now):
                of.ahead = True
                self.part = Part.EXTENDS
                return
            if of.use is Use.UNKNOWN:
                of.use = Use.EVALUATES
                begin = of.begin_ns if self.open is of else now
                self._take_back()
                self._begin_boundary(begin)
                return
        if not self.learnt and self._joins(of.role, of.use, now):
            self.shared = True
            self.part = Part.EXTENDS
            return
        self._open_fetch(of, of.fetched == 0, of.queue, now)
        self.part = Part.OPENS

    def fetch_ends(self, of: Iteration, samples: int, now: int) -> None:
        """It was handed over."""
        steps = self._steps
        of.fetched += 1
        of.learnings_then = self.learnings
        if of.ahead:
            samples, of.held_samples = of.held_samples, samples
        else:
            of.held_samples = samples
        if self.part is Part.OPENS:
            self.samples = samples
            steps.fetch_end(samples, now, begins=True)
            if of.use is Use.TRAINS and of.epoch is None:
                self._count_epoch(of)
        elif self.part is Part.EXTENDS and steps.recording:
            steps.fetch_end(self.samples, now, begins=True)
        if self.part is not Part.NOTHING:
            self.inside = True
        of.steady = of.use is Use.TRAINS and of.epoch is not None and not of.ahead
        self.last_ns = self._now()

    def fetch_stops(self, of: Iteration) -> None:
        """There was no further batch."""
        of.done = True
        if self.part is Part.OPENS:
            if of.ahead and of.use is Use.TRAINS:
                # The batch that was held back is trained now; the wait was for the end.
                self.samples = of.held_samples
                self._steps.fetch_end(of.held_samples, begins=True)
                self.inside = True
            else:
                self._take_back()
        elif self.part is Part.EXTENDS:
            self.inside = True
        if of.use is Use.EVALUATES:
            if of.role.use is Use.UNKNOWN:
                of.role.use = Use.EVALUATES
            self.end_boundary()
        elif of.use is Use.TRAINS and of.fetched > 1 and not of.ever_learnt:
            of.role.use = Use.UNKNOWN
        self.last_ns = self._now()

    def fetch_fails(self) -> None:
        """It raised; the training may go on all the same."""
        if self.part is Part.OPENS:
            self._take_back()
        elif self.part is Part.EXTENDS:
            self.inside = True

    def learns(self) -> None:
        """A backward pass or an optimizer step begins."""
        self.learnings += 1
        if self._elsewhere:
            self._fetches_are_elsewhere()
        if self.learnt:
            return
        if self._created:
            self._drop_created()
        if self._boundary_begin:
            self.end_boundary()
        of = self.open
        if of is None:
            return
        self.learnt = True
        if not self.shared:
            of.use = of.role.use = Use.TRAINS
            of.ever_learnt = True
        if of.epoch is None:
            self._count_epoch(of)
        if self.on_learning is not None and (self.capturing is None or not self.capturing()):
            self.on_learning()

    def fetches_elsewhere(self) -> None:
        """Another thread asks a loader for a batch."""
        if self.thread and not self._fetched and get_ident() not in self._elsewhere:
            self._elsewhere[get_ident()] = current_thread().name

    def learns_elsewhere(self) -> None:
        """Another thread begins a backward pass or an optimizer step."""
        name = self._elsewhere.get(get_ident())
        if name is None or self._fetched or not self.thread:
            return
        self._elsewhere = {}
        self.thread = get_ident()
        self._session.notice(f"The training runs in thread {name}, which is the one that was recorded.")

    def begin_boundary(self) -> bool:
        """Something outside the steps begins, a checkpoint; false if it belongs to something larger."""
        if self.fetching or self._boundary_begin:
            return False
        of = self.open
        if of is not None and not self.learnt and of.use is Use.UNKNOWN:
            # Too early to take the step back: what trains is not known yet.
            self._boundary_begin, self.inside = self._now(), False
        else:
            self._begin_boundary(self._now())
        return True

    def end_boundary(self) -> None:
        """It is over."""
        begin, self._boundary_begin = self._boundary_begin, 0
        if not begin:
            return
        self._session.event(EventKind.BOUNDARY, t_ns=begin, end_ns=self._now())
        if self.open is not None:
            # It came between a step's fetch and its computation: that has not begun yet.
            if not self.learnt:
                self._steps.compute_begin()
            self.inside = True

    def give_up(self) -> None:
        """Nothing more is known of the steps: leave none open."""
        self._explained = True
        try:
            if not self.inside:
                self._steps.abandon_fetch()
            self.finish()
        finally:
            self.forked()

    def finish(self) -> None:
        """The training is over, or is not watched any longer."""
        if not self.epochs and not self._explained:
            self._explain()
        self._drop_created()
        self.end_boundary()
        if self.open is not None and not self.learnt and self.open.use is Use.UNKNOWN:
            self._take_back()
        self._steps.end_step(at_last_hook=True)
        self.open = None
        self.inside = False

    def forked(self) -> None:
        """This is a child of the process that trains."""
        self.thread = 0
        self.inside = False

    def _fetches_are_elsewhere(self) -> None:
        names, self._elsewhere = ", ".join(sorted(self._elsewhere.values())), {}
        if not self._fetched:
            self._explained = True
            self._session.notice(
                f"Batches are fetched in another thread than the training's ({names}): "
                "what the training waits for is not seen, and no steps are recorded."
            )

    def _explain(self) -> None:
        """There are no steps."""
        self._explained = True
        why = "batch of a torch DataLoader" if self.learnings else "backward pass and no optimizer step"
        self._session.notice(f"No {why} was seen, so that no step was recorded.")

    def use_of(self, role: Role) -> Use:
        """What an iteration that begins now is for, as far as one can tell."""
        if not torch.is_grad_enabled():
            return Use.EVALUATES
        if role.use is Use.EVALUATES and self.epochs == 0:
            # A pass over the training data before the training, for its mean say, is no reason to miss the first epoch.
            return Use.UNKNOWN
        return role.use

    def _adjacent(self, now: int) -> bool:
        return now - self.last_ns < ADJACENT_NS

    def _joins(self, role: Role, use: Use, now: int) -> bool:
        """Whether a fetch belongs to the open step, as with two loaders that feed one step."""
        opened = self.open
        if opened is None or opened.role is role or self.learnt or opened.done:
            return False
        if opened.use is Use.UNKNOWN:
            return use is Use.UNKNOWN and self._adjacent(now)
        return True

    def _open_fetch(self, of: Iteration | None, first: bool, queue: QueueLook | None, now: int) -> None:
        if self._boundary_begin:
            self.end_boundary()
        if self._created:
            self._drop_created()
        opened = self.open
        if opened is not None and not self.learnt and (opened.use is Use.UNKNOWN or opened.done):
            self._take_back()
        epoch = self.epochs if of is None or of.epoch is None else of.epoch
        self._steps.fetch_begin(epoch, first, queue, now)
        self._fetch_begin = now
        self.open = of
        self.shared = self.learnt = False
        self.inside = False

    def _take_back(self) -> None:
        self._steps.abandon_fetch()
        self.open = None
        self.learnt = self.inside = False

    def _drop_created(self) -> None:
        if self._created:
            self._created = False
            self._take_back()

    def _begin_boundary(self, begin_ns: int) -> None:
        if self._boundary_begin:
            return
        self._drop_created()
        opened = self.open
        if opened is not None:
            if self.learnt:
                self._steps.end_step()
                self.open = None
                self.learnt = False
            elif opened.use is Use.UNKNOWN or opened.done:
                self._take_back()
        self._boundary_begin = begin_ns
        self.inside = False

    def _count_epoch(self, of: Iteration) -> None:
        of.epoch = self.epochs
        self.epochs += 1
        self._session.event(EventKind.EPOCH_BEGIN, of.epoch, t_ns=self._fetch_begin)
        if of.facts is not None and of.facts != self._facts:
            self._facts = of.facts
            facts = of.facts
            self._session.loader(facts.workers, facts.prefetch, facts.pin_memory, facts.persistent_workers)
