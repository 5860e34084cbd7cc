"""The device's side of the steps: marks in its streams, read when the device has passed them.

Nothing here waits. A mark is asked whether it was reached, oldest step first, and its stamp is then patched into
the record that was stored long before. When too many steps are under way, the next ones get no marks at all.

A mark behind work that still runs is reached when that ends; a mark on an idle stream is reached when it arrives there,
`Device.arrival_ns` after the host put it. So a mark that is reached later than that tells that the device was at work.

A program may fetch on one stream and compute on another: marks that bound the computation are put where the last
backward pass or optimizer step was queued.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..devices.protocol import Copy, Device, Event, Stream
from ..record.schema import NOT_MEASURED, StepFlag
from ..record.segment import RecordWriter

MAX_UNRESOLVED = 64
"""Steps whose marks may be outstanding; beyond that a step gets none, and is counted."""
RESOLVE_AT_MOST = 4
"""Steps resolved per look, so that a hook's cost is bounded."""
MOST_PAUSES = 32
"""Pauses marked within a step; later ones keep their host stamps only."""


@dataclass(slots=True)
class _Marked:
    """The marks of one step."""

    handle: int = -1
    """Of its record, once that is stored."""
    flags: int = 0
    """Those that were stored."""
    before: Event | None = None
    """Behind everything queued earlier, where something was queued without marks."""
    begin: Event | None = None
    """Before all that is queued of its computation."""
    end: Event | None = None
    """Behind the last backward pass or optimizer step."""
    later: list[tuple[int, Event]] = field(default_factory=list)
    """(the host's time, the mark before it) of each pause since `end`."""
    tail: Event | None = None
    """Behind everything that was queued when the step ended."""
    ended_ns: int = 0
    """When the host put it there."""
    forward: Event | None = None
    """Where the model was called."""
    computed: bool = False
    """The training thread has run differentiable operations in this step."""
    copy_begin: Event | None = None
    copy_end: Event | None = None
    """Around the first copy of its batch."""
    leading: list[tuple[int, Event, Event]] = field(default_factory=list)
    """(the host's time, marks before and after) of each copy, wait of the stream or call of the model that comes before
    any differentiable operation."""
    pauses: list[tuple[int, Event, Event]] = field(default_factory=list)
    """(handle of its record, marks before and after) of each pause."""

    def done(self) -> bool:
        """Whether the device has passed all of them."""
        # Those of the tail's stream lie before it.
        tail = self.tail
        if tail is None or not tail.done():
            return False
        return all(mark.done() for mark in self.events() if mark.stream != tail.stream)

    def newest(self) -> Event | None:
        """The mark that was put last before the tail."""
        if self.pauses and (self.end is None or self.later):
            return self.pauses[-1][2]
        return self.end or self.begin

    def events(self) -> list[Event]:
        own = (self.before, self.copy_begin, self.copy_end, self.begin, self.forward, self.end, self.tail)
        inside = [mark for _, *pair in self.pauses for mark in pair]
        return [mark for mark in (*own, *inside) if mark is not None]


class Marks:
    """Marks of the steps of one training, on a device with a queue."""

    def __init__(self, device: Device, steps: RecordWriter, pauses: RecordWriter) -> None:
        self._device = device
        self._steps = steps
        self._pauses = pauses
        self._unresolved: deque[_Marked] = deque()
        self._step: _Marked | None = None
        self._operations = 0
        """`Device.operations` where the computation was last taken to begin."""
        self._stream: Stream = None
        """Where the last computation was queued; `None`: where the training is now."""
        self._last: Event | None = None
        """Behind all that was queued when it was put, while the device has not passed it."""
        self._may_idle = False
        """Whether the device may have had nothing to do when that was put, and just not have come to it."""
        self._synced = -1
        """`Device.operations` when a call had waited for the computing stream, and nothing was seen to be queued since;
        negative: it did not, or something was."""
        self._put_ns = 0
        """When a backward pass, an optimizer step or a pause was last marked."""
        self._all_marked = True
        """Whether a mark lies behind everything that was queued, as far as is known."""
        self._ever = False
        """Whether a step was marked to its end."""
        self.dropped = 0
        """Steps without marks because too many were outstanding."""

    def step_begins(self) -> None:
        """A step begins."""
        self._step = _Marked()
        if not self._all_marked:
            self._last = self._step.before = self._device.record(self._stream)
            self._may_idle = False
            self._all_marked = True

    def step_is_none(self) -> None:
        """The step that began does not exist."""
        if self._step is not None:
            self._discard(self._step)
            self._step = None

    def unmarked(self) -> None:
        """What is queued from here on has no marks, until the next step."""
        self._all_marked = False

    def computation_begins(self) -> bool:
        """Everything queued from here on is the step's computation; called again, the later call counts.

        Returns false if the device is so far behind that this step gets no marks.
        """
        step = self._step
        if step is None:
            return True
        if step.begin is not None:
            self._device.release(step.begin)
            step.leading.clear()
        elif len(self._unresolved) >= MAX_UNRESOLVED and not self.resolve():
            self._discard(step)
            self._step = None
            self._all_marked = False
            self.dropped += 1
            return False
        self._synced = -1
        self._operations = self._device.operations()
        step.begin = self._device.record(self._stream)
        return True

    def forward_mark(self) -> Event | None:
        """A mark where the model is called; `None` where it would tell nothing: the step has no marks, or has begun to
        compute."""
        step = self._step
        if step is None or step.begin is None or step.forward is not None or step.computed:
            return None
        return self._device.record(self._stream)

    def forward_begins(self, host_ns: int, mark: Event) -> None:
        """The model was called there, at `host_ns`: a device that idled as the mark arrived began to compute there."""
        step = self._step
        if step is None or step.begin is None or step.forward is not None:
            self._device.release(mark)
            return
        step.forward = mark
        step.leading.append((host_ns, mark, mark))

    def computation_ends(self) -> None:
        """A backward pass or an optimizer step is queued; called again, the later call counts."""
        step = self._step
        if step is not None and step.begin is not None:
            if step.end is not None:
                self._device.release(step.end)
            step.computed = True
            step.later.clear()
            step.end = self._device.record()
            self._stream = step.end.stream
            self._put_ns, self._synced = self._device.now(), -1

    def first_copy(self, copy: Copy) -> None:
        """The batch, or its first part, is on its way."""
        step = self._step
        if step is None or copy.begin is None or copy.end is None:
            self.release(copy)
            return
        step.copy_begin, step.copy_end = copy.begin, copy.end
        if not copy.ahead:
            self._leads(step, copy.host_begin_ns, copy.begin, copy.end)

    def copied(self, handle: int, copy: Copy) -> None:
        """A further part, or a copy in the midst of the computation; `handle` is its record."""
        step = self._step
        if step is None or copy.begin is None or copy.end is None or len(step.pauses) >= MOST_PAUSES:
            self.release(copy)
            return
        step.pauses.append((handle, copy.begin, copy.end))
        if not copy.ahead:
            self._leads(step, copy.host_begin_ns, copy.begin, copy.end)

    def release(self, copy: Copy) -> None:
        """The marks of this copy are of no use."""
        for mark in (copy.begin, copy.end):
            if mark is not None:
                self._device.release(mark)

    def pause_begins(self) -> Event | None:
        """A mark before a pause in the step's computation; `None` if there can be none."""
        step = self._step
        if step is None or step.begin is None or len(step.pauses) >= MOST_PAUSES:
            return None
        before = self._device.record()
        if step.end is not None:
            step.later.append((self._device.now(), before))
        return before

    def pause_ends(self, handle: int, before: Event | None, leads_from_ns: int = 0) -> None:
        """The pause is over; `handle` is its record. `leads_from_ns`: when it began, if what follows it may be the
        begin of the computation."""
        step = self._step
        if before is None:
            return
        if step is None:
            self._device.release(before)
            return
        after = self._device.record()
        step.pauses.append((handle, before, after))
        self._put_ns = self._device.now()
        if leads_from_ns:
            self._leads(step, leads_from_ns, before, after)
        else:
            self._synced = self._device.operations()

    def begun(self) -> bool:
        """Whether the step that is open has begun to compute, or gets no marks."""
        return self._step is None or self._step.begin is not None

    def step_ends(self, handle: int, flags: int, now: int) -> None:
        """The step was stored as record `handle`."""
        step, self._step = self._step, None
        if step is None:
            return
        if step.begin is None:
            self._discard(step)
            return
        step.computed |= self._device.operations() != self._operations
        step.handle, step.flags, step.ended_ns = handle, flags, now
        # The newest mark may be on its way still, on a device that idles: then an older one tells.
        arrived = self._device.now() - self._put_ns >= self._device.arrival_ns()
        told = step.newest() if arrived else step.begin
        self._may_idle = told is None or told.done()
        if self._device.operations() != self._synced:
            self._synced = -1
        self._last = step.tail = self._device.record(self._stream)
        self._all_marked = self._ever = True
        self._unresolved.append(step)

    def finish(self, settle_ns: int) -> int | None:
        """The training is over: wait a little for what is queued, and resolve that.

        Returns when the device was done with everything; `None` if it is not.
        """
        if self._device.captures():
            return None  # nothing that is queued now runs
        done = self._device.record(self._stream)
        self._device.settle(done, settle_ns)
        self.resolve_all()
        done_ns = done.time_ns() if done.done() else None
        self._device.release(done)
        return done_ns

    def drained(self) -> bool | None:
        """Whether the device has finished all steps so far; `None` where that cannot be told."""
        if self._last is not None and not self._last.done():
            return True if self._synced >= 0 else None if self._may_idle else False
        return True if self._ever and self._all_marked else None

    def resolve(self) -> int:
        """Patch stamps into the records of the oldest steps that the device has passed. Returns of how many."""
        resolved = 0
        unresolved = self._unresolved
        while unresolved and resolved < RESOLVE_AT_MOST and unresolved[0].done():
            self._patch(unresolved.popleft())
            resolved += 1
        return resolved

    def resolve_all(self) -> None:
        """As `resolve`, for all that the device has passed by now."""
        while self.resolve():
            pass

    def _leads(self, step: _Marked, host_begin_ns: int, before: Event, after: Event) -> None:
        """The computation may begin behind this, if nothing was computed in the step before it."""
        if step.begin is not None and not step.computed:
            if self._device.operations() != self._operations:
                step.computed = True
            else:
                step.leading.append((host_begin_ns, before, after))

    def _discard(self, step: _Marked) -> None:
        """Give back the marks of a step that gets no stamps."""
        if step.before is not None and step.before is self._last:
            self._last, self._all_marked = None, False
        for mark in step.events():
            self._device.release(mark)

    def _patch(self, step: _Marked) -> None:
        """Write what the device says of a step into the records of the step and of its pauses."""
        # A pause's stamps first: a reader that sees the step's may rely on them.
        for handle, before, after in step.pauses:
            self._pauses.patch(handle, "device_begin_ns", before.time_ns(), after.time_ns())
        begin, end = self._computation(step)
        if begin == NOT_MEASURED:
            self._steps.patch(step.handle, "flags", step.flags | StepFlag.COMPUTED_NOTHING)
        stamps = [NOT_MEASURED if m is None else m.time_ns() for m in (step.before, step.copy_begin, step.copy_end)]
        self._steps.patch(step.handle, "device_before_ns", *stamps, begin, end)
        if step.tail is self._last:
            self._last = None
        for mark in step.events():
            self._device.release(mark)

    def _computation(self, step: _Marked) -> tuple[int, int]:
        """When the step's computation began and ended on the device; not measured if there was none."""
        assert step.begin is not None
        assert step.tail is not None
        begin = step.begin.time_ns()
        arrival_ns = self._device.arrival_ns()
        for host_begin, before, after in step.leading:
            if before.time_ns() - max(begin, host_begin) > arrival_ns:
                break  # The device was at work when this came: the computation had begun.
            begin = after.time_ns()
        end = begin if step.end is None else step.end.time_ns()
        found = step.end is not None
        for host, mark in (*step.later, (step.ended_ns, step.tail)):
            if mark.time_ns() - max(end, host) > arrival_ns:
                end, found = mark.time_ns(), True  # Something was queued behind the last thing that was seen.
        if found:
            return begin, end
        return (begin, step.tail.time_ns()) if step.computed else (NOT_MEASURED, NOT_MEASURED)
