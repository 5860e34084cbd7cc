"""The frames of one thread, read in as few pieces as they lie in.

A thread's frames lie one behind the other in a piece of memory of its own (a chunk of its data stack), those of
generators in their objects, and what stands for a piece of C in between on the C stack. So the chunk is read at once.

The innermost frame is named before the chunk is read, so that the lines of its callers may be one call to the kernel
(about a microsecond) younger than it.
"""

from __future__ import annotations

import struct

from .code import CodeReader, Place, RemoteCode
from .layouts import Fields, Offsets
from .memory import LEAST_ADDRESS, MOST_ADDRESS, Memory, Torn

MOST_PLACES = 256
_MOST_FRAMES = 4 * MOST_PLACES
"""With those that stand for a piece of C."""
_MOST_CHUNKS = 64
_WINDOW = 1 << 15
"""Of a chunk, read at once: CPython's chunks have 16 KiB, and more only where one frame needs it."""
_MOST_CHUNK = 1 << 24
_NO_PYTHON = 3
"""From this owner on a frame is none of Python's: `FRAME_OWNED_BY_CSTACK` of 3.12 and 3.13, `_INTERPRETER` of 3.14."""


class FrameReader:
    """The frames of one process's threads."""

    def __init__(self, memory: Memory, offsets: Offsets, codes: CodeReader) -> None:
        self._memory = memory
        self._codes = codes
        fields = Fields(
            (offsets.frame_code, "Q"),
            (offsets.frame_previous, "Q"),
            (offsets.frame_instruction, "Q"),
            (offsets.frame_owner, "B"),
        )
        self._structure, self._order = fields.structure, fields.order
        self._untagged = ~offsets.tag
        self._chunks: dict[int, _Chunks] = {}
        """By the address of the newest."""

    def forget(self) -> None:
        """Where chunks lie: after a look that failed."""
        self._chunks.clear()

    def places(self, innermost: int, chunk: int) -> tuple[list[Place], bool]:
        """Where the frames stand, outermost first, of at most `MOST_PLACES`; and whether there were more.

        `innermost`: the address of the innermost frame, 0 for none. `chunk`: of the thread's data stack, the newest.
        Raises `Torn` or `Gone`.
        """
        read, unpack, size = self._memory.read, self._structure.unpack_from, self._structure.size
        code_at, codes_seen = self._codes.at, dict[int, RemoteCode]()
        code_is, previous_is, instruction_is, owner_is = self._order
        untagged = self._untagged
        found: list[Place] = []
        data, start, last = b"", 0, -1
        chunks = self._chunks.get(chunk)
        if chunks is None:
            if len(self._chunks) >= _MOST_CHUNKS:
                self._chunks.clear()
            chunks = self._chunks[chunk] = _Chunks(self._memory, chunk)
        address = innermost
        for _ in range(_MOST_FRAMES):
            if not address:
                found.reverse()
                return found, False
            if not start <= address <= last:
                if address & 7 or not LEAST_ADDRESS <= address < MOST_ADDRESS:
                    raise Torn("no frame")
                begin = chunks.begin(address)
                if begin is None:
                    fields = unpack(read(address, size))
                else:
                    start = max(begin, address - _WINDOW)
                    data, last = read(start, address - start + size), address
                    fields = unpack(data, address - start)
            else:
                fields = unpack(data, address - start)
            if fields[owner_is] < _NO_PYTHON:
                if len(found) == MOST_PLACES:
                    found.reverse()
                    return found, True
                code_address = fields[code_is] & untagged
                code = codes_seen.get(code_address)
                if code is None:
                    code = codes_seen[code_address] = code_at(code_address)
                instruction = fields[instruction_is]
                found.append(code.places.get(instruction) or code.place(instruction))
            elif fields[owner_is] > _NO_PYTHON + 1:
                raise Torn("no frame")
            address = fields[previous_is]
        raise Torn("frames without end")


class _Chunks:
    """The chunks of a thread's data stack, from the newest on, as far as they are asked for."""

    def __init__(self, memory: Memory, newest: int) -> None:
        self._memory = memory
        self._next = newest
        self._known: list[tuple[int, int]] = []

    def begin(self, address: int) -> int | None:
        """That of the chunk in which an address lies; `None`: in none of the thread's."""
        for begin, end in self._known:
            if begin <= address < end:
                return begin
        while self._next and len(self._known) < _MOST_CHUNKS:
            begin = self._next
            # struct _PyStackChunk: previous, size, top.
            self._next, size = struct.unpack("<QQ", self._memory.read(begin, 16))
            if size > _MOST_CHUNK:
                raise Torn("no chunk of a data stack")
            self._known.append((begin, begin + size))
            if begin <= address < begin + size:
                return begin
        return None
