"""The stacks of a running Python process, from outside: `RemotePython(pid).look()`.

A look stops nothing, so what it reads may change meanwhile. Every piece is held against what it has to be (types of
objects, chains of addresses, instructions inside their code); where that fails the look is repeated twice, and counts
as failed when it failed each time.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .code import CodeReader, Place
from .frames import FrameReader
from .layouts import Fields, Offsets, read_offsets
from .memory import Gone, Memory, ProcessMemory, Torn, Unreadable, pointer
from .symbols import find_python

TRIES = 3
MOST_THREADS = 4096
_MOST_INTERPRETERS = 256


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """Where one thread of Python's stands."""

    tid: int
    """The kernel's id of it, as this process sees it."""
    places: tuple[Place, ...]
    """Outermost first; none: it runs no Python, as one that C started."""
    main: bool
    """The process's first thread."""
    holds_gil: bool | None
    """Whether it held the interpreter's lock when the look began; `None`: not known."""
    cut: bool
    """There were more places outside the first of these."""


class ThreadFields(NamedTuple):
    """Of a `PyThreadState`."""

    address: int
    native_id: int
    """As the process itself sees it; 0: not begun."""
    frame: int
    """The innermost, or what points to it."""
    chunk: int
    next: int


class InterpreterReader:
    """The main interpreter of a CPython in some memory, and its threads."""

    def __init__(self, memory: Memory, symbols: dict[str, int], offsets: Offsets) -> None:
        """`symbols`: name → address, of `symbols.NEEDED`. Raises `Torn` or `Gone`."""
        self._memory = memory
        self._offsets = offsets
        runtime = symbols["_PyRuntime"]
        self._interpreter = self._main_interpreter(runtime)
        types = (symbols[name] for name in ("PyCode_Type", "PyUnicode_Type", "PyBytes_Type"))
        self._frames = FrameReader(memory, offsets, CodeReader(memory, offsets, *types))
        self._gil_known = self._is_where_told()
        self._gil = (self._interpreter if offsets.gil_pointer is not None else runtime) + offsets.gil
        self._of_gil = Fields((offsets.gil_last_holder - offsets.gil, "Q"), (offsets.gil_locked - offsets.gil, "i"))
        self._of_thread = Fields(
            (offsets.thread_interp, "Q"),
            (offsets.thread_native_id, "Q"),
            (offsets.thread_frame, "Q"),
            (offsets.thread_chunk, "Q"),
            (offsets.thread_next, "Q"),
        )

    def _main_interpreter(self, runtime: int) -> int:
        offsets = self._offsets
        address = pointer(self._memory.read(runtime + offsets.runtime_interpreters_head, 8))
        for _ in range(_MOST_INTERPRETERS):
            if self._memory.read(address + offsets.interpreter_id, 8) == bytes(8):
                return address
            # The main one is the oldest, and they are chained from the newest on.
            address = pointer(self._memory.read(address + offsets.interpreter_next, 8))
        raise Torn("no main interpreter")

    def _is_where_told(self) -> bool:
        """Whether the interpreter's lock is where the offsets say; that of 3.11 cannot be asked."""
        offsets = self._offsets
        if offsets.gil_pointer is None:
            return True
        told = self._memory.read(self._interpreter + offsets.gil_pointer, 8)
        return int.from_bytes(told, "little") == self._interpreter + offsets.gil

    def gil_holder(self) -> int | None:
        """The thread state that holds the lock, 0 when none does; `None`: not known."""
        if not self._gil_known:
            return None
        structure, (holder_is, locked_is) = self._of_gil.structure, self._of_gil.order
        fields = structure.unpack(self._memory.read(self._gil, structure.size))
        locked = fields[locked_is]
        return fields[holder_is] if locked == 1 else None if locked else 0

    def thread(self, address: int) -> ThreadFields:
        """Raises `Torn` where that is none of this interpreter's."""
        structure, (interpreter, native_id, frame, chunk, following) = self._of_thread.structure, self._of_thread.order
        fields = structure.unpack(self._memory.read(address, structure.size))
        if fields[interpreter] != self._interpreter:
            raise Torn("a thread of no interpreter")
        return ThreadFields(address, fields[native_id], fields[frame], fields[chunk], fields[following])

    def threads(self) -> Iterator[ThreadFields]:
        """Newest first, each read when it is asked for: a frame is looked at as soon as it was named."""
        head = self._interpreter + self._offsets.interpreter_threads_head
        address = int.from_bytes(self._memory.read(head, 8), "little")
        seen: set[int] = set()
        while address:
            if address in seen or len(seen) == MOST_THREADS:
                raise Torn("threads without end")
            seen.add(address)
            thread = self.thread(address)
            yield thread
            address = thread.next

    def forget(self) -> None:
        """What was kept about where things lie: after a look that failed."""
        self._frames.forget()

    def places(self, thread: ThreadFields) -> tuple[list[Place], bool]:
        """Its places, outermost first, and whether that is not all of them."""
        frame = thread.frame
        if self._offsets.cframe_frame is not None:
            frame = int.from_bytes(self._memory.read(frame + self._offsets.cframe_frame, 8), "little")
        return self._frames.places(frame, thread.chunk)


class RemotePython:
    """One process, from the program on that it ran when this was made. Close it in the end."""

    def __init__(self, pid: int) -> None:
        """Raises `Unreadable`, or `Gone`.

        A process that only begins (its interpreter is not there yet) is `Unreadable` too: ask again later.
        """
        self.pid = pid
        self.looks = 0
        self.failed = 0
        """Of the looks."""
        self._memory = ProcessMemory(pid)
        try:
            symbols = find_python(pid, self._memory)
            version = int.from_bytes(self._memory.read(symbols["Py_Version"], 8), "little")
            offsets = read_offsets(self._memory, symbols["_PyRuntime"], version)
            self._interpreter = InterpreterReader(self._memory, symbols, offsets)
        except Torn:
            self.close()
            raise Unreadable(f"the interpreter of process {pid} has not begun, or is no longer there") from None
        except BaseException:
            self.close()
            raise
        self._main: int | None = None
        """The address of the main thread's state, as far as it was found."""
        self._ids = _Ids(pid)

    def look(self, tids: Collection[int] | None = None) -> list[ThreadStack] | None:
        """The stacks of all threads of Python's, or of some; `None`: it failed.

        `tids`: the kernel's ids of threads; the main thread alone (`{pid}`) is cheapest. Raises `Gone`.
        """
        self.looks += 1
        for _ in range(TRIES):
            try:
                return self._look(tids)
            except Torn:
                self._main = None
                self._interpreter.forget()
        self.failed += 1
        return None

    def _look(self, tids: Collection[int] | None) -> list[ThreadStack]:
        interpreter, ids = self._interpreter, self._ids
        holder = interpreter.gil_holder()
        found: list[ThreadStack] = []
        for thread in self._threads(tids):
            tid = ids.outside(thread.native_id)
            main = thread.native_id == ids.main
            if main:
                self._main = thread.address
            if tid is None or (tids is not None and tid not in tids):
                continue
            places, cut = interpreter.places(thread)
            holds = None if holder is None else holder == thread.address
            found.append(ThreadStack(tid, tuple(places), main, holds, cut))
            if tids is not None and len(found) == len(tids):
                break
        return found

    def _threads(self, tids: Collection[int] | None) -> Iterator[ThreadFields]:
        if tids is not None and len(tids) == 1 and self.pid in tids and self._main is not None:
            thread = self._interpreter.thread(self._main)
            if thread.native_id == self._ids.main:
                yield thread
                return
        yield from self._interpreter.threads()

    def close(self) -> None:
        self._memory.close()

    def __enter__(self) -> RemotePython:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Ids:
    """From a thread's id as its process sees it to that as this process does: they differ across containers."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.main = self._inside(pid) or pid
        """Of the main thread, as its process sees it."""
        self._known: dict[int, int] = {}

    def outside(self, native_id: int) -> int | None:
        """`None`: of no thread that is there."""
        if self.main == self._pid:
            return native_id or None
        if native_id not in self._known:
            try:
                tids = [int(name) for name in os.listdir(f"/proc/{self._pid}/task")]
            except OSError:
                raise Gone("the process has ended") from None
            self._known = {inside: tid for tid in tids if (inside := self._inside(tid)) is not None}
        return self._known.get(native_id)

    def _inside(self, tid: int) -> int | None:
        try:
            with open(f"/proc/{self._pid}/task/{tid}/status", "rb") as file:
                status = file.read()
        except OSError:
            return None
        for line in status.splitlines():
            if line.startswith(b"NSpid:"):
                return int(line.split()[-1])
        return None
