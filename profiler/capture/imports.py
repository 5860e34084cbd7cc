"""Calls back when a module has been imported, at once where it has been already."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .hidden import forget_frame
from .hooks.switch import ours

Then = Callable[[ModuleType], object]


class Imports:
    """A finder that finds nothing: it lets the others find a module that is waited for, and follows its import."""

    def __init__(self) -> None:
        self._waits: dict[str, Then] = {}

    def when(self, name: str, then: Then) -> None:
        """Call `then` with the module once it is there; errors of `then` are its own to handle."""
        module = sys.modules.get(name)
        if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
            then(module)
            return
        self._waits[name] = then
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def forget(self) -> None:
        """Wait for nothing any longer."""
        self._waits.clear()
        with contextlib.suppress(ValueError):
            sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        then = self._waits.pop(name, None)
        if then is None:
            return None
        spec: ModuleSpec | None = None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = None if finder is self or find is None else find(name, path, target)
            if spec is not None:
                with ours():
                    _follow(name, spec.loader, self._imported)
                break
        # To ask for a module is not to import it: it is waited for until it is there.
        self._waits[name] = then
        return spec

    def _imported(self, module: ModuleType) -> None:
        then = self._waits.pop(module.__name__, None)
        if then is not None:
            then(module)


def _follow(name: str, loader: Any, then: Then) -> None:
    """Have `loader`, which is this import's own, call `then` when it is done with module `name`."""
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        try:
            execute(module)
        except BaseException as error:
            # An import that fails looks as it does without us.
            forget_frame(error)
            raise
        if module.__name__ != name:
            return
        with ours():
            del loader.exec_module
        with ours():
            then(module)

    loader.exec_module = exec_module
