"""Other processes, as /proc tells of them."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..sampler.procfs import names, parse_stat, read

PROC = Path("/proc")


def lives(pid: int) -> bool:
    """Whether there is such a process, and it has not ended."""
    stat = parse_stat(read(f"{PROC}/{pid}/stat"))
    if stat is not None:
        return not stat.ended
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # somebody else's
    return True


def cpu_ns(pid: int) -> int:
    """CPU time that a process has used, ns; 0 where it has ended."""
    stat = parse_stat(read(f"{PROC}/{pid}/stat"))
    return 0 if stat is None else stat.cpu_ns


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in filter(str.isdigit, names(str(PROC))):
        stat = parse_stat(read(f"{PROC}/{name}/stat"))
        if stat is not None and not stat.ended:
            children.setdefault(stat.parent, []).append(int(name))
    found = [pid]
    for each in found:
        found += children.get(each, [])
    return found[1:]


def goes_first() -> None:
    """Should the machine's memory run out, the kernel shall take this process and those it starts, and none else."""
    with contextlib.suppress(OSError):
        (PROC / "self" / "oom_score_adj").write_text("1000")


def proportional_bytes(pid: int) -> int:
    """Memory of a process, what it shares with others in part: forked workers share most of theirs."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return 1024 * int(next(line for line in lines if line.startswith("Pss:")).split()[1])
    with contextlib.suppress(OSError, ValueError, IndexError):
        return os.sysconf("SC_PAGE_SIZE") * int((PROC / str(pid) / "statm").read_text().split()[1])
    return 0
