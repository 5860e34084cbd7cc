"""Fetches from iterators that are no torch DataLoader, told to the loop as those of a DataLoader are.

Of libraries is replaced what makes iterators and batches, looked up when the library is imported. A library of another
shape than the one known here is left alone, with one notice. How batches were made is recorded where the program says
that itself: `whyidle.watch(…, made=…)`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import get_ident
from types import ModuleType
from typing import Any, TypeAlias

from torch import is_grad_enabled
from torch.utils.data import DataLoader, IterableDataset

from ...record.schema import BATCH, NOT_MEASURED
from ..libraries import SOURCES, Gives, Source, called_from
from ..loop_detector.loaders import Iteration, Part, Role, Use
from ..stand_in import watched
from ..steps import QueueLook
from .identity import ByIdentity
from .loader_facts import LoaderFacts, starts_python
from .loop import Loop
from .parts import parts_of, samples_of
from .wrap import Hook, Unexpected

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


@dataclass(eq=False)
class Pass:
    """One pass over something that is no DataLoader. A fetch within a fetch is part of it."""

    fetches: FetchesHook
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
            if not loop.fetching:
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


Count = Callable[[Any], int | None]
"""Tells how many samples a batch has; `None` where that is not known."""


def _columns(batch: Any) -> int | None:
    """A batch is a mapping from columns to their rows."""
    if not isinstance(batch, dict):
        return len(batch) if hasattr(batch, "__len__") else None
    column: Any = next(iter(parts_of(batch, 1) or ()), None)
    return len(column) if type(column) in (list, tuple) else samples_of(column)


def _dali(batch: Any) -> int | None:
    """A batch has a part from each pipeline."""
    parts = [samples_of(part) for part in batch]
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None


def _webdataset(pipeline: Any) -> Count:
    """Whether it gives batches or samples is told by its last stage that changes that."""
    count: Count = lambda _batch: 1  # noqa: E731
    for stage in pipeline.pipeline:
        name = getattr(getattr(stage, "f", stage), "__name__", "")
        batches = isinstance(stage, DataLoader) and (stage.batch_size or 0) > 0
        if batches or name in ("_batched", "_listed"):
            count = samples_of
        elif name in ("_unbatched", "_unlisted"):
            count = lambda _batch: 1  # noqa: E731
    return count


_COUNTS: dict[str, Callable[[Any], Count]] = {
    "leading": lambda _source: samples_of,
    "one": lambda _source: lambda _batch: 1,
    "columns": lambda _source: _columns,
    "dali": lambda _source: _dali,
    "webdataset": _webdataset,
}
"""From the object iterated over, how samples are counted."""


class FetchesHook(Hook):
    """Knows what is iterated over besides torch's loaders, and tells the loop. Replaces the methods of `SOURCES`, each
    once its library is there; `whyidle.watch` gives the rest."""

    name, without = "iterators that are no DataLoader", "their fetches are not recorded"

    def __init__(self, loop: Loop, told: ToldBatches) -> None:
        super().__init__(loop)
        self.loop, self.now, self.told = loop, loop.now, told
        self._roles: ByIdentity[Role] = ByIdentity()
        self._passes: ByIdentity[Pass] = ByIdentity()
        """Passes of iterators that are asked themselves."""
        self._left_out: set[str] = set()

    def install(self) -> None:
        for module in dict.fromkeys(source.module for source in SOURCES):
            self.imports.when(module, self._imported)

    def _imported(self, module: ModuleType) -> None:
        wraps: dict[Gives, Callable[..., Any]] = {
            Gives.BATCH: self._wrap_fetch,
            Gives.ITERATOR: self._wrap_iter,
            Gives.GENERATOR: self._wrap_generator,
        }
        for source in SOURCES:
            if source.module != module.__name__ or source.library in self._left_out:
                continue
            try:
                owner = getattr(module, source.owner, None)
                if owner is None:
                    raise Unexpected(f"{source.module} has no {source.owner}")
                self.replace(owner, source.method, partial(wraps[source.gives], source), None, *source.example)
            except Exception as error:
                self._left_out.add(source.library)
                self._session.notice(
                    f"The iterators of {source.library} differ from those that whyidle knows ({error}), so its fetches "
                    "are not recorded. Wrap yours in `whyidle.watch(iterable)`."
                )

    def _wrap_fetch(self, source: Source, original: Callable[..., Any]) -> Callable[..., Any]:
        def fetch(self_: Any, *args: Any, **kwargs: Any) -> Any:
            under_way = self._pass_of(source, self_) if self.listens else None
            if under_way is None:
                self.overhears()
                return original(self_, *args, **kwargs)
            return under_way.fetch(lambda: original(self_, *args, **kwargs))

        return fetch

    def _wrap_iter(self, source: Source, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def __iter__(self_: Any) -> Any:  # noqa: N807
            begun = self._over(source, self_) if self.listens else None
            if begun is None:
                return original(self_)
            iterator = begun.make(lambda: original(self_))
            self._remember(iterator, begun)
            return iterator

        return __iter__

    def _wrap_generator(self, source: Source, original: Callable[..., Any]) -> Callable[..., Any]:
        def iterate(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.listens or called_from(source, 2) or sees_itself(self_):
                return original(self_, *args, **kwargs)
            begun = self._over(source, self_)
            if begun is None:
                return original(self_, *args, **kwargs)
            made = begun.make(lambda: original(self_, *args, **kwargs))
            return watched(made, lambda _: None, begun) if hasattr(type(made), "__next__") else made

        return iterate

    def _over(self, source: Source, thing: Any) -> Pass | None:
        """A new pass over something iterable."""
        try:
            return self.over(thing, _COUNTS[source.count](thing), _facts(thing), ends=source.ends)
        except Exception as error:
            self.switch.fail(error)
            return None

    def _pass_of(self, source: Source, iterator: Any) -> Pass | None:
        """The pass that an iterator belongs to."""
        known = self._passes.get(iterator)
        if known is None:
            known = self._over(source, iterator)
            self._remember(iterator, known)
        return known

    def _remember(self, iterator: Any, under_way: Pass | None) -> None:
        try:
            if under_way is not None:
                self._passes.put(iterator, under_way)
        except TypeError:
            pass  # cannot be kept: it is taken for a new one at each fetch

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
    ) -> Pass:
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
        return Pass(self, role, count, facts, tells, queue, ends)


def sees_itself(thing: Any) -> bool:
    """Whether it only hands on what a torch DataLoader gives, whose own hook tells more."""
    stages = getattr(thing, "pipeline", None)
    return isinstance(stages, list) and len(stages) == 1 and isinstance(stages[0], DataLoader)


def _facts(thing: Any) -> LoaderFacts | None:
    """The settings of the torch DataLoader that leads a WebDataset pipeline."""
    stages = getattr(thing, "pipeline", None)
    first = stages[0] if isinstance(stages, list) and stages else None
    if not isinstance(first, DataLoader):
        return None
    context = first.multiprocessing_context
    return LoaderFacts(
        first.num_workers,
        first.prefetch_factor,
        first.pin_memory,
        first.persistent_workers,
        isinstance(first.dataset, IterableDataset),
        not getattr(first, "in_order", True),
        first.num_workers > 0 and starts_python(None if context is None else context.get_start_method()),
    )
