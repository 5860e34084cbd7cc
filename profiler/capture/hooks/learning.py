"""The hooks on what only a training does: the backward pass and the optimizer's step.

Both are called in every step, also in those that the recorder lets pass.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling
from torch.optim import optimizer as torch_optimizer

from ..device_in_use import of_parameters, of_tensors
from ..hidden import forget_frame
from ..session import Session
from ..steps import StepRecorder
from .identity import ByIdentity
from .loop import Loop
from .switch import Switch
from .wrap import Patches, Unexpected, Wraps


class LearningGraphs:
    """CUDA graphs in which a backward pass or an optimizer step was captured."""

    def __init__(self) -> None:
        self.captured: Any = None
        """The graph that was captured last, or is being captured."""
        self._known: ByIdentity[bool] = ByIdentity()

    def captures_learning(self) -> None:
        """A backward pass or an optimizer step becomes part of the graph that is being captured."""
        if self.captured is not None:
            self._known.put(self.captured, True)

    def __contains__(self, graph: Any) -> bool:
        return self._known.get(graph) is not None


class BackwardHook(Patches):
    """Wraps `torch.autograd.backward`, which `Tensor.backward` looks up at each call. The outermost pass counts.

    On a GPU nested passes, as of checkpointed segments, run on threads of the autograd engine.
    """

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch, graphs: LearningGraphs) -> None:
        super().__init__()
        self._loop = loop
        self._steps = steps
        self._graphs = graphs
        self.switch = switch

    def install(self) -> None:
        self.replace(torch.autograd, "backward", self._wrap, None)

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        loop, steps, switch, graphs = self._loop, self._steps, self.switch, self._graphs
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
                                loop.follow(of_tensors(args[0] if args else kwargs.get("tensors")))
                            loop.learns(False)
                            if loop.capturing is not None and loop.capturing():
                                graphs.captures_learning()
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

        if loop.steady is None:
            return backward
        return loop.steady.instead("backward", original, backward, switch.fail, switch)


class OptimizerHook:
    """Two hooks that torch calls around the step of every optimizer. A step that GradScaler skips is none."""

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch, graphs: LearningGraphs) -> None:
        self._loop = loop
        self._steps = steps
        self._graphs = graphs
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
        loop, steps, switch, graphs = self._loop, self._steps, self.switch, self._graphs

        def begins(optimizer: Any) -> None:
            if not switch.on:
                return
            try:
                if get_ident() != loop.thread:
                    loop.learns_elsewhere()
                    return
                if loop.follow is not None and not loop.learnt and not steps.passing:
                    loop.follow(of_parameters(optimizer))
                loop.learns(True)
                if loop.capturing is not None and loop.capturing():
                    graphs.captures_learning()
                elif loop.inside and steps.recording:
                    steps.optimizer_begin()
            except Exception as error:
                switch.fail(error)

        def ends(optimizer: Any) -> None:
            if not switch.on:
                return
            try:
                if get_ident() != loop.thread:
                    return
                if loop.capturing is not None and loop.capturing():
                    return
                if loop.inside and steps.recording:
                    steps.optimizer_end()
                if loop.counts_updates:
                    loop.tell(loop.update_ended, loop.now(), id(optimizer))
            except Exception as error:
                switch.fail(error)

        if loop.steady is not None:
            begins = loop.steady.instead("update", None, begins, switch.fail, switch)
            ends = loop.steady.instead("updated", None, ends, switch.fail, switch)

        def unless_compiling(call: Callable[[Any], None]) -> Callable[..., None]:
            """A compiler goes through this."""

            def hook(optimizer: Any, _args: Any, _kwargs: Any) -> None:
                if not is_dynamo_compiling():
                    call(optimizer)

            return hook

        return unless_compiling(begins), unless_compiling(ends)


class GraphHook(Wraps):
    """Sees CUDA graphs that hold a backward pass or an optimizer step being replayed: no other hook is called then."""

    def __init__(self, session: Session, loop: Loop, switch: Switch, graphs: LearningGraphs) -> None:
        super().__init__(switch, lambda: get_ident() == loop.thread)
        self._graphs = graphs
        self._loop = loop
        self._steps = session.steps

    def install(self) -> None:
        self.around(torch.cuda.CUDAGraph, "capture_begin", self._captures, None, None)
        self.around(torch.cuda.CUDAGraph, "replay", self._replays, self._replayed, None)

    def _captures(self, graph: Any, *_args: Any, **_kwargs: Any) -> None:
        self._graphs.captured = graph

    def _replays(self, graph: Any) -> Any:
        loop = self._loop
        if graph not in self._graphs:
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
            loop.tell(loop.update_ended, loop.now(), id(graph))
