"""When the ranks of a job arrive at the collective of each step, and how long they wait there for the last one.

Ranks that average their gradients leave the backward pass together, so the waiting lies inside the backward pass of
those that came early, and counts as computing there. What differs is when each of them arrives.

On the processor a rank arrives when its backward pass begins, or already when its forward pass does where that holds a
collective itself (FSDP, synchronised batch norm, broadcast buffers). With a queue (CUDA) the device tells: a rank
arrives when the device begins with the step, and is released when it ends. A device that is slow to compute arrives in
time and cannot be told from one that waits.

One clock for ranks on several hosts: paired by what happens on all of them at once, the end of a collective.
Monotonic clocks of hosts have nothing to do with each other, and wall clocks agree to milliseconds at best. Ranks
that average their gradients leave the last collective of a step together, in each of thousands of steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, StepFlag
from ..causes.diagnosis import LEAST_STEPS
from ..run.facts import Facts
from ..shares import MOSTLY

Stamps = npt.NDArray[np.float64]
"""[ranks, steps] in ns since a moment of the first rank's clock."""

STEPS_A_BLOCK = 64
"""Steps whose median tells how far apart two clocks are at one time; from block to block they may drift."""
MOST_BLOCKS = 256
"""Blocks that a run is cut into for that, at most."""
MOST_DRIFT = 1e-3
"""Seconds a second that two clocks may drift apart: what differs by more is no clock, but trainings that do not wait
for each other."""
MAD = 1.4826
"""Standard deviation of normal values whose median deviation is 1."""


def pair(released: Stamps, clocks: Sequence[int]) -> tuple[Stamps, float, float]:
    """Pair the clocks by when the ranks left the collective of each step.

    Args:
        clocks: number of each rank's clock.

    Returns:
        How far each rank's clock is ahead of the first rank's, at each step; how much single steps scatter around it,
        ns, on the worst host, 0 where there is one clock; and how fast the worst clock runs against the first: 1e-6 is
        a microsecond a second.
    """
    numbers = np.asarray(clocks)
    ahead = np.zeros_like(released)
    first = np.median(released[numbers == numbers[0]], axis=0)
    spread = drift = 0.0
    for number in np.unique(numbers[numbers != numbers[0]]):
        rows = numbers == number
        apart = np.median(released[rows], axis=0) - first
        blocks = np.array_split(np.arange(len(apart)), min(MOST_BLOCKS, max(1, len(apart) // STEPS_A_BLOCK)))
        centres = np.array([first[block].mean() for block in blocks])
        medians = np.array([np.median(apart[block]) for block in blocks])
        offset = np.interp(first, centres, medians)
        ahead[rows] = offset
        scatter = MAD * float(np.median(np.abs(apart - offset)))
        spread = max(spread, scatter)
        if len(blocks) > 1 and abs(medians[-1] - medians[0]) > 4 * scatter:
            drift = max(drift, float(abs(medians[-1] - medians[0]) / (centres[-1] - centres[0])))
    return ahead, spread, drift


HELD_TOGETHER = 2.0
"""Spread of the ranks' arrivals before the forward pass over that after it, from which that pass brings them together,
so that it holds a collective."""
TOGETHER = 0.1
"""Share of a round's time within which ranks that are released from a collective leave it together."""
LEAST_APART_NS = 1_000_000
"""Distance at which ranks still leave together, however short a round is: the scheduler's."""


@dataclass(frozen=True)
class Lateness:
    """Arrivals of the ranks at the same steps, all on the first rank's clock."""

    ranks: tuple[int, ...]
    behind_ns: Stamps
    """[ranks, rounds]: how long after the earliest rank each arrived."""
    round_ns: float
    """Mean time from one collective to the next."""
    ahead_ns: dict[int, float]
    """By rank, how far its clock is ahead of the first one's: the median over the rounds."""
    spread_ns: float
    """How much single rounds scatter around the pairing of clocks, on the worst host; 0 where there is one clock."""
    seen_share: float
    """Share of all rounds that these are: steps that not every rank looked at are left out."""

    @cached_property
    def last_ns(self) -> Stamps:
        """[rounds]: how long after the earliest rank the last arrived."""
        return np.asarray(self.behind_ns.max(axis=0))

    @cached_property
    def mean_ns(self) -> Stamps:
        """[ranks]: how late each is on average."""
        return np.asarray(self.behind_ns.mean(axis=1), dtype=np.float64)

    @property
    def waits_ns(self) -> Stamps:
        """[ranks]: how long each waits for the last one, a round."""
        return np.asarray((self.last_ns - self.behind_ns).mean(axis=1))

    @property
    def late_ns(self) -> Stamps:
        """[ranks]: how much later than the median of the others each is, on average; never negative."""
        late = [mean - np.median(np.delete(self.mean_ns, at)) for at, mean in enumerate(self.mean_ns)]
        return np.asarray(np.maximum(0.0, late), dtype=np.float64)

    @property
    def uneven_ns(self) -> float:
        """What a round costs because different ranks are late in different rounds: the mean of the latest arrivals
        beyond the latest mean arrival."""
        return float(self.last_ns.mean() - self.mean_ns.max())


def lateness_of(ranks: Sequence[int], facts: Sequence[Facts], clocks: Sequence[int]) -> Lateness | str:
    """Compare the ranks step by step; a sentence where that says nothing.

    Args:
        clocks: number of the clock of each of them.
    """
    most = max(f.window.count for f in facts)
    kept = [n for n, f in enumerate(facts) if f.window.count >= MOSTLY * most]
    if len(kept) < 2:
        return "Only one rank ran for most of the steps: whether others waited for it is not known."
    ranks, facts, clocks = [ranks[n] for n in kept], [facts[n] for n in kept], [clocks[n] for n in kept]
    if len({f.device_kind == "cpu" for f in facts}) > 1:
        return "Some ranks train on the processor and some do not: who waits for whom is not known."
    whole = [_rounds(f) for f in facts]
    common = reduce(np.intersect1d, [steps["step"] for steps in whole])
    at = [of[np.searchsorted(of["step"], common)] for of in whole]
    stamps = [_stamps(steps, f.device_kind != "cpu") for steps, f in zip(at, facts, strict=True)]
    known = np.logical_and.reduce([(s != NOT_MEASURED).all(axis=0) for s in stamps])
    if int(known.sum()) < LEAST_STEPS:
        return (
            f"Only {int(known.sum())} steps were seen on all ranks; {LEAST_STEPS} are needed to tell which "
            "rank the others wait for."
        )
    begun = int(stamps[0][0, known][0])
    forward, backward, released = (np.stack([s[row, known] - begun for s in stamps]).astype(float) for row in range(3))
    ahead, spread, drift = pair(released, clocks)
    if drift > MOST_DRIFT:
        return _UNPAIRED
    # Lateness shows at the begin of the forward pass if that brings the ranks together, else at its end.
    forward, backward = forward - ahead, backward - ahead
    apart_before, apart_after = (float(np.ptp(stamps, axis=0).mean()) for stamps in (forward, backward))
    arrived = forward if apart_before > HELD_TOGETHER * apart_after else backward
    behind = arrived - arrived.min(axis=0)
    first = facts[0]
    round_ns = first.parts.wall_ns / first.window.count * len(first.window.steps) / max(1, len(whole[0]))
    if not _leave_together(released - ahead, behind, round_ns):
        return _APART if len(set(clocks)) == 1 else _UNPAIRED
    share = min(1.0, int(known.sum()) * first.window.looked_at / max(1, len(whole[0])))
    medians = dict(zip(ranks, map(float, np.median(ahead, axis=1)), strict=True))
    return Lateness(tuple(ranks), behind, round_ns, medians, spread, share)


_APART = (
    "The ranks do not end their steps together: they do not wait for each other in every step, or their steps are not "
    "counted alike. Only their own figures tell which of them is slow."
)
_UNPAIRED = (
    "The hosts' clocks could not be paired, because their ranks do not end their steps together: they do not wait for "
    "each other in every step, or their steps are not counted alike."
)


def _leave_together(released: Stamps, behind: Stamps, round_ns: float) -> bool:
    """Whether the ranks are released at the same time.

    One may be later by as much in every step, having something to do before its optimizer; but trainings that do not
    wait for each other drift apart.
    """
    if float(np.median(np.ptp(released, axis=0))) > 0.5 * round_ns:
        return False
    drifting = released - np.median(released - released[0], axis=1, keepdims=True)
    arriving = float(np.median(behind.max(axis=0)))
    most = max(0.5 * arriving, TOGETHER * round_ns, LEAST_APART_NS)
    return float(np.median(np.ptp(drifting, axis=0))) <= most


def _rounds(facts: Facts) -> Records:
    """The steps that end with a collective: under gradient accumulation the last of each round."""
    steps = facts.window.steps
    steps = steps[np.unique(steps["step"], return_index=True)[1]]
    learning = (steps["flags"] & StepFlag.OPTIMIZER) != 0
    rounds: Records = steps[learning] if learning.any() else steps
    return rounds


def _stamps(steps: Records, queued: bool) -> npt.NDArray[np.int64]:
    """[3, steps]: begin of the computation, begin of the backward pass, release from the collective."""
    if queued:
        begin, end = steps["device_begin_ns"], steps["device_end_ns"]
        return np.stack((begin, begin, end))
    optimizer = steps["optimizer_begin_ns"]
    # An optimizer inside a compiled function is not seen; the step ends soon after it.
    released = optimizer if (optimizer != NOT_MEASURED).any() else steps["step_end_ns"]
    backward = steps["backward_begin_ns"]
    begun = steps["fetch_end_ns"]
    return np.stack((begun, np.where(backward == NOT_MEASURED, begun, backward), released))
