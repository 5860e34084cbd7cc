"""The steps of one training process, as its hooks tell them.

Every hook is a plain call on the training thread: it reads a clock, fills a slot, and at the end of a step
stores one record. Nothing waits for the device (`marks.py`), and very short steps are looked at in bursts only
(`thinning.py`).

A step begins when the training asks for a batch and ends when it asks for the next one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from ..devices.protocol import Copy, Device
from ..record.schema import NOT_MEASURED, STEP, PauseKind, StepFlag
from ..record.segment import RecordWriter
from .marks import Marks
from .thinning import Thinning

_SLOT = {field.name: number for number, field in enumerate(STEP.fields[1:])}
# Looked up once: hooks run in every step.
_STEP, _EPOCH, _FLAGS, _SAMPLES = (_SLOT[n] for n in ("step", "epoch", "flags", "samples"))
_FETCH_BEGIN, _FETCH_END, _STEP_END = (_SLOT[n] for n in ("fetch_begin_ns", "fetch_end_ns", "step_end_ns"))
_READY, _CAPACITY = (_SLOT[n] for n in ("queue_ready", "queue_capacity"))
_COPY_BEGIN, _COPY_END, _COPY_BYTES = (_SLOT[n] for n in ("copy_begin_ns", "copy_end_ns", "copy_bytes"))
_FORWARD, _BACKWARD = (_SLOT[n] for n in ("forward_begin_ns", "backward_begin_ns"))
_OPTIMIZER, _OPTIMIZER_END = (_SLOT[n] for n in ("optimizer_begin_ns", "optimizer_end_ns"))
_SYNC, _GC, _CPU = (_SLOT[n] for n in ("sync_ns", "gc_ns", "cpu_ns"))
_OVERHEAD, _MEMORY = (_SLOT[n] for n in ("overhead_ns", "memory_bytes"))
_SKIPPED, _SKIPPED_SAMPLES = (_SLOT[n] for n in ("skipped", "skipped_samples"))


class QueueLook(Protocol):
    """A look at how many batches a loader has ready."""

    capacity: int

    def ready(self) -> int: ...


class StepRecorder:
    """Turns the hooks of one training loop into step records.

    Order of calls in a step: `fetch_begin`, `fetch_end`, then any of `copied`, `compute_begin`, `backward_begin`,
    `backward_end`, `optimizer_begin`, `optimizer_end`, `sync_begin`, `sync_end`, as often as they happen. The next
    `fetch_begin`, `end_step` or `finish` ends the step. Outside a step that is looked at, hooks do nothing.
    """

    def __init__(
        self, writer: RecordWriter, pauses: RecordWriter, device: Device, thinning: Thinning | None = None
    ) -> None:
        self._writer = writer
        self._pauses = pauses
        self._device = device
        self._now = device.now
        self._marks = Marks(device, writer, pauses) if device.asynchronous else None
        self._thinning = thinning or Thinning()
        self._blank = STEP.missing()
        self._blank[_SYNC] = self._blank[_SKIPPED] = self._blank[_SKIPPED_SAMPLES] = 0
        self._row = list(self._blank)
        self.recording = False
        """Whether a step is open and looked at."""
        self.computing = False
        """Whether the open step has begun to compute for sure: its backward pass or optimizer was seen."""
        self._passing = False
        """Whether a step is open that is not looked at."""
        self._passing_samples = 0
        self._flags = 0
        self._cpu_ns = 0
        self._last_ns = 0
        self._waits = 0
        self._wait_begin = 0
        self.count = 0
        """Steps begun so far."""
        self.skipped = 0
        """Steps not looked at since the last that was."""
        self.skipped_samples = 0
        self.skipped_until_ns = 0
        """When the last of them was seen."""
        self.ever_skipped = False
        self.gc_ns = 0
        """Garbage collection so far; kept by whoever watches it."""
        self.on_step: Callable[[int], bool] | None = None
        """Called with the number of each step, before it begins; tells whether it took notable time."""
        self._gc_at_begin = 0
        self._overhead = 0

    @property
    def ring_full(self) -> int:
        """Steps whose device marks were dropped because too many were outstanding."""
        return self._marks.dropped if self._marks is not None else 0

    def fetch_begin(self, epoch: int, first: bool, queue: QueueLook | None, begin_ns: int = 0) -> None:
        """The training asks for a batch, now or at `begin_ns`."""
        begin = now = begin_ns or self._now()
        if self.recording:
            self._store(begin)
            now = self._now()
        if self.on_step is not None and self.on_step(self.count):
            # What happened there belongs to no step.
            begin = now = self._now()
        if not self._thinning.look(first):
            self._let_pass(begin)
            return
        row = self._row = self._blank.copy()
        self.recording = True
        self.computing = self._passing = False
        self._flags = StepFlag.FIRST_OF_EPOCH if first else 0
        row[_STEP] = self.count
        row[_EPOCH] = epoch
        row[_FETCH_BEGIN] = begin
        row[_SKIPPED] = self.skipped
        row[_SKIPPED_SAMPLES] = self.skipped_samples
        if queue is not None:
            row[_READY] = queue.ready()
            row[_CAPACITY] = queue.capacity
        marks = self._marks
        if marks is not None:
            drained = marks.drained()
            if drained is not None:
                self._flags |= StepFlag.DRAINED_KNOWN
                if drained:
                    self._flags |= StepFlag.DRAINED_AT_ENTRY
            marks.step_begins()
        self.count += 1
        self.skipped = self.skipped_samples = 0
        self._gc_at_begin = self.gc_ns
        self._cpu_ns = time.thread_time_ns()
        self._done(now)

    def fetch_end(self, samples: int, end_ns: int = 0) -> None:
        """The batch was handed over, now or at `end_ns`."""
        if not self.recording:
            if self._passing:
                # Told twice of one step, the later figure counts.
                self.skipped_samples += samples - self._passing_samples
                self._passing_samples = samples
            return
        now = end_ns or self._now()
        self._row[_FETCH_END] = now
        self._row[_SAMPLES] = samples
        marks = self._marks
        if marks is not None:
            if marks.drained():
                self._flags |= StepFlag.DRAINED_AT_EXIT
            marks.resolve()
        self._done(now)

    def abandon_fetch(self) -> None:
        """The loader had no further batch: the step that `fetch_begin` opened does not exist."""
        if self.recording:
            # What it would have said about the steps before it is still to be said.
            self.skipped, self.skipped_samples = int(self._row[_SKIPPED]), int(self._row[_SKIPPED_SAMPLES])
            self.recording = False
            self.count -= 1
            if self._marks is not None:
                self._marks.step_is_none()
        elif self._passing:
            self._passing = False
            self.count -= 1
            self.skipped -= 1
            self.skipped_samples -= self._passing_samples

    def copied(self, copy: Copy) -> None:
        """The batch of this step, or a part of it, is on its way to the device.

        Once the step computes for sure, a copy is a pause in its computation.
        """
        marks = self._marks
        if not self.recording:
            if marks is not None:
                marks.release(copy)
            return
        now = self._now()
        if self.computing and marks is not None and not copy.ahead:
            what = PauseKind.QUEUED_COPY if copy.pinned else PauseKind.COPY
            marks.copied_within(self._pause(what, copy.host_begin_ns, copy.host_end_ns, copy.nbytes), copy)
            self._done(now)
            return
        row = self._row
        if row[_COPY_BEGIN] == NOT_MEASURED:
            row[_COPY_BEGIN] = copy.host_begin_ns
            row[_COPY_BYTES] = copy.nbytes
        else:
            row[_COPY_BYTES] += copy.nbytes
        row[_COPY_END] = copy.host_end_ns
        if copy.pinned:
            self._flags |= StepFlag.PINNED
        if copy.ahead:
            self._flags |= StepFlag.COPIED_AHEAD
        if marks is not None:
            marks.copied(copy)
        self._done(now)

    def compute_begin(self) -> None:
        """What is queued from here on is the step's computation. Call it as late as possible before that.

        Called again before the backward pass or the optimizer was seen, the later call counts.
        """
        if not self.recording or self.computing:
            return
        now = self._now()
        self._row[_FORWARD] = now
        if self._marks is not None and not self._marks.computation_begins():
            self._flags |= StepFlag.MARKS_DROPPED
        self._done(now)

    def backward_begin(self) -> None:
        if self.recording:
            self.computing = True
            self._row[_BACKWARD] = self._last_ns = self._now()

    def backward_end(self) -> None:
        """The backward pass was queued: the computation ends here unless an optimizer step follows."""
        if self.recording:
            self._end_computation(self._now())

    def optimizer_begin(self) -> None:
        if self.recording:
            self.computing = True
            self._row[_OPTIMIZER] = self._last_ns = self._now()

    def optimizer_end(self) -> None:
        """The last computation of the step was queued; the last call counts."""
        if not self.recording:
            return
        now = self._now()
        self._row[_OPTIMIZER_END] = now
        self._flags |= StepFlag.OPTIMIZER
        self._end_computation(now)

    def sync_begin(self) -> None:
        """A call that waits for the device begins. Calls within such a call do not count."""
        self._waits += 1
        if self._waits > 1 or not self.recording or self._marks is None:
            return
        now = self._now()
        self._marks.pause_begins()
        self._wait_begin = self._now()
        self._overhead += self._wait_begin - now

    def sync_end(self) -> None:
        """It returned."""
        self._waits -= 1
        begin, self._wait_begin = (self._wait_begin, 0) if self._waits == 0 else (0, self._wait_begin)
        if not begin or not self.recording or self._marks is None:
            return
        now = self._now()
        self._row[_SYNC] += now - begin
        self._marks.pause_ends(self._pause(PauseKind.SYNC, begin, now, NOT_MEASURED))
        self._done(now)

    def add_overhead(self, ns: int) -> None:
        """Time of ours that was spent outside these hooks."""
        self._overhead += ns

    def end_step(self) -> None:
        """End the step now instead of at the next fetch: its epoch is over, or something else begins."""
        if self.recording:
            self._store(self._now())
        self._passing = False
        if self._marks is not None:
            # Whatever comes before the next step, validation say, is queued without marks.
            self._marks.unmarked()

    def finish(self) -> None:
        """End the last step where its last hook was, and resolve what the device has finished. Never waits."""
        if self.recording:
            self._store(self._last_ns)
        if self._marks is not None:
            self._marks.resolve_all()

    def _let_pass(self, now: int) -> None:
        """A step that is not looked at begins."""
        if not self._passing:
            self._passing = self.ever_skipped = True
            if self._marks is not None:
                self._marks.unmarked()
        self._passing_samples = 0
        self.count += 1
        self.skipped += 1
        self.skipped_until_ns = now

    def _pause(self, what: int, begin: int, end: int, nbytes: int) -> int:
        return self._pauses.append(self._row[_STEP], what, begin, end, nbytes, NOT_MEASURED, NOT_MEASURED)

    def _end_computation(self, now: int) -> None:
        self.computing = True
        if self._marks is not None:
            self._marks.computation_ends()
        self._done(now)

    def _done(self, begin: int) -> None:
        """A hook that began then ends now."""
        self._last_ns = now = self._now()
        self._overhead += now - begin

    def _store(self, now: int) -> None:
        row = self._row
        self.recording = False
        row[_FLAGS] = self._flags
        row[_STEP_END] = now
        row[_GC] = self.gc_ns - self._gc_at_begin
        row[_CPU] = time.thread_time_ns() - self._cpu_ns
        memory = self._device.memory_used()
        row[_MEMORY] = NOT_MEASURED if memory is None else memory
        cost = row[_OVERHEAD] = self._overhead
        self._overhead = 0
        handle = self._writer.append(*row)
        if self._marks is not None:
            self._marks.step_ends(handle)
        self._thinning.looked(now - int(row[_FETCH_BEGIN]), int(cost))
        self._done(now)
