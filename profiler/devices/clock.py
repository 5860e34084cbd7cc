"""The clock everything is stamped with, and a virtual one for exact tests."""

from __future__ import annotations

import time

SPIN_NS = 60_000
"""Sleeping overshoots by 50 to 100 µs; the last stretch of a wait is spun instead."""


class Clock:
    """CLOCK_MONOTONIC; waits sleep, then spin for the last few tens of microseconds."""

    def now(self) -> int:
        """Tell the time, ns."""
        return time.monotonic_ns()

    def wait_until(self, moment_ns: int) -> None:
        """Block the calling thread until the clock shows at least `moment_ns`."""
        left = moment_ns - time.monotonic_ns()
        if left > SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)
        while time.monotonic_ns() < moment_ns:
            pass


class VirtualClock(Clock):
    """Time that passes only when told to; instant and exact."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now = start_ns

    def now(self) -> int:
        return self._now

    def wait_until(self, moment_ns: int) -> None:
        self._now = max(self._now, moment_ns)

    def advance(self, ns: int) -> None:
        """Let host time pass: work of the training thread."""
        if ns < 0:
            raise ValueError(f"time cannot pass backwards: {ns} ns")
        self._now += ns
