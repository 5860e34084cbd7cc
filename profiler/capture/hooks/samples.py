"""How many samples a batch has."""

from __future__ import annotations

from typing import Any

from .parts import parts_of, shape_told
from .switch import ours

DEEPEST = 4
WIDEST = 16
"""Levels and items a batch is searched for its first tensor."""


def samples_of(batch: Any) -> int | None:
    """The leading dimension of a batch's first tensor or array, else the length of a list; `None` if it has neither.

    A guess: right for what `default_collate` makes, wrong where the first tensor is one sample of many. What cannot be
    looked at is not known.
    """
    with ours():
        found = _leading(batch, DEEPEST)
        if found is not None:
            return found
        for kind in (list, tuple):
            if issubclass(type(batch), kind):
                return kind.__len__(batch)
    return None


def _leading(part: Any, depth: int) -> int | None:
    shape = shape_told(part)
    if shape is not None:
        return int(shape[0]) if shape and isinstance(shape[0], int) else 1
    for each in (parts_of(part, WIDEST) or ()) if depth else ():
        found = _leading(each, depth - 1)
        if found is not None:
            return found
    return None
