"""Observing a process that already runs, from outside: nothing here writes to it, stops it, or runs inside it.

Who is behind a process id, and whether it can be observed. Then one recording: looks at its stacks, states, and the
sampler, into a run folder. What each process of the tree does, several times a second, from `/proc`: on a CPU, waiting
for one, reading, idle. A look reads one small file per process; counters and new processes are looked for once a
second. Where the tree is large the looks become fewer, so that they never take more than half a percent of a CPU.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import WhyidleError
from ..interrupts import held
from ..record.run import ProcessStates, create_run, update_run, write_states
from ..record.secret import without_secrets
from .sampler.procfs import command_of, is_python, names, parse_schedstat, parse_stat, parse_status, read
from .sampler.schedule import NS_PER_S, Cadence
from .sampler.stack_looks import StackLooks
from .sampler.start import StackOptions, start_sampler
from .sampler.tree import Member, ProcessTree

OURS = re.compile(
    r"whyidle\.capture\.sampler|(?:\b|/)whyidle (?:attach|run|live)\b|/py-spy record --format chrometrace"
)
"""Commands of whyidle itself that may be in a training's tree."""
_DEVICE = re.compile(r"/dev/(nvidia\d+|kfd|dxg|accel/accel\d+)\Z")
_DRIVERS = ("/proc/driver/nvidia", "/dev/kfd", "/dev/dxg", "/dev/accel")


@dataclass(frozen=True)
class Target:
    """A process as found when the recording began."""

    pid: int
    started: int
    """Ticks after boot: with the pid, it names a process for good."""
    name: str
    command: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What is unusual about it, one sentence each."""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        stat = parse_stat(read(f"/proc/{self.pid}/stat"))
        return stat is not None and stat.started == self.started and not stat.ended

    @property
    def state(self) -> str:
        """The kernel's letter; `X` when it is gone."""
        return state_of(self.pid)


def find(pid: int) -> Target:
    """The process to observe.

    Raises:
        WhyidleError: there is none, it has ended, or it is no candidate.
    """
    stat = parse_stat(read(f"/proc/{pid}/stat"))
    if stat is None:
        raise WhyidleError(
            f"there is no process {pid} here. `ps -ef` lists the processes; a container has process ids of its own."
        )
    name = (read(f"/proc/{pid}/comm") or b"?").decode(errors="replace").strip()
    if stat.ended:
        raise WhyidleError(
            f"process {pid} ({name}) has ended; it only waits for its parent {stat.parent} to collect its exit code. "
            "There is nothing to observe."
        )
    status = parse_status(read(f"/proc/{pid}/status"))
    group = int(status.get("Tgid", pid))
    if group != pid:
        raise WhyidleError(f"{pid} is a thread of process {group}. Attach to {group}.")
    if pid == os.getpid():
        raise WhyidleError(f"{pid} is this command itself. Name the process of the training.")
    command = command_of(pid)
    if not command:
        raise WhyidleError(f"{pid} ({name}) is a thread of the kernel, not a Python process.")
    return Target(pid, stat.started, name, command, tuple(_notes(pid, status)))


def rank_of(pid: int) -> int | None:
    """`RANK` of a launcher's child; `None` where it has none, or its environment may not be read."""
    for entry in (read(f"/proc/{pid}/environ") or b"").split(b"\0"):
        if entry.startswith(b"RANK=") and entry[5:].isdigit():
            return int(entry[5:])
    return None


def state_of(pid: int) -> str:
    """The kernel's letter for the state of a process's main thread; `X` when it is gone."""
    text = read(f"/proc/{pid}/stat")
    return text[text.rfind(b")") + 2 :][:1].decode(errors="replace") or "X" if text else "X"


def device_kind(pids: list[int]) -> str | None:
    """`cuda` if a process has an accelerator's file open, `cpu` if none has; `None` where that may not be read."""
    readable = False
    for pid in pids:
        for number in names(f"/proc/{pid}/fd"):
            try:
                link = os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115 - many, and quickly
            except OSError:
                continue
            readable = True
            if _DEVICE.match(link):
                return "cuda"
    return "cpu" if readable or not any(map(os.path.exists, _DRIVERS)) else None


def _notes(pid: int, status: dict[str, str]) -> list[str]:
    notes = []
    ids = status.get("NSpid", "").split()
    if len(ids) > 1:
        notes.append(f"Process {pid} runs in a container, where its id is {ids[-1]}.")
    state = status.get("State", "")[:1]
    tracer = status.get("TracerPid", "0")
    if tracer != "0":
        notes.append(f"Process {pid} is traced by process {tracer} (a debugger or strace), which slows it down.")
    if state in "Tt":
        notes.append(f"Process {pid} was stopped before whyidle attached; whyidle leaves it so.")
    return notes


def require_python(target: Target) -> None:
    """Refuse a tree of processes in which certainly none is a Python.

    Raises:
        WhyidleError: there is none.
    """
    tree = ProcessTree(target.pid)
    tree.look()
    tree.scan()
    if all(is_python(member.pid) is False for member in tree.alive):
        raise WhyidleError(
            f"process {target.pid} ({target.name}) is not a Python process and started none. Name the process of "
            "the training: `pgrep -af python` lists candidates."
        )


COUNTERS_NS = NS_PER_S
MOST_OF_CPU = 0.005
MOST_COMMAND = 200
MOST_ENDED = 2000
"""Processes that have ended and are still told of; beyond that the newest are left out."""


@dataclass
class _Followed:
    """What is known of one process so far."""

    seen: ProcessStates
    """All but what counts looks."""
    begin_ns: int
    first: dict[str, int | None]
    """Its counters when it was met."""
    states: Counter[str] = field(default_factory=Counter)


class States:
    """Follows the tree of one process."""

    def __init__(self, pid: int, rate: float) -> None:
        self._tree = ProcessTree(pid)
        self._look = Cadence(round(NS_PER_S / rate), share=MOST_OF_CPU)
        self._count = Cadence(COUNTERS_NS, share=MOST_OF_CPU)
        self._followed: dict[tuple[int, int], _Followed] = {}
        """By process and when it was started."""
        self._looks = 0
        self._alive: list[_Followed] = []

    @property
    def pids(self) -> list[int]:
        """The tree's processes that run, whyidle's own left out."""
        return [process.seen.pid for process in self._alive if not process.seen.ours]

    @property
    def members(self) -> list[Member]:
        """The same, as the tree knows them."""
        pids = set(self.pids)
        return [member for member in self._tree.alive if member.pid in pids]

    @property
    def trainings(self) -> dict[int, int]:
        """Process → its main thread, of those likely to train: a launcher's ranks, else the outermost Pythons."""
        seen = [process.seen for process in self._alive]
        pythons = [process for process in seen if not process.ours and process.python is not False]
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
                process.states[state_of(process.seen.pid)] += 1
            self._look.cost(now_ns, time.thread_time_ns() - begin)

    def result(self) -> list[ProcessStates]:
        """Everything seen so far."""
        return [
            replace(
                each.seen,
                looks=each.states.total(),
                states=dict(each.states),
                present=each.states.total() / self._looks if self._looks else 0.0,
            )
            for each in self._followed.values()
        ]

    def _read_counters(self, now_ns: int) -> None:
        self._alive = []
        for member in self._tree.alive:
            key, now = (member.pid, member.stat.started), _counters(member)
            process = self._followed.get(key)
            if process is None:
                if len(self._followed) >= MOST_ENDED:
                    continue
                seen = _described(ProcessStates(member.pid, member.stat.parent, ""))
                process = self._followed[key] = _Followed(seen, now_ns, now)
            # It may have been met between its fork and what it became, which may have the same name: both are Python.
            name, command = _called(member.pid)
            if command and (name, command) != (process.seen.name, process.seen.command):
                process.seen = _described(process.seen)
            rises: dict[str, Any] = {
                name: None if count is None or (first := process.first[name]) is None else max(0, count - first)
                for name, count in now.items()
            }
            process.seen = replace(process.seen, seconds=(now_ns - process.begin_ns) / NS_PER_S, **rises)
            self._alive.append(process)


def _called(pid: int) -> tuple[str, str]:
    """Its name and the beginning of its command, now."""
    name = (read(f"/proc/{pid}/comm") or b"?").decode(errors="replace").strip()
    return name, " ".join(without_secrets(command_of(pid)))[:MOST_COMMAND]


def _described(process: ProcessStates) -> ProcessStates:
    """The process with what it calls itself and runs now."""
    pid, (name, command) = process.pid, _called(process.pid)
    # A training that whyidle has started is not ours for that.
    ours = pid == os.getpid() or bool(OURS.search(" ".join(command_of(pid))))
    return replace(process, name=name, command=command, rank=rank_of(pid), python=is_python(pid), ours=ours)


def _counters(member: Member) -> dict[str, int | None]:
    """Of the main thread in nanoseconds where the kernel counts them so; the process's have ticks of 10 ms."""
    main_cpu_ns, main_queue_ns = parse_schedstat(read(f"/proc/{member.pid}/schedstat"))
    counted = member.counters.get
    return {
        "cpu_ns": counted("tree_cpu_ns"),
        "main_cpu_ns": main_cpu_ns,
        "main_queue_ns": main_queue_ns,
        "read_bytes": counted("read_storage_bytes"),
        "read_chars": counted("read_chars_bytes"),
    }


TICK_S = 0.05
KEPT_EVERY_NS = 20 * NS_PER_S
"""How often the states are written: a crash of this command loses so much of them."""

REFUSED = (
    "The stacks of the process were not read: whyidle may not trace it (ptrace). There are three ways out. Run "
    "`sudo whyidle attach {pid}`; or allow tracing (`--cap-add SYS_PTRACE` for a container, "
    "`sysctl kernel.yama.ptrace_scope=0` for your own processes); or start the training with `whyidle run`, which "
    "needs no permission."
)
UNREADABLE = "Stacks were not read: {reason}."


def record(
    target: Target, folder: Path, rate: float, seconds: float | None, tell: Callable[[float, int], object]
) -> str:
    """Record until `seconds` are over, the process ends or Ctrl-C comes; returns which: `duration`, `target`, `user`.

    `tell`: is told at every look for how many seconds it has lasted, and how many processes are followed.

    Raises:
        RecordError: the run folder cannot be written.
        KeyboardInterrupt: Ctrl-C came a second time.
    """
    states = States(target.pid, rate)
    states.tick(time.monotonic_ns(), last=True)
    # Ctrl-C ends the watching. It does not come between starting a program and knowing of it.
    with held(expected=1) as interrupts:
        create_run(folder, _description(target, rate, states.pids))
        notes: list[str] = []
        looks = StackLooks(folder, target.pid, StackOptions(rate, within=False), notes.append, lambda: states.trainings)
        sampler = start_sampler(folder, target.pid)
        begin_ns = time.monotonic_ns()
        why, kept_ns = "", begin_ns
        try:
            while not why:
                now_ns = time.monotonic_ns()
                states.tick(now_ns)
                looks.look(now_ns, states.members)
                if now_ns - kept_ns >= KEPT_EVERY_NS:
                    kept_ns = now_ns
                    _keep(folder, states)
                tell((now_ns - begin_ns) / NS_PER_S, len(states.pids))
                if interrupts:
                    why = "user"
                elif seconds is not None and now_ns - begin_ns >= seconds * NS_PER_S:
                    why = "duration"
                elif not target.alive:
                    why = "target"
                else:
                    rest_s = min(TICK_S, looks.wait_ns(time.monotonic_ns()) / NS_PER_S)
                    select.select(looks.inputs, [], [], rest_s)
            # Of a process that has ended its counters are those of the last look.
            states.tick(time.monotonic_ns(), last=True)
        finally:
            # Whatever happens, nothing of ours is left running.
            looks.close()
            sampler.stop()
            notes += _keep(folder, states)
            # Of a process that has ended nobody knows what it was.
            reasons = {} if looks.made else looks.hindrances
            hindered = [reason for pid, reason in reasons.items() if is_python(pid) is not False]
            refused = any(each.refused for each in hindered)
            if refused:
                notes.append(REFUSED.format(pid=target.pid))
            elif hindered:
                notes.append(UNREADABLE.format(reason=hindered[0].reason))
            recorded_s = (time.monotonic_ns() - begin_ns) / NS_PER_S
            notes = [*target.notes, *notes, *([sampler.error] if sampler.error else [])]
            if why != "target" and target.state in "Tt":
                # Nothing here stops a process, so nothing here sets one going again.
                notes.append(
                    f"Process {target.pid} is stopped, by a signal or a debugger; whyidle did not stop it and leaves "
                    "it so."
                )
            update_run(
                folder,
                {
                    "ended": {"status": "ok", "error": None, "exit_code": None},
                    "attach": _facts(target, rate) | {"seconds": recorded_s, "why": why or "user", "refused": refused},
                    "notices": list(dict.fromkeys(notes)),
                },
            )
    return why


def _keep(folder: Path, states: States) -> list[str]:
    """Write the states; give the notes on that."""
    try:
        write_states(folder, states.result())
    except OSError as error:
        return [f"The recording could not be written in full: {error.strerror}."]
    return []


def _facts(target: Target, rate: float) -> dict[str, Any]:
    return {"pid": target.pid, "name": target.name, "rate": rate}


def _description(target: Target, rate: float, pids: list[int]) -> dict[str, Any]:
    kind = device_kind(pids)
    device: dict[str, Any] | None = None
    if kind == "cpu":
        device = {"kind": "cpu", "title": "the CPU", "count": 1}
    elif kind == "cuda":
        uuids = _gpus_of(set(pids))
        title = "GPU" if len(uuids) < 2 else f"{len(uuids)} GPUs"
        device = {"kind": "cuda", "title": title, "count": max(1, len(uuids))}
        device |= {"uuids": uuids} if uuids else {}
    return {
        "attach": _facts(target, rate) | {"seconds": None, "why": None},
        "command": list(target.command),
        "python": None,
        **({"device": device} if device else {}),
    }


def _gpus_of(pids: set[int]) -> list[str]:
    """UUIDs of the GPUs on which one of these processes has a context; none where the driver does not tell.

    In a container the driver may give the host's process ids, which match none: then nothing is known.
    """
    found = []
    with contextlib.suppress(Exception):
        import pynvml

        pynvml.nvmlInit()
        for index in range(pynvml.nvmlDeviceGetCount()):
            # A GPU that refuses an answer is none of these processes', as far as is known.
            with contextlib.suppress(pynvml.NVMLError):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                if any(process.pid in pids for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)):
                    uuid = pynvml.nvmlDeviceGetUUID(handle)
                    found.append(uuid.decode() if isinstance(uuid, bytes) else str(uuid))
    return found
