"""What a recording has to say about itself: short sentences in files of the run folder, each once."""

from __future__ import annotations

import contextlib
from pathlib import Path

from .files import plain

SAMPLER_NOTICES = "sampler-notices.txt"
TRAINING_NOTICES = "training-notices.txt"


class Notices:
    """Appends sentences to a file, one a line. Never raises: a full disk has no room for them."""

    def __init__(self, path: Path) -> None:
        self._path = path
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
    for name in (SAMPLER_NOTICES, TRAINING_NOTICES):
        with contextlib.suppress(OSError):
            text = (folder / name).read_text(errors="replace")
            said += [plain(line) for line in text.splitlines() if line]
    return said
