"""Where a step's forward pass begins: what the training does with a batch before that is no computation of the step.

Nothing that torch offers tells it for free: a hook on all modules is called for each layer, and would be compiled into
graphs. So the outermost module that makes nodes of autograd's graph is looked for, during a few steps, and from then on
that module alone is marked, from the hand-over of a batch until it is called. The mark is an attribute of its own that
torch looks up at the call (`Module._call_impl`): a hook registered with a module sends torch the long way through it.

A program whose forward pass begins outside of modules, or in a graph that torch compiled as a whole, is left alone:
there the computation counts from the hand-over on.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable
from sys import getrefcount
from typing import Any

import torch
from torch.compiler import is_dynamo_compiling

from ...native import ForwardBase
from ..open_step import ForwardMark
from ..steps import StepRecorder
from .loop import Loop
from .steady import FORWARD_KEY
from .switch import Switch
from .wrap import Unexpected, Wraps

FIRST_LOOK = 2
"""The step in which the module is looked for first. In the very first one programs compile, and would compile again."""
MOST_LOOKS = 12
"""Steps in which the module is looked for, before it is taken to be none; and again where it is no longer called."""
MOST_MISSED = 8
"""Steps in a row in which the module is not called, before another is looked for."""
MOST_SEARCHES = 3

_Call = tuple[Any, int, ForwardMark]
"""A module, the nodes that the step had made when it was called, and that moment."""


class _Mark:
    """What torch calls in the place of the `_call_impl` of the module's class, once.

    A copy of the module, or a pickled one, holds that function itself in its place.
    """

    __slots__ = ("_begins", "_calls", "_module")

    def __init__(self, begins: Callable[[_Mark, Any], Any]) -> None:
        """`begins`: given this and the module that is marked, tells which is called: a copy may have it too."""
        self._begins = begins

    def marks(self, module: Any) -> weakref.ref[Any]:
        """This module from now on."""
        self._module = weakref.ref(module)
        self._calls = type(module)._call_impl
        return self._module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self._module() if is_dynamo_compiling() else self._begins(self, self._module)
        return self._calls(module, *args, **kwargs)

    def __reduce__(self) -> Any:
        return getattr, (self._module(), FORWARD_KEY)


class ForwardHook(ForwardBase):
    """Tells the recorder when the forward pass of a step begins."""

    def __init__(self, loop: Loop, steps: StepRecorder, switch: Switch) -> None:
        self._loop = loop
        self._steps = steps
        self.switch = switch
        self._mark: _Mark
        self._wraps = Wraps(switch, self._listens)
        self._clearing = Wraps(switch, self._awaits)
        self._sees_clearing = False
        self._module: weakref.ref[Any] | None = None
        self._holders = 0
        """References to the mark while it is called and nothing but one module holds it; 0 until they were counted."""
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
            steady, begins = self._loop.steady, self._called
            self._mark = _Mark(
                begins if steady is None else steady.instead("forward", None, begins, self.switch.fail, self)
            )
            self._learn_holders()
            self._steps.on_batch = self._arm

    def remove(self) -> None:
        self._steps.on_batch = None
        self._wraps.put_back()
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
            if FORWARD_KEY in module.__dict__:
                self._missed += 1
                if self._missed >= MOST_MISSED:
                    self._disarm()
                    self._module, self._looks = None, 0
                    self._searches += 1
                    self._missed = 0
            else:
                module.__dict__[FORWARD_KEY] = self._mark
            self._armed = True
        except Exception as error:
            self.switch.fail(error)

    def _learn_holders(self) -> None:
        """Call a module of our own that is marked."""
        probe: Any = torch.nn.Identity()
        self._module = self._mark.marks(probe)
        probe.__dict__[FORWARD_KEY] = self._mark
        call: Any = torch.nn.Module._wrapped_call_impl  # without what a program may have put around it
        call(probe, None)
        self._module = None

    def _disarm(self) -> None:
        module = None if self._module is None else self._module()
        if module is not None and module.__dict__.get(FORWARD_KEY) is self._mark:
            del module.__dict__[FORWARD_KEY]

    def _called(self, mark: _Mark, marked: Callable[[], Any]) -> Any:
        """The module that is called, whose forward pass begins: the one that is marked, or a copy that was made of it
        since and has what it has."""
        self._armed = False
        module = own = marked()
        try:
            holders = getrefcount(mark)
            if not self._holders:
                self._holders = holders
            elif holders != self._holders:
                called = sys._getframe(2).f_locals.get("self")
                module = called if isinstance(called, torch.nn.Module) else own
            module.__dict__.pop(FORWARD_KEY, None)
            if module is own and self.switch.on and self._loop.in_step() and not self._loop.captures():
                self._missed = 0
                self._begins_at(self._steps.forward_mark())
        except Exception as error:
            self.switch.fail(error)
        return module

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
        return self._loop.now()

    def _cleared(self, begin_ns: int, _returned: Any) -> None:
        self._steps.cleared(self._loop.now() - begin_ns)

    def _look(self) -> None:
        """Watch the modules that are called until the next batch is handed over."""
        self._looks += 1
        self._looking = True
        self._wraps.around(torch.nn.Module, "__call__", self._begins, self._ended, None)

    def _stop_looking(self) -> None:
        self._looking = False
        self._within = False
        self._wraps.put_back()

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
        if before == 0 and _can_be_marked(module):
            self._module = self._mark.marks(module)
            self._begins_at(mark)
        else:
            self._looks = MOST_LOOKS  # it begins where nothing of ours can stand
            self._steps.forward_is_not(mark)


def _can_be_marked(module: Any) -> bool:
    """Whether a mark on this module is called by Python, and by no graph that was compiled with or without it."""
    own = module.__dict__
    return (
        not isinstance(module, torch.jit.ScriptModule)
        and own.get("_compiled_call_impl") is None
        and FORWARD_KEY not in own
    )
