"""Clones of a program's DataLoader with other settings."""

from __future__ import annotations

import contextlib
import multiprocessing
import pickle
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, dataloader

from ...errors import WhyidleError
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..hooks.data_sets import own_workers
from .loader_source import LoaderSource, endless

MOST_PICKLED = 64 << 20
"""Bytes of a dataset after which it counts as one that can be pickled."""
_KNOWN_ITERATORS = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
_STATEFUL = "torchdata.stateful_dataloader."


class CannotRebuild(WhyidleError):
    """A loader of which there can be no clone, or none with such settings."""


class Siblings:
    """What can be made of one DataLoader."""

    def __init__(self, loader: DataLoader[Any], iterator: Any, anew: bool = False) -> None:
        """Raises CannotRebuild. `iterator`: one that it made; `anew`: after others of the training's."""
        kind = type(iterator)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind not in _KNOWN_ITERATORS and not kind.__module__.startswith(_STATEFUL):
            raise CannotRebuild(f"batches come from {name}, an iterator that is not torch's own")
        self.loader = loader
        sampler = loader._index_sampler
        for part in (sampler, getattr(sampler, "sampler", None)):
            if part is not None and hasattr(type(part), "__next__"):
                raise CannotRebuild(
                    f"its sampler ({type(part).__name__}) is an iterator, which can be gone through only once. "
                    "Give the DataLoader something that makes a new iterator each time."
                )
        self.iterable = loader._dataset_kind == dataloader._DatasetKind.Iterable
        if self.iterable and not anew and _only_once(type(loader.dataset)):
            raise CannotRebuild(
                f"the dataset ({type(loader.dataset).__name__}) is its own iterator, with an __iter__ that does not "
                "begin anew: it can be gone through only once. Let its __iter__ return a new one each time."
            )
        self._iterator = iterator
        self.fixed = {name: why for name, why in self._why_fixed().items() if why}
        """Fields of LoaderSettings that cannot be changed, each with why."""
        self._endless: dict[int | None, Iterator[Any]] = {}
        """Indices of one pass after the other, by batch size. All siblings draw from the same: else each would begin
        with samples that another one has already brought into memory."""

    def settings(self) -> LoaderSettings:
        """Those of the loader itself."""
        loader, workers = self.loader, int(self.loader.num_workers)
        return LoaderSettings(
            workers,
            int(loader.prefetch_factor or DEFAULT_PREFETCH) if workers else None,
            bool(loader.pin_memory),
            self.batch_size,
            None,
            bool(getattr(loader, "in_order", True)) if workers else True,
            bool(loader.persistent_workers) if workers else False,
        )

    @property
    def batch_size(self) -> int | None:
        """`None` where torch does not make its batches."""
        batches: Any = self.loader.batch_sampler
        return int(batches.batch_size) if _is_plain(batches) else None

    @property
    def start_method(self) -> str:
        context = self.loader.multiprocessing_context
        method = context.get_start_method() if context is not None else multiprocessing.get_start_method(True)
        return str(method or multiprocessing.get_all_start_methods()[0])

    def samples(self) -> int | None:
        """In the dataset, where it tells."""
        with contextlib.suppress(Exception):
            dataset: Any = self.loader.dataset
            return len(dataset)
        return None

    def batches_per_epoch(self) -> int | None:
        # Not len(loader): of an iterable dataset that leaves a trace, by which torch warns later.
        with contextlib.suppress(Exception):
            if not self.iterable:
                return len(self.loader._index_sampler)
            samples, size = self.samples(), self.batch_size
            if samples is not None and size:
                return samples // size if self.loader.drop_last else -(-samples // size)
        return None

    def make(self, settings: LoaderSettings) -> LoaderSource:
        """Raises CannotRebuild."""
        clone = self.clone(settings)
        if self.iterable:
            return LoaderSource(clone, settings)
        size = settings.batch_size or self.batch_size
        return LoaderSource(clone, settings, self._endless.setdefault(size, endless(clone._index_sampler)))

    def clone(self, settings: LoaderSettings) -> DataLoader[Any]:
        own = self.settings()
        for name, why in self.fixed.items():
            value = getattr(settings, name)
            if value != getattr(own, name) and value is not None:
                raise CannotRebuild(f"{name} cannot be {value} here: {why}")
        clone: DataLoader[Any] = object.__new__(type(self.loader))
        # Past `__setattr__`, which refuses what may not change on a loader in use.
        fields = clone.__dict__
        fields.update(self.loader.__dict__)
        fields.pop("_get_iterator", None)
        fields.update(
            num_workers=settings.num_workers,
            prefetch_factor=settings.prefetch_factor,
            pin_memory=settings.pin_memory,
            persistent_workers=settings.persistent_workers,
            _iterator=None,
            _IterableDataset_len_called=None,
        )
        if "in_order" in fields:
            fields["in_order"] = settings.in_order
        if settings.num_workers == 0:
            fields["timeout"] = 0
        if "next_iter_state" in fields:  # torchdata's StatefulDataLoader
            fields.update(next_iter_state=None, _initial_iter_for_state_dict=False)
        size = settings.batch_size
        if size is not None and size != own.batch_size:
            batches = self.loader.batch_sampler
            assert isinstance(batches, BatchSampler)
            if self.loader.drop_last and (samples := self.samples()) is not None and size > samples:
                raise CannotRebuild(f"{samples} samples do not fill a batch of {size}")
            fields["batch_sampler"] = type(batches)(batches.sampler, size, batches.drop_last)
            fields["batch_size"] = size
        return clone

    def _why_fixed(self) -> dict[str, str | None]:
        loader = self.loader
        batches = loader.batch_sampler
        why_size = None
        if batches is None:
            why_size = "the dataset makes its batches itself (batch_size=None)"
        elif not _is_plain(batches):
            why_size = f"its batches are put together by {type(batches).__module__}.{type(batches).__qualname__}"
        no_accelerator = getattr(torch, "accelerator", None) is not None and not torch.accelerator.is_available()
        return {
            "batch_size": why_size,
            "in_order": None if hasattr(loader, "in_order") else f"torch {torch.__version__} has no in_order",
            "pin_memory": "there is no accelerator that memory could be pinned for" if no_accelerator else None,
            "num_workers": self._why_no_workers(),
        }

    def _why_no_workers(self) -> str | None:
        """Why there cannot be workers, where the program has none itself."""
        loader = self.loader
        if own_workers(loader.dataset, getattr(self._iterator, "_dataset_fetcher", None)) is not None:
            return "the dataset has workers of its own, and a loader's worker can start none"
        if loader.num_workers or self.start_method == "fork":
            return None
        try:
            pickle.Pickler(_Measure()).dump((loader.dataset, loader.collate_fn, loader.worker_init_fn))
        except _Enough:
            pass
        except Exception as error:
            return f"workers start by {self.start_method}, and what they need cannot be pickled ({error})"
        return None


def _only_once(kind: type) -> bool:
    """Whether such a data set is its own iterator, and to iterate over it is no more than to be given it."""
    code = getattr(getattr(kind, "__iter__", None), "__code__", None)
    return hasattr(kind, "__next__") and not (code and code.co_names)


def _is_plain(batches: Any) -> bool:
    """Whether they are put together by torch's own BatchSampler, or by torchdata's, which keeps its state."""
    kind = type(batches)
    return kind is BatchSampler or (kind.__name__ == "BatchSampler" and kind.__module__.startswith(_STATEFUL))


class _Enough(Exception):
    pass


class _Measure:
    """A file that keeps nothing."""

    def __init__(self) -> None:
        self._written = 0

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self._written += size
        if self._written > MOST_PICKLED:
            raise _Enough
        return size
