"""A stretch of the wall time that a rule is asked to explain, and what rules say of it alike."""

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

    SAMPLING = "input", "the sampler works, in the training's own thread"
    IN_TRAINING = "input", "fetches in which the training makes its batches itself"
    STARTING = "input", "until a worker takes up the first batch of an epoch"
    FILLING = "input", "the rest of an epoch's first fetch, beyond what fetches cost otherwise"
    READING = "input", "a batch that is mostly read from storage is made"
    SLOW = "input", "one of few batches that take much longer than the others is made, while later ones lie finished"
    HANDED = "input", "the batch is finished, and on its way to the training"
    MAKING = "input", "any other batch is made"
    LINK = "copy", "copies that a link at its full speed would save"
    COPYING = "copy", "the other copies"
    SYNC = "sync", "calls that wait for the device"
    SHAPES = "compute, host", "what steps with new input shapes take longer"
    MEMORY = "compute, host", "what steps take longer in which the device's memory ran out"
    CONTENDED = "compute", "kernels of other processes"
    THROTTLED = "compute", "what computing takes longer at clocks that are held down"
    LAUNCHES = "compute", "the next kernel is not launched yet"
    GARBAGE = "host", "Python's garbage collections"
    GIL = "compute, host", "the training's thread waits for Python's global lock"
    STAGE = "host", "what is done with a batch between its arrival and the forward pass"
    LOOP = "host", "any other work of the training loop"
    BOUNDARY = "boundary", "time outside the steps"
    GROWING = "compute, input, copy, sync, host, boundary", "what a part takes beyond its level at the run's beginning"
    BEFORE = "", "outside the window: the program's own time before the first step"
    RANKS = "compute", "ranks wait for each other"
    OWN_MAKING = "untold", "batches that a loop without a loader makes, as looks at its stack tell"
    OWN_EVALUATING = "untold", "what such a loop evaluates"

    def __init__(self, parts: str, meaning: str) -> None:
        self.parts = tuple(parts.split(", ")) if parts else ()
        self.meaning = meaning


@dataclass(frozen=True)
class Claim:
    """So much of the wall time, for one rule to explain. `code`: of the cause that the rule stands for."""

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
        """A registered figure of these facts; `expected`: in place of what is normal for it."""
        return shown(metric, METRICS[metric].of(self.facts), expected)

    def found(
        self,
        title: str,
        confidence: float,
        evidence: tuple[Evidence, ...],
        changes: tuple[Next, ...],
        most_gain: float | None = None,
    ) -> Finding:
        """That the cause explains all of the claim. `confidence`: 0..1; `most_gain`: what a measurement says can be
        gained at most, as a share."""
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
        """A change that takes time away: a prediction with its range, from where the wall time went.

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
        """The same of work that the loader is spared, or the training."""
        less = vanishing(likely, least)
        return as_next(
            self.facts, change, by_replay(self.facts, gone, less) or by_parts(self.facts, self.ns, less), kind
        )

    def sparing(self, change: str, *, least: float | None = None, likely: float = 0.95, kind: str = "") -> Next:
        """The same of work of the training's own thread within the steps: what the loader can deliver, and what
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
        """A change that lets batches be made while the training computes.

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
