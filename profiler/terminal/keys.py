"""Keys from the bytes that a terminal sends."""

from __future__ import annotations

import re

_NAMED = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1b[1;2C": "far right",
    "\x1b[1;2D": "far left",
    "\x1b[Z": "back tab",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    **dict.fromkeys(("\x1b[H", "\x1b[1~", "\x1b[7~"), "home"),
    **dict.fromkeys(("\x1b[F", "\x1b[4~", "\x1b[8~"), "end"),
    "\t": "tab",
    " ": "space",
    "\x1b": "escape",
}
# In application mode a terminal says O for [.
_SEQUENCE = re.compile(r"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b[\[O][0-9;]*$")
LONGEST = 16
"""Bytes; what is longer and unfinished is no key."""


class Keys:
    """Takes what was read, in pieces that may be torn anywhere; gives names of keys, or the signs themselves."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, data: bytes) -> list[str]:
        text = self._rest + data.decode("utf-8", "replace")
        torn = _UNFINISHED.search(text)
        self._rest = torn[0] if torn and len(torn[0]) <= LONGEST else ""
        whole = text[: torn.start()] if torn else text
        pressed = []
        for sequence in _SEQUENCE.findall(whole):
            normal = sequence.replace("\x1bO", "\x1b[", 1)
            name = _NAMED.get(normal, sequence if len(sequence) == 1 and sequence.isprintable() else "")
            if name:
                pressed.append(name)
        return pressed
