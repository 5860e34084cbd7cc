"""What a batch holds, looked at without running any code of the program's.

A batch may be made when it is looked at: a mapping whose items are decoded as they are taken, a property that reads a
file. So only what lies in a batch is read, never what it would answer.

What a hook may ask a tensor without the training noticing. The attributes of a tensor go through
`__torch_function__`, of its class and of every mode that is active: the device that `torch.set_default_device` sets
is such a mode. The question whether memory is page-locked is an operator, which modes for operators see.

Whether a batch has shapes that none before it had: new ones are what makes libraries choose their algorithms anew, the
allocator look for other blocks, and the compiler compile again. How many elements a batch has tells whether its step
takes longer only because it is larger.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import UserDict, deque
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from itertools import islice
from types import BuiltinFunctionType, FunctionType, GetSetDescriptorType, MemberDescriptorType, MethodType
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from ...record.schema import NOT_MEASURED, StepFlag
from ..steps import StepRecorder
from .switch import Switch, ours

_Tensor = torch.Tensor
_modes = torch._C._len_torch_function_stack
_unseen = torch._C.DisableTorchFunction
_operator_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


def device_of(tensor: Any) -> str:
    """The type of the device that a tensor is on."""
    if type(tensor) is torch.Tensor and not _modes():
        return tensor.device.type
    with _unseen():
        return str(tensor.device.type)


def is_on(tensor: Any, device: torch.device) -> bool:
    """Whether a tensor is on this device; on any of its type, where it has no number."""
    with _unseen():
        there: torch.device = tensor.device
        return there.type == device.type and (device.index is None or there.index == device.index)


def has_plain_memory(tensor: Any) -> bool:
    """Whether a tensor is one block of memory: neither sparse, nested or opaque, nor made of other tensors."""
    if type(tensor) is not torch.Tensor and type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH:
        return False
    with _unseen():
        return tensor.layout is torch.strided and not tensor.is_nested


def shape_of(tensor: Any) -> tuple[torch.Size, torch.dtype, int]:
    """(shape, type, bytes) of a tensor that has plain memory."""
    with _unseen():
        return tensor.shape, tensor.dtype, tensor.numel() * tensor.itemsize


def ask_pinned(tensor: Any) -> bool | None:
    """Whether a tensor's memory is page-locked, a question to the driver; `None` where asking could be seen."""
    if _operator_modes():
        return None
    with _unseen():
        return bool(tensor.is_pinned())


MOST_PARTS = 512
"""Parts of a batch whose bytes are counted; of larger ones nothing is said."""
MOST_LOOKED_AT = 256
"""Parts of a batch that are looked at to tell what it consists of, within each of at most `DEEPEST` levels of lists;
some 1 to 3 µs each."""
MOST_ITEMS = 32
"""Items of a list that are looked at for that."""
DEEPEST = 8
_CODE = (type, FunctionType, BuiltinFunctionType, MethodType, functools.partial, weakref.ref)
"""Data may be callable too: a graph of torch_geometric is."""
_PLAIN = (str, bytes, bytearray, int, float, complex, type(None), *_CODE)
_TEXTS = (str, bytes, bytearray)
_NUMBERS = (int, float)


def parts_of(thing: Any, most: int) -> list[Any] | None:
    """The first `most` things in a container; `None` for what is none."""
    kind = type(thing)
    if issubclass(kind, dict):
        return list(islice(dict.values(thing), most))
    for sequence in (list, tuple, set, frozenset, deque):
        if issubclass(kind, sequence):
            return list(islice(sequence.__iter__(thing), most))
    if issubclass(kind, UserDict):
        inner = object.__getattribute__(thing, "__dict__").get("data")
        return parts_of(inner, most) if isinstance(inner, dict) else None
    if is_dataclass(kind):
        return list(islice(fields_of(thing).values(), most))
    return None


def fields_of(thing: Any) -> dict[str, Any]:
    """The attributes that an object holds itself, its slots included."""
    try:
        held = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        held = {}
    fields = dict(held) if type(held) is dict else {}
    for owner in type(thing).__mro__:
        slots = [(n, d) for n, d in vars(owner).items() if isinstance(d, MemberDescriptorType)]
        for name, descriptor in slots:
            with contextlib.suppress(AttributeError):  # nothing in it yet
                fields.setdefault(name, descriptor.__get__(thing))
    return fields


def bytes_of_array(array: np.ndarray[Any, Any]) -> int:
    return int(np.ndarray.nbytes.__get__(array))


def shape_told(thing: Any) -> tuple[int, ...] | None:
    """The shape of a tensor, an array, or of what else was written in C and has one."""
    if isinstance(thing, torch.Tensor):
        return tuple(shape_of(thing)[0])
    if isinstance(thing, np.ndarray):
        return np.ndarray.shape.__get__(thing)  # type: ignore[no-any-return]
    for owner in type(thing).__mro__:
        descriptor = vars(owner).get("shape")
        if descriptor is not None:
            if isinstance(descriptor, GetSetDescriptorType | MemberDescriptorType):
                shape = descriptor.__get__(thing)
                return shape if isinstance(shape, tuple) else None
            return None
    return None


class BatchParts(NamedTuple):
    """What a batch consists of, as far as it matters for handing it over: each tensor is by itself in shared memory,
    all else is pickled."""

    tensors: int
    tensor_bytes: int
    objects: int
    """Arrays, strings, numbers and whatever else is neither a tensor nor a list of things."""
    object_bytes: int
    """Of the arrays and strings among them."""


def held_by(batch: Any) -> BatchParts:
    """Of a long list some items are looked at and stand for all, the fewer the more lists it is within."""
    found = [0.0] * len(BatchParts._fields)
    todo: list[tuple[Any, float, int, int]] = [(batch, 1.0, MOST_LOOKED_AT, 0)]
    while todo:
        part, stands_for, looks, depth = todo.pop()
        if isinstance(part, torch.Tensor):
            found[0] += stands_for
            found[1] += stands_for * (shape_of(part)[2] if has_plain_memory(part) else 0)
            continue
        inside = parts_of(part, MOST_ITEMS + 1)
        if inside is None or is_dataclass(type(part)):
            found[2] += stands_for
        if isinstance(part, np.ndarray):
            found[3] += stands_for * bytes_of_array(part)
        elif isinstance(part, _TEXTS):
            found[3] += stands_for * len(part)
        elif inside is None and not isinstance(part, _PLAIN):
            inside = list(fields_of(part).values())
        if not inside or depth == DEEPEST:
            continue
        length = len(inside) if len(inside) <= MOST_ITEMS else _length(part)
        if isinstance(inside[0], _NUMBERS) and isinstance(inside[-1], _NUMBERS):
            # A list of numbers has nothing else in it, as a rule.
            found[2] += stands_for * length
            continue
        shown = inside[: max(1, min(looks, MOST_ITEMS))]
        each = stands_for * length / len(shown)
        todo += [(item, each, looks // len(shown), depth + 1) for item in shown]
    return BatchParts(*map(round, found))


def _length(container: Any) -> int:
    """Of what `parts_of` has items of, as it is itself."""
    for kind in (dict, list, tuple, set, frozenset, deque):
        if isinstance(container, kind):
            return kind.__len__(container)  # type: ignore[arg-type]
    if isinstance(container, UserDict):
        return _length(object.__getattribute__(container, "__dict__")["data"])
    return len(fields_of(container))


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
        elif not isinstance(part, _PLAIN):
            todo += [(inner, depth + 1) for inner in fields_of(part).values()]
    return total if tensors else NOT_MEASURED


Found = TypeVar("Found")
LEADING_LEVELS, LEADING_ITEMS = 4, 16
"""Levels of a batch, and items of each, that are searched for its first tensor."""


def samples_of(batch: Any) -> int | None:
    """The leading dimension of a batch's first tensor or array, else the length of a list; `None` if it has neither.

    A guess: right for what `default_collate` makes, wrong where the first tensor is one sample of many. What cannot be
    looked at is not known.
    """
    with ours():
        found = first_within(batch, _leading)
        if found is not None:
            return found
        for kind in (list, tuple):
            if issubclass(type(batch), kind):
                return kind.__len__(batch)
    return None


def first_within(thing: Any, look: Callable[[Any], Found | None], depth: int = LEADING_LEVELS) -> Found | None:
    """What `look` finds first: in a batch itself, or in what lies in it, up to `depth` levels deep."""
    found = look(thing)
    for each in (parts_of(thing, LEADING_ITEMS) or ()) if found is None and depth else ():
        if (found := first_within(each, look, depth - 1)) is not None:
            break
    return found


def _leading(part: Any) -> int | None:
    shape = shape_told(part)
    if shape is None:
        return None
    return int(shape[0]) if shape and isinstance(shape[0], int) else 1


MOST_SEEN = 4096
"""Shapes that are remembered."""
MOST_TENSORS = 16
"""Tensors of a batch that are looked at, the first ones."""
MOST_SEARCHED = 64
"""Whatever else lies in a batch, looked at to find them."""


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
        while left and looked < MOST_SEARCHED:
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
