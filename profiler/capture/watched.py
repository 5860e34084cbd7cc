"""An iterable whose fetches are recorded: what `stallscope.watch` gives, and what stands for a library's generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Pass(Protocol):
    """One pass over an iterable, in the recording that runs."""

    def make(self, iterate: Callable[[], Any]) -> Any: ...
    def fetch(self, fetch: Callable[..., Any], *args: Any) -> Any: ...


class Watched:
    """Iterates as the object within does, and is to everything else what that object is.

    What it needs of its own has names that no iterable has.
    """

    __slots__ = ("__weakref__", "_stallscope_begin", "_stallscope_inner", "_stallscope_pass")

    def __init__(self, inner: Any, begin: Callable[[Any], Pass | None], under_way: Pass | None = None) -> None:
        """
        Args:
            begin: begins a pass over its argument, where a recording runs.
            under_way: `inner` is the iterator of this pass.
        """
        self._stallscope_inner = inner
        self._stallscope_begin = begin
        self._stallscope_pass = under_way

    def __iter__(self) -> Any:
        inner = self._stallscope_inner
        if self._stallscope_pass is not None:
            return self
        begun = self._stallscope_begin(self)
        if begun is None:
            return iter(inner)
        iterator = begun.make(lambda: iter(inner))
        if iterator is inner:
            self._stallscope_pass = begun
            return self
        return WatchedIterator(iterator, self._stallscope_begin, begun)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stallscope_inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("_stallscope_"):
            object.__setattr__(self, name, value)
        else:
            setattr(self._stallscope_inner, name, value)

    def __len__(self) -> int:
        return len(self._stallscope_inner)

    def __length_hint__(self) -> Any:
        hint = getattr(type(self._stallscope_inner), "__length_hint__", None)
        return NotImplemented if hint is None else hint(self._stallscope_inner)

    def __bool__(self) -> bool:
        return bool(self._stallscope_inner)

    def __getitem__(self, key: Any) -> Any:
        return self._stallscope_inner[key]

    def __contains__(self, item: Any) -> bool:
        return item in self._stallscope_inner

    def __repr__(self) -> str:
        return repr(self._stallscope_inner)

    def __reduce__(self) -> Any:
        # A copy, in another process say, is not watched: the object within is what it stands for.
        return _itself, (self._stallscope_inner,)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """For `isinstance`."""
        return type(self._stallscope_inner)


class WatchedIterator(Watched):
    """The same of what is an iterator, or a generator, itself."""

    __slots__ = ()

    def __next__(self) -> Any:
        return self._stallscope_fetch(type(self._stallscope_inner).__next__, self._stallscope_inner)

    def send(self, value: Any) -> Any:
        return self._stallscope_fetch(self._stallscope_inner.send, value)

    def _stallscope_fetch(self, fetch: Callable[..., Any], *args: Any) -> Any:
        under_way = self._stallscope_pass
        if under_way is None:
            under_way = self._stallscope_pass = self._stallscope_begin(self)
        return fetch(*args) if under_way is None else under_way.fetch(fetch, *args)


def watched(inner: Any, begin: Callable[[Any], Pass | None], under_way: Pass | None = None) -> Any:
    """`inner`, watched."""
    kind = WatchedIterator if hasattr(type(inner), "__next__") else Watched
    return kind(inner, begin, under_way)


def _itself(inner: Any) -> Any:
    return inner
