"""The training's process tree: its members, and counters that do not fall when a member ends."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field

from .procfs import ProcessStat, names, parse_pairs, parse_schedstat, parse_stat, read


@dataclass
class Member:
    """One process of the tree, as last seen."""

    pid: int
    stat: ProcessStat
    counters: dict[str, int] = field(default_factory=dict)
    """Cumulative figures, by their fields in HOST records; without those that the kernel did not give."""
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
        self._gone: Counter[str] = Counter()
        self.seen = False
        """Whether the root process was ever there."""
        self._children_files = False
        """Whether threads list their children; kernels without checkpoint support do not."""
        self.main_cpu_ns: int | None = None
        """CPU time of the root process; kept after its end."""
        self.main_thread_queue_ns: int | None = None
        """What the root process's first thread waited for a CPU, when last scanned; kept after its end."""

    @property
    def alive(self) -> list[Member]:
        return [m for m in self._members.values() if not m.stat.ended]

    def look(self) -> None:
        """Read every member's counters anew; let go of those that have ended."""
        if not self.seen:
            self.seen = self._admit(self._root)
            self._children_files = read(f"{self._proc}/{self._root}/task/{self._root}/children") is not None
        for member in list(self._members.values()):
            stat = self._stat(member.pid)
            if stat is None or stat.started != member.stat.started:
                self._gone.update(self._members.pop(member.pid).counters)
            else:
                member.stat = stat
                self._count(member)

    def scan(self) -> None:
        """Find new members, and add up run-queue waits. Reads two files per thread: costly, so seldom."""
        parents = {} if self._children_files else self._parents()
        queue = list(self._members.values())
        for member in queue:
            found = self._scan_threads(member) + parents.get(member.pid, [])
            queue += [self._members[pid] for pid in found if self._admit(pid)]

    def totals(self) -> Counter[str]:
        """Counters of all members there are and were; without those that no member had."""
        totals = Counter(self._gone)
        for member in self._members.values():
            totals.update(member.counters)
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
        stat, counted = member.stat, member.counters
        counted |= {
            "tree_cpu_ns": stat.cpu_ns,
            "minor_faults": stat.minor_faults,
            "major_faults": stat.major_faults,
        }
        if member.pid == self._root:
            self.main_cpu_ns = stat.cpu_ns
        if not stat.ended:
            # A failed read keeps the last value, so that the sum does not fall.
            io = parse_pairs(read(f"{self._proc}/{member.pid}/io"))
            for name, key in (("read_chars_bytes", b"rchar"), ("read_storage_bytes", b"read_bytes")):
                if key in io:
                    counted[name] = io[key]

    def _scan_threads(self, member: Member) -> list[int]:
        """Update the member's run-queue wait; returns its children, where the kernel lists them by thread."""
        children: list[int] = []
        waits: dict[int, int] = {}
        base = f"{self._proc}/{member.pid}/task"
        for name in names(base):
            _, wait = parse_schedstat(read(f"{base}/{name}/schedstat"))
            if wait is not None:
                waits[int(name)] = wait
            if self._children_files:
                children += [int(pid) for pid in (read(f"{base}/{name}/children") or b"").split()]
        member.ended_waits_ns += sum(wait for thread, wait in member.waits.items() if waits.get(thread, -1) < wait)
        member.waits = waits
        if waits or "run_queue_ns" in member.counters:
            member.counters["run_queue_ns"] = member.ended_waits_ns + sum(waits.values())
        if member.pid == self._root:
            self.main_thread_queue_ns = waits.get(member.pid, self.main_thread_queue_ns)
        return children

    def _parents(self) -> dict[int, list[int]]:
        """Parent → children, of every process of the machine."""
        children: dict[int, list[int]] = {}
        for name in names(self._proc):
            if name.isdigit() and (stat := self._stat(int(name))) is not None:
                children.setdefault(stat.parent, []).append(int(name))
        return children
