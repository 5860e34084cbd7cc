"""How a step computes on the emulated device: kernel by kernel, longer for shapes it has not seen, short of memory."""

from __future__ import annotations

from collections.abc import Callable

from whyidle.devices.emulated import EmulatedDevice

from .case import LAUNCH, RETRY, PlannedDevice
from .samples import burn_ms

MEMORY = 9 * 10**9
GROWTH = 10**7
"""Bytes that a step needs which must find no block that is large enough: more than any before."""


class Computing:
    """The computation of one training's steps. `stamp` is told what costs the host time: what, begin, end, tag."""

    def __init__(
        self, device: EmulatedDevice, plan: PlannedDevice, stamp: Callable[[str, int, int, str], None]
    ) -> None:
        self._device = device
        self._plan = plan
        self._stamp = stamp
        self._seen: set[tuple[int, ...]] = set()
        self._done = 0
        self._needs = MEMORY

    def begin(self, shape: tuple[int, ...]) -> None:
        """A step begins whose batch has this shape: memory, and what only the first of its shape needs."""
        self._allocate()
        if self._plan.first_ms and shape not in self._seen:
            self._first_of(shape)
        self._done += 1

    def part(self, ms: float, kernels: int) -> None:
        """Queue a part of a step's computation."""
        if not self._plan.launch_us:
            self._device.compute(round(ms * 1e6), kernels=kernels)
            return
        now = self._device.now
        begin = now()
        for _ in range(kernels):
            burn_ms(self._plan.launch_us / 1e3)
            self._device.compute(round(ms * 1e6 / kernels))
        self._stamp("host", begin, now(), LAUNCH)

    def _allocate(self) -> None:
        every = self._plan.retry_every
        if not every:
            return
        begin = self._device.now()
        if self._done >= self._plan.retry_from and self._done % every == every - 1:
            self._needs += GROWTH
        self._device.allocate(self._needs)
        self._stamp("host", begin, self._device.now(), RETRY)

    def _first_of(self, shape: tuple[int, ...]) -> None:
        """Trying out algorithms, say."""
        self._seen.add(shape)
        begin = self._device.record().time_ns()
        self._device.compute(round(self._plan.first_ms * 1e6))
        self._stamp("lost", begin, begin + round(self._plan.first_ms * 1e6), "")
