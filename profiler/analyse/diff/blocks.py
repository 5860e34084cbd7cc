"""How far a run's own time per sample may be from what it would settle at: blocks of consecutive steps.

Steps that follow each other are alike (a queue that is full stays full), so their scatter says too little. The window
is cut into blocks of many steps (batch means); where even those follow each other, the variance is widened for it.
Parts are time of the device, so blocks are cut where the device is done with a step: a host that runs ahead asks for
the next batch many steps earlier, at one cut more than at another, and that is no scatter.
What happens once an epoch, its first fetch and the time outside the steps, is rare and large: it is left out of the
blocks, and varies by its own scatter.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.schema import NOT_MEASURED, StepFlag
from ..intervals import Intervals, covered, intersect, subtract, union, union_of
from ..run.facts import Facts
from ..run.stall_breakdown import TOTAL
from ..run.window import Window

MOST_BLOCKS = 16
"""Blocks that a run is cut into, at most."""
LEAST_BLOCKS = 4
"""Blocks whose scatter tells something, at least."""
LEAST_BLOCK_STEPS = 5
"""Steps of a block, at least."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True)
class BlockScatter:
    """Variance of a run's time per sample (or step), by term, as a share of the whole squared: within this run."""

    variance: dict[str, float]
    blocks: int

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the variance."""
        return self.blocks - 1.0


@dataclass(frozen=True)
class Blocks:
    """A run's window in blocks of steps that follow each other: what its scatter is told from."""

    times: dict[str, Values]
    """By term, ns of each block, without what is rare."""
    rare: dict[str, float]
    """By term, ns²: variance of the sum of what is rare."""
    steps: Values
    """Of each block."""
    samples: Values
    """Of each block."""
    wall_ns: int

    def scatter(self, samples: bool) -> BlockScatter | None:
        """Of its time per sample, or per step; `None` where a block has no samples."""
        work = self.samples if samples else self.steps
        if (work <= 0).any():
            return None
        wall = float(self.wall_ns)
        variance = {term: _of_sum(times, work) / wall**2 for term, times in self.times.items()}
        for term, squares in self.rare.items():
            variance[term] += squares / wall**2
        return BlockScatter(variance, len(work))


def blocks_of(facts: Facts) -> Blocks | None:
    """A run in blocks; `None` with too few steps."""
    window = facts.window
    number = min(MOST_BLOCKS, len(window.steps) // LEAST_BLOCK_STEPS)
    if number < LEAST_BLOCKS:
        return None
    cuts, edges = _cut(window, number, queued=facts.device_kind != "cpu")
    if len(cuts) < LEAST_BLOCKS or (np.diff(edges) <= 0).any():
        return None
    beginnings = _beginnings(window, facts.parts.loading)
    rare = union_of(facts.parts.outside, beginnings)
    times = _of_parts(facts, rare, edges)
    times[TOTAL] = np.diff(edges) - covered(rare, edges[:-1], edges[1:]).astype(np.float64)
    outside, first = _of_rare(facts.parts.outside), _of_rare(beginnings)
    steps, samples = (np.add.reduceat(work, cuts) for work in _work(window))
    varied = {"boundary": outside, "input": first, TOTAL: outside + first}
    return Blocks(times, varied, steps, samples, facts.parts.wall_ns)


def _cut(window: Window, number: int, *, queued: bool) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(first step of each block, where the blocks begin and the last one ends). `queued`: the device has a queue.

    As the window itself, a block begins when its first step is asked for and the device has done all before it. Fewer
    blocks than asked for where too few steps tell when that was.
    """
    steps = window.steps
    cuts = np.linspace(0, len(steps), number + 1).round().astype(np.int64)[1:-1]
    # Steps that were let pass count to the one after them.
    begun = np.where(steps["skipped"][1:] > 0, steps["step_end_ns"][:-1], steps["fetch_begin_ns"][1:])
    if queued:
        stamped = steps["device_end_ns"][:-1] != NOT_MEASURED
        computed = (steps["flags"][:-1] & StepFlag.COMPUTED_NOTHING) == 0
        last = np.maximum.accumulate(np.where(computed, np.arange(len(stamped)), -1))
        told = np.concatenate(([0], np.flatnonzero((last < 0) | stamped[last]) + 1))
        cuts = np.unique(told[np.searchsorted(told, cuts, side="right") - 1])
        cuts = cuts[cuts > 0]
        done = np.where(stamped, steps["device_end_ns"][:-1], window.begin_ns)
        begun = np.maximum(begun, np.maximum.accumulate(done))
    edges = np.concatenate(([window.begin_ns], begun[cuts - 1], [window.end_ns]))
    return np.concatenate(([0], cuts)), edges


def _of_parts(facts: Facts, rare: Intervals, edges: npt.NDArray[np.int64]) -> dict[str, Values]:
    """Each part's time in each block, without what is rare; steps that nobody looked at are taken to be like others."""
    parts = facts.parts
    seen = {
        "compute": parts.computing,
        "input": subtract(parts.loading, rare),
        "copy": parts.copying,
        "sync": parts.syncing,
        "host": parts.hosting,
        "boundary": subtract(parts.outside, rare),
    }
    grow = parts.wall_ns / max(1, parts.wall_ns - parts.unseen_ns)
    return {part: grow * covered(where, edges[:-1], edges[1:]).astype(np.float64) for part, where in seen.items()}


def _of_sum(times: Values, work: Values) -> float:
    """Variance of the sum of a block's times at given work, from the scatter of the blocks' times around it."""
    number = len(times)
    rest = times - times.sum() / work.sum() * work
    squares = float((rest**2).sum())
    if squares == 0:
        return 0.0
    follow = float((rest[1:] * rest[:-1]).sum()) / squares
    # Blocks without any relation have -1/n on average.
    widened = 1 + 2 * max(0.0, follow + 1 / number)
    return number * squares / (number - 1) * widened


def _of_rare(moments: Intervals) -> float:
    """Variance of the sum of so many moments, from their own scatter; 0 of one, which tells none."""
    if len(moments) < 2:
        return 0.0
    return len(moments) * float(np.var(moments[:, 1] - moments[:, 0], ddof=1))


def _work(window: Window) -> tuple[Values, Values]:
    """(steps, samples) of each step that was looked at, with those just before it that were not"""
    steps = 1.0 + np.maximum(0, window.steps["skipped"])
    steps[0] = 1.0
    samples = np.where(window.steps["samples"] == NOT_MEASURED, 0, window.steps["samples"]).astype(float)
    samples[1:] += np.maximum(0, window.steps["skipped_samples"][1:])
    return steps, samples


def _beginnings(window: Window, loading: Intervals) -> Intervals:
    """When the device idled behind the first fetches of epochs."""
    steps = window.steps
    first = steps[((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    return intersect(loading, union(first["fetch_begin_ns"], first["fetch_end_ns"]))
