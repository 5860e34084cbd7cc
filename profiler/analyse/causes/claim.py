"""What a rule is given and gives: a cause, the time that it may claim, and how much faster a change makes a training.

Where the run can be replayed, the replay says how much: what one part no longer takes, another may then
hold up. Else it is the time that vanishes from the partition of the wall time. Either way the interval
is of 90 %: from what is not known of how much vanishes, and from what two runs of one thing differ by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from ...record.tuning import LoaderSettings
from ..predict.predict import Advice, Prediction, VanishedWork
from ..run.facts import Facts
from ..run.loader_stats import BUSY
from ..run.metrics import METRICS
from ..statistics import SCATTER_SD, Z90, Speedup, scattered
from ..where.selection import Lines
from .finding import LEAST_GAIN, Evidence, Finding, Next, shown


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


SUPPLY = (Piece.SLOW, Piece.MAKING)
"""Waits for a batch that is being prepared, by a loader that reads little."""


@dataclass(frozen=True)
class Rule:
    """One way in which a cause is told: the pieces of the time that it may explain, and what says whether it does."""

    code: str
    """Of the contract; the page is `docs/causes/`, code with dashes, `.md`."""
    claims: tuple[Piece, ...]
    judge: Callable[[Any], None] | None
    """What it says, shows and advises about a `Claim`, of the wait for data a `Wait`; nothing where
    it does not hold. `None`: judged where several ranks are known (`analyse/ranks`)."""
    meaning: str
    """What the cause is, in a sentence, then when it is told: the docstring of its first rule."""
    lines: Lines | None = None
    """How lines of code show it; `None` where no line is to blame."""

    def __call__(self, claim: Claim) -> Finding | None:
        """Return what explains all of the claim; `None` where the rule does not hold."""
        asked = replace(claim, code=self.code)
        if self.judge is not None:
            self.judge(asked)
        return asked.finding

    def also(self, *claims: Piece) -> Callable[[Callable[[Any], None]], Rule]:
        """Declare another way in which the same cause is told."""
        return cause(self.code, *claims, lines=self.lines)


def cause(code: str, *claims: Piece, lines: Lines | None = None) -> Callable[[Callable[[Any], None]], Rule]:
    """Declare a cause: the decorated rule says when it holds, in which sentence, by what evidence, and what to change.

    `table.ORDER` says which rule is asked before which.
    """
    return lambda judge: Rule(code, claims, judge, judge.__doc__ or "", lines)


@dataclass
class Claim:
    """An amount of wall time for one rule to explain, and what the rule says of it."""

    facts: Facts
    ns: float
    code: str = ""
    """The cause that the rule stands for."""
    piece: Piece | None = None
    """What the time is a piece of; `None`: of several."""
    validation: Finding | None = None
    """What explains most of the wait for data of a validation, of time outside the steps; `None`: nothing does."""
    said: Finding | None = field(default=None, init=False)
    """The finding without evidence and advice; `None` where the rule does not hold."""
    evidence: list[Evidence] = field(default_factory=list, init=False)
    advice: list[Next] = field(default_factory=list, init=False)

    @property
    def share(self) -> float:
        """Share of the wall time, 0..1."""
        return self.ns / self.facts.parts.wall_ns if self.facts.parts.wall_ns else 0.0

    def pct(self, ns: float | None = None) -> float:
        """Return the claim, or another time in ns, in percent of the wall time."""
        return 100 * (self.ns if ns is None else ns) / self.facts.parts.wall_ns

    def percent(self, ns: float | None = None) -> str:
        """Return the same as text: `12 %`."""
        return f"{self.pct(ns):.0f} %"

    @property
    def ms_a_step(self) -> float:
        """The claim divided by all steps of the window, ms."""
        return self.ns / self.facts.window.count / 1e6

    @property
    def on_cpu(self) -> bool:
        """Whether the processor is the device."""
        return self.facts.device_kind == "cpu"

    def __getitem__(self, metric: str) -> float:
        """Return a registered figure; NaN where it was not measured, with which no comparison holds."""
        return METRICS[metric].of(self.facts)

    @property
    def finding(self) -> Finding | None:
        """What was said of the claim, as a finding that explains all of it; `None` where nothing was."""
        said, evidence, advice = self.said, tuple(self.evidence), tuple(self.advice)
        return None if said is None else replace(said, evidence=evidence, next=advice)

    def says(self, title: str, confidence: float, **rest: Any) -> None:
        """Hold, in this sentence, as sure as that, 0..1. `rest`: further fields of the finding."""
        self.said = replace(Finding(self.code, title, self.share, confidence), **rest)

    def shows(self, *evidence: Evidence | str) -> None:
        """Show figures of this rule alone, and registered ones by their names."""
        self.evidence += [self.figure(each) if isinstance(each, str) else each for each in evidence]

    def figure(self, metric: str, expected: str | None = None) -> Evidence:
        """Return a registered figure of these facts; `expected`: replaces its normal value."""
        return shown(metric, METRICS[metric].of(self.facts), expected)

    def advise(self, change: str, kind: str = "", ns: float | None = None, **how: Any) -> None:
        """Advise a change that takes time away: see `removing`."""
        self.advice.append(self.removing(change, kind, ns, **how))

    def removing(
        self,
        change: str,
        kind: str = "",
        ns: float | None = None,
        *,
        gone: VanishedWork | None = None,
        least: float | None = None,
        likely: float = 0.95,
        most: float | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Next:
        """Predict a change that takes time away, with a range, from where the wall time went.

        `change` has the exact code or flag, `kind` is one of `finding.REMEDIES`. At most `ns` of the window's time
        can vanish, by default all of the claim; the share `likely` of it is expected to, and at least `least`, by
        default what is expected less `SCATTER`. `gone`: work that the loader or the training is spared, which a replay
        of the run is asked about first. `most`: the rate that something else allows, over today's, which a replay
        knows by itself. `settings`: arguments of the DataLoader, where these are all of the change.
        """
        # What takes most of it away for sure takes some of it at least.
        surely = likely - SCATTER if likely >= SURE else 0.0
        less = Vanishing(surely if least is None else least, likely)
        speedup = None if gone is None else by_replay(self.facts, gone, less)
        if speedup is None:
            speedup = by_parts(self.facts, self.ns if ns is None else ns, less)
            speedup = speedup if most is None else speedup.no_more_than(max(1.0, most))
        return as_next(self.facts, change, speedup, kind, settings)

    @property
    def in_the_loop(self) -> VanishedWork:
        """The claim as work of the training's thread within the steps: what the loader can deliver,
        and what computing takes, is the limit without it."""
        return VanishedWork(loop_ns=self.ns / self.facts.window.count)

    def overlapping(
        self, change: str, kind: str = "", supply: float | None = None, settings: Mapping[str, Any] | None = None
    ) -> Next:
        """Predict a change after which batches are prepared while the training computes.

        Where both need the same CPUs, one gains what the other loses: there the CPUs set a limit too. `supply`: what
        the loader could deliver after the change, over today's rate; `None` where that is not known. Others as above.
        """
        facts = self.facts
        most = by_parts(facts, self.ns, ALL).value
        if self.on_cpu:
            if math.isnan(facts.cpu_limit):
                return Next(change, kind=kind, settings=settings or {})
            most = max(1.0, min(most, facts.cpu_limit))
        if supply is None:
            speedup = Speedup((1 + most) / 2, 1.0, scattered(most), to_try=True)
        else:
            predicted = max(1.0, min(most, supply))
            low = max(1 + LEAST_OF_GAIN * (predicted - 1), 0.8 * predicted)
            speedup = Speedup(predicted, low, min(1.2 * predicted, scattered(most)))
        return as_next(facts, change, speedup, kind, settings)


def enough_workers(making: float, using: float, most: float) -> int:
    """Return how many workers make batches as fast as they are used, busy no more than `BUSY`, since batches differ.

    Little's law: as many as batches are under way at a time, 1 to `most`. `making`, `using`: of a batch, in one unit.
    """
    return max(1, int(min(most, math.ceil(making / using / BUSY) if using > 0 else most)))


SURE = 0.7
"""Share that is expected to vanish, from which something does for sure."""
SCATTER = 0.2
"""How much less than expected may vanish then."""
LEAST_OF_GAIN = 0.5
"""Share of what is expected to be gained that is gained at least, where only the partition tells."""
QUICKER = 0.0, 0.1, 0.3
"""Share by which other computing gets quicker if all that vanishes which shared its caches and
memory: at least, as expected, at most. Measured, see docs/measurements/promises.md."""
_LEAST_LEFT = 0.02
"""Share of the time that is left at least, whatever vanishes: a factor without end is an error of the record."""


@dataclass(frozen=True)
class Vanishing:
    """How much of some work a change does away with, as shares of it, 0..1: at least, as expected, at most."""

    least: float
    expected: float
    most: float = 1.0


DONE_NO_MORE = Vanishing(0.85, 0.95)
"""What is done once for all, or not at all."""
ALL = Vanishing(1.0, 1.0)
OF_KIND = {
    "cheaper": Vanishing(0.75, 0.92),
    "less_often": Vanishing(0.8, 0.95),
    "concurrent": Vanishing(0.5, 0.8, 0.95),
}
"""By the kind of a line's remedy; others `DONE_NO_MORE`."""


def as_next(
    facts: Facts, change: str, speedup: Speedup | None, kind: str = "", settings: Mapping[str, Any] | None = None
) -> Next:
    """Return the change with what it brings, in samples/s where samples are known."""
    if speedup is None or not facts.samples_known:
        return Next(change, kind=kind, speedup=speedup, settings=settings or {})
    now = facts.samples_per_s
    return Next(change, speedup.value * now, speedup.low * now, speedup.high * now, kind, speedup, settings or {})


def believed(facts: Facts) -> Advice | None:
    """Return the replay of the run, where that says of it as it is what was measured."""
    advice, stepping = facts.advice, facts.parts.wall_ns - facts.parts.boundary_ns
    agrees = advice is not None and facts.samples_known and advice.agrees(facts.samples * 1e9 / max(1, stepping))
    return advice if agrees else None


def by_replay(
    facts: Facts, gone: VanishedWork, vanishing: Vanishing, settings: LoaderSettings | None = None
) -> Speedup | None:
    """Replay the training without that work, or as much of it; `None` where the run cannot be
    replayed, or the replay does not say of the recorded settings what was measured."""
    if (advice := believed(facts)) is None:
        return None
    now = advice.now.samples_per_s
    shares = vanishing.least, vanishing.expected, vanishing.most
    gone_by_share = [(gone.times(share), quicker) for share, quicker in zip(shares, QUICKER, strict=True)]
    least, expected, most = advice.without(gone_by_share, settings)
    rate = expected.samples_per_s
    below = math.hypot(math.log(rate / expected.low), math.log(rate / least.samples_per_s))
    above = math.hypot(math.log(expected.high / rate), math.log(most.samples_per_s / rate))
    low = rate * math.exp(-below) if vanishing.least else now
    return replayed(facts, replace(expected, low=low, high=rate * math.exp(above)), to_try=not vanishing.least)


def replayed(facts: Facts, said: Prediction, to_try: bool = False) -> Speedup:
    """Compare another replay of the run to that of it as it is: over the whole window, of which steps are a part."""
    assert facts.advice is not None
    wall, boundary, now = facts.parts.wall_ns, facts.parts.boundary_ns, facts.advice.now.samples_per_s
    value, low, high = (
        wall / max(_LEAST_LEFT * wall, (wall - boundary) * (now / rate) + boundary)
        for rate in (said.samples_per_s, said.low, said.high)
    )
    return Speedup(value, low, high, to_try)


def by_parts(facts: Facts, removed_ns: float, vanishing: Vanishing) -> Speedup:
    """Take so much time, or as much of it, off the window."""
    wall = float(facts.parts.wall_ns)
    least, value, most = (
        1 / max(_LEAST_LEFT, 1 - share * removed_ns / wall)
        for share in (vanishing.least, vanishing.expected, vanishing.most)
    )
    below = math.hypot(Z90 * SCATTER_SD, math.log(value / least))
    above = math.hypot(Z90 * SCATTER_SD, math.log(most / value))
    low = value * math.exp(-below) if vanishing.least else 1.0
    return Speedup(value, low, value * math.exp(above), not vanishing.least)


def gains(change: Next) -> bool:
    """Return whether a change is said to gain something, or nothing is said of it."""
    return change.speedup is None or change.speedup.value >= 1 + LEAST_GAIN


def of_validation(found: Finding) -> str:
    """Return the first change that ends a validation's wait, in words: to its loader, or to the machine."""
    change = found.next[0].change
    # No setting of a loader ends these.
    if found.cause in ("input.foreign_load", "input.cpu_quota", "input.affinity"):
        return change
    return f"For the validation loader: {change[0].lower()}{change[1:]}"
