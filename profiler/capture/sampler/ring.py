"""What the driver counts, made usable: its ring of utilisation samples, and counters that wrap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

LONGEST_PERIOD_US = 1_000_000
"""NVML's utilisation period is between 1/6 s and 1 s. A longer gap means that samples were lost in between."""


@dataclass(frozen=True, slots=True)
class UtilisationWindow:
    """One sample of the driver's ring, in microseconds of the driver's clock."""

    end_us: int
    length_us: int | None
    """Since the previous sample; `None` where there is none, or samples between were lost."""
    percent: float


class UtilisationRing:
    """Sorts out what draining the ring returns.

    A drain returns samples again that an earlier one returned, in no promised order, and now and then one from
    the future or above 100 %; those are left out. So are samples from before the recording.
    """

    def __init__(self) -> None:
        self.last_us = 0
        """Stamp of the newest sample seen: what the next drain asks for."""

    def take(self, samples: Iterable[tuple[int, float]], start_us: int, now_us: int) -> list[UtilisationWindow]:
        """The new windows among `(stamp, percent)` samples, oldest first.

        Args:
            start_us: of the recording, and `now_us`, both on the driver's clock.
        """
        windows = []
        for stamp, percent in sorted(set(samples)):
            if not (self.last_us < stamp <= now_us and 0 <= percent <= 100):
                continue
            gap = stamp - self.last_us
            if stamp > start_us:
                length = gap if self.last_us and gap <= LONGEST_PERIOD_US else None
                windows.append(UtilisationWindow(stamp, length, percent))
            self.last_us = stamp
        return windows


class WrappingCounter:
    """A counter of limited width, continued past its wraps.

    Bytes beyond one wrap between two readings are lost: 4.3 GB for a counter of 32 bits.
    """

    def __init__(self) -> None:
        self._last: int | None = None
        self._total = 0

    def read(self, value: int, bits: int) -> int:
        """The cumulative value; starts with the first reading."""
        if self._last is None:
            self._total = value
        else:
            # Drivers hand 32-bit counters out as 64-bit values, too: those never reach 2^32 before they fall.
            if value < self._last < 2**32:
                bits = min(bits, 32)
            self._total += (value - self._last) % 2**bits
        self._last = value
        return self._total


@dataclass(frozen=True, slots=True)
class ClockPair:
    """A clock that a driver may stamp with and the monotonic clock, read together."""

    driver_us: int
    monotonic_ns: int

    def monotonic(self, driver_us: int) -> int:
        """A stamp of the driver's on the monotonic clock."""
        return self.monotonic_ns + (driver_us - self.driver_us) * 1000

    def driver(self, monotonic_ns: int) -> int:
        """A moment of the monotonic clock as the driver would stamp it."""
        return self.driver_us + (monotonic_ns - self.monotonic_ns) // 1000


def clock_of(newest_us: int, clocks: Iterable[ClockPair]) -> ClockPair:
    """The clock that the driver's newest stamp lies nearest to.

    NVML's text says that stamps are microseconds of the CPU; drivers have been seen to count from the epoch, and the
    kernel offers them a clock that counts from the boot as well.
    """
    return min(clocks, key=lambda clock: abs(newest_us - clock.driver_us))
