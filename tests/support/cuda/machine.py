"""A host and its devices on one clock: what the calls of torch and of its dispatcher do to them.

Everything is known when it is queued: work starts when the host's call has arrived, what was queued before in its
stream is done, what the stream was told to wait for has come, and the engine of a copy is free. So a device is a number
or two for each stream, and a list of what it did, which is the truth that reports are held against.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .clock import MS, US, HostClock

if TYPE_CHECKING:
    from .operations import Backward

CAPTURING = "operation not permitted when stream is capturing"
CAPTURED_EVENT = "operation not permitted on an event last recorded in a capturing stream"
KERNEL, H2D, D2H = "kernel", "h2d", "d2h"
HOST, INPUT, COPY, SYNC, BOUNDARY = "host", "input", "copy", "sync", "boundary"
STREAMS_IN_POOL = 32
MALLOC_NS, MALLOC_BYTES = 100 * US, 512


class NotPlayed(BaseException):
    """The program under test used something of torch.cuda that the stand-in has no rule for.

    No `Exception`: neither the program nor a hook shall take it for an error of CUDA's and go on.
    """


def cuda_error(what: str) -> torch.AcceleratorError:
    return torch.AcceleratorError(f"CUDA error: {what}\nCUDA kernel errors might be asynchronously reported.")


def not_played(name: str) -> NoReturn:
    raise NotPlayed(f"the stand-in does not play {name}")


@dataclass(frozen=True)
class GpuSpec:
    """What a device is like."""

    memory_bytes: int = 8 * 10**9
    context_bytes: int = 500 * 10**6
    """Taken by this process when it first touches the device."""
    context_ns: int = 150 * MS
    launch_ns: int = 3 * US
    """What queueing a kernel, a copy or a mark takes the host."""
    call_ns: int = 500
    """What any other call of the driver takes the host."""
    arrival_ns: int = 5 * US
    """From a call of the host to an idle device."""
    kernel_ns: int = 5 * US
    """A kernel that nobody gave another duration."""
    pinned_bytes_per_s: float = 25e9
    pageable_bytes_per_s: float = 6e9
    copy_latency_ns: int = 2 * US
    queue_depth: int = 1024
    """Kernels, copies and marks that a stream takes before the host has to wait."""
    resolution_ns: int = 500
    """Steps of an event's stamp: docs, `cudaEventElapsedTime`, "a resolution of around 0.5 microseconds"."""
    drift: float = 0.0
    """How much faster than the host's clock the device's runs."""
    answer_late_ns: int = 0
    """How long after an event was reached the driver says so (WSL, idle laptop GPUs)."""
    used_by_others: int = 0
    """Bytes of the device's memory that other processes hold."""


@dataclass(frozen=True)
class Work:
    """Something a device did."""

    stream: int
    what: str
    name: str
    begin_ns: int
    end_ns: int
    queued_ns: int
    """When the host queued it."""


class Capture:
    """What is captured from a stream: (name, how long it runs, what it computes)."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, int, Callable[[], object]]] = []
        self.invalid = False


@dataclass(eq=False)
class Queue:
    """A stream's work."""

    gpu: Gpu
    number: int
    priority: int = 0
    empty_ns: int = 0
    """When everything queued so far is done, and everything waited for has come."""
    capture: Capture | None = None
    ends: deque[int] = field(default_factory=deque)

    @property
    def handle(self) -> int:
        """The address of the stream; 0 for the default stream, as torch's default stream is the legacy one."""
        return 0 if self.number == 0 else (self.gpu.index + 1) << 32 | self.number


class Block:
    """Memory of one tensor's storage; it goes to the cache with that."""

    def __init__(self, gpu: Gpu, nbytes: int) -> None:
        self.gpu = gpu
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.gpu.allocated -= self.nbytes
        insort(self.gpu.cached, self.nbytes)


class Gpu:
    """A device of a machine, and torch's caching allocator on it, without splitting blocks."""

    def __init__(self, index: int, spec: GpuSpec, clock: HostClock) -> None:
        self.index, self.spec, self.clock = index, spec, clock
        self.has_context = False
        self.works: list[Work] = []
        self.marks: Counter[int] = Counter()
        """Priority of streams → events recorded into them so far."""
        self.queues: dict[int, Queue] = {0: Queue(self, 0)}
        self._handed_out = [0, 0]
        self._copied_ns = {H2D: 0, D2H: 0}
        """Until when the engine of each direction is at work."""
        self.fails_at_ns: int | None = None
        """From when on every call raises."""
        self.set_at_ns = self.set_by_ns = 0
        """When the device's clock jumps, and by how much."""
        self.late_ns: dict[int, int] = {}
        """Priority of streams → how much later than it could the device comes to a mark there: others keep it busy."""
        self.cached: list[int] = []
        self.allocated = self.peak = self.retries = self.ooms = 0

    def stream(self, priority: int) -> Queue:
        """A stream of the pool, which hands out 32 of each priority in turn (c10/cuda/CUDAStream.h, "stream pool")."""
        self.touch()
        high = int(priority < 0)
        number = 1 + 2 * (self._handed_out[high] % STREAMS_IN_POOL) + high
        self._handed_out[high] += 1
        return self.queues.setdefault(number, Queue(self, number, -high))

    def touch(self) -> None:
        """Whatever makes, records, allocates or launches something on a device makes the context of this process there
        first, which costs time and memory (docs, `cudaSetDevice`); a full device has no room for it."""
        self.check()
        if self.has_context:
            return
        if self.spec.context_bytes > self.free:
            raise cuda_error("out of memory")
        self.has_context = True
        self.clock.pass_ns(self.spec.context_ns)

    def check(self) -> None:
        """After an assert on the device every call raises, whatever it is about (docs, `cudaErrorAssert`: "any further
        CUDA work will return the same error"). So it does in a forked child (guide, "initialization")."""
        if self.clock.forked:
            raise cuda_error("initialization error")
        if self.fails_at_ns is not None and self.clock.now_ns >= self.fails_at_ns:
            raise cuda_error("device-side assert triggered")

    def launch(self, queue: Queue, name: str, duration_ns: int, what: str = KERNEL) -> Work:
        """Queue a kernel, or a copy, which runs on the engine of its direction beside kernels of other streams."""
        self._admit(queue)
        return self.follow(queue, name, duration_ns, what)

    def follow(self, queue: Queue, name: str, duration_ns: int, what: str = KERNEL) -> Work:
        """Work of one stream runs in the order it was queued in; that of a graph is queued in one call."""
        begin = max(self.clock.now_ns + self.spec.arrival_ns, queue.empty_ns, self._copied_ns.get(what, 0))
        work = Work(queue.number, what, name, begin, begin + duration_ns, self.clock.now_ns)
        queue.empty_ns = work.end_ns
        if what in self._copied_ns:
            self._copied_ns[what] = work.end_ns
        queue.ends.append(work.end_ns)
        self.works.append(work)
        return work

    def mark(self, queue: Queue) -> int:
        """Queue a mark; when the device comes to it: at the end of what the stream works on, or when the mark has
        arrived on an idle stream (docs, `cudaEventRecord`)."""
        self._admit(queue)
        self.marks[queue.priority] += 1
        now = self.clock.now_ns
        at = max(now + self.spec.arrival_ns, queue.empty_ns, now + self.late_ns.get(queue.priority, 0))
        queue.empty_ns = at
        queue.ends.append(at)
        return at

    def copy_ns(self, nbytes: int, pinned: bool) -> int:
        speed = self.spec.pinned_bytes_per_s if pinned else self.spec.pageable_bytes_per_s
        return self.spec.copy_latency_ns + round(nbytes * 1e9 / speed)

    def stamp(self, host_ns: int) -> int:
        """What the device's clock showed: it drifts from the host's, and tells its time in steps."""
        jumped = self.set_by_ns if host_ns >= self.set_at_ns else 0
        shown = host_ns + round((host_ns - self.clock.began_ns) * self.spec.drift) + jumped
        return shown // self.spec.resolution_ns * self.spec.resolution_ns

    def known(self, at_ns: int) -> bool:
        """Whether the driver tells by now that the device has come to something; asking takes a moment."""
        self.check()
        self.clock.pass_ns(self.spec.call_ns)
        return self.clock.now_ns >= at_ns + self.spec.answer_late_ns

    def empty_ns(self) -> int:
        """When everything queued so far is done."""
        return max(queue.empty_ns for queue in self.queues.values())

    def _admit(self, queue: Queue) -> None:
        """A stream takes so many entries; then the host waits for the oldest."""
        self.clock.pass_ns(self.spec.launch_ns)
        ends = queue.ends
        while ends and ends[0] <= self.clock.now_ns:
            ends.popleft()
        if len(ends) >= self.spec.queue_depth:
            self.clock.wait_until(ends.popleft())

    # Memory

    @property
    def reserved(self) -> int:
        return self.allocated + sum(self.cached)

    @property
    def free(self) -> int:
        held = self.spec.context_bytes if self.has_context else 0
        return self.spec.memory_bytes - self.spec.used_by_others - held - self.reserved

    def take(self, nbytes: int) -> Block:
        """A block for a tensor. Where the device has no room the allocator waits for the device, gives back what it
        keeps, and counts a retry; where that does not help it raises and counts that (CUDACachingAllocator.cpp)."""
        self.touch()
        nbytes = -(-nbytes // MALLOC_BYTES) * MALLOC_BYTES
        fitting = bisect_left(self.cached, nbytes)
        if fitting < len(self.cached) and self.cached[fitting] <= 2 * nbytes:
            nbytes = self.cached.pop(fitting)
        else:
            if nbytes > self.free and self.cached:
                self.retries += 1
                self.clock.wait_until(self.empty_ns())
                self.cached.clear()
            if nbytes > self.free:
                self.ooms += 1
                raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {nbytes / 2**20:.2f} MiB.")
            self.clock.pass_ns(MALLOC_NS)
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)
        return Block(self, nbytes)

    def reset_peak(self) -> None:
        self.peak = self.allocated

    def statistics(self) -> dict[str, Any]:
        """As `torch._C._cuda_memoryStats` nests them."""
        bytes_of = {"allocated": (self.allocated, self.peak), "reserved": (self.reserved, self.reserved)}
        figures = {f"{name}_bytes": {"all": {"current": now, "peak": most}} for name, (now, most) in bytes_of.items()}
        return {"num_alloc_retries": self.retries, "num_ooms": self.ooms} | figures


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
        self.streams_built = self.events_made = 0
        """Python objects made for streams, for events."""
        self.synchronised = 0
        """Calls that waited for a device, a stream or an event."""
        self.backward: Backward | None = None
        """The backward pass under way, or the last one."""
        self._of_thread = _OfThread()
        self._copying = 0

    @property
    def gpu(self) -> Gpu:
        """The first device."""
        return self.gpus[0]

    @property
    def now_ns(self) -> int:
        return self.clock.now_ns

    def host(self, ns: int, what: str = HOST) -> None:
        """The program works on the host for so long; at what, as a part of the report is named."""
        with self.at(what):
            self.clock.pass_ns(ns)

    @contextmanager
    def at(self, what: str) -> Iterator[None]:
        """Whatever the program does in the block is that."""
        begin = self.clock.now_ns
        try:
            yield
        finally:
            self.spans.append((what, begin, self.clock.now_ns))

    @contextmanager
    def copies(self) -> Iterator[None]:
        """The block is a call that copies: a wait in it is part of the copy."""
        self._copying += 1
        try:
            with self.at(COPY):
                yield
        finally:
            self._copying -= 1

    # Which device and which stream: each thread has its own (docs, `cudaSetDevice`; c10/cuda/CUDAStream.h)

    @property
    def device(self) -> int:
        return self._of_thread.device

    def set_device(self, index: int) -> None:
        """Make a device current, and its context (docs, `cudaSetDevice`; c10/cuda/CUDAFunctions.h)."""
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
        """The stream that is current on a device; the default one at first."""
        gpu = self.of(index)
        return self._of_thread.streams.get(gpu.index, gpu.queues[0])

    def set_queue(self, queue: Queue) -> None:
        """Make a stream current on its device, and that device current (torch/csrc/cuda/Module.cpp, `setStream`)."""
        self.maybe_exchange_device(queue.gpu.index)
        self._of_thread.streams[queue.gpu.index] = queue

    # Waiting

    def synchronise(self, gpu: Gpu, until_ns: int) -> None:
        """The host waits until a device has come to something, and hears of it."""
        self.refuse_in_capture()
        gpu.check()
        begin = self.clock.now_ns
        self.clock.pass_ns(gpu.spec.call_ns)
        until = until_ns + gpu.spec.answer_late_ns
        self.clock.wait_until(until if gpu.fails_at_ns is None else min(until, gpu.fails_at_ns))
        self.synchronised += 1
        if not self._copying:
            self.spans.append((SYNC, begin, self.clock.now_ns))
        gpu.check()

    def refuse_in_capture(self) -> None:
        """While a stream is captured, calls that wait, and queries, are errors and spoil the capture, whatever stream
        they are about (guide, "prohibited and unhandled operations"; `cudaErrorStreamCaptureUnsupported`)."""
        if self.capture is not None:
            self.capture.invalid = True
            raise cuda_error(CAPTURING)

    def assert_on_device(self, index: int = -1) -> None:
        """Queue a kernel whose assert fails at its end."""
        queue = self.queue(index)
        queue.gpu.touch()
        queue.gpu.fails_at_ns = queue.gpu.launch(queue, "assert", 0).end_ns

    def touch_for_pinned(self) -> None:
        """Page-locked memory is allocated within a context: that of any device that has one, else the current
        device's is made (torch/cuda/__init__.py, `_primary_context_devices`)."""
        if not any(gpu.has_context for gpu in self.gpus):
            self.of(-1).touch()


_installed: Machine | None = None


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
