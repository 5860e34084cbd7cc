"""The step that is open, as the training's hooks tell it: what a program does with a batch once it has it.

Every hook is a plain call on the training thread: it reads a clock and fills a slot. Nothing waits for the device
(`marks.py`). What a hook costs is mostly the number of functions it calls with cold caches, so they call few.

Where steps begin and end, and which are looked at, is `steps.py`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass

from ..devices.protocol import Copy, Device, Event
from ..native import RecorderBase
from ..record.schema import NOT_MEASURED, STEP, PauseKind, StepFlag
from ..record.segment import RecordWriter
from .marks import Marks

SLOT = {field.name: number for number, field in enumerate(STEP.fields[1:])}
"""Where each field lies in the row of a step."""
# Looked up once: hooks run in every step.
_STEP, _SAMPLES, _FETCH_END = (SLOT[n] for n in ("step", "samples", "fetch_end_ns"))
_COPY_BEGIN, _COPY_END, _COPY_BYTES = (SLOT[n] for n in ("copy_begin_ns", "copy_end_ns", "copy_bytes"))
_FORWARD, _BACKWARD = (SLOT[n] for n in ("forward_begin_ns", "backward_begin_ns"))
_OPTIMIZER, _OPTIMIZER_END, _SYNC = (SLOT[n] for n in ("optimizer_begin_ns", "optimizer_end_ns", "sync_ns"))

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


class OpenStep(RecorderBase):
    """Fills the row of the step that is open, and records the pauses in its computation.

    Hooks may be called in any order, and as often as things happen; while no step is open that is looked at, they
    record nothing. `StepRecorder` opens and stores steps: it is this object too, so that no hook is handed on.
    """

    def __init__(self, device: Device, steps: RecordWriter, pauses: RecordWriter) -> None:
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
