"""The hook on `Tensor.to` and `Tensor.cuda`: batches on their way to the device, results on their way back."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ...devices.protocol import Copy, Device, Event
from ..steps import StepRecorder
from .loop import Loop
from .streams import Streams
from .switch import Patches, Switch, Unexpected
from .tensors import ask_pinned, device_of, has_plain_memory, shape_of

ASK_PINNED_EVERY = 64
"""Copies of one shape and type after which one of them is asked again whether its memory is page-locked: it is a
question to the driver."""
MOST_SHAPES = 256


class _Under:
    """A copy to the device under way; without a mark before it, one from the device."""

    __slots__ = ("begin", "host_ns", "nbytes", "pinned")

    def __init__(self, nbytes: int = 0, pinned: bool = False, host_ns: int = 0, begin: Event | None = None) -> None:
        self.nbytes = nbytes
        self.pinned = pinned
        self.host_ns = host_ns
        self.begin = begin


class CopyHook:
    """Sees the copies that a training asks tensors for, between the fetch of a batch and the next.

    A copy on a side stream is told from one between the computations. `copy_` into a tensor that is on the device
    already is not seen, nor is a tensor that is not one block of memory: sparse or nested, say.
    """

    def __init__(self, loop: Loop, steps: StepRecorder, device: Device, switch: Switch, streams: Streams) -> None:
        self._loop = loop
        self._steps = steps
        self._device = device
        self.switch = switch
        self._streams = streams
        self._target = device.torch_device.type
        self._pinned: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
        """[copies until it is asked again, whether it is pinned]"""
        self._under = False
        self._patches = Patches()

    def install(self) -> None:
        self._patches.replace(torch.Tensor, "to", self._wrap_to, None, "cpu")
        if self._target == "cuda":
            try:
                self._patches.replace(torch.Tensor, "cuda", self._wrap_cuda, None)
            except Unexpected:
                self._patches.put_back()
                raise

    def remove(self) -> None:
        self._patches.put_back()

    def _wrap_to(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(original, self._target_of)

    def _wrap_cuda(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(original, lambda _args, _kwargs: "cuda")

    def _wrap(self, original: Callable[..., Any], target_of: Callable[[Any, Any], str | None]) -> Callable[..., Any]:
        loop, steps = self._loop, self._steps

        def copy(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if is_dynamo_compiling() or not loop.inside or not steps.recording:
                return original(self_, *args, **kwargs)
            under = self._begins(self_, target_of, args, kwargs)
            if under is None:
                return original(self_, *args, **kwargs)
            moved = None
            try:
                moved = original(self_, *args, **kwargs)
                return moved
            finally:
                self._ends(under, moved)

        return copy

    def _begins(
        self, tensor: Any, target_of: Callable[[Any, Any], str | None], args: Any, kwargs: Any
    ) -> _Under | None:
        """Whether this call copies a batch, or a result, and then what is known of it before."""
        if self._under or get_ident() != self._loop.thread or not self.switch.on:
            return None
        try:
            target = target_of(args, kwargs)
            if target is None or (self._loop.capturing is not None and self._loop.capturing()):
                return None
            source = device_of(tensor)
            if source == "cpu" and target == self._target != "cpu":
                if isinstance(tensor, torch.nn.Parameter) or not has_plain_memory(tensor):
                    return None
                shape, dtype, nbytes = shape_of(tensor)
                under = _Under(nbytes, self._is_pinned(tensor, shape, dtype), self._device.now())
                under.begin = self._device.record()
            elif source == self._target and target == "cpu" != source and not _non_blocking(args, kwargs):
                self._steps.sync_begin(self._streams.aside())
                under = _Under()
            else:
                return None
            self._under = True
            return under
        except Exception as error:
            self.switch.fail(error)
            return None

    def _ends(self, under: _Under, moved: Any) -> None:
        """It returned `moved`, `None` if it raised."""
        self._under = False
        begin, end = under.begin, None
        try:
            if begin is None:
                self._steps.sync_end()
                return
            if moved is not None and device_of(moved) == self._target:
                end = self._device.record()
                copy = Copy(
                    under.host_ns, self._device.now(), under.nbytes, under.pinned, self._streams.aside(), begin, end
                )
                # The recorder keeps the marks, or gives them back.
                begin = end = None
                self._steps.copied(copy)
        except Exception as error:
            self.switch.fail(error)
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
