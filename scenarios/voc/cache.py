"""Remembers which images have been verified, so that a set is decoded once and not before every training.

One file per set in the user's cache folder; the set's own folder is never written. Losing, breaking or being denied
the cache costs only time, so every failure here is silent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from platformdirs import user_cache_dir

_VERSION = 1


class Verified(NamedTuple):
    """What decoding an image file found, and the file's size and time by which to tell that it is still the same."""

    bytes: int
    mtime_ns: int
    width: int
    height: int
    fault: str
    """Empty for a good image; then width and height are its size."""


def load(root: Path) -> dict[str, Verified]:
    """What is known of the images of a set, by name."""
    try:
        content = json.loads(_file(root).read_text(encoding="utf-8"))
        if content["version"] != _VERSION:
            return {}
        return {name: _entry(values) for name, values in content["images"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def store(root: Path, images: dict[str, Verified]) -> None:
    """Keeps what is known of the images of a set."""
    file = _file(root)
    content = json.dumps({"version": _VERSION, "root": str(root), "images": images})
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=file.parent, prefix=file.stem)
        try:
            with open(descriptor, "w", encoding="utf-8") as stream:
                stream.write(content)
            Path(temporary).replace(file)
        except OSError:
            Path(temporary).unlink()


def _file(root: Path) -> Path:
    key = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]
    return Path(user_cache_dir("whyidle")) / "verified" / f"{key}.json"


def _entry(values: list[int | str]) -> Verified:
    entry = Verified(*values)  # type: ignore[arg-type]
    if [type(value) for value in entry] != [int, int, int, int, str]:
        raise ValueError(values)
    return entry
