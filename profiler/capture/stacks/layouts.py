"""Where CPython keeps what: offsets in bytes into its structures, of 64-bit release builds.

3.13 and 3.14 say it themselves, in `_Py_DebugOffsets` at the head of `_PyRuntime` (CPython's
`Include/internal/pycore_runtime.h` of 3.13, `pycore_debug_offsets.h` of 3.14). 3.11 and 3.12 do not; theirs are by
`offsetof` from their headers (`pycore_runtime.h`, `pycore_interp.h`, `pycore_frame.h`, `cpython/pystate.h`,
`cpython/code.h`, `cpython/unicodeobject.h`, of 3.11.7 and 3.12.1). Structures keep within a minor version.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from .memory import Memory, Torn, Unreadable


@dataclass(frozen=True, slots=True, kw_only=True)
class Offsets:
    """Each is named for the structure and the field in CPython's sources."""

    runtime_interpreters_head: int
    interpreter_id: int
    interpreter_next: int
    interpreter_threads_head: int
    gil_pointer: int | None
    """In the interpreter, to its lock; `None`: the one lock is part of the runtime."""
    gil: int
    """The lock itself, in the main interpreter, or in the runtime."""
    gil_last_holder: int
    gil_locked: int
    """Both from the interpreter's or the runtime's begin on, as `gil`."""
    thread_next: int = 8
    thread_interp: int = 16
    thread_frame: int
    """`current_frame`, or `cframe`, which points to it."""
    thread_native_id: int
    thread_chunk: int
    cframe_frame: int | None
    """`_PyCFrame.current_frame`; `None`: there is none between thread and frame."""
    frame_code: int
    frame_previous: int
    frame_instruction: int
    frame_owner: int
    code_filename: int = 112
    code_qualname: int = 128
    code_linetable: int = 136
    code_firstlineno: int
    code_instructions: int
    """`co_code_adaptive`."""
    ascii_size: int
    """Of `PyASCIIObject`, after which the text begins."""
    compact_size: int
    """Of `PyCompactUnicodeObject`, after which other than ASCII text begins."""
    tag: int = 0
    """The bits of a frame's reference to its code that are none of the address."""


PYTHON_3_11 = Offsets(
    runtime_interpreters_head=40,
    interpreter_id=48,
    interpreter_next=0,
    interpreter_threads_head=16,
    gil_pointer=None,
    gil=360,
    gil_last_holder=368,
    gil_locked=376,
    thread_frame=56,
    thread_native_id=160,
    thread_chunk=296,
    cframe_frame=8,
    frame_code=32,
    frame_previous=48,
    frame_instruction=56,
    frame_owner=69,
    code_firstlineno=72,
    code_instructions=184,
    ascii_size=48,
    compact_size=72,
)
PYTHON_3_12 = Offsets(
    runtime_interpreters_head=40,
    interpreter_id=8,
    interpreter_next=0,
    interpreter_threads_head=72,
    gil_pointer=384,
    gil=1040,
    gil_last_holder=1048,
    gil_locked=1056,
    thread_frame=56,
    thread_native_id=144,
    thread_chunk=232,
    cframe_frame=0,
    frame_code=0,
    frame_previous=8,
    frame_instruction=56,
    frame_owner=70,
    code_firstlineno=68,
    code_instructions=192,
    ascii_size=40,
    compact_size=56,
)


class Fields:
    """Some fields of a structure, read in one go: `structure.unpack_from(data)[order[i]]` is the i-th."""

    def __init__(self, *fields: tuple[int, str]) -> None:
        """Each: its offset, and its format as `struct` has it, little-endian and without padding."""
        placed = sorted(fields)
        layout, end = "<", 0
        for offset, kind in placed:
            layout += f"{offset - end}x{kind}"
            end = offset + struct.calcsize(f"<{kind}")
        self.structure = struct.Struct(layout)
        self.order = [placed.index(field) for field in fields]


TABLES = {(3, 11): PYTHON_3_11, (3, 12): PYTHON_3_12}

COOKIE = b"xdebugpy"
_COMMON = {
    "runtime_state": "size finalizing interpreters_head",
    "interpreter_state": "size id next threads_head gc imports_modules sysdict builtins ceval_gil gil_runtime_state "
    "gil_runtime_state_enabled gil_runtime_state_locked gil_runtime_state_holder",
    "thread_state": "size prev next interp current_frame thread_id native_thread_id datastack_chunk status",
    "interpreter_frame": "size previous executable instr_ptr localsplus owner",
    "code_object": "size filename name qualname linetable firstlineno argcount localsplusnames localspluskinds "
    "co_code_adaptive",
    "pyobject": "size ob_type",
    "type_object": "size tp_name tp_repr tp_flags",
    "tuple_object": "size ob_item ob_size",
    "list_object": "size ob_item ob_size",
    "dict_object": "size ma_keys ma_values",
    "float_object": "size ob_fval",
    "long_object": "size lv_tag ob_digit",
    "bytes_object": "size ob_size ob_sval",
    "unicode_object": "size state length asciiobject_size",
}
_GROUPS_3_14 = _COMMON | {
    "interpreter_state": "size id next threads_head threads_main gc imports_modules sysdict builtins ceval_gil "
    "gil_runtime_state gil_runtime_state_enabled gil_runtime_state_locked gil_runtime_state_holder "
    "code_object_generation tlbc_generation",
    "interpreter_frame": "size previous executable instr_ptr localsplus owner stackpointer tlbc_index",
    "code_object": _COMMON["code_object"] + " co_tlbc",
}
_ORDER_3_14 = [*list(_COMMON)[:9], "set_object", *list(_COMMON)[9:]]
_GROUPS_3_14["set_object"] = "size used table mask"
DEBUG_OFFSETS: Mapping[tuple[int, int], list[tuple[str, str]]] = {
    (3, 13): [(group, name) for group, names in _COMMON.items() for name in names.split()],
    (3, 14): [(group, name) for group in _ORDER_3_14 for name in _GROUPS_3_14[group].split()],
}
"""The fields of `_Py_DebugOffsets` behind cookie, version and the mark of free threading, each of 64 bits."""


def read_offsets(memory: Memory, runtime: int, version: int) -> Offsets:
    """Of the CPython at `_PyRuntime`; `version`: `Py_Version`. Raises `Unreadable`, or `Gone`."""
    minor = version >> 24, version >> 16 & 0xFF
    named = ".".join(str(version >> shift & 0xFF) for shift in (24, 16, 8))
    if minor in TABLES:
        return TABLES[minor]
    fields = DEBUG_OFFSETS.get(minor)
    if fields is None:
        raise Unreadable(f"it runs CPython {named}: 3.11 to 3.14 are read")
    try:
        cookie, stated, free_threaded = struct.unpack("<8sQQ", memory.read(runtime, 24))
        values = struct.unpack(f"<{len(fields)}Q", memory.read(runtime + 24, 8 * len(fields)))
    except Torn:
        raise Unreadable(f"the head of its CPython {named} cannot be read") from None
    if cookie != COOKIE or stated != version:
        raise Unreadable(f"its CPython {named} has no table of its structures (or another program altered it)")
    if free_threaded:
        raise Unreadable(f"it runs CPython {named} without a global interpreter lock: builds with one are read")
    return _from_table(dict(zip(fields, values, strict=True)), named, tagged=minor >= (3, 14))


def _from_table(table: dict[tuple[str, str], int], named: str, tagged: bool) -> Offsets:
    def of(group: str, name: str, most: int = 4096) -> int:
        value = table[group, name]
        if value > most:
            raise Unreadable(f"{group}.{name} of its CPython {named} is {value}, which no release has")
        return value

    large = 1 << 22
    expected = {
        ("pyobject", "ob_type"): 8,
        ("bytes_object", "ob_size"): 16,
        ("bytes_object", "ob_sval"): 32,
        ("unicode_object", "length"): 16,
        ("unicode_object", "state"): 32,
    }
    for (group, name), value in expected.items():
        if table[group, name] != value:
            raise Unreadable(f"{group}.{name} of its CPython {named} is {table[group, name]} and not {value}")
    return Offsets(
        runtime_interpreters_head=of("runtime_state", "interpreters_head", large),
        interpreter_id=of("interpreter_state", "id", large),
        interpreter_next=of("interpreter_state", "next", large),
        interpreter_threads_head=of("interpreter_state", "threads_head", large),
        gil_pointer=of("interpreter_state", "ceval_gil", large),
        gil=of("interpreter_state", "gil_runtime_state", large),
        gil_last_holder=of("interpreter_state", "gil_runtime_state_holder", large),
        gil_locked=of("interpreter_state", "gil_runtime_state_locked", large),
        thread_next=of("thread_state", "next"),
        thread_interp=of("thread_state", "interp"),
        thread_frame=of("thread_state", "current_frame"),
        thread_native_id=of("thread_state", "native_thread_id"),
        thread_chunk=of("thread_state", "datastack_chunk"),
        cframe_frame=None,
        frame_code=of("interpreter_frame", "executable"),
        frame_previous=of("interpreter_frame", "previous"),
        frame_instruction=of("interpreter_frame", "instr_ptr"),
        frame_owner=of("interpreter_frame", "owner"),
        code_filename=of("code_object", "filename"),
        code_qualname=of("code_object", "qualname"),
        code_linetable=of("code_object", "linetable"),
        code_firstlineno=of("code_object", "firstlineno"),
        code_instructions=of("code_object", "co_code_adaptive"),
        ascii_size=of("unicode_object", "asciiobject_size"),
        # sizeof(PyUnicodeObject) is that of PyCompactUnicodeObject and one pointer.
        compact_size=of("unicode_object", "size") - 8,
        # Py_TAG_BITS of pycore_stackref.h.
        tag=3 if tagged else 0,
    )
