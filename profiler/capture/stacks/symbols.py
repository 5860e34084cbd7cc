"""Where CPython's variables lie in a process: found by the tables its dynamic linker uses, in its memory.

In the memory, not in the files: a file may have been replaced since, or lie where this process cannot open it (a
container's). Formats: System V gABI for ELF64, and the hash section of GNU ld (`DT_GNU_HASH`).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path

from .memory import Gone, Memory, Torn, Unreadable

NEEDED = ("_PyRuntime", "Py_Version", "PyCode_Type", "PyUnicode_Type", "PyBytes_Type")
DEBUG = ("_Py_NegativeRefcount", "_Py_AddToAllObjects")
"""Exported only by debug builds (`Py_REF_DEBUG`, `Py_TRACE_REFS`), whose structures differ."""

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH = 5, 6, 0x6FFFFEF5
_ET_EXEC = 2
_PAGE = 4096
_MOST_ENTRIES = 4096
"""Of a dynamic section, or of a chain of its hash table: far above any real one."""


class LoadedFile:
    """A program or library as it was loaded, by the address of its first byte."""

    def __init__(self, memory: Memory, start: int) -> None:
        """Raises `Torn` where no such file is loaded there."""
        self._memory = memory
        magic, bits, order, kind, _, _, _, segments, _, _, _, size, count = _HEADER.unpack(
            memory.read(start, _HEADER.size)
        )
        if magic != b"\x7fELF" or bits != 2 or order != 1 or size != _SEGMENT.size or count > _MOST_ENTRIES:
            raise Torn("no ELF file of 64 bits")
        bias, dynamic = None, None
        table = memory.read(start + segments, size * count)
        for what, _, offset, address, _, _, length, _ in _SEGMENT.iter_unpack(table):
            if what == _PT_LOAD and offset < _PAGE and bias is None:
                bias = 0 if kind == _ET_EXEC else start - (address - offset)
            elif what == _PT_DYNAMIC:
                dynamic = address, length
        if bias is None or dynamic is None:
            raise Torn("nothing to link by")
        self._bias = bias
        entries: dict[int, int] = {}
        length = min(dynamic[1], 16 * _MOST_ENTRIES) // 16 * 16
        for tag, value in struct.iter_unpack("<qQ", memory.read(bias + dynamic[0], length)):
            if tag == 0:
                break
            entries.setdefault(tag, value)
        try:
            self._strings, self._symbols, self._hashes = (
                # glibc has made these addresses already, other linkers leave them as they are in the file.
                entries[tag] if entries[tag] >= bias else entries[tag] + bias
                for tag in (_DT_STRTAB, _DT_SYMTAB, _DT_GNU_HASH)
            )
        except KeyError:
            raise Torn("no table of symbols") from None
        head = struct.unpack("<IIII", memory.read(self._hashes, 16))
        self._buckets, self._first, bloom, _ = head
        self._table = self._hashes + 16 + 8 * bloom
        if not self._buckets:
            raise Torn("an empty table of symbols")

    def address(self, name: str) -> int | None:
        """Where a symbol of this file's lies; `None` where it exports none of that name."""
        encoded = name.encode()
        wanted = 5381
        for letter in encoded:
            wanted = (wanted * 33 + letter) & 0xFFFFFFFF
        read = self._memory.read
        index = int.from_bytes(read(self._table + 4 * (wanted % self._buckets), 4), "little")
        if index < self._first:
            return None
        chains = self._table + 4 * self._buckets
        for place in range(index, index + _MOST_ENTRIES):
            found = int.from_bytes(read(chains + 4 * (place - self._first), 4), "little")
            if found | 1 == wanted | 1:
                text, _, _, section, value, _ = _SYMBOL.unpack(read(self._symbols + 24 * place, 24))
                if section and read(self._strings + text, len(encoded) + 1) == encoded + b"\0":
                    return int(self._bias + value)
            if found & 1:
                return None
        return None


def candidates(maps: bytes, program: bytes) -> list[int]:
    """Where the program and libpython begin, in the order in which the dynamic linker asks them.

    `maps`: `/proc/PID/maps`; `program`: the path of `/proc/PID/exe`. Raises `Unreadable` for PyPy.
    """
    starts: dict[bytes, int] = {}
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or int(fields[2], 16):
            continue
        path = fields[5]
        name = path.rpartition(b"/")[2]
        if name.startswith(b"libpypy") or (path == program and name.startswith(b"pypy")):
            raise Unreadable("it runs PyPy, whose stacks are not read: CPython 3.11 to 3.14 are")
        if path == program or name.startswith(b"libpython"):
            starts.setdefault(path, int(line.partition(b"-")[0], 16))
    return sorted(starts.values(), key=lambda start: start != starts.get(program))


def resolved(memory: Memory, starts: Iterable[int], names: Iterable[str]) -> dict[str, int]:
    """Name → address, of those that are exported; the first file that has a name wins. Raises `Gone`."""
    files = []
    for start in starts:
        try:
            files.append(LoadedFile(memory, start))
        except Torn:
            continue
    found: dict[str, int] = {}
    for name in names:
        for file in files:
            try:
                address = file.address(name)
            except Torn:
                continue
            if address is not None:
                found[name] = address
                break
    return found


def find_python(pid: int, memory: Memory) -> dict[str, int]:
    """The addresses of `NEEDED` in a process. Raises `Gone` or `Unreadable`."""
    try:
        program = str(Path(f"/proc/{pid}/exe").readlink())
        with open(f"/proc/{pid}/maps", "rb") as file:
            maps = file.read()
    except PermissionError as error:
        raise Unreadable(f"process {pid} may not be looked into: {error.strerror}", refused=True) from None
    except OSError:
        raise Gone(f"no process {pid}") from None
    found = resolved(memory, candidates(maps, os.fsencode(program)), NEEDED + DEBUG)
    if "_PyRuntime" not in found:
        raise Unreadable(f"process {pid} runs {program}, in which no CPython from 3.7 on was found")
    if any(name in found for name in DEBUG):
        raise Unreadable("it runs a debug build of CPython, whose structures differ: release builds are read")
    missing = [name for name in NEEDED if name not in found]
    if missing:
        raise Unreadable(f"its CPython has no {missing[0]}: it is older than 3.11")
    return found
