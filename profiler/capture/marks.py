"""The device's side of the steps: marks in its streams, read when the device has passed them.

Nothing here waits. A mark is asked whether it was reached, oldest step first, and its stamp is then patched into
the record that was stored long before. When too many steps are under way, the next ones get no marks at all.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from ..devices.protocol import Copy, Device, Event
from ..record.schema import NOT_MEASURED
from ..record.segment import RecordWriter

MAX_UNRESOLVED = 64
"""Steps whose marks may be outstanding; beyond that a step gets none, and is counted."""
RESOLVE_AT_MOST = 4
"""Steps resolved per look, so that a hook's cost is bounded."""
MOST_PAUSES = 8
"""Pauses marked within a step; later ones keep their host stamps only."""


@dataclass(slots=True)
class _Marked:
    """The marks of one step."""

    handle: int = -1
    before: Event | None = None
    """Behind everything queued earlier, where the steps before have no marks of their own."""
    begin: Event | None = None
    end: Event | None = None
    copy_begin: Event | None = None
    copy_end: Event | None = None
    pauses: list[tuple[int, Event, Event]] = field(default_factory=list)
    """(handle of the pause's record, before, after)"""

    def done(self) -> bool:
        """Whether the device has passed all of them; the copy may run on another stream than the rest."""
        return self.end is not None and self.end.done() and (self.copy_end is None or self.copy_end.done())

    def events(self) -> list[Event]:
        inside = [mark for _, *pair in self.pauses for mark in pair]
        own = (self.before, self.copy_begin, self.copy_end, self.begin, self.end)
        return [mark for mark in (*own, *inside) if mark is not None]


class Marks:
    """Marks of the steps of one training, on a device with a queue."""

    def __init__(self, device: Device, steps: RecordWriter, pauses: RecordWriter) -> None:
        self._device = device
        self._steps = steps
        self._pauses = pauses
        self._unresolved: deque[_Marked] = deque()
        self._step: _Marked | None = None
        self._before: Event | None = None
        self._last_end: Event | None = None
        self._all_marked = True
        """Whether everything queued since that end was marked as well."""
        self._ended_once = False
        self.dropped = 0
        """Steps without marks because too many were outstanding."""

    def step_begins(self) -> None:
        """A step begins."""
        self._step = _Marked()
        if not self._all_marked:
            self._last_end = self._step.before = self._device.record()
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

        False if the device is so far behind that this step gets no marks.
        """
        step = self._step
        if step is None:
            return True
        if step.begin is not None:
            self._device.release(step.begin)
        elif len(self._unresolved) >= MAX_UNRESOLVED and not self.resolve():
            self._discard(step)
            self._step = None
            self._all_marked = False
            self.dropped += 1
            return False
        step.begin = self._device.record()
        return True

    def computation_ends(self) -> None:
        """Everything of the step's computation is queued; called again, the later call counts."""
        step = self._step
        if step is None or step.begin is None:
            return
        if step.end is not None:
            self._device.release(step.end)
        self._last_end = step.end = self._device.record()
        self._all_marked = self._ended_once = True

    def copied(self, copy: Copy) -> None:
        """A batch, or a part of it, is on its way: the first part's begin and the last part's end are kept."""
        step = self._step
        if step is None or copy.begin is None or copy.end is None:
            self.release(copy)
            return
        if step.copy_begin is None:
            step.copy_begin = copy.begin
        else:
            self._device.release(copy.begin)
        if step.copy_end is not None:
            self._device.release(step.copy_end)
        step.copy_end = copy.end

    def copied_within(self, handle: int, copy: Copy) -> None:
        """As `copied`, in the midst of the computation: a pause, with record `handle`."""
        step = self._step
        if step is None or copy.begin is None or copy.end is None or len(step.pauses) >= MOST_PAUSES:
            self.release(copy)
        else:
            step.pauses.append((handle, copy.begin, copy.end))

    def release(self, copy: Copy) -> None:
        """The marks of this copy are of no use."""
        for mark in (copy.begin, copy.end):
            if mark is not None:
                self._device.release(mark)

    def pause_begins(self) -> None:
        """The host is about to wait for the device in the midst of the step's computation."""
        step = self._step
        if step is not None and step.begin is not None and len(step.pauses) < MOST_PAUSES:
            self._before = self._device.record()

    def pause_ends(self, handle: int) -> None:
        """It goes on; `handle` is the pause's record."""
        before, step = self._before, self._step
        self._before = None
        if before is not None and step is not None:
            step.pauses.append((handle, before, self._device.record()))

    def step_ends(self, handle: int) -> None:
        """The step was stored as record `handle`."""
        step, self._step = self._step, None
        if step is None:
            return
        if step.begin is not None and step.end is None:
            # Nothing said where the computation ended (no optimizer, no backward): it ends with the step.
            step.end = self._last_end = self._device.record()
            self._all_marked = self._ended_once = True
        if step.end is None:
            self._discard(step)
            return
        step.handle = handle
        self._unresolved.append(step)

    def drained(self) -> bool | None:
        """Whether the device has finished all steps so far; `None` where that cannot be told."""
        if self._last_end is not None and not self._last_end.done():
            return False
        return True if self._ended_once and self._all_marked else None

    def resolve(self) -> int:
        """Patch in the stamps of the oldest steps that the device has passed; how many."""
        resolved = 0
        while self._unresolved and resolved < RESOLVE_AT_MOST and self._unresolved[0].done():
            self._patch(self._unresolved.popleft())
            resolved += 1
        return resolved

    def resolve_all(self) -> None:
        """As `resolve`, for all that the device has passed by now."""
        while self.resolve():
            pass

    def _discard(self, step: _Marked) -> None:
        """What was marked is no step."""
        if self._last_end is not None and self._last_end in (step.before, step.end):
            self._last_end, self._all_marked = None, False
        for mark in step.events():
            self._device.release(mark)

    def _patch(self, step: _Marked) -> None:
        # A pause's stamps first: a reader that sees the step's may rely on them.
        for handle, before, after in step.pauses:
            self._pauses.patch(handle, "device_begin_ns", before.time_ns(), after.time_ns())
        stamps = (step.before, step.copy_begin, step.copy_end, step.begin, step.end)
        self._steps.patch(
            step.handle,
            "device_before_ns",
            *(NOT_MEASURED if mark is None else mark.time_ns() for mark in stamps),
        )
        if step.end is self._last_end:
            self._last_end = None
        for mark in step.events():
            self._device.release(mark)
