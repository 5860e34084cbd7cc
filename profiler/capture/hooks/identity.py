"""What is known of objects, for as long as they live."""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

Known = TypeVar("Known")


class ByIdentity(Generic[Known]):
    """A `WeakKeyDictionary` that asks the objects neither for a hash nor whether they are equal."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], Known]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, of: Any) -> Known | None:
        entry = self._entries.get(id(of))
        return entry[1] if entry is not None and entry[0]() is of else None

    def put(self, of: Any, known: Known) -> None:
        entries, key = self._entries, id(of)

        def gone(reference: weakref.ref[Any]) -> None:
            entry = entries.get(key)
            if entry is not None and entry[0] is reference:
                del entries[key]

        entries[key] = (weakref.ref(of, gone), known)
