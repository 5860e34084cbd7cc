"""Stacks read from memory made by hand: versions that are not here, and memory that changes while it is read.

Of real processes: `tests/integration/test_stacks.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import CodeType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.stacks.code import Place, line_table
from whyidle.capture.stacks.layouts import COOKIE, DEBUG_OFFSETS, PYTHON_3_11, PYTHON_3_12, Offsets, read_offsets
from whyidle.capture.stacks.memory import Torn, Unreadable
from whyidle.capture.stacks.reader import InterpreterReader

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


SOURCE = """
def outer(value):
    with open(value) as file:
        return [
            inner(line, lambda key: key.strip(
            ))
            for line in file
        ]

def inner(line, key):
    try:
        return key(line)
    finally:
        print("é",
              line)

class Größe:
    async def привет(self, other):
        async with other as more:
            await more
        yield 1
"""
VERSION_3_13, VERSION_3_14 = 0x030D00F0, 0x030E00F0


def codes(code: CodeType) -> list[CodeType]:
    return [code, *(inner for one in code.co_consts if isinstance(one, CodeType) for inner in codes(one))]


CODES = codes(compile(SOURCE, "/home/é/𝒳.py", "exec"))
REAL = {(code.co_qualname, line or code.co_firstlineno) for code in CODES for _, _, line in code.co_lines()}


def offsets_of(version: int, head: bytes) -> Offsets:
    memory = MemoryImage()
    return read_offsets(memory, memory.add(head.ljust(4096, b"\0")), version)


ALL_OFFSETS = {
    "3.11": PYTHON_3_11,
    "3.12": PYTHON_3_12,
    "3.13": offsets_of(VERSION_3_13, debug_offsets(VERSION_3_13)),
    "3.14": offsets_of(VERSION_3_14, debug_offsets(VERSION_3_14)),
}


def read(image: PythonImage) -> list[Place]:
    reader = InterpreterReader(image.memory, image.symbols, image.offsets)
    [thread] = reader.threads()
    assert thread.native_id == NATIVE_ID
    assert reader.gil_holder() == thread.address
    return reader.places(thread)[0]


@pytest.mark.parametrize("version", ALL_OFFSETS)
def test_frames_are_read_by_the_offsets_of_a_version(version: str) -> None:
    offsets = ALL_OFFSETS[version]
    between = [] if version == "3.11" else [ImageFrame(None, owner=INTERPRETER)]
    if version == "3.14":
        between += [ImageFrame(None, owner=C_STACK)]
    frames = [*between, *(ImageFrame(code, 2 * (len(code.co_code) // 4)) for code in CODES)]
    frames[-1].owner = frames[-3].owner = GENERATOR
    frames[len(between) + 2 : len(between) + 2] = between
    expected = [
        Place(frame.code.co_filename, frame.code.co_qualname, line, frame.code.co_firstlineno)
        for frame in frames
        if frame.code is not None
        for begin, end, line in frame.code.co_lines()
        if begin <= frame.instruction < end and line
    ]
    assert read(PythonImage(offsets, frames)) == expected
    assert [place.function for place in expected] == [code.co_qualname for code in CODES]


def test_a_stack_deeper_than_is_kept_is_cut_at_its_outer_end() -> None:
    frames = [ImageFrame(CODES[0])] + [ImageFrame(CODES[1])] * 400 + [ImageFrame(CODES[2])]
    image = PythonImage(PYTHON_3_12, frames)
    reader = InterpreterReader(image.memory, image.symbols, image.offsets)
    [thread] = reader.threads()
    places, cut = reader.places(thread)
    assert cut
    assert [len(places), places[0].function, places[-1].function] == [256, CODES[1].co_qualname, CODES[2].co_qualname]


@pytest.mark.parametrize(
    ("version", "head", "says"),
    [
        (0x030A0DF0, b"", "it runs CPython 3.10.13: 3.11 to 3.14 are read"),
        (0x030F00F0, b"", "it runs CPython 3.15.0: 3.11 to 3.14 are read"),
        (VERSION_3_14, b"", "has no table of its structures"),
        (VERSION_3_14, debug_offsets(VERSION_3_14 + 0x100), "has no table of its structures"),
        (VERSION_3_13, debug_offsets(VERSION_3_13, free_threaded=True), "without a global interpreter lock"),
        (VERSION_3_14, debug_offsets(VERSION_3_14, free_threaded=True), "without a global interpreter lock"),
        (
            VERSION_3_14,
            debug_offsets(VERSION_3_14, pyobject__ob_type=24),
            "pyobject.ob_type of its CPython 3.14.0 is 24",
        ),
        (VERSION_3_14, debug_offsets(VERSION_3_14, code_object__filename=1 << 40), "which no release has"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_reason(version: int, head: bytes, says: str) -> None:
    with pytest.raises(Unreadable) as error:
        offsets_of(version, head)
    assert says in str(error.value)
    assert not error.value.refused


def test_a_code_object_made_where_another_was_is_read_anew() -> None:
    image = PythonImage(PYTHON_3_12, [ImageFrame(CODES[1], 4)])
    reader = InterpreterReader(image.memory, image.symbols, image.offsets)
    [thread] = reader.threads()
    [before] = reader.places(thread)[0]
    # All of the second, but where it lies: the first one's instructions are as many or more.
    old, new = image.code(CODES[1]), image.code(CODES[2])
    size = image.offsets.code_instructions
    image.memory.pieces[old][:size] = image.memory.pieces[new][:size]
    [after] = reader.places(thread)[0]
    assert [before.function, after.function] == [CODES[1].co_qualname, CODES[2].co_qualname]


@pytest.mark.parametrize("version", ALL_OFFSETS)
def test_what_is_chained_to_itself_is_torn(version: str) -> None:
    offsets = ALL_OFFSETS[version]
    image = PythonImage(offsets, [ImageFrame(None, owner=INTERPRETER), ImageFrame(CODES[1])])
    reader = InterpreterReader(image.memory, image.symbols, offsets)
    image.memory.put(image.thread + offsets.thread_next, image.thread)
    with pytest.raises(Torn, match="threads without end"):
        list(reader.threads())
    image.memory.put(image.frames[0] + offsets.frame_previous, image.frames[0])
    with pytest.raises(Torn, match="frames without end"):
        reader.places(next(reader.threads()))


def test_an_interpreter_that_has_not_begun_is_none() -> None:
    image = PythonImage(PYTHON_3_12, [])
    image.memory.put(image.runtime + PYTHON_3_12.runtime_interpreters_head, 0)
    with pytest.raises(Torn):
        InterpreterReader(image.memory, image.symbols, PYTHON_3_12)


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.co_qualname)
def test_a_table_of_lines_is_read_as_the_interpreter_does(code: CodeType) -> None:
    starts, lines = line_table(code.co_linetable, code.co_firstlineno)
    stretches = zip(starts, [*starts[1:], len(code.co_code)], lines, strict=True)
    found = [line for begin, end, line in stretches for _ in range(begin, end)]
    assert found == [line for begin, end, line in code.co_lines() for _ in range(begin, end)]


@given(st.binary(max_size=60), st.integers(0, 1000))
def test_a_garbled_table_of_lines_is_one_or_none(table: bytes, first: int) -> None:
    try:
        starts, lines = line_table(table, first)
    except Torn:
        return
    assert starts == sorted(set(starts))
    assert len(starts) == len(lines)


@given(st.data(), st.sampled_from(sorted(ALL_OFFSETS)))
def test_frames_that_change_while_they_are_read_are_real_ones_or_none(data: st.DataObject, version: str) -> None:
    """Whole words of frames are those of other frames, or of what lay there before: as a thread leaves them."""
    frames = [ImageFrame(code, 2 * data.draw(st.integers(0, len(code.co_code) // 2 - 1))) for code in CODES]
    image = PythonImage(ALL_OFFSETS[version], frames)
    reader = InterpreterReader(image.memory, image.symbols, image.offsets)
    [thread] = reader.threads()
    fields = [image.offsets.frame_code, image.offsets.frame_previous, image.offsets.frame_instruction]
    words = [
        int.from_bytes(image.memory.read(frame + at, 8), "little") for frame in image.frames for at in fields
    ] + image.frames
    garbled = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(image.frames),
                st.sampled_from(fields),
                st.sampled_from(words) | st.integers(0, 2**64 - 1),
            ),
            max_size=6,
        )
    )
    for frame, at, word in garbled:
        image.memory.put(frame + at, word)
    image.memory.reads = 0
    try:
        places, cut = reader.places(thread)
    except Torn:
        assert garbled
    else:
        assert {(place.function, place.line) for place in places} <= REAL
        assert len(places) == 256 if cut else len(places) <= 256
    assert image.memory.reads < 10_000


@given(st.data(), st.sampled_from(sorted(ALL_OFFSETS)))
def test_memory_of_any_content_is_a_look_that_failed_at_worst(data: st.DataObject, version: str) -> None:
    image = PythonImage(ALL_OFFSETS[version], [ImageFrame(code, 2) for code in CODES])
    reader = InterpreterReader(image.memory, image.symbols, image.offsets)
    pieces = sorted(image.memory.pieces)
    for _ in range(data.draw(st.integers(0, 12))):
        start = data.draw(st.sampled_from(pieces))
        piece = image.memory.pieces[start]
        at = data.draw(st.integers(0, len(piece) - 1))
        word = data.draw(
            st.sampled_from(pieces).map(lambda address: address.to_bytes(8, "little")) | st.binary(max_size=16)
        )
        piece[at : at + len(word)] = word[: len(piece) - at]
    image.memory.reads = 0
    try:
        reader.gil_holder()
        for thread in reader.threads():
            places, cut = reader.places(thread)
            assert len(places) <= 256
            assert all(place.line >= 0 for place in places)
            assert cut in (True, False)
    except Torn:
        pass
    assert image.memory.reads < 100_000
