"""The host's clock of a machine: it passes when the program works, when it waits, and a little with every call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any

US = 1_000
MS = 1_000_000
S = 1_000_000_000

LOOK_NS = 50
"""What a look at the clock takes: who looks again and again until a moment has come gets there."""
REAL: dict[str, Callable[..., Any]] = {name: getattr(time, name) for name in ("monotonic_ns", "monotonic", "sleep")}


class HostClock:
    """One for all threads, moved by the thread that made it; others see where it stands."""

    def __init__(self) -> None:
        self.now_ns = self.began_ns = 10**15
        self.thread, self._process = get_ident(), os.getpid()
        self.slept = 0

    @property
    def forked(self) -> bool:
        """Whether this is a child of the process it was made in."""
        return os.getpid() != self._process

    def pass_ns(self, ns: int) -> None:
        assert ns >= 0, f"time cannot pass backwards: {ns} ns"
        self.now_ns += ns

    def wait_until(self, moment_ns: int) -> None:
        self.now_ns = max(self.now_ns, moment_ns)

    def monotonic_ns(self) -> int:
        if get_ident() == self.thread:
            self.now_ns += LOOK_NS
        return self.now_ns

    def monotonic(self) -> float:
        return self.monotonic_ns() / 1e9

    def sleep(self, seconds: float) -> None:
        if get_ident() != self.thread:
            REAL["sleep"](seconds)
            return
        self.slept += 1
        self.now_ns += round(seconds * 1e9)


_installed: HostClock | None = None
"""What the functions below tell of, those too that were taken by name: `None`, the real one."""


def _of_installed(name: str) -> Callable[..., Any]:
    return lambda *given: (REAL[name] if _installed is None else getattr(_installed, name))(*given)


VIRTUAL = {name: _of_installed(name) for name in REAL}
"""What stands in the place of the functions of `time` while a clock is installed."""
