"""The hooks on waits: of the host for the device, and of one stream for another."""

from __future__ import annotations

from typing import Any

import torch

from ...devices.protocol import Device
from ..steps import StepRecorder
from .loop import Loop
from .streams import Streams
from .switch import Switch
from .tensors import is_on
from .wrap import Wraps

READING = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
"""Methods of a tensor that need its values on the host."""


class SyncHook:
    """Wraps the calls that a training waits in: methods of tensors on the device, and the explicit ones.

    What waits inside torch is not seen: `nonzero`, indexing with a mask, printing a tensor.
    """

    def __init__(self, loop: Loop, steps: StepRecorder, device: Device, switch: Switch, streams: Streams) -> None:
        self._loop = loop
        self._steps = steps
        self._on = device.torch_device
        self.switch = switch
        self._streams = streams
        self._wraps = Wraps(switch, loop.in_step)

    def install(self) -> None:
        for name in READING:
            self._wraps.around(torch.Tensor, name, self._reads, self._ends, None)
        if self._on.type == "cuda":
            self._wraps.around(torch.cuda, "synchronize", self._waits, self._ends)
            self._wraps.around(torch.cuda.Stream, "synchronize", self._waits, self._ends, None)
            self._wraps.around(torch.cuda.Event, "synchronize", self._waits, self._ends, None)
            if hasattr(torch, "accelerator"):  # since 2.6
                self._wraps.around(torch.accelerator, "synchronize", self._waits, self._ends)

    def remove(self) -> None:
        self._wraps.put_back()

    def _reads(self, tensor: Any, *_args: Any, **_kwargs: Any) -> bool | None:
        return self._waits() if is_on(tensor, self._on) else None

    def _waits(self, *_args: Any, **_kwargs: Any) -> bool | None:
        """A call begins that waits for the device."""
        if self._loop.captures():
            return None
        self._steps.sync_begin(self._streams.aside())
        return True

    def _ends(self, _began: bool, _returned: Any) -> None:
        self._steps.sync_end()


class StreamWaitHook:
    """Sees the computing stream being told to wait for another one: for a batch that was copied ahead, say."""

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch, streams: Streams) -> None:
        self._loop = loop
        self._steps = steps
        self.switch = switch
        self._streams = streams
        self._wraps = Wraps(switch, loop.in_step)

    def install(self) -> None:
        # Which `Stream.wait_event` and `wait_stream` call as well.
        self._wraps.around(torch.cuda.Event, "wait", self._begins, self._ends, None)

    def remove(self) -> None:
        self._wraps.put_back()

    def _begins(self, _event: Any, stream: Any = None) -> bool | None:
        waits = None if stream is None else stream.cuda_stream
        if not self._streams.is_computing(waits) or self._loop.captures():
            return None
        self._steps.stream_wait_begin()
        return True

    def _ends(self, _began: bool, _returned: Any) -> None:
        self._steps.stream_wait_end()
