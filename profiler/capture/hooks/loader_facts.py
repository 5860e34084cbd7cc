"""What a loader that trains was set to, as far as a report needs it.

Which loaders go over the same data: a program may make its validation loader anew for each pass, or its data set. How
many batches of a loader are ready: a look into the queue of torch's, or what a program says of its own.
"""

from __future__ import annotations

import gc
import multiprocessing
import multiprocessing.process
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from types import GeneratorType
from typing import Any

from torch.utils.data import DataLoader, dataloader

from ...record.schema import NOT_MEASURED, LoaderFlag
from ...record.stacks import Call
from .parts import fields_of, parts_of
from .switch import hand_on, ours

MOST = 1000
"""Data sets that are remembered."""
LEVELS, MOST_HELD = 3, 256
"""Levels of what lies within each other, and things of each, that are searched for workers."""
_LOADERS = DataLoader, dataloader._BaseDataLoaderIter
_OF_PROCESSES = "process.BaseProcess", "pool.Pool", "queues.Queue", "queues.SimpleQueue"
_PROCESSES = {"concurrent.futures.process.ProcessPoolExecutor", *(f"multiprocessing.{name}" for name in _OF_PROCESSES)}
"""By their names: to import what a program does not use would change it."""


class DataSets:
    """Numbers of the data sets seen, from 1."""

    def __init__(self) -> None:
        self._seen: list[_Seen] = []

    def number_of(self, data: Any) -> int:
        """The number of a data set: that of an earlier one if it is the same object, or has the same fingerprint (as
        those of `datasets`), or looks the same and the earlier one is gone. 0: not known."""
        one = _Seen(data, len(self._seen) + 1)
        for seen in self._seen:
            if seen.goes_on_as(one):
                seen.reference = one.reference
                return seen.number
        if len(self._seen) >= MOST:
            return 0
        self._seen.append(one)
        return one.number


def reference_to(data: Any) -> Callable[[], Any]:
    """Gives the data set as long as something else keeps it, and `None` from then on; always `None` of a list, say:
    there is no telling whether it is still there without keeping it."""
    try:
        return weakref.ref(data)
    except TypeError:
        return _gone


def own_workers(*held: Any) -> int | None:
    """Worker processes that a loader is set to which lies in a data set, or in what iterates over it; 0 where other
    processes work for it, `None` where none do. What lies there is looked at, nothing of it is called."""
    # Without children of this process there are none, whatever it holds.
    for _ in range(LEVELS if multiprocessing.process._children else 0):  # type: ignore[attr-defined]
        below: list[Any] = []
        for each in held:
            kind, fields = type(each), fields_of(each)
            set_to = fields.get("num_workers", fields.get("_num_workers", 0)) if issubclass(kind, _LOADERS) else 0
            if set_to or _PROCESSES & {f"{owner.__module__}.{owner.__name__}" for owner in kind.__mro__}:
                return int(set_to)
            # Of a generator what its variables hold, and what it loops over.
            inside = gc.get_referents(each) if kind is GeneratorType else parts_of(each, MOST_HELD)
            below += fields.values() if inside is None else inside
        held = tuple(below[:MOST_HELD])
    return None


class _Seen:
    """What is remembered of a data set."""

    __slots__ = ("_fingerprint", "_looks", "number", "reference")

    def __init__(self, data: Any, number: int) -> None:
        self.number = number
        self.reference = reference_to(data)
        # As plain attributes: nothing of the data set's own is to run for this.
        told = getattr(data, "__dict__", {}).get("_fingerprint")
        self._fingerprint = told if isinstance(told, str) else None
        self._looks = type(data), _length(data)
        """Its kind, and how many samples it has."""

    def goes_on_as(self, later: _Seen) -> bool:
        mine = self.reference()
        if mine is not None:
            return mine is later.reference() or (
                self._fingerprint is not None and self._fingerprint == later._fingerprint
            )
        return self._looks == later._looks


def _length(data: Any) -> int | None:
    """Of a data set with samples by number, which its samplers ask for as well."""
    with ours():
        return len(data) if hasattr(type(data), "__getitem__") else None
    return None


def _gone() -> None:
    return None


@dataclass(frozen=True)
class LoaderFacts:
    """A training loader's settings."""

    workers: int
    """0: batches are made in the training itself."""
    prefetch: int | None
    """Batches each worker prepares ahead; `None` without workers."""
    pin_memory: bool
    persistent_workers: bool
    iterable: bool = False
    """The dataset is iterated over."""
    out_of_order: bool = False
    starts_python: bool = False
    """Workers are new Python processes, not forks."""
    made: tuple[Call, ...] = ()
    """The calls in which the program made the loader, the outermost first; none where that was not seen."""
    data: Callable[[], Any] = field(default=lambda: None, compare=False)
    """Gives its data set, `None` once that is gone."""
    stream: Callable[[], Any] = field(default=lambda: None, compare=False)
    """Gives what asks the data set for samples in the training's process, `None` where workers do."""

    @property
    def flags(self) -> int:
        own = None if self.workers else own_workers(self.data(), self.stream())
        return (
            LoaderFlag.PIN_MEMORY * self.pin_memory
            | LoaderFlag.PERSISTENT_WORKERS * self.persistent_workers
            | LoaderFlag.ITERABLE * self.iterable
            | LoaderFlag.OUT_OF_ORDER * self.out_of_order
            | LoaderFlag.STARTS_PYTHON * self.starts_python
            | (0 if own is None else LoaderFlag.OWN_WORKERS | LoaderFlag.INNER_WORKER * own)
        )


def starts_python(method: str | None) -> bool:
    """Whether processes that multiprocessing starts by this method are new Pythons; `None` is its default."""
    # To ask for the default otherwise would settle it: the program could not choose any longer.
    method = method or multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return method != "fork"


class WorkerQueue:
    """Finished batches of a `_MultiProcessingDataLoaderIter` that wait: received out of order, or not yet received.

    Asking takes a quarter of a microsecond and no system call. A batch counts as soon as its worker has handed it to
    the queue, before it is pickled.
    """

    def __init__(self, iterator: Any) -> None:
        self.capacity = int(iterator._num_workers * iterator._prefetch_factor)
        # Not held: the workers of an iterator end with it.
        self._iterator = weakref.ref(iterator)
        self.ready()

    def ready(self) -> int:
        iterator = self._iterator()
        try:
            # Only what lies there counts two items; a worker at its end leaves entries of one behind.
            early = sum(len(task) == 2 for task in iterator._task_info.values())  # type: ignore[union-attr]
            return int(early + iterator._data_queue.qsize())  # type: ignore[union-attr]
        except Exception as error:
            hand_on(error)
            return NOT_MEASURED


def queue_of(iterator: Any) -> WorkerQueue | None:
    """The queue of an iterator; `None` where it has no workers or looks unfamiliar."""
    if not getattr(iterator, "_num_workers", 0):
        return None
    with ours():
        return WorkerQueue(iterator)
    return None


class ToldQueue:
    """What a program says of its own loader: `whyidle.watch(…, ready=…, capacity=…)`."""

    def __init__(self, ready: Callable[[], int], capacity: int | None) -> None:
        self.capacity = NOT_MEASURED if capacity is None else capacity
        self._ready = ready

    def ready(self) -> int:
        try:
            return int(self._ready())
        except Exception as error:
            hand_on(error)
            return NOT_MEASURED
