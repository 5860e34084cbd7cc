"""Fetches from iterators that are no torch DataLoader, told to the loop as those of a DataLoader are."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from ...record.schema import NOT_MEASURED
from ..steps import QueueLook
from .identity import ByIdentity
from .loader_facts import LoaderFacts
from .loop import Iteration, Loop, Role, Use
from .switch import Switch
from .told_batches import Telling, ToldBatches

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
            self._guarded(self._loop.fetches_elsewhere)

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
                role = Role()
                self._roles.put(source, role)
        except TypeError:
            role = Role()  # nothing can be kept for it: each pass is judged by itself
        return OnePass(self, role, count, facts, tells, queue)

    def make(self, of: OnePass, iterate: Callable[[], Any]) -> Any:
        """Make the iterator of a pass."""
        loop = self._loop
        if not self.listens:
            return iterate()
        now = self._now()
        use = self._busily(loop.iter_begins, of.role, now)
        self._under_way(of)
        try:
            made = iterate()
        except BaseException:
            self._under_way(None)
            self._guarded(loop.iter_fails)
            raise
        self._under_way(None)
        if use is not None:
            of.iteration = self._busily(loop.iter_ends, of.role, use, now)
            if of.iteration is not None:
                of.iteration.facts, of.iteration.queue = of.facts, of.queue
        return made

    def fetch(self, of: OnePass, fetch: Callable[..., Any], *args: Any) -> Any:
        """Ask for the next batch of a pass."""
        loop = self._loop
        if not self.switch.on or loop.fetching:
            return fetch(*args)
        if get_ident() != loop.thread:
            self.overhears()
            return fetch(*args)
        iteration = self._busily(self._begins, of, self._now())
        self._under_way(of)
        try:
            batch = fetch(*args)
        except of.ends:
            self._under_way(None)
            if iteration is not None:
                self._guarded(loop.fetch_stops, iteration)
            raise
        except BaseException:
            self._under_way(None)
            if iteration is not None:
                self._guarded(loop.fetch_fails)
            raise
        self._under_way(None)
        if iteration is not None:
            self._busily(self._ends, of, iteration, batch, self._now())
        return batch

    def _under_way(self, of: OnePass | None) -> None:
        """The program's own code works for a pass from here on; `None`: no longer."""
        self._loop.fetching = of is not None
        self._told.under_way = of is not None and of.tells is not None

    def _begins(self, of: OnePass, now: int) -> Iteration:
        loop, iteration = self._loop, of.iteration
        if iteration is None or iteration.done:
            # Nobody was seen to make this iterator, or it begins anew.
            iteration = Iteration(of.role, loop.use_of(of.role), now, of.facts, of.queue, learnings_then=loop.learnings)
            of.iteration = iteration
        loop.fetch_begins(iteration, now)
        self._told.store()
        return iteration

    def _ends(self, of: OnePass, iteration: Iteration, batch: Any, now: int) -> None:
        samples = of.count(batch) if iteration.use is not Use.EVALUATES else 0
        if samples is None:
            self._notice(f"How many samples a batch of {type(batch).__name__} has is not known.")
            samples = NOT_MEASURED
        self._loop.fetch_ends(iteration, samples, now, handed=batch)
        if of.tells is not None:
            self._told.handed_over(batch, samples, of.tells)

    def _busily(self, call: Callable[..., Any], *args: Any) -> Any:
        """As `_guarded`; other threads change nothing of the loop meanwhile."""
        self._loop.busy = True
        try:
            return self._guarded(call, *args)
        finally:
            self._loop.busy = False

    def _guarded(self, call: Callable[..., Any], *args: Any) -> Any:
        if not self.switch.on:
            return None
        try:
            return call(*args)
        except Exception as error:
            self.switch.fail(error)
            return None


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
