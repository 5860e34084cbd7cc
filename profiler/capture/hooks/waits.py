"""The hooks on waits: of the host for the device, and of one stream for another.

The hook on checkpoints: what is neither a step nor a wait for data. Which stream of the device the training
computes on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from threading import get_ident
from types import ModuleType
from typing import Any

import torch

from ...devices.protocol import Device
from .loop import Loop
from .parts import is_on
from .wrap import Hook, Unexpected


class Streams:
    """Compares the current stream with the one that was current when the training last learnt something."""

    def __init__(self, current: Callable[[], object] | None = None) -> None:
        """`current` tells the current stream from others; without it there is only the computing one."""
        self._current = current
        self._computing: object = current() if current is not None else None

    def computes(self) -> None:
        """The stream that is current now is the one that computes."""
        if self._current is not None:
            self._computing = self._current()

    def aside(self) -> bool:
        """Whether the current stream is another one than the computing one."""
        return self._current is not None and self._current() != self._computing

    def is_computing(self, stream: object) -> bool:
        """Whether `stream` (`None`: the current one) computes, and is the current one: a mark set now lies in it."""
        current = None if self._current is None else self._current()
        return current is not None and current == self._computing and stream in (None, current)


_DISTRIBUTED = "torch.distributed.checkpoint"


class SaveHook(Hook):
    """Wraps `torch.save`, and `save` and `async_save` of torch's distributed checkpoints once they are imported.

    A checkpoint between a step's fetch and its computation leaves the step open; elsewhere it ends the step.
    """

    name, without = "torch.save", "checkpoints count as host time"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, self._may_be_one)

    def install(self) -> None:
        same = torch.save is torch.serialization.save
        self.around(torch, "save", self._begins, self._ends, None, None)
        if same:
            # The same function under both names: what is pickled by name must be found by it.
            wrapped = torch.save
            self.replace(torch.serialization, "save", lambda _original: wrapped, None, None)
        # Seldom imported by now.
        self.imports.when(_DISTRIBUTED, self._distributed)

    def _distributed(self, module: ModuleType) -> None:
        with contextlib.suppress(Unexpected):
            for name in ("save", "async_save"):
                self.around(module, name, self._begins, self._ends, None)

    def _may_be_one(self) -> bool:
        # One within a fetch is a matter of the loader.
        return not self._loop.fetching and get_ident() == self._loop.thread

    def _begins(self, *_args: Any, **_kwargs: Any) -> tuple[bool, int]:
        """Whether this is a boundary of its own, and when it began."""
        return self._loop.boundary_begins(), self._now()

    def _ends(self, begun: tuple[bool, int], _returned: Any) -> None:
        bounds, begin_ns = begun
        self._loop.saved(begin_ns)
        if bounds:
            self._loop.happens(self._loop.end_boundary)


READING = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
"""Methods of a tensor that need its values on the host."""


class DeviceHook(Hook):
    """Sees what a training asks a device with a queue for, in the midst of a step that is looked at."""

    def __init__(self, loop: Loop, device: Device, streams: Streams) -> None:
        super().__init__(loop, loop.in_step)
        self._device, self._streams = device, streams
        self._on = device.torch_device


class SyncHook(DeviceHook):
    """Wraps the calls that a training waits in: methods of tensors on the device, and the explicit ones.

    What waits inside torch is not seen: `nonzero`, indexing with a mask, printing a tensor.
    """

    name, without = "calls that wait for the device", "such waits are not recorded"

    def install(self) -> None:
        for name in READING:
            self.around(torch.Tensor, name, self._reads, self._ends, None)
        if self._on.type == "cuda":
            self.around(torch.cuda, "synchronize", self._waits, self._ends)
            self.around(torch.cuda.Stream, "synchronize", self._waits, self._ends, None)
            self.around(torch.cuda.Event, "synchronize", self._waits, self._ends, None)
            self.around(torch.accelerator, "synchronize", self._waits, self._ends)

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


class StreamWaitHook(DeviceHook):
    """Sees the computing stream being told to wait for another one: for a batch that was copied ahead, say."""

    name, without = "torch.cuda.Event.wait", "the device's waits for copies ahead count as compute"

    def install(self) -> None:
        # Which `Stream.wait_event` and `wait_stream` call as well.
        self.around(torch.cuda.Event, "wait", self._begins, self._ends, None)

    def _begins(self, _event: Any, stream: Any = None) -> bool | None:
        waits = None if stream is None else stream.cuda_stream
        if not self._streams.is_computing(waits) or self._loop.captures():
            return None
        self._steps.stream_wait_begin()
        return True

    def _ends(self, _began: bool, _returned: Any) -> None:
        self._steps.stream_wait_end()
