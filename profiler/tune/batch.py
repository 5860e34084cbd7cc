"""How large a batch should be: what fits into memory, and what is fast.

What fits is tried in processes of their own, which take nothing along when they run out of memory. Doubling shows how
memory grows with the batch; a line through that says how far to jump; what the jump says is tried too, and halved
towards what is known to fit where it fails. Only sizes that were run are ever returned.

What is fast is measured in interleaved rounds on one training under way. A step of B samples takes T(B) = alpha +
beta B: what it costs whatever its size (launches, Python, the optimizer), and what each sample adds.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..analyse.statistics import Estimate, Values
from ..errors import WhyidleError
from ..record.tuning import WITHOUT_MEMORY, Block, LoaderSettings, MemoryUse
from .result import BatchAdvice
from .search import Bench, BenchEnded, TrialFailed
from .standing import WORTH_TUNING, BlockFit, shuffled
from .training import Launch, ScriptBench

MOST_PROBES = 7
"""Sizes tried, each in a process of its own."""
CLIMBS = 3
"""Sizes tried before the line is trusted to jump: the current one, twice and four times it."""
JUMP = 0.9
"""Share of what the line says fits."""
MOST_TIMES = 64
"""Times the current size: where memory is not what limits, larger ones are of no use to anyone."""
MARGIN = 0.05
"""Share of all memory that stays free."""
DEVICE_MARGIN = 512 << 20
"""At least so many bytes of it where a device's own memory is what runs out: fragments, libraries' workspaces."""
WORTH_A_PROCESS = 1.1
"""A size that is less than so many times the largest known to fit is not worth a process."""
LEAST_STEPS = 3
"""Optimizer steps of a pass, and of what is trained before a probe: its own state is there from the second one on."""
MEMORY_RESIDUAL = 0.03
"""Distance of a measured memory from the line from which that is no line."""
EXTRAPOLATED = 2
"""Times the largest measured size that such a line is trusted to."""
STEPS = 8
"""Steps of a probe, unless they are slow."""
PROBE_S = 2.0
"""Seconds that a probe trains for at least, if its steps allow it: see `switching.Measurement`."""

NEAR_BEST = 0.95
"""Share of the best rate that is as good as it."""
LAUNCH_BOUND = 0.30
"""Share of a step that its size does not matter to, from which a batch is too small for the machine."""
MOST_SIZES, FEWEST_SIZES = 6, 4
"""Sizes that are measured; the fewest with many workers, since each size keeps its own."""
MANY_PROCESSES = 96
MOST_BELOW = 2
"""Sizes below the program's own, where there is something above."""
APART = 1.25
"""A size that is less than so many times another tells nothing new."""
BLOCK_S = 1.0
MOST_ROUNDS = 6
LEAST_BATCHES = 3
LOADER_BOUND = 0.2
"""Share of the time that a training waits for batches, from which sizes tell of the loader as much as of it."""
LADDER_SHARE = 0.5
"""Share of the budget for what fits."""

NO_MEMORY_KNOWN = MemoryUse(None, None, on_device=False)
Say = Callable[[str], object]
Rates = Mapping[int, Estimate]
"""Samples/s of each batch size that was measured."""


class ProbeOutcome:
    """What became of a probe."""

    OK = "ok"
    OOM = "oom"
    FAILED = "failed"
    LATE = "late"
    """Too few steps were made in its time: nothing is known of its memory."""


@dataclass(frozen=True)
class Probe:
    """What became of training with one batch size for a few steps, in a process of its own."""

    outcome: str
    """A value of `ProbeOutcome`."""
    steps: int = 0
    """Optimizer steps that were done."""
    memory: MemoryUse = NO_MEMORY_KNOWN
    """Memory that it took, and what there is for it."""
    why: str = ""
    """What it ended with; empty where that is `ok`."""
    seconds: float = 0.0

    @property
    def margin_bytes(self) -> int | None:
        """Memory that must stay free, bytes; `None`: not known."""
        if self.memory.capacity_bytes is None:
            return None
        margin = round(MARGIN * self.memory.capacity_bytes)
        return max(margin, DEVICE_MARGIN) if self.memory.on_device else margin

    @property
    def reason(self) -> str:
        """Why it does not fit; empty where it does: it ran to its end, without the allocator's emergencies, with room
        to spare."""
        if self.outcome != ProbeOutcome.OK:
            return self.why or self.outcome
        if self.memory.retries:
            return f"the allocator had to free its caches {self.memory.retries} times in {self.steps} steps"
        peak, capacity, margin = self.memory.peak_bytes, self.memory.capacity_bytes, self.margin_bytes
        if peak is None or capacity is None or margin is None or peak + margin <= capacity:
            return ""
        used, kept = f"{peak / 1e9:.2f} of {capacity / 1e9:.2f} GB", f"the margin of {margin / 1e9:.2f} GB"
        return f"it used {used} and left less than {kept}"

    @property
    def fits(self) -> bool:
        return not self.reason

    @property
    def held_bytes(self) -> int | None:
        """Memory of a run to its end that the allocator's emergencies did not disturb; `None` for another."""
        return self.memory.peak_bytes if self.outcome == ProbeOutcome.OK and not self.memory.retries else None


Try = Callable[[int, float], Probe]
"""Trains with a batch size in a new process, for at most so many seconds."""


@dataclass(frozen=True)
class Ladder:
    """What was tried, and what it came to."""

    b_max: int | None
    """The largest that fits; `None`: none does."""
    probes: dict[int, Probe] = field(default_factory=dict)
    bounded_by: str = ""
    """What kept it from being larger, a clause."""

    @property
    def memory(self) -> dict[int, int]:
        ran = {size: p.memory.peak_bytes for size, p in sorted(self.probes.items()) if p.steps}
        return {size: peak for size, peak in ran.items() if peak}

    @property
    def failed(self) -> dict[int, str]:
        """Sizes that do not fit, and why."""
        told = ((size, p) for size, p in sorted(self.probes.items()) if p.outcome != ProbeOutcome.LATE)
        return {size: p.reason for size, p in told if not p.fits}


def climb(
    probe: Try,
    first: int,
    budget_s: float,
    dataset_samples: int | None = None,
    most: int | None = None,
    now: Callable[[], float] = time.monotonic,
    say: Say = lambda _: None,
) -> Ladder:
    """Search the largest batch that fits, from the program's own size `first` on. See `advise`."""
    limits = [(MOST_TIMES * first, f"larger sizes than {MOST_TIMES}× the program's own are not tried")]
    if dataset_samples is not None:
        of_data = max(first, dataset_samples // LEAST_STEPS)
        limits.append((of_data, f"a pass over {dataset_samples} samples must have {LEAST_STEPS} steps"))
    if most is not None:
        limits.append((most, "no larger size was asked for"))
    cap, bounded_by = min(limits)
    probes: dict[int, Probe] = {}
    until, size, takes, in_time = now() + budget_s, min(first, cap), 0.0, True
    while size and len(probes) < MOST_PROBES:
        left = until - now()
        in_time = left > takes
        if not in_time:
            break
        say(f"trying whether a batch of {size} fits")
        tried = probes[size] = probe(size, left)
        if tried.outcome == ProbeOutcome.LATE:
            break  # a larger one would take longer
        takes, size = tried.seconds, _next_size(probes, cap)
    low, high = _bounds(probes)
    late = [size for size, tried in probes.items() if tried.outcome == ProbeOutcome.LATE]
    if high:
        bounded_by = f"a batch of {high} does not fit ({probes[high].reason})"
    elif late:
        bounded_by = f"a batch of {late[0]} could not be decided ({probes[late[0]].why})"
    elif not low:
        bounded_by = "no size fits" if probes else "there was no time to try one"
    elif low < cap:
        bounded_by = "memory would not hold much more" if in_time else "the time for trials ran out"
    return Ladder(low or None, probes, bounded_by)


def _bounds(probes: Mapping[int, Probe]) -> tuple[int, int]:
    """Give the largest size that fits, and the smallest above it that does not; 0 where there is none so far."""
    low = max((size for size, tried in probes.items() if tried.fits), default=0)
    above = (s for s, tried in probes.items() if s > low and tried.outcome != ProbeOutcome.LATE and not tried.fits)
    return low, min(above, default=0)


def _next_size(probes: Mapping[int, Probe], cap: int) -> int:
    """Choose what to try next, 0: nothing that is worth a process. Sizes are doubled a few times, then the line tells
    how far to jump; where one did not fit, sizes between are tried, or half of it where none did fit."""
    (low, high), known = _bounds(probes), {size: held for size, tried in probes.items() if (held := tried.held_bytes)}
    if not low:
        # What fails for another reason than memory fails at any size.
        return high // 2 if probes[high].outcome != ProbeOutcome.FAILED else 0
    capacity, margin = probes[low].memory.capacity_bytes, probes[low].margin_bytes
    room = None if capacity is None or margin is None else capacity - margin
    if high:
        middle = (low + high) // 2
        if room is not None and known.get(low, room) < room < known.get(high, room):
            # Both ran: where the margin is met.
            middle = low + int((high - low) * (room - known[low]) / (known[high] - known[low]))
        return neat(middle) if WORTH_A_PROCESS * low <= neat(middle) < high else 0
    target = 2 * low
    if len(probes) >= CLIMBS and capacity is not None and room is not None:
        most, within = largest_within(known, capacity), largest_within(known, room)
        target = cap if most is None or within is None else neat(min(int(JUMP * most), within))
    target = min(cap, target)
    return target if target >= WORTH_A_PROCESS * low or low < target == cap else 0


def largest_within(held: Mapping[int, int], nbytes: float) -> int | None:
    """Give the largest batch that should fit into so many bytes, by the line through what sizes held; `None` from fewer
    than two, and where memory does not grow. A line that not all sizes lie on is not trusted far."""
    sizes = np.array(sorted(held), dtype=float)
    if len(sizes) < 2:
        return None
    seen = np.array([held[int(size)] for size in sizes], dtype=float)
    base, slope = _relative_line(sizes, seen)
    straight = bool((np.abs(base + slope * sizes - seen) <= MEMORY_RESIDUAL * seen).all())
    far = EXTRAPOLATED * int(sizes[-1])
    if slope <= 0:
        return None if straight else far
    # A line through exact points is off by a few bytes, which must not cost a whole sample.
    fits = math.floor((nbytes - base) / slope + 1e-6)
    return max(0, fits if straight else min(fits, far))


def neat(size: int) -> int:
    """Round down to a number of few bits, for which kernels are made: 203 becomes 192, 1030 becomes 1024."""
    step = max(1, 1 << max(0, size.bit_length() - 4))
    return size // step * step


def child_probe(
    launch: Launch,
    folder: Path,
    settings: LoaderSettings,
    first: Sequence[int] = (),
    began: float | None = None,
    on_tick: Callable[[], None] = lambda: None,
) -> Try:
    """Make a probe of what `launch` starts: it is started anew for each size, and told to train on with that.

    Args:
        folder: for what it prints; each probe has a folder of its own there, removed where all went well.
        settings: the program's own.
        first: samples to make the first batches of, where they differ in size.
        began: when the tuning did, as `time.time()`: files that are older are not overwritten; `None`: now.
    """

    def probe(batch_size: int, seconds: float, /) -> Probe:
        place, begin = folder / f"probe-{batch_size}", time.monotonic()
        shutil.rmtree(place, ignore_errors=True)
        once = replace(launch, after_steps=LEAST_STEPS, after_s=0.0, most_starts=1, limit_s=seconds)
        block, outcome, why = None, ProbeOutcome.OK, ""
        try:
            with ScriptBench(once, place, on_tick, lambda _: None, began) as bench:
                block = bench.measure(replace(settings, batch_size=batch_size), PROBE_S, list(first))
        except WhyidleError as error:
            why = str(error).partition("\n")[0].rstrip(":")
            lacked = isinstance(error, TrialFailed) and (error.out_of_memory or WITHOUT_MEMORY.search(str(error)))
            outcome = ProbeOutcome.OOM if lacked else ProbeOutcome.FAILED
        took = time.monotonic() - begin
        if outcome == ProbeOutcome.FAILED and took >= seconds:
            outcome, why = ProbeOutcome.LATE, f"it was not done after {took:.0f} s"
        if block is None:
            return Probe(outcome, why=why, seconds=took)
        shutil.rmtree(place, ignore_errors=True)
        return Probe(outcome, block.batches, block.memory or NO_MEMORY_KNOWN, seconds=took)

    return probe


# What is fast.


def sizes_to_measure(own: int, largest: int, workers: int = 0) -> list[int]:
    """Choose four to six sizes, geometric, the program's own first and then the largest, should there be no time for
    all; smaller ones divide the own, so that gradients can be accumulated to the same global batch."""
    most = max(FEWEST_SIZES, min(MOST_SIZES, MANY_PROCESSES // max(1, workers)))
    most_above = most - 1 - min(MOST_BELOW, most - 3)
    steps = min(most_above, max(round(math.log2(largest / own)), int(largest >= APART * own)))
    above = [neat(round(own * (largest / own) ** (step / steps))) for step in range(1, steps)]
    above = [*(size for size in above if size * APART <= largest), *([largest] if steps else [])]
    below: list[int] = []
    while len(below) < min(most - 1 - len(above), MOST_BELOW if len(above) > 1 else 3):
        last = below[-1] if below else own
        # The largest divisor that is at most half of it, and not far less.
        smaller = next((part for part in range(last // 2, max(0, last // 5), -1) if last % part == 0), None)
        if smaller is None:
            break
        below.append(smaller)
    return list(dict.fromkeys((own, *reversed(above), *below)))


@dataclass
class Measurements:
    """What blocks told, by batch size."""

    blocks: dict[int, list[tuple[int, Block]]] = field(default_factory=dict)
    """Round and block."""
    alone: dict[int, float] = field(default_factory=dict)
    """Samples/s with batches that were fetched before, where the loader sets the pace."""
    failed: dict[int, str] = field(default_factory=dict)
    ended: str | None = None
    """Why no more could be measured; `None` where it could."""

    def fit(self) -> BlockFit:
        """Take the drift of the machine out."""
        every = [(size, number, block) for size, blocks in self.blocks.items() for number, block in blocks]
        return BlockFit([(size, number, math.log(block.samples_per_s)) for size, number, block in every])

    def rates(self) -> dict[int, Estimate]:
        """Give the samples/s by size."""
        if not self.blocks:
            return {}
        fit, first = self.fit(), next(iter(self.blocks))
        return {size: fit.rate(size, first) for size in sorted(self.blocks)}

    def waiting(self) -> dict[int, float]:
        """Give the share of the time in which the training waited for a batch, 0..1, by size."""
        return {
            size: sum(b.wait_ns for _, b in blocks) / sum(b.end_ns - b.begin_ns for _, b in blocks)
            for size, blocks in sorted(self.blocks.items())
        }


def measure(
    bench: Bench, settings: LoaderSettings, sizes: Sequence[int], until: float, now: Callable[[], float], say: Say
) -> Measurements:
    """Measure rounds over the sizes for as long as there is time, and each size without a loader where that binds.

    Args:
        until: seconds, of the clock `now`; a round that would not end by then is not begun.
    """
    found, left, took = Measurements(), list(sizes), 0.0
    try:
        for number in range(MOST_ROUNDS):
            begun = now()
            if not left or begun + took > until:
                break
            for size in shuffled(left, number) if number else list(left):
                if size not in left or now() > until:
                    continue
                say(f"measuring batches of {size}, round {number + 1}")
                try:
                    block = bench.measure(replace(settings, batch_size=size), BLOCK_S)
                except TrialFailed as error:
                    found.failed[size] = str(error)
                    # Where memory runs out for one size, it does for larger ones.
                    left = [each for each in left if each != size and not (error.out_of_memory and each > size)]
                    continue
                if block.batches >= LEAST_BATCHES:
                    found.blocks.setdefault(size, []).append((number, block))
            took = now() - begun
        for size in sorted(found.blocks) if max(found.waiting().values(), default=0.0) > LOADER_BOUND else ():
            if now() > until:
                break
            say(f"measuring batches of {size} kept in memory")
            with suppress(TrialFailed):
                found.alone[size] = bench.held(BLOCK_S, size).samples_per_s
    except BenchEnded as error:
        found.ended = str(error)
    for size in found.blocks:
        # Its workers hold memory. The program's own loader stays.
        if (tried := replace(settings, batch_size=size)) not in (settings, bench.baseline):
            bench.close(tried)
    return found


def step_time(rates: Rates) -> tuple[float, float] | None:
    """Draw the line through what steps took: alpha and beta, ns.

    By least squares of relative errors; where the best line would have a negative part, which no step has, the best
    without that part. `None` from fewer than three sizes, and where larger batches take no longer.
    """
    if len(rates) < 3:
        return None
    sizes = np.array(list(rates), dtype=float)
    times = sizes * 1e9 / np.array([rate.value for rate in rates.values()])
    alpha, beta = _relative_line(sizes, times)
    if alpha < 0:
        ratio = sizes / times
        alpha, beta = 0.0, float(ratio.sum() / (ratio**2).sum())
    return (alpha, beta) if beta > 0 else None


def knee(rates: Rates) -> tuple[int, int, int]:
    """Give the smallest size within 5 % of the best rate: as measured, and the smallest that could be it and that
    surely is it by the ends of the intervals. Only measured sizes count: a rate need not rise with the size."""
    best = max(sorted(rates), key=lambda size: rates[size].value)
    least = NEAR_BEST * rates[best].value
    near = [
        min(size for size, rate in rates.items() if size == best or getattr(rate, end) >= least)
        for end in ("value", "high", "low")
    ]
    return near[0], near[1], near[2]


def _relative_line(x: Values, y: Values) -> tuple[float, float]:
    """Give (a, b) of y = a + b x with the least sum of squared relative errors."""
    (a, b), *_ = np.linalg.lstsq(np.column_stack([1 / y, x / y]), np.ones(len(y)), rcond=None)
    return float(a), float(b)


@dataclass(frozen=True)
class Question:
    """What is asked."""

    settings: LoaderSettings
    """Settings with which sizes are compared: the best that the loader's tuning found, at the program's batch size."""
    batch_size: int
    """The program's own, samples that one step loads (its micro-batch where it accumulates gradients)."""
    dataset_samples: int | None = None
    """No batch can be larger; `None`: not known."""
    most: int | None = None
    """The user's own limit; `None`: none."""
    varying: bool = False
    """Whether samples differ in size between batches: then what fits depends on which come together."""


def advise(
    bench: Bench,
    probe: Try | None,
    question: Question,
    budget_s: float,
    say: Say = lambda _: None,
    now: Callable[[], float] = time.monotonic,
) -> BatchAdvice:
    """Advise how large a batch should be.

    First what fits (children, at most half of the budget), then throughput at up to six sizes in interleaved rounds,
    then what follows from both. Never raises `TrialFailed` or `BenchEnded`: what could not be found out stays `None`,
    with the reason in `notes`. KeyboardInterrupt passes through.

    Args:
        bench: a training; what it holds of a GPU's memory is missing for the children, so there end it before.
        probe: tries a size in a new process; `None`: memory is not looked at, and only sizes up to the current one are
            measured.
        say: told in one line what is being done.
        now: seconds, of a clock that only goes forward.
    """
    until, own, ladder = now() + budget_s, question.batch_size, Ladder(None)
    if probe is not None:
        ladder = climb(probe, own, LADDER_SHARE * budget_s, question.dataset_samples, question.most, now, say)
    sizes = sizes_to_measure(own, max(own, ladder.b_max or own), question.settings.num_workers)
    sizes = [size for size in sizes if size not in ladder.failed]
    found = measure(bench, question.settings, sizes, until, now, say)
    rates = found.rates()
    alpha, beta = step_time(rates) or (None, None)
    notes = [*_notes_of_memory(question, None if probe is None else ladder)]
    if found.ended:
        notes.append(f"Throughput was not measured further: {found.ended}")
    advice = BatchAdvice(
        b_max=ladder.b_max,
        samples_per_s={size: rate.value for size, rate in rates.items()},
        intervals={size: (rate.low, rate.high) for size, rate in rates.items() if not math.isnan(rate.low)},
        memory_bytes=ladder.memory,
        failed=ladder.failed | found.failed,
        alpha_ns=alpha,
        beta_ns=beta,
        alone=dict(found.alone),
    )
    if len(rates) < 2:
        notes.append("Throughput was measured at fewer than two sizes")
    else:
        b_95, earliest, latest = knee(rates)
        waits, slowest = max((share, size) for size, share in found.waiting().items())
        advice = replace(advice, loader_bound=waits > LOADER_BOUND, b_95=None if waits > LOADER_BOUND else b_95)
        if advice.loader_bound:
            notes += _notes_of_loader(found, rates)
            notes.append(
                f"The training waits for its loader {100 * waits:.0f} % of the time at a batch of {slowest}: rates and "
                "line depend on the loader as well"
            )
        elif earliest != latest:
            notes.append(
                f"The smallest size within 5 % of the best is uncertain: {earliest} to {latest} by the intervals"
            )
        if not advice.loader_bound and alpha and beta and (share := alpha / (alpha + beta * own)) > LAUNCH_BOUND:
            notes.append(
                f"At a batch of {own}, {100 * share:.0f} % of a step's time does not depend on the batch: the step is "
                "launch- or overhead-bound"
            )
        if alpha is None and len(rates) > 2:
            notes.append("Larger batches do not make steps longer, so no line is drawn")
        advice = _with_faster(advice, own, rates, found.fit(), notes)
    if not found.ended and (missed := sorted(set(sizes) - found.blocks.keys() - found.failed.keys())):
        notes.append(f"There was no time to measure batches of {', '.join(map(str, missed))}")
    return replace(advice, notes=tuple(notes))


def _with_faster(advice: BatchAdvice, own: int, rates: Rates, fit: BlockFit, notes: list[str]) -> BatchAdvice:
    """Propose a smaller batch that is clearly faster, to be accumulated to the same global one; say what larger ones
    would do."""
    gains = {size: fit.ratio(size, own) for size in rates if own in rates}
    clearly = [size for size, gain in gains.items() if gain.low > 0 and gain.value > math.log(1 + WORTH_TUNING)]
    fastest_first = sorted(clearly, key=lambda size: -rates[size].value)
    micro = next((size for size in fastest_first if size < own and own % size == 0), None)
    if micro is not None:
        times, gain = own // micro, 100 * (rates[micro].value / rates[own].value - 1)
        advice = replace(advice, micro_batch=micro, accumulate=times)
        notes.append(
            f"Batches of {micro}, with gradients accumulated over {times}, keep the global batch of {own} and are "
            f"{gain:.0f} % faster (divide each loss by {times}; batch norm uses {micro} samples)"
        )
    larger = next((size for size in fastest_first if size > own), None)
    if larger is not None:
        gain, ratio = 100 * (rates[larger].value / rates[own].value - 1), larger / own
        notes.append(
            f"A batch of {larger} is {gain:.0f} % faster than {own}. A global batch of {larger} instead of {own} "
            f"changes the training. Rules of thumb multiply the learning rate by {ratio:.2g} for SGD (linear, with a "
            f"warm-up) and by {math.sqrt(ratio):.2g} for Adam (square root). Accuracy was not measured"
        )
    return advice


def _notes_of_memory(question: Question, ladder: Ladder | None) -> Iterator[str]:
    if ladder is None:
        yield "No size was tried for whether it fits into memory"
        return
    if ladder.b_max is None:
        yield f"The largest size that fits is unknown: {ladder.bounded_by}"
    else:
        yield f"The search for what fits ended at {ladder.b_max}: {ladder.bounded_by}"
        if (steps := ladder.probes[ladder.b_max].steps) < STEPS:
            yield f"A batch of {ladder.b_max} ran for only {steps} optimizer steps"
    if question.varying:
        yield "Batches differ in size, so leave room: what fits depends on which samples share a batch"


def _notes_of_loader(found: Measurements, rates: Rates) -> Iterator[str]:
    """Tell what the training would do without a loader, and what a loader would have to deliver for that."""
    yield "The loader sets the pace, so the smallest size within 5 % of the best is unknown"
    if not found.alone:
        yield "The training's rate at these sizes without a loader was not measured"
        return
    best = max(found.alone, key=lambda size: found.alone[size])
    yield (
        f"With batches kept in memory the training is fastest at {best}: {found.alone[best]:.0f} samples/s. A loader "
        f"would have to deliver that; it delivers {rates[best].value:.0f}"
    )


def cannot(why: str) -> BatchAdvice:
    """Advise nothing: the loader cannot be rebuilt with another batch size, for `why` (a clause)."""
    return BatchAdvice(notes=(f"The batch size was not tuned: {why}.",))
