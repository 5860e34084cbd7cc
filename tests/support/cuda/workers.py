"""Workers of torch's DataLoader, and its thread that pins, on a machine's clock.

The loader is torch's own, from its queues down to the order in which batches come. What is played is who works at its
ends: a worker is a moment until which it is at work, and so is the thread. What they make is made at once, as soon as
they are asked to. Nothing here starts a process or a thread, so that the project's records of workers are not played.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from multiprocessing.context import BaseContext
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import _utils
from torch.utils.data._utils import worker as torch_worker
from torch.utils.data.dataloader import _DatasetKind

from .machine import INPUT, Machine

FIRST_PID = 1 << 23
"""Above what Linux gives: no process has such a number."""


class Batches:
    """A queue of what will be there at a moment, and who takes something out waits for it; or one of what a worker
    shall make, who is told at once."""

    worker: Worker | None = None

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.coming: list[tuple[int, int, Any]] = []
        self._number = count()

    def put(self, item: Any, ready_ns: int | None = None) -> None:
        if self.worker is not None:
            self.worker.receives(item)
            return
        heappush(self.coming, (self.machine.now_ns if ready_ns is None else ready_ns, next(self._number), item))

    def get(self, timeout: float | None = None) -> Any:
        clock = self.machine.clock
        begin = clock.now_ns
        until = begin + round(1e9 * timeout) if timeout is not None else None
        ready = self.coming[0][0] if self.coming else until
        assert ready is not None, "nobody will ever put anything there"
        clock.wait_until(ready if until is None else min(ready, until))
        self.machine.spans.append((INPUT, begin, clock.now_ns))
        if not self.coming or self.coming[0][0] > clock.now_ns:
            raise queue.Empty
        return heappop(self.coming)[2]

    def qsize(self) -> int:
        return sum(ready <= self.machine.now_ns for ready, *_ in self.coming)

    def cancel_join_thread(self) -> None:
        pass

    def close(self) -> None:
        pass


class Worker:
    """In the place of a worker process: makes a batch when it has made those that it was asked for before
    (torch/utils/data/_utils/worker.py, `_worker_loop`)."""

    daemon = True

    def __init__(self, machine: Machine, args: tuple[Any, ...]) -> None:
        kind, holder, self._orders, self._results, _, auto_collation, collate, drop_last, seed, init, *rest = args
        self._machine = machine
        self.number, workers = rest[0], rest[1]
        self.pid = FIRST_PID + self.number
        self._info = torch_worker.WorkerInfo(id=self.number, num_workers=workers, seed=seed, dataset=holder[0])
        self._kind = kind
        self._make = lambda: _DatasetKind.create_fetcher(kind, holder[0], auto_collation, collate, drop_last)
        self._init = init
        self._free_ns = 0

    def start(self) -> None:
        self._orders.worker = self
        self._within(lambda: None if self._init is None else self._init(self.number))
        self._fetcher = self._within(self._make)

    def receives(self, order: Any) -> None:
        if order is None:
            return
        if isinstance(order, torch_worker._ResumeIteration):
            self._fetcher = self._within(self._make)
            self._results.put((order, None), self._free_ns)
            return
        index, indices = order
        self._results.put((index, self._within(lambda: self._fetched(indices))), self._free_ns)

    def is_alive(self) -> bool:
        return True

    def join(self, timeout: float | None = None) -> None:
        self.is_alive = lambda: False  # type: ignore[method-assign]

    def _fetched(self, indices: Any) -> Any:
        try:
            return self._fetcher.fetch(indices)
        except StopIteration:
            if self._kind == _DatasetKind.Iterable:
                return torch_worker._IterableDatasetStopIteration(self.number)
            return ExceptionWrapper(where=f"in DataLoader worker process {self.number}")
        except Exception:
            return ExceptionWrapper(where=f"in DataLoader worker process {self.number}")

    def _within(self, call: Callable[[], Any]) -> Any:
        """Call something in this process, when that is free."""
        torch_worker._worker_info = self._info
        try:
            made, self._free_ns = self._machine.elsewhere(call, self._free_ns)
        finally:
            torch_worker._worker_info = None
        return made


class Workers(BaseContext):
    """The `multiprocessing_context` of a loader whose workers are played."""

    _name = "fork"

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def Queue(self, maxsize: int = 0) -> Any:  # noqa: N802
        return Batches(self._machine)

    def Event(self) -> Any:  # noqa: N802
        return threading.Event()

    def Process(self, target: object, args: tuple[Any, ...]) -> Any:  # noqa: N802
        return Worker(self._machine, args)


class Pinned(queue.Queue[Any]):
    """The queue behind the thread that pins; where that is a real one, an ordinary queue."""

    batches: Batches | None = None
    thread: PinThread | None = None

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if self.batches is None or self.thread is None:
            return super().get(block, timeout)
        if not self.batches.coming:
            self.thread.pins_next()
        return self.batches.get(timeout)

    def qsize(self) -> int:
        if self.batches is None or self.thread is None:
            return super().qsize()
        while self.thread.has_begun():
            self.thread.pins_next()
        return self.batches.qsize()


class PinThread:
    """In the place of the thread that pins: one batch after another, in the order in which they are made, for the
    device that was current when the iterator was made, which gets a context thereby (torch/utils/data/_utils/
    pin_memory.py, `_pin_memory_loop`)."""

    daemon = True

    def __init__(self, made: Batches, pinned: Pinned, index: int, done: threading.Event, device: str | None) -> None:
        self._made, self._done, self._device = made, done, device
        self._index = index
        self._machine = made.machine
        self._batches = pinned.batches = Batches(self._machine)
        pinned.thread = self
        self._free_ns = 0

    def start(self) -> None:
        _, self._free_ns = self._machine.elsewhere(self._machine.of(self._index).touch, self._free_ns)

    def is_alive(self) -> bool:
        return not self._done.is_set()

    def join(self) -> None:
        pass

    def has_begun(self) -> bool:
        """Whether there is a batch that it has begun with by now."""
        return bool(self._made.coming) and self._made.coming[0][0] <= self._machine.now_ns

    def pins_next(self) -> None:
        if not self._made.coming:
            return
        ready, _, (index, data) = heappop(self._made.coming)
        if not isinstance(data, ExceptionWrapper):
            data, self._free_ns = self._machine.elsewhere(
                lambda: _utils.pin_memory.pin_memory(data, self._device), max(ready, self._free_ns)
            )
        self._batches.put((index, data), max(ready, self._free_ns))


def thread(*args: Any, target: Any = None, **kwargs: Any) -> Any:
    """In the place of `threading.Thread` within torch's loader: real where its workers are."""
    given = kwargs.get("args", ())
    if target is _utils.pin_memory._pin_memory_loop and isinstance(given[0], Batches):
        return PinThread(*given)
    return threading.Thread(*args, target=target, **kwargs)
