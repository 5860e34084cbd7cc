"""What the profiler and the scenarios need of a device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

ARRIVAL_NS = 50_000
"""From the host's call to an idle device, at most, where nothing else is known; a few microseconds as a rule."""

Stream = Any
"""A queue of device work; opaque outside its device. `None` is the stream the training computes on."""


class Event(Protocol):
    """A mark in a stream."""

    @property
    def stream(self) -> Stream:
        """The stream it lies in; equal for marks of the same one."""
        ...

    def done(self) -> bool:
        """Whether the device has reached the mark. Never waits."""
        ...

    def time_ns(self) -> int:
        """When the device reached it, on the host's monotonic clock. Only after `done()` was true."""
        ...


@dataclass
class Copy:
    """One batch on its way to the device."""

    host_begin_ns: int
    host_end_ns: int
    nbytes: int
    pinned: bool
    ahead: bool
    """Issued on a side stream before the step asked for the batch."""
    begin: Event | None
    end: Event | None


class Device:
    """A device, as one that queues nothing and has no memory of its own has it: all else is overridden."""

    kind: str
    """`cuda`, `cpu` or `emulated`."""
    name: str
    """As given to `--device`."""
    title: str
    """For people; says `emulated` where it is."""
    asynchronous = False
    """Whether work is queued: only then do events say something that host stamps do not."""
    torch_device: torch.device
    """Where the tensors of a step live."""

    def now(self) -> int:
        """The host's monotonic clock, ns."""
        return time.monotonic_ns()

    def record(self, stream: Stream = None) -> Event:
        """Put a mark behind all work queued so far."""
        return Passed(time.monotonic_ns())

    def release(self, event: Event) -> None:
        """Give a mark back that has been read; it may be used again."""

    def side_stream(self) -> Stream:
        """A stream beside the computing one, for copies. The same one each time."""
        return None

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors in page-locked memory; really copied, if there is any."""
        return list(tensors)

    def copy(
        self, tensors: Sequence[torch.Tensor], *, pinned: bool = False, stream: Stream = None
    ) -> tuple[list[torch.Tensor], Copy]:
        """Copy tensors to the device, as `.to(device, non_blocking=pinned)` does.

        From pageable memory the host waits: for the stream, then for the copy.
        """
        now = time.monotonic_ns()
        return list(tensors), Copy(now, now, 0, pinned, stream is not None, None, None)

    def wait_for(self, copy: Copy, tensors: Sequence[torch.Tensor]) -> None:
        """Let the computing stream wait for a copy on another stream; the host goes on at once."""

    def synchronize(self) -> None:
        """Wait until everything queued is done."""

    def captures(self) -> bool:
        """Whether a CUDA graph is being captured on the current stream: a mark put now would become part of it."""
        return False

    def settle(self, mark: Event, limit_ns: int) -> None:
        """Wait at most so long for the device to reach a mark. Called once, at the end of a recording."""

    def arrival_ns(self) -> int:
        """How long a mark put on an idle stream takes to be reached, at most."""
        return 0

    def clock_uncertainty_ns(self) -> int | None:
        """How far events' times may be from the host's clock; `None` where that is not known."""
        return 0

    def operations(self) -> int:
        """A number that changes when the training thread has run operations that compute on the device."""
        return 0

    def memory_used(self) -> int | None:
        """Bytes in use by this process; `None` where that is not known."""
        return None

    def allocation_retries(self) -> int | None:
        """How often so far the memory allocator had to free its cache to serve a request; `None` where that is not
        known. Cheap enough to be asked several times a second."""
        return None

    def describe(self) -> dict[str, Any]:
        """What run.json says about the device."""
        return {"kind": self.kind, "name": self.name, "title": self.title, "count": 1, "uuids": []}


class Passed:
    """A mark that was reached when it was made."""

    __slots__ = ("_at",)
    stream = None

    def __init__(self, at_ns: int) -> None:
        self._at = at_ns

    def done(self) -> bool:
        return True

    def time_ns(self) -> int:
        return self._at
