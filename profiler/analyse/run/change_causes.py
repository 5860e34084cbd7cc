"""What else changed while a part of the steps rose: batches, other programs, clocks, what lay ready, epochs.

Each is compared between the first fifth of the run's steps and the last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, StepFlag
from ..shares import MOSTLY
from ..statistics import Values

if TYPE_CHECKING:
    from .facts import Facts

LARGER = 1.02
"""Elements of the last batches over those of the first, from which batches got larger."""
MORE_FOREIGN_CPUS = 0.5
"""CPUs that other programs take more than at the beginning, from which they may be why a step takes longer."""
NEARLY_FULL_PCT = 80.0
"""CPU time of the machine in use, in percent, below which other programs leave CPUs over."""
MORE_STEAL_PCT = 10.0
"""Points by which the hypervisor takes more of the machine's time than at the beginning."""
SLOWER_CLOCK = 0.97
"""The device's clock over that of the beginning, below which it is why computing takes longer."""
MAKING_GROWS = 1.05
"""Making a batch over what it took at the beginning, up to which it does not grow."""
NEAR_AN_EPOCH = 0.03
"""Share of the run's steps by which a jump may lie beside the begin of an epoch, to be one of epochs."""


class Surroundings:
    """Of one training process's run. `kept`: places of the steps that count, among those of the window."""

    def __init__(
        self, facts: Facts, batches: Records, device: Records, host: Records, kept: npt.NDArray[np.int64]
    ) -> None:
        self._facts = facts
        self._batches = batches
        self._device = device
        self._host = host[np.argsort(host["t_ns"], kind="stable")]
        self.kept = kept
        fifth = max(1, len(kept) // 5)
        steps = facts.window.steps
        first, last = steps[kept[:fifth]], steps[kept[-fifth:]]
        self._first = int(first["fetch_begin_ns"][0]), int(first["step_end_ns"][-1])
        self._last = int(last["fetch_begin_ns"][0]), int(last["step_end_ns"][-1])
        self._sizes = [_elements(part) for part in (first, last)]

    def explains(self, part: str) -> str:
        """Why a part may have risen, other than by growing; empty where nothing is known to."""
        one, other = self._sizes
        if one and other > LARGER * one:
            return "as batches get larger"
        foreign, busy = self._foreign()
        if foreign is not None and foreign > MORE_FOREIGN_CPUS and busy > NEARLY_FULL_PCT:
            return "as other programs take more CPU time"
        if self._more(self._host, "steal_pct") > MORE_STEAL_PCT:
            return "as the hypervisor takes more CPU time"
        if busy > NEARLY_FULL_PCT and self._queues_longer():
            return "as the training waits longer for a CPU"
        if part != "input" and self._clock() < SLOWER_CLOCK:
            return "as the device's clock falls"
        if part == "input" and not self._facts.made_in_training and not self._making_grows():
            return "while batches are made as fast as at the beginning"
        return ""

    def explains_jump(self, part: str, step: int) -> str:
        """The same of a part that jumps at a step, of which more has to be known."""
        steps = self._facts.window.steps
        begins = steps["step"][(steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
        near = NEAR_AN_EPOCH * float(steps["step"][-1] - steps["step"][0])
        if len(begins) and np.abs(begins - step).min() <= near:
            return "at the begin of an epoch"
        if part not in ("input", "host"):
            return "in a jump"
        return "in a jump, beside programs that were not seen" if self._foreign()[0] is None else ""

    def memory(self) -> tuple[float, float] | None:
        """Memory of the training's processes at the beginning and at the end, bytes; `None`: not known."""
        for name in ("tree_pss_bytes", "tree_rss_bytes"):
            one, other = (self._mean(self._host, name, when) for when in (self._first, self._last))
            if one is not None and other is not None:
                return one, other
        return None

    def _foreign(self) -> tuple[float | None, float]:
        """CPUs that other programs take more than at the beginning, `None` where that is not known, and the share of
        the machine's CPU time in use at the end, in percent."""
        cpus, found, busy = self._facts.machine_cpus, [], 0.0
        for when in (self._first, self._last):
            used = self._mean(self._host, "machine_busy_pct", when)
            mine = self._own_cpus(when)
            if used is None or mine is None or cpus is None:
                return None, 0.0
            busy = used
            found.append(used / 100 * cpus - mine)
        return found[1] - found[0], busy

    def _queues_longer(self) -> bool:
        """Whether most of what steps take more than at the beginning is the training's thread ready to run, while
        others run: on a machine that is full from the beginning, programs that come take no more of it, but turns."""
        shares = [self._rate("main_thread_queue_ns", when) for when in (self._first, self._last)]
        if shares[0] is None or shares[1] is None:
            return False
        # Both stretches have as many steps.
        one, other = (float(end - begin) for begin, end in (self._first, self._last))
        return other > one and shares[1] * other - shares[0] * one >= MOSTLY * (other - one)

    def _own_cpus(self, when: tuple[int, int]) -> float | None:
        return self._rate("tree_cpu_ns", when)

    def _rate(self, counter: str, when: tuple[int, int]) -> float | None:
        """How much a cumulative counter rises in a nanosecond of a stretch of time; `None` where that is not known."""
        times, used = self._host["t_ns"], self._host[counter]
        seen = (times >= when[0]) & (times <= when[1]) & (used != NOT_MEASURED)
        times, used = times[seen], used[seen]
        if len(times) < 2 or times[-1] <= times[0]:
            return None
        return float(used[-1] - used[0]) / float(times[-1] - times[0])

    def _clock(self) -> float:
        """The device's clock at the end over that at the beginning; 1 where that is not known."""
        one, other = (self._mean(self._device, "sm_clock_mhz", when) for when in (self._first, self._last))
        return 1.0 if not one or other is None else other / one

    def _making_grows(self) -> bool:
        """Whether batches take longer to make than at the beginning. Without a queue, none can have run empty."""
        if len(self._batches) == 0:
            return self._facts.loader.queue_capacity is None
        took = (self._batches["end_ns"] - self._batches["begin_ns"]).astype(float)
        one, other = (
            took[(self._batches["end_ns"] >= low) & (self._batches["end_ns"] <= high)]
            for low, high in (self._first, self._last)
        )
        return len(one) > 0 and len(other) > 0 and bool(other.mean() > MAKING_GROWS * one.mean())

    def _more(self, records: Records, name: str) -> float:
        one, other = (self._mean(records, name, when) for when in (self._first, self._last))
        return 0.0 if one is None or other is None else other - one

    @staticmethod
    def _mean(records: Records, name: str, when: tuple[int, int]) -> float | None:
        """Of what was measured in a stretch of time; `None` where nothing was."""
        values = records[name][(records["t_ns"] >= when[0]) & (records["t_ns"] <= when[1])]
        known = values[~np.isnan(values)] if values.dtype.kind == "f" else values[values != NOT_MEASURED]
        return float(known.mean()) if len(known) else None


def _elements(steps: Records) -> float:
    """Of the batches' tensors, the mean; 0 where they are not known."""
    found: Values = ((steps["flags"] >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS).astype(float)
    return float(found[found > 0].mean()) if (found > 0).mean() > 0.5 else 0.0
