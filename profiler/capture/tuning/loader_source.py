"""Clones of a program's DataLoader with other settings, their batches, and how workers behind an iterator rest and
end."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, cycle
from typing import Any

import torch
from torch._C import _remove_worker_pids
from torch.utils.data import BatchSampler, DataLoader, dataloader

from ...errors import WhyidleError
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..hooks.loader_facts import own_workers
from ..hooks.parts import samples_of

HANDED_OVER_S = 0.01
"""How long workers are left alone once all batches are made: one counts as made before it is pickled."""
CLOSE_REST_S = 2.0
"""How long workers may take to finish what they make, before they are ended without being asked."""
WORST_BATCHES = 2
"""Batches of the samples that take most: the second meets what the first has left in memory."""
_KNOWN_ITERATORS = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
_STATEFUL = "torchdata.stateful_dataloader."


class CannotRebuild(WhyidleError):
    """A loader of which there can be no clone, or none with such settings."""


class LoaderSource:
    """The batches of one clone. See `switching.BatchSource`."""

    def __init__(self, loader: DataLoader[Any], indices: Iterator[Any] | None = None) -> None:
        """`indices`: what its batches are made of, where the dataset has a sampler; without an end."""
        self._loader = loader
        if indices is not None:
            # The pass never ends: what an epoch's beginning costs is measured apart.
            name = "batch_sampler" if loader._auto_collation else "sampler"
            loader.__dict__[name] = _Shared(indices, getattr(loader, name))
        self._iterator = self._begin()

    @property
    def pids(self) -> list[int]:
        return [pid for w in self._workers() if (pid := w.pid) is not None]

    def next(self) -> tuple[Any, int | None]:
        batch = next(self._iterator)
        return batch, samples_of(batch)

    def restart(self) -> None:
        if self._loader.persistent_workers and self._workers():
            self._iterator._reset(self._loader)
            return
        self._end()
        self._iterator = self._begin()

    def rest(self, seconds: float) -> None:
        if self.why_failed() is None:
            wait_until_idle(self._iterator, seconds)

    def close(self) -> None:
        wait_until_idle(self._iterator, CLOSE_REST_S)
        self._end()
        self._iterator = iter(())

    def why_failed(self) -> str | None:
        for worker in self._workers():
            code = worker.exitcode
            if code is not None and code < 0:
                name = signal.Signals(-code).name if -code in set(signal.Signals) else str(-code)
                return f"worker {worker.pid} was ended by signal: {name}"
            if code:
                return f"worker {worker.pid} ended with exit code {code}"
        return None

    def _begin(self) -> Any:
        with warnings.catch_warnings():
            # Of more workers than CPUs, or of pinning without a GPU: the program did not ask for it.
            warnings.simplefilter("ignore")
            iterator: Any = self._loader._get_iterator()
        # A worker that dies would raise an error in whatever the training does then. Asked for a batch, the iterator
        # finds out too.
        _forget_workers(iterator)
        return iterator

    def _workers(self) -> list[Any]:
        return list(getattr(self._iterator, "_workers", ()))

    def _end(self) -> None:
        end_workers(self._iterator, self.why_failed() is not None)


def end_host(loader: DataLoader[Any], iterator: Any, next_data: Callable[[], Any]) -> None:
    """Have a program's own iterator hand out what `next_data` gives, for good, and end its workers."""
    iterator._next_data = next_data
    iterator._reset = lambda *_, **__: None
    iterator._IterableDataset_len_called = None  # of more batches than that it would warn
    # However often the program begins anew: no workers are started for that.
    loader.__dict__["_get_iterator"] = lambda: iterator
    wait_until_idle(iterator, CLOSE_REST_S)
    end_workers(iterator)


def wait_until_idle(iterator: Any, seconds: float) -> None:
    """Until an iterator's workers have finished what they were told to make."""
    if not getattr(iterator, "_workers", None):
        return
    until = time.monotonic() + seconds
    while not _idle(iterator) and time.monotonic() < until:
        time.sleep(0.001)
    time.sleep(HANDED_OVER_S)


def _idle(iterator: Any) -> bool:
    with contextlib.suppress(AttributeError, NotImplementedError, OSError):
        return bool(iterator._data_queue.qsize() >= iterator._tasks_outstanding)
    return True


def end_workers(iterator: Any, one_died: bool = False) -> None:
    """End an iterator's workers: those that are busy, or that one's death may have left waiting for its lock, without
    asking them."""
    if not hasattr(iterator, "_shutdown_workers"):
        return
    if one_died or not _idle(iterator):
        _forget_workers(iterator)
        iterator._shutdown = True
        if hasattr(iterator, "_pin_memory_thread_done_event"):
            iterator._pin_memory_thread_done_event.set()
        for worker in iterator._workers:
            with contextlib.suppress(Exception):
                worker.kill()
        for worker in iterator._workers:
            with contextlib.suppress(Exception):
                worker.join(timeout=1)
        for queue in iterator._index_queues:
            with contextlib.suppress(Exception):
                queue.cancel_join_thread()
                queue.close()
        return
    with contextlib.suppress(Exception):
        iterator._shutdown_workers()


def _forget_workers(iterator: Any) -> None:
    """Have torch's handler of SIGCHLD say nothing of their ends."""
    if getattr(iterator, "_worker_pids_set", False):
        _remove_worker_pids(id(iterator))
        iterator._worker_pids_set = False


def _endless(sampler: Any) -> Iterator[Any]:
    """Draw from a sampler that begins anew where it ends."""
    some = True
    while some:
        some = False
        for each in sampler:
            some = True
            yield each


class _Shared:
    """A sampler that goes on with what other loaders draw from too."""

    def __init__(self, indices: Iterator[Any], sampler: Any) -> None:
        self._indices, self._sampler = indices, sampler

    def __iter__(self) -> Iterator[Any]:
        return self._indices

    def __len__(self) -> int:
        return len(self._sampler)


class Siblings:
    """Clones of one DataLoader with other settings."""

    def __init__(self, loader: DataLoader[Any], iterator: Any) -> None:
        """Raises CannotRebuild. `iterator`: one that it made."""
        kind = type(iterator)
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind not in _KNOWN_ITERATORS and not kind.__module__.startswith(_STATEFUL):
            raise CannotRebuild(f"batches come from {name}, an iterator that is not torch's own")
        self.loader = loader
        sampler = loader._index_sampler
        for part in (sampler, getattr(sampler, "sampler", None)):
            if part is not None and hasattr(type(part), "__next__"):
                raise CannotRebuild(
                    f"its sampler ({type(part).__name__}) is an iterator, which can be used only once. "
                    "Give the DataLoader a sampler that makes a new iterator each time."
                )
        self.iterable = loader._dataset_kind == dataloader._DatasetKind.Iterable
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

    def make(self, settings: LoaderSettings, first: Sequence[int] = ()) -> LoaderSource:
        """Make a source of batches, the first of them of these samples, where torch makes them. Raises
        CannotRebuild."""
        clone = self.clone(settings)
        if self.iterable:
            return LoaderSource(clone)
        size = settings.batch_size or self.batch_size
        indices = self._endless.setdefault(size, _endless(clone._index_sampler))
        if first and size is not None and clone._auto_collation:
            over = cycle(first)
            indices = chain(([next(over) for _ in range(size)] for _ in range(WORST_BATCHES)), indices)
        return LoaderSource(clone, indices)

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
            why_size = "the dataset forms its batches itself (batch_size=None)"
        elif not _is_plain(batches):
            why_size = f"{type(batches).__module__}.{type(batches).__qualname__} forms its batches"
        why_no_workers = None
        if own_workers(loader.dataset, getattr(self._iterator, "_dataset_fetcher", None)) is not None:
            why_no_workers = "the dataset has its own workers, which a loader's worker cannot start"
        no_accelerator = getattr(torch, "accelerator", None) is not None and not torch.accelerator.is_available()
        return {
            "batch_size": why_size,
            "in_order": None if hasattr(loader, "in_order") else f"torch {torch.__version__} has no in_order",
            "pin_memory": "there is no accelerator to pin memory for" if no_accelerator else None,
            "num_workers": why_no_workers,
        }


def _is_plain(batches: Any) -> bool:
    """Tell whether they are put together by torch's own BatchSampler, or by torchdata's, which keeps its state."""
    kind = type(batches)
    return kind is BatchSampler or (kind.__name__ == "BatchSampler" and kind.__module__.startswith(_STATEFUL))
