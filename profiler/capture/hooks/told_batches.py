"""How batches were made, where the program says that itself: `whyidle.watch(…, made=…)`."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable
from typing import Any, TypeAlias

from ...record.schema import BATCH, NOT_MEASURED
from ..loop_detector.loaders import Part
from ..session import Session
from .loop import Loop
from .switch import Switch

Telling: TypeAlias = Callable[[Any], Any]
"""From a batch to its `whyidle.MadeBatch`, or `None` where that is not known."""

_SLOT = {field.name: number for number, field in enumerate(BATCH.fields[1:])}
_TOLD = (
    *("worker", "begin_ns", "end_ns", "read_ns", "decode_ns", "transform_ns", "collate_ns"),
    *("cpu_ns", "minor_faults", "read_bytes", "batch_bytes", "threads"),
)
"""Fields of a batch's record that a `MadeBatch` has."""


class ToldBatches:
    """Records the batches of steps as the program says that they were made.

    Whether a fetch belongs to a step is sure only when the next one begins: its record is stored then.
    """

    def __init__(self, session: Session, loop: Loop, switch: Switch) -> None:
        self.switch = switch
        self.under_way = False
        """A fetch is under way whose batch is told of: whatever makes batches within it records nothing."""
        self._session = session
        self._loop = loop
        self._pid = os.getpid()
        self._pending: array[int] | None = None

    def install(self) -> None:
        """Nothing is replaced for it."""

    def remove(self) -> None:
        """The recording ends, all steps are stored."""
        self.store(last=True)

    def handed_over(self, batch: Any, samples: int, tells: Telling) -> None:
        """A batch came that `tells` knows."""
        steps = self._session.steps
        if not self.switch.on or not steps.recording or self._loop.part is Part.NOTHING:
            return
        begin = self._session.device.now()
        try:
            made = tells(batch)
            if made is None:
                return
            row = array("q", (NOT_MEASURED for _ in BATCH.fields[1:]))
            row[_SLOT["step"]], row[_SLOT["samples"]] = steps.count - 1, samples
            for name in _TOLD:
                value = getattr(made, name)
                if value is not None:
                    row[_SLOT[name]] = value
            self._pending = row
        except Exception as error:
            self.switch.fail(error)
        finally:
            steps.add_overhead(self._session.device.now() - begin)

    def store(self, last: bool = False) -> None:
        """Store the record that waits, unless its step was taken back. `last`: no step is open."""
        row, self._pending = self._pending, None
        if row is None or os.getpid() != self._pid:
            return
        if row[_SLOT["step"]] < self._session.steps.count - (0 if last else 1):
            try:
                self._session.made(row)
            except Exception as error:
                self.switch.fail(error)
