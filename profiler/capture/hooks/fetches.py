"""Fetches from iterators that are no torch DataLoader, told to the loop as those of a DataLoader are.

How batches were made, where the program says that itself: `whyidle.watch(…, made=…)`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any, TypeAlias

from torch import is_grad_enabled

from ...record.schema import BATCH, NOT_MEASURED
from ..loop_detector.loaders import Iteration, Part, Role, Use
from ..steps import QueueLook
from .identity import ByIdentity
from .loader_facts import LoaderFacts
from .loop import Loop
from .switch import Switch
from .wrap import Hook

Telling: TypeAlias = Callable[[Any], Any]
"""From a batch to its `whyidle.MadeBatch`, or `None` where that is not known."""

_SLOT = {field.name: number for number, field in enumerate(BATCH.fields[1:])}
_TOLD = (
    *("worker", "begin_ns", "end_ns", "read_ns", "decode_ns", "transform_ns", "collate_ns"),
    *("cpu_ns", "minor_faults", "read_bytes", "batch_bytes", "threads"),
)
"""Fields of a batch's record that a `MadeBatch` has."""


class ToldBatches(Hook):
    """Records the batches of steps as the program says that they were made.

    Whether a fetch belongs to a step is sure only when the next one begins: its record is stored then.
    """

    name, without = "the program's own report on batches", "it is not recorded any more"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self.telling = False
        """A fetch is under way whose batch is told of: whatever makes batches within it records nothing."""
        self._pending: array[int] | None = None

    def remove(self) -> None:
        """The recording ends, all steps are stored."""
        self.store(last=True)

    def handed_over(self, batch: Any, samples: int, tells: Telling) -> None:
        """A batch came that `tells` knows."""
        steps = self._steps
        if not self.switch.on or not steps.recording or self._loop.part is Part.NOTHING:
            return
        begin = self._now()
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
            steps.add_overhead(self._now() - begin)

    def store(self, last: bool = False) -> None:
        """Store the record that waits, unless its step was taken back. `last`: no step is open."""
        row, self._pending = self._pending, None
        if row is not None:
            try:
                self._session.made(row, last)
            except Exception as error:
                self.switch.fail(error)


Count = Callable[[Any], int | None]
"""Tells how many samples a batch has; `None` where that is not known."""


class Fetches:
    """Knows what is iterated over, and tells the loop."""

    def __init__(self, loop: Loop, switch: Switch, told: ToldBatches) -> None:
        self.loop, self.switch, self.told = loop, switch, told
        self.now = loop.now
        self._roles: ByIdentity[Role] = ByIdentity()

    @property
    def listens(self) -> bool:
        """Whether a fetch that the calling thread began now would be one of its own."""
        return self.switch.on and not self.loop.fetching and get_ident() == self.loop.thread

    def overhears(self) -> None:
        """A fetch that may be one of another thread's."""
        if self.switch.on and get_ident() != self.loop.thread:
            self.loop.fetches_elsewhere(self.switch)

    def over(
        self,
        source: Any,
        count: Count,
        facts: LoaderFacts | None = None,
        tells: Telling | None = None,
        queue: QueueLook | None = None,
        ends: type[Exception] = StopIteration,
    ) -> OnePass:
        """A pass over `source`, which is known again in later passes.

        Args:
            tells: how a batch of it was made, where the program says that itself.
            queue: how many of its batches are ready.
            ends: what says that there is no further batch.
        """
        try:
            role = self._roles.get(source)
            if role is None:
                role = Role(data=self.loop.data_sets.number_of(source))
                self._roles.put(source, role)
        except TypeError:
            role = Role()  # nothing can be kept for it: each pass is judged by itself
        return OnePass(self, role, count, facts, tells, queue, ends)


@dataclass(eq=False)
class OnePass:
    """One pass over something that is no DataLoader: a `watched.Pass`. A fetch within a fetch is part of it."""

    fetches: Fetches
    role: Role
    count: Count
    facts: LoaderFacts | None
    tells: Telling | None
    queue: QueueLook | None
    ends: type[Exception]
    iteration: Iteration | None = None

    def make(self, iterate: Callable[[], Any]) -> Any:
        """Make the iterator of the pass."""
        fetches, loop = self.fetches, self.fetches.loop
        if not fetches.listens:
            return iterate()
        iteration = Iteration(self.role, fetches.now(), self.facts, self.queue)
        loop.hears(fetches.switch, loop.iter_began, iteration, iteration.begin_ns, is_grad_enabled())
        try:
            made = self._within(iterate)
        except BaseException:
            loop.hears(fetches.switch, loop.iter_failed)
            raise
        if loop.hears(fetches.switch, loop.iter_ended, iteration, fetches.now()):
            self.iteration = iteration
        return made

    def fetch(self, fetch: Callable[..., Any], *args: Any) -> Any:
        """Ask for the next batch of the pass."""
        fetches, loop = self.fetches, self.fetches.loop
        if not fetches.listens:
            fetches.overhears()
            return fetch(*args)
        now, iteration = fetches.now(), self.iteration
        if iteration is None or iteration.done:
            # Nobody was seen to make this iterator, or it begins anew.
            iteration = self.iteration = Iteration(self.role, now, self.facts, self.queue)
        asked = iteration, now, is_grad_enabled(), loop.steps.computed()
        heard = loop.hears(fetches.switch, loop.fetch_began, *asked)
        fetches.told.store()
        try:
            batch = self._within(fetch, *args)
        except BaseException as error:
            if heard and isinstance(error, self.ends):
                loop.hears(fetches.switch, loop.fetch_stopped, iteration, fetches.now())
            elif heard:
                loop.hears(fetches.switch, loop.fetch_failed)
            raise
        if heard:
            self._came(iteration, batch)
        return batch

    def _within(self, call: Callable[..., Any], *args: Any) -> Any:
        """Call it; whatever is called within is part of it."""
        loop, told = self.fetches.loop, self.fetches.told
        # No call lies between this and what undoes it, so that no interrupt can: whatever follows would not be seen.
        loop.fetching, told.telling = True, self.tells is not None
        try:
            return call(*args)
        finally:
            loop.fetching = told.telling = False

    def _came(self, iteration: Iteration, batch: Any) -> None:
        fetches, loop = self.fetches, self.fetches.loop
        now = fetches.now()
        try:
            samples = self.count(batch) if iteration.use is not Use.EVALUATES else 0
            if samples is None:
                loop.session.notice(f"The number of samples in a batch of {type(batch).__name__} is unknown.")
                samples = NOT_MEASURED
            flags = 0 if loop.part is Part.NOTHING else loop.shapes.flags(batch)
        except Exception as error:
            fetches.switch.fail(error)
            return
        ended = iteration, now, samples, NOT_MEASURED, NOT_MEASURED, flags
        if loop.hears(fetches.switch, loop.fetch_ended, *ended) and self.tells is not None:
            fetches.told.handed_over(batch, samples, self.tells)
