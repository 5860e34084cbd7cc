"""The hooks on what only a training does: the backward pass and the optimizer's step."""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.optim import optimizer as torch_optimizer

from ..steps import StepRecorder
from .loop import Loop
from .switch import Patches, Switch, Unexpected


class BackwardHook:
    """Wraps `torch.autograd.backward`, which `Tensor.backward` looks up at each call. The outermost pass counts.

    On a GPU nested passes, as of checkpointed segments, run on threads of the autograd engine.
    """

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch) -> None:
        self._loop = loop
        self._steps = steps
        self.switch = switch
        self._patches = Patches()
        self._within = False

    def install(self) -> None:
        self._patches.replace(torch.autograd, "backward", self._wrap, None)

    def remove(self) -> None:
        self._patches.put_back()

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        switch = self.switch

        def backward(*args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not switch.on or not self._begins():
                return original(*args, **kwargs)
            try:
                return original(*args, **kwargs)
            finally:
                self._ends()

        return backward

    def _begins(self) -> bool:
        loop = self._loop
        try:
            if get_ident() != loop.thread:
                loop.learns_elsewhere()
                return False
            if self._within:
                return False
            loop.learns()
            if not loop.inside or (loop.capturing is not None and loop.capturing()):
                return False
            self._within = True
            self._steps.backward_begin()
            return True
        except Exception as error:
            self._within = False
            self.switch.fail(error)
            return False

    def _ends(self) -> None:
        self._within = False
        try:
            self._steps.backward_end()
        except Exception as error:
            self.switch.fail(error)


class OptimizerHook:
    """Two hooks that torch calls around the step of every optimizer. A step that GradScaler skips is none."""

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch) -> None:
        self._loop = loop
        self._steps = steps
        self.switch = switch
        self._handles: list[Any] = []

    def install(self) -> None:
        register = [getattr(torch_optimizer, f"register_optimizer_step_{when}_hook", None) for when in ("pre", "post")]
        if None in register:
            raise Unexpected("this torch has no hooks for all optimizers")
        before, after = self._hooks()
        self._handles = [each(hook) for each, hook in zip(register, (before, after), strict=True) if each is not None]

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _hooks(self) -> tuple[Callable[..., None], Callable[..., None]]:
        loop, steps, switch = self._loop, self._steps, self.switch

        def before(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if is_compiling() or not switch.on:
                return
            try:
                if get_ident() != loop.thread:
                    loop.learns_elsewhere()
                    return
                loop.learns()
                if loop.inside and (loop.capturing is None or not loop.capturing()):
                    steps.optimizer_begin()
            except Exception as error:
                switch.fail(error)

        def after(_optimizer: Any, _args: Any, _kwargs: Any) -> None:
            if is_compiling() or not switch.on or not loop.inside or get_ident() != loop.thread:
                return
            try:
                if loop.capturing is None or not loop.capturing():
                    steps.optimizer_end()
            except Exception as error:
                switch.fail(error)

        return before, after
