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
from typing import TYPE_CHECKING, Any

from ...record.schema import NOT_MEASURED, EventKind
from .loader_steps import LoaderSteps
from .loaders import Iteration, Part, Role, Use

if TYPE_CHECKING:
    from ..session import Session

LEAST_LOST = 0.01
"""Share of a training's optimizer steps that must be missing among its steps to be worth a word."""


class LoopDetector(LoaderSteps):
    """Follows one training thread: takes what happens there, in order, and says what is to be recorded of it."""

    def __init__(self, thread: int, session: Session) -> None:
        super().__init__(thread, session)
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
                self._later(self._steps.compute_begin)
        elif of is not None and self.learnt:
            self._later(self._steps.end_step, False, begin_ns)
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

    # Other threads, and the end.

    def fetched_elsewhere(self, thread: int, name: str) -> None:
        """A thread that is not taken for the training's asks a loader for a batch."""
        if self.undecided and not self._fetched:
            self._others.fetching[thread] = name

    def learnt_elsewhere(self, now: int, thread: int, name: str, training: str) -> None:
        """Such a thread begins a backward pass or an optimizer step. `training`: name of the thread taken for the
        training's."""
        fetches = thread in self._others.fetching
        if not self.undecided or (self.learnings and not fetches):
            return
        # Where the thread that was taken fetches or learns too, it takes more to believe.
        if not self._others.learns(thread, believed=fetches and not self.learnings and not self._fetched):
            return
        if self._fetched:
            # What that thread's fetches opened is no step.
            self._others.fetching[self.thread] = training
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
        self._later(self._steps.end_step, True)
        self.open = None
        self.inside = False

    def gave_up(self, now: int) -> None:
        """Nothing more will be heard of the steps: leave none open."""
        self._explained = True
        if not self.inside:
            self._later(self._steps.abandon_fetch)
        self.finished(now)
        self.thread = 0
