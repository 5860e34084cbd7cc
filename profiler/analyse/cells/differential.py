"""The differential test: a net fed from memory, a loader without a net, and both together.

The net alone (one batch served again and again) and the loader alone (steps that do nothing) are two limits. A loader
that works while the device computes lets the slower of the two set the pace; one that makes its batches in the
training's own thread, on the processor, takes their sum. What was measured beside that tells whether the two explain
the training, and which of them is the floor.

What figures of a comparison rest on: how many runs, of how many steps, how long, and who else used the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..causes.diagnosis import LEAST_STEPS
from ..causes.finding import Finding
from ..run.facts import Facts
from ..shares import MOSTLY
from ..statistics import Range, median_of_known
from .axes import BATCH_SIZE, PIPELINE, feed_of, same_place
from .batch_size.verdict import HINDERING_CPUS
from .comparison import Cell

SHORT_S = 5.0
"""Seconds below which a single run says little of costs: starting, caches and the scheduler weigh as much."""
SEEN_NS = 1_000_000_000
"""Length of a run from which it is known what other programs used: in a shorter one, workers of its own that the
sampler has not seen yet would count as theirs."""


def foreign_cpus(runs: Iterable[Facts]) -> float | None:
    """CPUs that other programs kept busy at most, on a machine that had none to spare; `None` where none did."""
    used = [
        facts.foreign_cpus
        for facts in runs
        if facts.foreign_cpus is not None and facts.window.wall_ns >= SEEN_NS and facts.machine_full
    ]
    most = max(used, default=0.0)
    return most if most >= HINDERING_CPUS else None


def machine_cpus(runs: Iterable[Facts]) -> int | None:
    """CPUs of the machine they ran on, where it is one."""
    known = {facts.machine_cpus for facts in runs}
    return known.pop() if len(known) == 1 else None


def single(cells: Sequence[Cell]) -> bool:
    """Whether one of these cells rests on one run."""
    return any(len(cell.facts) == 1 for cell in cells)


def too_little(cell: Cell, seconds: float | None = None) -> str | None:
    """Why this cell cannot carry a claim of a few percent: too few steps, or one short run; `None` where it can.
    `seconds`: of a run; without them, of its window."""
    typical = cell.typical
    if typical is None or typical.facts is None:
        return None
    if len(typical.facts.window.steps) < LEAST_STEPS:
        return "too few steps for a verdict"
    measured = typical.facts.window.wall_ns / 1e9 if seconds is None else seconds
    if len(cell.facts) == 1 and measured < SHORT_S:
        return f"one run of less than {SHORT_S:g} s"
    return None


Limit = Literal["net", "loader", "both"]

AGREES_WITHIN = 0.10
"""Share by which a measured time may differ from the expected one and still agree with it."""
BALANCED = 0.05
"""Share by which the rates of the net alone and of the loader alone may differ and still be one and the same limit."""
NEARLY_BALANCED = 0.75
"""The smaller of those two rates over the larger, from which net and loader wait for each other's slow batches."""
SAME_BYTES = 0.02
"""Share by which the mean bytes of batches may differ and still be of the same data: targets differ in length."""

_NET = (BATCH_SIZE, "net", "device", "ranks", "interconnect", "threads")
"""What a net's own rate depends on."""
_LOADER = (PIPELINE, BATCH_SIZE, "augment", "store", "workers", "ranks")
"""What a loader's own rate depends on, beside the data."""
_PARTS = {
    "boundary": "outside the steps (validation, checkpoints)",
    "copy": "in copies to the device",
    "sync": "in calls that wait for the device",
    "host": "in other work of the training loop",
}


@dataclass(frozen=True)
class Reason:
    """Why a training took another time than its two limits say."""

    code: str
    """`noise`, `foreign_load`, `cpu_shared`, `making`, `computing`, `starting`, `reading`, a part of the wall time,
    `balanced`, or `unknown`."""
    text: str


@dataclass(frozen=True)
class Differential:
    """A training beside its net alone and its loader alone."""

    cell: Cell
    net: Range | None
    """Samples/s of the net alone; `None` where that was not run."""
    loader: Range | None
    """Samples/s of the loader alone."""
    measured: Range
    """Samples/s of the training."""
    overlaps: bool
    """Whether the loader works while the net computes."""
    expected: Range | None
    """Samples/s that both limits together allow."""
    limit: Limit | None
    reasons: tuple[Reason, ...]
    """Where expectation and measurement do not agree."""

    @property
    def deviation(self) -> float | None:
        """Share by which the training took longer than expected; negative where it took less."""
        return None if self.expected is None else self.expected.value / self.measured.value - 1

    @property
    def agrees(self) -> bool | None:
        """Whether the measured time is the expected one, about; `None` where one side was not run."""
        return None if self.deviation is None else abs(self.deviation) <= AGREES_WITHIN


def verdict_of(cell: Cell) -> Finding | None:
    """What the training waited for, where that means anything: steps that do nothing wait for data by construction,
    and one batch served again and again is no loader."""
    if cell.typical is None or feed_of(cell) == "loader-only":
        return None
    verdict = cell.typical.verdict
    return None if feed_of(cell) == "synthetic" and (verdict.cause or "").startswith("input.") else verdict


def differentials(cells: Sequence[Cell]) -> tuple[Differential, ...]:
    """The test of every training that ran and of which the net alone or the loader alone ran as well. Not of a training
    of several phases: its rate is a mixture."""
    ran = [cell for cell in cells if cell.status == "ok" and cell.samples_per_s is not None]
    found = []
    for cell in ran:
        if feed_of(cell) != "real" or cell.axes.get("plan") is not None:
            continue
        net, loader = _net_alone(cell, ran), _loader_alone(cell, ran)
        if net is not None or loader is not None:
            found.append(_differential(cell, net, loader))
    return tuple(found)


def _net_alone(cell: Cell, ran: Sequence[Cell]) -> Cell | None:
    """The cell of a training's net on its device, fed from memory, whatever loader and augmentation are named beside
    it."""
    return _closest(cell, [each for each in ran if feed_of(each) == "synthetic" and same_place(each, cell, _NET)])


def _loader_alone(cell: Cell, ran: Sequence[Cell]) -> Cell | None:
    """The cell of a training's loader with steps that do nothing; under another net where batches weigh the same."""
    partners = [
        each
        for each in ran
        if feed_of(each) == "loader-only"
        and same_place(each, cell, _LOADER)
        and (same_place(each, cell, ("net",)) or _same_data(each, cell))
    ]
    return _closest(cell, partners)


def _closest(cell: Cell, partners: Sequence[Cell]) -> Cell | None:
    """The one that shares most with the cell, the net before all else."""

    def alike(other: Cell) -> tuple[bool, int]:
        shared = sum(other.axes.get(name) == value for name, value in cell.axes.items())
        return same_place(other, cell, ("net",)), shared + (other.pipeline == cell.pipeline)

    return max(partners, key=alike, default=None)


def _same_data(one: Cell, other: Cell) -> bool:
    """Whether batches of two nets are alike, by what they weigh."""
    mine, theirs = (median_of_known(f.loader.mean_batch_bytes for f in cell.facts) for cell in (one, other))
    if not mine or not theirs:
        return False
    return abs(mine / theirs - 1) <= SAME_BYTES


def _differential(cell: Cell, net: Cell | None, loader: Cell | None) -> Differential:
    measured = cell.samples_per_s
    assert measured is not None
    alone = net.samples_per_s if net is not None else None
    loading = loader.samples_per_s if loader is not None else None
    overlaps = overlapping(cell)
    if net is None or loader is None or alone is None or loading is None:
        return Differential(cell, alone, loading, measured, overlaps, None, None, ())
    expected = Range(
        _together(alone.value, loading.value, overlaps),
        _together(alone.low, loading.low, overlaps),
        _together(alone.high, loading.high, overlaps),
        min(alone.repeats, loading.repeats),
    )
    both = _Both(cell, net, loader, alone, loading, measured, expected, overlaps)
    reasons = tuple(_reasons(both)) if abs(both.excess) > AGREES_WITHIN else ()
    return Differential(cell, alone, loading, measured, overlaps, expected, _limit(alone, loading), reasons)


@dataclass(frozen=True)
class _Both:
    """A training, and its two sides that both ran."""

    cell: Cell
    net: Cell
    loader: Cell
    alone: Range
    loading: Range
    measured: Range
    expected: Range
    overlaps: bool

    @property
    def excess(self) -> float:
        """Time beyond what was expected, as a share of that; negative where it took less."""
        return self.expected.value / self.measured.value - 1


def overlapping(cell: Cell) -> bool:
    """Whether batches are made while the net computes. A device with a queue computes on while the training's own
    thread makes the next batch; a processor cannot do both in one thread."""
    facts = cell.typical.facts if cell.typical is not None else None
    return facts is None or facts.device_kind != "cpu" or not facts.made_in_training


def _together(net: float, loader: float, overlaps: bool) -> float:
    """Samples/s of a net and a loader together, from those of each alone."""
    return min(net, loader) if overlaps else 1 / (1 / net + 1 / loader)


def _limit(net: Range, loader: Range) -> Limit:
    if abs(net.value / loader.value - 1) <= BALANCED:
        return "both"
    return "net" if net.value < loader.value else "loader"


def _reasons(both: _Both) -> list[Reason]:
    """What explains that expectation and measurement do not agree, likeliest first."""
    found = [Reason("noise", "repeated runs of one cell differ as much")] if both.measured.meets(both.expected) else []
    facts = [cell.typical.facts for cell in (both.cell, both.net, both.loader) if cell.typical is not None]
    known = [each for each in facts if each is not None]
    if len(known) == 3:
        found += _seen(both, *known)
    if (
        not found
        and both.excess > 0
        and min(both.alone.value / both.loading.value, both.loading.value / both.alone.value) >= NEARLY_BALANCED
    ):
        found.append(
            Reason("balanced", "net and loader are almost equally fast, so each waits for the other's slow batches")
        )
    return found or [Reason("unknown", "these runs do not show why")]


def _seen(both: _Both, training: Facts, net: Facts, loader: Facts) -> list[Reason]:
    """What the three recordings show of it. Excess time is compared as a share of the measured time."""
    found = []
    slower = both.excess > 0
    excess = 1 - both.measured.value / both.expected.value
    who, of = ("the training", training) if slower else ("the loader alone", loader)
    if (others := _others(training, loader)) is not None:
        found.append(others)
    if slower and (shared := _shared_cpus(both, net, loader)) is not None:
        found.append(shared)
    beside, alone = training.loader.make_ms_per_sample, loader.loader.make_ms_per_sample
    if beside is not None and alone and _explains(beside / alone - 1, both.excess):
        found.append(
            Reason("making", f"preparing a sample took {beside:.3g} ms beside the net, and {alone:.3g} ms alone")
        )
    beside, alone = _compute_ms(training), _compute_ms(net)
    if alone and _explains(beside / alone - 1, both.excess):
        found.append(
            Reason("computing", f"computing a sample took {beside:.3g} ms beside the loader, and {alone:.3g} ms alone")
        )
    if _explains(_beginning(training) - _beginning(loader), excess):
        found.append(
            Reason(
                "starting",
                f"{who} spent {100 * _beginning(of):.0f} % of its time at the beginnings of epochs, where workers "
                "start and first batches are prepared; longer runs have less of that",
            )
        )
    if _explains(_reading(training) - _reading(loader), excess):
        found.append(Reason("reading", f"{who} waited {100 * _reading(of):.0f} % of its time for reads from storage"))
    for part, words in _PARTS.items() if slower else ():
        share = training.parts.share(part)
        if _explains(share - max(net.parts.share(part), loader.parts.share(part)), excess):
            found.append(Reason(part, f"{100 * share:.0f} % of the time went {words}, more than on either side alone"))
    return found


def _others(training: Facts, loader: Facts) -> Reason | None:
    """That other programs were in the way of either: their share of the CPUs is that of no other run."""
    if (used := foreign_cpus((training, loader))) is None:
        return None
    return Reason(
        "foreign_load",
        f"other programs used {used:.1f} CPUs of a full machine: run it again without them",
    )


def _shared_cpus(both: _Both, net: Facts, loader: Facts) -> Reason | None:
    """That both together need more CPUs than there are, where each alone has them all to itself."""
    budget = loader.sampled.cpu_budget
    if budget is None:
        return None
    if net.sampled.tree_cpus is None or loader.sampled.tree_cpus is None:
        if net.device_kind != "cpu" or not both.overlaps:
            return None
        return Reason("cpu_shared", f"the net computes on the same {budget:g} CPUs as the loader")
    # CPU seconds that a sample takes: what a net and a loader each took of the CPUs while they had them alone.
    per_sample = net.sampled.tree_cpus / both.alone.value + loader.sampled.tree_cpus / both.loading.value
    needed = per_sample * both.expected.value
    if needed <= budget * (1 + AGREES_WITHIN / 2):
        return None
    return Reason(
        "cpu_shared",
        f"at that rate net and loader together need {needed:.1f} CPUs; there are {budget:g}, enough for "
        f"{budget / per_sample:.4g} samples/s",
    )


def _explains(difference: float, excess: float) -> bool:
    return difference * excess > 0 and abs(difference) >= MOSTLY * abs(excess)


def _compute_ms(facts: Facts) -> float:
    """Time that the device computed for a sample, ms."""
    return facts.parts.compute_ns / 1e6 / facts.samples if facts.samples else 0.0


def _beginning(facts: Facts) -> float:
    """Share of the time spent at the beginnings of epochs."""
    return (facts.waits.starting_ns + facts.waits.filling_ns) / facts.parts.wall_ns


def _reading(facts: Facts) -> float:
    """Share of the time spent waiting for reads from storage."""
    return facts.waits.reading_ns / facts.parts.wall_ns
