"""Whether something failed for want of memory: of the device, of the machine, or of /dev/shm."""

from __future__ import annotations

import errno

import torch

from ...record.memory_signs import WITHOUT_MEMORY


def is_out_of_memory(error: BaseException, said: str = "") -> bool:
    """`said`: what else is known about it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.ENOSPC):
        return True
    return WITHOUT_MEMORY.search(f"{type(error).__name__} {error} {said}") is not None
