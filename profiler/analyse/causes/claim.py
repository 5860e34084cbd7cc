"""A stretch of the wall time that a rule is asked to explain, and what all rules need for that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..predict.advice import VanishedWork
from ..run.facts import Facts
from ..run.metrics import METRICS
from ..speedup import Speedup, scattered
from .finding import Evidence, Finding, Next, shown
from .speedup import ALL, LEAST_OF_GAIN, as_next, by_parts, by_replay, vanishing


class Piece(Enum):
    """The pieces of the wall time that causes explain, with the parts they are taken from; no nanosecond is in two."""

    SAMPLING = "input", "the dataset sampler works, in the training's own thread"
    IN_TRAINING = "input", "fetches in which the training prepares its batches itself"
    STARTING = "input", "the wait until a worker starts on the first batch of an epoch"
    FILLING = "input", "the rest of an epoch's first fetch, beyond the cost of other fetches"
    READING = "input", "waits for batches whose preparation is mostly reads from storage"
    SLOW = "input", "waits for one of a few slow batches, while later ones are finished"
    HANDED = "input", "waits for a finished batch during its hand-over to the training"
    MAKING = "input", "waits for any other batch in preparation"
    LINK = "copy", "copy time that a link at full speed would save"
    COPYING = "copy", "the other copies"
    SYNC = "sync", "calls that wait for the device"
    SHAPES = "compute, host", "extra time of steps with new input shapes"
    MEMORY = "compute, host", "extra time of steps in which the device's memory ran out"
    CONTENDED = "compute", "kernels of other processes"
    THROTTLED = "compute", "extra computing time at clocks that are held down"
    LAUNCHES = "compute", "waits for the next kernel to be launched"
    GARBAGE = "host", "Python's garbage collections"
    GIL = "compute, host", "the training's thread waits for Python's global lock"
    STAGE = "host", "work on a batch between its arrival and the forward pass"
    LOOP = "host", "any other work of the training loop"
    BOUNDARY = "boundary", "time outside the steps"
    GROWING = "compute, input, copy, sync, host, boundary", "growth of a part beyond its level when the run began"
    BEFORE = "", "outside the window: the program's own time before the first step"
    RANKS = "compute", "ranks wait for each other"
    OWN_MAKING = "untold", "batches that a loop without a loader prepares, by its stack samples"
    OWN_EVALUATING = "untold", "evaluation in such a loop"

    def __init__(self, parts: str, meaning: str) -> None:
        self.parts = tuple(parts.split(", ")) if parts else ()
        self.meaning = meaning


@dataclass(frozen=True)
class Claim:
    """An amount of wall time for one rule to explain. `code`: the cause that the rule stands for."""

    facts: Facts
    ns: float
    code: str = ""

    @property
    def share(self) -> float:
        """Of the wall time, 0..1."""
        return self.ns / self.facts.parts.wall_ns if self.facts.parts.wall_ns else 0.0

    def pct(self, ns: float | None = None) -> float:
        """The claim, or another time in ns, in percent of the wall time."""
        return 100 * (self.ns if ns is None else ns) / self.facts.parts.wall_ns

    def percent(self, ns: float | None = None) -> str:
        """The claim, or another time in ns, in percent of the wall time, as text: `12 %`."""
        return f"{self.pct(ns):.0f} %"

    @property
    def ms_a_step(self) -> float:
        """The claim, divided by all steps of the window."""
        return self.ns / self.facts.window.count / 1e6

    def evidence(self, metric: str, expected: str | None = None) -> Evidence:
        """Return a registered figure of these facts; `expected`: replaces its normal value."""
        return shown(metric, METRICS[metric].of(self.facts), expected)

    def found(
        self,
        title: str,
        confidence: float,
        evidence: tuple[Evidence, ...],
        changes: tuple[Next, ...],
        most_gain: float | None = None,
    ) -> Finding:
        """Return a finding that explains all of the claim. `confidence`: 0..1; `most_gain`: the most that a measurement
        says can be gained, as a share."""
        return Finding(self.code, title, self.share, confidence, evidence, changes, most_gain)

    def removing(
        self,
        change: str,
        removed_ns: float | None = None,
        *,
        least: float | None = None,
        likely: float = 0.95,
        kind: str = "",
    ) -> Next:
        """Predict a change that takes time away, with a range, from where the wall time went.

        Args:
            change: what to change, with the exact code or flag.
            removed_ns: how much of the window's time can vanish at most; by default all of the claim.
            least: the share of it that vanishes at least, 0..1; by default what `vanishing` says.
            likely: the share that is expected to.
            kind: of change, one of `finding.REMEDIES`.
        """
        ns = self.ns if removed_ns is None else removed_ns
        return as_next(self.facts, change, by_parts(self.facts, ns, vanishing(likely, least)), kind)

    def lighter(
        self, change: str, gone: VanishedWork, *, least: float | None = None, likely: float = 0.95, kind: str = ""
    ) -> Next:
        """Predict the same for work that the loader or the training is spared."""
        less = vanishing(likely, least)
        return as_next(
            self.facts, change, by_replay(self.facts, gone, less) or by_parts(self.facts, self.ns, less), kind
        )

    def sparing(self, change: str, *, least: float | None = None, likely: float = 0.95, kind: str = "") -> Next:
        """Predict the same for work of the training's thread within the steps: what the loader can deliver, and what
        computing takes, is the limit then."""
        gone = VanishedWork(loop_ns=self.ns / self.facts.window.count)
        return self.lighter(change, gone, least=least, likely=likely, kind=kind)

    @property
    def _most_overlapped(self) -> float | None:
        """The speedup if all of the claim happened beside the computation; `None` where that is not known."""
        facts = self.facts
        most = by_parts(facts, self.ns, ALL).value
        if facts.device_kind != "cpu":
            return most
        return None if facts.cpu_limit is None else max(1.0, min(most, facts.cpu_limit))

    def overlapping(self, change: str, supply: float | None = None) -> Next:
        """Predict a change after which batches are prepared while the training computes.

        Where both need the same CPUs, one gains what the other loses: there the CPUs set a limit too.

        Args:
            change: what to change, with the exact code or flag.
            supply: what the loader could deliver after the change, over today's rate; `None` where that is not known.
        """
        most = self._most_overlapped
        if most is None:
            return Next(change)
        if supply is None:
            return as_next(self.facts, change, self._within(Speedup((1 + most) / 2, 1.0, scattered(most), to_try=True)))
        predicted = max(1.0, min(most, supply))
        low = max(1 + LEAST_OF_GAIN * (predicted - 1), 0.8 * predicted)
        speedup = Speedup(predicted, low, min(1.2 * predicted, scattered(most)))
        return as_next(self.facts, change, self._within(speedup))

    def _within(self, speedup: Speedup) -> Speedup:
        """No more than a measurement says can be gained, where there was one."""
        return speedup
