"""Memory of batches that a process shares with its workers, used again and again.

Fresh shared memory costs a page fault for every 4 kB and the zeroing of each page, on either side of a hand-over; here
both are paid once. Nothing is copied between processes, and no file descriptor is sent.
"""

from __future__ import annotations

import math
import mmap
import os
import weakref
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np
import numpy.typing as npt

_APART = 1 << 36
"""Bytes from one slot's begin to the next one's: more than any batch has. Only what is written to takes memory."""


class Ring:
    """Slots for batches. Whoever makes it takes and lends them; workers that were given it write into them.

    Works across fork and, pickled while a process is started, across spawn.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("whyidle-batches")
        self._memory: dict[int, mmap.mmap] = {}
        self._free: list[int] = []
        self._out: set[int] = set()
        """Taken, and neither lent nor given back."""
        self._slots = 0

    def take(self) -> int:
        """A slot that nobody uses; one more where all are used."""
        try:
            slot = self._free.pop()  # the last one may still lie in a cache
        except IndexError:
            slot = self._slots
            self._slots += 1
            os.ftruncate(self._file, self._slots * _APART)
        self._out.add(slot)
        return slot

    def array(self, slot: int, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """What lies in a slot, in any process that has the ring."""
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        if slot not in self._memory or len(self._memory[slot]) < size:
            self._memory[slot] = mmap.mmap(self._file, size, offset=slot * _APART)
        return np.ndarray(shape, dtype, buffer=self._memory[slot])

    def lend(self, slot: int, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """The same, of a slot that was taken: free again when the last tensor made of this is gone."""
        self._out.discard(slot)
        lent = self.array(slot, shape, dtype)
        weakref.finalize(lent, self._free.append, slot).atexit = False
        return lent

    def take_back(self) -> None:
        """Slots that were taken and never lent are free; no worker may write into them any more."""
        self._free.extend(self._out)
        self._out.clear()

    def close(self) -> None:
        """No more slots. What is lent stays readable."""
        self._memory.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __getstate__(self) -> dict[str, Any]:
        return {"file": DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._file = state["file"].detach()
        self._memory, self._free, self._out, self._slots = {}, [], set(), 0
