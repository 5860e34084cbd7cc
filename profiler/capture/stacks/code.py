"""From a code object of another process and an instruction of it to file, function and line.

Code objects are kept as they were read, by address. Addresses are used again, so each is held against the process's
memory at every look: by what it consists of, the addresses of its constants, names and tables.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from .layouts import Offsets
from .memory import Memory, Torn, pointer

MOST_LETTERS = 4096
"""Of a file's path or of a function's name."""
MOST_TABLE_BYTES = 1 << 22
MOST_KEPT = 50_000
"""Code objects, before all are read anew: a program that makes code as it runs."""
MOST_LINE = 1 << 24

_BEGIN = 8
"""Behind the count of references, which changes all the time."""
_BEGIN_SIZE = 40
"""`ob_type`, `ob_size`, `co_consts`, `co_names`, `co_exceptiontable`."""
_ENCODINGS = {1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a frame stands."""

    file: str
    """As in `co_filename`."""
    function: str
    """Its qualified name."""
    line: int
    first_line: int
    """Of the function: of its first decorator, where it has any."""


@dataclass(slots=True)
class RemoteCode:
    """A code object as it was read."""

    begin: bytes
    names: bytes
    """With `begin`: what it is known by."""
    file: str
    function: str
    first_line: int
    instructions: int
    """The address of the first."""
    end: int
    """That behind the last."""
    starts: list[int]
    """Of its lines, in bytes of instructions; ascending."""
    lines: list[int | None]
    places: dict[int, Place] = field(default_factory=dict)
    """By the address of an instruction."""

    def place(self, instruction: int) -> Place:
        """Raises `Torn` where that is no instruction of this code."""
        # Before the first instruction stands what has not begun.
        if instruction & 1 or not self.instructions - 2 <= instruction < self.end:
            raise Torn("an instruction outside its code")
        at = bisect_right(self.starts, instruction - self.instructions) - 1
        line = self.lines[at] if at >= 0 else None
        found = Place(self.file, self.function, line or self.first_line, self.first_line)
        self.places[instruction] = found
        return found


def line_table(table: bytes, first_line: int) -> tuple[list[int], list[int | None]]:
    """Where each stretch of one line begins, in bytes of instructions, and its line; `None`: of no line.

    The format of CPython 3.11 on: `Objects/locations.md` of its sources. Raises `Torn` where it is none.
    """
    starts: list[int] = []
    lines: list[int | None] = []
    position, at, line = 0, 0, first_line

    def number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = table[position]
            position += 1
            value |= (byte & 63) << shift
            shift += 6
            if not byte & 64:
                return value
            if shift > 36:
                raise Torn("a number without end in a table of lines")

    def step() -> int:
        value = number()
        return -(value >> 1) if value & 1 else value >> 1

    try:
        while position < len(table):
            byte = table[position]
            position += 1
            if not byte & 128:
                raise Torn("no table of lines")
            kind = byte >> 3 & 15
            here: int | None
            if kind == 15:
                here = None
            else:
                if kind == 14:
                    line += step()
                    for _ in range(3):
                        number()
                elif kind == 13:
                    line += step()
                elif kind >= 10:
                    line += kind - 10
                    position += 2
                else:
                    position += 1
                if not -1 <= line <= MOST_LINE:
                    raise Torn(f"line {line}")
                here = line
            if not lines or here != lines[-1]:
                starts.append(at)
                lines.append(here)
            at += 2 * ((byte & 7) + 1)
    except IndexError:
        raise Torn("a table of lines ends too early") from None
    return starts, lines


class CodeReader:
    """The code objects of one process."""

    def __init__(self, memory: Memory, offsets: Offsets, code_type: int, text_type: int, bytes_type: int) -> None:
        """The types: the addresses of `PyCode_Type`, `PyUnicode_Type` and `PyBytes_Type`."""
        self._memory = memory
        self._offsets = offsets
        self._code_type, self._text_type, self._bytes_type = code_type, text_type, bytes_type
        self._kept: dict[int, RemoteCode] = {}
        self._names = offsets.code_filename - _BEGIN
        self._size = offsets.code_linetable + 8 - _BEGIN

    def at(self, address: int) -> RemoteCode:
        """As it is now; raises `Torn` where there is none."""
        data = self._memory.read(address + _BEGIN, self._size)
        known = self._kept.get(address)
        if known is not None and data.startswith(known.begin) and data.endswith(known.names):
            return known
        found = self._read(address, data)
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[address] = found
        return found

    def _read(self, address: int, data: bytes) -> RemoteCode:
        offsets = self._offsets
        kind, units = int.from_bytes(data[:8], "little"), int.from_bytes(data[8:16], "little")
        if kind != self._code_type or not 0 < units <= MOST_TABLE_BYTES:
            raise Torn("no code object")
        first_line = int.from_bytes(
            data[offsets.code_firstlineno - _BEGIN : offsets.code_firstlineno - _BEGIN + 4], "little", signed=True
        )
        if not -1 <= first_line <= MOST_LINE:
            raise Torn(f"line {first_line}")
        starts, lines = line_table(self._bytes(pointer(data, offsets.code_linetable - _BEGIN)), first_line)
        begin = address + offsets.code_instructions
        found = RemoteCode(
            data[:_BEGIN_SIZE],
            data[self._names :],
            self._text(pointer(data, offsets.code_filename - _BEGIN)),
            self._text(pointer(data, offsets.code_qualname - _BEGIN)),
            first_line,
            begin,
            begin + 2 * units,
            starts,
            lines,
        )
        # What it pointed to may have been freed while it was read.
        if self._memory.read(address + _BEGIN, self._size) != data:
            raise Torn("a code object that changed")
        return found

    def _bytes(self, address: int) -> bytes:
        head = self._memory.read(address, 32)
        kind, size = int.from_bytes(head[8:16], "little"), int.from_bytes(head[16:24], "little")
        if kind != self._bytes_type or size > MOST_TABLE_BYTES:
            raise Torn("no bytes")
        return self._memory.read(address + 32, size) if size else b""

    def _text(self, address: int) -> str:
        """Of a string as any name in code is: compact, and no longer than a path may be."""
        head = self._memory.read(address, 40)
        kind, length = int.from_bytes(head[8:16], "little"), int.from_bytes(head[16:24], "little")
        # Behind two bits of `interned`; pre-releases of 3.14 had sixteen of them.
        state = head[32] >> 2 or head[34]
        width, compact, ascii_only = state & 7, state >> 3 & 1, state >> 4 & 1
        if kind != self._text_type or not compact or width not in _ENCODINGS or length > MOST_LETTERS:
            raise Torn("no string")
        if not length:
            return ""
        size = self._offsets.ascii_size if ascii_only else self._offsets.compact_size
        try:
            # With half pairs, as a path that is no UTF-8 has.
            return self._memory.read(address + size, length * width).decode(_ENCODINGS[width], "surrogatepass")
        except UnicodeDecodeError:
            raise Torn("no text") from None
