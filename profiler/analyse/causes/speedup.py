"""How much faster a training would be: the one place where a promise gets its figures.

Where the run can be replayed, the replay says it: what one part no longer takes, another may then hold up. Else it
is the time that vanishes from the partition of the wall time. Either way the interval is of 90 %: from what is not
known of how much vanishes, and from what two runs of one thing differ by.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...record.tuning import LoaderSettings
from ..predict.advice import VanishedWork
from ..predict.workload import Prediction
from ..run.facts import Facts
from ..speedup import SCATTER_SD, Z90, Speedup
from .finding import Next

SURE = 0.7
"""Share that is expected to vanish, from which something does for sure."""
SCATTER = 0.2
"""How much less than expected may vanish then."""
LEAST_OF_GAIN = 0.5
"""Share of what is expected to be gained that is gained at least, where only the partition tells."""
QUICKER = 0.0, 0.1, 0.3
"""Share by which other computing gets quicker if all that vanishes which shared its caches and memory: at least, as
expected, at most. Measured, see docs/measurements/promises.md."""
_LEAST_LEFT = 0.02
"""Share of the time that is left at least, whatever vanishes: a factor without end is an error of the record."""


@dataclass(frozen=True)
class Vanishing:
    """How much of some work a change does away with, as shares of it, 0..1: at least, as expected, at most."""

    least: float
    expected: float
    most: float = 1.0


DONE_NO_MORE = Vanishing(0.85, 0.95)
"""Of what is done once for all, or not at all."""
MADE_CONCURRENT = Vanishing(0.5, 0.8, 0.95)
"""Of what requests wait for that are made one after the other."""
ALL = Vanishing(1.0, 1.0)
OF_KIND = {"cheaper": Vanishing(0.75, 0.92), "less_often": Vanishing(0.8, 0.95), "concurrent": MADE_CONCURRENT}
"""Of a line whose remedy is of that kind; of others `DONE_NO_MORE`."""


def vanishing(likely: float, least: float | None = None) -> Vanishing:
    """Of what is expected to vanish by so much. What takes most of it away for sure takes some of it at least."""
    if least is None:
        least = likely - SCATTER if likely >= SURE else 0.0
    return Vanishing(least, likely)


def as_next(facts: Facts, change: str, speedup: Speedup | None, kind: str = "") -> Next:
    """The change with what it brings, in samples/s where samples are known."""
    if speedup is None or not facts.samples_known:
        return Next(change, kind=kind, speedup=speedup)
    now = facts.samples_per_s
    return Next(change, speedup.value * now, speedup.low * now, speedup.high * now, kind, speedup)


def by_replay(
    facts: Facts, gone: VanishedWork, vanishing: Vanishing, settings: LoaderSettings | None = None
) -> Speedup | None:
    """Of the training without that work, or as much of it; `None` where the run cannot be replayed, or the replay does
    not say of the recorded settings what was measured."""
    advice, stepping = facts.advice, facts.parts.wall_ns - facts.parts.boundary_ns
    if advice is None or not facts.samples_known or not advice.agrees(facts.samples * 1e9 / max(1, stepping)):
        return None
    now = advice.now.samples_per_s
    shares = vanishing.least, vanishing.expected, vanishing.most
    gone_by_share = [(gone.times(share), quicker) for share, quicker in zip(shares, QUICKER, strict=True)]
    least, expected, most = advice.without(gone_by_share, settings)
    below = math.hypot(
        math.log(expected.samples_per_s / expected.low), math.log(expected.samples_per_s / least.samples_per_s)
    )
    above = math.hypot(
        math.log(expected.high / expected.samples_per_s), math.log(most.samples_per_s / expected.samples_per_s)
    )
    rate = expected.samples_per_s
    low = rate * math.exp(-below) if vanishing.least else now
    value, low, high = (_whole(facts, now / each) for each in (rate, low, rate * math.exp(above)))
    return Speedup(value, low, high, not vanishing.least)


def by_settings(facts: Facts, said: Prediction) -> Speedup:
    """Of other settings of the loader, that the run was replayed with."""
    advice = facts.advice
    assert advice is not None
    now = advice.now.samples_per_s
    value, low, high = (_whole(facts, now / rate) for rate in (said.samples_per_s, said.low, said.high))
    return Speedup(value, low, high)


def by_parts(facts: Facts, removed_ns: float, vanishing: Vanishing) -> Speedup:
    """Of the window without so much of its time, or as much of it."""
    wall = float(facts.parts.wall_ns)

    def factor(share: float) -> float:
        return 1 / max(_LEAST_LEFT, 1 - share * removed_ns / wall)

    value = factor(vanishing.expected)
    below = math.hypot(Z90 * SCATTER_SD, math.log(value / factor(vanishing.least)))
    above = math.hypot(Z90 * SCATTER_SD, math.log(factor(vanishing.most) / value))
    low = value * math.exp(-below) if vanishing.least else 1.0
    return Speedup(value, low, value * math.exp(above), not vanishing.least)


def _whole(facts: Facts, stepping: float) -> float:
    """Factor for the whole window, of steps that take so many times as long as they do."""
    parts = facts.parts
    return parts.wall_ns / max(
        _LEAST_LEFT * parts.wall_ns, (parts.wall_ns - parts.boundary_ns) * stepping + parts.boundary_ns
    )
