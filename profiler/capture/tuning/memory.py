"""How much memory a training takes at most, and how much there is for it: of the memory that runs out first."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Device
from ..memory_limits import memory_available
from .processes import PROC, descendants, proportional_bytes


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. `None`: not known."""

    peak_bytes: int | None
    """The most so far; of a device, what the allocator took from it."""
    capacity_bytes: int | None
    """What there is for this training: what it holds and what is free now, so without what others hold."""
    on_device: bool
    retries: int = 0
    """How often the allocator had to free its caches to serve a request."""
    refused: int = 0
    """How often it could not serve one after that."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def memory_use(device: Device | None = None) -> MemoryUse:
    """Of this process and, where the processor is the device, of its children.

    Args:
        device: an emulated one has a memory of its own; else what torch uses is looked at.
    """
    if isinstance(device, EmulatedDevice):
        return MemoryUse(device.peak_bytes, device.spec.memory_bytes, True, device.allocation_retries() or 0)
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    # Nothing is initialised for it.
    if cuda is None or not cuda.is_initialized():
        return _of_host()
    most, gpu = max((cuda.max_memory_allocated(index), -index) for index in range(cuda.device_count()))
    return _of_cuda(cuda, -gpu) if most else _of_host()


def _of_cuda(cuda: Any, gpu: int) -> MemoryUse:
    """Of one GPU. Other processes' memory, and this one's context, is neither free nor reserved."""
    stats = cuda.memory_stats(gpu)
    free, _ = cuda.mem_get_info(gpu)
    peak = int(cuda.max_memory_reserved(gpu))
    return MemoryUse(
        peak,
        int(free) + int(cuda.memory_reserved(gpu)),
        True,
        int(stats.get("num_alloc_retries", 0)),
        int(stats.get("num_ooms", 0)),
    )


def _of_host() -> MemoryUse:
    """Resident memory against what the machine or the control group can give; or, where the address space is limited
    to less than that, what is mapped of it."""
    own = _status(PROC / "self" / "status")
    children = sum(proportional_bytes(pid) for pid in descendants(os.getpid()))
    peak = own.get("VmHWM", 0) + children
    capacity = (memory_available() or 0) + own.get("VmRSS", 0) + children
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < capacity:
        return MemoryUse(own.get("VmPeak"), limit, False)
    return MemoryUse(peak or None, capacity if peak else None, False)


def _status(path: Path) -> dict[str, int]:
    """The sizes in a process's status, bytes."""
    found = {}
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in ("VmPeak", "VmHWM", "VmRSS"):
                found[name] = 1024 * int(rest.split()[0])
    return found
