"""An NVIDIA GPU through torch.

Events are pooled and only ever queried, never waited for. What torch tells of them is the time between two, as a
float32 of milliseconds. So two things lie between an event and the host's clock:

- A chain (`CudaDevice`). Each stamp is measured from a reference nearby; an event that is read takes the reference's
  place if the two are 0.1 s apart or more. The sum is an integer of nanoseconds. Nothing needs to succeed for that.
- A map (`HostClock`) from that sum to the host's clock, tied down by brackets: events on an idle side stream
  between two stamps of the host. They tell where the host's clock stands and how fast the device's runs. Where the
  side stream is late no bracket succeeds; the map goes on at the last known rate, and knows how far it may be off.

Not yet run on a GPU: written against torch's documentation, tested with a stand-in for torch.cuda.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .protocol import ARRIVAL_NS, Copy, Device, Event, Stream

RESOLUTION_NS = 500
"""Resolution of an event's stamp, ns, as CUDA documents it."""
ASSUMED_DRIFT = 20e-6
"""How far the device's rate may be from the host's where it has not been measured: two ordinary crystals."""
ASSUMED_WANDER = 1e-6
"""How far a measured rate may move afterwards: temperature, and the host's clock being steered."""
MOST_DRIFT = 1e-3
"""No two clocks differ by that much; one of them was set, or stood still."""
BRACKETS = 12
"""The rate is that between two of so many last brackets: a minute."""
BENDS = 64
"""Bends of the map that are kept: events may be read minutes after the device passed them."""
CORRECTION_NS = 250_000_000
"""What a bracket finds wrong is put right over this stretch, at the least, so that no stamp overtakes another."""


@dataclass(frozen=True, slots=True)
class _Bracket:
    """The host's clock stood within `half_ns` of `host_ns` when the device's stood at `device_ns`."""

    device_ns: int
    host_ns: int
    half_ns: int


class HostClock:
    """The host's clock as a function of the device's: continuous, always rising, bent where a bracket corrects it.

    A stamp of long ago is told by the stretch it lies in, so it does not change when a bracket succeeds later.
    """

    def __init__(self, device_ns: int, host_ns: int, half_ns: int) -> None:
        self._brackets = deque([_Bracket(device_ns, host_ns, max(half_ns, RESOLUTION_NS))], BRACKETS)
        """Those that told more than was known without them."""
        self._stretches: deque[tuple[int, int, float]] = deque([(device_ns, host_ns, 0.0)], BENDS)
        """(device's clock where it begins, host's clock there, how much faster than the device's the host's runs)"""
        self._rate = 0.0
        self._rate_doubt = ASSUMED_DRIFT
        self._tied_ns, self._tied_host_ns = device_ns, host_ns
        """Where the last bracket was."""
        self._half_ns = max(half_ns, RESOLUTION_NS)
        """How well the host's clock was known there."""
        self._wrong_ns = 0
        """What that bracket found wrong, and over which stretch it is put right."""
        self._righted_ns = CORRECTION_NS
        self._worst_ns = 0

    def host_ns(self, device_ns: int) -> int:
        # An event from before the oldest stretch is told by that one.
        begin, host, rate = next((s for s in reversed(self._stretches) if s[0] <= device_ns), self._stretches[0])
        since = device_ns - begin
        return host + since + round(since * rate)

    def bracket(self, device_ns: int, host_ns: int, half_ns: int) -> None:
        """At `device_ns` the host's clock stood within `half_ns` of `host_ns`."""
        half_ns = max(half_ns, RESOLUTION_NS)
        expected, doubt = self.host_ns(device_ns), self._doubt_ns(device_ns - self._tied_ns)
        if half_ns > doubt and abs(host_ns - expected) <= half_ns:
            return  # a wide bracket tells nothing that was not known better
        # The truth is within the bracket and within the doubt.
        low, high = max(host_ns - half_ns, expected - doubt), min(host_ns + half_ns, expected + doubt)
        self._brackets.append(_Bracket(device_ns, host_ns, half_ns))
        if low > high:
            low, high = host_ns - half_ns, host_ns + half_ns
            # Drift was not what it was taken to be: what came before tells nothing of the rate from here on.
            self._brackets = deque([*self._brackets][-2:], BRACKETS)
        # How far stamps since the last bracket were off, now that it can be seen.
        self._worst_ns = max(self._worst_ns, self._half_ns, abs(low - expected), abs(high - expected))
        self._fit_rate()
        self._tied_ns, self._tied_host_ns = device_ns, host_ns
        self._half_ns = max((high - low) // 2, RESOLUTION_NS)
        self._wrong_ns = (low + high) // 2 - expected
        self._righted_ns = max(CORRECTION_NS, 4 * abs(self._wrong_ns))
        while self._stretches and self._stretches[-1][0] >= device_ns:
            self._stretches.pop()
        self._stretches.append((device_ns, expected, self._rate + self._wrong_ns / self._righted_ns))
        end = device_ns + self._righted_ns
        self._stretches.append((end, self.host_ns(end), self._rate))

    def uncertainty_ns(self, host_ns: int) -> int:
        """How far any stamp so far may be off, if the host's clock stands at `host_ns` now."""
        return max(self._worst_ns, self._doubt_ns(host_ns - self._tied_host_ns))

    def _doubt_ns(self, age_ns: int) -> int:
        """How far a stamp may be off, so long after the last bracket."""
        age = max(0, age_ns)
        to_right = abs(self._wrong_ns) * max(0.0, 1 - age / self._righted_ns)
        return self._half_ns + round(age * self._rate_doubt + to_right)

    def _fit_rate(self) -> None:
        """Take the slope from one of the kept brackets to the newest, where that tells more than is assumed anyway.

        Both may be off by their halves, in the directions that tilt it most; the pair that this tilts least is taken.
        """
        last = self._brackets[-1]
        others = [each for each in self._brackets if each.device_ns < last.device_ns]
        if not others:
            return
        first = min(others, key=lambda each: (each.half_ns + last.half_ns) / (last.device_ns - each.device_ns))
        apart = last.device_ns - first.device_ns
        rate = (last.host_ns - first.host_ns - apart) / apart
        doubt = (first.half_ns + last.half_ns) / apart + ASSUMED_WANDER
        if abs(rate) > MOST_DRIFT + doubt:
            self._brackets = deque([last], BRACKETS)
            self._rate, self._rate_doubt = 0.0, ASSUMED_DRIFT
        elif doubt < ASSUMED_DRIFT:
            self._rate, self._rate_doubt = rate, doubt


ANCHOR_PERIOD_NS = 5_000_000_000
FIRST_PERIOD_NS = 500_000_000
"""The first brackets come sooner, at doubling distances: the rate is known after seconds instead of half a minute."""
MEMORY_EVERY = 20
"""Memory in use is asked of the allocator every so many steps."""
ANCHOR_TRIES = 10
ANCHOR_LIMIT_NS = 2_000_000
"""Give up on one try when the side stream does not answer within this: it is queued behind other work."""
LINK_NS = 100_000_000
"""Stamps are measured from a reference at most this far away, where there are events: float32 rounds 0.1 s by 4 ns."""
SETTLE_LOOK_S = 0.001
MOST_STREAMS = 64
"""Streams whose objects are kept; a program uses a few."""


def describe_gpu(index: int) -> dict[str, Any]:
    """What run.json says about a GPU; asks for its properties only, so that no context is made on it."""
    properties = torch.cuda.get_device_properties(index)
    uuid = str(getattr(properties, "uuid", "") or "")
    return {
        "kind": "cuda",
        "name": "cuda" if index == 0 else f"cuda:{index}",
        "title": properties.name,
        "count": 1,
        "uuids": [f"GPU-{uuid}"] if uuid else [],
        "memory_bytes": properties.total_memory,
        "cuda": torch.version.cuda,
    }


def _counts_retries() -> bool:
    """Whether torch's own allocator is in use: others report zeros, or nothing at all."""
    try:
        return str(torch.cuda.get_allocator_backend()) == "native"
    except (AttributeError, RuntimeError):
        return False


class CudaEvent:
    __slots__ = ("_device", "event", "number", "stream")

    def __init__(self, device: CudaDevice) -> None:
        self.event = torch.cuda.Event(enable_timing=True)
        self.stream: Stream = None
        self.number = 0
        """Number among those recorded by its device: a later one on the same stream has a higher one."""
        self._device = device

    def done(self) -> bool:
        return bool(self.event.query())

    def time_ns(self) -> int:
        return self._device.host_time_ns(self)


class CudaDevice(Device):
    kind = "cuda"
    asynchronous = True

    def __init__(self, index: int = 0) -> None:
        """Makes a context on this device, unless there is one; the current device stays the program's."""
        self.index = index
        self._facts = describe_gpu(index)
        self.name: str = self._facts["name"]
        self.title: str = self._facts["title"]
        self.torch_device = torch.device("cuda", index)
        self._side = torch.cuda.Stream(index)
        self._clock_stream = torch.cuda.Stream(index, priority=-1)
        self._raw_stream: Callable[[int], int] | None = getattr(
            getattr(torch, "_C", None), "_cuda_getCurrentRawStream", None
        )
        self._streams: dict[int, torch.cuda.Stream] = {}
        """By the driver's handle: to make the object for a stream takes longer than to record an event on it."""
        self._pool: list[CudaEvent] = []
        self._recorded = 0
        self._tries: list[CudaEvent] = []
        """Marks for tries at a bracket."""
        self._arrival_ns = ARRIVAL_NS
        self._late: CudaEvent | None = None
        """A try that the clock stream has not come to yet: a second one behind it would tell nothing."""
        self._operations: Callable[[], int] | None = getattr(
            getattr(getattr(torch, "_C", None), "_autograd", None), "_get_sequence_nr", None
        )
        self._asked = 0
        self._memory_used: int | None = None
        self._memory_asked = 0
        self._retries_told = _counts_retries()
        self._period_ns = FIRST_PERIOD_NS
        # The device's clock counts from here. `_reference_ns` is where it stood at `_reference`.
        self._reference, host_ns, half_ns = self._best_bracket() or self._waited_bracket()
        self._reference_ns = 0
        self._tried_ns = time.monotonic_ns()
        self._host_clock = HostClock(0, host_ns, half_ns)

    now = staticmethod(time.monotonic_ns)

    def record(self, stream: Stream = None) -> CudaEvent:
        event = self._pool.pop() if self._pool else CudaEvent(self)
        on = stream or self._current_stream()
        event.event.record(on)
        event.stream = on
        self._recorded += 1
        event.number = self._recorded
        return event

    def _current_stream(self) -> torch.cuda.Stream:
        if self._raw_stream is None:
            return torch.cuda.current_stream(self.index)
        handle = self._raw_stream(self.index)
        stream = self._streams.get(handle)
        if stream is None:
            if len(self._streams) >= MOST_STREAMS:
                self._streams.clear()
            stream = self._streams[handle] = torch.cuda.current_stream(self.index)
        return stream

    def release(self, event: Event) -> None:
        if isinstance(event, CudaEvent) and event is not self._reference:
            self._pool.append(event)

    def side_stream(self) -> torch.cuda.Stream:
        return self._side

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [t.pin_memory() for t in tensors]

    def copy(
        self, tensors: Sequence[torch.Tensor], *, pinned: bool = False, stream: Stream = None
    ) -> tuple[list[torch.Tensor], Copy]:
        host_begin = time.monotonic_ns()
        on = stream or torch.cuda.current_stream(self.index)
        with torch.cuda.stream(on):
            begin = self.record(on)
            moved = [t.to(self.torch_device, non_blocking=pinned) for t in tensors]
            end = self.record(on)
        nbytes = sum(t.nbytes for t in tensors)
        copy = Copy(host_begin, time.monotonic_ns(), nbytes, pinned, stream is not None, begin, end)
        return moved, copy

    def wait_for(self, copy: Copy, tensors: Sequence[torch.Tensor]) -> None:
        if not isinstance(copy.end, CudaEvent):
            return
        computing = torch.cuda.current_stream(self.index)
        computing.wait_event(copy.end.event)
        for tensor in tensors:
            # The allocator must not reuse the memory while the computing stream still reads it.
            tensor.record_stream(computing)

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.index)

    def memory_used(self) -> int | None:
        # Asking costs tens of microseconds and the figure changes seldom.
        if self._memory_asked % MEMORY_EVERY == 0:
            self._memory_used = int(torch.cuda.memory_reserved(self.index))
        self._memory_asked += 1
        return self._memory_used

    def allocation_retries(self) -> int | None:
        # The nested figures as they are: flattening and sorting all of them, as `memory_stats` does, costs most.
        if not self._retries_told:
            return None
        try:
            return int(torch.cuda.memory_stats_as_nested_dict(self.index)["num_alloc_retries"])
        except (AttributeError, KeyError, RuntimeError):
            self._retries_told = False
            return None

    def describe(self) -> dict[str, Any]:
        return dict(self._facts)

    def captures(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def settle(self, mark: Event, limit_ns: int) -> None:
        """Looks once a millisecond instead of synchronising, which has no limit."""
        until = time.monotonic_ns() + limit_ns
        while not mark.done() and time.monotonic_ns() < until:
            time.sleep(SETTLE_LOOK_S)

    def operations(self) -> int:
        """A number that changes when the training thread has run differentiable operations.

        Autograd numbers them, a thread at a time. A torch that does not tell the number is taken to have run some.
        """
        if self._operations is not None:
            return int(self._operations())
        self._asked += 1
        return self._asked

    def arrival_ns(self) -> int:
        """Of an idle stream's marks by the last bracket; stamps that are compared with the host's are uncertain too."""
        return self._arrival_ns + self._host_clock.uncertainty_ns(time.monotonic_ns())

    def clock_uncertainty_ns(self) -> int | None:
        """How far any stamp of this device so far may be from the host's clock, at most.

        Half of the last bracket, and for the time since: what the measured rate is uncertain by, or 20 ppm where none
        was measured. Earlier times without brackets count with what the bracket after them found.
        """
        return self._host_clock.uncertainty_ns(time.monotonic_ns())

    def host_time_ns(self, mark: CudaEvent) -> int:
        """When a finished event was reached, on the host's clock."""
        if time.monotonic_ns() - self._tried_ns > self._period_ns:
            self._renew_anchor(mark)
        device_ns = self._device_time_ns(mark)
        if abs(device_ns - self._reference_ns) > LINK_NS:
            self._reference, self._reference_ns = mark, device_ns
        return self._host_clock.host_ns(device_ns)

    def _device_time_ns(self, mark: CudaEvent) -> int:
        """Where the device's own clock stood, counted from the first anchor."""
        # CUDA promises the time from an event to a later one, and says nothing of the sign of the other.
        earlier, later, sign = self._reference, mark, 1
        if mark.number < self._reference.number:
            earlier, later, sign = mark, self._reference, -1
        try:
            apart = float(earlier.event.elapsed_time(later.event))
        except RuntimeError:
            # Of two streams, what was recorded first may be reached last.
            apart, sign = float(later.event.elapsed_time(earlier.event)), -sign
        return self._reference_ns + sign * round(apart * 1e6)

    def _renew_anchor(self, read: CudaEvent) -> None:
        """Tie the device's clock to the host's once more, if the clock stream answers; `read` is read next."""
        self._tried_ns = time.monotonic_ns()
        self._period_ns = min(2 * self._period_ns, ANCHOR_PERIOD_NS)
        best = self._best_bracket()
        if best is None:
            return
        anchor, host_ns, half_ns = best
        device_ns = self._device_time_ns(anchor)
        self._host_clock.bracket(device_ns, host_ns, half_ns)
        read_ns = self._device_time_ns(read)
        # After a pause the new event is the nearer reference; far behind the host the old one is.
        if abs(device_ns - read_ns) < abs(self._reference_ns - read_ns):
            self._reference, self._reference_ns = anchor, device_ns
        else:
            self._tries.append(anchor)

    def _best_bracket(self) -> tuple[CudaEvent, int, int] | None:
        """The narrowest of a few brackets as (mark, host's clock, half its width); `None` if the stream is late.

        The mark is the caller's; it was recorded last of all that are numbered.
        """
        if self._late is not None:
            if not self._late.done():
                return None
            self._tries.append(self._late)
            self._late = None
        best: tuple[CudaEvent, int, int] | None = None
        began = time.monotonic_ns()
        for _ in range(ANCHOR_TRIES):
            if not self._tries:
                # It is made on the device at its first record, which takes longer than later ones.
                self._tries.append(CudaEvent(self))
                self._tries[-1].event.record(self._clock_stream)
            mark = self._tries.pop()
            before = time.monotonic_ns()
            mark.event.record(self._clock_stream)
            while not (done := mark.done()) and time.monotonic_ns() - before <= ANCHOR_LIMIT_NS:
                pass
            if not done:
                # The stream is behind other work: trying on would only cost the training more.
                self._late = mark
                break
            after = time.monotonic_ns()
            half = (after - before + 1) // 2
            if best is None or half < best[2]:
                if best is not None:
                    self._tries.append(best[0])
                best = mark, before + half, half
            else:
                self._tries.append(mark)
            if after - began > ANCHOR_LIMIT_NS:
                break  # slow answers: ten of them would cost ten times the limit
        if best is not None:
            self._recorded += 1
            best[0].number = self._recorded
            self._arrival_ns = max(ARRIVAL_NS, 4 * best[2])
        return best

    def _waited_bracket(self) -> tuple[CudaEvent, int, int]:
        """A bracket as wide as it takes. Before the first step nothing is lost by waiting."""
        mark = CudaEvent(self)
        before = time.monotonic_ns()
        mark.event.record(self._clock_stream)
        mark.event.synchronize()
        half = (time.monotonic_ns() - before + 1) // 2
        self._recorded += 1
        mark.number = self._recorded
        # Now the stream is empty, unless others keep the device busy as well.
        return self._best_bracket() or (mark, before + half, half)
