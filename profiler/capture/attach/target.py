"""Who is behind a process id, and whether it can be observed."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from ...errors import WhyidleError
from ..sampler.procfs import command_of, is_python, names, parse_stat, parse_status, read
from ..sampler.tree import ProcessTree

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
