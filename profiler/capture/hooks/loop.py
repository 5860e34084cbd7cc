"""Which of a program's loaders trains, and where its steps begin and end.

Nothing in a program says which loader feeds the training. A loader trains when a backward pass or an optimizer step
comes between its fetches. Until that was seen, a fetch opens a step that is taken back when the next fetch comes with
nothing learnt in between: taken back, it was never stored. The time of a loader that only evaluates, from its `iter()`
to its end, is one boundary.

Where optimizers step again and again with no loader's batch behind it, steps are taken from one optimizer step to the
next; where the program says itself where its steps begin, they begin there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from threading import current_thread, get_ident
from threading import enumerate as enumerate_threads

import torch

from ...record.schema import NOT_MEASURED, EventKind
from ..session import Session
from ..steps import QueueLook
from .loader_facts import LoaderFacts
from .shapes import Shapes
from .switch import Switch

ADJACENT_NS = 10_000_000
"""`iter()` and the first fetch, or two fetches, that are closer belong together."""
UNFED_UPDATES = 3
"""Optimizer steps in a row without a batch of any loader, before steps are taken from those."""
BATCH_UPDATES = 32
"""Steps of one optimizer on one batch, before the training is taken to go on without a loader."""
IDLE_UPDATES = 16
"""Steps of other optimizers after which the one that set the pace is taken to be out of use."""
LEAST_SAVE_NS = 100_000
"""Shorter checkpoints are not recorded one by one."""
MOST_EVALUATIONS = 10_000
"""Evaluating passes recorded one by one."""


class Use(Enum):
    UNKNOWN = auto()
    TRAINS = auto()
    EVALUATES = auto()


@dataclass(slots=True)
class Role:
    """What is known of one loader, over all its iterations."""

    use: Use = Use.UNKNOWN
    holds: bool = False
    """Whoever iterates is known to hold a batch back."""
    sums: bool = False
    """Several batches are fetched before one backward pass: each of them is a step."""


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
    unlearnt: int = 0
    """Fetches with nothing learnt since the one before."""
    unlearnt_in_row: int = 0
    ahead: bool = False
    """Whoever iterates holds one batch back, as accelerate and Lightning do: a step trains the batch before."""
    held_samples: int = 0
    """Samples of the last batch fetched."""
    held_flags: int = 0
    """What the step says of its shapes."""
    waited_ns: int = 0
    """What `iter()` and the fetches took, of an evaluating pass since it was recorded last."""
    steady: bool = False
    """It trains, and nothing is special about it: once its last batch was learnt from, its next fetch begins a step."""
    done: bool = False


class Part(Enum):
    """What a fetch under way is to the steps."""

    NOTHING = auto()
    OPENS = auto()
    EXTENDS = auto()
    """It belongs to the fetch that opened the step."""
    WITHIN = auto()
    """It is a further one, in the midst of the step."""


@dataclass(frozen=True)
class Phase:
    """What was known when a phase of the program's own began."""

    begin_ns: int
    learnings: int
    between: bool
    """Between two steps, as far as one could tell."""


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
        self.busy = False
        """The training thread is about to begin or to end a fetch here: another thread must change nothing."""
        self.fetching = False
        """A fetch is under way: whatever is called within it is part of it."""
        self.learnings = 0
        """Backward passes and optimizer steps begun."""
        self.learnt = False
        """One of them in the open step."""
        self.plain = False
        """The open step's loader is known to train: what is learnt says nothing more about it."""
        self.epochs = 0
        self._fetched = False
        """Whether the training thread has asked a loader for a batch."""
        self._elsewhere: dict[int, str] = {}
        """Other threads that have."""
        self._told_elsewhere = False
        """That they do was said."""
        self.shapes = Shapes(
            self._steps, Switch("the shapes of batches", "that new shapes cost time is not seen", session.notice)
        )
        self.capturing: Callable[[], bool] | None = None
        """Asks torch whether a CUDA graph is being captured; `None` where there is no CUDA device."""
        self.follow: Callable[[int | None], object] | None = None
        """Told the GPU that a step is learnt from, `None` for none, until it is known on which device it computes."""
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
        self._delivered = NOT_MEASURED, NOT_MEASURED
        """Loader and batch of the fetch that opened the step."""
        self._created = False
        """A fetch was opened by `iter()` and awaits its first batch."""
        self._fetch_begin = 0
        self.last_ns = 0
        """When a loader last returned."""
        self._boundary_begin = 0
        """0 outside boundaries."""
        self.updated = -1
        """`learnings` at the last optimizer step."""
        self.own = Iteration(Role(Use.TRAINS), Use.TRAINS, 0)
        """Stands for the loader of steps that no loader's fetch opens."""
        self._marked = False
        """The program says where its steps begin."""
        self._feeds: Role | None = None
        """The loader whose samples count in such a step."""
        self._updates = 0
        """Optimizer steps in a row that belong to no loader's step."""
        self._pace: int | None = None
        """The optimizer that ends steps then: of several, the last in turn."""
        self._optimizers: set[int] = set()
        self._idle = 0
        """Steps of other optimizers since its last."""
        self._on_batch: dict[int, int] = {}
        """Steps of each optimizer on one batch."""
        self._handed_over = 0
        """`learnings` when that batch was handed over: no two batches that are learnt from have the same."""
        self._stopped: Iteration | None = None
        """An iteration that ended, and of which one batch may have been held back."""
        self._waiting: Part | None = None
        """What a wait for data that the program marks is to the steps, while it lasts."""
        self._waits: dict[bool, Iteration] = {}
        """Stands for the loader of such waits: with gradients, and without."""
        self._waits_for: Iteration | None = None
        """Which of the two the last wait began as."""
        self._asked_ns = 0
        """When the batch was asked for that comes next."""
        self._evaluating: list[tuple[Iteration, int, int]] = []
        """Passes within the boundary that evaluate, when each began, and with how many batches fetched before."""
        self._evaluations = 0
        """Passes recorded so far."""
        self._learners: dict[int, int] = {}
        """Backward passes and optimizer steps of other threads, while this one has none."""

    def in_step(self) -> bool:
        """Whether the calling thread trains, and is in the midst of a step that is looked at."""
        return self.inside and self._steps.recording and get_ident() == self.thread

    def captures(self) -> bool:
        """Whether a CUDA graph is being captured: a mark set now would become part of it."""
        return self.capturing is not None and self.capturing()

    @property
    def fed(self) -> bool:
        """Whether a loader's fetch opened the step that is open."""
        return self.open is not None and self.open is not self.own

    def updated_by(self, optimizer: int) -> None:
        """An optimizer step is over. `optimizer`: its identity."""
        of = self.open
        if of is None or of is self.own:
            self.updates(optimizer)
        elif of.fetched <= 2:
            self.updates_again(of, optimizer)

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
        waited = self.last_ns - begin_ns
        return Iteration(role, use, begin_ns, learnings_then=self.learnings, waited_ns=waited)

    def iter_fails(self) -> None:
        self._drop_created()
        self.inside = self.open is not None and not self._boundary_begin

    def fetch_begins(self, of: Iteration, now: int) -> None:
        """A batch is asked for."""
        self.inside = False
        self._fetched = True
        self.part = Part.NOTHING
        self._stopped = None
        self._asked_ns = now
        if self._waiting is not None and self._within_wait(of):
            return
        # What is fetched without gradients evaluates, even if the training went on since, until it was seen to train.
        learnt = of.fetched > 0 and of.learnings_then != self.learnings
        learnt = learnt and (of.use is Use.TRAINS or torch.is_grad_enabled())
        if learnt:
            of.ever_learnt = True
            of.use = of.role.use = Use.TRAINS
            if of.unlearnt_in_row and of.fetched > 2:
                of.role.sums = True
            of.unlearnt_in_row = 0
        elif of.fetched:
            of.unlearnt += 1
            of.unlearnt_in_row += 1
        if of.use is Use.EVALUATES:
            self._begin_boundary(now)
            self._evaluates(of, now if of.fetched else max(of.begin_ns, self._boundary_begin))
            return
        if self._marked:
            self._feed_marked(now)
            return
        if of.fetched == 0 and self._created and self._adjacent(now):
            self._created = False
            self.open = of
            self.part = Part.OPENS
            return
        if self._created:
            self._drop_created()
        if of.fetched and not learnt:
            if of.fetched == 1 and self.open is of and (of.role.holds or self._adjacent(now)):
                of.ahead = True
                self.part = Part.EXTENDS
                return
            # A training's loader may be iterated over for an evaluation too, even with gradients.
            idle = of.unlearnt_in_row > 1 and not of.ever_learnt and not of.role.sums
            if of.use is Use.UNKNOWN or idle:
                of.use, of.ahead = Use.EVALUATES, False
                begin = now
                if self.open is of:
                    begin = of.begin_ns
                    self._take_back()
                self._begin_boundary(begin)
                self._evaluates(of, begin)
                return
            if of.fetched == 1 and self.open is of and not of.role.sums:
                self._take_back()
        if not self.learnt and self._joins(of.role, of.use, now):
            self.shared = True
            self._fetch_further(now)
            return
        self._open_fetch(of, of.fetched == 0, of.queue, now)
        self.part = Part.OPENS

    def fetch_ends(
        self,
        of: Iteration,
        samples: int,
        now: int,
        loader: int = NOT_MEASURED,
        batch: int = NOT_MEASURED,
        handed: object = None,
    ) -> None:
        """It was handed over. `loader` and `batch`: which one, where that is known; `handed`: it itself."""
        steps = self._steps
        of.fetched += 1
        of.learnings_then = self.learnings
        of.waited_ns += now - self._asked_ns
        self._asked_ns = now
        flags = 0 if self.part is Part.NOTHING else self.shapes.flags(handed)
        if of.ahead:
            samples, of.held_samples = of.held_samples, samples
            flags, of.held_flags = of.held_flags, flags
        else:
            of.held_samples, of.held_flags = samples, flags
        if self.part is Part.OPENS:
            self.samples = samples
            self._delivered = loader, batch
            steps.fetch_end(samples, now, True, loader, batch, flags)
            if of.use is Use.TRAINS and of.epoch is None:
                self._count_epoch(of)
        elif self.part is not Part.NOTHING:
            if self.open is self.own:
                self._count_marked(of.role, samples)
            if of is self.open:
                self._delivered = loader, batch
            self._further_ends(now, flags)
        if self.part is not Part.NOTHING:
            self.inside = True
        of.steady = of.use is Use.TRAINS and of.epoch is not None and not of.ahead and not of.unlearnt_in_row
        self.last_ns = self._now()

    def fetch_stops(self, of: Iteration) -> None:
        """There was no further batch."""
        of.done = True
        if self.part is Part.OPENS:
            if of.ahead and of.use is Use.TRAINS:
                # The batch that was held back is trained now; the wait was for the end.
                self.samples = of.held_samples
                self._steps.fetch_end(of.held_samples, begins=True, flags=of.held_flags)
                self.inside = True
            else:
                self._take_back()
                if of.use is Use.TRAINS and of.unlearnt == 1:
                    self._stopped = of
        elif self.part is not Part.NOTHING:
            self._further_fails()
        if of.use is Use.EVALUATES:
            if of.role.use is Use.UNKNOWN:
                of.role.use = Use.EVALUATES
            of.waited_ns += self._now() - self._asked_ns
            self.end_boundary()
        elif of.use is Use.TRAINS and of.fetched > 1 and not of.ever_learnt:
            of.role.use = Use.UNKNOWN
        self.last_ns = self._now()

    def fetch_fails(self) -> None:
        """It raised; the training may go on all the same."""
        if self.part is Part.OPENS:
            self._take_back()
        elif self.part is not Part.NOTHING:
            self._further_fails()

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
            if self._stopped is not None:
                # Two fetches came before the first batch was learnt from, and a batch is left after the last.
                self._stopped.role.holds = True
                self._stopped = None
            return
        if of is not self.own:
            self._updates = 0
        self.learnt = True
        self.plain = not self.shared
        if not self.shared:
            of.use = of.role.use = Use.TRAINS
            of.ever_learnt = True
        if of.epoch is None:
            self._count_epoch(of)
        if self.on_learning is not None and (not self.captures()):
            self.on_learning()

    def updates_again(self, of: Iteration, optimizer: int) -> None:
        """An optimizer step is over that belongs to one of the first two batches of an iteration."""
        # Not where a fetch begins: in the common case the loader's hook calls nothing here.
        if of.learnings_then != self._handed_over:
            self._handed_over = of.learnings_then
            self._on_batch.clear()
        times = self._on_batch[optimizer] = self._on_batch.get(optimizer, 0) + 1
        if times >= BATCH_UPDATES and not self._marked and self._waiting is None:
            # The training goes on with what it once fetched.
            self._pace, self._optimizers, self._idle = optimizer, {optimizer}, 0
            self._updates = UNFED_UPDATES
            self.updates(optimizer)

    def updates(self, optimizer: int) -> None:
        """An optimizer step is over that belongs to no loader's batch. `optimizer`: its identity."""
        if self._marked or self._waiting is not None or self.captures():
            return
        self._updates += 1
        self._idle += 1
        if optimizer not in self._optimizers or self._idle > IDLE_UPDATES:
            if self._idle > IDLE_UPDATES:
                self._optimizers.clear()
            self._optimizers.add(optimizer)
            self._pace = optimizer
        if optimizer != self._pace:
            return
        self._idle = 0
        if self._updates < UNFED_UPDATES:
            return
        if not self._explained:
            self._explained = True
            self._session.notice(
                "The training's batches come from no loader that is seen: each step is taken from one optimizer step "
                "to the next."
            )
        self._open_own(self._now())

    def step_begins(self) -> None:
        """The program says that a step begins here."""
        now = self._now()
        self._marked = True
        self._explained = True
        self._open_own(now)
        self.last_ns = self._now()

    def wait_begins(self) -> bool:
        """The program says that it waits for data from here on; false within another wait."""
        if self.fetching or self._waiting is not None:
            return False
        now = self._now()
        learning = torch.is_grad_enabled()
        of = self._waits.get(learning)
        if of is None:
            use = Use.UNKNOWN if learning else Use.EVALUATES
            of = self._waits[learning] = Iteration(Role(use), use, now, learnings_then=self.learnings)
        self._waits_for = of
        opened = self.open
        fed = opened is not None and opened is not of and (opened is not self.own or self._marked)
        if opened is not None:
            opened.steady = False  # a fetch of its loader in this wait is to be told here
        if learning and fed:
            # Something else opened this step: this is a further fetch of it, or a fetch within this opens the next.
            self.part = Part.NOTHING
            self._fetched = True
            self._fetch_further(now)
        else:
            self.fetch_begins(of, now)
        self._waiting = self.part
        self.inside = False
        return True

    def wait_ends(self, failed: bool = False) -> None:
        """It has its data, or raised."""
        part, self._waiting = self._waiting, None
        of = self._waits_for
        if part is None or of is None:
            return
        now = self._now()
        self.part = part
        if part is Part.OPENS and failed:
            self._take_back()
        elif part is Part.OPENS or part is Part.NOTHING:
            self.fetch_ends(of, NOT_MEASURED, now)
        else:
            self._further_ends(now)
        self.inside = self.open is not None and not self._boundary_begin
        self.last_ns = self._now()

    def phase_begins(self) -> Phase:
        """A phase begins that the program marks."""
        of = self.open
        after = self.learnt and self.updated == self.learnings
        fresh = of is self.own and not self.learnt
        return Phase(self._now(), self.learnings, of is None or after or fresh)

    def phase_ends(self, phase: Phase, name: int) -> None:
        """It is over. `name`: its number in the run's names."""
        now = self._now()
        self._session.event(EventKind.PHASE, name, t_ns=phase.begin_ns, end_ns=now)
        if not phase.between or self.learnings != phase.learnings or self._waiting is not None:
            return
        self._session.event(EventKind.BOUNDARY, t_ns=phase.begin_ns, end_ns=now)
        of = self.open
        if self._boundary_begin:
            self._boundary_begin = now
        elif of is self.own:
            if not self.learnt:
                self._steps.compute_begin()
        elif of is not None and self.learnt:
            self._steps.end_step(end_ns=phase.begin_ns)
            self.open = None
            self.learnt = self.inside = False

    def fetches_elsewhere(self) -> None:
        """Another thread asks a loader for a batch."""
        if self.thread and not self.epochs and not self._fetched and get_ident() not in self._elsewhere:
            self._elsewhere[get_ident()] = current_thread().name

    def learns_elsewhere(self) -> None:
        """Another thread begins a backward pass or an optimizer step."""
        here = get_ident()
        if self.busy or self.epochs or not self.thread or (self.learnings and here not in self._elsewhere):
            return
        if self.learnings or self._fetched or here not in self._elsewhere:
            # This thread fetches or learns too, or that one does not fetch: that it trains, and not this one, takes
            # more to believe.
            learnt = self._learners[here] = self._learners.get(here, 0) + 1
            if learnt < UNFED_UPDATES:
                return
        self._elsewhere, self._learners = {}, {}
        if self._fetched:
            # What this thread's fetches opened is no step.
            names = {thread.ident: thread.name for thread in enumerate_threads()}
            self._elsewhere[self.thread] = names.get(self.thread) or "ended since"
            self._fetched, self.part = False, Part.NOTHING
            self._drop_created()
            self.end_boundary()
            if self.open is not None:
                self._take_back()
        self.thread = here
        self._waiting = None
        self._updates = 0
        self._session.notice(
            f"The training runs in thread {current_thread().name}, which is the one that was recorded."
        )

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
        now = self._now()
        self._session.event(EventKind.BOUNDARY, t_ns=begin, end_ns=now)
        if self._evaluating:
            self._evaluated(now)
        if self.open is not None:
            # It came between a step's fetch and its computation: that has not begun yet.
            if not self.learnt:
                self._steps.compute_begin()
            self.inside = True

    def saved(self, begin_ns: int) -> None:
        """A checkpoint was written since."""
        now = self._now()
        if now - begin_ns >= LEAST_SAVE_NS:
            self._session.event(EventKind.SAVE, t_ns=begin_ns, end_ns=now)

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
        if self._idles():
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
        if not self._fetched and not self._told_elsewhere:
            self._explained = self._told_elsewhere = True
            self._session.notice(
                f"Batches are fetched in another thread than the training's ({names}): each step is taken from one "
                "optimizer step to the next."
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
        if opened is None or opened.role is role or self.learnt or opened.done or self._unfed():
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
        # An iteration left with a batch that was not trained: that step does not exist.
        if opened is not None and self._idles() and (opened is not of or opened.use is Use.UNKNOWN or self._unfed()):
            self._take_back()
        epoch = self.epochs if of is None or of.epoch is None else of.epoch
        self._steps.fetch_begin(epoch, first, queue, now)
        self._fetch_begin = now
        self.open = of
        self.shared = self.learnt = False
        self.plain = of is not None and of.ever_learnt
        self.inside = False

    def _idles(self) -> bool:
        """Whether nothing was learnt in the open step, and the program does not say that it is one."""
        return self.open is not None and not self.learnt and not (self.open is self.own and self._marked)

    def _unfed(self) -> bool:
        """Whether the open step was taken from an optimizer step, for want of a fetch."""
        return self.open is self.own and not self._marked

    def _open_own(self, now: int) -> None:
        """A step begins with no fetch."""
        first = self.open is not self.own
        self._open_fetch(self.own, first and not self.own.fetched, None, now)
        self._steps.compute_begin()
        self.own.fetched += 1
        self.samples, self._feeds = NOT_MEASURED, None
        self._delivered = NOT_MEASURED, NOT_MEASURED
        self.inside = True

    def _feed_marked(self, now: int) -> None:
        """A fetch where the program says itself where its steps begin."""
        self.end_boundary()
        self._drop_created()
        if self.open is not None:
            self._fetch_further(now)

    def _count_marked(self, role: Role, samples: int) -> None:
        """Of several loaders that feed one step, the first has the samples."""
        if self._feeds is None:
            self._feeds = role
        if self._feeds is role and samples >= 0:
            self.samples = max(0, self.samples) + samples

    def _fetch_further(self, now: int) -> None:
        """A further fetch for the step that is open."""
        if not self.learnt and self._adjacent(now):
            self.part = Part.EXTENDS
        else:
            self.part = Part.WITHIN
            self._steps.fetch_within_begin()

    def _further_ends(self, now: int, flags: int = 0) -> None:
        if self.part is Part.WITHIN:
            self._steps.fetch_within_end(self.samples, flags)
        elif self._steps.recording:
            self._steps.fetch_end(self.samples, now, True, *self._delivered, flags)

    def _further_fails(self) -> None:
        if self.part is Part.WITHIN:
            self._steps.fetch_within_end(self.samples)
        self.inside = True

    def _within_wait(self, of: Iteration) -> bool:
        """A loader's fetch in a wait that the program marks; whether that says all of it."""
        part, self._waiting = self._waiting, Part.EXTENDS
        if part is Part.WITHIN:
            self._steps.fetch_within_end(self.samples)
        elif part is Part.OPENS and of.use is not Use.EVALUATES:
            # The wait opened the step that this fetch would open.
            if self.open is not None:
                self.open.fetched += 1
            self.open = of
            self.part = Part.OPENS
            return True
        elif part is Part.NOTHING:
            self._waiting = Part.NOTHING
        return False

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

    def _evaluates(self, of: Iteration, begin_ns: int) -> None:
        """A batch of an evaluating pass is asked for, in a boundary. `begin_ns`: of the pass, if it is the first."""
        if any(each is of for each, _, _ in self._evaluating):
            return
        before = of.fetched if of.begin_ns < begin_ns else 0
        if before:
            of.waited_ns = 0  # what it waited before is recorded, or was no evaluation
        self._evaluating.append((of, begin_ns, before))

    def _evaluated(self, end_ns: int) -> None:
        """The boundary is over, and with it what is recorded of the passes within."""
        passes, self._evaluating = self._evaluating, []
        for of, begin_ns, before in passes:
            if of.fetched == before:
                continue
            self._evaluations += 1
            if self._evaluations > MOST_EVALUATIONS:
                return
            waited = min(of.waited_ns, end_ns - begin_ns)
            self._session.event(EventKind.EVALUATION, waited, end_ns, begin_ns)
            if of.facts is not None:
                self._session.event(EventKind.EVALUATION_WORKERS, of.facts.workers)

    def _count_epoch(self, of: Iteration) -> None:
        of.epoch = self.epochs
        self.epochs += 1
        self._session.event(EventKind.EPOCH_BEGIN, of.epoch, t_ns=self._fetch_begin)
        if of.facts is not None and of.facts != self._facts:
            self._facts = of.facts
            self._session.loader(of.facts.workers, of.facts.prefetch, of.facts.flags)
