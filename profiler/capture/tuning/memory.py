"""What memory a training takes, and how much there is for it."""

from __future__ import annotations

import contextlib
import os
import resource
import sys
from typing import Any

from ...devices.emulated import EmulatedDevice
from ...devices.protocol import Device
from ...record.tuning import MemoryUse
from ..memory_limits import memory_available
from .processes import PROC, descendants, proportional_bytes


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
