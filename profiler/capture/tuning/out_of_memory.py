"""Whether something failed for want of memory: of the device, of the machine, or of /dev/shm."""

from __future__ import annotations

import errno

import torch

_SIGNS = (
    "out of memory",
    "cannot allocate memory",
    "can't allocate memory",
    "defaultcpuallocator: not enough memory",
    "unable to mmap",
    "unable to allocate shared memory",
    "no space left on device",
    "shared memory",
    "bus error",
    "signal: killed",
    "sigkill",
    "sigbus",
    "memoryerror",
)


def is_out_of_memory(error: BaseException, said: str = "") -> bool:
    """`said`: what else is known about it."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    if isinstance(error, OSError) and error.errno in (errno.ENOMEM, errno.ENOSPC):
        return True
    text = f"{type(error).__name__} {error} {said}".lower()
    return any(sign in text for sign in _SIGNS)
