"""What a recording has to say about itself: short sentences in files of the run folder, each once."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .files import plain

_ENDING = "-notices.txt"


class Notices:
    """Appends sentences to `WHO-notices.txt`, one a line. Never raises: a full disk has no room for them."""

    def __init__(self, folder: Path, who: str) -> None:
        self._path = folder / f"{who}{_ENDING}"
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        if sentence in self._said:
            return
        self._said.add(sentence)
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(" ".join(sentence.split()) + "\n")


def read_notices(folder: Path) -> list[str]:
    """All sentences of a run folder, by file and in the order they were said."""
    said = []
    for path in sorted(folder.glob(f"*{_ENDING}")):
        with contextlib.suppress(OSError):
            said += [plain(line) for line in path.read_text(errors="replace").splitlines() if line]
    return said
