"""What a program's output has left a terminal in: whether rows may be drawn now, and what would be lost by it."""

from __future__ import annotations

import re
import time

from rich.cells import cell_len

TAIL = 256
LONGEST_ROW = 4096
"""Bytes. What a longer one fills is not worked out."""
SAVED_SECONDS = 30.0
"""A program that has saved the cursor's place wants it back, and terminals keep only one: nothing is drawn until then,
or for so long, should it never ask."""
_UNFINISHED = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]P_^X][^\x07\x1b]*\x1b?|[ -/]*)?$")
_STRING = re.compile(rb"\x1b[\]P_^X][^\x07\x1b]*\x1b?$")
"""Unfinished: a title, a picture. It may be of any length."""
_MODES = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")
_WHOLE_SCREEN = {b"1049", b"1047", b"47"}
_WRAPS = b"7"
_SAVED = re.compile(rb"\x1b(?:(7|\[s)|8|\[u)")
_STAYS = re.compile(rb"\x1b\[[0-9;:]*[mK]")
"""Sequences that leave the cursor where it is."""
_CONTROL = re.compile(rb"[\x00-\x1f\x7f]")
_COLOURS = re.compile(rb"(?:\x1b\[[0-9;:]*m)*")


class ProgramOutput:
    """Call `follow` with all that is written."""

    def __init__(self) -> None:
        self.tail = b""
        self.whole_screen = False
        """Whether the program has it, as an editor does."""
        self._saved_at: float | None = None
        """When the program saved the cursor's place, until it asks for it."""
        self._wraps = True
        """Whether what is longer than a row goes on in the next one."""
        self._row: bytes | None = b""
        """Written since the cursor was at a row's begin, where that is known."""

    def follow(self, written: bytes) -> None:
        joined = self.tail + written
        for modes in _MODES.finditer(joined):
            for mode in modes[1].split(b";"):
                if mode in _WHOLE_SCREEN:
                    self.whole_screen = modes[2] == b"h"
                elif mode == _WRAPS:
                    self._wraps = modes[2] == b"h"
        for place in _SAVED.finditer(self.tail[-2:] + written):
            self._saved_at = None if place[1] is None else time.monotonic()
        self.tail = ending(joined)
        begin = max(written.rfind(b"\r"), written.rfind(b"\n")) + 1
        if begin:
            self._row = b""
        if self._row is not None and len(self._row) + len(written) - begin <= LONGEST_ROW:
            self._row += written[begin:]
        else:
            self._row = None

    def lets_draw(self) -> bool:
        """Whether it ended with whole signs, and the cursor's place may be saved."""
        saved = self._saved_at is not None and time.monotonic() < self._saved_at + SAVED_SECONDS
        return not saved and between(self.tail)

    def fills_its_row(self, columns: int) -> bool:
        """Whether the last sign stands in the last column, so that the next one begins a row.

        That the cursor is past the row's end some terminals forget when its place is saved and restored.
        """
        if not self._wraps or not self._row:
            return False
        signs = _STAYS.sub(b"", self._row)
        if _CONTROL.search(signs):
            return False  # it may have moved
        column = 0
        for sign in signs.decode("utf-8", "replace"):
            width = cell_len(sign)
            # One of two columns begins the next row where only one is left.
            column = width if column + width > columns else column + width
        return column == columns

    def forget_row(self) -> None:
        """The terminal has another size, and has done with the row what it does."""
        self._row = None


def goes_on_in_the_row(written: bytes) -> bool | None:
    """Whether the first thing that is not a colour is a sign that would be shown where the cursor is; `None`: there is
    nothing else yet."""
    colours = _COLOURS.match(written)
    rest = written[colours.end() if colours else 0 :]
    return not _CONTROL.match(rest) if rest else None


def between(tail: bytes) -> bool:
    """Whether what was written last ends with a whole character and no unfinished control sequence."""
    if _UNFINISHED.search(tail):
        return False
    for back in range(1, min(4, len(tail)) + 1):
        byte = tail[-back]
        if byte < 0x80:
            return True
        if byte >= 0xC0:
            return back == (2 if byte < 0xE0 else 3 if byte < 0xF0 else 4)
    return True


def ending(written: bytes) -> bytes:
    """As much of the end as tells whether it is `between`: of a long string its begin, and its end."""
    string = _STRING.search(written)
    begin = b"" if string is None or string.start() >= len(written) - TAIL else written[string.start() :][:2]
    return begin + written[-TAIL:]
