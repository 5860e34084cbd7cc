"""Which stacks the sampler looks at, and when: one training's thread at each beat, two of the other processes besides.

A look costs this process a fraction of a millisecond, and the one that is looked at nothing. Whoever was not looked at
for longest is next, so a training is seen at every beat, its workers in turn. Every few beats all Python threads of
both are looked at. Where looks cost more than `MOST_OF_CPU` they become fewer.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...record.run import AGAIN, processes
from ...record.schema import NOT_MEASURED, STACK, StackFlag
from ...record.segment import RecordWriter
from ...record.stacks import Call, StackNames
from ..hidden import is_ours
from ..stacks.memory import Gone, Unreadable
from ..stacks.reader import RemotePython, ThreadStack
from ..stacks.source import SourceLines
from ..stacks.thread_state import thread_state
from .schedule import NS_PER_S, Beat
from .stack_options import StackOptions
from .tree import Member

MOST_OF_CPU = 0.015
"""Share of a CPU that all looks may take."""
OTHERS_A_BEAT = 2
"""Processes looked at beside a training at each beat."""
OTHER_THREADS_EVERY = 4
"""Beats between two looks at other threads than the one that trains, or makes batches."""
TRAININGS_EVERY_NS = NS_PER_S // 2
"""How often the folder is asked which processes train."""
SETTLED_NS = 2 * NS_PER_S
"""Within so long of its last change a folder may change again without showing it: its time stamp has steps."""
AGAIN_AFTER_NS = 2 * NS_PER_S
"""A process without an interpreter may become one that has: a shell that starts Python in its own place."""
MOST_TRIES = 5

REFUSED = (
    "This system does not let the sampler look into the training (ptrace), so {instead}. `whyidle doctor` says what "
    "is in the way."
)


@dataclass
class _Looked:
    """A process of the tree, as it is looked at."""

    python: RemotePython | None = None
    tries: int = 0
    again_ns: int = 0
    """When to try again, where there is no interpreter to look at."""
    last_ns: int = 0
    """When it was looked at."""


class StackLooks:
    """Call `look` when `wait_ns` is 0. Neither raises."""

    def __init__(
        self,
        folder: Path,
        root: int,
        options: StackOptions,
        say: Callable[[str], None],
        trainings: Callable[[], dict[int, int]] | None = None,
    ) -> None:
        """
        Args:
            root: the process that the tree begins with.
            trainings: tells process → its thread that trains, where processes do not say it in the folder themselves.

        Raises:
            RecordError: the folder cannot be written.
        """
        self._folder = folder
        self._root = root
        self._say = say
        self._within = options.within
        self.refused = False
        """Whether processes are to look at their own stacks."""
        self._ask = trainings
        self.made = 0
        """Looks, with those that failed."""
        self._writer = RecordWriter(folder, STACK)
        self._lines = SourceLines()
        self._names = StackNames(folder, self._source if options.source else None)
        self._beat = Beat(round(NS_PER_S / options.rate), time.monotonic_ns())
        self._looked: dict[tuple[int, int], _Looked] = {}
        """By process id and when the process started."""
        self._trainings: dict[int, int] = {root: root}
        """Process → its thread that trains."""
        self._told = False
        """Whether processes have said that they train."""
        self._asked_ns = 0
        self._changed_ns = 0
        """When the folder changed last, by its own clock."""
        self._rest_until_ns = 0
        self._beats = 0
        self._pid = root
        """The process whose stack is being named: its source files are looked for where it sees them."""

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait for the next look; 0 when it is due."""
        return max(self._beat.wait_ns(now_ns), self._rest_until_ns - now_ns, 0)

    def look(self, now_ns: int, members: Iterable[Member]) -> None:
        """Look at a training and at some of the other processes. `members`: the processes of the tree."""
        self._beat.taken(now_ns)
        self._beats += 1
        begin = time.thread_time_ns()
        self._ask_who_trains(now_ns)
        parents = {(member.pid, member.stat.started): member.stat.parent for member in members}
        for key in self._looked.keys() - parents.keys():
            self._let_go(key)
        for key in parents.keys() - self._looked.keys():
            self._looked[key] = _Looked()
        for trains in (True, False):
            waiting = [
                (looked.last_ns, key)
                for key, looked in self._looked.items()
                if (key[0] in self._trainings) is trains and self._is_python(key, looked, now_ns)
            ]
            for _, key in sorted(waiting)[: 1 if trains else OTHERS_A_BEAT]:
                self._look_at(key, parents[key], others=self._beats % OTHER_THREADS_EVERY == 0)
        self._rest_until_ns = now_ns + round((time.thread_time_ns() - begin) / MOST_OF_CPU)

    def close(self) -> None:
        for key in list(self._looked):
            self._let_go(key)
        self._writer.close()

    def _ask_who_trains(self, now_ns: int) -> None:
        if now_ns - self._asked_ns < TRAININGS_EVERY_NS:
            return
        self._asked_ns = now_ns
        if self._ask is not None:
            self._trainings = self._ask()
            return
        if not self._may_have_changed():
            return
        here = socket.gethostname()
        found = [process for process in processes(self._folder) if process.host == here]
        self._told = bool(found)
        if found:
            self._trainings = {process.pid % AGAIN: process.thread or process.pid % AGAIN for process in found}

    def _may_have_changed(self) -> bool:
        """Whether the folder may have another file than when it was looked through last. A job of many ranks has many
        of them, which hardly ever change."""
        before = self._changed_ns
        with contextlib.suppress(OSError):
            self._changed_ns = self._folder.stat().st_mtime_ns
            return self._changed_ns != before or time.time_ns() - before < SETTLED_NS
        return False

    def _is_python(self, key: tuple[int, int], looked: _Looked, now_ns: int) -> bool:
        """Whether it can be looked at; tries to find out where that is not known yet."""
        if looked.python is not None:
            return True
        if looked.tries >= MOST_TRIES or now_ns < looked.again_ns:
            return False
        looked.tries += 1
        looked.again_ns = now_ns + AGAIN_AFTER_NS
        try:
            looked.python = RemotePython(key[0])
        except Gone:
            return False
        except Unreadable as error:
            if error.refused:
                # Until it has imported torch a training cannot have let the sampler in (`stacks/permit.py`).
                looked.tries -= 1
                if self._told and key[0] in self._trainings:
                    self._refused()
            return False
        return True

    def _refused(self) -> None:
        instead = "a thread of its own looks at its stacks" if self._within else "its stacks are not known"
        self._say(REFUSED.format(instead=instead))
        self.refused = self._within

    def _look_at(self, key: tuple[int, int], parent: int, others: bool) -> None:
        looked, pid = self._looked[key], key[0]
        thread = self._trainings.get(pid, pid)
        assert looked.python is not None
        looked.last_ns = now = time.monotonic_ns()
        try:
            stacks = looked.python.look(None if others else {thread})
        except Gone:
            # Until the tree has noticed.
            looked.python.close()
            looked.python, looked.tries = None, MOST_TRIES
            return
        self._pid = pid
        self.made += 1
        if stacks is None:
            self._writer.append(now, pid, thread, NOT_MEASURED, self._state(pid, thread), 0, parent)
            return
        for seen in stacks:
            number = self._names.number(
                [Call(each.function, each.file, each.line) for each in seen.places if not is_ours(each.file)]
            )
            self._writer.append(now, pid, seen.tid, number, self._state(pid, seen.tid), _flags(seen), parent)

    def _state(self, pid: int, tid: int) -> int:
        try:
            return thread_state(pid, tid)
        except Gone:
            return NOT_MEASURED

    def _let_go(self, key: tuple[int, int]) -> None:
        python = self._looked.pop(key).python
        if python is not None:
            python.close()

    def _source(self, file: str, line: int) -> str:
        return self._lines(self._pid, file, line)


def _flags(thread: ThreadStack) -> int:
    flags = StackFlag.MAIN_THREAD if thread.main else 0
    if thread.holds_gil is not None:
        flags |= StackFlag.GIL_KNOWN | (StackFlag.HOLDS_GIL if thread.holds_gil else 0)
    return flags
