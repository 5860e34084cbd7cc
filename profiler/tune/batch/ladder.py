"""The largest batch that fits: a search over sizes that are each tried in a process of their own.

Doubling shows how memory grows with the batch; a line through that says how far to jump; what the jump says is tried
too, and halved towards what is known to fit where it fails. Only sizes that were run are ever returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from .batch_choice import memory_line

CLIMBS = 3
"""Sizes tried before the line is trusted to jump: the current one, twice and four times it."""
JUMP = 0.9
"""Of what the line says fits."""
BISECTIONS = 2
JUMPS = 2
"""The second where memory is no straight line, so that the first could not go far."""
HALVINGS = 6
MOST_TIMES = 64
"""Of the current size: where memory is not what limits, larger ones are of no use to anyone."""
MARGIN = 0.05
"""Of all memory, that stays free."""
DEVICE_MARGIN = 512 << 20
"""At least so many bytes of it where a device's own memory is what runs out: fragments, libraries' workspaces."""
WORTH_A_PROCESS = 1.1
"""A size that is less than so many times the largest known to fit is not worth a process."""
LEAST_STEPS = 3
"""Of the optimizer: its own state is there from the second one on."""


class ProbeOutcome:
    """Of a probe."""

    OK = "ok"
    OOM = "oom"
    FAILED = "failed"
    LATE = "late"
    """Too few steps were made in its time: nothing is known of its memory."""


@dataclass(frozen=True)
class Probe:
    """What became of training with one batch size for a few steps, in a process of its own."""

    outcome: str
    """A value of `ProbeOutcome`."""
    steps: int = 0
    """Of the optimizer, that were done."""
    peak_bytes: int | None = None
    """Most memory that it took, of the memory that runs out first."""
    capacity_bytes: int | None = None
    """How much of that there is for it."""
    on_device: bool = False
    """Whether it is a device's own memory."""
    retries: int = 0
    """How often the allocator had to free its caches: it does so again and again in a long training."""
    why: str | None = None
    """What it ended with, where that is not `ok`."""
    seconds: float = 0.0

    @property
    def margin_bytes(self) -> int | None:
        if self.capacity_bytes is None:
            return None
        margin = round(MARGIN * self.capacity_bytes)
        return max(margin, DEVICE_MARGIN) if self.on_device else margin

    @property
    def fits(self) -> bool:
        """Ran to its end, without the allocator's emergencies, with room to spare."""
        if self.outcome != ProbeOutcome.OK or self.retries:
            return False
        if self.peak_bytes is None or self.capacity_bytes is None or self.margin_bytes is None:
            return True
        return self.peak_bytes + self.margin_bytes <= self.capacity_bytes

    @property
    def is_told(self) -> bool:
        """Whether it says anything of what fits."""
        return self.outcome != ProbeOutcome.LATE

    @property
    def reason(self) -> str:
        """Why it does not fit."""
        if self.outcome != ProbeOutcome.OK:
            return self.why or self.outcome
        if self.retries:
            return f"the allocator had to free its caches {self.retries} times in {self.steps} steps"
        if self.peak_bytes is None or self.capacity_bytes is None or self.margin_bytes is None:
            return "fits"
        return (
            f"it used {self.peak_bytes / 1e9:.2f} of {self.capacity_bytes / 1e9:.2f} GB and left less than the margin "
            f"of {self.margin_bytes / 1e9:.2f} GB"
        )


class Try(Protocol):
    def __call__(self, batch_size: int, seconds: float, /) -> Probe:
        """Train with this size in a new process, for at most so many seconds."""
        ...


@dataclass(frozen=True)
class Ladder:
    """What was tried, and what it came to."""

    b_max: int | None
    """The largest that fits; `None`: none does."""
    probes: dict[int, Probe] = field(default_factory=dict)
    bounded_by: str = ""
    """What kept it from being larger, a clause."""

    @property
    def memory(self) -> dict[int, int]:
        return {size: p.peak_bytes for size, p in sorted(self.probes.items()) if p.peak_bytes and p.steps}

    @property
    def failed(self) -> dict[int, str]:
        """Sizes that do not fit, and why."""
        return {size: p.reason for size, p in sorted(self.probes.items()) if p.is_told and not p.fits}


def climb(
    probe: Try,
    first: int,
    budget_s: float,
    *,
    dataset_samples: int | None = None,
    most: int | None = None,
    now: Callable[[], float] = time.monotonic,
    say: Callable[[str], object] = lambda _: None,
) -> Ladder:
    """The largest batch that fits.

    Args:
        probe: tries a size.
        first: the size that the program trains with.
        budget_s: no probe is begun that would not end within it, as far as the last one tells.
        dataset_samples: a pass over the data must have steps enough for a probe.
        most: a limit that is asked for.
        now: seconds, of a clock that only goes forward.
    """
    return _Climb(probe, first, budget_s, dataset_samples, most, now, say).climb()


class _Climb:
    def __init__(
        self,
        probe: Try,
        first: int,
        budget_s: float,
        dataset_samples: int | None,
        most: int | None,
        now: Callable[[], float],
        say: Callable[[str], object],
    ) -> None:
        self._probe = probe
        self._first = first
        self._now = now
        self._say = say
        self._until = now() + budget_s
        limits = [(MOST_TIMES * first, f"larger sizes than {MOST_TIMES}× the program's own are not tried")]
        if dataset_samples is not None:
            of_data = max(first, dataset_samples // LEAST_STEPS)
            limits.append((of_data, f"a pass over {dataset_samples} samples must have {LEAST_STEPS} steps"))
        if most is not None:
            limits.append((most, "no larger size was asked for"))
        self._cap, self._cap_reason = min(limits)
        self._probes: dict[int, Probe] = {}
        self._spent = False

    def climb(self) -> Ladder:
        size = min(self._first, self._cap)
        if not self._try(size):
            self._descend(size)
        for step in range(1, CLIMBS):
            if self._low and not self._high:
                self._try(min(self._cap, size << step))
        for _ in range(JUMPS):
            target = self._jump()
            if target is None or not self._try(target):
                break
        for _ in range(BISECTIONS):
            target = self._between()
            if target is None or self._spent:
                break
            self._try(target)
        return Ladder(self._low or None, dict(self._probes), self._bounded_by())

    @property
    def _low(self) -> int:
        """The largest size that fits, 0: none so far."""
        return max((size for size, p in self._probes.items() if p.fits), default=0)

    @property
    def _high(self) -> int:
        """The smallest above it that does not, 0: none so far."""
        told = (size for size, p in self._probes.items() if p.is_told and not p.fits and size > self._low)
        return min(told, default=0)

    def _try(self, size: int) -> bool:
        """Whether it fits; false too where no time is left to try."""
        if size in self._probes:
            return self._probes[size].fits
        left = self._until - self._now()
        if self._spent or left <= 0 or (self._probes and list(self._probes.values())[-1].seconds > left):
            self._spent = True
            return False
        self._say(f"trying whether a batch of {size} fits")
        tried = self._probe(size, left)
        self._probes[size] = tried
        # A larger one would take longer.
        self._spent |= not tried.is_told
        return tried.fits

    def _descend(self, size: int) -> None:
        """The program's own size does not fit: halve it. What fails otherwise, fails at any size."""
        for _ in range(HALVINGS):
            if size == 1 or self._spent or self._probes[size].outcome == ProbeOutcome.FAILED:
                return
            size //= 2
            if self._try(size):
                return

    def _jump(self) -> int | None:
        """How far the line says to go, if it is worth it."""
        if not self._low or self._high or self._spent:
            return None
        ran = self._probes[self._low]
        line = memory_line(self._known())
        fits: int | None = None
        if line is not None and ran.capacity_bytes is not None and ran.margin_bytes is not None:
            fits = line.largest_within(ran.capacity_bytes)
            within = line.largest_within(ran.capacity_bytes - ran.margin_bytes)
            fits = None if fits is None or within is None else min(int(JUMP * fits), within)
        elif ran.capacity_bytes is None:
            # Nothing to draw a line to.
            fits = 2 * self._low
        target = self._cap if fits is None else min(self._cap, neat(fits))
        return target if target >= WORTH_A_PROCESS * self._low or self._low < target == self._cap else None

    def _between(self) -> int | None:
        """Where to try next between what fits and what does not."""
        low, high = self._low, self._high
        if not low or not high:
            return None
        middle = neat(self._by_memory(self._probes[low]) or (low + high) // 2)
        return middle if WORTH_A_PROCESS * low <= middle < high else None

    def _by_memory(self, fits: Probe) -> int | None:
        """Where the margin is met between two sizes that both ran."""
        known = self._known()
        low, high = self._low, self._high
        if low not in known or high not in known or fits.capacity_bytes is None or fits.margin_bytes is None:
            return None
        most = fits.capacity_bytes - fits.margin_bytes
        if not known[low] < most < known[high]:
            return None
        return low + int((high - low) * (most - known[low]) / (known[high] - known[low]))

    def _known(self) -> dict[int, int]:
        """Memory of the sizes that ran to their end undisturbed."""
        ran = {size: p for size, p in self._probes.items() if p.outcome == ProbeOutcome.OK and not p.retries}
        return {size: p.peak_bytes for size, p in ran.items() if p.peak_bytes}

    def _bounded_by(self) -> str:
        if self._high:
            return f"a batch of {self._high} does not fit ({self._probes[self._high].reason})"
        late = min((size for size, p in self._probes.items() if not p.is_told), default=0)
        if late:
            return f"a batch of {late} could not be decided ({self._probes[late].why})"
        if not self._low:
            return "no size fits" if self._probes else "there was no time to try one"
        if self._low == self._cap:
            return self._cap_reason
        return "the time for trials ran out" if self._spent else "memory would not hold much more"


def neat(size: int) -> int:
    """Rounded down to a number of few bits, for which kernels are made: 203 becomes 192, 1030 becomes 1024."""
    step = max(1, 1 << max(0, size.bit_length() - 4))
    return size // step * step
