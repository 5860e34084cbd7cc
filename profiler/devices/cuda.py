"""An NVIDIA GPU through torch.

Events are pooled and only ever queried, never waited for. The device's clock is tied to the host's by an anchor:
an event recorded on an idle side stream and bracketed by host stamps. `elapsed_time` is a float32 of
milliseconds, so anchors are renewed every few seconds to keep its rounding below a microsecond.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from .protocol import Copy, Event, Stream

ANCHOR_PERIOD_NS = 5_000_000_000
MEMORY_EVERY = 20
"""Memory in use is asked of the allocator every so many steps."""
ANCHOR_TRIES = 10
ANCHOR_LIMIT_NS = 2_000_000
"""Give up on one try when the side stream does not answer within this: it is queued behind other work."""


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


class CudaEvent:
    __slots__ = ("_device", "event")

    def __init__(self, event: torch.cuda.Event, device: CudaDevice) -> None:
        self.event = event
        self._device = device

    def done(self) -> bool:
        return bool(self.event.query())

    def time_ns(self) -> int:
        return self._device.host_time_ns(self.event)


class CudaDevice:
    kind = "cuda"
    asynchronous = True

    def __init__(self, index: int = 0) -> None:
        torch.cuda.set_device(index)
        self.index = index
        self._facts = describe_gpu(index)
        self.name: str = self._facts["name"]
        self.title: str = self._facts["title"]
        self.torch_device = torch.device("cuda", index)
        self._side = torch.cuda.Stream(index)
        self._clock_stream = torch.cuda.Stream(index, priority=-1)
        self._pool: list[CudaEvent] = []
        self._anchor: torch.cuda.Event | None = None
        self._anchor_host_ns = 0
        self._anchor_tried_ns = 0
        self._memory_used: int | None = None
        self._memory_asked = 0
        self._renew_anchor()

    now = staticmethod(time.monotonic_ns)

    def record(self, stream: Stream = None) -> CudaEvent:
        event = self._pool.pop() if self._pool else CudaEvent(torch.cuda.Event(enable_timing=True), self)
        event.event.record(stream or torch.cuda.current_stream(self.index))
        return event

    def release(self, event: Event) -> None:
        if isinstance(event, CudaEvent):
            self._pool.append(event)

    def side_stream(self) -> torch.cuda.Stream:
        return self._side

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [t.pin_memory() for t in tensors]

    def copy(
        self, tensors: Sequence[torch.Tensor], *, pinned: bool, stream: Stream = None
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

    def describe(self) -> dict[str, Any]:
        return dict(self._facts)

    def host_time_ns(self, event: torch.cuda.Event) -> int:
        """When a finished event was reached, on the host's clock."""
        if time.monotonic_ns() - self._anchor_tried_ns > ANCHOR_PERIOD_NS:
            self._renew_anchor()
        assert self._anchor is not None
        return self._anchor_host_ns + round(float(self._anchor.elapsed_time(event)) * 1e6)

    def _renew_anchor(self) -> None:
        """Keep the narrowest of a few brackets; keep the old anchor when none is narrow enough."""
        self._anchor_tried_ns = time.monotonic_ns()
        best: tuple[int, int, torch.cuda.Event] | None = None
        late = False
        for _ in range(ANCHOR_TRIES):
            event = torch.cuda.Event(enable_timing=True)
            before = time.monotonic_ns()
            event.record(self._clock_stream)
            while not event.query():
                if time.monotonic_ns() - before > ANCHOR_LIMIT_NS:
                    late = True
                    break
            else:
                after = time.monotonic_ns()
                if best is None or after - before < best[0]:
                    best = (after - before, (before + after) // 2, event)
            if late:
                break  # the side stream is behind other work: trying on would only cost the training more
        if best is not None:
            _, self._anchor_host_ns, self._anchor = best
        elif self._anchor is None:
            # Before the first step nothing is lost by waiting; a device shared with others may be late for long.
            self._anchor = torch.cuda.Event(enable_timing=True)
            before = time.monotonic_ns()
            self._anchor.record(self._clock_stream)
            self._anchor.synchronize()
            self._anchor_host_ns = (before + time.monotonic_ns()) // 2
