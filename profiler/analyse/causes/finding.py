"""One cause with its evidence, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..run.metrics import METRICS
from ..statistics import Speedup
from ..where.places import Where
from ..where.stages import Stages

LEAST_GAIN = 0.05
"""Throughput that a change must gain to be worth naming, as a share: a cause that costs less is `none`."""
MAJOR_GAIN, CRITICAL_GAIN = 0.10, 0.30
"""Throughput that could be gained, as a share, from which a cause is `major`, and from which it is `critical`."""
MOST_UNNAMED = 0.1
"""Share of the time that may be neither computing nor claimed by a finding beside the verdict `none`."""

REMEDIES = {
    "workers": "start workers, or more",
    "fewer_workers": "fewer workers",
    "settings": "another setting of the loader",
    "once": "do it once and keep it",
    "less_often": "every n-th step, or at the epoch's end",
    "cheaper": "the same by cheaper means",
    "in_workers": "move it from the training process into the workers",
    "aside": "asynchronously, or in another process",
    "own_handle": "each worker its own lock, connection, handle",
    "slice": "each worker only its part; filter before preparing",
    "bound": "bound what grows",
    "fewer_objects": "one tensor or array instead of many Python objects",
    "order": "read in the storage's order, in larger pieces",
    "concurrent": "more requests in flight at once",
    "not_beside": "stop what runs beside the loop",
}
"""Kinds of change."""


@dataclass(frozen=True)
class Evidence:
    """One figure that a finding rests on."""

    what: str
    value: float | str | None
    """`None`: not measured."""
    unit: str = ""
    expected: str = ""
    """What the value would be if this were not the cause."""

    def __post_init__(self) -> None:
        """Take NaN, as the analysis has it, for not measured."""
        if self.value != self.value:
            object.__setattr__(self, "value", None)


def shown(metric: str, value: float | None, expected: str | None = None) -> Evidence:
    """A value of a registered metric as evidence; `expected`: in place of what is normal for it."""
    of = METRICS[metric]
    return Evidence(of.label, value, of.unit, of.normal if expected is None else expected)


@dataclass(frozen=True)
class Next:
    """A change to make, and what it brings."""

    change: str
    predicted_samples_per_s: float | None = None
    """`None`, as `low` and `high`, where nothing supports a prediction, or samples are not known."""
    low: float | None = None
    """The lower end of its 90 % interval."""
    high: float | None = None
    kind: str = ""
    """One of `REMEDIES`; empty where none of them says it."""
    speedup: Speedup | None = None
    """The same over today's rate; `None` where nothing supports a prediction."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of torch's DataLoader to set, where that is all of it; empty otherwise."""


@dataclass(frozen=True)
class Finding:
    """A cause of the contract, or the verdict that there is none."""

    cause: str | None
    """Its code; `none` where nothing is worth changing, `None` where there is no verdict, or the time has no name."""
    title: str
    """A sentence with its figures."""
    share: float
    """Exposed idle time that it explains, of the wall time, 0..1."""
    confidence: float
    """0..1"""
    evidence: tuple[Evidence, ...] = ()
    next: tuple[Next, ...] = field(default=())
    most_gain: float | None = None
    """Throughput that a measurement says can be gained at most, as a share; `None` without one."""
    least_severity: str = "none"
    """Severity of what costs no time yet, but ends the run if it goes on."""
    where: tuple[Where, ...] = ()
    """The lines of code in which that time was spent, the most of it first; then the line that
    creates the loader. Empty without stack samples."""

    stages: Stages | None = None
    """What preparing batches consists of; `None` where that was not measured, or is not what the finding is about."""

    @property
    def gain(self) -> float:
        """Throughput that is gained if the time vanishes, as a share."""
        gain = self.share / (1 - self.share) if self.share < 1 else float("inf")
        return gain if self.most_gain is None else min(gain, self.most_gain)

    @property
    def severity(self) -> str:
        """`none`, `minor`, `major` or `critical`, by what can be gained."""
        if self.cause in (None, "none") or self.gain < LEAST_GAIN:
            return self.least_severity
        if self.gain < MAJOR_GAIN:
            return "minor"
        return "major" if self.gain < CRITICAL_GAIN else "critical"


def no_verdict(why: str, *changes: Next) -> Finding:
    """Return that there is no verdict, and why, in a sentence's rest."""
    return Finding(None, f"No verdict: {why}.", 0.0, 0.0, next=changes)


def without_name(
    share: float, where: tuple[Where, ...], evidence: tuple[Evidence, ...], changes: tuple[Next, ...] = ()
) -> Finding:
    """Return no verdict: so much of the time is neither computing nor claimed by a finding. `where`: its lines."""
    lines = ", ".join(f"{each.file.rpartition('/')[2]}:{each.line}" for each in where)
    lie = f"Most of it is spent at {lines}." if lines else "Its lines of code were not seen."
    title = f"No verdict: {100 * share:.0f} % of the time has no name: neither computing nor a known cause. {lie}"
    return Finding(None, title, share, 0.0, evidence, changes, where=where)
