"""How many samples a batch has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch

DEEPEST = 4
WIDEST = 16
"""Levels and items a batch is searched for its first tensor."""


def samples_of(batch: Any) -> int | None:
    """The leading dimension of a batch's first tensor or array, else the length of a list; `None` if it has neither.

    A guess: right for what `default_collate` makes, wrong where the first tensor is one sample of many.
    """
    found = _leading(batch, DEEPEST)
    if found is None and isinstance(batch, list | tuple):
        return len(batch)
    return found


def _leading(part: Any, depth: int) -> int | None:
    if isinstance(part, torch.Tensor):
        return int(part.shape[0]) if part.dim() else 1
    if depth == 0:
        return None
    if isinstance(part, Mapping):
        inner = iter(part.values())
    elif isinstance(part, list | tuple):
        inner = iter(part)
    elif is_dataclass(part) and not isinstance(part, type):
        inner = iter([getattr(part, field.name) for field in fields(part)])
    else:
        shape = getattr(part, "shape", None)
        return int(shape[0]) if isinstance(shape, tuple) and shape and isinstance(shape[0], int) else None
    for _, each in zip(range(WIDEST), inner, strict=False):
        found = _leading(each, depth - 1)
        if found is not None:
            return found
    return None
