"""An iterable whose fetches are recorded: what `whyidle.watch` gives, and what stands for a library's generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .hidden import forget_ours
from .stand_in import StandIn, has_parts_in_c, stand_in

if TYPE_CHECKING:
    from .hooks.fetches import Pass


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
