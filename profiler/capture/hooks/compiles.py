"""The hook on torch's compiler: when it is at work.

Dynamo calls back when it begins to compile and when it is done. It is not imported for that: it is waited for.

Keeps torch's compiler away from code of ours that runs between the graphs of a compiled training. Where a compiled
function leaves its graph, as it does for a backward pass, Dynamo goes on to compile the functions that are called
there. In a hook it would find "compiling" to be true, and what the hook does would be compiled away.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from ...record.schema import EventKind
from .loop import Loop
from .switch import ours
from .wrap import Hook, Unexpected

_PACKAGE = __name__.partition(".capture.")[0]
_OURS = tuple(f"{_PACKAGE}.{folder}" for folder in ("api", "capture", "devices", "record"))


def leave_uncompiled() -> bool:
    """Have every function of ours that is called during a step run as it is; false where this torch has no such wish.

    Does not import Dynamo, which takes seconds: its list of such functions is kept by torch's core.
    """
    skip = _skip()
    if skip is None:
        return False
    for name, module in list(sys.modules.items()):
        if name.startswith(_OURS) and isinstance(module, ModuleType):
            for thing in list(vars(module).values()):
                if getattr(thing, "__module__", None) == name:
                    for member in list(vars(thing).values()) if isinstance(thing, type) else [thing]:
                        function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                        if isinstance(function, FunctionType):
                            _with_inner(function.__code__, skip)
    return True


def _skip() -> Callable[[CodeType], object] | None:
    core: Any = getattr(getattr(torch._C, "_dynamo", None), "eval_frame", None)
    older = getattr(core, "skip_code", None)
    if older is not None:
        return older  # type: ignore[no-any-return]
    try:
        as_it_is = core._FrameExecStrategy(core._FrameAction.SKIP, core._FrameAction.DEFAULT)
        wish = core.set_code_exec_strategy
    except AttributeError:
        return None
    return lambda code: wish(code, as_it_is)


def _with_inner(code: CodeType, skip: Callable[[CodeType], object]) -> None:
    skip(code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _with_inner(constant, skip)


_CALLBACKS = "torch._dynamo.callback"


class CompileHook(Hook):
    """Registers with Dynamo. What is compiled within a compilation is part of it.

    Calls come from the thread that compiles, which for a backward pass may be one of autograd's: the session keeps them
    for the thread that trains.
    """

    name, without = "torch's compiler", "its time is not recorded"

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop)
        self._handler: Any = None
        self._depth = 0
        self._begin_ns = 0

    def install(self) -> None:
        self.imports.when(_CALLBACKS, self._imported)

    def remove(self) -> None:
        self.put_back()
        self._unregister()
        self._handler = None

    def _imported(self, module: ModuleType) -> None:
        if not self.switch.on:
            return
        try:
            handler = getattr(module, "callback_handler", None)
            if not callable(getattr(handler, "register_start_callback", None)):
                raise Unexpected(f"{_CALLBACKS} has no handler to register with")
            self._handler = handler
            self._register()
            # `torch._dynamo.reset` forgets everybody who registered.
            self.around(type(handler), "clear", self._clears, self._cleared, None)
        except Exception as error:
            self.leave_out(error)

    def _clears(self, handler: Any) -> bool | None:
        return True if handler is self._handler else None

    def _cleared(self, _ours: bool, _returned: Any) -> None:
        self._unregister()
        self._depth = 0
        self._register()

    def _register(self) -> None:
        self._handler.register_start_callback(self._begins)
        self._handler.register_end_callback(self._ends)

    def _unregister(self) -> None:
        for remove, call in (("remove_start_callback", self._begins), ("remove_end_callback", self._ends)):
            with ours():
                getattr(self._handler, remove)(call)

    def _begins(self, *_args: Any) -> None:
        # Torch says for what it compiles since 2.8.
        if not self.switch.on:
            return
        with self.switch:
            self._depth += 1
            if self._depth == 1:
                self._begin_ns = self._now()

    def _ends(self, *_args: Any) -> None:
        if not self.switch.on or self._depth == 0:
            return
        with self.switch:
            self._depth -= 1
            if self._depth == 0:
                self._session.lasted(EventKind.COMPILE, self._begin_ns, self._now())
