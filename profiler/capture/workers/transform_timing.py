"""What single transforms of a dataset cost, for the samples of a few batches."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Iterator
from itertools import islice
from time import monotonic_ns
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from torch.compiler import is_dynamo_compiling

from ..stand_in import StandIn, has_parts_in_c, stand_in

NAMED = ("transform", "transforms", "target_transform")
"""Attributes under which datasets hold what they apply to a sample."""
DEEPEST = 4
WIDEST = 16
"""Datasets within datasets that are searched."""
MOST_PLACES = 64
FIRST = range(1, 4)
EVERY = 50
"""Batches of a worker whose transforms are timed: the second to the fourth, then one in so many. The first is left
out, because it imports and fills caches."""
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, functools.partial)


def is_due(number: int) -> bool:
    """Whether the transforms of a worker's batch with this number, from 0, are timed.

    None is where torch's compiler has been at work in this process, or in the one it was forked from: it may have
    compiled code of the dataset's, and would look into what stands there for a transform.
    """
    if number not in FIRST and (number == 0 or number % EVERY):
        return False
    return not getattr(sys.modules.get("torch._dynamo.convert_frame"), "FRAME_COUNTER", 0)


class TransformCalls:
    """What the calls of one transform took in one batch."""

    __slots__ = ("calls", "name", "ns", "position")

    def __init__(self, transform: Any, position: int) -> None:
        self.position = position
        """Among the dataset's transforms, from 0."""
        self.name = _name_of(transform)
        self.calls = 0
        self.ns = 0


class TransformTiming:
    """Times a dataset's transforms until `end`.

    Where the dataset holds a transform, something stands in for it that is called in its place. The transform is not
    changed, nor is its class.
    """

    def __init__(self, dataset: Any) -> None:
        self.ended = False
        self.depth = 0
        """Timed transforms under way: one may call another."""
        self.total_ns = 0
        """Time in any of them."""
        self.transforms: list[TransformCalls] = []
        self._changed: dict[int, Any] = {}
        """Dictionaries and lists in which something stands in for a transform, by their `id`."""
        known: dict[int, Any] = {}
        try:
            # All of them are found before the first is replaced: a stand-in is nobody's transform.
            for held, key, inner in list(islice(_places(dataset), MOST_PLACES)):
                timed = known.get(id(inner))
                if timed is None:
                    cost = TransformCalls(inner, len(self.transforms))
                    base = TimedFunction if type(inner) in _FUNCTIONS else TimedTransform
                    timed = known[id(inner)] = stand_in(base, inner, cost, self)
                    self.transforms.append(cost)
                self._changed[id(held)] = held
                held[key] = timed
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """What the dataset holds are its transforms again, wherever it has moved them meanwhile; safe to call twice."""
        self.ended = True
        while self._changed:
            _, held = self._changed.popitem()
            for key, there in list(enumerate(held) if isinstance(held, list) else held.items()):
                if issubclass(type(there), TimedTransform) and there._whyidle_timing is self:
                    held[key] = there._whyidle_inner


class TimedTransform(StandIn):
    """Stands in for a transform and times its calls."""

    __slots__ = ("_whyidle_cost", "_whyidle_timing")

    def __init__(self, inner: Any, cost: TransformCalls, timing: TransformTiming) -> None:
        super().__init__(inner)
        self._whyidle_cost = cost
        self._whyidle_timing = timing

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        if is_dynamo_compiling():
            return self._whyidle_inner(*args, **kwargs)
        timing = self._whyidle_timing
        timing.depth += 1
        begin = monotonic_ns()
        try:
            return self._whyidle_inner(*args, **kwargs)
        except BaseException as error:
            # As `hidden.forget_frame`, without one more call for each sample.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        finally:
            took = monotonic_ns() - begin
            timing.depth -= 1
            # A dataset may keep what stands in for its transform.
            if not timing.ended:
                cost = self._whyidle_cost
                cost.calls += 1
                cost.ns += took
                if not timing.depth:
                    timing.total_ns += took

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._whyidle_inner)


class TimedFunction(TimedTransform):
    """The same for functions, each of which has a documentation and a module of its own."""

    __slots__ = ()
    __doc__ = property(lambda self: self._whyidle_inner.__doc__)
    __module__ = property(lambda self: self._whyidle_inner.__module__)


def _places(dataset: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(dictionary or list, key or index, transform), in the order in which they are found."""
    todo, seen = [(dataset, 0)], 0
    while todo and seen < WIDEST:
        holder, depth = todo.pop(0)
        seen += 1
        held = getattr(holder, "__dict__", None)
        if type(held) is not dict:
            continue
        named = [value for name, value in list(held.items()) if name in NAMED or _is_torchvision(value)]
        for name, value in list(held.items()):
            # Under other names too: what a dataset compares by `is` stays the same.
            if any(value is each for each in named):
                yield from _within(held, name, value, 0)
        if depth < DEEPEST:
            inside = held.get("datasets")
            below = [held.get("dataset"), *(inside[:WIDEST] if isinstance(inside, list | tuple) else ())]
            todo += [(inner, depth + 1) for inner in below if inner is not None]


def _within(held: Any, key: Any, value: Any, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """The transforms in one place: a Compose of torchvision is taken apart, its StandardTransform too."""
    kind = type(value)
    members = getattr(value, "__dict__", {}).get("transforms")
    if kind.__name__ == "Compose" and _is_torchvision(value) and type(members) is list and depth < DEEPEST:
        for number, member in enumerate(members):
            yield from _within(members, number, member, depth + 1)
    elif kind.__name__ == "StandardTransform" and kind.__module__.startswith("torchvision."):
        for name in ("transform", "target_transform"):
            yield from _within(vars(value), name, vars(value).get(name), depth + 1)
    elif _can_be_timed(value):
        yield held, key, value


def _can_be_timed(value: Any) -> bool:
    """Whether something is called for each sample, and whoever has it can do with it only what Python does."""
    kind = type(value)
    if isinstance(value, type) or issubclass(kind, StandIn):
        return False
    if kind in _FUNCTIONS:
        return True
    return isinstance(inspect.getattr_static(kind, "__call__", None), FunctionType) and not has_parts_in_c(kind)


def _is_torchvision(value: Any) -> bool:
    kind = type(value)
    return callable(value) and not issubclass(kind, StandIn) and kind.__module__.startswith("torchvision.transforms.")


def _name_of(transform: Any) -> str:
    name = getattr(transform, "__qualname__", None)
    if isinstance(name, str):
        return name.replace(".<locals>", "")
    inner = getattr(transform, "func", None)
    return type(transform).__qualname__ if inner is None else f"partial {_name_of(inner)}"
