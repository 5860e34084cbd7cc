"""How many bytes a batch holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...record.schema import NOT_MEASURED
from ..hooks.tensors import has_plain_memory, shape_of

MOST_PARTS = 512
"""Parts of a batch that are looked at; of larger ones nothing is said."""
DEEPEST = 8


def bytes_of(batch: Any) -> int:
    """Bytes of all tensors and arrays in a batch; `NOT_MEASURED` where there are none, or too many parts."""
    total, tensors, parts = 0, 0, 0
    todo = [(batch, 0)]
    while todo:
        part, depth = todo.pop()
        parts += 1
        if parts > MOST_PARTS or depth > DEEPEST:
            return NOT_MEASURED
        if isinstance(part, torch.Tensor):
            if has_plain_memory(part):
                total += shape_of(part)[2]
                tensors += 1
        elif isinstance(part, np.ndarray):
            total += part.nbytes
            tensors += 1
        elif isinstance(part, Mapping):
            if len(part) > MOST_PARTS:
                return NOT_MEASURED
            todo += [(inner, depth + 1) for inner in part.values()]
        elif isinstance(part, list | tuple):
            if len(part) > MOST_PARTS:
                return NOT_MEASURED
            todo += [(inner, depth + 1) for inner in part]
        elif hasattr(part, "__dict__") and not isinstance(part, type) and not callable(part):
            held = vars(part)
            if len(held) <= MOST_PARTS:
                todo += [(inner, depth + 1) for inner in held.values()]
    return total if tensors else NOT_MEASURED
