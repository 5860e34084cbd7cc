"""Where a step's forward pass begins: what the training does with a batch before that is no computation of the step.

Nothing that torch offers tells it for free: a hook on all modules is called for each layer, and would be compiled into
graphs. So the outermost module that makes nodes of autograd's graph is looked for, during a few steps, and from then on
the call of that module alone is awaited, from the hand-over of a batch on. Nothing of ours lies in it: it may be saved,
copied and compared at any moment. A hook registered with it would, and sends torch the long way through it.

A program whose forward pass begins outside of modules, or in a graph that torch compiled as a whole, is left alone:
there the computation counts from the hand-over on.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ...native import ForwardBase
from ...native import extension as in_c
from ..steps import ForwardMark
from .loop import Loop
from .steady import instead
from .wrap import Hook, Unexpected, Wraps

FIRST_LOOK = 2
"""The step in which the module is looked for first. In the very first one programs compile, and would compile again."""
MOST_LOOKS = 12
"""Steps in which the module is looked for, before it is taken to be none; and again where it is no longer called."""
MOST_MISSED = 8
"""Steps in a row in which the module is not called, before another is looked for."""
MOST_SEARCHES = 3

_Call = tuple[Any, int, ForwardMark]
"""A module, the nodes that the step had made when it was called, and that moment."""


class Awaited:
    """What torch finds as `Module._compiled_call_impl`, which it reads at the call of each module: `None`, as before.

    This is the way without the extension, which has Python call a function of its own in the place of the class's.
    """

    __slots__ = ("_expected", "_told")

    def __init__(self, told: Callable[[], object]) -> None:
        """`told`: called when a module that is expected is called."""
        self._told = told
        self._expected: weakref.ref[Any] | None = None

    def __get__(self, module: Any, _owner: Any = None) -> None:
        if is_dynamo_compiling() or module is None or self._expected is None or self._expected() is not module:
            return
        self._expected = None
        self._told()

    def expects(self, module: Any) -> None:
        """The next call of this module is told, once; `None`: of none any longer."""
        self._expected = None if module is None else weakref.ref(module)


class ForwardHook(ForwardBase, Hook):
    """Tells the recorder when the forward pass of a step begins."""

    name, without = "the model's call", "what a step does before it counts as compute"

    def __init__(self, loop: Loop) -> None:
        Hook.__init__(self, loop, self._listens)
        self._told: Callable[[], object]
        self._instead = Awaited(self._called) if in_c is None else None
        self._expects = self.expects if self._instead is None else self._instead.expects
        self._clearing = Wraps(self.switch, self._awaits)
        self._sees_clearing = False
        self._module: weakref.ref[Any] | None = None
        self._armed = False
        """A batch was handed over, and the module has not been called since."""
        self._handed = 0
        """Batches handed over while no module was known."""
        self._looks = self._searches = self._missed = 0
        self._looking = False
        self._within = False
        """A call that is watched is under way: what it calls is part of it."""

    def install(self) -> None:
        if self._steps.graph is not None:
            self._told = instead(self._loop.steady, "forward", None, self._called, self.switch.fail, self)
            if self._instead is not None:
                if vars(torch.nn.Module).get("_compiled_call_impl", self) is not None:
                    raise Unexpected("torch.nn.Module._compiled_call_impl is not None")
                # From the start: what is compiled later is compiled with it, and need not be anew.
                self._clearing.put(torch.nn.Module, "_compiled_call_impl", self._instead)
            self._steps.on_batch = self._arm

    def remove(self) -> None:
        self._steps.on_batch = None
        self.put_back()
        self._clearing.put_back()
        self._disarm()

    def _arm(self) -> None:
        """A batch was handed over, and its step is looked at."""
        if not self.switch.on:
            return
        try:
            if self._looking:
                self._stop_looking()
            module = None if self._module is None else self._module()
            if module is None:
                self._handed += 1
                if self._handed >= FIRST_LOOK and self._looks < MOST_LOOKS and self._searches < MOST_SEARCHES:
                    self._look()
                return
            if self._armed:
                self._missed += 1
                if self._missed >= MOST_MISSED:
                    self._disarm()
                    self._module, self._looks = None, 0
                    self._searches += 1
                    self._missed = 0
                    return
            self._expects(module)
            self._armed = True
        except Exception as error:
            self.switch.fail(error)

    def _disarm(self) -> None:
        self._armed = False
        self._expects(None)

    def _called(self) -> None:
        """The module is called, so the forward pass begins."""
        self._armed = False
        try:
            if self.switch.on and self._loop.in_step() and not self._loop.captures():
                self._missed = 0
                self._begins_at(self._steps.forward_mark())
        except Exception as error:
            self.switch.fail(error)

    def _begins_at(self, mark: ForwardMark) -> None:
        self._steps.forward_begin(mark)
        if not self._sees_clearing and self._steps.forward_seen:
            # Something takes time between the batch and the call: gradients that are cleared there, maybe.
            self._sees_clearing = True
            with contextlib.suppress(Unexpected):
                # Without it what clearing gradients takes counts as work of the loop's.
                self._clearing.around(torch.optim.Optimizer, "zero_grad", self._clears, self._cleared, None)

    def _awaits(self) -> bool:
        return self._armed and self._loop.in_step()

    def _clears(self, *_args: Any, **_kwargs: Any) -> int:
        """Gradients are cleared before the forward pass."""
        return self._now()

    def _cleared(self, begin_ns: int, _returned: Any) -> None:
        self._steps.cleared(self._now() - begin_ns)

    def _look(self) -> None:
        """Watch the modules that are called until the next batch is handed over."""
        self._looks += 1
        self._looking = True
        self.around(torch.nn.Module, "__call__", self._begins, self._ended, None)

    def _stop_looking(self) -> None:
        self._looking = False
        self._within = False
        self.put_back()

    def _listens(self) -> bool:
        return self._looking and not self._within and self._loop.in_step() and not self._loop.captures()

    def _begins(self, module: Any, *_args: Any, **_kwargs: Any) -> _Call:
        """A module is called, by none that was called in this step."""
        nodes, mark = self._steps.nodes(), self._steps.forward_mark()
        self._within = True
        return module, nodes, mark

    def _ended(self, call: _Call, _returned: Any) -> None:
        """That call is over."""
        module, before, mark = call
        self._within = False
        if not self._looking or not self._loop.in_step() or self._steps.nodes() == before:
            self._steps.forward_is_not(mark)
            return
        self._stop_looking()
        # A module that torch compiles in its place is called from a graph.
        if before == 0 and vars(module).get("_compiled_call_impl") is None:
            self._module = weakref.ref(module)
            self._begins_at(mark)
        else:
            self._looks = MOST_LOOKS  # it begins where nothing of ours can stand
            self._steps.forward_is_not(mark)
