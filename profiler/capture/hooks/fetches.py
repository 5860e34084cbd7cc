"""Fetches from iterators that are no torch DataLoader, told to the loop as those of a DataLoader are.

How batches were made, where the program says that itself: `whyidle.watch(…, made=…)`.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeAlias

from torch import is_grad_enabled

from ...record.schema import BATCH, NOT_MEASURED
from ..loop_detector.loaders import Iteration, Part, Role, Use
from ..session import Session
from ..steps import QueueLook
from .identity import ByIdentity
from .loader_facts import LoaderFacts
from .loop import Loop
from .switch import Switch

Telling: TypeAlias = Callable[[Any], Any]
"""From a batch to its `whyidle.MadeBatch`, or `None` where that is not known."""

_SLOT = {field.name: number for number, field in enumerate(BATCH.fields[1:])}
_TOLD = (
    *("worker", "begin_ns", "end_ns", "read_ns", "decode_ns", "transform_ns", "collate_ns"),
    *("cpu_ns", "minor_faults", "read_bytes", "batch_bytes", "threads"),
)
"""Fields of a batch's record that a `MadeBatch` has."""


class ToldBatches:
    """Records the batches of steps as the program says that they were made.

    Whether a fetch belongs to a step is sure only when the next one begins: its record is stored then.
    """

    def __init__(self, session: Session, loop: Loop, switch: Switch) -> None:
        self.switch = switch
        self.under_way = False
        """A fetch is under way whose batch is told of: whatever makes batches within it records nothing."""
        self._session = session
        self._loop = loop
        self._pid = os.getpid()
        self._pending: array[int] | None = None

    def install(self) -> None:
        """Nothing is replaced for it."""

    def remove(self) -> None:
        """The recording ends, all steps are stored."""
        self.store(last=True)

    def handed_over(self, batch: Any, samples: int, tells: Telling) -> None:
        """A batch came that `tells` knows."""
        steps = self._session.steps
        if not self.switch.on or not steps.recording or self._loop.part is Part.NOTHING:
            return
        begin = self._session.device.now()
        try:
            made = tells(batch)
            if made is None:
                return
            row = array("q", (NOT_MEASURED for _ in BATCH.fields[1:]))
            row[_SLOT["step"]], row[_SLOT["samples"]] = steps.count - 1, samples
            for name in _TOLD:
                value = getattr(made, name)
                if value is not None:
                    row[_SLOT[name]] = value
            self._pending = row
        except Exception as error:
            self.switch.fail(error)
        finally:
            steps.add_overhead(self._session.device.now() - begin)

    def store(self, last: bool = False) -> None:
        """Store the record that waits, unless its step was taken back. `last`: no step is open."""
        row, self._pending = self._pending, None
        if row is None or os.getpid() != self._pid:
            return
        if row[_SLOT["step"]] < self._session.steps.count - (0 if last else 1):
            with self.switch:
                self._session.made(row)


Count = Callable[[Any], int | None]
"""Tells how many samples a batch has; `None` where that is not known."""


class Fetches:
    """Knows what is iterated over, and tells the loop. A fetch within a fetch is part of it."""

    def __init__(
        self,
        loop: Loop,
        now: Callable[[], int],
        switch: Switch,
        notice: Callable[[str], object],
        told: ToldBatches,
    ) -> None:
        self._loop = loop
        self._now = now
        self._told = told
        self.switch = switch
        self._notice = notice
        self._roles: ByIdentity[Role] = ByIdentity()

    @property
    def listens(self) -> bool:
        """Whether a fetch that the calling thread began now would be one of its own."""
        return self.switch.on and not self._loop.fetching and get_ident() == self._loop.thread

    def overhears(self) -> None:
        """A fetch that may be one of another thread's."""
        if self.switch.on and get_ident() != self._loop.thread:
            self._loop.fetches_elsewhere(self.switch)

    def over(
        self,
        source: Any,
        count: Count,
        facts: LoaderFacts | None = None,
        tells: Telling | None = None,
        queue: QueueLook | None = None,
    ) -> OnePass:
        """A pass over `source`, which is known again in later passes.

        Args:
            tells: how a batch of it was made, where the program says that itself.
            queue: how many of its batches are ready.
        """
        try:
            role = self._roles.get(source)
            if role is None:
                role = Role(data=self._loop.data_sets.number_of(source))
                self._roles.put(source, role)
        except TypeError:
            role = Role()  # nothing can be kept for it: each pass is judged by itself
        return OnePass(self, role, count, facts, tells, queue)

    def make(self, of: OnePass, iterate: Callable[[], Any]) -> Any:
        """Make the iterator of a pass."""
        if not self.listens:
            return iterate()
        iteration = Iteration(of.role, self._now(), of.facts, of.queue)
        self._loop.hears(self.switch, self._loop.iter_began, iteration, iteration.begin_ns, is_grad_enabled())
        # No call lies between this and what undoes it, so that no interrupt can: whatever follows would not be seen.
        self._loop.fetching, self._told.under_way = True, of.tells is not None
        try:
            made = iterate()
        except BaseException:
            self._loop.fetching = self._told.under_way = False
            self._loop.hears(self.switch, self._loop.iter_failed)
            raise
        self._loop.fetching = self._told.under_way = False
        if self._loop.hears(self.switch, self._loop.iter_ended, iteration, self._now()):
            of.iteration = iteration
        return made

    def fetch(self, of: OnePass, fetch: Callable[..., Any], *args: Any) -> Any:
        """Ask for the next batch of a pass."""
        loop = self._loop
        if not self.switch.on or loop.fetching:
            return fetch(*args)
        if get_ident() != loop.thread:
            self.overhears()
            return fetch(*args)
        now, iteration = self._now(), of.iteration
        if iteration is None or iteration.done:
            # Nobody was seen to make this iterator, or it begins anew.
            iteration = of.iteration = Iteration(of.role, now, of.facts, of.queue)
        told = loop.asks(self.switch, iteration, now)
        self._told.store()
        loop.fetching, self._told.under_way = True, of.tells is not None
        try:
            batch = fetch(*args)
        except BaseException as error:
            loop.fetching = self._told.under_way = False
            if told:
                if isinstance(error, of.ends):
                    loop.hears(self.switch, loop.fetch_stopped, iteration, self._now())
                else:
                    loop.hears(self.switch, loop.fetch_failed)
            raise
        loop.fetching = self._told.under_way = False
        if told:
            self._ends(of, iteration, batch)
        return batch

    def _ends(self, of: OnePass, iteration: Iteration, batch: Any) -> None:
        now, loop = self._now(), self._loop
        try:
            samples = of.count(batch) if iteration.use is not Use.EVALUATES else 0
            if samples is None:
                self._notice(f"The number of samples in a batch of {type(batch).__name__} is unknown.")
                samples = NOT_MEASURED
            flags = 0 if loop.part is Part.NOTHING else loop.shapes.flags(batch)
        except Exception as error:
            self.switch.fail(error)
            return
        ended = iteration, now, samples, NOT_MEASURED, NOT_MEASURED, flags
        if loop.hears(self.switch, loop.fetch_ended, *ended) and of.tells is not None:
            self._told.handed_over(batch, samples, of.tells)


class OnePass:
    """One pass over something that is no DataLoader: a `watched.Pass`."""

    def __init__(
        self,
        fetches: Fetches,
        role: Role,
        count: Count,
        facts: LoaderFacts | None,
        tells: Telling | None,
        queue: QueueLook | None,
    ) -> None:
        self._fetches = fetches
        self.role = role
        self.count = count
        self.facts = facts
        self.tells = tells
        self.queue = queue
        self.iteration: Iteration | None = None
        self.ends: type[Exception] = StopIteration
        """What says that there is no further batch."""

    def make(self, iterate: Callable[[], Any]) -> Any:
        return self._fetches.make(self, iterate)

    def fetch(self, fetch: Callable[..., Any], *args: Any) -> Any:
        return self._fetches.fetch(self, fetch, *args)
