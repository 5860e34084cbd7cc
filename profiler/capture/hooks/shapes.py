"""Whether a batch has shapes that none before it had.

New shapes are what makes libraries choose their algorithms anew, the allocator look for other blocks, and the compiler
compile again. How many elements a batch has tells whether its step takes longer only because it is larger.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...record.schema import StepFlag
from ..steps import StepRecorder
from .parts import has_plain_memory, parts_of
from .switch import Switch

MOST_SEEN = 4096
"""Shapes that are remembered."""
MOST_TENSORS = 16
"""Tensors of a batch that are looked at, the first ones."""
MOST_PARTS = 64
"""Whatever else lies in a batch, looked at to find them."""

_Tensor = torch.Tensor
_modes = torch._C._len_torch_function_stack
_unseen = torch._C.DisableTorchFunction


class Shapes:
    """Remembers the shapes and types of the batches that steps were looked at with: a hash of each, and its flags."""

    def __init__(self, steps: StepRecorder, switch: Switch) -> None:
        self._steps = steps
        self.switch = switch
        self._seen: dict[int, int] = {}

    def flags(self, batch: Any) -> int:
        """What the step that is open says of its batch: flags, and its elements above them.

        0 where that was not looked at: while steps are let pass, and of a batch without plain tensors.
        """
        steps, seen = self._steps, self._seen
        if not steps.recording or not steps.all_looked_at or not self.switch.on:
            return 0
        try:
            # The common case, a few tensors whose shapes were seen, is written out here: each call costs, most of all
            # when the step has emptied the caches.
            kind = type(batch)
            parts = batch if kind is list or kind is tuple else batch.values() if kind is dict else (batch,)
            if len(parts) <= MOST_TENSORS and not _modes():
                found: list[Any] = []
                for part in parts:
                    if type(part) is not _Tensor or part.is_nested:
                        break
                    found.append(part.shape)
                    found.append(part.dtype)
                else:
                    known = seen.get(hash(tuple(found)))
                    if known is not None:
                        return known
            outline = _outline(batch, seen)
            if outline is None:
                return 0
            number, shapes = outline
            known = seen.get(number)
            if known is not None:
                return known
            elements = min(StepFlag.MOST_ELEMENTS, sum(shape.numel() for shape in shapes))
        except Exception as error:
            self.switch.fail(error)
            return 0
        seen[number] = known = StepFlag.SHAPE_KNOWN | elements << StepFlag.ELEMENTS_SHIFT
        if len(seen) >= MOST_SEEN:
            # From here on, new ones could not be told from those that are not remembered.
            self.switch.on = False
        return known | StepFlag.NEW_SHAPE


def _outline(batch: Any, seen: Mapping[int, int]) -> tuple[int, list[torch.Size]] | None:
    """A hash of the shapes and types of the first tensors in a batch, and the shapes.

    `None` without any, or with one that has none.
    """
    tensors: list[Any] = []
    found: list[Any] = []
    left = [batch]
    looked = 0
    with _unseen():
        while left and looked < MOST_PARTS:
            part = left.pop()
            looked += 1
            kind = type(part)
            if kind is _Tensor or issubclass(kind, _Tensor):
                if kind is not _Tensor and not has_plain_memory(part):
                    return None
                if part.is_nested:
                    return None
                tensors.append(part)
                found.append(part.shape)
                found.append(part.dtype)
                if len(tensors) == MOST_TENSORS:
                    break
            elif kind is list or kind is tuple:
                left += part[MOST_TENSORS - 1 :: -1]
            elif kind is dict and len(part) <= MOST_TENSORS:
                left += reversed(part.values())
            elif kind is not str and kind is not int:
                left += reversed(parts_of(part, MOST_TENSORS) or ())
    number = hash(tuple(found))
    if number in seen or (tensors and all(map(has_plain_memory, tensors))):
        return number, found[::2]
    return None
