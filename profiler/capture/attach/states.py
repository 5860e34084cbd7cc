"""What each process of the tree does, several times a second, from `/proc`: on a CPU, waiting for one, reading, idle.

A look reads one small file per process; counters and new processes are looked for once a second. Where the tree is
large the looks become fewer, so that they never take more than half a percent of a CPU.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass, field

from ...record.attached import ProcessStates
from ...record.secret import without_secrets
from ..sampler.procfs import read
from ..sampler.schedule import NS_PER_S, Cadence
from ..sampler.tree import Member, ProcessTree
from .target import OURS, command_of, is_python, rank_of, state_of

COUNTERS_NS = NS_PER_S
MOST_OF_CPU = 0.005
MOST_COMMAND = 200
MOST_ENDED = 2000
"""Processes that have ended and are still told of; beyond that the newest are left out."""


@dataclass
class _FollowedProcess:
    """What is known of one process so far."""

    pid: int
    parent: int
    name: str
    command: str
    rank: int | None
    python: bool | None
    ours: bool
    begin_ns: int
    end_ns: int
    first: dict[str, int | None]
    last: dict[str, int | None]
    states: Counter[str] = field(default_factory=Counter)


class States:
    """Follows the tree of one process."""

    def __init__(self, pid: int, rate: float) -> None:
        self._tree = ProcessTree(pid)
        self._look = Cadence(round(NS_PER_S / rate), share=MOST_OF_CPU)
        self._count = Cadence(COUNTERS_NS, share=MOST_OF_CPU)
        self._watched: dict[tuple[int, int], _FollowedProcess] = {}
        self._looks = 0
        self._alive: list[_FollowedProcess] = []

    @property
    def pids(self) -> list[int]:
        """The tree's processes that run, whyidle's own left out."""
        return [process.pid for process in self._alive if not process.ours]

    @property
    def members(self) -> list[Member]:
        """The same, as the tree knows them."""
        pids = set(self.pids)
        return [member for member in self._tree.alive if member.pid in pids]

    @property
    def trainings(self) -> dict[int, int]:
        """Process → its main thread, of those likely to train: a launcher's ranks, else the outermost Pythons."""
        pythons = [process for process in self._alive if not process.ours and process.python is not False]
        ranks = [process for process in pythons if process.rank is not None]
        pids = {process.pid for process in ranks or pythons}
        return {process.pid: process.pid for process in ranks or pythons if process.parent not in pids}

    def tick(self, now_ns: int, last: bool = False) -> None:
        """Look where it is time to; `last` looks in any case."""
        begin = time.thread_time_ns()
        if self._count.due(now_ns) or last:
            self._tree.look()
            self._tree.scan()
            self._read_counters(now_ns)
            self._count.cost(now_ns, time.thread_time_ns() - begin)
        begin = time.thread_time_ns()
        if self._look.due(now_ns):
            self._looks += 1
            for process in self._alive:
                process.states[state_of(process.pid)] += 1
            self._look.cost(now_ns, time.thread_time_ns() - begin)

    def result(self) -> list[ProcessStates]:
        """Everything seen so far."""
        return [self._summary(process) for process in self._watched.values()]

    def _read_counters(self, now_ns: int) -> None:
        alive = []
        for member in self._tree.alive:
            key = member.pid, member.stat.started
            now = _counters(member.pid, member.counters.cpu_ns)
            now |= {"read_bytes": member.counters.read_storage, "read_chars": member.counters.read_chars}
            process = self._watched.get(key)
            if process is None:
                if len(self._watched) >= MOST_ENDED:
                    continue
                process = self._watched[key] = self._meet(member.pid, member.stat.parent, now_ns, now)
            process.end_ns, process.last = now_ns, now
            name, command = _called(member.pid)
            if command and (name, command) != (process.name, process.command):
                # It was met between its fork and what it became, which may have the same name: both are Python.
                _describe(process)
            alive.append(process)
        self._alive = alive

    def _meet(self, pid: int, parent: int, now_ns: int, counters: dict[str, int | None]) -> _FollowedProcess:
        met = _FollowedProcess(pid, parent, "", "", None, None, False, now_ns, now_ns, counters, counters)
        _describe(met)
        return met

    def _summary(self, process: _FollowedProcess) -> ProcessStates:
        def rise(name: str) -> int | None:
            first, last = process.first[name], process.last[name]
            return None if first is None or last is None else max(0, last - first)

        return ProcessStates(
            pid=process.pid,
            parent=process.parent,
            name=process.name,
            command=process.command,
            rank=process.rank,
            seconds=(process.end_ns - process.begin_ns) / NS_PER_S,
            looks=process.states.total(),
            states=dict(process.states),
            python=process.python,
            ours=process.ours,
            present=process.states.total() / self._looks if self._looks else 0.0,
            **{name: rise(name) for name in process.last},
        )


def _called(pid: int) -> tuple[str, str]:
    """Its name and the beginning of its command, now."""
    name = (read(f"/proc/{pid}/comm") or b"?").decode(errors="replace").strip()
    return name, " ".join(without_secrets(command_of(pid)))[:MOST_COMMAND]


def _describe(process: _FollowedProcess) -> None:
    """What it calls itself and runs, now."""
    process.name, process.command = _called(process.pid)
    process.rank = rank_of(process.pid)
    process.python = is_python(process.pid)
    # A training that whyidle has started is not ours for that.
    process.ours = process.pid == os.getpid() or bool(OURS.search(" ".join(command_of(process.pid))))


def _counters(pid: int, cpu_ns: int | None) -> dict[str, int | None]:
    """Of the main thread in nanoseconds where the kernel counts them so; the process's have ticks of 10 ms."""
    fields = (read(f"/proc/{pid}/schedstat") or b"").split()
    known = len(fields) >= 2 and fields[0].isdigit() and fields[1].isdigit()
    return {
        "cpu_ns": cpu_ns,
        "main_cpu_ns": int(fields[0]) if known else None,
        "main_queue_ns": int(fields[1]) if known else None,
    }
