"""The steps of one training process: where each begins and ends, and which are looked at.

A step begins when the training asks for a batch and ends when it asks for the next one; one record is stored then. Very
short steps are looked at in bursts only.

Every hook is a plain call on the training thread: it reads a clock and fills a slot. Nothing waits for the device
(`marks.py`). What a hook costs is mostly the number of functions it calls with cold caches, so they call few.

Which steps the hooks look at: all of them, unless steps are so short that looking would cost too much. Looking at a
step takes the hooks some five microseconds by their own account, and as much again for the training, whose code
they push out of the caches. Below two milliseconds a step they therefore look at short bursts of steps and let
others pass. Steps that pass are still counted, with their samples.
"""

from __future__ import annotations

import random
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from time import thread_time_ns
from typing import Protocol

from ..devices.protocol import Copy, Device, Event
from ..native import RecorderBase
from ..record.schema import NOT_MEASURED, STEP, PauseKind, StepFlag
from ..record.segment import RecordWriter
from .marks import Marks

SHORT_STEP_NS = 2_000_000
"""Longer steps are all looked at."""
MOST_COST = 0.001
"""The hooks' share of the time, by their own account, that thinning aims at: a second one goes to steps let pass."""
BURST = 8
"""Steps looked at in a row: the idle time before a step is known only when the step before it is."""
UNTHINNED = 64
"""The same where none are let pass: then that is thought over again."""
ALWAYS = 64
"""The first steps of a recording are all looked at."""
AFTER_EPOCH = 2
"""Steps looked at from the begin of an epoch on, at least: its first fetch is unlike the others."""
SHORT_EPOCH = 32
"""Epochs of fewer steps are not looked at each: they are thinned as steps are."""
MOST_KEPT = 1_000
"""Steps looked at that are kept until the next plan."""
NEWEST = 0.3
"""How much the newest burst counts in the average length of a step."""
MOST_SKIPPED = 4_000


class Thinning:
    """Plans which steps are looked at. Draws from a generator of its own: the training's random numbers stay as
    they are."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)
        self._steps: deque[int] = deque(maxlen=MOST_KEPT)
        self._costs: deque[int] = deque(maxlen=MOST_KEPT)
        self._step: float | None = None
        """How long steps are on average, ns."""

    def first(self) -> int:
        """How many steps to look at before anything is planned."""
        return ALWAYS

    def plan(self, first_of_epoch: bool, left: int) -> tuple[int, int]:
        """(steps to look at, steps to let pass after them), the step that begins now being the first of them.

        Args:
            left: steps that were still to be let pass when an epoch began.
        """
        if first_of_epoch and left:
            return AFTER_EPOCH, left
        # The median: a hook that the scheduler interrupted says nothing about the others. But short and long steps
        # may take turns, as with batches that come in handfuls: what counts is how long they are on average.
        mean, cost = sum(self._steps) / max(1, len(self._steps)), sorted(self._costs)[len(self._costs) // 2 :][:1]
        self._steps.clear()
        self._costs.clear()
        self._step = mean if self._step is None else self._step + NEWEST * (mean - self._step)
        step = self._step
        if step >= SHORT_STEP_NS or not cost or cost[0] <= MOST_COST * step:
            return UNTHINNED, 0
        # Drawn from a range, so that the bursts do not lock to anything periodic in the training.
        wanted = BURST * (cost[0] / (MOST_COST * max(step, 1)) - 1) * self._random.uniform(0.5, 1.5)
        return BURST, min(MOST_SKIPPED, round(wanted))

    def looked(self, step_ns: int, cost_ns: int) -> None:
        """A step that was looked at has ended, after so long, of which the hooks took so much."""
        self._steps.append(step_ns)
        self._costs.append(cost_ns)


SLOT = {field.name: number for number, field in enumerate(STEP.fields[1:])}
"""Where each field lies in the row of a step."""
# Looked up once: hooks run in every step.
_STEP, _EPOCH, _FLAGS, _SAMPLES = (SLOT[n] for n in ("step", "epoch", "flags", "samples"))
_FETCH_BEGIN, _FETCH_END, _STEP_END = (SLOT[n] for n in ("fetch_begin_ns", "fetch_end_ns", "step_end_ns"))
_READY, _CAPACITY, _LOADER, _BATCH = (SLOT[n] for n in ("queue_ready", "queue_capacity", "loader", "batch"))
_GC, _CPU = SLOT["gc_ns"], SLOT["cpu_ns"]
_COPY_BEGIN, _COPY_END, _COPY_BYTES = (SLOT[n] for n in ("copy_begin_ns", "copy_end_ns", "copy_bytes"))
_FORWARD, _BACKWARD = (SLOT[n] for n in ("forward_begin_ns", "backward_begin_ns"))
_OPTIMIZER, _OPTIMIZER_END, _SYNC = (SLOT[n] for n in ("optimizer_begin_ns", "optimizer_end_ns", "sync_ns"))
_OVERHEAD, _MEMORY = (SLOT[n] for n in ("overhead_ns", "memory_bytes"))
_SKIPPED, _SKIPPED_SAMPLES, _SKIPPED_END = (SLOT[n] for n in ("skipped", "skipped_samples", "skipped_end_ns"))
# What a step says while nothing is known of it.
BLANK = array(
    "q", (0 if f.name in ("sync_ns", "skipped", "skipped_samples") else NOT_MEASURED for f in STEP.fields[1:])
)

# In the flags of a step: one element of its batch, and as many as there is room for.
_ONE_ELEMENT = 1 << StepFlag.ELEMENTS_SHIFT
_ELEMENTS = StepFlag.MOST_ELEMENTS << StepFlag.ELEMENTS_SHIFT

MOST_COLLECTIONS = 1000
"""Garbage collections remembered until a step is over; the latest ones."""
SETTLE_NS = 1_000_000_000
"""How long the end of a recording waits for the device to finish the last steps."""


class QueueLook(Protocol):
    """A look at how many batches a loader has ready."""

    capacity: int

    def ready(self) -> int: ...


LEAST_STAGE_NS = 100_000
"""Between the hand-over of a batch and the model's call: what is shorter is a loop's bookkeeping, and what the hooks
take."""


@dataclass(frozen=True, slots=True)
class ForwardMark:
    """A moment at which a model is called."""

    step: int
    host_ns: int
    event: Event | None
    """The same on the device; `None`: it has no queue, or the step gets no marks."""


class StepRecorder(RecorderBase):
    """Records the steps of one training loop, and the pauses in their computation.

    Order of calls in a step: `fetch_begin`, `fetch_end`, then any of the others, as often as they happen. The next
    `fetch_begin`, `end_step` or `finish` ends the step.
    """

    def __init__(
        self, steps: RecordWriter, pauses: RecordWriter, device: Device, thinning: Thinning | None = None
    ) -> None:
        self._device = device
        self._now = device.now
        self._steps = steps
        self._pauses = pauses
        self._marks = Marks(device, steps, pauses) if device.asynchronous else None
        self.recording = False
        """Whether a step is open and looked at."""
        self.passing = False
        """Whether a step is open that is not looked at."""
        self._row: array[int] = array("q", bytes(8 * len(SLOT)))
        self._flags = 0
        self._handed_ns = 0
        """When the program went on with its batch."""
        self._cleared_ns = 0
        """What clearing gradients took since then, before the model was called."""
        self._last_ns = 0
        """When the last hook of the step was over."""
        self._overhead = 0
        """What the hooks took since the last step was stored, ns."""
        self.graph: Callable[[], int] | None = None
        """Nodes of autograd's graph that the training thread has made so far. A forward pass makes them; a backward
        pass and an optimizer do not."""
        self._graph_then = 0
        """That number when the batch was handed over, or when the last backward pass or optimizer step since ended."""
        self._graph_before = NOT_MEASURED
        """How many were made between the batch and the first backward pass of the step; negative until that begins."""
        self._model_called = False
        """The model was called in this step, before anything was learnt."""
        self._copies_ahead = 0
        """Copies on another stream since the computing one was last told to wait for one."""
        self._waits = 0
        """Calls under way that wait for the device, one within the other."""
        self._paused: tuple[int, Event | None] | None = None
        """When the pause that lasts began, and the mark before it."""
        self._thinning = thinning or Thinning()
        self._looks = self._thinning.first()
        """Steps still to be looked at in a row."""
        self._to_skip = 0
        """Steps to be let pass after those."""
        self.skip_left = 0
        """Steps from the next one on that are let pass, unless an epoch begins."""
        self.all_looked_at = False
        """No step was let pass right before the one looked at last, and none is to be after those in a row with it."""
        self.count = 0
        """Steps begun so far."""
        self._epoch_at = 0
        """The first step of this epoch."""
        self.skipped = 0
        """Steps not looked at since the last that was."""
        self.skipped_samples = 0
        self.skipped_until_ns = 0
        """When the last of them was seen."""
        self._skipped_end_ns = NOT_MEASURED
        """When it ended, if something else than a step followed it."""
        self._passing_samples = 0
        """Those of the step that passes."""
        self.gc_ns = 0
        """Garbage collection so far, but for what `collections` holds."""
        self.collections: deque[int] = deque(maxlen=4 * MOST_COLLECTIONS)
        """Four stamps of each since the last look: twice when it began, twice when it ended."""
        self.on_collections: Callable[[], object] | None = None
        """Counts what is in `collections`."""
        self._gc_at_begin = 0
        self._cpu_ns = 0
        """CPU time of the training thread when the step began."""
        self.on_step: Callable[[int, int], bool] | None = None
        """Called with its number and the time before a step begins that is looked at; tells whether it took notable
        time."""
        self.due_ns = 0
        """It is not called before that."""
        self.on_batch: Callable[[], object] | None = None
        """Called when the batch of a step that is looked at was handed over, and its computation may begin."""
        self._ring_full = 0
        """Of devices that the training has left."""

    @property
    def ring_full(self) -> int:
        """Steps whose device marks were dropped because too many were outstanding."""
        return self._ring_full + (self._marks.dropped if self._marks is not None else 0)

    def moves_to(self, device: Device) -> None:
        """The training computes on another device than was taken for its own, with the same host's clock.

        The step that is open gets no marks there: its computation has begun.
        """
        if self._marks is not None:
            self._marks.resolve_all()
        self._ring_full = self.ring_full
        self._device = device
        self._marks = Marks(device, self._steps, self._pauses) if device.asynchronous else None

    def fetch_begin(self, epoch: int, first: bool, queue: QueueLook | None, begin_ns: int = 0) -> None:
        """The training asks for a batch, now or at `begin_ns`."""
        begin = now = begin_ns or self._now()
        graph = self.graph
        grown = 0 if graph is None else graph()
        if self.recording:
            ahead = not self._model_called and self._graph_before >= 0
            if ahead and grown - self._graph_then > self._graph_before:
                # The next forward pass ran ahead of this fetch: the step's computation ends with it. Where the model
                # was called behind the fetch before, what makes more nodes is something else: metrics of outputs, say.
                self._flags |= StepFlag.FORWARD_AFTER
                if self._marks is not None:
                    self._marks.computation_ends()
            self._store(begin)
        else:
            self._cpu_ns = thread_time_ns()
            if self.collections and self.on_collections is not None:
                self.on_collections()
            self._gc_at_begin = self.gc_ns
        short = False
        if first:
            short = self.count - self._epoch_at < SHORT_EPOCH
            self._epoch_at = self.count
        if self._looks == 0:
            if self.skip_left > 0 and (short or not first):
                self.let_pass(begin)
                return
            self._plans(first)
        self._looks -= 1
        if self._looks == 0:
            self.skip_left = self._to_skip
        if now >= self.due_ns and self.on_step is not None and self.on_step(self.count, now):
            # What happened there belongs to no step.
            begin = now = self._now()
        row = self._row
        row[:] = BLANK
        self.recording = True
        self.passing = False
        self._waits = 0  # of one whose end an interrupt has taken
        self._graph_then, self._graph_before = grown, NOT_MEASURED
        self._model_called = False
        self._flags = StepFlag.FIRST_OF_EPOCH if first else 0
        self.all_looked_at = self._to_skip == 0 == self.skipped
        row[_STEP] = self.count
        row[_EPOCH] = epoch
        row[_FETCH_BEGIN] = begin
        self.count += 1
        if self.skipped:
            row[_SKIPPED], row[_SKIPPED_SAMPLES] = self.skipped, self.skipped_samples
            row[_SKIPPED_END] = self._skipped_end_ns
            self.skipped = self.skipped_samples = 0
            self._skipped_end_ns = NOT_MEASURED
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
        self._last_ns = end = self._now()
        self._overhead += end - now

    def fetch_end(
        self,
        samples: int,
        end_ns: int = 0,
        begins: bool = False,
        loader: int = NOT_MEASURED,
        batch: int = NOT_MEASURED,
        flags: int = 0,
    ) -> None:
        """The batch was handed over, now or at `end_ns`. `begins`: and the computation begins, as `compute_begin`.

        `loader` and `batch`: which one it was, where its worker says the same. `flags`: what `StepFlag` says of
        its shapes, with its elements.
        """
        if not self.recording:
            if self.passing:
                self.passes_with(samples)
            return
        now = end_ns or self._now()
        row = self._row
        row[_FETCH_END] = now
        row[_SAMPLES] = samples
        row[_LOADER], row[_BATCH] = loader, batch
        if self._flags < _ONE_ELEMENT:
            self._flags |= flags
        else:
            self._flags = _with_batch(self._flags, flags)
        graph = self.graph
        if graph is not None:
            self._graph_then = graph()
        marks = self._marks
        if marks is not None:
            if marks.drained():
                self._flags |= StepFlag.DRAINED_AT_EXIT
            marks.resolve()
        if begins:
            row[_FORWARD] = now
            if marks is not None and not marks.computation_begins():
                self._flags |= StepFlag.MARKS_DROPPED
            if self.on_batch is not None:
                self.on_batch()
        self._cleared_ns = 0
        self._last_ns = self._handed_ns = end = self._now()
        self._overhead += end - now

    def amend(self, samples: int, begin_ns: int) -> None:
        """The open step has so many samples, as it turns out; and it began at `begin_ns` only, unless that is 0."""
        if self.passing:
            self.passes_with(samples)
        if self.recording:
            self._row[_SAMPLES] = samples
            if begin_ns:
                self._row[_FETCH_BEGIN] = begin_ns

    def fetch_within_begin(self) -> None:
        """The training asks for more data in the midst of the step."""
        if self.recording:
            before = None if self._marks is None else self._marks.pause_begins()
            self._paused = self._now(), before

    def fetch_within_end(self, samples: int, flags: int = 0) -> None:
        """It came; `samples`: those of the whole step so far; `flags` as in `fetch_end`."""
        if self.passing:
            self.passes_with(samples)
        if self.recording:
            self._row[_SAMPLES] = samples
            self._flags = _with_batch(self._flags, flags)
        self._pause_ends(PauseKind.FETCH, leads=True)

    def abandon_fetch(self) -> None:
        """The loader had no further batch: the step that `fetch_begin` opened does not exist."""
        if self.recording:
            row = self._row
            # What it would have said about the steps before it is still to be said.
            self.skipped, self.skipped_samples = row[_SKIPPED], row[_SKIPPED_SAMPLES]
            self._skipped_end_ns = row[_FETCH_BEGIN] if self.skipped else NOT_MEASURED
            self.recording = False
            self.count -= 1
            if self._marks is not None:
                self._marks.step_is_none()
        elif self.passing:
            self.passing = False
            self.count -= 1
            self.skipped -= 1
            self.skipped_samples -= self._passing_samples
            self._skipped_end_ns = self.skipped_until_ns

    def end_step(self, at_last_hook: bool = False, end_ns: int = 0) -> None:
        """End the step now, or at `end_ns`, instead of at the next fetch: its epoch is over, or something else begins.

        `at_last_hook`: nobody knows how long it has been over already; it ends where something was last seen of it.
        """
        now = self._last_ns if at_last_hook else end_ns or self._now()
        if self.recording:
            self._store(now)
        if self.passing:
            self.passing = False
            self._skipped_end_ns = now
        if self._marks is not None:
            # Whatever comes before the next step, validation say, is queued without marks.
            self._marks.unmarked()
            self._marks.resolve_all()

    def finish(self) -> int | None:
        """End the last step where its last hook was, and resolve what the device finishes within a moment.

        Returns when the device had done everything; `None` where it has no queue, or is not done.
        """
        if self.recording:
            self._store(self._last_ns)
        if self._marks is None:
            return None
        return self._marks.finish(SETTLE_NS)

    def let_pass(self, now: int) -> None:
        """A step begins that is not looked at. Only while `skip_left` is above 0."""
        self.skip_left -= 1
        if not self.passing:
            self.passing = True
            if self._marks is not None:
                self._marks.unmarked()
        self._passing_samples = 0
        self._skipped_end_ns = NOT_MEASURED
        self.count += 1
        self.skipped += 1
        self.skipped_until_ns = now

    def passes_with(self, samples: int) -> None:
        """The step that passes has so many samples; told again, the later figure counts."""
        # Of unknown figures there is no sum.
        samples = max(0, samples)
        self.skipped_samples += samples - self._passing_samples
        self._passing_samples = samples

    # What happens within a step. Hooks may be called in any order, and as often as things happen; while no step is open
    # that is looked at, they record nothing.

    def compute_begin(self) -> None:
        """What is queued from here on is the step's computation: call it as late as possible before that."""
        if not self.recording:
            return
        now = self._now()
        self._row[_FORWARD] = now
        if self._marks is not None and not self._marks.computation_begins():
            self._flags |= StepFlag.MARKS_DROPPED
        self._last_ns = end = self._now()
        self._overhead += end - now

    def nodes(self) -> int:
        """Nodes of autograd's graph that were made since the batch was handed over, or since the last backward pass
        or optimizer step."""
        return 0 if self.graph is None else self.graph() - self._graph_then

    def computed(self) -> bool | None:
        """Whether `nodes` are any; `None` where that is not known."""
        if self.graph is None or not self.recording or self._row[_FETCH_END] == NOT_MEASURED:
            return None
        return self.graph() > self._graph_then

    def forward_mark(self) -> ForwardMark:
        """Where a forward pass may begin: for `forward_begin`, or `forward_is_not`."""
        now = self._now()
        mark = None if self._marks is None else self._marks.forward_mark()
        self._last_ns = end = self._now()
        self._overhead += end - now
        return ForwardMark(self._row[_STEP], now, mark)

    def cleared(self, ns: int) -> None:
        """Gradients were cleared before the model was called, which took so long."""
        self._cleared_ns += ns

    @property
    def forward_seen(self) -> bool:
        """Whether the step that is open did something else with its batch before the model was called."""
        return bool(self._flags & StepFlag.FORWARD_SEEN)

    def forward_is_not(self, at: ForwardMark) -> None:
        """No forward pass began there: its mark is given back."""
        if at.event is not None:
            self._device.release(at.event)

    def forward_begin(self, at: ForwardMark) -> None:
        """The model was called there, for the first time in this step; nothing if something was learnt between the
        fetch and that: then it was called before the fetch."""
        row = self._row
        learnt = self._graph_before >= 0 or row[_BACKWARD] != NOT_MEASURED or row[_OPTIMIZER] != NOT_MEASURED
        if not self.recording or row[_STEP] != at.step or self._flags & StepFlag.FORWARD_SEEN or learnt:
            self.forward_is_not(at)
            return
        self._model_called = True
        stage = at.host_ns - self._handed_ns - self._cleared_ns
        if stage >= LEAST_STAGE_NS:
            self._flags |= StepFlag.FORWARD_SEEN
            # As long as the program took for it: what the hook on the fetch took is none of that, nor what clearing
            # gradients did, which is as much the step's as computing them.
            row[_FORWARD] = row[_FETCH_END] + stage
        if self._marks is not None and at.event is not None:
            self._marks.forward_begins(at.host_ns, at.event)

    def backward_begin(self) -> None:
        """A backward pass begins; the last call counts."""
        if self.recording:
            self._row[_BACKWARD] = self._last_ns = self._now()
            graph = self.graph
            if graph is not None and self._graph_before < 0:
                self._graph_before = graph() - self._graph_then

    def backward_end(self) -> None:
        """The backward pass was queued: the computation ends here unless an optimizer step follows."""
        if not self.recording:
            return
        graph = self.graph
        if graph is not None:
            self._graph_then = graph()
        if self._marks is not None:
            now = self._now()
            self._marks.computation_ends()
            self._last_ns = end = self._now()
            self._overhead += end - now

    def optimizer_begin(self) -> None:
        """An optimizer step begins; the last call counts."""
        if self.recording:
            self._row[_OPTIMIZER] = self._last_ns = self._now()

    def optimizer_end(self) -> None:
        """The last computation of the step was queued; the last call counts."""
        if not self.recording:
            return
        self._row[_OPTIMIZER_END] = self._last_ns = now = self._now()
        self._flags |= StepFlag.OPTIMIZER
        graph = self.graph
        if graph is not None:
            grown = graph()
            if self._graph_before < 0:
                self._graph_before = grown - self._graph_then
            self._graph_then = grown
        if self._marks is not None:
            self._marks.computation_ends()
            self._last_ns = end = self._now()
            self._overhead += end - now

    def copied(self, copy: Copy) -> None:
        """A batch, a part of it, or something else is on its way to the device; without marks, to another one."""
        marks = self._marks
        if marks is None:
            return
        if not self.recording:
            marks.release(copy)
            return
        now = self._now()
        row = self._row
        self._copies_ahead += copy.ahead
        if row[_COPY_BEGIN] == NOT_MEASURED and copy.begin is not None:
            row[_COPY_BEGIN], row[_COPY_END] = copy.host_begin_ns, copy.host_end_ns
            row[_COPY_BYTES] = copy.nbytes
            self._flags |= StepFlag.PINNED * copy.pinned + StepFlag.COPIED_AHEAD * copy.ahead
            marks.first_copy(copy)
        else:
            queued = PauseKind.COPY_AHEAD if copy.ahead else PauseKind.QUEUED_COPY
            what = queued if copy.pinned else PauseKind.COPY
            handle = self._pause(what, copy.host_begin_ns, copy.host_end_ns, copy.nbytes)
            if copy.ahead and not copy.pinned:
                # The host waited for it, on a stream that does not compute: the host's stamps say it all.
                marks.release(copy)
            else:
                marks.copied(handle, copy)
        self._last_ns = end = self._now()
        self._overhead += end - now

    def sync_begin(self, aside: bool = False) -> None:
        """A call that waits for the device begins; `aside`: for another stream than the computing one.

        Calls within such a call do not count.
        """
        self._waits += 1
        if self._waits > 1 or not self.recording or self._marks is None:
            return
        now = self._now()
        before = None if aside else self._marks.pause_begins()
        begin = self._now()
        self._paused = begin, before
        self._overhead += begin - now

    def sync_end(self) -> None:
        """It returned."""
        self._waits -= 1
        if self._waits == 0:
            self._pause_ends(PauseKind.SYNC)

    def stream_wait_begin(self) -> None:
        """The computing stream is about to be told to wait for another one.

        Only where that may be for a copy: what a training's own streams exchange (gradients, gathered weights) is part
        of its computation.
        """
        if self._copies_ahead and self._waits == 0 and self.recording and self._marks is not None:
            self._copies_ahead = 0
            before = self._marks.pause_begins()
            self._paused = self._now(), before

    def stream_wait_end(self) -> None:
        """It was told so."""
        if self._waits == 0:
            self._pause_ends(PauseKind.STREAM_WAIT, leads=True)

    def add_overhead(self, ns: int) -> None:
        """Time of ours that was spent outside these hooks."""
        self._overhead += ns

    def _plans(self, first: bool) -> None:
        """Which steps are looked at from this one on, the `first` of an epoch perhaps."""
        self.tell_looked()
        self._looks, self._to_skip = self._thinning.plan(first, self.skip_left)
        self.skip_left = 0

    def _store(self, now: int) -> None:
        """Record the open step, which ends at `now`."""
        row = self._row
        marks = self._marks
        self.recording = False
        if marks is not None:
            memory = self._device.memory_used()
            row[_MEMORY] = NOT_MEASURED if memory is None else memory
            if not marks.begun():
                self._flags |= StepFlag.COMPUTED_NOTHING
        row[_FLAGS] = self._flags
        row[_STEP_END] = now
        if self.collections and self.on_collections is not None:
            self.on_collections()
        row[_GC] = self.gc_ns - self._gc_at_begin
        self._gc_at_begin = self.gc_ns
        # Of the hooks between two steps, either step may be charged.
        cpu = thread_time_ns()
        row[_CPU] = cpu - self._cpu_ns
        self._cpu_ns = cpu
        cost = row[_OVERHEAD] = self._overhead
        self._overhead = 0
        handle = self._steps.store(row)
        if marks is not None:
            marks.step_ends(handle, self._flags, self._now())
        self._thinning.looked(now - row[_FETCH_BEGIN], cost)

    def _pause_ends(self, what: int, leads: bool = False) -> None:
        """The pause that lasts, if one does, is over. `leads`: what follows it may be the begin of the computation."""
        paused, self._paused = self._paused, None
        if paused is None:
            return
        begin, before = paused
        if not self.recording:
            if before is not None:
                self._device.release(before)
            return
        now = self._now()
        if what == PauseKind.SYNC:
            self._row[_SYNC] += now - begin
        handle = self._pause(what, begin, now, NOT_MEASURED)
        if self._marks is not None:
            self._marks.pause_ends(handle, before, begin if leads else 0)
        self._last_ns = end = self._now()
        self._overhead += end - now

    def _pause(self, what: int, begin: int, end: int, nbytes: int) -> int:
        """Record a pause, by the host's clock. Returns the handle of its record."""
        return self._pauses.append(self._row[_STEP], what, begin, end, nbytes, NOT_MEASURED, NOT_MEASURED)


def _with_batch(flags: int, further: int) -> int:
    """The flags of a step with those of a further batch, whose elements come in addition."""
    below = _ONE_ELEMENT - 1
    both = (flags | further & below) + (further & _ELEMENTS)
    return both if both <= _ELEMENTS | below else both & below | _ELEMENTS
