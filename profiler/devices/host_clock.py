"""The device's clock told on the host's: a continuous map, tied down by brackets.

A bracket is a moment of the device between two stamps of the host. It tells where the host's clock stands and, with
others, how fast the device's runs. Where no bracket succeeds the map goes on at the last known rate, and knows how far
it may be off.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

RESOLUTION_NS = 500
"""Of an event's stamp, as CUDA documents it."""
ASSUMED_DRIFT = 20e-6
"""How far the device's rate may be from the host's where it has not been measured: two ordinary crystals."""
ASSUMED_WANDER = 1e-6
"""How far a measured rate may move afterwards: temperature, and the host's clock being steered."""
MOST_DRIFT = 1e-3
"""No two clocks differ by that much; one of them was set, or stood still."""
BRACKETS = 12
"""The rate is fitted to so many of the last brackets: a minute."""
BENDS = 64
"""Bends of the map that are kept: events may be read minutes after the device passed them."""
CORRECTION_NS = 250_000_000
"""What a bracket finds wrong is put right over this stretch, at the least, so that no stamp overtakes another."""


@dataclass(frozen=True, slots=True)
class _Bracket:
    """The host's clock stood within `half_ns` of `host_ns` when the device's stood at `device_ns`."""

    device_ns: int
    host_ns: int
    half_ns: int


class HostClock:
    """The host's clock as a function of the device's: continuous, always rising, bent where a bracket corrects it.

    A stamp of long ago is told by the stretch it lies in, so it does not change when a bracket succeeds later.
    """

    def __init__(self, device_ns: int, host_ns: int, half_ns: int) -> None:
        self._brackets = deque([_Bracket(device_ns, host_ns, max(half_ns, RESOLUTION_NS))], BRACKETS)
        """Those that told more than was known without them."""
        self._stretches: deque[tuple[int, int, float]] = deque([(device_ns, host_ns, 0.0)], BENDS)
        """(device's clock where it begins, host's clock there, how much faster than the device's the host's runs)"""
        self._rate = 0.0
        self._rate_doubt = ASSUMED_DRIFT
        self._tied_ns, self._tied_host_ns = device_ns, host_ns
        """Where the last bracket was."""
        self._half_ns = max(half_ns, RESOLUTION_NS)
        """How well the host's clock was known there."""
        self._wrong_ns = 0
        """What that bracket found wrong, and over which stretch it is put right."""
        self._righted_ns = CORRECTION_NS
        self._worst_ns = 0

    def host_ns(self, device_ns: int) -> int:
        # An event from before the oldest stretch is told by that one.
        begin, host, rate = next((s for s in reversed(self._stretches) if s[0] <= device_ns), self._stretches[0])
        since = device_ns - begin
        return host + since + round(since * rate)

    def bracket(self, device_ns: int, host_ns: int, half_ns: int) -> None:
        """At `device_ns` the host's clock stood within `half_ns` of `host_ns`."""
        half_ns = max(half_ns, RESOLUTION_NS)
        expected, doubt = self.host_ns(device_ns), self._doubt_ns(device_ns - self._tied_ns)
        if half_ns > doubt and abs(host_ns - expected) <= half_ns:
            return  # a wide bracket tells nothing that was not known better
        # The truth is within the bracket and within the doubt.
        low, high = max(host_ns - half_ns, expected - doubt), min(host_ns + half_ns, expected + doubt)
        self._brackets.append(_Bracket(device_ns, host_ns, half_ns))
        if low > high:
            low, high = host_ns - half_ns, host_ns + half_ns
            # Drift was not what it was taken to be: what came before tells nothing of the rate from here on.
            self._brackets = deque([*self._brackets][-2:], BRACKETS)
        # How far stamps since the last bracket were off, now that it can be seen.
        self._worst_ns = max(self._worst_ns, self._half_ns, abs(low - expected), abs(high - expected))
        self._fit_rate()
        self._tied_ns, self._tied_host_ns = device_ns, host_ns
        self._half_ns = max((high - low) // 2, RESOLUTION_NS)
        self._wrong_ns = (low + high) // 2 - expected
        self._righted_ns = max(CORRECTION_NS, 4 * abs(self._wrong_ns))
        while self._stretches and self._stretches[-1][0] >= device_ns:
            self._stretches.pop()
        self._stretches.append((device_ns, expected, self._rate + self._wrong_ns / self._righted_ns))
        end = device_ns + self._righted_ns
        self._stretches.append((end, self.host_ns(end), self._rate))

    def uncertainty_ns(self, host_ns: int) -> int:
        """How far any stamp so far may be off, if the host's clock stands at `host_ns` now."""
        return max(self._worst_ns, self._doubt_ns(host_ns - self._tied_host_ns))

    def _doubt_ns(self, age_ns: int) -> int:
        """How far a stamp may be off, so long after the last bracket."""
        age = max(0, age_ns)
        to_right = abs(self._wrong_ns) * max(0.0, 1 - age / self._righted_ns)
        return self._half_ns + round(age * self._rate_doubt + to_right)

    def _fit_rate(self) -> None:
        """A line through the last brackets, narrow ones counting more; kept if it tells more than is assumed anyway.

        Its error is bounded by every bracket being off by its half, each in the direction that tilts the line most.
        """
        last = self._brackets[-1]
        points = [
            (b.device_ns - last.device_ns, (b.host_ns - last.host_ns) - (b.device_ns - last.device_ns), b.half_ns)
            for b in self._brackets
        ]
        total = sum(1 / half**2 for *_, half in points)
        middle = sum(at / half**2 for at, _, half in points) / total
        spread = sum((at - middle) ** 2 / half**2 for at, _, half in points)
        if spread == 0:
            return
        leverage = [(at - middle) / half**2 / spread for at, _, half in points]
        rate = sum(c * ahead for c, (_, ahead, _) in zip(leverage, points, strict=True))
        doubt = sum(abs(c) * half for c, (_, _, half) in zip(leverage, points, strict=True)) + ASSUMED_WANDER
        if abs(rate) > MOST_DRIFT + doubt:
            self._brackets = deque([last], BRACKETS)
            self._rate, self._rate_doubt = 0.0, ASSUMED_DRIFT
        elif doubt < ASSUMED_DRIFT:
            self._rate, self._rate_doubt = rate, doubt
