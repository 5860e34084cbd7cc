"""The hook on a device of ours: programs that are written against `devices.protocol` ask it what others ask torch."""

from __future__ import annotations

from typing import Any

from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Copy, Device
from ..steps import StepRecorder
from .loop import Loop
from .switch import Switch
from .wrap import Wraps


class DeviceHook:
    """Sees the copies that such a program makes, and the waits for them.

    What an emulated device is asked, only it knows of. Of a CUDA device the hooks on torch see the same, but for copies
    begun within a fetch: those are told when the computing stream is to wait for them.
    """

    def __init__(self, loop: Loop, steps: StepRecorder, device: Device, switch: Switch) -> None:
        self._steps = steps
        self._device = device
        self._emulated = isinstance(device, EmulatedDevice)
        self.switch = switch
        self._wraps = Wraps(switch, loop.in_step)
        self._seen: Copy | None = None
        """The last copy that began within a step."""

    def install(self) -> None:
        self._wraps.around(self._device, "copy", self._copies, self._copied, ())
        self._wraps.around(self._device, "wait_for", self._wait_begins, self._wait_ends, None, ())
        if self._emulated:
            self._wraps.around(self._device, "synchronize", self._sync_begins, self._sync_ends)

    def remove(self) -> None:
        self._wraps.put_back()

    def _copies(self, *_args: Any, **_kwargs: Any) -> bool:
        return True

    def _copied(self, _began: bool, returned: Any) -> None:
        if returned is not None:
            self._seen = copy = returned[1]
            if self._emulated:
                self._steps.copied(copy)

    def _wait_begins(self, copy: Copy, _tensors: Any) -> bool:
        if copy.ahead and copy is not self._seen:
            self._steps.copied(copy)
        if self._emulated:
            self._steps.stream_wait_begin()
        return self._emulated

    def _wait_ends(self, marked: bool, _returned: None) -> None:
        if marked:
            self._steps.stream_wait_end()

    def _sync_begins(self, *_args: Any) -> bool:
        self._steps.sync_begin()
        return True

    def _sync_ends(self, _began: bool, _returned: None) -> None:
        self._steps.sync_end()
