"""What single transforms of a dataset cost, for the samples of a few batches."""

from __future__ import annotations

import functools
import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterator
from itertools import islice
from time import monotonic_ns
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

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


def is_due(number: int) -> bool:
    """Whether the transforms of a worker's batch with this number, from 0, are timed."""
    return number in FIRST or (number > 0 and number % EVERY == 0)


class Transform:
    """One transform while it is timed."""

    __slots__ = ("calls", "inner", "name", "ns", "position")

    def __init__(self, inner: Any, position: int) -> None:
        self.inner = inner
        self.position = position
        self.name = _name_of(inner)
        self.calls = 0
        self.ns = 0


class Timing:
    """Times a dataset's transforms until `end`.

    An object stays where and what it is: its class is another one for so long, a subclass that times its calls. So what
    it can do besides being called it can do all the time, and nothing of ours is left where the dataset keeps it
    elsewhere. Functions, methods and partials have no class of their own: something stands in for them.
    """

    def __init__(self, dataset: Any) -> None:
        self._put_back: list[Callable[[], None]] = []
        self._known: dict[int, tuple[Transform, Any]] = {}
        """By the transform's `id`, with what stands in for it, if anything does."""
        self.ended = False
        self.depth = 0
        """Timed transforms under way: one may call another."""
        self.total_ns = 0
        """Time in any of them."""
        try:
            # All of them are found before the first is replaced: a stand-in is nobody's transform.
            found = {
                (id(holder), key): (holder, key, inner) for holder, key, inner in islice(_places(dataset), MOST_PLACES)
            }
            for holder, key, inner in found.values():
                self._replace(holder, key, inner)
        except BaseException:
            self.end()
            raise

    @property
    def transforms(self) -> list[Transform]:
        return [timed for timed, _ in self._known.values()]

    def end(self) -> None:
        """Everything as it was; safe to call twice."""
        self.ended = True
        while self._put_back:
            self._put_back.pop()()

    def _replace(self, holder: Any, key: Any, inner: Any) -> None:
        known = self._known.get(id(inner))
        if known is None:
            timed, stand_in = Transform(inner, len(self._known)), None
            if isinstance(inner, _FUNCTIONS) or type(inner) is functools.partial:
                stand_in = _stand_in(timed, self)
            elif (put_back_class := _time_calls_of(timed, self)) is not None:
                self._put_back.append(put_back_class)
            else:
                return
            known = self._known[id(inner)] = timed, stand_in
        stand_in = known[1]
        if stand_in is None:
            return
        if isinstance(holder, list):
            holder[key] = stand_in

            def put_back() -> None:
                # Unless the dataset has changed its list meanwhile.
                if key < len(holder) and holder[key] is stand_in:
                    holder[key] = inner

        else:
            held = vars(holder)
            held[key] = stand_in

            def put_back() -> None:
                if held.get(key) is stand_in:
                    held[key] = inner

        self._put_back.append(put_back)


def _places(dataset: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(list or object, index or attribute, transform), in the order in which they are found."""
    todo, seen = [(dataset, 0)], 0
    while todo and seen < WIDEST:
        holder, depth = todo.pop(0)
        seen += 1
        held = getattr(holder, "__dict__", None)
        if held is None:
            continue
        for name, value in list(held.items()):
            if name in NAMED or _is_torchvision(value):
                yield from _within(holder, name, value, 0)
        if depth < DEEPEST:
            inside = held.get("datasets")
            below = [held.get("dataset"), *(inside[:WIDEST] if isinstance(inside, list | tuple) else ())]
            todo += [(inner, depth + 1) for inner in below if inner is not None]


def _within(holder: Any, key: Any, value: Any, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """The transforms in one place: a Compose of torchvision is taken apart, its StandardTransform too."""
    kind = type(value)
    members = getattr(value, "__dict__", {}).get("transforms")
    if kind.__name__ == "Compose" and _is_torchvision(value) and type(members) is list and depth < DEEPEST:
        for number, member in enumerate(members):
            yield from _within(members, number, member, depth + 1)
    elif kind.__name__ == "StandardTransform" and kind.__module__.startswith("torchvision."):
        for name in ("transform", "target_transform"):
            yield from _within(value, name, vars(value).get(name), depth + 1)
    elif callable(value) and not isinstance(value, type) and not issubclass(kind, _StandIn):
        yield holder, key, value


def _is_torchvision(value: Any) -> bool:
    return callable(value) and type(value).__module__.startswith("torchvision.transforms.")


def _name_of(transform: Any) -> str:
    name = getattr(transform, "__qualname__", None)
    if isinstance(name, str):
        return name.replace(".<locals>", "")
    inner = getattr(transform, "func", None)
    return type(transform).__qualname__ if inner is None else f"partial {_name_of(inner)}"


_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
_class_of = object.__dict__["__class__"]
"""The class that an object really has, read and written past what its class says."""


class _StandIn:
    """What all stand-ins are, whatever they say they are."""

    __slots__ = ()


def _timed(call: Callable[..., Any], timed: Transform, timing: Timing) -> Callable[..., Any]:
    """`call`, as a method whose `self` is the first of its arguments."""

    def __call__(*args: Any, **kwargs: Any) -> Any:  # noqa: N807
        if timing.ended:
            return call(*args, **kwargs)
        timing.depth += 1
        begin = monotonic_ns()
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            # As `hidden.forget_frame`, without one more call for each sample.
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise
        finally:
            took = monotonic_ns() - begin
            timed.calls += 1
            timed.ns += took
            timing.depth -= 1
            if not timing.depth:
                timing.total_ns += took

    return __call__


def _time_calls_of(timed: Transform, timing: Timing) -> Callable[[], None] | None:
    """Give an object a class that times its calls. What gives it back its own; `None` where that cannot be done."""
    inner, kind = timed.inner, type(timed.inner)
    call = inspect.getattr_static(kind, "__call__", None)
    # A program may keep a list of the subclasses of its classes; torchvision does not.
    own = [owner for owner in kind.__mro__[:-1] if not owner.__module__.startswith("torchvision.")]
    said = any(name in vars(owner) for owner in own for name in ("__init_subclass__", "__class__"))
    # Compiled modules ask for the class of what they were compiled for.
    compiled = vars(inner).get("_compiled_call_impl") if hasattr(inner, "__dict__") else None
    if type(kind) not in _METACLASSES or type(call) is not FunctionType or said or compiled is not None:
        return None

    def as_it_is(self: Any, protocol: Any) -> Any:
        # Copies and pickles are of its own class.
        ours = type(self)
        _class_of.__set__(self, kind)
        try:
            return self.__reduce_ex__(protocol)
        finally:
            _class_of.__set__(self, ours)

    ours = _METACLASSES[type(kind)](
        kind.__name__,
        (kind,),
        {
            "__slots__": (),
            "__module__": kind.__module__,
            "__qualname__": kind.__qualname__,
            "__doc__": kind.__doc__,
            "__call__": _timed(call, timed, timing),
            "__class__": property(lambda _: kind),
            "__new__": lambda _, *args, **kwargs: kind.__new__(kind, *args, **kwargs),
            "__reduce_ex__": as_it_is,
        },
    )
    try:
        _class_of.__set__(inner, ours)
    except TypeError:
        return None  # of a class that cannot be changed

    def put_back() -> None:
        if type(inner) is ours:
            _class_of.__set__(inner, kind)

    return put_back


class _Kind(type):
    """Of a class that an object has while it is timed: what `type(self)(…)` makes is of the object's own class."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls.__mro__[1](*args, **kwargs)


class _AbstractKind(_Kind, ABCMeta):
    pass


_METACLASSES: dict[type, Any] = {type: _Kind, ABCMeta: _AbstractKind}


def _stand_in(timed: Transform, timing: Timing) -> Any:
    """Something that does as a function does and says it was it."""
    inner = timed.inner
    call = _timed(inner, timed, timing)

    class StandIn(_StandIn):
        __slots__ = ()
        __doc__ = property(lambda _: inner.__doc__)
        __module__ = property(lambda _: inner.__module__)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            try:
                return call(*args, **kwargs)
            except BaseException as error:
                error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
                raise

        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            return type(inner)

        def __getattr__(self, name: str) -> Any:
            return getattr(inner, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(inner, name, value)

        def __delattr__(self, name: str) -> None:
            delattr(inner, name)

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            bind = getattr(type(inner), "__get__", None)
            return self if bind is None else bind(inner, instance, owner)

        def __repr__(self) -> str:
            return repr(inner)

        def __eq__(self, other: object) -> bool:
            return bool(inner == (inner if other is stand_in else other))

        def __hash__(self) -> int:
            return hash(inner)

        def __reduce_ex__(self, protocol: Any) -> Any:
            # Copies and pickles are the transform's own: the greatest of one is itself.
            return max, ([inner],)

    stand_in = StandIn()
    return stand_in
