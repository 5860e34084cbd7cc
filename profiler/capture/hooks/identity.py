"""What is known of objects, for as long as they live."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any, Generic, TypeVar

Known = TypeVar("Known")


class ByIdentity(Generic[Known]):
    """A `WeakKeyDictionary` that asks the objects neither for a hash nor whether they are equal."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], Known]] = {}

    def get(self, of: Any) -> Known | None:
        entry = self._entries.get(id(of))
        return entry[1] if entry is not None and entry[0]() is of else None

    def put(self, of: Any, known: Known) -> None:
        # Called with the reference, which is then what a missing entry is taken to be. No function in Python: there a
        # Ctrl-C might be raised, and be swallowed.
        gone = partial(self._entries.pop, id(of))
        self._entries[id(of)] = weakref.ref(of, gone), known
