"""What is known of the loaders that a training thread asks for batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from .batches import FetchedBatches

if TYPE_CHECKING:
    from ..hooks.loader_facts import LoaderFacts
    from ..steps import QueueLook


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
