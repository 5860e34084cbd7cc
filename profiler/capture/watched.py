"""An iterable whose fetches are recorded: what `whyidle.watch` gives, and what stands for a library's generator."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Protocol

from .hidden import forget_ours

_HEAP, _IMMUTABLE = 1 << 9, 1 << 8
"""Flags of types: made at run time, cannot be changed. What is written in C lacks the one or has the other."""


class Pass(Protocol):
    """One pass over an iterable, in the recording that runs."""

    def make(self, iterate: Callable[[], Any]) -> Any: ...
    def fetch(self, fetch: Callable[..., Any], *args: Any) -> Any: ...


class Watched:
    """Iterates as the object within does, and is to everything else what that object is.

    The special methods of the object within are added for each of its types (`_kind_for`): it has those and no others.
    What it needs of its own has names that no iterable has.
    """

    __slots__ = ("__weakref__", "_whyidle_begin", "_whyidle_inner", "_whyidle_pass")

    def __init__(self, inner: Any, begin: Callable[[Any], Pass | None], under_way: Pass | None = None) -> None:
        """
        Args:
            begin: begins a pass over its argument, where a recording runs.
            under_way: `inner` is the iterator of this pass.
        """
        self._whyidle_inner = inner
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
        # A copy, in another process say, is not watched: the object within is what it stands for.
        return _itself, (self._whyidle_inner,)

    def __copy__(self) -> Any:
        return copy.copy(self._whyidle_inner)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """For `isinstance`."""
        return type(self._whyidle_inner)


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


def watched(inner: Any, begin: Callable[[Any], Pass | None], under_way: Pass | None = None) -> Any:
    """`inner`, watched; or `inner` itself, where nothing could stand for it.

    Functions in C do not ask a list, a mapping, a tensor or an array for its items, they take them: such are left as
    they are. So is what is iterated asynchronously.
    """
    kind: Any = type(inner)
    iterates = hasattr(kind, "__next__")
    if not iterates and any(_is_c(base) for base in kind.__mro__[:-1]):
        return inner
    if not (hasattr(kind, "__iter__") or hasattr(kind, "__getitem__")):
        return inner
    return _kind_for(kind)(inner, begin, under_way)


def _is_c(kind: type) -> bool:
    return not kind.__flags__ & _HEAP or bool(kind.__flags__ & _IMMUTABLE)


_OURS = frozenset(
    name
    for owner in (Watched, WatchedIterator)
    for name in vars(owner)
    if name not in ("__doc__", "__module__")  # these are the inner type's
) | {
    *("__new__", "__del__", "__dict__", "__getattribute__", "__init_subclass__", "__subclasshook__", "__reduce_ex__"),
    *("__getstate__", "__setstate__", "__deepcopy__", "__getnewargs__", "__getnewargs_ex__", "__class_getitem__"),
    *("__set_name__", "__get__", "__set__", "__delete__", "__sizeof__", "__instancecheck__", "__subclasscheck__"),
}
"""Special methods that are not handed on: they are ours, or those of the class."""


@lru_cache(maxsize=64)
def _kind_for(kind: type) -> Any:
    """A class that hands on just those special methods that `kind` has."""
    base = WatchedIterator if hasattr(kind, "__next__") else Watched
    space: dict[str, Any] = {"__slots__": (), "__doc__": kind.__doc__, "__module__": kind.__module__}
    for name in dir(kind):
        if name.startswith("__") and name.endswith("__") and name not in _OURS and name not in space:
            method = getattr(kind, name, None)
            if callable(method):
                space[name] = _handing_on(name)
            elif name == "__hash__":
                space[name] = None
    if hasattr(kind, "send"):
        space["send"] = _send
    return type(base.__name__, (base,), space)


def _handing_on(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        inner = self._whyidle_inner
        others = [a._whyidle_inner if issubclass(type(a), Watched) else a for a in args]
        try:
            result = getattr(type(inner), name)(inner, *others, **kwargs)
        except BaseException as error:
            forget_ours(error)
            raise
        # As `with … as batches` gives it, say.
        return self if result is inner else result

    method.__name__ = name
    return method


def _send(self: Any, value: Any) -> Any:
    try:
        return self._whyidle_fetch(self._whyidle_inner.send, value)
    except BaseException as error:
        forget_ours(error)
        raise


def _itself(inner: Any) -> Any:
    return inner
