"""The files of `/proc` the sampler reads, parsed. Each parser takes the bytes of one file.

psutil would read several of these files for one figure and make an object per process and call; these are read
once each, several times a second.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def read(path: str) -> bytes | None:
    """The first 64 KiB of a file, in one read; `None` where it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(fd, 65536)
    except OSError:
        return None
    finally:
        os.close(fd)


def read_text(path: Path) -> str:
    """The same as text; empty where it cannot be read."""
    return (read(str(path)) or b"").decode(errors="replace")


def names(path: str) -> list[str]:
    """The names in a folder; none where it cannot be listed."""
    try:
        return os.listdir(path)
    except OSError:
        return []


def is_python(pid: int) -> bool | None:
    """Whether a process runs Python; `None` where that cannot be read."""
    try:
        program = os.path.basename(os.readlink(f"/proc/{pid}/exe"))  # noqa: PTH115, PTH119 - a path that may not exist
    except OSError:
        command = command_of(pid)
        return True if command and "python" in command[0] else None
    if "python" in program or "pypy" in program:
        return True
    try:
        with open(f"/proc/{pid}/maps", "rb") as file:
            return any(b"libpython" in line for line in file)
    except OSError:
        return None


def command_of(pid: int) -> tuple[str, ...]:
    text = read(f"/proc/{pid}/cmdline") or b""
    return tuple(part.decode(errors="replace") for part in text.rstrip(b"\0").split(b"\0")) if text else ()


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """`/proc/PID/stat`."""

    parent: int
    started: int
    """Ticks after boot: with the pid, it names a process for good."""
    ended: bool
    """A zombie: it has ended and waits for its parent to ask."""
    cpu_ns: int
    """User and system time, with that of threads that have ended."""
    minor_faults: int
    major_faults: int
    rss_bytes: int


def parse_stat(text: bytes | None) -> ProcessStat | None:
    """The name in parentheses may itself hold blanks and parentheses: the last one closes it."""
    if not text:
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    try:
        return ProcessStat(
            parent=int(fields[1]),
            started=int(fields[19]),
            ended=fields[0] in b"ZXx",
            cpu_ns=(int(fields[11]) + int(fields[12])) * TICK_NS,
            minor_faults=int(fields[7]),
            major_faults=int(fields[9]),
            rss_bytes=int(fields[21]) * PAGE_BYTES,
        )
    except (IndexError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class MachineCpu:
    """The first line of `/proc/stat`, in ticks of all CPUs since boot."""

    busy: int
    iowait: int
    steal: int
    total: int

    def shares_since(self, before: MachineCpu) -> tuple[float, float, float] | None:
        """(busy, iowait, steal) in percent of all CPU time between two looks.

        The kernel's iowait can run backwards; that reads as 0. `None` when no tick has passed.
        """
        total = self.total - before.total
        if total <= 0:
            return None
        pairs = ((self.busy, before.busy), (self.iowait, before.iowait), (self.steal, before.steal))
        busy, iowait, steal = (min(100.0, max(0.0, 100.0 * (new - old) / total)) for new, old in pairs)
        return busy, iowait, steal


def parse_machine_cpu(text: bytes | None) -> MachineCpu | None:
    """Guest time is part of user time, so only the first eight numbers count."""
    if not text or not text.startswith(b"cpu "):
        return None
    numbers = [int(n) for n in text.split(b"\n", 1)[0].split()[1:9]]
    if len(numbers) < 8:
        return None
    user, nice, system, idle, iowait, irq, softirq, steal = numbers
    busy = user + nice + system + irq + softirq
    return MachineCpu(busy, iowait, steal, busy + idle + iowait + steal)


def parse_schedstat(text: bytes | None) -> tuple[int, int] | tuple[None, None]:
    """A thread's `schedstat`: nanoseconds on a CPU, and those it was runnable and waited for one."""
    fields = (text or b"").split()[:2]
    return (int(fields[0]), int(fields[1])) if len(fields) == 2 and all(map(bytes.isdigit, fields)) else (None, None)


def parse_status(text: bytes | None) -> dict[str, str]:
    """A process's or a thread's `status`: what follows each name."""
    lines = (text or b"").decode(errors="replace").splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def parse_pairs(text: bytes | None) -> dict[bytes, int]:
    """Files of lines `name: 12`, `name: 12 kB` or `name 12`: `io`, `meminfo`, `smaps_rollup`, `cpu.stat`."""
    pairs = {}
    for line in (text or b"").splitlines():
        fields = line.split()
        if len(fields) >= 2 and fields[1].isdigit():
            pairs[fields[0].rstrip(b":")] = int(fields[1])
    return pairs


def parse_pressure(text: bytes | None) -> int | None:
    """`some … total=N` of a pressure file: microseconds in which some task stalled."""
    for line in (text or b"").splitlines():
        if line.startswith(b"some "):
            total = line.rpartition(b"total=")[2]
            return int(total) if total.isdigit() else None
    return None
