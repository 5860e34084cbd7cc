"""What the sampler has to say: short sentences in a file of the run folder, each once."""

from __future__ import annotations

import contextlib
from pathlib import Path

NOTICES = "sampler-notices.txt"


class Notices:
    """Appends sentences to `sampler-notices.txt`, one a line. Never raises: a full disk has no room for them."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NOTICES
        self._said: set[str] = set()

    def __call__(self, sentence: str) -> None:
        if sentence in self._said:
            return
        self._said.add(sentence)
        with contextlib.suppress(OSError), self._path.open("a") as file:
            file.write(" ".join(sentence.split()) + "\n")
