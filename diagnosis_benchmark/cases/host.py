"""What else goes on in the training process: garbage collections, and threads that run Python."""

from __future__ import annotations

import gc
import io
import sys
import threading
import time
from collections.abc import Callable

from .case import GARBAGE, PlannedHost

RELEASE_S = 0.0001
"""Long enough for another thread to take the lock."""


class HostWork:
    """Beside one training. `stamp` is told of each collection: what, begin, end, tag."""

    def __init__(self, plan: PlannedHost, stamp: Callable[[str, int, int, str], None]) -> None:
        self._plan = plan
        self._stamp = stamp
        self._objects: list[list[None]] = [[] for _ in range(plan.objects)]
        self._owed_ns = 0.0
        self._since_ns = 0
        self._took_ns = self._collect() if plan.collecting else 0
        sys.setswitchinterval(plan.switch_ms / 1e3)
        self._over = threading.Event()
        self._threads = [
            threading.Thread(target=_run_python, args=(self._over,), daemon=True) for _ in range(plan.threads)
        ]
        for thread in self._threads:
            thread.start()

    def step(self) -> None:
        """After a step: what the loop has to do, and collections when they are due."""
        self.let_go(self._plan.releases)
        share = self._plan.collecting
        if not share:
            return
        now = time.monotonic_ns()
        self._owed_ns += (now - self._since_ns) * share / (1 - share) if self._since_ns else 0
        while self._owed_ns >= self._took_ns / 2:
            begin = time.monotonic_ns()
            self._took_ns = self._collect()
            self._stamp("host", begin, time.monotonic_ns(), GARBAGE)
            self._owed_ns -= self._took_ns
        self._since_ns = time.monotonic_ns()

    def let_go(self, times: int) -> None:
        """Short waits without the interpreter's lock: with another thread at work it takes a while to get it back."""
        for _ in range(times):
            time.sleep(RELEASE_S)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _collect(self) -> int:
        begin = time.monotonic_ns()
        gc.collect()
        return time.monotonic_ns() - begin


def _run_python(over: threading.Event) -> None:
    while not over.is_set():
        sum(range(10_000))


class SlowFile(io.BytesIO):
    """Somewhere to write a checkpoint to that takes its time."""

    def __init__(self, ms: float) -> None:
        super().__init__()
        self._ms = ms

    def write(self, content: object) -> int:
        waits, self._ms = self._ms, 0.0
        if waits:
            time.sleep(waits / 1e3)
        return super().write(content)  # type: ignore[arg-type]
