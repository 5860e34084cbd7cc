"""How a scenario's training is recorded: as any program is, from the hooks on torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from whyidle.capture.active import Recording, recorded
from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.protocol import Device
from whyidle.record.schema import SPAN
from whyidle.record.segment import RecordWriter


@contextlib.contextmanager
def recorded_on(device: Device, folder: Path, rank: int = 0) -> Iterator[Recording]:
    """Record what the calling thread trains on this device into a run folder; of an emulated device, beside it, what
    its engines really do.

    Raises:
        RecordError: it cannot be recorded.
    """
    with contextlib.ExitStack() as stack:
        recording = stack.enter_context(recorded(folder, device))
        if isinstance(device, EmulatedDevice):
            device.number = rank
            spans = RecordWriter(folder, SPAN, rank)
            device.sink = spans.append
            stack.callback(spans.close)
            stack.callback(setattr, device, "sink", None)
        yield recording
