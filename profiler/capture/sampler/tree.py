"""The training's process tree: its members, and counters that do not fall when a member ends."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields

from .procfs import ProcessStat, names, parse_pairs, parse_run_queue, parse_stat, read


@dataclass
class ProcessCounters:
    """Cumulative figures of one process or of several. `None` where the kernel did not give it."""

    cpu_ns: int | None = None
    minor_faults: int | None = None
    major_faults: int | None = None
    read_chars: int | None = None
    read_storage: int | None = None
    run_queue_ns: int | None = None

    def add(self, other: ProcessCounters) -> None:
        for f in fields(self):
            more = getattr(other, f.name)
            if more is not None:
                setattr(self, f.name, (getattr(self, f.name) or 0) + more)


@dataclass
class Member:
    """One process of the tree, as last seen."""

    pid: int
    stat: ProcessStat
    counters: ProcessCounters = field(default_factory=ProcessCounters)
    waits: dict[int, int] = field(default_factory=dict)
    """Thread → time it waited in the run queue."""
    ended_waits_ns: int = 0
    """What threads that have ended had waited, when last seen."""


class ProcessTree:
    """Follows a process and all its descendants.

    A member stays one when its parent ends and init adopts it. What an ended member had counted when it was last
    seen stays in the totals; what it did between that look and its end is lost.
    """

    def __init__(self, pid: int, proc: str = "/proc") -> None:
        self._proc = proc
        self._root = pid
        self._members: dict[int, Member] = {}
        self._gone = ProcessCounters()
        self._seen_root = False
        self._children_files = False
        """Whether threads list their children; kernels without checkpoint support do not."""
        self.main_cpu_ns: int | None = None
        """CPU time of the root process; kept after its end."""
        self.main_threads: int | None = None
        """Threads of the root process, while it lives."""
        self.main_thread_queue_ns: int | None = None
        """What the root process's first thread waited for a CPU, when last scanned; kept after its end."""

    @property
    def seen(self) -> bool:
        """Whether the root process was ever there."""
        return self._seen_root

    @property
    def alive(self) -> list[Member]:
        return [m for m in self._members.values() if not m.stat.ended]

    def look(self) -> None:
        """Read every member's counters anew; let go of those that have ended."""
        if not self._seen_root:
            self._seen_root = self._admit(self._root)
            self._children_files = read(f"{self._proc}/{self._root}/task/{self._root}/children") is not None
        self.main_threads = None
        for member in list(self._members.values()):
            stat = self._stat(member.pid)
            if stat is None or stat.started != member.stat.started:
                self._gone.add(member.counters)
                del self._members[member.pid]
                continue
            member.stat = stat
            self._count(member)

    def scan(self) -> None:
        """Find new members, and add up run-queue waits. Reads two files per thread: costly, so seldom."""
        parents = {} if self._children_files else self._parents()
        queue = list(self._members.values())
        for member in queue:
            found = self._scan_threads(member) + parents.get(member.pid, [])
            queue += [self._members[pid] for pid in found if self._admit(pid)]

    def totals(self) -> ProcessCounters:
        """Counters of all members there are and were."""
        totals = ProcessCounters()
        totals.add(self._gone)
        for member in self._members.values():
            totals.add(member.counters)
        return totals

    def _admit(self, pid: int) -> bool:
        """Make a process a member; false if it is one already, is gone, or is the sampler itself."""
        if pid in self._members or pid == os.getpid():
            return False
        stat = self._stat(pid)
        if stat is None:
            return False
        self._members[pid] = member = Member(pid, stat)
        self._count(member)
        return True

    def _stat(self, pid: int) -> ProcessStat | None:
        return parse_stat(read(f"{self._proc}/{pid}/stat"))

    def _count(self, member: Member) -> None:
        counters, stat = member.counters, member.stat
        counters.cpu_ns = stat.cpu_ns
        counters.minor_faults = stat.minor_faults
        counters.major_faults = stat.major_faults
        if member.pid == self._root:
            self.main_cpu_ns = stat.cpu_ns
            self.main_threads = None if stat.ended else stat.threads
        if not stat.ended:
            # A failed read keeps the last value, so that the sum does not fall.
            io = parse_pairs(read(f"{self._proc}/{member.pid}/io"))
            counters.read_chars = io.get(b"rchar", counters.read_chars)
            counters.read_storage = io.get(b"read_bytes", counters.read_storage)

    def _scan_threads(self, member: Member) -> list[int]:
        """Update the member's run-queue wait; returns its children, where the kernel lists them by thread."""
        children: list[int] = []
        waits: dict[int, int] = {}
        base = f"{self._proc}/{member.pid}/task"
        for name in names(base):
            wait = parse_run_queue(read(f"{base}/{name}/schedstat"))
            if wait is not None:
                waits[int(name)] = wait
            if self._children_files:
                children += [int(pid) for pid in (read(f"{base}/{name}/children") or b"").split()]
        self._add_waits(member, waits)
        if member.pid == self._root:
            self.main_thread_queue_ns = waits.get(member.pid, self.main_thread_queue_ns)
        return children

    @staticmethod
    def _add_waits(member: Member, waits: dict[int, int]) -> None:
        for thread, before in member.waits.items():
            if waits.get(thread, -1) < before:
                member.ended_waits_ns += before
        member.waits = waits
        if waits or member.counters.run_queue_ns is not None:
            member.counters.run_queue_ns = member.ended_waits_ns + sum(waits.values())

    def _parents(self) -> dict[int, list[int]]:
        """Parent → children, of every process of the machine."""
        children: dict[int, list[int]] = {}
        for name in names(self._proc):
            if name.isdigit():
                stat = self._stat(int(name))
                if stat is not None:
                    children.setdefault(stat.parent, []).append(int(name))
        return children
