"""Which image files a data set reads, as far as its attributes tell: no code of it runs for that."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

MOST = 96
"""Files that are told of."""
_SUFFIXES = (".jpg", ".jpeg")
_DEEPEST = 4
"""Data sets within data sets."""
_INNER = ("dataset", "data", "_dataset", "base")
_ROOTS = (
    "root",
    "root_dir",
    "img_dir",
    "image_dir",
    "images_dir",
    "img_folder",
    "image_folder",
    "folder",
    "path",
    "dir",
)


def image_files(data: Any) -> tuple[str, ...]:
    """Some of the JPEG files of a data set, evenly from all of them; none where no attribute lists any."""
    for each in _within(data):
        attributes = vars(each) if hasattr(each, "__dict__") else {}
        roots = [Path(root) for name in _ROOTS if isinstance(root := attributes.get(name), str | PurePath)]
        for listed in attributes.values():
            if found := _files(listed, roots):
                return found
    return ()


def _within(data: Any) -> Iterator[Any]:
    for _ in range(_DEEPEST):
        if data is None:
            return
        yield data
        attributes = vars(data) if hasattr(data, "__dict__") else {}
        data = next((attributes[name] for name in _INNER if hasattr(attributes.get(name), "__dict__")), None)


def _files(listed: Any, roots: Sequence[Path]) -> tuple[str, ...]:
    if type(listed) not in (list, tuple) and type(listed).__module__ != "numpy":
        return ()
    if type(listed).__name__ not in ("list", "tuple", "ndarray") or not len(listed):
        return ()
    if _name(listed[0]) is None:
        return ()
    chosen = [_name(listed[place]) for place in range(0, len(listed), max(1, len(listed) // MOST))][:MOST]
    names = [name for name in chosen if name is not None]
    for root in (Path(), *roots):
        if (root / names[0]).is_file():
            return tuple(str((root / name).absolute()) for name in names)
    return ()


def _name(entry: Any) -> str | None:
    """Of a file, by itself or first in a row."""
    if isinstance(entry, tuple | list) and len(entry):
        entry = entry[0]
    if isinstance(entry, str | PurePath) and str(entry).lower().endswith(_SUFFIXES):
        return str(entry)
    return None
