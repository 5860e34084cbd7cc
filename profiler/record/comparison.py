"""The folder of a comparison: `comparison.json` beside the run folders of its cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePath
from typing import Any

from ..errors import RecordError
from .files import read_json, write_json

FORMAT = "whyidle-comparison"
VERSION = 1
COMPARISON_JSON = "comparison.json"


@dataclass(frozen=True)
class CellRecord:
    """One training of a comparison; `runs` are folder names within the comparison's folder."""

    pipeline: str
    batch_size: int
    status: str
    error: str | None
    runs: tuple[str, ...]
    axes: dict[str, Any] = field(default_factory=dict)
    """What tells cells apart beside loader and batch size, by name: net, device, ranks, …. Empty where that is all."""


def write_comparison(folder: Path, setting: dict[str, Any], cells: Sequence[CellRecord]) -> None:
    """Write or replace the table, atomically. `setting` says what was compared and how.

    Raises:
        RecordError: the folder cannot be written.
    """
    content = {"format": FORMAT, "version": VERSION, "setting": setting, "cells": [asdict(c) for c in cells]}
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        write_json(folder / COMPARISON_JSON, content)
    except OSError as error:
        raise RecordError(f"cannot write {folder}: {error.strerror}. Choose another folder with --out.") from error


def is_comparison(folder: Path) -> bool:
    """Tell whether the folder holds a comparison (of any version)."""
    return (folder / COMPARISON_JSON).is_file()


def read_comparison(folder: Path) -> tuple[dict[str, Any], list[CellRecord]]:
    """Read the setting and the cells of a comparison, finished or not.

    Raises:
        RecordError: none there, not readable, or of an unknown version.
    """
    path = folder / COMPARISON_JSON
    try:
        content = read_json(path)
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']!r}")
        if content.get("version") != VERSION:
            raise RecordError(
                f"{path} has version {content.get('version')}; this whyidle reads version {VERSION}. "
                "Read it with the version of whyidle that wrote it, or a newer one."
            )
        return content["setting"], [
            CellRecord(**{**c, "runs": tuple(_within(folder, n) for n in c["runs"]), "axes": dict(c.get("axes", {}))})
            for c in content["cells"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} is not a readable comparison: {error}.") from error


def _within(folder: Path, name: str) -> str:
    """A folder's name: the file may be anyone's, and its runs are read, and get pages, where it says that they are."""
    if PurePath(name).name != name or name in ("", ".."):
        raise ValueError(f"{name!r} names no folder beside it")
    if (folder / name).is_symlink():
        raise ValueError(f"{name!r} is a link, which whyidle does not follow")
    return name
