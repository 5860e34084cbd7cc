"""What a batch takes, and what there is room for."""

from __future__ import annotations

import contextlib
import os
import resource
from typing import Any

import numpy as np
import torch

from ..memory_limits import memory_available
from .parts import bytes_of_array, fields_of, parts_of
from .tensors import device_of, has_plain_memory, shape_of

MEMORY_SHARE = 0.1
"""Of the memory that is available, for the batches of a stretch."""
SHM_SHARE = 0.5
FILES_SHARE = 0.25
"""Of the file descriptors left: each tensor that comes from a worker may hold one."""
MOST_PARTS = 20_000
"""Parts of a batch that are weighed."""


class Weight:
    """What one batch takes."""

    __slots__ = ("nbytes", "on_device", "tensors")

    def __init__(self) -> None:
        self.nbytes = 0
        self.tensors = 0
        self.on_device = False


def weigh(batch: Any) -> Weight | None:
    """Bytes and tensors in a batch, nested as it may be; `None` where nothing in it has a size, or it has no end."""
    weight = Weight()
    parts = [batch]
    seen: set[int] = set()
    while parts:
        part = parts.pop()
        if isinstance(part, torch.Tensor):
            weight.tensors += 1
            weight.on_device |= device_of(part) != "cpu"
            if has_plain_memory(part):
                weight.nbytes += shape_of(part)[2]
        elif isinstance(part, str | bytes | bytearray):
            weight.nbytes += len(part)
        elif part is None or isinstance(part, int | float | complex | type) or id(part) in seen:
            continue
        elif isinstance(part, np.ndarray):
            weight.nbytes += bytes_of_array(part)
        else:
            seen.add(id(part))
            inside = parts_of(part, MOST_PARTS + 1)
            parts += fields_of(part).values() if inside is None else inside
        if len(seen) + weight.tensors + len(parts) > MOST_PARTS:
            return None
    return weight if weight.nbytes else None


class Room:
    """What the batches of a stretch may take."""

    def __init__(self, nbytes: float, files: float) -> None:
        self._nbytes = nbytes
        self._files = files

    @classmethod
    def now(cls, iterator: Any) -> Room:
        nbytes = MEMORY_SHARE * (memory_available() or 0)
        files = float("inf")
        pinned = bool(getattr(iterator, "_pin_memory", False))
        if getattr(iterator, "_num_workers", 0) and not pinned:
            with contextlib.suppress(OSError):
                shm = os.statvfs("/dev/shm")
                nbytes = min(nbytes, SHM_SHARE * shm.f_bavail * shm.f_frsize)
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            if limit != resource.RLIM_INFINITY:
                files = FILES_SHARE * (limit - len(os.listdir("/proc/self/fd")))
        return cls(nbytes, files)

    def for_batches(self, nbytes: float, tensors: int) -> int:
        return int(min(10**9, self._nbytes / max(1.0, nbytes), self._files / max(1, tensors)))
