"""The hook on `Tensor.to` and `Tensor.cuda`: batches on their way to the device, results on their way back."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_compiling

from ...devices.protocol import Copy, Device, Event
from ..steps import StepRecorder
from .loop import Loop
from .switch import Patches, Switch, Unexpected

ASK_PINNED_EVERY = 64
"""Copies of one shape and type after which one of them is asked again whether its memory is page-locked: it is a
question to the driver."""
MOST_SHAPES = 256


class _Under:
    """A copy to the device under way; without a mark before it, one from the device."""

    __slots__ = ("begin", "host_ns", "pinned")

    def __init__(self, host_ns: int = 0, pinned: bool = False, begin: Event | None = None) -> None:
        self.host_ns = host_ns
        self.pinned = pinned
        self.begin = begin


class CopyHook:
    """Sees the copies that a training asks tensors for, between the fetch of a batch and the next.

    A copy on a side stream is told from one between the computations. `copy_` into a tensor that is on the device
    already is not seen.
    """

    def __init__(
        self,
        loop: Loop,
        steps: StepRecorder,
        device: Device,
        switch: Switch,
        stream: Callable[[], object] | None = None,
    ) -> None:
        """`stream` tells the current stream from others; without it every copy is on the computing one."""
        self._loop = loop
        self._steps = steps
        self._device = device
        self.switch = switch
        self._stream = stream
        self._computing: object = stream() if stream is not None else None
        self._target = device.torch_device.type
        self._pinned: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
        """(copies until it is asked again, whether it is pinned)"""
        self._under = False
        self._patches = Patches()

    def install(self) -> None:
        self._patches.replace(torch.Tensor, "to", self._wrap_to, None, "cpu")
        if self._target == "cuda":
            try:
                self._patches.replace(torch.Tensor, "cuda", self._wrap_cuda, None)
                self._patches.replace(torch.cuda.Stream, "wait_event", self._wrap_wait, None, None)
            except Unexpected:
                self._patches.put_back()
                raise

    def remove(self) -> None:
        self._patches.put_back()

    def computes(self) -> None:
        """The stream that is current now is the one that computes."""
        if self._stream is not None:
            self._computing = self._stream()

    def _wrap_to(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(original, self._target_of)

    def _wrap_cuda(self, original: Callable[..., Any]) -> Callable[..., Any]:
        return self._wrap(original, lambda _args, _kwargs: "cuda")

    def _wrap(self, original: Callable[..., Any], target_of: Callable[[Any, Any], str | None]) -> Callable[..., Any]:
        loop, steps = self._loop, self._steps

        def copy(self_: Any, *args: Any, **kwargs: Any) -> Any:
            if not loop.inside or not steps.recording:
                return original(self_, *args, **kwargs)
            under = self._begins(self_, target_of, args, kwargs)
            if under is None:
                return original(self_, *args, **kwargs)
            moved = None
            try:
                moved = original(self_, *args, **kwargs)
                return moved
            finally:
                self._ends(under, self_, moved)

        return copy

    def _wrap_wait(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """The computing stream waits for another one: for a batch that was copied ahead, if a step begins with it."""
        loop, steps = self._loop, self._steps

        def wait_event(self_: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(self_, *args, **kwargs)
            if not is_compiling() and loop.inside and steps.recording and not steps.computing:
                self._waited(self_)
            return result

        return wait_event

    def _waited(self, stream: Any) -> None:
        try:
            if self._stream is None or not self.switch.on or get_ident() != self._loop.thread:
                return
            if self._stream() == self._computing == stream.cuda_stream and not self._is_capturing():
                self._steps.compute_begin()
        except Exception as error:
            self.switch.fail(error)

    def _is_capturing(self) -> bool:
        return self._loop.capturing is not None and self._loop.capturing()

    def _begins(
        self, tensor: Any, target_of: Callable[[Any, Any], str | None], args: Any, kwargs: Any
    ) -> _Under | None:
        """Whether this call copies a batch, or a result, and then what is known of it before."""
        if self._under or get_ident() != self._loop.thread or not self.switch.on:
            return None
        try:
            target = target_of(args, kwargs)
            if target is None or self._is_capturing():
                return None
            source = tensor.device.type
            if source == "cpu" and target == self._target != "cpu":
                if isinstance(tensor, torch.nn.Parameter):
                    return None
                under = _Under(self._device.now(), self._is_pinned(tensor), self._device.record())
            elif source == self._target and target == "cpu" != source and not _non_blocking(args, kwargs):
                self._steps.sync_begin()
                under = _Under()
            else:
                return None
            self._under = True
            return under
        except Exception as error:
            self.switch.fail(error)
            return None

    def _ends(self, under: _Under, tensor: Any, moved: Any) -> None:
        """It returned `moved`, `None` if it raised."""
        self._under = False
        try:
            steps = self._steps
            if under.begin is None:
                steps.sync_end()
            elif moved is None or moved.device.type != self._target:
                self._device.release(under.begin)
            else:
                ahead = self._stream is not None and self._stream() != self._computing
                end = self._device.record()
                now = self._device.now()
                steps.copied(Copy(under.host_ns, now, int(tensor.nbytes), under.pinned, ahead, under.begin, end))
                if not ahead:
                    # A copy on another stream says nothing of the one that computes, until that waits for it.
                    steps.compute_begin()
        except Exception as error:
            self.switch.fail(error)

    def _is_pinned(self, tensor: Any) -> bool:
        key = (tensor.shape, tensor.dtype)
        known = self._pinned.get(key)
        if known is None:
            if len(self._pinned) >= MOST_SHAPES:
                self._pinned.clear()
            known = self._pinned[key] = [0, 0]
        if known[0] == 0:
            known[:] = [ASK_PINNED_EVERY, bool(tensor.is_pinned())]
        known[0] -= 1
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
            return target.device.type
        # A bare number is a device of the accelerator's type.
        return self._target if isinstance(target, int) and not isinstance(target, bool) else None


def _non_blocking(args: Any, kwargs: Any) -> bool:
    if "non_blocking" in kwargs:
        return bool(kwargs["non_blocking"])
    # It comes before `copy`, the other flag.
    return next((each for each in args if isinstance(each, bool)), False)
