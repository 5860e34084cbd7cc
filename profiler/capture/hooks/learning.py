"""The hooks on what only a training does: the backward pass, the optimizer's step, checkpoints.

The first two are called in every step, also in those that the recorder lets pass. They tell which GPU is computed on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from threading import get_ident
from types import ModuleType
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim import optimizer as torch_optimizer

from ..hidden import forget_frame
from .loop import Loop
from .steady import instead
from .wrap import Hook, Unexpected


def gpu_of_parameters(optimizer: Any) -> int | None:
    """The GPU of the first parameter that is on one; `None`: none is."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        return gpu_of_tensors(each for group in optimizer.param_groups for each in group["params"])
    return None


def gpu_of_tensors(tensors: Any) -> int | None:
    """The GPU of the first of some tensors that is on one, as `torch.autograd.backward` takes them; `None`: none is."""
    several: Iterable[Any] = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
    with contextlib.suppress(AttributeError, TypeError), torch._C.DisableTorchFunction():
        for tensor in several:
            if tensor.device.type == "cuda":
                return int(tensor.device.index)
    return None


class BackwardHook(Hook):
    """Wraps `torch.autograd.backward`, which `Tensor.backward` looks up at each call. The outermost pass counts.

    On a GPU nested passes, as of checkpointed segments, run on threads of the autograd engine.
    """

    name, without = "torch.autograd.backward", "the backward pass is not measured apart"

    def install(self) -> None:
        self.replace(torch.autograd, "backward", self._wrap, None)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        loop, steps, switch = self._loop, self._steps, self.switch
        within = False

        def backward(*args: Any, **kwargs: Any) -> Any:
            nonlocal within
            if is_dynamo_compiling():
                return original(*args, **kwargs)
            outermost, ends = False, None
            try:
                if switch.on:
                    try:
                        if get_ident() != loop.thread:
                            loop.learns_elsewhere()
                        elif not within:
                            outermost = within = True
                            if loop.follow is not None and not loop.learnt and not steps.passing:
                                loop.follow(gpu_of_tensors(args[0] if args else kwargs.get("tensors")))
                            loop.learns(False)
                            if loop.capturing is not None and loop.capturing():
                                loop.graphs.captures_learning()
                            elif loop.inside and steps.recording:
                                steps.backward_begin()
                                ends = steps.backward_end
                    except Exception as error:
                        switch.fail(error)
                return original(*args, **kwargs)
            except BaseException as error:
                forget_frame(error)
                raise
            finally:
                if outermost:
                    within = False
                if ends is not None:
                    try:
                        ends()
                    except Exception as error:
                        switch.fail(error)

        return instead(loop.steady, "backward", original, backward, switch.fail, switch)


class OptimizerHook(Hook):
    """Two hooks that torch calls around the step of every optimizer. A step that GradScaler skips is none."""

    name, without = "optimizers", "optimizer steps are not recorded"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._handles: list[Any] = []

    def install(self) -> None:
        for when, what, call in (("pre", "update", self._begins), ("post", "updated", self._ends)):
            register = getattr(torch_optimizer, f"register_optimizer_step_{when}_hook", None)
            if register is None:
                raise Unexpected("this torch has no hooks for all optimizers")
            told = instead(self._loop.steady, what, None, call(), self.switch.fail, self.switch)
            self._handles.append(register(_unless_compiling(told)))

    def remove(self) -> None:
        while self._handles:
            self._handles.pop().remove()

    def _begins(self) -> Callable[[Any], None]:
        loop, steps, switch = self._loop, self._steps, self.switch

        def begins(optimizer: Any) -> None:
            if not switch.on:
                return
            try:
                if get_ident() != loop.thread:
                    loop.learns_elsewhere()
                    return
                if loop.follow is not None and not loop.learnt and not steps.passing:
                    loop.follow(gpu_of_parameters(optimizer))
                loop.learns(True)
                if loop.capturing is not None and loop.capturing():
                    loop.graphs.captures_learning()
                elif loop.inside and steps.recording:
                    steps.optimizer_begin()
            except Exception as error:
                switch.fail(error)

        return begins

    def _ends(self) -> Callable[[Any], None]:
        loop, steps, switch = self._loop, self._steps, self.switch

        def ends(optimizer: Any) -> None:
            if not switch.on:
                return
            try:
                if get_ident() != loop.thread or (loop.capturing is not None and loop.capturing()):
                    return
                if loop.inside and steps.recording:
                    steps.optimizer_end()
                if loop.counts_updates:
                    loop.happens(loop.update_ended, id(optimizer))
            except Exception as error:
                switch.fail(error)

        return ends


def _unless_compiling(call: Callable[[Any], None]) -> Callable[..., None]:
    """A compiler goes through this."""

    def hook(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not is_dynamo_compiling():
            call(optimizer)

    return hook


class GraphHook(Hook):
    """Sees CUDA graphs that hold a backward pass or an optimizer step being replayed: no other hook is called then."""

    name, without = "torch.cuda.CUDAGraph", "steps replayed from a graph are not recorded"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop, lambda: get_ident() == loop.thread)

    def install(self) -> None:
        self.around(torch.cuda.CUDAGraph, "capture_begin", self._captures, None, None)
        self.around(torch.cuda.CUDAGraph, "replay", self._replays, self._replayed, None)

    def _captures(self, graph: Any, *_args: Any, **_kwargs: Any) -> None:
        self._loop.graphs.captured = graph

    def _replays(self, graph: Any) -> Any:
        loop = self._loop
        if graph not in loop.graphs:
            return None
        loop.learns(True)
        if loop.inside:
            self._steps.backward_begin()
        return graph

    def _replayed(self, graph: Any, _returned: Any) -> None:
        loop = self._loop
        if loop.inside:
            self._steps.backward_end()
        if loop.counts_updates:
            loop.happens(loop.update_ended, id(graph))


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
