"""Text as windows of characters, each with the character that follows: what the study's text nets learn."""

from __future__ import annotations

import ast
import sysconfig
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from whyidle.errors import DataError

if TYPE_CHECKING:  # the protocol imports torch, which reading does not need
    from collections.abc import Sequence

    from whyidle.pipelines.protocol import Image, Stage, Targets

WINDOW, STEP = 40, 3
CHARACTERS = 600_893
"""In the text of the study, as its readers count it; a stand-in has as many."""
STAND_IN = "Nietzsche's text (docstrings of this Python's standard library)"
_MOST_CHARACTERS = 50_000_000


@dataclass(eq=False)
class Windows:
    """Windows of 40 characters, 3 apart, of a text in lower case."""

    characters: npt.NDArray[np.uint16]
    """The text; a character is its place in the alphabet."""
    alphabet: str
    stand_in: str | None
    stages: Sequence[Stage] = ()
    limit: int | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        whole = max(0, -(-(len(self.characters) - WINDOW) // STEP))
        return whole if self.limit is None else min(whole, self.limit)

    def read(self, index: int) -> memoryview:
        start = STEP * index
        return self.characters[start : start + WINDOW].view(np.uint8).data

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        window: Image = np.frombuffer(data, np.uint16).astype(np.int64)
        return window

    def targets(self, index: int) -> Targets:
        return np.asarray(self.characters[STEP * index + WINDOW], np.int64)

    def describe(self) -> dict[str, Any]:
        return {
            "samples": len(self),
            "unit": "window",
            "stand_in": self.stand_in,
            "characters": len(self.characters),
            "symbols": len(self.alphabet),
            **self.facts,
        }

    def notices(self) -> Sequence[str]:
        return ()


class OneHot:
    """Each character as a row of zeros with a one in its place."""

    def __init__(self, alphabet: int) -> None:
        self._alphabet = alphabet

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        rows = np.zeros((len(image), self._alphabet), np.float32)
        rows[np.arange(len(image)), image] = 1
        return rows, targets


def open_text(place: Path, limit: int | None = None) -> Windows:
    """The text in a file, or of all `.txt` files in a folder, one after another.

    Raises:
        DataError: no text there, or too little.
    """
    files = [place] if place.is_file() else sorted(place.glob("*.txt"))
    if not files:
        raise DataError(f"{place} holds no .txt file. Put a text there, or name one with --data FILE.txt.")
    texts = []
    for file in files:
        try:
            texts.append(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or f"it is not UTF-8 ({error})"
            raise DataError(f"{file} cannot be read as text: {why}.") from error
    return windows("\n".join(texts), None, limit, {"files": [file.name for file in files]}, str(place))


def stand_in(limit: int | None = None) -> Windows:
    """Text that every Python has."""
    return windows(_docstrings(), STAND_IN, limit, {}, "the standard library")


def windows(text: str, stand_in: str | None, limit: int | None, facts: dict[str, Any], where: str) -> Windows:
    """
    Raises:
        DataError: the text is shorter than a window, or longer than anybody means to train with.
    """
    text = text.lower()
    if not WINDOW < len(text) <= _MOST_CHARACTERS:
        raise DataError(
            f"{where} has {len(text)} characters. Name a text of more than {WINDOW}, at most {_MOST_CHARACTERS}."
        )
    points = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    known, places = np.unique(points, return_inverse=True)
    alphabet = "".join(map(chr, known.tolist()))
    return Windows(places.astype(np.uint16), alphabet, stand_in, limit=limit, facts=facts)


@cache
def _docstrings() -> str:
    """Docstrings of the standard library's modules in the order of their files, ASCII, as long as the study's text.

    Source is parsed, never run.
    """
    found: list[str] = []
    length = 0
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        try:
            tree = ast.parse(file.read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (said := ast.get_docstring(node)):
                found.append(said.encode("ascii", "ignore").decode())
                length += len(found[-1]) + 1
        if length >= CHARACTERS:
            break
    return "\n".join(found)[:CHARACTERS]
