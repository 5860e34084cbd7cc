"""The hook on calls that wait for the device."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ...devices.protocol import Device
from ..steps import StepRecorder
from .loop import Loop
from .streams import Streams
from .switch import Patches, Switch, Unexpected
from .tensors import device_of

READING = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
"""Methods of a tensor that need its values on the host."""


class SyncHook:
    """Wraps the calls that a training waits in: methods of tensors on the device, and the explicit ones.

    What waits inside torch is not seen: `nonzero`, indexing with a mask, printing a tensor.
    """

    def __init__(self, loop: Loop, steps: StepRecorder, device: Device, switch: Switch, streams: Streams) -> None:
        self._loop = loop
        self._steps = steps
        self._target = device.torch_device.type
        self.switch = switch
        self._streams = streams
        self._patches = Patches()

    def install(self) -> None:
        try:
            for name in READING:
                self._patches.replace(torch.Tensor, name, self._wrap_reading, None)
            if self._target == "cuda":
                self._patches.replace(torch.cuda, "synchronize", self._wrap_waiting)
                self._patches.replace(torch.cuda.Stream, "synchronize", self._wrap_waiting, None)
                self._patches.replace(torch.cuda.Event, "synchronize", self._wrap_waiting, None)
        except Unexpected:
            self._patches.put_back()
            raise

    def remove(self) -> None:
        self._patches.put_back()

    def _wrap_reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(original, reads=True)

    def _wrap_waiting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(original, reads=False)

    def _wrap(self, original: Callable[..., Any], reads: bool) -> Callable[..., Any]:
        """`reads`: the call's first argument is the tensor that is read."""
        loop, steps = self._loop, self._steps

        def waits(*args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling() or not loop.inside or not steps.recording:
                return original(*args, **kwargs)
            if not self._begins(args[0] if reads else None):
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                self._ends()

        return waits

    def _begins(self, tensor: Any) -> bool:
        """Whether this call waits for the device; `tensor` is what is read, `None` for explicit waits."""
        loop = self._loop
        if not self.switch.on or get_ident() != loop.thread:
            return False
        try:
            if tensor is not None and device_of(tensor) != self._target:
                return False
            if loop.capturing is not None and loop.capturing():
                return False
            self._steps.sync_begin(self._streams.aside())
            return True
        except Exception as error:
            self.switch.fail(error)
            return False

    def _ends(self) -> None:
        try:
            self._steps.sync_end()
        except Exception as error:
            self.switch.fail(error)
