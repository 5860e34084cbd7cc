"""An accelerator whose engines are numbers: the moment at which each queue becomes empty.

No thread and no drift: queuing work computes when it will run, and only waits pass real time. The result is an
exact ground truth (`spans`) beside what events show. It emulates the device, not the host: loaders, the
training loop and its launches take the time they take.

Modelled: a computing stream and side streams, events, a bounded launch queue that blocks the host, one copy
engine (host to device), pinned and pageable copies (a pageable one first waits for its stream, as CUDA
documents), a memory capacity that raises when exceeded, a caching allocator, and conditions under which all
of it takes longer (`conditions.py`).
"""

from __future__ import annotations

import time
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch

from ..errors import DeviceOutOfMemory
from .conditions import Conditions
from .protocol import ARRIVAL_NS, Copy, Device, Event, Stream

if TYPE_CHECKING:
    from .profiles import Accelerator

SPIN_NS = 60_000
"""Sleeping overshoots by 50 to 100 µs; the last stretch of a wait is spun instead."""
COMPUTE, COPY = 1, 2
"""As `record.schema.SpanKind`."""

SpanSink = Callable[[int, int, int, int, int, int], object]
"""Called with (device, stream, what, begin_ns, end_ns, amount_bytes) for everything an engine does."""


class Clock:
    """CLOCK_MONOTONIC; waits sleep, then spin for the last few tens of microseconds."""

    def now(self) -> int:
        """Tell the time, ns."""
        return time.monotonic_ns()

    def wait_until(self, moment_ns: int) -> None:
        """Block the calling thread until the clock shows at least `moment_ns`."""
        left = moment_ns - time.monotonic_ns()
        if left > SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)
        while time.monotonic_ns() < moment_ns:
            pass


class VirtualClock(Clock):
    """Time that passes only when told to; instant and exact."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now = start_ns

    def now(self) -> int:
        return self._now

    def wait_until(self, moment_ns: int) -> None:
        self._now = max(self._now, moment_ns)

    def advance(self, ns: int) -> None:
        """Let host time pass: work of the training thread."""
        if ns < 0:
            raise ValueError(f"time cannot pass backwards: {ns} ns")
        self._now += ns


@dataclass(frozen=True)
class EmulatedSpec:
    """The numbers of an emulated device."""

    name: str
    title: str
    memory_bytes: int
    pinned_bytes_per_s: float
    pageable_bytes_per_s: float
    copy_latency_ns: int = 10_000
    launch_latency_ns: int = 5_000
    """From the host's call to the earliest start on an idle device."""
    queue_depth: int = 1024
    """Launches in flight before the host blocks."""
    conditions: Conditions | None = None
    """`None`: it works as the numbers say, and its driver tells nothing but utilisation and memory."""
    retry_ns: int = 5_000_000
    """What it costs the host to give all cached memory back to the device, once that has done what is queued."""


class EmulatedEvent:
    __slots__ = ("_clock", "at_ns", "stream")

    def __init__(self, at_ns: int, stream: EmulatedStream, clock: Clock) -> None:
        self.at_ns = at_ns
        self.stream: Stream = stream
        self._clock = clock

    def done(self) -> bool:
        return self._clock.now() >= self.at_ns

    def time_ns(self) -> int:
        return self.at_ns


class EmulatedStream:
    __slots__ = ("after_ns", "empty_ns", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.empty_ns = 0
        """When the last work queued here ends."""
        self.after_ns = 0
        """Nothing queued from now on starts before this: an event of another stream."""


class EmulatedDevice(Device):
    kind = "emulated"
    asynchronous = True
    torch_device = torch.device("cpu")

    def __init__(self, spec: EmulatedSpec, clock: Clock | None = None, profile: Accelerator | None = None) -> None:
        self.spec = spec
        self.name = f"emulated:{spec.name}"
        self.title = f"emulated {spec.title}"
        self.number = 0
        """Among the devices of a run."""
        self.sink: SpanSink | None = None
        """Told of all that the engines do; `None`: nobody is."""
        self.profile = profile
        """Where step times come from; `None` for a device whose work is queued by hand."""
        self.clock: Clock = clock or Clock()
        self.allocated_bytes = 0
        self.peak_bytes = 0
        self._computing = spec.conditions.computing if spec.conditions else 1.0
        self._copying = spec.conditions.copying if spec.conditions else 1.0
        self._working = 0
        """Bytes of the block that the last `allocate` took."""
        self._cached: list[int] = []
        """Bytes of the allocator's free blocks, ascending."""
        self._retries = 0
        self._compute = EmulatedStream(0)
        self._side = EmulatedStream(1)
        self._copy_engine_ns = 0
        self._in_flight: deque[tuple[int, int]] = deque()
        """(end of the last of them, how many launches), oldest first."""
        self._launches = 0
        self._computations = 0

    def now(self) -> int:
        return self.clock.now()

    def compute(self, duration_ns: int, kernels: int = 1, stream: Stream = None) -> None:
        """Queue `kernels` launches that take `duration_ns` together, under the best of conditions.

        Blocks the host while the queue is full.
        """
        on = stream or self._compute
        self._computations += 1
        self._admit(kernels)
        begin = self._start(on)
        end = begin + round(duration_ns * self._computing)
        on.empty_ns = end
        self._in_flight.append((end, kernels))
        self._launches += kernels
        self._tell(on, COMPUTE, begin, end, 0)

    def hold(self, until_ns: int) -> None:
        """Nothing queued on the computing stream from now on starts before this: other devices have to be done."""
        self._compute.after_ns = max(self._compute.after_ns, until_ns)

    def record(self, stream: Stream = None) -> EmulatedEvent:
        on = stream or self._compute
        return EmulatedEvent(self._start(on), on, self.clock)

    def side_stream(self) -> EmulatedStream:
        return self._side

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Copies for real, as the copy into page-locked memory would; the memory is ordinary."""
        return [t.clone() for t in tensors]

    def copy(
        self, tensors: Sequence[torch.Tensor], *, pinned: bool = False, stream: Stream = None
    ) -> tuple[list[torch.Tensor], Copy]:
        on = stream or self._compute
        nbytes = sum(t.nbytes for t in tensors)
        host_begin = self.clock.now()
        before = self.record(on)
        speed = self.spec.pinned_bytes_per_s if pinned else self.spec.pageable_bytes_per_s
        duration = self.spec.copy_latency_ns + round(nbytes * self._copying * 1e9 / speed)
        if pinned:
            self._admit(1)
        else:
            self.clock.wait_until(on.empty_ns)
        begin = max(self._start(on), self._copy_engine_ns)
        end = begin + duration
        on.empty_ns = self._copy_engine_ns = end
        self._tell(on, COPY, begin, end, nbytes)
        if pinned:
            self._in_flight.append((end, 1))
            self._launches += 1
        else:
            self.clock.wait_until(end)
        copy = Copy(
            host_begin,
            self.clock.now(),
            nbytes,
            pinned,
            on is not self._compute,
            before,
            self.record(on),
        )
        return list(tensors), copy

    def wait_for(self, copy: Copy, tensors: Sequence[torch.Tensor]) -> None:
        if isinstance(copy.end, EmulatedEvent):
            self._compute.after_ns = max(self._compute.after_ns, copy.end.at_ns)

    def synchronize(self, then_ns: int = 0) -> None:
        """Wait until everything queued is done. `then_ns`: the call keeps the host for so long after that, as one does
        that goes on with what it has read."""
        self._run_dry()
        if then_ns:
            self.clock.wait_until(self.clock.now() + then_ns)

    def settle(self, mark: Event, limit_ns: int) -> None:
        self.clock.wait_until(min(self.clock.now() + limit_ns, mark.time_ns()))

    def arrival_ns(self) -> int:
        return ARRIVAL_NS

    def operations(self) -> int:
        return self._computations

    def require_memory(self, nbytes: int) -> None:
        """Hold `nbytes` from now on, instead of what was held before.

        Raises:
            DeviceOutOfMemory: the device has less.
        """
        self._must_hold(nbytes)
        self.allocated_bytes = nbytes
        self._peak()

    def allocate(self, nbytes: int) -> None:
        """Take one block for the work of a step, on top of `require_memory`; the last one taken goes to the cache.

        As CUDA's caching allocator without splitting blocks: the smallest cached block that is large enough, else a new
        one. Where the device has no room for that, the host waits for everything queued, gives all cached blocks back,
        which costs `EmulatedSpec.retry_ns`, and counts a retry. Steps that need the same never do.

        Raises:
            DeviceOutOfMemory: the device has less.
        """
        self._must_hold(self.allocated_bytes + nbytes)
        if self._working:
            insort(self._cached, self._working)
            self._working = 0
        fitting = bisect_left(self._cached, nbytes)
        if fitting < len(self._cached):
            self._working = self._cached.pop(fitting)
            return
        if self._held() + nbytes > self.spec.memory_bytes:
            self._run_dry()
            self.clock.wait_until(self.clock.now() + self.spec.retry_ns)
            self._cached.clear()
            self._retries += 1
        self._working = nbytes
        self._peak()

    def allocation_retries(self) -> int | None:
        return self._retries

    def memory_used(self) -> int | None:
        return self._held()

    def describe(self) -> dict[str, Any]:
        conditions = self.spec.conditions
        told = {} if conditions is None else {"conditions": asdict(conditions)}
        return told | super().describe() | {"memory_bytes": self.spec.memory_bytes}

    def _held(self) -> int:
        """Bytes taken from the device, those cached included."""
        return self.allocated_bytes + self._working + sum(self._cached)

    def _peak(self) -> None:
        self.peak_bytes = max(self.peak_bytes, self._held())

    def _must_hold(self, nbytes: int) -> None:
        if nbytes > self.spec.memory_bytes:
            raise DeviceOutOfMemory(
                f"{self.title} has {self.spec.memory_bytes / 1e9:.1f} GB; this batch needs {nbytes / 1e9:.1f} GB. "
                "Choose a smaller batch size."
            )

    def _run_dry(self) -> None:
        """Until everything queued is done."""
        self.clock.wait_until(max(self._compute.empty_ns, self._side.empty_ns))

    def _start(self, on: EmulatedStream) -> int:
        """When work queued on a stream now would start."""
        return max(self.clock.now() + self.spec.launch_latency_ns, on.empty_ns, on.after_ns)

    def _admit(self, launches: int) -> None:
        """Make room in the launch queue; the host waits for the oldest work as CUDA makes it."""
        queue = self._in_flight
        now = self.clock.now()
        while queue and queue[0][0] <= now:
            self._launches -= queue.popleft()[1]
        while queue and self._launches + launches > self.spec.queue_depth:
            end, count = queue.popleft()
            self._launches -= count
            self.clock.wait_until(end)

    def _tell(self, on: EmulatedStream, what: int, begin: int, end: int, amount: int) -> None:
        if self.sink is not None:
            self.sink(self.number, on.number, what, begin, end, amount)
