"""What is said of settings that do not work, and whether they failed for want of memory."""

from __future__ import annotations

import errno

import torch

from ...errors import WhyidleError
from ...record.memory_signs import WITHOUT_MEMORY


def is_out_of_memory(error: BaseException, said: str = "") -> bool:
    """Whether it failed for want of memory: of the device, of the machine, or of /dev/shm. `said`: what else is known
    about it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.ENOSPC):
        return True
    return WITHOUT_MEMORY.search(f"{type(error).__name__} {error} {said}") is not None


def sentence(error: BaseException) -> str:
    """What went wrong, in one line: of an error from a worker what it was there."""
    if isinstance(error, WhyidleError):
        return str(error)
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and "Traceback" in str(error):
        return lines[-1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
