"""One device: streams that work in order, engines, a clock of its own, what it answers and when it fails.

Everything is known when it is queued: work starts when the host's call has arrived, what was queued before in its
stream is done, what the stream was told to wait for has come, and an engine is free. So a device is a number or two
for each stream, and a list of what it did, which is the truth that reports are held against.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clock import MS, US, HostClock
from .memory import Memory
from .refusals import BUSY, NO_MEMORY, cuda_error

if TYPE_CHECKING:
    from .graphs import Capture

KERNEL, H2D, D2H, PEER = "kernel", "h2d", "d2h", "peer"
STREAMS_IN_POOL = 32


@dataclass(frozen=True)
class GpuSpec:
    """What a device is like. The last group has the switches for what no source settles."""

    name: str = "Stand-in"
    memory_bytes: int = 8 * 10**9
    context_bytes: int = 500 * 10**6
    """Taken by this process when it first touches the device."""
    context_ns: int = 150 * MS
    """What making that takes the host."""
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
    peer_bytes_per_s: float = 20e9
    """To another device."""
    copy_latency_ns: int = 2 * US
    queue_depth: int = 1024
    """Kernels, copies and marks that a stream takes before the host has to wait."""
    resolution_ns: int = 500
    """Of an event's stamp: docs, `cudaEventElapsedTime`, "a resolution of around 0.5 microseconds"."""
    drift: float = 0.0
    """How much faster than the host's clock the device's runs."""
    answer_late_ns: int = 0
    """How long after an event was reached the driver says so (WSL, idle laptop GPUs)."""
    exclusive_to_another: bool = False
    """Another process holds the device, which is in exclusive mode."""
    used_by_others: int = 0
    """Bytes of the device's memory that other processes hold."""

    one_connection: bool = False
    """`CUDA_DEVICE_MAX_CONNECTIONS=1` (guide, environment variables): all streams share one hardware queue, so that
    work of any stream, a mark too, starts no sooner than what was queued before it has started."""
    negative_elapsed: bool = True
    """Whether `elapsed_time` of a later and an earlier event is a negative number; else it is an error. The text of
    `cudaEventElapsedTime` says neither."""
    capture_forbids_other_streams: bool = True
    """Whether an event recorded into a stream that is not captured, while one is, invalidates the capture. The guide
    ("prohibited and unhandled operations") says so of the legacy stream beside a blocking one only."""


@dataclass(frozen=True)
class Work:
    """Something a device did."""

    stream: int
    what: str
    """KERNEL, H2D, D2H, or PEER: a copy to another device."""
    name: str
    begin_ns: int
    end_ns: int
    queued_ns: int
    """When the host queued it."""


class Engine:
    """A copy engine: one copy at a time, whichever is ready first."""

    def __init__(self) -> None:
        self._busy: list[tuple[int, int]] = []

    def place(self, ready_ns: int, duration_ns: int) -> int:
        """When a copy that is ready then begins."""
        begin = ready_ns
        for other_begin, other_end in self._busy:
            if other_begin - begin >= duration_ns:
                break
            begin = max(begin, other_end)
        insort(self._busy, (begin, begin + duration_ns))
        del self._busy[:-512]
        return begin


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


class Gpu:
    """A device of a machine."""

    def __init__(self, index: int, spec: GpuSpec, clock: HostClock) -> None:
        self.index = index
        self.spec = spec
        self.clock = clock
        self.memory = Memory(self)
        self.has_context = False
        self.works: list[Work] = []
        self.marks: Counter[int] = Counter()
        """Priority of streams → events recorded into them so far."""
        self.queues: dict[int, Queue] = {0: Queue(self, 0)}
        self._handed_out = {0: 0, 1: 0}
        self._copying = {what: Engine() for what in (H2D, D2H, PEER)}
        self._started_ns = 0
        """When the last work that was queued starts, in whatever stream."""
        self.fails_at_ns: int | None = None
        """From when on every call raises `error`."""
        self.error = ""
        self.set_at_ns = self.set_by_ns = 0
        """When the device's clock jumps, and by how much."""
        self.late_ns: dict[int, int] = {}
        """Priority of streams → how much later than it could the device comes to a mark there: others keep it busy."""

    def stream(self, priority: int) -> Queue:
        """A stream of the pool.

        A pool has 32 streams for each priority and hands them out in turn: the 33rd is the first again
        (c10/cuda/CUDAStream.h, "stream pool note").
        """
        self.touch()
        high = int(priority < 0)
        number = 1 + 2 * (self._handed_out[high] % STREAMS_IN_POOL) + high
        self._handed_out[high] += 1
        return self.queues.setdefault(number, Queue(self, number, -high))

    def touch(self) -> None:
        """Whatever makes, records, allocates or launches something on a device makes the context of this process there
        first, which costs time and memory (docs, `cudaSetDevice`: "initialize the runtime state on the primary
        context"; CUDAEvent.h: "it will create a new cuda context, which will consume a lot of memory").

        A device that another process has for itself refuses it (`cudaErrorDevicesUnavailable`), a full one has no room.
        """
        self.check()
        if self.has_context:
            return
        if self.spec.exclusive_to_another:
            raise cuda_error(BUSY)
        if self.spec.context_bytes > self.memory.free:
            raise cuda_error(NO_MEMORY)
        self.has_context = True
        self.clock.pass_ns(self.spec.context_ns)

    def fail(self, what: str, at_ns: int) -> None:
        """From `at_ns` on the device is of no use."""
        self.fails_at_ns, self.error = at_ns, what

    def check(self) -> None:
        """After an assert or an illegal access on the device every call raises, whatever it is about
        (docs, `cudaErrorAssert`, `cudaErrorIllegalAddress`: "any further CUDA work will return the same error"). So it
        does in a forked child, which has no context and can make none (guide, "initialization")."""
        if self.clock.forked:
            raise cuda_error("initialization error")
        if self.fails_at_ns is not None and self.clock.now_ns >= self.fails_at_ns:
            raise cuda_error(self.error)

    def starts(self, queue: Queue, ready_ns: int = 0) -> int:
        """When something queued now starts: once the call has arrived and the stream has nothing before it (guide,
        "streams": operations of one stream run in the order they were issued in)."""
        start = max(self.clock.now_ns + self.spec.arrival_ns, queue.empty_ns, ready_ns)
        return max(start, self._started_ns) if self.spec.one_connection else start

    def launch(self, queue: Queue, name: str, duration_ns: int) -> Work:
        """Queue a kernel. Kernels of different streams run side by side."""
        self._admit(queue)
        return self._work(queue, KERNEL, name, self.starts(queue), duration_ns)

    def meet(self, queue: Queue, name: str, duration_ns: int, others_ns: int) -> Work:
        """Queue a kernel that waits on the device until others have come, and then takes so long."""
        self._admit(queue)
        begin = self.starts(queue)
        return self._work(queue, KERNEL, name, begin, max(begin, others_ns) + duration_ns - begin)

    def follow(self, queue: Queue, name: str, duration_ns: int) -> Work:
        """A kernel of a graph: queued with the others of it, in one call."""
        return self._work(queue, KERNEL, name, self.starts(queue), duration_ns)

    def copy(self, queue: Queue, what: str, name: str, duration_ns: int) -> Work:
        """Queue a copy, which runs on the engine of its direction, beside kernels of other streams (guide,
        "overlapping data transfer and kernel execution")."""
        self._admit(queue)
        begin = self._copying[what].place(self.starts(queue), duration_ns)
        return self._work(queue, what, name, begin, duration_ns)

    def mark(self, queue: Queue) -> int:
        """Queue a mark; when the device comes to it: at the end of what the stream works on, or when the mark has
        arrived on an idle stream (docs, `cudaEventRecord`: it captures "the contents of `stream` at the time of this
        call", and "takes place asynchronously")."""
        self._admit(queue)
        self.marks[queue.priority] += 1
        at = max(self.starts(queue), self.clock.now_ns + self.late_ns.get(queue.priority, 0))
        queue.empty_ns = self._started_ns = at
        queue.ends.append(at)
        return at

    def copy_ns(self, nbytes: int, pinned: bool) -> int:
        spec = self.spec
        return spec.copy_latency_ns + round(
            nbytes * 1e9 / (spec.pinned_bytes_per_s if pinned else spec.pageable_bytes_per_s)
        )

    def peer_ns(self, nbytes: int) -> int:
        return self.spec.copy_latency_ns + round(nbytes * 1e9 / self.spec.peer_bytes_per_s)

    def stamp(self, host_ns: int) -> int:
        """What the device's clock showed: it drifts from the host's, and tells its time in steps."""
        jumped = self.set_by_ns if host_ns >= self.set_at_ns else 0
        shown = host_ns + round((host_ns - self.clock.began_ns) * self.spec.drift) + jumped
        return shown // self.spec.resolution_ns * self.spec.resolution_ns

    def known_ns(self, at_ns: int) -> int:
        """When the driver tells that the device has come to something."""
        return at_ns + self.spec.answer_late_ns

    def empty_ns(self) -> int:
        """When everything queued so far is done."""
        return max(queue.empty_ns for queue in self.queues.values())

    def _admit(self, queue: Queue) -> None:
        """A stream takes so many entries; then the host waits for the oldest (measured: about a thousand launches)."""
        self.clock.pass_ns(self.spec.launch_ns)
        ends = queue.ends
        while ends and ends[0] <= self.clock.now_ns:
            ends.popleft()
        if len(ends) >= self.spec.queue_depth:
            self.clock.wait_until(ends.popleft())

    def _work(self, queue: Queue, what: str, name: str, begin_ns: int, duration_ns: int) -> Work:
        work = Work(queue.number, what, name, begin_ns, begin_ns + duration_ns, self.clock.now_ns)
        queue.empty_ns = work.end_ns
        queue.ends.append(work.end_ns)
        self._started_ns = begin_ns
        self.works.append(work)
        return work
