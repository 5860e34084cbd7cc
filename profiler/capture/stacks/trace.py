"""Which stack each thread of a process had at each look, from the file that py-spy writes: `read_trace`.

A chrome trace has two events a frame, when it was first seen and when it was seen no more. A stack that the next look
finds unchanged has none, so the file alone does not tell how often was looked.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from itertools import groupby
from operator import attrgetter

import msgspec

from ...record.stacks import Call, CallStack

APART_US = 1000
"""Changes that are nearer to each other were seen by one look, of several threads."""
MOST_DEPTH = 256
"""Calls of a stack that are kept, the innermost ones."""
_THREAD = re.compile(r"thread \((\d+)\)")
_ROOTS = re.compile(r"<module>|_run_module_as_main|_bootstrap")
"""Functions that a whole stack may begin with."""
_COMMON = 0.5
"""Share of a thread's stacks that another function has to begin, to be a root as well."""


class _Args(msgspec.Struct):
    filename: str
    line: int | None = None


class _Event(msgspec.Struct):
    name: str
    ph: str
    tid: int
    """The pthread library's: the kernel's is in the name of the outermost frame."""
    ts: int
    """Microseconds on py-spy's clock."""
    args: _Args


class ThreadStacks:
    """The stacks of one thread, each from the look that saw it first."""

    def __init__(self) -> None:
        self._begins_us: list[int] = []
        self._stacks: list[CallStack] = []

    def add(self, at_us: int, stack: CallStack) -> None:
        self._begins_us.append(at_us)
        self._stacks.append(stack)

    def at(self, at_us: float) -> CallStack:
        """What the last look until then saw; empty before the first one, and of a thread that ran no Python."""
        place = bisect_right(self._begins_us, at_us) - 1
        return self._stacks[place] if place >= 0 else ()

    def drop_torn(self) -> None:
        """Empty what does not begin where a thread does: its frames changed while py-spy followed them."""
        roots = Counter(stack[0].function for stack in self._stacks if stack)
        least = _COMMON * roots.total()
        whole = {root for root, count in roots.items() if _ROOTS.fullmatch(root) or count >= least}
        if whole:
            self._stacks = [stack if stack and stack[0].function in whole else () for stack in self._stacks]
        self._stacks = [stack[-MOST_DEPTH:] for stack in self._stacks]


class SpyTrace:
    """What one py-spy saw of a process, on its own clock in microseconds."""

    def __init__(self, threads: dict[int, ThreadStacks], changes_us: list[int]) -> None:
        """`threads`: by the kernel's number, as the process itself knows it; `changes_us`: looks that saw a change."""
        self.threads = threads
        self.changes_us = changes_us

    def last_change_us(self, until_us: float) -> int | None:
        """When the last look until then that saw any thread's stack changed was made."""
        place = bisect_right(self.changes_us, until_us) - 1
        return self.changes_us[place] if place >= 0 else None


def read_trace(content: bytes) -> SpyTrace:
    """Read what py-spy wrote.

    Raises:
        ValueError: it is no chrome trace of py-spy's.
    """
    try:
        events = msgspec.json.decode(content, type=list[_Event])
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    threads: dict[int, ThreadStacks] = {}
    open_frames: dict[int, list[Call]] = {}
    changes: list[int] = []
    # At its end py-spy closes what is open, which is no look.
    last_us = max((event.ts for event in events), default=0)
    for (pthread, at_us), group in groupby(events, attrgetter("tid", "ts")):
        if at_us == last_us:
            continue
        frames = open_frames.setdefault(pthread, [])
        before = _thread_of(frames)
        for event in group:
            if event.ph == "B":
                frames.append(Call(event.name, event.args.filename, event.args.line or 0))
            elif event.ph != "E" or not frames:
                raise ValueError("a frame ends that did not begin")
            else:
                frames.pop()
        thread = _thread_of(frames)
        if before is not None and before != thread:
            threads[before].add(at_us, ())
        if thread is not None:
            threads.setdefault(thread, ThreadStacks()).add(at_us, tuple(frames[1:]))
        if not changes or at_us > changes[-1] + APART_US:
            changes.append(at_us)
    for each in threads.values():
        each.drop_torn()
    return SpyTrace(threads, changes)


def _thread_of(frames: list[Call]) -> int | None:
    found = _THREAD.match(frames[0].function) if frames else None
    return int(found[1]) if found else None
