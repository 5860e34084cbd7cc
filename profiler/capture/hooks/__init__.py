"""Observes an unchanged training loop in this process: `install(session, device)`, then `remove()`."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable
from typing import Protocol

import torch

from ...devices.protocol import Device
from ..session import Session
from .boundary import SaveHook
from .compiled import leave_uncompiled
from .copies import CopyHook
from .learning import BackwardHook, OptimizerHook
from .loader import LoaderHook
from .loop import Loop
from .stream_waits import StreamWaitHook
from .streams import Streams
from .switch import Switch, Unexpected
from .syncs import SyncHook

__all__ = ["Hooks", "install"]


class _Hook(Protocol):
    switch: Switch

    def install(self) -> None: ...
    def remove(self) -> None: ...


class Hooks:
    """The hooks of one recording."""

    def __init__(self, loop: Loop, hooks: list[_Hook]) -> None:
        self._loop = loop
        self._hooks = hooks
        self._removed = False

    @property
    def off(self) -> list[str]:
        """What is not observed, for lack of something to hook or after an error of ours."""
        return [hook.switch.name for hook in self._hooks if not hook.switch.on]

    def remove(self) -> None:
        """End the step that is open, and put everything back as it was. Safe to call twice, and to call late."""
        if self._removed:
            return
        self._removed = True
        if self._loop.thread:
            with contextlib.suppress(Exception):
                self._loop.finish()
        self._loop.forked()
        for hook in reversed(self._hooks):
            hook.switch.on = False
            with contextlib.suppress(Exception):
                hook.remove()


def install(session: Session, device: Device) -> Hooks:
    """Hook into torch. The calling thread is taken for the one that trains."""
    loop = Loop(session, device.now)
    steps = session.steps

    def switch(name: str, without: str) -> Switch:
        return Switch(name, without, session.notice)

    loading = LoaderHook(
        loop,
        steps,
        device.now,
        Switch("torch's DataLoader", "no steps are recorded from there on", session.notice, loop.give_up),
        session.notice,
    )
    saving = SaveHook(loop, switch("torch.save", "checkpoints count as time of the host"))
    loading.on_iter = saving.look_for_late_ones
    hooks: list[_Hook] = [
        loading,
        BackwardHook(loop, steps, switch("torch.autograd.backward", "the backward pass is not told from the rest")),
        OptimizerHook(loop, steps, switch("optimizers", "optimizer steps are not seen")),
        saving,
    ]
    if device.torch_device.type == "cuda":
        loop.capturing = torch.cuda.is_current_stream_capturing
    if device.asynchronous:
        streams = Streams(_stream_of(device))
        loop.on_learning = streams.computes
        hooks += [
            CopyHook(loop, steps, device, switch("Tensor.to", "copies to the device are not seen"), streams),
            SyncHook(loop, steps, device, switch("calls that wait for the device", "such waits are not seen"), streams),
        ]
        if device.torch_device.type == "cuda":
            without = "the device's waits for copies ahead count as compute"
            hooks.append(StreamWaitHook(loop, steps, switch("torch.cuda.Stream.wait_event", without), streams))
    for hook in hooks:
        try:
            hook.install()
        except Unexpected as missing:
            _leave_out(hook, str(missing))
        except Exception as error:
            _leave_out(hook, f"{type(error).__name__}: {error}")
    with contextlib.suppress(Exception):
        leave_uncompiled()
    _forget_in_children(loop)
    return Hooks(loop, hooks)


def _leave_out(hook: _Hook, why: str) -> None:
    hook.switch.stay_out(why)
    with contextlib.suppress(Exception):
        hook.remove()


def _stream_of(device: Device) -> Callable[[], object] | None:
    """Tells the current stream of a CUDA device, at a tenth of what a `torch.cuda.Stream` costs."""
    ask = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    index = device.torch_device.index
    if device.torch_device.type != "cuda" or ask is None or index is None:
        return None
    return lambda: ask(index)


def _forget_in_children(loop: Loop) -> None:
    """Forked children, as the loader's workers, inherit the hooks but must not write into the recording."""
    known = weakref.ref(loop)

    def in_child() -> None:
        inherited = known()
        if inherited is not None:
            inherited.forked()

    os.register_at_fork(after_in_child=in_child)
