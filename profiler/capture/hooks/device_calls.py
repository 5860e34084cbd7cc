"""The hooks on what a training asks a device with a queue for: copies, and waits of the host or of a stream.

Batches are on their way to the device, results on their way back. Programs that are written against `devices.protocol`
ask a device of ours what others ask torch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Copy, Device, Event
from .loop import Loop
from .parts import ask_pinned, device_of, has_plain_memory, is_on, shape_of
from .wrap import Hook


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


class DeviceHook(Hook):
    """Sees what a training asks a device with a queue for, in the midst of a step that is looked at."""

    def __init__(self, loop: Loop, device: Device, streams: Streams) -> None:
        super().__init__(loop, loop.in_step)
        self._device, self._streams = device, streams
        self._on = device.torch_device


class OwnDeviceHook(DeviceHook):
    """Sees the copies that a program asks a device of ours for, and the waits for them.

    What an emulated device is asked, only it knows of. Of a CUDA device the hooks on torch see the same, but for copies
    begun within a fetch: those are told when the computing stream is to wait for them.
    """

    name, without = "whyidle's own device", "direct calls to it are not recorded"

    def __init__(self, loop: Loop, device: Device, streams: Streams) -> None:
        super().__init__(loop, device, streams)
        self._emulated = isinstance(device, EmulatedDevice)
        self._seen: Copy | None = None
        """The last copy that began within a step."""

    def install(self) -> None:
        self.around(self._device, "copy", lambda *_args, **_kwargs: True, self._copied, ())
        self.around(self._device, "wait_for", self._wait_begins, self._wait_ends, None, ())
        if self._emulated:
            self.around(self._device, "synchronize", self._sync_begins, lambda *_: self._steps.sync_end())

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


ASK_PINNED_EVERY = 64
"""Copies of one shape and type after which one of them is asked again whether its memory is page-locked: it is a
question to the driver."""
MOST_SHAPES = 256


@dataclass(slots=True)
class _Under:
    """A copy to the device under way; without a mark before it, one from the device."""

    nbytes: int = 0
    pinned: bool = False
    host_ns: int = 0
    begin: Event | None = None


class CopyHook(DeviceHook):
    """Sees the copies that a training asks tensors for, between the fetch of a batch and the next.

    A copy on a side stream is told from one between the computations. A tensor that is not one block of memory is not
    seen: a sparse or a nested one, say.
    """

    name, without = "Tensor.to", "copies to the device are not recorded"

    def __init__(self, loop: Loop, device: Device, streams: Streams) -> None:
        super().__init__(loop, device, streams)
        self._target = device.torch_device.type
        self._pinned: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
        """[copies until it is asked again, whether it is pinned]"""

    def install(self) -> None:
        self.around(torch.Tensor, "to", self._to_begins, self._ends, None, "cpu")
        if self._target == "cuda":
            self.around(torch.Tensor, "cuda", self._cuda_begins, self._ends, None)
            self.around(torch.Tensor, "copy_", self._copy_begins, self._ends, None, None)

    def _to_begins(self, tensor: Any, *args: Any, **kwargs: Any) -> _Under | None:
        target = self._target_of(args, kwargs)
        return None if target is None else self._begins(tensor, target, _non_blocking(args, kwargs))

    def _cuda_begins(self, tensor: Any, *_args: Any, **_kwargs: Any) -> _Under | None:
        return self._begins(tensor, "cuda", False)

    def _copy_begins(self, target: Any, source: Any, non_blocking: bool = False) -> _Under | None:
        return self._begins(source, device_of(target), non_blocking) if isinstance(source, torch.Tensor) else None

    def _begins(self, tensor: Any, target: str, non_blocking: bool) -> _Under | None:
        """Whether this call copies a batch, or a result, and then what is known of it before."""
        if self._loop.captures():
            return None
        source = device_of(tensor)
        if source == "cpu" and target == self._target != "cpu":
            if isinstance(tensor, torch.nn.Parameter) or not has_plain_memory(tensor):
                return None
            shape, dtype, nbytes = shape_of(tensor)
            under = _Under(nbytes, self._is_pinned(tensor, shape, dtype), self._device.now())
            under.begin = self._device.record()
        elif target == "cpu" != source and not non_blocking and is_on(tensor, self._on):
            self._steps.sync_begin(self._streams.aside())
            under = _Under()
        else:
            return None
        return under

    def _ends(self, under: _Under, moved: Any) -> None:
        """It returned `moved`, `None` if it raised."""
        begin, end = under.begin, None
        if begin is None:
            self._steps.sync_end()
            return
        try:
            if moved is not None:
                # To another device than the training's: the call alone is told.
                here = is_on(moved, self._on)
                end = self._device.record() if here else None
                now, aside = self._device.now(), here and self._streams.aside()
                copy = Copy(under.host_ns, now, under.nbytes, under.pinned, aside, begin if here else None, end)
                if here:
                    begin = end = None  # the recorder keeps the marks, or gives them back
                self._steps.copied(copy)
        finally:
            for mark in (begin, end):
                if mark is not None:
                    self._device.release(mark)

    def _is_pinned(self, tensor: Any, shape: torch.Size, dtype: torch.dtype) -> bool:
        key = (shape, dtype)
        known = self._pinned.get(key)
        if known is None:
            if len(self._pinned) >= MOST_SHAPES:
                self._pinned.clear()
            known = self._pinned[key] = [0, 0]
        if known[0] == 0:
            answer = ask_pinned(tensor)
            if answer is not None:
                known[:] = [ASK_PINNED_EVERY, answer]
        known[0] = max(0, known[0] - 1)
        return bool(known[1])

    def _target_of(self, args: Any, kwargs: Any) -> str | None:
        """The type of device that `Tensor.to` is asked for; `None` if it only converts."""
        target = args[0] if args else kwargs.get("device")
        if target is None:
            target = kwargs.get("other")
        if isinstance(target, torch.device):
            return target.type
        if isinstance(target, str):
            return target.partition(":")[0]
        if isinstance(target, torch.Tensor):
            return device_of(target)
        # A bare number is a device of the accelerator's type.
        return self._target if isinstance(target, int) and not isinstance(target, bool) else None


def _non_blocking(args: Any, kwargs: Any) -> bool:
    if "non_blocking" in kwargs:
        return bool(kwargs["non_blocking"])
    # It comes before `copy`, the other flag.
    return next((each for each in args if isinstance(each, bool)), False)


READING = ("item", "tolist", "cpu", "numpy", "__float__", "__int__", "__bool__")
"""Methods of a tensor that need its values on the host."""


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
