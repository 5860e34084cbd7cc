"""Which processes' stacks are looked at, and when: each training all the time, two of the other processes in turn.

One py-spy looks at a process for a stretch of some seconds, since it tells what it saw only in the end. At each of its
looks the kernel is asked what the threads are at; what both say becomes records when the stretch is over. The first one
is short, so that lines are known soon. Their rates and the rests between them follow what looks cost.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ...record.run import AGAIN, processes
from ...record.schema import NOT_MEASURED, STACK
from ...record.segment import RecordWriter
from ...record.stacks import Call, CallStack, StackNames
from ..hidden import is_ours
from ..stacks.source import SourceLines
from ..stacks.spy import AFTER_NS, MOST_RATE, Look, NoStacks, Spy, SpyTrace
from ..stacks.thread_state import Gone, thread_state
from .procfs import is_python, names, parse_stat, parse_status, read
from .schedule import NS_PER_S, Cadence
from .start import StackOptions
from .tree import Member

MOST_OF_CPU = {True: 0.009, False: 0.006}
"""Share of a CPU that looks at trainings may take, and those at the other processes; the rest of 2 % is ours."""
SAVED_NS = NS_PER_S // 5
"""CPU time that may be earned ahead: a stretch is paid for when it is over."""
START_NS = 15_000_000
"""CPU time that py-spy takes to begin."""
LEAST_RATE = 4
"""Looks a second; where that costs too much there are rests between stretches."""
TRAININGS_AT_ONCE = 4
OTHERS_AT_ONCE = 2
OTHER_THREADS_EVERY = 4
"""Looks of a stretch between two whose threads are all recorded, not only the one that trains, or makes batches."""
MOST_THREADS = 64
"""Threads recorded of a look; further ones are left out."""
FIRST_NS, OTHERS_NS, STRETCH_NS = 5 * NS_PER_S, 10 * NS_PER_S, 15 * NS_PER_S
"""Length of a training's first stretch; of the other processes' for a minute, so that more of them are seen; and of all
others: the start of a py-spy is a large part of the cost of a short one."""
OTHERS_FOR_NS = 60 * NS_PER_S
MANAGED_EVERY_NS = NS_PER_S // 4
TRAININGS_EVERY_NS, TRAININGS_SHARE = NS_PER_S // 2, 0.002
"""How often the folder is asked which processes train, and what share of a CPU that may take: a job of many ranks
has many files."""
AGAIN_AFTER_NS = 2 * NS_PER_S
"""A process without an interpreter may become one that has: a shell that starts Python in its own place."""
MOST_TRIES = 5
LATE_US = 500.0
"""How much later than a look's message its changes may seem, for what is not known of py-spy's clock."""
JOINED_NS = 20_000_000
"""What the kernel says of a thread counts for a look so much earlier at most."""
ENDS_WITHIN_S, CLOSES_WITHIN_S = 5.0, 2.0

REFUSED = (
    "This system does not let the sampler read stacks of the training (ptrace), so {instead}. `whyidle doctor` says "
    "what forbids it."
)
NOT_SEEN = "Stacks of process {pid} were not recorded: {reason}."

Key = tuple[int, int]
"""A process's id and when it started."""


@dataclass
class _Looked:
    """A process of the tree, as it is looked at."""

    parent: int
    tries: int = 0
    again_ns: int = 0
    """When to try again, where stacks were not seen."""
    last_ns: int = 0
    """When a stretch of it ended."""
    look_ns: float = 500_000.0
    """CPU time of a look at it."""
    threads: set[int] = field(default_factory=set)
    """Those that run Python, as far as is known."""


@dataclass
class _Stretch:
    """Looks at one process by one py-spy."""

    key: Key
    spy: Spy
    trains: bool
    end_ns: int
    seen: list[tuple[Look, dict[int, int]]] = field(default_factory=list)
    """Each look, with the states of the threads at it."""
    inside: dict[int, int] = field(default_factory=dict)
    """A thread → its number as its process knows it, which differs in a container."""


class StackLooks:
    """Call `look` when `wait_ns` is 0, or one of `inputs` can be read. Neither raises. Close it in the end."""

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
        self._say = say
        self._rate = min(options.rate, MOST_RATE)
        self._within = options.within
        self.refused = False
        """Whether processes are to look at their own stacks."""
        self._ask = trainings
        self.made = 0
        """Looks, with those that failed."""
        self.hindrances: dict[int, NoStacks] = {}
        """Process → why its stacks were not seen."""
        self._writer = RecordWriter(folder, STACK)
        self._lines = SourceLines()
        self._pid = root
        """The process whose stack is being named: its source files are looked for where it sees them."""
        source = (lambda file, line: self._lines(self._pid, file, line)) if options.source else None
        self._names = StackNames(folder, source)
        self._looked: dict[Key, _Looked] = {}
        self._stretches: list[_Stretch] = []
        self._begin_ns = self._managed_ns = time.monotonic_ns()
        self._paid_ns = {trains: self._begin_ns - SAVED_NS / 4 / share for trains, share in MOST_OF_CPU.items()}
        """Until when the shares of `MOST_OF_CPU` pay for what looks took so far: a stretch may begin after that."""
        self._trainings: dict[int, int] = {root: root}
        """Process → its thread that trains."""
        self._told = False
        """Whether processes have said that they train."""
        self._asking = Cadence(TRAININGS_EVERY_NS, share=TRAININGS_SHARE)

    @property
    def inputs(self) -> list[Spy]:
        """What tells of looks, for `select`."""
        return [stretch.spy for stretch in self._stretches if not stretch.spy.over]

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait for `look` where no input can be read; 0 when it is due."""
        return max(self._managed_ns - now_ns, 0)

    def look(self, now_ns: int, members: Iterable[Member]) -> None:
        """Take note of looks that were made, end stretches and begin others. `members`: the processes of the tree."""
        for stretch in self._stretches:
            if not stretch.spy.over:
                self._hear(stretch, now_ns)
        for stretch in [each for each in self._stretches if each.spy.over][:1]:
            # The next one at the next call: it takes a while.
            self._finish(stretch, now_ns)
        if now_ns < self._managed_ns:
            return
        self._managed_ns = now_ns + MANAGED_EVERY_NS
        if self.refused:
            return
        self._ask_who_trains(now_ns)
        parents = {(member.pid, member.stat.started): member.stat.parent for member in members}
        looking = {stretch.key for stretch in self._stretches}
        for key in self._looked.keys() - parents.keys() - looking:
            del self._looked[key]
        for key in parents.keys() - self._looked.keys():
            self._looked[key] = _Looked(parents[key])
        for trains, at_once in ((True, TRAININGS_AT_ONCE), (False, OTHERS_AT_ONCE)):
            free = at_once - sum(stretch.trains is trains for stretch in self._stretches)
            waiting = sorted(
                (looked.last_ns, key)
                for key, looked in self._looked.items()
                if key in parents
                and key not in looking
                and (key[0] in self._trainings) is trains
                and looked.tries < MOST_TRIES
                and now_ns >= looked.again_ns
            )
            paid_ns = self._paid_ns[trains] = max(self._paid_ns[trains], now_ns - SAVED_NS / MOST_OF_CPU[trains])
            for _, key in waiting[:free] if paid_ns < now_ns else ():
                self._begin(key, trains, now_ns)

    def close(self) -> None:
        """End all stretches and record what they saw."""
        for stretch in self._stretches:
            stretch.spy.end()
        until = time.monotonic() + CLOSES_WITHIN_S
        for stretch in list(self._stretches):
            stretch.spy.wait(until - time.monotonic())
            self._finish(stretch, time.monotonic_ns(), closing=True)
        self._writer.close()

    def _begin(self, key: Key, trains: bool, now_ns: int) -> None:
        looked = self._looked[key]
        short = looked.last_ns == 0 if trains else now_ns - self._begin_ns < OTHERS_FOR_NS
        length_ns = (FIRST_NS if trains else OTHERS_NS) if short else STRETCH_NS
        alive = sum(pid in self._trainings for pid, _ in self._looked)
        at_once = min(alive, TRAININGS_AT_ONCE) if trains else OTHERS_AT_ONCE
        affordable = (MOST_OF_CPU[trains] / at_once * length_ns - START_NS) / (looked.look_ns * length_ns / NS_PER_S)
        wanted = self._rate / at_once if trains else self._rate
        rate = max(1, round(max(min(wanted, affordable), min(LEAST_RATE, self._rate))))
        if is_python(key[0]) is False:
            looked.again_ns = looked.last_ns = now_ns + AGAIN_AFTER_NS
            return
        try:
            spy = Spy(key[0], rate)
        except NoStacks as error:
            self._hindered(key, error, now_ns)
            return
        self._lines.hold(key[0])
        self._stretches.append(_Stretch(key, spy, trains, now_ns + length_ns))

    def _hear(self, stretch: _Stretch, now_ns: int) -> None:
        if (found := stretch.spy.hear()) is not None:
            pid = stretch.key[0]
            wanted = {self._trainer(stretch)}
            if len(stretch.seen) % OTHER_THREADS_EVERY == 0:
                wanted |= set(sorted(self._looked[stretch.key].threads or _threads(pid))[:MOST_THREADS])
            states: dict[int, int] = {}
            for tid in sorted(wanted):
                with contextlib.suppress(Gone):
                    states[tid] = thread_state(pid, tid)
            stretch.seen.append((found, states))
            stretch.inside |= _inside(pid, wanted - stretch.inside.keys())
        if now_ns >= stretch.end_ns:
            stretch.spy.end()
        if now_ns >= stretch.end_ns + ENDS_WITHIN_S * NS_PER_S:
            stretch.spy.wait(0)

    def _finish(self, stretch: _Stretch, now_ns: int, closing: bool = False) -> None:
        """Record what a stretch saw."""
        self._stretches.remove(stretch)
        looked, spy = self._looked[stretch.key], stretch.spy
        self._paid_ns[stretch.trains] += spy.cpu_ns / MOST_OF_CPU[stretch.trains]
        looked.last_ns = now_ns
        if spy.looks:
            looked.look_ns = max(50_000.0, (spy.cpu_ns - START_NS) / spy.looks)
        try:
            trace, offset_ns = spy.stacks()
        except NoStacks as error:
            if (spy.looks or not closing) and _runs(stretch.key[0]):
                self._hindered(stretch.key, error, now_ns)
            for found, states in stretch.seen:
                self._write(stretch, found.t_ns, states, {})
        else:
            looked.tries = 0
            self.hindrances.pop(stretch.key[0], None)
            # Those that have begun meanwhile are recorded from the next stretch on.
            stretch.inside |= _inside(stretch.key[0], _threads(stretch.key[0]) - stretch.inside.keys())
            looked.threads = {tid for tid, known in stretch.inside.items() if known in trace.threads}
            before_ns = 0.0
            for found, states in stretch.seen:
                t_ns = _looked_at(found.t_ns, before_ns, trace, offset_ns)
                if found.t_ns - t_ns > JOINED_NS:
                    states = dict.fromkeys(states, NOT_MEASURED)
                at_us = (t_ns - offset_ns) / 1000 + LATE_US
                stood = {} if found.failed else {known: each.at(at_us) for known, each in trace.threads.items()}
                if found.threads < sum(map(bool, stood.values())):
                    # Of a thread that this look did not see the last stack stands there still.
                    stood = {
                        known: stood[known] for tid, known in stretch.inside.items() if tid == self._trainer(stretch)
                    }
                self._write(stretch, t_ns, states, stood)
                before_ns = found.t_ns
        finally:
            spy.close()
            self._lines.let_go(stretch.key[0])
        self._writer.flush()

    def _trainer(self, stretch: _Stretch) -> int:
        """The thread of which each look is recorded: the one that trains, or makes batches."""
        return self._trainings.get(stretch.key[0], stretch.key[0])

    def _write(self, stretch: _Stretch, t_ns: int, states: dict[int, int], stood: dict[int, CallStack]) -> None:
        """Records of one look; `stood`: the stacks of threads as their process knows them, none of those not seen."""
        pid = self._pid = stretch.key[0]
        self.made += 1
        parent = self._looked[stretch.key].parent
        for tid, state in states.items():
            stack = stood.get(stretch.inside.get(tid, 0), ())
            if tid != self._trainer(stretch) and not stack:
                continue
            number = self._names.number(
                [
                    Call(self._lines.qualified(pid, call.file, call.line, call.function), call.file, call.line)
                    for call in stack
                    if not is_ours(call.file)
                ]
            )
            self._writer.append(t_ns, pid, tid, number, state, 0, parent)

    def _hindered(self, key: Key, error: NoStacks, now_ns: int) -> None:
        looked = self._looked[key]
        looked.tries += 1
        looked.again_ns = now_ns + AGAIN_AFTER_NS
        self.hindrances[key[0]] = error.with_traceback(None)
        trains = self._told and key[0] in self._trainings
        if trains and not error.refused:
            self._say(NOT_SEEN.format(pid=key[0], reason=error.reason))
        if error.refused:
            # Until it has imported torch a training cannot have let the sampler in (`stacks/permit.py`).
            looked.tries -= not self._told
            if trains:
                instead = "a thread within it samples them" if self._within else "they are not recorded"
                self._say(REFUSED.format(instead=instead))
                self.refused = self._within

    def _ask_who_trains(self, now_ns: int) -> None:
        if not self._asking.due(now_ns):
            return
        if self._ask is not None:
            self._trainings = self._ask()
            return
        begin, here = time.thread_time_ns(), socket.gethostname()
        found = [process for process in processes(self._folder) if process.host == here]
        self._told = bool(found)
        if found:
            self._trainings = {process.pid % AGAIN: process.thread or process.pid % AGAIN for process in found}
        self._asking.cost(now_ns, time.thread_time_ns() - begin)


def _looked_at(told_ns: int, before_ns: float, trace: SpyTrace, offset_ns: float) -> int:
    """When the look was made that was told of then, the one before it at `before_ns`: where it saw any stack changed
    py-spy has the finer time."""
    changed_us = trace.last_change_us((told_ns - offset_ns) / 1000 + LATE_US)
    changed_ns = 0.0 if changed_us is None else 1000 * changed_us + offset_ns
    return round(min(changed_ns, told_ns)) if changed_ns > max(before_ns, told_ns - AFTER_NS) else told_ns


def _runs(pid: int) -> bool:
    stat = parse_stat(read(f"/proc/{pid}/stat"))
    return stat is not None and not stat.ended


def _threads(pid: int) -> set[int]:
    return set(map(int, names(f"/proc/{pid}/task")))


def _inside(pid: int, tids: Collection[int]) -> dict[int, int]:
    """Threads → their numbers as their process knows them, as far as they are still there."""
    if not tids or _id_inside(f"/proc/{pid}/status") == pid:
        return {tid: tid for tid in tids}
    found = {tid: _id_inside(f"/proc/{pid}/task/{tid}/status") for tid in tids}
    return {tid: known for tid, known in found.items() if known is not None}


def _id_inside(path: str) -> int | None:
    ids = parse_status(read(path)).get("NSpid", "").split()
    return int(ids[-1]) if ids else None
