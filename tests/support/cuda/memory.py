"""A device's memory, and torch's caching allocator on it, without splitting blocks."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Any

import torch

from .clock import US

if TYPE_CHECKING:
    from .gpu import Gpu

ROUNDED_TO = 512
MALLOC_NS = 100 * US


class Block:
    """Memory of one tensor's storage; it goes to the cache with that."""

    __slots__ = ("memory", "nbytes")

    def __init__(self, memory: Memory, nbytes: int) -> None:
        self.memory = memory
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.memory.give_back(self.nbytes)


class Memory:
    """Bytes that this process holds on a device: its context, its tensors, and what the allocator keeps."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._cached: list[int] = []
        self.allocated = self.peak = 0
        self.retries = 0
        self.ooms = 0
        self.mallocs = 0

    @property
    def reserved(self) -> int:
        return self.allocated + sum(self._cached)

    @property
    def used(self) -> int:
        """What the driver says is in use, by anybody."""
        spec = self._gpu.spec
        return spec.used_by_others + (spec.context_bytes if self._gpu.has_context else 0) + self.reserved

    @property
    def free(self) -> int:
        return self._gpu.spec.memory_bytes - self.used

    def take(self, nbytes: int) -> Block:
        """A block for a tensor.

        Where the device has no room the allocator waits for the device, gives back what it keeps, and counts a retry;
        where that does not help it raises `torch.OutOfMemoryError` and counts that (c10/cuda/CUDACachingAllocator.cpp,
        `malloc`: `num_alloc_retries`, `num_ooms`).
        """
        gpu = self._gpu
        gpu.touch()
        nbytes = -(-nbytes // ROUNDED_TO) * ROUNDED_TO
        fitting = bisect_left(self._cached, nbytes)
        if fitting < len(self._cached) and self._cached[fitting] <= 2 * nbytes:
            nbytes = self._cached.pop(fitting)
        else:
            if nbytes > self.free and self._cached:
                self.retries += 1
                gpu.clock.wait_until(gpu.empty_ns())
                self._cached.clear()
            if nbytes > self.free:
                self.ooms += 1
                raise torch.OutOfMemoryError(
                    f"CUDA out of memory. Tried to allocate {nbytes / 2**20:.2f} MiB. GPU {gpu.index} has a total "
                    f"capacity of {gpu.spec.memory_bytes / 2**20:.2f} MiB of which {self.free / 2**20:.2f} MiB is free."
                )
            self.mallocs += 1
            gpu.clock.pass_ns(MALLOC_NS)
        self.allocated += nbytes
        self.peak = max(self.peak, self.allocated)
        return Block(self, nbytes)

    def give_back(self, nbytes: int) -> None:
        self.allocated -= nbytes
        insort(self._cached, nbytes)

    def empty_cache(self) -> None:
        self._cached.clear()

    def statistics(self) -> dict[str, Any]:
        """As `torch._C._cuda_memoryStats` nests them."""

        def figures(current: int, peak: int) -> dict[str, Any]:
            return {"all": {"current": current, "peak": peak, "allocated": 0, "freed": 0}}

        return {
            "num_alloc_retries": self.retries,
            "num_ooms": self.ooms,
            "num_device_alloc": self.mallocs,
            "allocated_bytes": figures(self.allocated, self.peak),
            "reserved_bytes": figures(self.reserved, self.reserved),
        }
