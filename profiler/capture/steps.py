"""The steps of one training process, as its hooks tell them.

Every hook is a plain call on the training thread: it reads a clock, fills a slot, and at the end of a step
stores one record. Nothing waits for the device: the device's stamps of a step are resolved later, by asking
the oldest unresolved event whether it is done, and patched into the stored record.

A step begins when the training asks for a batch and ends when it asks for the next one.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from ..devices.protocol import Copy, Device, Event
from ..record.schema import NOT_MEASURED, STEP, StepFlag
from ..record.segment import RecordWriter

MAX_UNRESOLVED = 64
"""Steps whose device events may be outstanding; beyond that a step's events are dropped and counted."""
RESOLVE_AT_MOST = 4
"""Steps resolved per hook, so that a hook's cost is bounded."""

_SLOT = {field.name: number for number, field in enumerate(STEP.fields[1:])}


class QueueLook(Protocol):
    """A look at how many batches a loader has ready."""

    capacity: int

    def ready(self) -> int: ...


@dataclass(slots=True)
class _Unresolved:
    handle: int
    copy_marks: tuple[Event | None, Event | None]
    begin: Event
    end: Event


class StepRecorder:
    """Turns the hooks of one training loop into step records.

    Order of calls in a step: `fetch_begin`, `fetch_end`, optionally `copied`, `compute_begin`, optionally
    `backward_begin` and `optimizer_begin`, `compute_end`, any number of `synced`. The next `fetch_begin`
    or `finish` ends the step.
    """

    def __init__(self, writer: RecordWriter, device: Device) -> None:
        self._writer = writer
        self._device = device
        self._now = device.now
        self._events = device.asynchronous
        self._blank = STEP.missing()
        self._row = list(self._blank)
        self._open = False
        self._flags = 0
        self._cpu_at_begin = 0
        self._unresolved: deque[_Unresolved] = deque()
        self._begin: Event | None = None
        self._end: Event | None = None
        self._last_end: Event | None = None
        self._reached_last_end = False
        self._copy_marks: tuple[Event | None, Event | None] = (None, None)
        self.count = 0
        """Steps begun so far."""
        self.ring_full = 0
        """Steps whose device events were dropped because too many were outstanding."""
        self.gc_ns = 0
        """Garbage collection so far; kept by whoever watches it."""
        self._gc_at_begin = 0
        self._overhead = 0

    def fetch_begin(self, epoch: int, first: bool, queue: QueueLook | None) -> None:
        """The training asks for a batch."""
        begin = now = self._now()
        if self._open:
            self._store(begin)
            now = self._now()
        row = self._row = list(self._blank)
        self._open = True
        self._flags = StepFlag.FIRST_OF_EPOCH if first else 0
        self._begin = self._end = None
        self._copy_marks = (None, None)
        row[_SLOT["step"]] = self.count
        row[_SLOT["epoch"]] = epoch
        row[_SLOT["fetch_begin_ns"]] = begin
        row[_SLOT["sync_ns"]] = 0
        if queue is not None:
            row[_SLOT["queue_ready"]] = queue.ready()
            row[_SLOT["queue_capacity"]] = queue.capacity
        drained = self._drained()
        if drained is not None:
            self._flags |= StepFlag.DRAINED_KNOWN
            if drained:
                self._flags |= StepFlag.DRAINED_AT_ENTRY
        self.count += 1
        self._gc_at_begin = self.gc_ns
        self._cpu_at_begin = time.thread_time_ns()
        self._overhead += self._now() - now

    def fetch_end(self, samples: int) -> None:
        """The batch was handed over."""
        now = self._now()
        self._row[_SLOT["fetch_end_ns"]] = now
        self._row[_SLOT["samples"]] = samples
        if self._drained():
            self._flags |= StepFlag.DRAINED_AT_EXIT
        self._resolve()
        self._overhead += self._now() - now

    def abandon_fetch(self) -> None:
        """The loader had no further batch: the step that `fetch_begin` opened does not exist."""
        if self._open:
            self._open = False
            self.count -= 1

    def copied(self, copy: Copy) -> None:
        """The batch of this step is on its way to the device."""
        row = self._row
        row[_SLOT["copy_begin_ns"]] = copy.host_begin_ns
        row[_SLOT["copy_end_ns"]] = copy.host_end_ns
        row[_SLOT["copy_bytes"]] = copy.nbytes
        if copy.pinned:
            self._flags |= StepFlag.PINNED
        if copy.ahead:
            self._flags |= StepFlag.COPIED_AHEAD
        self._copy_marks = (copy.begin, copy.end)

    def compute_begin(self) -> None:
        """Call as late as possible before the first computation of the step is queued."""
        now = self._now()
        self._row[_SLOT["forward_begin_ns"]] = now
        if self._events and len(self._unresolved) < MAX_UNRESOLVED:
            self._begin = self._device.record()
        self._overhead += self._now() - now

    def backward_begin(self) -> None:
        self._row[_SLOT["backward_begin_ns"]] = self._now()

    def optimizer_begin(self) -> None:
        self._row[_SLOT["optimizer_begin_ns"]] = self._now()

    def compute_end(self) -> None:
        """The last computation of the step was queued (after the optimizer); the last call counts."""
        now = self._now()
        row = self._row
        row[_SLOT["optimizer_end_ns"]] = now
        self._flags |= StepFlag.OPTIMIZER
        if self._begin is not None:
            if self._end is not None:
                self._device.release(self._end)
            self._last_end = self._end = self._device.record()
            self._reached_last_end = False
        elif self._events:
            self.ring_full += 1
        self._overhead += self._now() - now

    def synced(self, begin_ns: int, end_ns: int) -> None:
        """A call that waited for the device."""
        self._row[_SLOT["sync_begin_ns"]] = begin_ns
        self._row[_SLOT["sync_ns"]] += end_ns - begin_ns

    def add_overhead(self, ns: int) -> None:
        """Time of ours that was spent outside these hooks."""
        self._overhead += ns

    def end_step(self) -> None:
        """End the step now instead of at the next fetch: at the end of an epoch."""
        if self._open:
            self._store(self._now())

    def finish(self) -> None:
        """End the last step and resolve what the device has finished. Never waits."""
        self.end_step()
        while self._unresolved and self._resolve():
            pass

    def _drained(self) -> bool | None:
        """Whether the device has finished all steps so far; `None` when no step has marked its end."""
        if self._last_end is not None:
            return self._last_end.done()
        return True if self._reached_last_end else None

    def _store(self, now: int) -> None:
        row = self._row
        self._open = False
        row[_SLOT["flags"]] = self._flags
        row[_SLOT["step_end_ns"]] = now
        row[_SLOT["gc_ns"]] = self.gc_ns - self._gc_at_begin
        row[_SLOT["cpu_ns"]] = time.thread_time_ns() - self._cpu_at_begin
        memory = self._device.memory_used()
        row[_SLOT["memory_bytes"]] = NOT_MEASURED if memory is None else memory
        row[_SLOT["overhead_ns"]] = self._overhead
        self._overhead = 0
        handle = self._writer.append(*row)
        if self._begin is not None and self._end is not None:
            self._unresolved.append(_Unresolved(handle, self._copy_marks, self._begin, self._end))
        self._overhead += self._now() - now

    def _resolve(self) -> int:
        """Patch in the device stamps of the oldest steps the device has finished."""
        resolved = 0
        while self._unresolved and resolved < RESOLVE_AT_MOST:
            oldest = self._unresolved[0]
            if not oldest.end.done():
                break
            self._unresolved.popleft()
            marks = (*oldest.copy_marks, oldest.begin, oldest.end)
            self._writer.patch(
                oldest.handle,
                "device_copy_begin_ns",
                *(NOT_MEASURED if mark is None else mark.time_ns() for mark in marks),
            )
            if oldest.end is self._last_end:
                self._last_end, self._reached_last_end = None, True
            for mark in marks:
                if mark is not None:
                    self._device.release(mark)
            resolved += 1
        return resolved
