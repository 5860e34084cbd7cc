"""Where a program makes its loaders: that is where their settings are changed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.utils.data import DataLoader

from .hidden import is_ours, passes_on
from .hooks.identity import ByIdentity
from .hooks.switch import ours

MOST_CALLS = 64
"""Calls of a stack that are kept, the innermost ones."""

Place = tuple[str, str, int]
"""Function, file and line of a call."""

_made: ByIdentity[tuple[Place, ...]] = ByIdentity()


def watch() -> None:
    """Note from now on where each DataLoader is made, for as long as this process lives. Safe to call twice."""
    loaders: Any = DataLoader
    original: Callable[..., None] = loaders.__init__
    if hasattr(original, "_whyidle_notes"):
        return

    def __init__(self_: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        with passes_on:
            original(self_, *args, **kwargs)
        with ours():
            _made.put(self_, _calls())

    functools.update_wrapper(__init__, original)
    __init__._whyidle_notes = True  # type: ignore[attr-defined]
    loaders.__init__ = __init__


def made_at(loader: Any) -> tuple[Place, ...]:
    """The calls in which a loader was made, the outermost first; none where that was not seen."""
    return _made.get(loader) or ()


def _calls() -> tuple[Place, ...]:
    calls: list[Place] = []
    frame = sys._getframe(2)
    while frame is not None and len(calls) < MOST_CALLS:
        code = frame.f_code
        if not is_ours(code.co_filename):
            calls.append((code.co_qualname, code.co_filename, frame.f_lineno or 0))
        frame = frame.f_back  # type: ignore[assignment]
    calls.reverse()
    return tuple(calls)
