"""A host and its devices on one clock: what the calls of torch and of its dispatcher do to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from .clock import HostClock
from .gpu import Gpu, GpuSpec, Queue
from .refusals import ASSERTED, CAPTURING, cuda_error, not_played

if TYPE_CHECKING:
    from .graphs import Capture
    from .operations import Backward
    from .streams import Stream

HOST, INPUT, COPY, SYNC, BOUNDARY = "host", "input", "copy", "sync", "boundary"


class _OfThread(threading.local):
    """The device that is current in a thread, and the stream that is current there on each."""

    def __init__(self) -> None:
        self.device = 0
        self.streams: dict[int, Queue] = {}


class Machine:
    """A host with devices, of a spec each; one ordinary device by default."""

    def __init__(self, *specs: GpuSpec) -> None:
        self.clock = HostClock()
        self.gpus = [Gpu(index, spec, self.clock) for index, spec in enumerate(specs or (GpuSpec(),))]
        self.durations: dict[str, int] = {}
        """Operator (`linear`, `mm`) → how long its kernel runs, ns."""
        self.spans: list[tuple[str, int, int]] = []
        """What the host was at, where that is known: (HOST …, begin, end)."""
        self.capture: Capture | None = None
        self.streams_built = 0
        """Python objects made for streams."""
        self.events_made = 0
        self.allocator = "native"
        self.asked_memory = 0
        self.synchronised = 0
        """Calls that waited for a device, a stream or an event."""
        self.statistics: dict[str, Any] | None = None
        """What the allocator says instead of its figures; the exception it raises."""
        self._of_thread = _OfThread()
        self.backward: Backward | None = None
        """The backward pass under way, or the last one."""
        self._copying = 0
        self.pinning_ns = 0
        """What it takes to copy a tensor into page-locked memory."""

    @property
    def gpu(self) -> Gpu:
        """The first device."""
        return self.gpus[0]

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    def host(self, ns: int, what: str = HOST) -> None:
        """The program works on the host for so long; at what, as a part of the report is named."""
        begin = self.clock.now_ns
        self.clock.pass_ns(ns)
        self.spans.append((what, begin, self.clock.now_ns))

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Whatever the program does in the block is that."""
        begin = self.clock.now_ns
        try:
            yield
        finally:
            self.spans.append((what, begin, self.clock.now_ns))

    def elsewhere(self, call: Callable[[], Any], free_ns: int) -> tuple[Any, int]:
        """Call something in another process or thread, which is free at `free_ns`; what came of it, and when. The
        training's own clock stands still."""
        now, at = self.clock.now_ns, len(self.spans)
        self.clock.now_ns = max(now, free_ns)
        try:
            return call(), self.clock.now_ns
        finally:
            self.clock.now_ns = now
            del self.spans[at:]

    @contextmanager
    def copies(self) -> Iterator[None]:
        """The block is a call that copies: a wait in it is part of the copy."""
        self._copying += 1
        try:
            with self.at(COPY):
                yield
        finally:
            self._copying -= 1

    # Which device and which stream

    @property
    def device(self) -> int:
        """The current device; each thread has its own, the first at its start (docs, `cudaSetDevice`: "for the calling
        host thread")."""
        return self._of_thread.device

    def set_device(self, index: int) -> None:
        """Make a device current, by `torch.cuda.set_device` or by `with torch.cuda.device`: that makes its context
        (docs, `cudaSetDevice`; c10/cuda/CUDAFunctions.h, `ExchangeDevice` "always initializes the CUDA context")."""
        self.of(index).touch()
        self._of_thread.device = index

    def exchange_device(self, index: int) -> int:
        """As `set_device`, unless it is current or negative; the one that was current."""
        before = self.device
        if index >= 0 and index != before:
            self.set_device(index)
        return before

    def maybe_exchange_device(self, index: int) -> int:
        """Make a device current without making its context (CUDAFunctions.h, `MaybeExchangeDevice`)."""
        before = self.device
        if index >= 0:
            self._of_thread.device = index
        return before

    def of(self, index: int) -> Gpu:
        """A device by its index; a negative one is the current device."""
        if index >= len(self.gpus):
            raise cuda_error("invalid device ordinal")
        return self.gpus[self.device if index < 0 else index]

    def queue(self, index: int = -1) -> Queue:
        """The stream that is current on a device, for this thread; the default one at its start (CUDAStream.h,
        `getCurrentCUDAStream`: "thread local")."""
        gpu = self.of(index)
        return self._of_thread.streams.get(gpu.index, gpu.queues[0])

    def set_queue(self, queue: Queue) -> None:
        """Make a stream current on its device, and that device current (c10/cuda, `setCurrentCUDAStream`;
        torch/csrc/cuda/Module.cpp, `setStream`)."""
        self.maybe_exchange_device(queue.gpu.index)
        self._of_thread.streams[queue.gpu.index] = queue

    # Waiting

    def synchronise(self, gpu: Gpu, until_ns: int) -> None:
        """The host waits until a device has come to something, and hears of it."""
        self.refuse_in_capture()
        gpu.check()
        begin = self.clock.now_ns
        self.clock.pass_ns(gpu.spec.call_ns)
        until = gpu.known_ns(until_ns)
        if gpu.fails_at_ns is not None:
            until = min(until, gpu.fails_at_ns)
        self.clock.wait_until(until)
        self.synchronised += 1
        if not self._copying:
            self.spans.append((SYNC, begin, self.clock.now_ns))
        gpu.check()

    def refuse_in_capture(self) -> None:
        """While a stream is captured, calls that wait, and queries, are errors and spoil the capture, whatever stream
        they are about (guide, "prohibited and unhandled operations"; `cudaErrorStreamCaptureUnsupported`; in mode
        `relaxed` only those about captured work)."""
        if self.capture is not None and self.capture.mode != "relaxed":
            self.capture.invalid = True
            raise cuda_error(CAPTURING)

    def wait_in_core(self, waiting: Stream, awaited: Stream) -> None:
        """A stream is told to wait for another as torch's core does it, which no hook on Python's classes sees."""
        waiting._queue.gpu.touch()
        waiting._queue.empty_ns = max(waiting._queue.empty_ns, awaited._queue.empty_ns)

    def assert_on_device(self, index: int = -1, after_ns: int = 0) -> None:
        """Queue a kernel whose assert fails at its end."""
        queue = self.queue(index)
        queue.gpu.touch()
        work = queue.gpu.launch(queue, "assert", after_ns)
        queue.gpu.fail(ASSERTED, work.end_ns)

    def duration(self, gpu: Gpu, name: str) -> int:
        return self.durations.get(name, gpu.spec.kernel_ns)

    # Memory

    def memory_statistics(self, index: int) -> dict[str, Any]:
        self.asked_memory += 1
        told = self.statistics
        if told is not None and "raises" in told:
            raise RuntimeError(told["raises"])
        return self.of(index).memory.statistics() if told is None else told

    def touch_for_pinned(self) -> None:
        """Page-locked memory is allocated within a context: that of any device that has one, else the current
        device's is made (torch/cuda/__init__.py, `_primary_context_devices`: "or a pinned-memory allocation, that runs
        before `set_device`")."""
        if not any(gpu.has_context for gpu in self.gpus):
            self.of(-1).touch()


_installed: Machine | None = None


def install(machine: Machine | None) -> None:
    """Have torch run on this machine; `None`: on none."""
    global _installed
    _installed = machine


def playing() -> bool:
    return _installed is not None


def the() -> Machine:
    """The machine that torch runs on."""
    if _installed is None:
        not_played("a call after the stand-in was taken away")
    return _installed


def index_of(device: torch.device) -> int:
    """Of a CUDA device; the current one where it says none."""
    return the().device if device.index is None else device.index
