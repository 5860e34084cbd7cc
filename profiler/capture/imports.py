"""Calls back when a module has been imported, at once where it has been already.

What happens before a training's first step: when its process began, and when it was importing. Recorded as events
of the recording that begins later: intervals, so that whatever else knows times (stacks, say) can be matched to
them. Python's own import function is stood in for until the first step is over (`site/sitecustomize.py`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from .hidden import passes_on
from .hooks.switch import ours

LEAST_IMPORT_NS = 1_000_000
"""Shorter imports are not recorded one by one."""
START_FIELD = 19
"""Of `/proc/PID/stat`, what follows the name: when the process began, in ticks since the machine did."""
LONGEST_NS = 30 * 24 * 3600 * 10**9


class TimedImports(Protocol):
    """The stand-in for Python's import function."""

    spans: list[tuple[int, int]]
    """Begin and end of each import that no other one waited for, CLOCK_MONOTONIC ns."""

    def end(self) -> None:
        """Put Python's own function back."""


_timed: TimedImports | None = None
"""`None`: this Python was not started by `whyidle run`, so what came before its recording is its own business."""


def armed(imports: TimedImports | None) -> None:
    """`whyidle run` started this Python, and times its imports."""
    global _timed
    _timed = imports


def record_before(event: Callable[..., None]) -> Callable[[], None] | None:
    """Record when this process began, and return what records its imports once the first step is over.

    `None` where this Python was not started by `whyidle run`, or somebody types at it: what came before the recording
    is then no start of a training. `event`: takes an `EventKind`, `t_ns` and `end_ns`.
    """
    imports = _timed
    if imports is None or hasattr(sys, "ps1") or "IPython" in sys.modules:
        return None
    began = _process_began_ns()
    if began is None:
        return None
    # The module is loaded beside any torch, also where numpy, which the records need, is missing.
    from ..record.schema import EventKind

    event(EventKind.PROCESS_BEGIN, t_ns=began)

    def over() -> None:
        with ours():
            imports.end()
            event(EventKind.IMPORTS_TIMED)
            for begin, end in imports.spans:
                # What was imported before a fork was its parent's time.
                if begin >= began and end - begin >= LEAST_IMPORT_NS:
                    event(EventKind.IMPORT, t_ns=begin, end_ns=end)

    return over


def _process_began_ns() -> int | None:
    """CLOCK_MONOTONIC; `None` where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[START_FIELD]) * 10**9 // os.sysconf("SC_CLK_TCK")
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks
        return time.monotonic_ns() - age if 0 < age < LONGEST_NS else None
    except (OSError, ValueError, IndexError, AttributeError):
        return None


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
        with passes_on:
            execute(module)
        if module.__name__ != name:
            return
        with ours():
            del loader.exec_module
        with ours():
            then(module)

    loader.exec_module = exec_module
