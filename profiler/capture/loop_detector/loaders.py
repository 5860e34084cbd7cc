"""What is known of the loaders that a training thread asks for batches.

Which of the batches that a pass has fetched the open step trains.

A program may hold batches back (accelerate and Lightning fetch one ahead), and may fetch all micro-batches of an update
before it computes the first (transformers' Trainer): then an update is one step, with several batches. How many are
held back is told by the first two updates: the first fetches that many more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from ...record.schema import NOT_MEASURED, EventKind

if TYPE_CHECKING:
    from ..hooks.loader_facts import LoaderFacts
    from ..steps import QueueLook


MOST_HELD = 2
"""Batches that a program is believed to hold back; if more are left, they were skipped."""
MOST_TOGETHER = 256
"""Batches fetched one right after the other for one update; a pass of more only looks at its data."""
MOST_EVALUATIONS = 10_000
"""Evaluating passes recorded one by one."""
UNFED_UPDATES = 3
"""Optimizer steps in a row without a batch of any loader, before steps are taken from those."""
BATCH_UPDATES = 32
"""Steps of one optimizer on one batch, before the training is taken to go on without a loader."""
IDLE_UPDATES = 16
"""Steps of other optimizers after which the one that set the pace is taken to be out of use."""


class Fetched(NamedTuple):
    samples: int
    flags: int
    """What `StepFlag` says of its shapes."""
    asked_ns: int


class FetchedBatches:
    """Those of one pass that were fetched and, as far as is known, not trained by an earlier step."""

    __slots__ = ("_left", "_told", "bursts", "ended", "first", "together")

    def __init__(self) -> None:
        self._left: list[Fetched] = []
        self._told = 0
        """How many of them were told of as the open step's."""
        self.together = 0
        """Fetched since the open step began."""
        self.first = 0
        """The same of the first step of the pass."""
        self.bursts = 0
        """Steps of the pass so far."""
        self.ended = False
        """There is no further batch: none is held back any longer."""

    def step_begins(self, held: int) -> None:
        """The first batch of a step is about to be fetched, and so many are left over from the step before."""
        del self._left[: max(0, len(self._left) - held)]
        self._told = self.together = 0
        self.bursts += 1

    def fetched(self, batch: Fetched, held: int | None) -> tuple[int, int]:
        """A batch was fetched for the open step; samples of the step as far as is known, and the flags of what is new
        among its batches. `held`: how many are held back; `None`: not known yet."""
        self._left.append(batch)
        self.together += 1
        if self.bursts == 1:
            self.first = self.together
        return self.samples(held), self.further_flags(held)

    def trained(self, held: int | None) -> int:
        """How many batches the open step trains, as far as is known."""
        if self.ended:
            return len(self._left)
        return min(len(self._left), 1 if held is None else max(1, len(self._left) - held))

    def samples(self, held: int | None) -> int:
        """Samples of the open step; `NOT_MEASURED` if of one of its batches they are not known."""
        known = [batch.samples for batch in self._left[: self.trained(held)]]
        return sum(known) if known and min(known) >= 0 else NOT_MEASURED

    def further_flags(self, held: int | None) -> int:
        """The flags of the next batch that was not told of as the open step's; 0 if there is none."""
        if self._told >= self.trained(held):
            return 0
        self._told += 1
        return self._left[self._told - 1].flags

    def skip(self, spare: int) -> int:
        """The first of them were fetched to be thrown away. When the next one was asked for."""
        del self._left[:spare]
        self.first -= spare
        self._told = max(0, self._told - spare)
        return self._left[0].asked_ns

    def spare(self, passes: int) -> int:
        """How many of those fetched for the first step were none of its, from its backward passes to its first
        optimizer step: one for each micro-batch, if there are as many."""
        if 2 <= passes <= self.together:
            return self.together - passes
        # Several for a single batch, as of an adversarial net, are no more than likely where two were fetched.
        return 0 if passes > self.together > 2 else self.together - 1


class Use(Enum):
    UNKNOWN = auto()
    TRAINS = auto()
    EVALUATES = auto()


@dataclass(slots=True)
class Role:
    """What is known of one loader, over all its iterations."""

    use: Use = Use.UNKNOWN
    data: int = 0
    """Number of the data that it goes over: loaders of the same data set have the same. 0: not known."""
    held: int | None = None
    """Batches that whoever iterates holds back, as accelerate and Lightning do: a step trains those fetched before;
    `None`: not known yet."""
    settled: bool = False
    """That is sure."""
    together: int = 1
    """Batches that are fetched for an update before the first of them is computed: one step."""
    direct: bool = False
    """Whoever iterates was seen to train on each batch as it came."""
    sums: bool = False
    """Several batches are fetched, and computed, before one backward pass: each of them is a step."""


@dataclass(slots=True, eq=False)
class Iteration:
    """One pass of a program over a loader."""

    role: Role
    begin_ns: int
    facts: LoaderFacts | None = None
    queue: QueueLook | None = None
    use: Use | None = None
    """`None` until the detector heard of it."""
    epoch: int | None = None
    """Its number among those that train; `None` until it was seen to."""
    fetched: int = 0
    learnings_then: int = 0
    """`LoopDetector.learnings` at the end of its last fetch."""
    ever_learnt: bool = False
    unlearnt: int = 0
    """Fetches with nothing learnt since the one before."""
    unlearnt_in_row: int = 0
    """Of those the ones that were taken for steps, since something was last learnt."""
    computed_between: bool = False
    """Something may have been computed between those."""
    passes_then: int = 0
    """`LoopDetector.passes` at the end of its last fetch."""
    batches: FetchedBatches = field(default_factory=FetchedBatches)
    waited_ns: int = 0
    """What `iter()` and the fetches took, of an evaluating pass since it was recorded last."""
    steady: bool = False
    """It trains and nothing is special about it: once something was learnt, its next fetch begins a step."""
    done: bool = False
    """It had no further batch."""


class Part(Enum):
    """What a fetch under way is to the steps."""

    NOTHING = auto()
    OPENS = auto()
    EXTENDS = auto()
    """It belongs to the fetch that opened the step."""
    WITHIN = auto()
    """It is a further one, in the midst of the step."""


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
