"""The hook on libraries whose iterators are no torch DataLoader.

What is replaced is looked up when the library is imported. A library of another shape than the one known here is left
alone, with one notice.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from ..imports import Imports
from ..libraries import SOURCES, Gives, Source, called_from
from ..watched import watched
from .fetches import Count, Fetches, OnePass, ToldBatches
from .identity import ByIdentity
from .loader_facts import LoaderFacts, starts_python
from .loop import Loop
from .parts import parts_of, samples_of
from .wrap import Hook, Unexpected


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


class SourceHook(Hook):
    """Replaces the methods of `SOURCES`, each once its library is there."""

    name, without = "iterators that are no DataLoader", "their fetches are not recorded"

    def __init__(self, loop: Loop, told: ToldBatches) -> None:
        super().__init__(loop)
        self.fetches = Fetches(loop, self.switch, told)
        self._imports = Imports()
        self._passes: ByIdentity[OnePass] = ByIdentity()
        """Passes of iterators that are asked themselves."""
        self._left_out: set[str] = set()

    def install(self) -> None:
        for module in dict.fromkeys(source.module for source in SOURCES):
            self._imports.when(module, self._imported)

    def remove(self) -> None:
        self._imports.forget()
        self.put_back()

    def _imported(self, module: ModuleType) -> None:
        for source in SOURCES:
            if source.module != module.__name__ or source.library in self._left_out:
                continue
            try:
                owner = getattr(module, source.owner, None)
                if owner is None:
                    raise Unexpected(f"{source.module} has no {source.owner}")
                self.replace(owner, source.method, self._wrap(source), None, *source.example)
            except Exception as error:
                self._left_out.add(source.library)
                self._session.notice(
                    f"The iterators of {source.library} differ from those that whyidle knows ({error}), so its fetches "
                    "are not recorded. Wrap yours in `whyidle.watch(iterable)`."
                )

    def _wrap(self, source: Source) -> Callable[[Any], Any]:
        if source.gives is Gives.BATCH:
            return lambda original: self._wrap_fetch(source, original)
        if source.gives is Gives.ITERATOR:
            return lambda original: self._wrap_iter(source, original)
        return lambda original: self._wrap_generator(source, original)

    def _wrap_fetch(self, source: Source, original: Callable[..., Any]) -> Callable[..., Any]:
        fetches = self.fetches

        def fetch(self_: Any, *args: Any, **kwargs: Any) -> Any:
            under_way = self._pass_of(source, self_) if fetches.listens else None
            if under_way is None:
                fetches.overhears()
                return original(self_, *args, **kwargs)
            return under_way.fetch(lambda: original(self_, *args, **kwargs))

        return fetch

    def _wrap_iter(self, source: Source, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        fetches = self.fetches

        def __iter__(self_: Any) -> Any:  # noqa: N807
            begun = self._over(source, self_) if fetches.listens else None
            if begun is None:
                return original(self_)
            iterator = begun.make(lambda: original(self_))
            self._remember(iterator, begun)
            return iterator

        return __iter__

    def _wrap_generator(self, source: Source, original: Callable[..., Any]) -> Callable[..., Any]:
        fetches = self.fetches

        def iterate(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if not fetches.listens or called_from(source, 2) or sees_itself(self_):
                return original(self_, *args, **kwargs)
            begun = self._over(source, self_)
            if begun is None:
                return original(self_, *args, **kwargs)
            made = begun.make(lambda: original(self_, *args, **kwargs))
            return watched(made, lambda _: None, begun) if hasattr(type(made), "__next__") else made

        return iterate

    def _over(self, source: Source, thing: Any) -> OnePass | None:
        """A new pass over something iterable."""
        try:
            return self.fetches.over(thing, _COUNTS[source.count](thing), _facts(thing), ends=source.ends)
        except Exception as error:
            self.switch.fail(error)
            return None

    def _pass_of(self, source: Source, iterator: Any) -> OnePass | None:
        """The pass that an iterator belongs to."""
        known = self._passes.get(iterator)
        if known is None:
            known = self._over(source, iterator)
            self._remember(iterator, known)
        return known

    def _remember(self, iterator: Any, under_way: OnePass | None) -> None:
        try:
            if under_way is not None:
                self._passes.put(iterator, under_way)
        except TypeError:
            pass  # cannot be kept: it is taken for a new one at each fetch


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
