"""Names that records point to by number: transforms, files of slow samples. `names.tsv` in the run folder.

A name's number is computed from its text, so that processes which never meet agree on it. Lines are only appended,
each with one system call.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from .files import MOST_DIGITS, add_lines, plain, read_lines
from .schema import NOT_MEASURED

NAMES = "names.tsv"
LONGEST = 300
"""Characters; of longer names the end is kept, which tells paths apart."""
MOST_BYTES = 2 << 20
"""No names are added to a file this large."""


class Names:
    """Appends names, each once. Never raises."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._said: set[int] = set()

    def number(self, text: str) -> int:
        """Give the number of a name, which is in the file from now on; `NOT_MEASURED` where that is not possible."""
        line = " ".join(plain(text).split())
        if len(line) > LONGEST:
            line = "…" + line[1 - LONGEST :]
        with contextlib.suppress(UnicodeError):
            raw = line.encode()
            number = int.from_bytes(hashlib.blake2b(raw, digest_size=8).digest(), "little") >> 1
            if number in self._said or add_lines(self._folder, NAMES, f"{number}\t{line}\n", MOST_BYTES, once=True):
                self._said.add(number)
                return number
        return NOT_MEASURED


def read_names(folder: Path) -> dict[int, str]:
    """Read all names of a run folder by number; lines that are none are left out. Raises as `open_recorded` does."""
    names = {}
    for line in read_lines(folder / NAMES):
        number, tab, text = line.partition(b"\t")
        if tab and number.isdigit() and len(number) <= MOST_DIGITS:
            names[int(number)] = plain(text.decode(errors="replace"))
    return names
