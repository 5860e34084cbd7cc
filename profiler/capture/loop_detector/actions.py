"""What the loop detector wants done: each with the arguments of the recorder's method that does it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...record.schema import NOT_MEASURED

if TYPE_CHECKING:
    from ..hooks.loader_facts import LoaderFacts
    from ..steps import QueueLook


class BeginStep(NamedTuple):
    """A step begins with a fetch, and ends the one before."""

    epoch: int
    first: bool
    """Of its epoch."""
    queue: QueueLook | None
    begin_ns: int


class Deliver(NamedTuple):
    """The open step has its batch; told again, the later counts."""

    samples: int
    end_ns: int
    begins: bool
    """The step's computation may begin."""
    loader: int = NOT_MEASURED
    batch: int = NOT_MEASURED
    flags: int = 0


class Amend(NamedTuple):
    """The open step has so many samples, as it turns out."""

    samples: int
    begin_ns: int
    """It began then only; 0: when it was said to."""


class TakeBack(NamedTuple):
    """The step that was opened last is none."""


class EndStep(NamedTuple):
    """The open step is over."""

    at_last_hook: bool
    """Nobody knows since when: where something was last seen of it."""
    end_ns: int = 0


class Compute(NamedTuple):
    """The open step's computation begins here, without a fetch or later than its end."""


class FetchWithinBegins(NamedTuple):
    """More data is asked for in the midst of the open step."""


class FetchWithinEnds(NamedTuple):
    samples: int
    """Of the whole step so far."""
    flags: int = 0


class Happened(NamedTuple):
    """Something to be recorded outside the steps: an `EventKind`."""

    what: int
    value: int
    end_ns: int
    t_ns: int


class LoaderTrains(NamedTuple):
    """Settings of the loader that trains, when they were not told before."""

    facts: LoaderFacts


class FirstLearning(NamedTuple):
    """The first backward pass or optimizer step of the open step begins."""


class Say(NamedTuple):
    """For the report's notes."""

    text: str


Action: TypeAlias = (
    BeginStep
    | Deliver
    | Amend
    | TakeBack
    | EndStep
    | Compute
    | FetchWithinBegins
    | FetchWithinEnds
    | Happened
    | LoaderTrains
    | FirstLearning
    | Say
)
