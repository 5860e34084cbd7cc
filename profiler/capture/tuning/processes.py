"""Processes of a training, as /proc tells of them: whether they live, CPU time and memory that they take, and how much
memory there is for them."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from pathlib import Path
from typing import Any

from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Device
from ...record.tuning import MemoryUse
from ..limits import memory_available
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


def forget_peak() -> None:
    """From here on the most memory is counted anew, on the processor and on CUDA devices in use; what their allocator
    keeps for later is given back."""
    with contextlib.suppress(OSError):
        (PROC / "self" / "clear_refs").write_text("5")
    if (cuda := _cuda()) is not None:
        cuda.empty_cache()
        for index in range(cuda.device_count()):
            cuda.reset_peak_memory_stats(index)


def memory_use(device: Device | None = None) -> MemoryUse:
    """Measure this process and, where the processor is the device, its children.

    Args:
        device: an emulated one has a memory of its own; else what torch uses is looked at.
    """
    if isinstance(device, EmulatedDevice):
        return MemoryUse(device.peak_bytes, device.spec.memory_bytes, True, device.allocation_retries() or 0)
    if (cuda := _cuda()) is None:
        return _of_host()
    most, gpu = max((cuda.max_memory_allocated(index), -index) for index in range(cuda.device_count()))
    if not most:
        return _of_host()
    # Other processes' memory, and this one's context, is neither free nor reserved.
    stats, (free, _) = cuda.memory_stats(-gpu), cuda.mem_get_info(-gpu)
    peak, capacity = int(cuda.max_memory_reserved(-gpu)), int(free) + int(cuda.memory_reserved(-gpu))
    return MemoryUse(peak, capacity, True, int(stats.get("num_alloc_retries", 0)))


def _cuda() -> Any:
    """Give torch's module; `None` where no device was used yet: nothing is initialised for a look."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def _of_host() -> MemoryUse:
    """Measure resident memory against what the machine or the control group can give; or, where the address space is
    limited to less than that, what is mapped of it."""
    own: dict[str, int] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "self" / "status").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("VmPeak", "VmHWM", "VmRSS"):
                own[name] = 1024 * int(rest.split()[0])
    children = sum(proportional_bytes(pid) for pid in descendants(os.getpid()))
    peak = own.get("VmHWM", 0) + children
    capacity = (memory_available() or 0) + own.get("VmRSS", 0) + children
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < capacity:
        return MemoryUse(own.get("VmPeak"), limit, False)
    return MemoryUse(peak or None, capacity if peak else None, False)
