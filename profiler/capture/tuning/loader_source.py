"""The batches of a DataLoader that was made for the tuner, and how workers behind an iterator rest and end."""

from __future__ import annotations

import contextlib
import signal
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from torch._C import _remove_worker_pids
from torch.utils.data import DataLoader

from ...record.tuning import LoaderSettings
from ..hooks.samples import samples_of

HANDED_OVER_S = 0.01
"""How long workers are left alone once all batches are made: one counts as made before it is pickled."""
CLOSE_REST_S = 2.0
"""How long workers may take to finish what they make, before they are ended without being asked."""


class LoaderSource:
    """The batches of one clone. See `sources.BatchSource`."""

    def __init__(self, loader: DataLoader[Any], settings: LoaderSettings, indices: Iterator[Any] | None = None) -> None:
        """`indices`: what its batches are made of, where the dataset has a sampler; without an end."""
        self._loader = loader
        self._drawn: deque[int] = deque()
        """Samples of the batches ordered and not handed over, where that is known beforehand."""
        if indices is not None:
            # The pass never ends: what an epoch's beginning costs is measured apart.
            name = "batch_sampler" if loader._auto_collation else "sampler"
            drawn = self._drawn.append if settings.in_order else None
            loader.__dict__[name] = Shared(indices, getattr(loader, name), drawn)
        self._iterator = self._begin()

    @property
    def pids(self) -> list[int]:
        return [pid for w in self._workers() if (pid := w.pid) is not None]

    def next(self) -> tuple[Any, int | None]:
        batch = next(self._iterator)
        if self._drawn:
            return batch, self._drawn.popleft()
        return batch, samples_of(batch)

    def restart(self) -> None:
        if self._loader.persistent_workers and self._workers():
            self._drawn.clear()
            self._iterator._reset(self._loader)
            return
        self._end()
        self._drawn.clear()
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
                return f"worker {worker.pid} was ended by signal: {_signal(-code)}"
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


def endless(sampler: Any) -> Iterator[Any]:
    """A sampler that begins anew where it ends."""
    some = True
    while some:
        some = False
        for each in sampler:
            some = True
            yield each


class Shared:
    """A sampler that goes on with what other loaders draw from too."""

    def __init__(self, indices: Iterator[Any], sampler: Any, drawn: Callable[[int], object] | None) -> None:
        self._indices = indices
        self._sampler = sampler
        self._drawn = drawn

    def __iter__(self) -> Iterator[Any]:
        for each in self._indices:
            if self._drawn is not None:
                self._drawn(len(each) if isinstance(each, list | tuple) else 1)
            yield each

    def __len__(self) -> int:
        return len(self._sampler)


def _signal(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return str(number)
