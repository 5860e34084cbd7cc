"""What the hooks tell the loop detector. Times are the host's monotonic clock in nanoseconds.

Unless an event says otherwise it comes from the thread that trains.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ...record.schema import NOT_MEASURED
from .loaders import Iteration


class IterBegins(NamedTuple):
    """A loader is asked for an iterator."""

    of: Iteration
    t_ns: int
    gradients: bool
    """Whether autograd records what is computed now: evaluations mostly turn that off."""


class IterEnds(NamedTuple):
    """It has made one."""

    of: Iteration
    t_ns: int


class IterFails(NamedTuple):
    """It raised."""


class FetchBegins(NamedTuple):
    """A batch is asked for."""

    of: Iteration
    t_ns: int
    gradients: bool
    computed: bool | None = None
    """Nodes of autograd's graph were made since the last batch of the open step came, or since the last backward pass
    or optimizer step; `None`: not known."""


class FetchEnds(NamedTuple):
    """It was handed over."""

    of: Iteration
    t_ns: int
    samples: int
    loader: int = NOT_MEASURED
    """Which iterator of the process made it, where that is known; `batch`: its number there."""
    batch: int = NOT_MEASURED
    flags: int = 0
    """What `StepFlag` says of its shapes."""


class FetchStops(NamedTuple):
    """There was no further batch."""

    of: Iteration
    t_ns: int


class FetchFails(NamedTuple):
    """The fetch raised; the training may go on all the same."""


class Learns(NamedTuple):
    """A backward pass or an optimizer step begins, or a CUDA graph with one is replayed."""

    t_ns: int
    updates: bool
    """It is an optimizer step."""


class Updated(NamedTuple):
    """An optimizer step is over, which no CUDA graph captures."""

    t_ns: int
    optimizer: int
    """Identity of the optimizer."""


class StepMarked(NamedTuple):
    """The program says that a step begins here."""

    t_ns: int


class WaitBegins(NamedTuple):
    """The program says that it waits for data from here on; not within another wait, nor within a fetch."""

    t_ns: int
    gradients: bool


class WaitEnds(NamedTuple):
    """It has its data, or raised."""

    t_ns: int
    failed: bool


class PhaseEnds(NamedTuple):
    """A part of the training that the program names is over."""

    t_ns: int
    begin_ns: int
    learnings: int
    """`LoopDetector.learnings` when it began."""
    between: bool
    """It began between two steps, as far as one could tell (`LoopDetector.between_steps`)."""
    name: int
    """Its number in the run's names."""


class BoundaryBegins(NamedTuple):
    """Something outside the steps begins, a checkpoint; not within another boundary, nor within a fetch."""

    t_ns: int


class BoundaryEnds(NamedTuple):
    t_ns: int


class FetchesElsewhere(NamedTuple):
    """A thread that is not taken for the training's asks a loader for a batch."""

    thread: int
    name: str


class LearnsElsewhere(NamedTuple):
    """A thread that is not taken for the training's begins a backward pass or an optimizer step."""

    t_ns: int
    thread: int
    name: str
    training: str
    """Name of the thread that was taken for the training's."""


class Finishes(NamedTuple):
    """The training is over, or is not watched any longer."""

    t_ns: int


class GivesUp(NamedTuple):
    """Nothing more will be heard of the steps: leave none open."""

    t_ns: int


Event: TypeAlias = (
    IterBegins
    | IterEnds
    | IterFails
    | FetchBegins
    | FetchEnds
    | FetchStops
    | FetchFails
    | Learns
    | Updated
    | StepMarked
    | WaitBegins
    | WaitEnds
    | PhaseEnds
    | BoundaryBegins
    | BoundaryEnds
    | FetchesElsewhere
    | LearnsElsewhere
    | Finishes
    | GivesUp
)
