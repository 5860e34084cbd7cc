"""How many bytes a batch holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ...record.schema import NOT_MEASURED
from ..hooks.parts import bytes_of_array, fields_of, parts_of
from ..hooks.tensors import has_plain_memory, shape_of

MOST_PARTS = 512
"""Parts of a batch that are looked at; of larger ones nothing is said."""
DEEPEST = 8
_PLAIN = (str, bytes, bytearray, int, float, complex, type(None), type)


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
            total += bytes_of_array(part)
            tensors += 1
        elif (inside := parts_of(part, MOST_PARTS + 1)) is not None:
            if len(inside) > MOST_PARTS:
                return NOT_MEASURED
            todo += [(inner, depth + 1) for inner in inside]
        elif not isinstance(part, _PLAIN) and not callable(part):
            todo += [(inner, depth + 1) for inner in fields_of(part).values()]
    return total if tensors else NOT_MEASURED
