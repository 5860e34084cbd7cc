"""The hook on torch's compiler: when it is at work.

Dynamo calls back when it begins to compile and when it is done. It is not imported for that: it is waited for.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ...record.schema import EventKind
from ..imports import Imports
from ..session import Session
from .switch import Switch, ours
from .wrap import Unexpected, Wraps

_CALLBACKS = "torch._dynamo.callback"


class CompileHook:
    """Registers with Dynamo. What is compiled within a compilation is part of it.

    Calls come from the thread that compiles, which for a backward pass may be one of autograd's: the session keeps them
    for the thread that trains.
    """

    def __init__(self, session: Session, now: Callable[[], int], switch: Switch) -> None:
        self._session = session
        self._now = now
        self.switch = switch
        self._imports = Imports()
        self._wraps = Wraps(self.switch)
        self._handler: Any = None
        self._depth = 0
        self._begin_ns = 0

    def install(self) -> None:
        self._imports.when(_CALLBACKS, self._imported)

    def remove(self) -> None:
        self._imports.forget()
        self._wraps.put_back()
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
            self._wraps.around(type(handler), "clear", self._clears, self._cleared, None)
        except Exception as error:
            self.switch.stay_out(str(error))
            with ours():
                self.remove()

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
        try:
            self._depth += 1
            if self._depth == 1:
                self._begin_ns = self._now()
        except Exception as error:
            self.switch.fail(error)

    def _ends(self, *_args: Any) -> None:
        if not self.switch.on or self._depth == 0:
            return
        try:
            self._depth -= 1
            if self._depth == 0:
                self._session.lasted(EventKind.COMPILE, self._begin_ns, self._now())
        except Exception as error:
            self.switch.fail(error)
