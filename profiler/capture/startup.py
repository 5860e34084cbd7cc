"""What happens before a training's first step: when its process began, and when it was importing.

Recorded as events of the recording that begins later: intervals, so that whatever else knows times (stacks, say) can
be matched to them. Python's own import function is stood in for until the first step is over (`site/sitecustomize.py`).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

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


class _Known:
    imports: TimedImports | None = None
    """`None`: this Python was not started by `whyidle run`, so what came before its recording is its own business."""


def armed(imports: TimedImports | None) -> None:
    """`whyidle run` started this Python, and times its imports."""
    _Known.imports = imports


def record_before(event: Callable[..., None]) -> Callable[[], None] | None:
    """Record when this process began, and return what records its imports once the first step is over.

    `None` where this Python was not started by `whyidle run`, or somebody types at it: what came before the recording
    is then no start of a training. `event`: takes an `EventKind`, `t_ns` and `end_ns`.
    """
    imports = _Known.imports
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
