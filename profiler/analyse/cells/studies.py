"""What cells that differ in one thing say together: where the limit lies, what augmentation costs, how training scales
over ranks, what it came to on held-out data, and how near loaders come to what the machine can do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from statistics import fmean, median
from typing import Any, Literal

from ..run.facts import Facts
from ..shares import MOSTLY
from ..statistics import Range, median_of_known, range_of
from .batch_size import samples_of
from .comparison import (
    BATCH_SIZE,
    PIPELINE,
    Cell,
    foreign_cpus,
    grouped,
    label,
    ladders,
    places,
    same_place,
    too_little,
    varying,
)

AGREES_WITHIN = 0.10
"""Share by which a measured time may differ from the expected one and still agree with it."""
BALANCED = 0.05
"""Share by which the rates of the net alone and of the loader alone may differ and still be one and the same limit."""
NEARLY_BALANCED = 0.75
"""The smaller of those two rates over the larger, from which net and loader wait for each other's slow batches."""
SAME_BYTES = 0.02
"""Share by which the mean bytes of batches may differ and still be of the same data: targets differ in length."""
FREE = 0.05
"""Share by which augmenting may lengthen an epoch and still be called free."""
HELD_WITHIN = 0.01
"""Fall of a figure (an accuracy, 0..1) up to which it held, however alike the repeats are."""
LEAST_MERIT = 0.1
"""The best accuracy or precision of several nets, 0..1, from which they have learnt enough for it to hold or fall."""
NEAR = 0.85
"""Share of the roofline from which another loader would hardly be faster."""


# The differential test: a net fed from memory, a loader without a net, and both together.
#
# The net alone (one batch served again and again) and the loader alone (steps that do nothing) are two limits. A loader
# that works while the device computes lets the slower of the two set the pace; one that makes its batches in the
# training's own thread, on the processor, takes their sum. What was measured beside that tells whether the two explain
# the training, and which of them is the floor.

Limit = Literal["net", "loader", "both"]
_SPARE = 1 + AGREES_WITHIN / 2
"""CPUs needed over those there are, from which they are too few."""
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
    """A training beside its net alone and its loader alone. Rates are samples/s, `None` where not run."""

    cell: Cell
    net_alone: Range | None
    loader_alone: Range | None
    expected: Range | None
    """Rate that both limits together allow; `None` where one side was not run."""
    measured: Range
    epoch_s: Mapping[str, float]
    """Seconds for one pass over the data, by rate; NaN where the number of samples is not known, or not run."""
    deviation_pct: float
    """Percent by which the training took longer than expected, negative where it took less; NaN without `expected`."""
    agrees: bool | None
    """Whether the measured time is the expected one, about; `None` as `expected`."""
    overlaps: bool
    """Whether the loader works while the net computes."""
    limit: Limit | None
    reasons: tuple[Reason, ...]
    """Where expectation and measurement do not agree."""


def differentials(cells: Sequence[Cell], setting: Mapping[str, Any]) -> tuple[Differential, ...]:
    """Test every training that ran and of which the net alone or the loader alone ran as well. Not a training of
    several phases: its rate is a mixture. `setting`: the comparison's."""

    def alone(feed: str, real: Cell, axes: Sequence[str]) -> Cell | None:
        """Choose the cell of that feed at one place with another on these axes: of one net, else one whose batches
        weigh the same; `None` of none."""

        def apart(each: Cell) -> float:
            theirs, mine = (median_of_known(f.loader.mean_batch_bytes for f in of.facts) or nan for of in (each, real))
            return 0.0 if same_place(each, real, ("net",)) else abs(theirs / mine - 1)

        there = [each for each in ran if each.feed == feed and same_place(each, real, axes)]
        return min((each for each in there if apart(each) <= SAME_BYTES), key=apart, default=None)

    ran = [cell for cell in cells if cell.ran]
    # The net on its device, whatever loader and augmentation are named beside it.
    tested = [
        (cell, alone("synthetic", cell, _NET), alone("loader-only", cell, _LOADER))
        for cell in ran
        if cell.feed == "real" and cell.axes.get("plan") is None
    ]
    return tuple(
        _differential(cell, net, loader, cell.samples(setting)) for cell, net, loader in tested if net or loader
    )


def _differential(cell: Cell, net: Cell | None, loader: Cell | None, samples: int | None) -> Differential:
    """Test one training. `samples`: of an epoch; `None` where not known."""
    alone, loading = (None if side is None else side.samples_per_s for side in (net, loader))
    measured, facts = cell.samples_per_s, cell.typical.facts if cell.typical is not None else None
    assert measured is not None
    # A device with a queue computes on while the training's own thread makes the next batch; a processor cannot do both
    # in one thread.
    overlaps = facts is None or facts.device_kind != "cpu" or not facts.made_in_training
    expected, deviation, agrees, reasons = None, nan, None, list[Reason]()
    limit: Limit | None = None
    if alone is not None and loading is not None:
        pairs = ((alone.value, loading.value), (alone.low, loading.low), (alone.high, loading.high))
        value, low, high = (min(pair) if overlaps else 1 / (1 / pair[0] + 1 / pair[1]) for pair in pairs)
        expected = Range(value, low, high, min(alone.repeats, loading.repeats))
        deviation = expected.value / measured.value - 1
        agrees = abs(deviation) <= AGREES_WITHIN
        apart = alone.value / loading.value
        limit = "both" if abs(apart - 1) <= BALANCED else "net" if apart < 1 else "loader"
        if not agrees:
            runs = [each.typical.facts for each in (cell, net, loader) if each and each.typical and each.typical.facts]
            reasons = [Reason("noise", "repeated runs of one cell differ as much")] * measured.meets(expected)
            reasons += _signs(runs, alone, loading, measured, expected) if len(runs) == 3 else []
            if not reasons and deviation > 0 and min(apart, 1 / apart) >= NEARLY_BALANCED:
                words = "net and loader are almost equally fast, so each waits for the other's slow batches"
                reasons.append(Reason("balanced", words))
            reasons = reasons or [Reason("unknown", "these runs do not show why")]
    rates = {"net_alone": alone, "loader_alone": loading, "expected": expected, "measured": measured}
    seconds = {name: nan if samples is None or rate is None else samples / rate.value for name, rate in rates.items()}
    beside = seconds, 100 * deviation, agrees, overlaps, limit, tuple(reasons)
    return Differential(cell, alone, loading, expected, measured, *beside)


def _signs(runs: Sequence[Facts], alone: Range, loading: Range, measured: Range, expected: Range) -> list[Reason]:
    """Name what the three recordings show of a time that was not expected, likeliest first."""
    training, net, loader = runs
    # Excess time as a share of the expected and of the measured time; negative where there was less.
    longer, excess = expected.value / measured.value - 1, 1 - measured.value / expected.value
    who, of = ("the training", 0) if longer > 0 else ("the loader alone", 1)
    found = []
    if (used := foreign_cpus((training, loader))) is not None:
        # In the way of either: their share of the CPUs is that of no other run.
        words = f"other programs used {used:.1f} CPUs of a full machine: run it again without them"
        found.append(Reason("foreign_load", words))
    budget, of_net, of_loader = loader.sampled.cpu_budget, net.sampled.tree_cpus, loader.sampled.tree_cpus
    if longer > 0 and budget == budget and not isnan(of_net + of_loader):
        # Both together need more CPUs than there are, where each alone has them all to itself: CPU seconds that a
        # sample takes are what a net and a loader each took of the CPUs while they had them alone.
        per_sample = of_net / alone.value + of_loader / loading.value
        if (needed := per_sample * expected.value) > budget * _SPARE:
            words = (
                f"at that rate net and loader together need {needed:.1f} CPUs; there are {budget:g}, enough for "
                f"{budget / per_sample:.4g} samples/s"
            )
            found.append(Reason("cpu_shared", words))
    both, computed = (training, loader), (training, net)
    making = [each.loader.make_ms_per_sample or nan for each in both]
    computing = [each.parts.compute_ns / 1e6 / each.samples if each.samples else nan for each in computed]
    starting = [(each.waits.starting_ns + each.waits.filling_ns) / each.parts.wall_ns for each in both]
    reading = [each.waits.reading_ns / each.parts.wall_ns for each in both]
    prepared = f"preparing a sample took {making[0]:.3g} ms beside the net, and {making[1]:.3g} ms alone"
    computes = f"computing a sample took {computing[0]:.3g} ms beside the loader, and {computing[1]:.3g} ms alone"
    begins = (
        f"{who} spent {100 * starting[of]:.0f} % of its time at the beginnings of epochs, where workers start and "
        "first batches are prepared; longer runs have less of that"
    )
    waits = f"{who} waited {100 * reading[of]:.0f} % of its time for reads from storage"
    # (code, what it adds, the excess that it may explain, in words)
    signs = [
        ("making", making[0] / making[1] - 1, longer, prepared),
        ("computing", computing[0] / (computing[1] or nan) - 1, longer, computes),
        ("starting", starting[0] - starting[1], excess, begins),
        ("reading", reading[0] - reading[1], excess, waits),
    ]
    for part, where in _PARTS.items() if longer > 0 else ():
        share = training.parts.share(part)
        words = f"{100 * share:.0f} % of the time went {where}, more than on either side alone"
        signs.append((part, share - max(net.parts.share(part), loader.parts.share(part)), excess, words))
    return found + [
        Reason(code, words) for code, adds, to, words in signs if adds * to > 0 and abs(adds) >= MOSTLY * abs(to)
    ]


# Results of trainings: what their nets are worth on held-out data, in which time, after how many samples.

SETTINGS = ("samples", "objects", "iou", "threshold")
"""Figures that say how a net was tried, not what it is worth."""


@dataclass(frozen=True)
class CellResult:
    """Results of the runs of a cell."""

    cell: Cell
    runs: tuple[Mapping[str, Any], ...]
    """Each as the contract has it: `train_s`, `samples` that all ranks processed, `epochs`, `evaluation` at the end;
    `None` where a run reported none."""

    def mean(self, name: str) -> Range | None:
        """Give the mean of `train_s` or of `samples` over the runs; `None` where no run told it."""
        return _mean(run[name] for run in self.runs)

    def metric(self, name: str) -> Range | None:
        """Give the mean over the runs of a figure of the evaluation; `None` where no run told it."""
        return _mean((run["evaluation"] or {}).get(name) for run in self.runs)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of what an evaluation came to, in its order."""
        told = dict.fromkeys(name for run in self.runs for name in run["evaluation"] or {} if name not in SETTINGS)
        # Of detections the accuracy is the average precision.
        drop = "accuracy" if "average_precision" in told else None
        return tuple(name for name in told if name != drop and self.metric(name) is not None)

    @property
    def evaluation(self) -> dict[str, Any] | None:
        """An evaluation without the confusion matrix: figures are means over the runs, all else is of the last run that
        tells it. `None` where none was evaluated."""
        told = [run["evaluation"] for run in self.runs if run["evaluation"] is not None]
        last = {name: value for each in told for name, value in each.items() if name != "confusion"}
        means = {name: mean.value for name in last if (mean := self.metric(name)) is not None and mean.low < mean.high}
        return last | means if told else None

    @property
    def confusion(self) -> list[list[int]] | None:
        """Number of samples of each class (row) taken for which (column), all runs together; `None` where not told."""
        matrices = [matrix for run in self.runs if (matrix := (run["evaluation"] or {}).get("confusion"))]
        if not matrices:
            return None
        return [[sum(counts) for counts in zip(*rows, strict=True)] for rows in zip(*matrices, strict=True)]

    @property
    def classes(self) -> list[str] | None:
        """Names of the classes; `None` where no evaluation tells them."""
        told = [(run["evaluation"] or {}).get("classes") for run in self.runs]
        return next((list(map(str, names)) for names in told if names), None)

    @property
    def shown(self) -> bool:
        """Whether the training came to anything: was tried on held-out data, or followed a plan."""
        return bool(self.metrics) or self.cell.axes.get("plan") is not None


def _mean(values: Iterable[Any]) -> Range | None:
    return range_of((float(value) for value in values if type(value) in (int, float)), fmean)


def results(cells: Sequence[Cell]) -> tuple[CellResult, ...]:
    """Collect the results of the cells whose runs told what they came to."""
    found = []
    for cell in cells:
        runs = []
        for analysis in cell.analyses if cell.status == "ok" else ():
            told = analysis.info.get("results")
            if isinstance(told, Mapping):
                facts = [part.analysis.facts for part in analysis.ranks] or [analysis.facts]
                known = [each for each in facts if each is not None and each.samples_known]
                run = {
                    "train_s": told.get("train_s"),
                    "samples": sum(map(samples_of, known)) if len(known) == len(facts) else None,
                    "epochs": tuple(each for each in told.get("epochs") or () if isinstance(each, Mapping)),
                    "evaluation": told.get("evaluation"),
                }
                runs.append(run)
        if runs:
            found.append(CellResult(cell, tuple(runs)))
    return tuple(found)


@dataclass(frozen=True)
class MetricByBatchSize:
    """A figure from the smallest batch on; all else is the same."""

    metric: str
    cells: tuple[Cell, ...]
    """By batch size, ascending."""
    means: tuple[Range, ...]
    """The figure of each cell, the mean over its runs."""
    learnt: bool
    """Whether the best of these nets is clearly above what chance or nothing gives."""

    @property
    def spread(self) -> float | None:
        """The most by which repeats of one cell differ; `None` where none was repeated."""
        return max((each.high - each.low for each in self.means if each.repeated), default=None)

    @property
    def held(self) -> bool | None:
        """Whether it fell by no more than repeats differ. `None`: it fell, and nothing was repeated."""
        change = min(each.value for each in self.means[1:]) - self.means[0].value
        if change >= -HELD_WITHIN:
            return True
        return None if self.spread is None else change >= -self.spread


def metrics_by_batch_size(found: Sequence[CellResult]) -> tuple[MetricByBatchSize, ...]:
    """Follow every merit over the batch size, wherever cells differ in it alone."""
    told = []
    for several in ladders(found, BATCH_SIZE):
        # The best of these nets has learnt enough for a figure to hold or fall: detections by their average precision,
        # whatever the metric; an accuracy from twice chance on, of two classes from half the way between chance and 1.
        detects = any("average_precision" in each.metrics for each in several)
        chance = next((1 / len(names) for each in several if (names := each.classes or each.confusion)), 0.0)
        for metric in dict.fromkeys(name for each in several for name in each.metrics if name != "loss"):
            merit = "average_precision" if detects else metric
            best = max(mean.value for each in several if (mean := each.metric(merit)) is not None)
            least = min(2 * chance, (1 + chance) / 2) if merit == "accuracy" else 0.0
            known = [(each.cell, mean) for each in several if (mean := each.metric(metric)) is not None]
            if len(known) > 1:
                cells, means = zip(*known, strict=True)
                told.append(MetricByBatchSize(metric, cells, means, best >= max(LEAST_MERIT, least)))
    return tuple(told)


# What augmentation costs: nothing where the net takes longer than the loader, and time where it does not.


@dataclass(frozen=True)
class Augmentation:
    """The cost of augmenting, by two cells that differ in nothing else or by both kinds of epochs of one training."""

    cell: Cell
    """The augmented one."""
    plain_epoch_s: float
    """Seconds for an epoch without augmenting; NaN where the number of samples is not known."""
    augmented_epoch_s: float
    """Seconds for an epoch with it; NaN where the number of samples is not known."""
    cost_pct: float
    """Time that augmenting adds, percent of that without."""
    free: bool
    """Whether that is next to nothing."""
    sure: bool
    """Whether repeats differ by less than the cost; of one run, whether its epochs do."""
    doubt: str | None = None
    """Why either cell is too little to claim anything: too few steps, or one short run. Such a cost is never sure."""
    limit: Limit | None = None
    """Limit of the augmented training; `None` where the differential test does not say."""


def augmentations(
    cells: Sequence[Cell], tested: Sequence[Differential], setting: Mapping[str, Any]
) -> list[Augmentation]:
    """Give the cost of augmenting each cell, by its own epochs and by another cell. `setting`: the comparison's."""
    found, ran = [], [cell for cell in cells if cell.status == "ok"]
    for cell in cells:
        if (by_epochs := _of_epochs(cell)) is not None:
            found.append(by_epochs)
        if not cell.axes.get("augment") or not cell.ran or cell.feed != "real":
            continue
        without = places(cell) | {"augment": False}
        plain = next((each for each in ran if places(each) == without), None)
        if plain is None or plain.samples_per_s is None or cell.samples_per_s is None:
            continue
        fast, slow, samples = plain.samples_per_s, cell.samples_per_s, cell.samples(setting)
        plain_s, augmented_s = (nan if samples is None else samples / rate.value for rate in (fast, slow))
        limit = next((each.limit for each in tested if each.cell is cell), None)
        doubt = too_little(cell) or too_little(plain)
        sure = doubt is None and not fast.meets(slow)
        cost = fast.value / slow.value - 1
        found.append(Augmentation(cell, plain_s, augmented_s, 100 * cost, cost < FREE, sure, doubt, limit))
    return found


def _of_epochs(cell: Cell) -> Augmentation | None:
    """Compare the two kinds of epochs of a training whose plan has both; `None` of any other."""
    pairs: list[tuple[list[float], list[float]]] = []
    for run in (run for each in results([cell]) for run in each.runs):
        told = [(bool(e.get("augment")), float(e["seconds"])) for e in run["epochs"] if e.get("seconds")]
        off, on = ([seconds for augmented, seconds in told if augmented is kind] for kind in (False, True))
        if off and on:
            # The first of each kind starts something, and is left out where there are more.
            pairs.append((off[1:] or off, on[1:] or on))
    if not pairs:
        return None
    plain, augmented = (median(median(pair[which]) for pair in pairs) for which in (0, 1))
    cost, costs = augmented / plain - 1, [median(on) / median(off) - 1 for off, on in pairs]
    sure = max(costs) - min(costs) < abs(cost)
    if len(pairs) == 1:
        off, on = pairs[0]
        sure = len(off) > 1 < len(on) and (max(off) < min(on) or max(on) < min(off))
    doubt = too_little(cell, sum(map(sum, pairs[0])))
    return Augmentation(cell, plain, augmented, 100 * cost, cost < FREE, sure and doubt is None, doubt)


def free_on_one_device(found: Sequence[Augmentation]) -> list[tuple[Augmentation, Augmentation]]:
    """Pair one training on two devices where augmentation is free on one and surely not on the other; of each training
    the pair that differs most."""
    sure = sorted((each for each in found if each.doubt is None), key=lambda each: each.cost_pct)
    return [
        (several[0], several[-1])
        for several in grouped(sure, but=("device",))
        if several[0].free and not several[-1].free and several[-1].sure
    ]


# What further ranks bring: speed-up and efficiency, against one rank at the same batch of each or of all together.

Held = Literal["per rank", "total"]
"""Which batch size is the same on all points of a curve: that of each rank (weak scaling) or that of all together
(strong scaling)."""
SHARED_OUT = ("workers", "threads")
"""Axes that may follow the number of ranks, as where the machine's CPUs are divided among them."""


@dataclass(frozen=True)
class Point:
    """The training on one number of ranks, against that on one rank."""

    cell: Cell
    ranks: int
    batch_size: int
    """Batch size of each rank."""
    status: str
    samples_per_s: Range | None
    """Samples/s of all ranks together; `None` where it did not run."""
    speedup: Range | None
    """Median rate over the median rate of one rank, with what the repeats of either allow; `None`: see `why`."""
    efficiency: Range | None
    """Speed-up over the number of ranks, 1 is ideal; `None` without a speed-up."""
    why: str | None
    """Why there is no speed-up; `None` where there is one."""
    waiting_pct: float | None
    """Percent of the time in which ranks wait for the last of them, part of what counts as computing; `None` where not
    measured."""
    exchange_ms: float | None
    """Time that the exchange of gradients adds to each step, computed, not measured; `None` where not emulated."""


@dataclass(frozen=True)
class Curve:
    """Trainings that differ in the number of ranks alone, and in what follows from that."""

    held: Held
    batch_size: int
    """Batch size that is the same on all points: of each rank or of all together, as `held` says."""
    pipeline: str
    interconnect: str | None
    """Link between the ranks; `None` where that is no axis."""
    place: str
    """Place on the other axes in which cells of the comparison differ, in words."""
    emulated: bool
    points: tuple[Point, ...]
    """One for each number of ranks, ascending."""


def scaling(cells: Sequence[Cell]) -> list[Curve]:
    """Make curves over the number of ranks; none where all cells have the same."""
    if len({_ranks(cell) for cell in cells}) < 2:
        return []
    cells = [cell for cell in cells if "ranks" in cell.axes]
    aside = {"ranks", "interconnect"}
    # An axis that has one value wherever the number of ranks and all else is the same follows from them.
    aside |= {n for n in SHARED_OUT if all(n not in varying(several) for several in grouped(cells, but=(n,)))}
    names = [name for name in varying(cells) if name not in aside]
    families = grouped(cells, but=(BATCH_SIZE, *aside))
    weak = [curve for family in families for curve in _curves(family, names, "per rank")]
    strong = [curve for family in families for curve in _curves(family, names, "total")]
    strong = [curve for curve in strong if len(curve.points) > 1 and curve.points[0].ranks == 1]
    told = {id(point.cell) for curve in (*strong, *weak) if len(curve.points) > 1 for point in curve.points}
    # A cell without anything to set it against is shown once, with the reason.
    return [c for c in weak if len(c.points) > 1 or id(c.points[0].cell) not in told] + strong


def _ranks(cell: Cell) -> int:
    return int(cell.axes.get("ranks", 1))


def _curves(family: Sequence[Cell], names: Sequence[str], held: Held) -> Iterable[Curve]:
    def size_of(cell: Cell) -> int:
        return cell.batch_size * (_ranks(cell) if held == "total" else 1)

    several = sorted((cell for cell in family if _ranks(cell) > 1), key=_ranks)
    emulated = str(family[0].axes.get("device", "")).startswith("emulated")
    for size, link in dict.fromkeys((size_of(c), c.axes.get("interconnect")) for c in family if _ranks(c) > 1):
        # A single rank exchanges nothing, whichever interconnect it was given.
        single = [cell for cell in family if _ranks(cell) == 1 and cell.batch_size == size]
        alone = next(iter([c for c in single if c.axes.get("interconnect") == link] or single), None)
        members = [cell for cell in several if (size_of(cell), cell.axes.get("interconnect")) == (size, link)]
        points = tuple(_against(cell, alone, size) for cell in ([alone] if alone else []) + members)
        yield Curve(held, size, family[0].pipeline, link, label(family[0], names), emulated, points)


def _against(cell: Cell, alone: Cell | None, batch_size: int) -> Point:
    def without_rate(one: Cell) -> str:
        return "out of memory" if one.status == "oom" else one.error or one.status

    why, speedup, ranks, typical = None, None, _ranks(cell), cell.typical
    rate, base = (each.samples_per_s if each is not None and each.status == "ok" else None for each in (cell, alone))
    if rate is None:
        why = without_rate(cell)
    elif alone is None:
        why = f"one rank was not run at batch {batch_size}"
    elif base is None:
        why = f"one rank at batch {batch_size}: {without_rate(alone)}"
    else:
        speedup = Range(1.0, 1.0, 1.0, 1) if cell is alone else rate.over(base)
    efficiency = None if speedup is None else speedup.divided_by(ranks)
    waiting = None if typical is None or typical.job is None else typical.job.waiting_share
    told = None if typical is None else typical.info.get("exchange")
    exchange_ms = float(told["ms"]) if isinstance(told, dict) and "ms" in told else None
    waiting_pct = None if waiting is None else 100 * waiting
    beside = ranks, cell.batch_size, cell.status, rate, speedup, efficiency, why
    return Point(cell, *beside, waiting_pct, exchange_ms)


# How near loaders come to what the machine can do with the same files.
#
# One core reads, decodes and transforms a sample one after the other, so the times of these parts add up; so do they
# for all cores at once, whose rates were measured at once. Handing batches over and copying them go on beside that, so
# they only bound it. Files are taken to be in memory; what the storage gives (`stored`) is told beside that. What can
# be done without (`aside`) is told and does not count. The rule was fixed before any of our own loaders was tuned
# against it.

ROOFLINE = "roofline"
"""Key of a comparison's setting that has what was measured."""
MAKING, BESIDE, STORED, ASIDE = "making", "beside", "stored", "aside"
"""Kinds of parts: done one after the other by whoever makes samples; done meanwhile by others; by the storage, of files
that are not in memory; not needed."""


@dataclass(frozen=True)
class LoadingPart:
    """One part of what a loader does, done alone. Rates are samples/s, medians over rounds with their range."""

    name: str
    kind: str
    one_core: Range
    """One core, the others idle."""
    all_cores: Range
    """All cores at once."""


@dataclass(frozen=True)
class Roofline:
    """The most that a machine can make of some samples."""

    place: Mapping[str, Any]
    """`net`, `store` and `augment` of the samples: where the cells stand that it is of."""
    decoder: str
    transformer: str
    """The libraries of the fastest decoding and transforming that was found."""
    cores: int
    one_core: float
    """Samples/s of one core."""
    limit: float
    """Samples/s of all cores at once."""
    bound_by: str
    """`making`, or the part beside it that is slower."""
    parts: tuple[LoadingPart, ...]

    def share(self, cell: Cell) -> float | None:
        """Give a cell's rate over the limit, 0 to 1 and seldom more; `None` of one that did not run, or that a loader
        does not make such samples for."""
        if cell.feed == "synthetic" or any(cell.axes.get(name) != at for name, at in self.place.items()):
            return None
        rate = cell.samples_per_s
        return None if cell.status != "ok" or rate is None else rate.value / self.limit

    def reached(self, cells: Iterable[Cell]) -> list[tuple[float, Cell]]:
        """Give (share of the limit, cell) of those that have a share, the fastest first."""
        found = [(share, cell) for cell in cells if (share := self.share(cell))]
        return sorted(found, key=lambda pair: -pair[0])


def rooflines(setting: Mapping[str, Any]) -> list[Roofline]:
    """Read the rooflines of a comparison's setting; those of which nothing was measured are left out.

    Args:
        setting: has a list of them, each with `place`, `decoder`, `transformer`, `cores`, and `parts`: with `name`,
            `kind` and, of each round, `one` and `all`.
    """
    found = []
    for told in setting.get(ROOFLINE, ()):
        parts = []
        for each in told.get("parts", ()):
            one, every = (range_of((rate for rate in each[cores] if rate > 0), median) for cores in ("one", "all"))
            if one is not None and every is not None:
                parts.append(LoadingPart(each["name"], each["kind"], one, every))
        making = [part for part in parts if part.kind == MAKING]
        if not making:
            continue
        one_core = 1 / sum(1 / part.one_core.value for part in making)
        limit, bound_by = 1 / sum(1 / part.all_cores.value for part in making), MAKING
        for part in parts:
            if part.kind == BESIDE and part.all_cores.value < limit:
                one_core, limit, bound_by = min(one_core, part.one_core.value), part.all_cores.value, part.name
        told_of = told["place"], told["decoder"], told["transformer"], told["cores"]
        found.append(Roofline(*told_of, one_core, limit, bound_by, tuple(parts)))
    return found


def of_limit(cell: Cell, among: Sequence[Roofline]) -> float | None:
    """Give a cell's rate over the limit of its samples, 0 to 1; `None` where that has no limit, or it did not run."""
    return next((share for each in among if (share := each.share(cell)) is not None), None)
