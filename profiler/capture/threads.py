"""What the other Python threads of the training process have used of the CPU.

Whoever holds the interpreter's lock runs, as a rule: threads that use no CPU keep nobody waiting for it. The kernel
keeps a clock for each thread, which any thread of the process may read by the thread's number.
"""

from __future__ import annotations

import sys
import threading
import time
from itertools import islice

MOST_THREADS = 256
"""Threads looked at each time."""
PINNING, FEEDING = "_pin_memory_loop", "QueueFeederThread"
"""The function that DataLoader's pinning thread runs, and the name of the thread behind a queue of multiprocessing:
what they do is handing batches over, and waiting for them is waiting for data."""


class PythonThreads:
    """Adds up the CPU time of all Python threads but the one that trains, and those that hand over batches.

    Linux; elsewhere nothing is known.

    A thread that ended keeps what it had used at the last look. What begins and ends between two looks is not seen.
    """

    def __init__(self) -> None:
        self._used: dict[int, int] = {}
        """CPU time at the last look, by the kernel's number of the thread."""
        self._trains = 0
        self._total_ns = 0
        self.measured = sys.platform == "linux"
        self.any = False
        """Whether there ever was another thread."""

    def look(self, trains: int = 0) -> int:
        """CPU time so far, ns. `trains`: the kernel's number of the training thread, by default the last one told."""
        self._trains = trains = trains or self._trains or threading.get_native_id()
        before, self._used = self._used, {}
        for thread in islice(list(threading._active.values()), MOST_THREADS):  # type: ignore[attr-defined]
            number = thread.native_id
            # What Python did not start has a stand-in, made when it first ran Python.
            if number is None or isinstance(thread, threading._DummyThread) or _hands_over(thread):
                continue
            try:
                used = time.clock_gettime_ns(_clock_of(number))
            except OSError:
                continue  # it has ended since
            self._used[number] = used
            if number != trains:
                self.any = True
                grown = used - before.get(number, 0)
                # Less than before: another thread was given the number of one that ended.
                self._total_ns += grown if grown >= 0 else used
        return self._total_ns


def _hands_over(thread: threading.Thread) -> bool:
    target = getattr(thread, "_target", None)  # gone when it has ended
    return thread.name == FEEDING or getattr(target, "__name__", None) == PINNING


def _clock_of(number: int) -> int:
    """The kernel's clock of the CPU time of a thread, which is an error to read once that has ended."""
    per_thread, scheduled = 4, 2
    return (~number << 3) | per_thread | scheduled
