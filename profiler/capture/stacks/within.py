"""Looks at a process's own stacks, by a thread of that process: where the sampler may not look into it.

It is the one thread of ours in a training. It holds Python's global lock for some tens of microseconds a look, and
rests so long between two looks that they take less than `MOST_OF_CPU`. It needs the lock to look at all, so what it
sees of a thread is the place where that gave the lock away: time in C code that keeps it counts for the call that
follows. The interpreter's own way to start a thread is used, of which the module `threading` does not know: a program
that joins or counts its threads does not meet it.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from ...record.schema import NOT_MEASURED, STACK, StackFlag
from ...record.segment import RecordWriter
from ...record.stacks import Call, StackNames
from ..hidden import is_ours
from ..hooks.switch import ours
from .source import SourceLines

MOST_OF_CPU = 0.005
"""Share of a CPU that the looks may take."""
MOST_DEPTH = 256
"""Calls of a stack that are kept, the innermost ones."""
OTHER_THREADS_EVERY = 4
"""Looks between two looks at all threads."""
_looks_in = 0
"""The process that has such a thread; a forked child has none."""


def look_within(folder: Path, wanted: Callable[[], Any], worker: bool = False) -> None:
    """Begin to look at this process's stacks if nobody does yet. Never raises.

    Args:
        folder: the run folder.
        wanted: tells how often and what, as the command that started us says it: `{"rate": 10.0, "source": true,
                "within": true}`; anything else: not at all.
        worker: whether this is a loader's worker, of which a training may start any number.
    """
    global _looks_in
    with ours():
        if _looks_in == os.getpid():
            return
        options = wanted()
        if not isinstance(options, dict) or not options.get("within"):
            return
        _looks_in = os.getpid()
        looks = OwnStacks(folder, float(options["rate"]), bool(options["source"]), worker)
        _thread.start_new_thread(looks.run, ())


class OwnStacks:
    """The looks of one process at itself."""

    def __init__(self, folder: Path, rate: float, source: bool, worker: bool) -> None:
        self._rate = rate
        self._pid = os.getpid()
        self._parent = os.getppid()
        # Of short-lived workers each goes on in the file of one before it.
        self._writer = RecordWriter(folder, STACK, pid=0 if worker else self._pid, slot=worker)
        lines = SourceLines()
        self._names = StackNames(folder, (lambda file, line: lines(self._pid, file, line)) if source else None)
        self._draw = random.Random(self._pid)
        self._main = threading.main_thread().ident

    def run(self) -> None:
        """Look until the process ends, or something goes wrong: then nobody looks."""
        with contextlib.suppress(Exception):
            count, rest = 0, 0.0
            while True:
                time.sleep(max(self._draw.uniform(0.5, 1.5) / self._rate, rest))
                count += 1
                begin = time.thread_time_ns()
                self.look(every=count % OTHER_THREADS_EVERY == 0)
                rest = (time.thread_time_ns() - begin) / 1e9 / MOST_OF_CPU

    def look(self, every: bool) -> None:
        """One look. `every`: at all threads, not at the main thread alone."""
        now = time.monotonic_ns()
        own = _thread.get_ident()
        stacks = [
            (thread, _calls(frame))
            for thread, frame in sys._current_frames().items()
            if thread != own and (every or thread == self._main)
        ]
        # Nothing is done with the frames beyond this line: they would keep what the program has let go of.
        known = threading._active  # type: ignore[attr-defined]
        for ident, calls in stacks:
            thread = known.get(ident)
            stack = [Call(code.co_qualname, code.co_filename, line or 0) for code, line in calls]
            number = self._names.number([call for call in stack if not is_ours(call.file)])
            native = self._pid if ident == self._main else getattr(thread, "native_id", None)
            if native is not None:
                self._writer.append(now, self._pid, native, number, NOT_MEASURED, StackFlag.FROM_WITHIN, self._parent)
        self._writer.flush()


def _calls(frame: FrameType | None) -> list[tuple[Any, int | None]]:
    """The code and line of each call, the outermost first."""
    calls: list[tuple[Any, int | None]] = []
    while frame is not None and len(calls) < MOST_DEPTH:
        calls.append((frame.f_code, frame.f_lineno))
        frame = frame.f_back
    calls.reverse()
    return calls
