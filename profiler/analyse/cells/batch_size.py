"""Why a larger batch got slower, or no faster: time per sample, term by term, and the mechanism behind it.

The largest size with enough steps is compared with the one of the others that takes least time per sample: a sweep
usually gets faster up to some size, and the question is what came after it. Time per sample decides, never the length
of a run.

Each term of a run, as a share of its size's time per sample, is taken for the sum of what the size makes it, what the
block of runs made it (the machine's drift hits all runs of a round alike), and noise. Least squares tell these apart;
since all terms have the same design, the estimates of the parts sum to that of the total. A sweep has few runs, so
their variance is weighed with what runs on an ordinary machine differ by (`SWEEP_PRIOR`): one run of each size still
has an interval, and a noisy machine widens it soon.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...record.schema import NOT_MEASURED, StepFlag
from ..causes.diagnosis import LEAST_STEPS
from ..causes.finding import Evidence
from ..run.facts import MACHINE_FULL_PCT, Facts
from ..run.loader_stats import BUSY
from ..run.stall_breakdown import PARTS, TERMS, TOTAL
from ..shares import MOSTLY
from ..statistics import OUTSIDE, SWEEP_PRIOR, Estimate, LeastSquares, Values, median_of_known, students_t

MOST_RUNS = 50
"""Runs of a size beyond which it is not said how many would show a change: nobody makes more."""
LEAST_WHOLE_BLOCKS = 2
"""Blocks in which every size ran, from which they tell a drift of the machine from noise."""
CONSIDERABLE_CHANGE = 0.05
"""Change of a term, as a share of the time per sample at the smaller size, below which it counts as none. More than
`diff`'s `LEAST_PART_CHANGE`, from which a part has a line of its own: a verdict on batch sizes rests on this."""
UNSURE = 0.10
"""Half the interval of the time per sample, as a share of it, from which runs that show no change prove none either."""
HINDERING_CPUS = 0.5
"""CPUs that other programs use on a full machine, from which what was measured there is not taken for the cell's own.
More than `LEAST_FOREIGN_CPUS`, from which such programs are mentioned: here a verdict is withheld for them."""
LONGER_GAPS = 1.3
"""Median length of the device's gaps at the larger size over that at the smaller, from which it is said that a trace of
the utilisation looks worse though nothing is slower."""
FLOOR_SHARE = 0.10
"""Share of the time at the larger size that is exposed waiting for data, where nothing grew, from which the loader sets
the pace."""
SATURATED_SHARE = 0.85
"""Share of the time at the larger size that the device has to compute to have little left to give."""
MORE_SAMPLES = 1.3
"""Samples of a run at the larger size over those at the smaller, from which its length says nothing of its speed."""
LONGER = 1.1
"""Length of a run at the larger size over that at the smaller, from which one who looks at hours calls it slower."""
MORE_PAGES = 1.5
"""Pages a sample touched for the first time at the larger size over those at the smaller, from which they are told."""
MORE_FAULTS, LEAST_FAULTS = 2.0, 0.05
"""Page faults a sample that read from the disk, at the larger size over those at the smaller and at the larger size
alone, from which memory is what the batch lacks."""
MORE_ELEMENTS = 0.05
"""Growth of the elements of a sample, as a share, from which samples are padded more."""
LEAST_MEGABYTES = 0.1
"""Size of a batch below which its bytes are no evidence: it is moved in no time."""

STARTING, FILLING, HANDED, READING, MAKING = (
    "input starting",
    "input filling",
    "input handed",
    "input reading",
    "input making",
)
COLLATING = "collating"
"""Putting samples together, which workers do side by side: their time over as many samples as they make at a time."""
RETRYING, NEW_SHAPES = "retrying", "new shapes"
"""Extra time of steps around the allocator's retries, and of steps with new input shapes."""

Terms = dict[str, float]
"""µs per sample by term: the six parts, their sum (`total`), and pieces of them; NaN where not measured."""


# What a run contributes.


def terms_of(facts: Facts) -> Terms:
    """Divide the time per sample of a run into its terms."""
    waits, loader = facts.waits, facts.loader
    # Where no batch is told to a step, nothing is known of what a wait waited for.
    told = 1.0 if waits.told > 0 or waits.total_ns == 0 else np.nan
    times: Terms = {part: getattr(facts.parts, f"{part}_ns") for part in PARTS}
    times |= {
        TOTAL: facts.parts.wall_ns,
        STARTING: waits.starting_ns,
        FILLING: waits.filling_ns,
        HANDED: told * waits.handed_ns,
        READING: told * waits.reading_ns,
        MAKING: told * waits.making_ns,
        RETRYING: 0.0 if facts.memory_pressure is None else facts.memory_pressure.total_ns,
        NEW_SHAPES: 0.0 if facts.shape_churn is None else facts.shape_churn.total_ns,
    }
    per_sample = 1e-3 / facts.samples
    collating = 1e3 * loader.make_ms_per_sample * loader.collate_pct / 100 / max(1, loader.workers)
    return {name: ns * per_sample for name, ns in times.items()} | {COLLATING: collating}


def alike_in_starts(runs: Sequence[Facts]) -> list[Terms]:
    """Give the terms of runs, in which beginning an epoch counts as often a sample as it happened.

    A window leaves out the first epoch's beginning: a run of one epoch shows none, one of two epochs one of two. That
    is no matter where all runs have the same epochs. Where they do not, each beginning seen stands for those that are
    not; if a run shows none at all, beginnings are left out of all.
    """
    terms = [terms_of(run) for run in runs]
    seen = [(run.waits.epochs, epochs_of(run)) for run in runs]
    if len(set(seen)) == 1:
        return terms
    shown = all(in_window for in_window, _ in seen)
    for one, run, (in_window, epochs) in zip(terms, runs, seen, strict=True):
        factor = epochs / in_window * run.samples / samples_of(run) if shown else 0.0
        for name in (STARTING, FILLING):
            change = (factor - 1) * one[name]
            one[name] += change
            one["input"] += change
            one[TOTAL] += change
    return terms


def epochs_of(facts: Facts) -> int:
    """Count the passes over the data that began, in the warm-up or after it."""
    return max(1, int(((facts.window.all_steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0).sum()))


def samples_of(facts: Facts) -> int:
    """Count the samples of a whole run, the warm-up included."""
    warm = facts.window.all_steps[: len(facts.window.all_steps) - len(facts.window.steps)]
    known = warm["samples"][warm["samples"] != NOT_MEASURED]
    between = facts.window.steps["skipped_samples"][:1].sum() + warm["skipped_samples"].sum()
    return facts.samples + int(known.sum() + between)


def _batches_per_epoch(facts: Facts) -> float:
    """Average over the epochs that began, the last of which may be shorter."""
    window = facts.window
    return (window.count + window.warmup_steps + int(window.steps["skipped"][:1].sum())) / epochs_of(facts)


def _elements_per_sample(facts: Facts) -> float | None:
    """Count what computing and moving a sample are in proportion to, with padding; `None` where not told."""
    steps = facts.window.steps
    elements = (steps["flags"] >> StepFlag.ELEMENTS_SHIFT) & StepFlag.MOST_ELEMENTS
    told = ((steps["flags"] & StepFlag.SHAPE_KNOWN) != 0) & (elements > 0) & (elements < StepFlag.MOST_ELEMENTS)
    told &= steps["samples"] > 0
    samples = int(steps["samples"][told].sum())
    return float(elements[told].sum()) / samples if samples else None


FIGURES: Mapping[str, tuple[str, str, Callable[[Facts], float | None]]] = {
    "batches": ("Batches per epoch", "", _batches_per_epoch),
    "making": ("Preparing a sample", "ms", lambda run: run.loader.make_ms_per_sample),
    "busy": ("Workers busy", "%", lambda run: None if run.made_in_training else run.loader.worker_busy_pct),
    "workers": ("Workers", "", lambda run: max(run.set_workers or 0, run.loader.makers)),
    "elements": ("Elements per sample", "", _elements_per_sample),
    "pages": (
        "Pages touched for the first time per sample",
        "",
        lambda run: run.loader.minor_faults_per_batch / run.batch_size if run.batch_size else None,
    ),
    "faults": ("Page faults that read from disk, per sample,", "", lambda run: run.loader.major_faults / run.samples),
    "megabytes": ("Bytes of a batch", "MB", lambda run: run.loader.mean_batch_bytes / 1e6),
    "clock": (
        "Multiprocessor clock while computing",
        "MHz",
        lambda run: None if run.device_state is None else run.device_state.clock_mhz,
    ),
    "retries": (
        "Allocator retries per run",
        "",
        lambda run: 0 if run.memory_pressure is None else run.memory_pressure.count,
    ),
    "first": (
        "Wait for an epoch's first batch",
        "ms",
        lambda run: (
            (run.waits.starting_ns + run.waits.filling_ns) / run.waits.epochs / 1e6 if run.waits.epochs else None
        ),
    ),
    "gap": (
        "Gap of the device",
        "ms",
        lambda run: float(np.median(run.parts.gaps_ns)) / 1e6 if len(run.parts.gaps_ns) else None,
    ),
    "others": ("CPUs of other programs", "", lambda run: run.foreign_cpus),
    "machine": ("CPUs in use", "%", lambda run: run.sampled.machine_busy_pct),
}
"""Name → (what it is in the evidence, unit, a run's figure, `None` or NaN where not measured) of what the rules ask
about."""


# What sizes differ by.


RunTerms = tuple[int, Any, Mapping[str, float]]
"""What one run contributes to a sweep: (batch size, block, time per sample of each term, `total` among them). Runs of
the same block followed each other on one machine; `None` where that is not known."""


class SweepFit:
    """Estimates of every term at every size.

    Raises:
        ValueError: no run.
    """

    def __init__(self, runs: Sequence[RunTerms]) -> None:
        self._sizes = sorted({size for size, *_ in runs})
        self._totals = {
            each: float(np.mean([terms[TOTAL] for size, _, terms in runs if size == each])) for each in self._sizes
        }
        self._terms = list(runs[0][-1])
        shares = np.array([[terms[name] / self._totals[size] for name in self._terms] for size, _, terms in runs])
        # A column for each size, and one for each block but the last, in which the last is what makes them sum to 0.
        # Blocks count where at least `LEAST_WHOLE_BLOCKS` of them hold every size.
        held: dict[Any, set[int]] = {}
        for size, block, _ in runs:
            held.setdefault(block, set()).add(size)
        whole = sum(block is not None and of == set(self._sizes) for block, of in held.items())
        blocks = sorted(held) if whole >= LEAST_WHOLE_BLOCKS and None not in held else []
        columns = [[float(size == each) for size, *_ in runs] for each in self._sizes]
        columns += [[float(at == each) - float(at == blocks[-1]) for _, at, _ in runs] for each in blocks[:-1]]
        self._solved = LeastSquares(np.array(columns).T, shares)
        variance = SWEEP_PRIOR.variance(self._solved.squares, self._solved.freedom)
        # A term that no run has, such as copies where the processor is the device, has no noise either.
        self._variance: Values = np.where((shares != 0).any(axis=0), variance, 0.0)
        freedom = self._solved.freedom + SWEEP_PRIOR.freedom
        self._reach = students_t(freedom)
        # The sizes that are compared are chosen by what they took, of so many pairs.
        self._reach_of_change = students_t(freedom, OUTSIDE / max(1, len(self._sizes) - 1))

    @property
    def noise(self) -> float:
        """Standard deviation that the time per sample of runs of one size is taken to have, as a share of it."""
        return float(np.sqrt(self._variance[self._terms.index(TOTAL)]))

    def at(self, size: int, term: str) -> Estimate:
        """Estimate a term at one size; all NaN where it is not known of a run."""
        return self._estimate(term, {size: self._totals[size]}, self._reach).positive()

    def change(self, smaller: int, larger: int, term: str) -> Estimate:
        """Estimate what a term grew by; its interval is for whichever two of the sizes."""
        weights = {larger: self._totals[larger], smaller: -self._totals[smaller]}
        return self._estimate(term, weights, self._reach_of_change)

    def runs_for(self, change: float) -> int | None:
        """Count the runs of each of two sizes that would show so large a change of the time per sample, a share of it;
        `None` for more than `MOST_RUNS`."""
        for runs in range(2, MOST_RUNS + 1):
            spread = float(np.sqrt(2 / runs)) * self.noise
            if students_t(runs - 1 + SWEEP_PRIOR.freedom) * spread <= change:
                return runs
        return None

    def _estimate(self, term: str, weights: Mapping[int, float], quantile: float) -> Estimate:
        """Estimate a term summed over sizes, each with its weight."""
        covariance = self._solved.covariance
        weight = np.zeros(len(covariance))
        for size, factor in weights.items():
            weight[self._sizes.index(size)] = factor
        column = self._terms.index(term)
        value = float(weight @ self._solved.coefficients[:, column])
        deviation = float(np.sqrt(self._variance[column] * (weight @ covariance @ weight)))
        return Estimate.around(value, quantile * deviation)


@dataclass(frozen=True)
class Compared:
    """Two batch sizes of a sweep."""

    fit: SweepFit
    smaller: int
    larger: int
    before: Sequence[Facts]
    """The runs of the smaller size."""
    after: Sequence[Facts]
    """The runs of the larger size."""

    def times(self, term: str) -> tuple[float, float]:
        """Give a term at both sizes, µs per sample."""
        return self.fit.at(self.smaller, term).value, self.fit.at(self.larger, term).value

    def change(self, term: str) -> Estimate:
        """Estimate what a term grew by from the smaller to the larger size, µs per sample."""
        return self.fit.change(self.smaller, self.larger, term)

    def figure(self, name: str) -> tuple[float, float] | None:
        """Give one of `FIGURES` at both sizes, the median over their runs; `None` unless both are known."""
        value = FIGURES[name][2]
        before, after = (median_of_known(value(run) for run in runs) for runs in (self.before, self.after))
        return None if before is None or after is None else (before, after)

    def evidence(self, name: str) -> tuple[Evidence, ...]:
        """Give one of `FIGURES` at both sizes as evidence; empty where it is not known, or explains nothing: bytes of
        small batches, pages that did not become more."""
        values, (what, unit, _) = self.figure(name), FIGURES[name]
        least = {"megabytes": LEAST_MEGABYTES, "pages": MORE_PAGES * values[0] if values else 0.0}
        if values is None or values[1] < least.get(name, 0.0):
            return ()
        both = zip((self.smaller, self.larger), values, strict=True)
        return tuple(Evidence(f"{what} at batch {size}", value, unit) for size, value in both)

    def moved(self, term: str = TOTAL) -> int:
        """Tell 1 where a term surely grew, considerably so, -1 where it surely fell, else 0."""
        change, least = self.change(term), CONSIDERABLE_CHANGE * self.times(TOTAL)[0]
        return int(change.above_zero and change.value > least) - int(change.below_zero and -change.value > least)

    @cached_property
    def risen(self) -> list[str]:
        """The parts that surely grew, the one that did most first."""
        return sorted((part for part in PARTS if self.moved(part) > 0), key=lambda part: -self.change(part).value)

    @property
    def grew(self) -> str | None:
        """The part that grew most; `None` where none surely did."""
        return self.risen[0] if self.risen else None

    @property
    def growth(self) -> float:
        """Growth of `grew`, µs per sample; 0 where no part grew."""
        return self.change(self.grew).value if self.grew is not None else 0.0

    def is_due_to(self, *names: str) -> bool:
        """Whether these terms together grew by most of `growth`; not if one of them is not known."""
        return sum(self.change(name).value for name in names) >= MOSTLY * self.growth

    @property
    def slower(self) -> bool:
        """Whether a sample surely takes longer at the larger size, and considerably so."""
        return self.moved() > 0

    @property
    def reach(self) -> float:
        """Half the interval of the total's change, as a share of the time per sample."""
        change = self.change(TOTAL)
        return (change.high - change.value) / self.times(TOTAL)[0]

    @property
    def unsure(self) -> bool:
        """Whether the runs differ by too much to tell slower from faster."""
        return not self.moved() and self.reach > UNSURE

    @property
    def grown(self) -> str:
        """The parts that grew, in words; empty where none did."""
        said = [f"{part} grew from {_both(self.times(part), ' to ')} per sample" for part in self.risen]
        return f"{said[0]} ({' and '.join(said[1:])} as well)" if len(said) > 1 else "".join(said)


def duration(us: float) -> str:
    """Write a time per sample, in the unit that suits it."""
    return f"{us:.0f} µs" if abs(us) < 999.5 else f"{us / 1e3:.2f} ms"


def _both(times: tuple[float, float], between: str) -> str:
    return between.join(map(duration, times))


# Why a part grew.


@dataclass(frozen=True)
class SizeRule:
    """A mechanism by which a part of the time grows."""

    parts: tuple[str, ...]
    """Parts that it can make longer."""
    cause: str
    """One of the contract's."""
    due: tuple[str, ...]
    """Terms that together have to have grown by most of it; empty: any."""
    why: str | Callable[[Compared], str]
    """The rest of a sentence that begins with what grew; empty where it does not hold."""
    shows: tuple[str, ...] = ()
    """Names of its evidence among `FIGURES`."""

    def holds(self, compared: Compared) -> str:
        """Say why, where it holds; else empty."""
        if compared.grew not in self.parts or not (self.due == () or compared.is_due_to(*self.due)):
            return ""
        return self.why if isinstance(self.why, str) else self.why(compared)


def _too_few_batches(compared: Compared) -> str:
    """An epoch of fewer batches than workers leaves some of them without any."""
    had, has = map(round, compared.figure("batches") or (0.0, 0.0))
    most = round(max(compared.figure("workers") or (0.0,)))
    due = compared.is_due_to(STARTING, FILLING) or compared.is_due_to(STARTING, FILLING, MAKING)
    if not has < min(had, most) or not due:
        return ""
    return (
        f"because an epoch has {has} batch{'es' * (has != 1)} for {most} workers, and one worker prepares each batch. "
        "Longer epochs or a smaller batch give all of them work"
    )


def _epochs_begin(compared: Compared) -> str:
    """The first batch of an epoch takes longer to come."""
    if compared.is_due_to(STARTING):
        return (
            "at the beginning of epochs, before a worker has started on a batch. Keep the workers from epoch to "
            "epoch (`persistent_workers=True`), or make epochs longer"
        )
    return (
        "at the first batch of each epoch, which one worker has to prepare before anything can compute. Longer "
        "epochs spread that over more batches; a smaller batch is ready sooner"
    )


def _padding(compared: Compared) -> str:
    """Samples are padded to the longest of their batch, and a larger batch has a longer one."""
    elements, grew = compared.figure("elements"), compared.grew
    more = elements[1] / elements[0] - 1 if elements is not None and elements[0] else 0.0
    if grew == "input":
        # Of the wait for data only what puts together and moves a batch is in proportion to its elements.
        explains = compared.is_due_to(HANDED, COLLATING)
    else:
        explains = grew is not None and more * compared.times(grew)[0] >= MOSTLY * compared.growth
    if more < MORE_ELEMENTS or not explains:
        return ""
    return (
        f"because samples have {100 * more:.0f} % more elements: each is padded to the longest of its batch, and a "
        "larger batch has a longer one. Batch samples of similar length together"
    )


def _memory_read_back(compared: Compared) -> str:
    """Memory that is needed again was given up meanwhile."""
    faults = compared.figure("faults")
    if faults is None or faults[1] < max(LEAST_FAULTS, MORE_FAULTS * faults[0]):
        return ""
    return (
        "because memory that was needed again had to be read from disk: batches of this size leave too little for "
        "the rest. Prefetch fewer batches, or use a smaller batch"
    )


def _clock(compared: Compared) -> str:
    """The device computes at a lower clock."""
    had, has = compared.figure("clock") or (0.0, 0.0)
    if not has or (had / has - 1) * compared.times("compute")[0] < MOSTLY * compared.growth:
        return ""
    why = f"because the device's clock fell from {had:.0f} to {has:.0f} MHz"
    states = (run.device_state.throttled for run in compared.after if run.device_state is not None)
    if (by := next((state.by for state in states if state is not None), None)) is not None:
        why += f" ({by}). A higher power limit or better cooling gives that back; so does the smaller batch"
    return why


def _loader_floor(compared: Compared) -> str:
    """The loader sets the pace: nothing else explains that the wait grew."""
    making, busy = compared.figure("making") or (0.0, 0.0), compared.figure("busy")
    in_training = any(run.made_in_training for run in compared.after)
    # All workers prepare samples side by side.
    workers = max(1.0, (compared.figure("workers") or (1.0, 1.0))[1])
    if compared.slower and 1e3 * (making[1] - making[0]) / workers >= MOSTLY * compared.growth:
        why = f"because preparing a sample takes {making[1]:.2f} ms instead of {making[0]:.2f}"
    elif busy is not None and busy[1] < 100 * BUSY and not in_training:
        return (
            "although the workers idle part of the time: batches come in larger pieces, less evenly. More "
            "prefetched batches (`prefetch_factor`) or more workers bridge that"
        )
    else:
        why = "because the loader sets the pace, and a larger batch makes it no faster"
    change = "workers, which prepare batches beside the training" if in_training else "more workers"
    return f"{why}. Give it {change}, or cheaper samples"


def _kernels(compared: Compared) -> str:
    """Nothing known explains that the computation takes longer: name what was looked at."""
    told = ["its clock"] * (compared.figure("clock") is not None)
    told += ["retries of its memory"] * (compared.after[0].device_kind != "cpu")
    told += ["the size of the samples"] * (compared.figure("elements") is not None)
    words = " and ".join(filter(None, (", ".join(told[:-1]), *told[-1:])))
    does = "do" if len(told) > 1 or words.startswith("retries") else "does"
    but = f", and {words} {does} not explain it" if told else ""
    return f"in the step's own computation, which takes longer per sample{but}"


def _copying(compared: Compared) -> str:
    if all(run.pinned is False for run in compared.after):
        return "in copies to the device from pageable memory. Set `pin_memory=True`"
    ahead = any(run.copied_ahead for run in compared.after)
    how = "" if ahead else ", while nothing computes. Copy the next batch ahead, on a stream of its own"
    return f"in copies to the device{how}"


def _own_work(compared: Compared) -> str:
    if not compared.slower:
        return "in the training loop's own work, which the device no longer covers"
    return "in the training loop's own work: something in it takes more than twice as long for twice the samples"


RULES = (
    SizeRule(("input",), "fewer_batches_than_workers", (), _too_few_batches, ("batches",)),
    SizeRule(("input",), "pipeline_fill", (STARTING, FILLING), _epochs_begin, ("first",)),
    SizeRule(
        ("compute", "host"),
        "memory",
        (RETRYING,),
        "around retries of the device's memory allocator: the batch hardly fits. Use a smaller batch with "
        "gradient accumulation",
        ("retries",),
    ),
    SizeRule(
        ("compute", "host"),
        "compute_growth",
        (NEW_SHAPES,),
        "in steps with new input shapes, for which libraries tune or compile anew. Fixed "
        "shapes, or only a few, avoid that",
    ),
    SizeRule(("input", "compute", "copy"), "padding", (), _padding, ("elements",)),
    SizeRule(
        ("input",),
        "handoff_growth",
        (HANDED,),
        "during the hand-over of finished batches to the training. Hand over less (8-bit images, "
        "fewer tensors), or use a smaller batch",
        ("megabytes", "pages"),
    ),
    SizeRule(
        ("input",),
        "handoff_growth",
        (COLLATING,),
        "where samples are collated: the memory of so large a batch is freed after it, so every page "
        "is new for the next. A smaller batch or 8-bit samples avoid that",
        ("megabytes", "pages"),
    ),
    SizeRule(("input",), "memory", (READING, MAKING), _memory_read_back, ("faults",)),
    SizeRule(("compute",), "clock", (), _clock, ("clock",)),
    SizeRule(("input",), "loader_floor", (), _loader_floor, ("making", "busy")),
    SizeRule(("compute",), "compute_growth", (), _kernels),
    SizeRule(("copy",), "handoff_growth", (), _copying, ("megabytes",)),
    SizeRule(("sync",), "none", (), "in calls that wait for the device and then use what they read"),
    SizeRule(("host",), "none", (), _own_work),
    SizeRule(("boundary",), "none", (), "outside the steps: validation, checkpoints or hooks of epochs"),
)
"""For each part that can grow, from the specific to the general: the first rule that holds says why."""


# What is said of a sweep.


@dataclass(frozen=True)
class Work:
    """Work of a run of one batch size; medians over its runs."""

    samples: int
    seconds: float


@dataclass(frozen=True)
class BatchVerdict:
    """The effect of the batch size on one loader."""

    cause: str
    """One of the contract's."""
    grew: str | None
    """Part of the time that grew most; `None` where none did."""
    text: str
    """The mechanism in a sentence or two, with its figures."""
    smaller: int
    """The size that the larger is compared with: of the others the one with the least time per sample."""
    larger: int
    """The largest size with enough steps."""
    terms: Mapping[int, Mapping[str, Estimate]]
    """Per batch size: each of `TERMS` in µs a sample, with the interval of its mean over the runs."""
    medians: Mapping[int, Mapping[str, float]]
    """Per batch size: each of `TERMS` in µs a sample, the median over the runs; those of the parts do not sum to the
    total's."""
    changes: Mapping[str, Estimate]
    """Growth of each of `TERMS` from `smaller` to `larger`, µs a sample. With more than two sizes the intervals are
    wider, since these two were chosen among them."""
    work: Mapping[int, Work]
    """Per batch size."""
    runs: Mapping[int, int]
    """Number of runs per batch size."""
    noise: float
    """Assumed difference between runs of one size: standard deviation, as a share of the time per sample."""
    evidence: tuple[Evidence, ...] = ()


Said = tuple[str, str, tuple[Evidence, ...]]
"""(cause, all that is said of it but the full stop, evidence)."""


def batch_verdict(rows: Iterable[tuple[int, Any, Facts]]) -> BatchVerdict | None:
    """Judge one loader's runs by batch size; `None` with fewer than two sizes.

    Args:
        rows: (batch size, block, facts) of each run; runs of one block followed each other on one machine, and `None`
            is a block that is not known.
    """
    counted = [row for row in sorted(rows, key=lambda row: row[0]) if row[2].samples_known and row[2].samples]
    runs = {size: [run for of, _, run in counted if of == size] for size, _, _ in counted}
    if len(runs) < 2:
        return None
    times = alike_in_starts([run for _, _, run in counted])
    measured = [(size, block, each) for (size, block, _), each in zip(counted, times, strict=True)]
    fit = SweepFit(measured)
    steps = {size: int(np.median([run.window.count for run in known])) for size, known in runs.items()}
    long = [size for size in runs if steps[size] >= LEAST_STEPS]
    judged = long if len(long) > 1 else list(runs)
    larger = max(judged)
    smaller = min((size for size in judged if size != larger), key=lambda size: fit.at(size, TOTAL).value)
    compared = Compared(fit, smaller, larger, runs[smaller], runs[larger])
    work = {
        size: Work(
            int(np.median([run.samples for run in known])),
            float(np.median([run.parts.wall_ns for run in known])) / 1e9,
        )
        for size, known in runs.items()
    }
    cause, text, evidence = _judge(compared, work[smaller], work[larger])
    if short := [size for size in steps if steps[size] < LEAST_STEPS]:
        # Starting weighs more in them than it does in a training.
        told = ", ".join(f"{steps[size]} at batch {size}" for size in short)
        count = "prove little" if set(short) & set(judged) else "are left out"
        text += f". Runs of fewer than {LEAST_STEPS} steps ({told}) {count}: starting up weighs too much in them"
    return BatchVerdict(
        cause=cause,
        grew=compared.grew,
        text=f"{text}.",
        smaller=smaller,
        larger=larger,
        terms={size: {term: fit.at(size, term) for term in TERMS} for size in runs},
        medians={
            size: {t: float(np.median([terms[t] for of, _, terms in measured if of == size])) for t in TERMS}
            for size in runs
        },
        changes={term: compared.change(term) for term in TERMS},
        work=work,
        runs={size: len(known) for size, known in runs.items()},
        noise=fit.noise,
        evidence=evidence,
    )


def _judge(compared: Compared, before: Work, after: Work) -> Said:
    """Say what became of the larger size. `before`, `after`: what a run of either size did."""
    smaller, larger, grown = compared.smaller, compared.larger, compared.grown
    samples, longer = after.samples / before.samples, after.seconds / before.seconds
    said = _total(compared)
    # Clearly more samples than what runs differ by could account for.
    more = samples > max(MORE_SAMPLES, 1 + 2 * compared.reach) and longer > LONGER
    there = f". There, {grown}" if grown else ""
    if more and not compared.slower:
        because = "mostly because" if compared.unsure else "only because"
        text = (
            f"batch {larger} took {longer:.2f}× as long as batch {smaller} {because} it processed {samples:.2f}× as "
            f"many samples ({after.samples} against {before.samples}); {said}{there}"
        )
        return "accounting", text, ()
    if compared.moved() and (others := _others(compared)):
        return "none", f"{said}, but {others}. Run both sizes again, in turn", ()
    if compared.unsure:
        enough = compared.fit.runs_for(CONSIDERABLE_CHANGE)
        would = f"more than {MOST_RUNS} of each" if enough is None else f"about {enough} of each"
        runs = f"runs of one size differ too much; {would} would tell"
        if len(compared.before) == len(compared.after) == 1:
            runs = f"one run of each size cannot tell; {would} would"
        return "none", f"{said}: {runs}{there}", ()
    if compared.slower and more:
        slower = 1 + compared.change(TOTAL).value / compared.times(TOTAL)[0]
        said += f". Its runs took {longer:.2f}× as long: {slower:.2f}× for that, and the rest is more samples"
    if compared.grew is None:
        if compared.slower:
            return "none", f"{said}, and no single part explains it", ()
        return ("none", f"a larger batch is faster: {said}", ()) if compared.moved() < 0 else _level(compared, said)
    rule, why = next((rule, why) for rule in RULES if (why := rule.holds(compared)))
    if compared.moved() < 0:
        return "none", f"a larger batch is faster: {said}. Meanwhile {grown}, {why}", ()
    evidence = tuple(each for name in rule.shows for each in compared.evidence(name))
    if compared.slower:
        return rule.cause, f"{said}{there}, {why}", evidence
    gaps = _longer_gaps(compared) if rule.cause == "loader_floor" else ""
    return rule.cause, f"a larger batch gains nothing: {said}{there}, {why}{gaps}", evidence


def _total(compared: Compared) -> str:
    """Say what became of the time per sample, and how sure that is."""
    times, change = compared.times(TOTAL), compared.change(TOTAL)
    figures = f"(±{100 * compared.reach:.1f} %; {_both(times, ' → ')})"
    more = f"{abs(100 * change.value / times[0]):.1f} % {'more' if change.value > 0 else 'less'} time per sample than"
    if compared.unsure:
        return f"batch {compared.larger} took {more} batch {compared.smaller} {figures}, which proves nothing"
    if change.low <= 0 <= change.high:
        return f"batch {compared.larger} takes as long per sample as batch {compared.smaller} {figures}"
    little = "" if compared.moved() else ", too little to count"
    return f"batch {compared.larger} takes {more} batch {compared.smaller} {figures}{little}"


def _others(compared: Compared) -> str:
    """Say that other programs may be why one size took longer: they took the CPUs of its runs more than of
    the others', or of a single run, which has no second one to tell what they did to it; else empty."""
    others, full = compared.figure("others"), compared.figure("machine")
    (slow, quick) = (1, 0) if compared.slower else (0, 1)
    if others is None or full is None or full[slow] < MACHINE_FULL_PCT or others[slow] < HINDERING_CPUS:
        return ""
    if others[slow] - others[quick] >= HINDERING_CPUS:
        sizes = compared.smaller, compared.larger
        while_ran = f"other programs used {others[slow]:.1f} CPUs while batch {sizes[slow]} ran"
        return f"{while_ran}, and {others[quick]:.1f} while batch {sizes[quick]} did"
    if min(len(compared.before), len(compared.after)) > 1:
        return ""
    return f"one run of a size does not tell why while other programs use {others[slow]:.1f} CPUs"


def _longer_gaps(compared: Compared) -> str:
    """Say that the device stands still as much, in fewer and longer stretches, which a utilisation trace
    shows as swings to 0; else empty."""
    gaps = compared.figure("gap")
    if gaps is None or gaps[1] < LONGER_GAPS * gaps[0]:
        return ""
    return (
        f". The {compared.after[0].waiter} idles longer at a time (median {gaps[0]:.0f} ms at batch "
        f"{compared.smaller}, {gaps[1]:.0f} ms at batch {compared.larger}), because a larger batch takes longer to "
        "prepare: "
        "utilisation swings more, throughput stays the same"
    )


def _level(compared: Compared, said: str) -> Said:
    """Say what sets the pace, where nothing grew and a sample takes as long as before."""
    total, waiting, who = compared.times(TOTAL)[1], compared.times("input")[1], compared.after[0].waiter
    beginning = sum(compared.times(name)[1] for name in (STARTING, FILLING))
    if waiting - beginning >= FLOOR_SHARE * total:
        text = f"a larger batch gains nothing, because the loader sets the pace: {said}{_longer_gaps(compared)}"
        return "loader_floor", text, ()
    if waiting >= FLOOR_SHARE * total:
        text = (
            f"no part grew: {said}. The {who} waits most at the beginning of epochs, "
            f"{duration(beginning)} per sample at any batch size"
        )
        return "none", text, ()
    if compared.times("compute")[1] >= SATURATED_SHARE * total:
        return "saturated", f"a larger batch gains nothing, as computation takes nearly all the time: {said}", ()
    # The part that keeps the device idle most is work that no batch makes less.
    part = max((part for part in PARTS if part != "compute"), key=lambda part: compared.times(part)[1])
    before, after = map(duration, compared.times(part))
    text = (
        f"no part grew by more than runs differ: {said}. The {who} waits most for {part}: {before} per "
        f"sample at batch {compared.smaller}, {after} at batch {compared.larger}"
    )
    return "none", text, ()
