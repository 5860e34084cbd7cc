"""The memory of a Python process made by hand, with one thread: what `whyidle.capture.stacks` reads of it.

By the offsets of a version, as if that ran. Code objects are those of the Python that runs the test: what is read of
them has the same format from 3.11 on.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType

from whyidle.capture.stacks.layouts import COOKIE, DEBUG_OFFSETS, Offsets
from whyidle.capture.stacks.memory import Torn

FIRST_ADDRESS = 0x7F00_0000_0000
NATIVE_ID = 4711
THREAD, GENERATOR, INTERPRETER, C_STACK = 0, 1, 3, 4
"""Owners of a frame, in 3.14."""
CHUNK_HEAD = 24
FRAME_SIZE = 96


@dataclass
class MemoryImage:
    """Pieces of memory, none beside another."""

    pieces: dict[int, bytearray] = field(default_factory=dict)
    reads: int = 0
    _next: int = FIRST_ADDRESS

    def add(self, data: bytes | bytearray) -> int:
        address = self._next
        self.pieces[address] = bytearray(data)
        self._next += (len(data) + 0x1000) & ~0xFFF
        return address

    def put(self, address: int, value: int, size: int = 8) -> None:
        start = self._start(address)
        self.pieces[start][address - start : address - start + size] = value.to_bytes(size, "little")

    def read(self, address: int, size: int) -> bytes:
        self.reads += 1
        start = self._start(address)
        data = bytes(self.pieces[start][address - start : address - start + size])
        if len(data) != size:
            raise Torn("not all of it is there")
        return data

    def close(self) -> None:
        return

    def _start(self, address: int) -> int:
        for start, piece in self.pieces.items():
            if start <= address < start + len(piece):
                return start
        raise Torn("not there")


@dataclass
class ImageFrame:
    """One of a thread's; `code`: `None` for what stands for a piece of C."""

    code: CodeType | None
    instruction: int = 0
    """In bytes from the first on."""
    owner: int = THREAD


class PythonImage:
    """A process that runs the CPython of some offsets, with one thread."""

    def __init__(self, offsets: Offsets, frames: Sequence[ImageFrame]) -> None:
        """`frames`: outermost first."""
        self.offsets = offsets
        self.memory = MemoryImage()
        add, put = self.memory.add, self.memory.put
        self.symbols = {name: add(bytes(64)) for name in ("PyCode_Type", "PyUnicode_Type", "PyBytes_Type")}
        self._codes: dict[CodeType, int] = {}
        self._texts: dict[str, int] = {}
        self.runtime = self.symbols["_PyRuntime"] = add(bytes(16384))
        self.interpreter = add(bytes(16384))
        self.thread = add(bytes(1024))
        self.frames: list[int] = []
        put(self.runtime + offsets.runtime_interpreters_head, self.interpreter)
        put(self.interpreter + offsets.interpreter_threads_head, self.thread)
        lock = self.runtime if offsets.gil_pointer is None else self.interpreter
        if offsets.gil_pointer is not None:
            put(self.interpreter + offsets.gil_pointer, self.interpreter + offsets.gil)
        put(lock + offsets.gil_last_holder, self.thread)
        put(lock + offsets.gil_locked, 1, 4)
        put(self.thread + offsets.thread_interp, self.interpreter)
        put(self.thread + offsets.thread_native_id, NATIVE_ID)
        innermost = self._stack(frames)
        if offsets.cframe_frame is not None:
            cframe = add(bytes(64))
            put(cframe + offsets.cframe_frame, innermost)
            innermost = cframe
        put(self.thread + offsets.thread_frame, innermost)

    def _stack(self, frames: Sequence[ImageFrame]) -> int:
        add, put, offsets = self.memory.add, self.memory.put, self.offsets
        size = CHUNK_HEAD + FRAME_SIZE * len(frames) + 1024
        chunk = self.chunk = add(bytes(size))
        put(chunk + 8, size)
        put(self.thread + offsets.thread_chunk, chunk)
        previous = 0
        for number, frame in enumerate(frames):
            inside = frame.owner == THREAD
            address = chunk + CHUNK_HEAD + FRAME_SIZE * number if inside else add(bytes(FRAME_SIZE))
            code = 0 if frame.code is None else self.code(frame.code)
            # Borrowed references carry a mark from 3.14 on.
            put(address + offsets.frame_code, code | offsets.tag & 1)
            put(address + offsets.frame_previous, previous)
            put(address + offsets.frame_instruction, code + offsets.code_instructions + frame.instruction)
            put(address + offsets.frame_owner, frame.owner, 1)
            self.frames.append(address)
            previous = address
        return previous

    def code(self, code: CodeType) -> int:
        """The address of a code object, which is made when it is first asked for."""
        if code not in self._codes:
            offsets, put = self.offsets, self.memory.put
            address = self._codes[code] = self.memory.add(bytes(offsets.code_instructions + len(code.co_code)))
            put(address + 8, self.symbols["PyCode_Type"])
            put(address + 16, len(code.co_code) // 2)
            put(address + offsets.code_firstlineno, code.co_firstlineno, 4)
            put(address + offsets.code_filename, self._text(code.co_filename))
            put(address + offsets.code_qualname, self._text(code.co_qualname))
            table = struct.pack("<QQQQ", 1, self.symbols["PyBytes_Type"], len(code.co_linetable), 0) + code.co_linetable
            put(address + offsets.code_linetable, self.memory.add(table))
        return self._codes[code]

    def _text(self, text: str) -> int:
        if text not in self._texts:
            most = max(map(ord, text), default=0)
            width, encoding = (1, "latin-1") if most < 256 else (2, "utf-16-le") if most < 1 << 16 else (4, "utf-32-le")
            state = width << 2 | 1 << 5 | text.isascii() << 6
            head = struct.pack("<QQQQQ", 1, self.symbols["PyUnicode_Type"], len(text), 0, state)
            size = self.offsets.ascii_size if text.isascii() else self.offsets.compact_size
            self._texts[text] = self.memory.add(head.ljust(size, b"\0") + text.encode(encoding))
        return self._texts[text]


def debug_offsets(version: int, free_threaded: bool = False, **changed: int) -> bytes:
    """The head of `_PyRuntime` of 3.13 or 3.14: fields as large as CPython's, in the order of its header.

    `changed`: by group and name, as `code_object__filename`.
    """
    fields = DEBUG_OFFSETS[version >> 24, version >> 16 & 0xFF]
    values = {
        "runtime_state__interpreters_head": 824,
        "interpreter_state__id": 7432,
        "interpreter_state__next": 7424,
        "interpreter_state__threads_head": 7504,
        "interpreter_state__ceval_gil": 16,
        "interpreter_state__gil_runtime_state": 7904,
        "interpreter_state__gil_runtime_state_locked": 7920,
        "interpreter_state__gil_runtime_state_holder": 7912,
        "thread_state__next": 8,
        "thread_state__interp": 16,
        "thread_state__current_frame": 72,
        "thread_state__native_thread_id": 168,
        "thread_state__datastack_chunk": 256,
        "interpreter_frame__previous": 8,
        "interpreter_frame__instr_ptr": 56,
        "interpreter_frame__owner": 74,
        "code_object__filename": 112,
        "code_object__qualname": 128,
        "code_object__linetable": 136,
        "code_object__firstlineno": 68,
        "code_object__co_code_adaptive": 208,
        "pyobject__ob_type": 8,
        "bytes_object__ob_size": 16,
        "bytes_object__ob_sval": 32,
        "unicode_object__size": 64,
        "unicode_object__state": 32,
        "unicode_object__length": 16,
        "unicode_object__asciiobject_size": 40,
    } | changed
    table = [values.get(f"{group}__{name}", 0) for group, name in fields]
    return struct.pack(f"<8sQQ{len(table)}Q", COOKIE, version, free_threaded, *table)
