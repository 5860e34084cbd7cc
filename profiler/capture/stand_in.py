"""What stands in the place of an object of the training's, and is to everything but us that object.

The object itself stays as it is, its class too. One stands for an iterable whose fetches are recorded: what
`whyidle.watch` gives, and what stands for a library's generator.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .hidden import forget_ours

if TYPE_CHECKING:
    from .hooks.fetches import Pass

_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
"""Flags of types: made at run time, cannot be changed. What is written in C lacks the one or has the other."""


class StandIn:
    """Hands on to the object within whatever is asked of it.

    Made by `stand_in`, of a class for each type that is stood for: it has those special methods that the type has and
    no others, but for what a subclass of this one defines itself. What that needs of its own has names that no object
    of the training's has.
    """

    __slots__ = ("__weakref__", "_whyidle_inner")

    def __init__(self, inner: Any) -> None:
        self._whyidle_inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._whyidle_inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_whyidle_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._whyidle_inner, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._whyidle_inner, name)

    def __reduce__(self) -> Any:
        # A copy, in another process say, is one of the object within, made without us: the greatest of one is itself.
        return max, ([self._whyidle_inner],)

    def __copy__(self) -> Any:
        return copy.copy(self._whyidle_inner)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """For `isinstance`."""
        return type(self._whyidle_inner)


def stand_in(base: Any, inner: Any, *args: Any) -> Any:
    """A `base`, a kind of `StandIn`, for `inner`; `args` are those of its making."""
    kind: Any = type(inner)
    return type.__call__(_kind_for(base, kind), inner, *args)


def has_parts_in_c(kind: type) -> bool:
    """Whether objects of a type are not stood for: functions in C take what such hold, without asking them for it."""
    return any(not base.__flags__ & _HEAP or bool(base.__flags__ & _IMMUTABLE) for base in kind.__mro__[:-1])


class _Kind(type):
    """Of the classes of stand-ins: such a class hands on to the class of the objects within."""

    _whyidle_kind: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return cls._whyidle_kind(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        return getattr(cls._whyidle_kind, name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, cls._whyidle_kind)


_NOT_HANDED_ON = frozenset(
    {
        *("__new__", "__del__", "__dict__", "__getattribute__", "__init_subclass__", "__subclasshook__"),
        *("__reduce_ex__", "__getstate__", "__setstate__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__"),
        *("__class_getitem__", "__set_name__", "__get__", "__set__", "__delete__", "__sizeof__"),
        *("__instancecheck__", "__subclasscheck__", "__annotate_func__"),
    }
)
"""Special methods that belong to a class, or would let a copy be one of the stand-in."""


@lru_cache(maxsize=64)
def _kind_for(base: Any, kind: Any) -> Any:
    """A `base` that hands on just those special methods that `kind` has."""
    space: dict[str, Any] = {"__slots__": (), "__qualname__": kind.__qualname__, "_whyidle_kind": kind}
    for name in ("__doc__", "__module__"):
        own = vars(base).get(name)
        space[name] = own if isinstance(own, property) else getattr(kind, name)
    ours = {name for owner in base.__mro__[:-1] for name in vars(owner)} | _NOT_HANDED_ON
    for name in dir(kind):
        if name.startswith("__") and name.endswith("__") and name not in ours and name not in space:
            method = getattr(kind, name, None)
            if callable(method):
                space[name] = _handing_on(name)
            elif name == "__hash__":
                space[name] = None
    return _Kind(kind.__name__, (base,), space)


def _handing_on(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self._whyidle_inner
        others = [a._whyidle_inner if issubclass(type(a), StandIn) else a for a in args]
        try:
            result = getattr(type(inner), name)(inner, *others, **kwargs)
        except BaseException as error:
            forget_ours(error)
            raise
        # As `with … as batches` gives it, say.
        return self if result is inner else result

    method.__name__ = name
    return method


class Watched(StandIn):
    """Iterates as the object within does, and is to everything else what that object is."""

    __slots__ = ("_whyidle_begin", "_whyidle_pass")

    def __init__(self, inner: Any, begin: Callable[[Any], Pass | None], under_way: Pass | None = None) -> None:
        """
        Args:
            begin: begins a pass over its argument, where a recording runs.
            under_way: `inner` is the iterator of this pass.
        """
        super().__init__(inner)
        self._whyidle_begin = begin
        self._whyidle_pass = under_way

    def __iter__(self) -> Any:
        try:
            inner = self._whyidle_inner
            begun = self._whyidle_pass
            if begun is not None:
                # An iterator may begin anew when it is asked for itself.
                iterator = iter(inner)
                if iterator is inner:
                    return self
                begun = self._whyidle_begin(self)
                return iterator if begun is None else watched(iterator, self._whyidle_begin, begun)
            begun = self._whyidle_begin(self)
            if begun is None:
                return iter(inner)
            iterator = begun.make(lambda: iter(inner))
            if iterator is inner:
                self._whyidle_pass = begun
                return self
            return watched(iterator, self._whyidle_begin, begun)
        except BaseException as error:
            forget_ours(error)
            raise


class WatchedIterator(Watched):
    """The same of what is an iterator, or a generator, itself."""

    __slots__ = ()

    def __next__(self) -> Any:
        try:
            return self._whyidle_fetch(type(self._whyidle_inner).__next__, self._whyidle_inner)
        except BaseException as error:
            forget_ours(error)
            raise

    def _whyidle_fetch(self, fetch: Callable[..., Any], *args: Any) -> Any:
        under_way = self._whyidle_pass
        if under_way is None:
            under_way = self._whyidle_pass = self._whyidle_begin(self)
        return fetch(*args) if under_way is None else under_way.fetch(fetch, *args)


class WatchedGenerator(WatchedIterator):
    """The same of what values can be sent to."""

    __slots__ = ()

    def send(self, value: Any) -> Any:
        try:
            return self._whyidle_fetch(self._whyidle_inner.send, value)
        except BaseException as error:
            forget_ours(error)
            raise


def watched(inner: Any, begin: Callable[[Any], Pass | None], under_way: Pass | None = None) -> Any:
    """`inner`, watched; or `inner` itself, where nothing could stand for it.

    Functions in C do not ask a list, a mapping, a tensor or an array for its items, they take them: such are left as
    they are. So is what is iterated asynchronously.
    """
    kind = type(inner)
    if not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")):
        return inner
    if hasattr(kind, "__next__"):
        return stand_in(WatchedGenerator if hasattr(kind, "send") else WatchedIterator, inner, begin, under_way)
    return inner if has_parts_in_c(kind) else stand_in(Watched, inner, begin, under_way)
