"""How large a batch should be: what fits into memory, and what is fast.

What fits is tried in processes of their own, which take nothing along when they run out of memory. Doubling shows how
memory grows with the batch; a line through that says how far to jump; what the jump says is tried too, and halved
towards what is known to fit where it fails. Only sizes that were run are ever returned.

What is fast is measured in interleaved rounds on one training under way.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..analyse.statistics import Estimate
from ..errors import WhyidleError
from ..record.tuning import WITHOUT_MEMORY, Block, LoaderSettings, MemoryUse
from .result import BatchAdvice
from .standing import BlockFit, shuffled
from .training import BenchEnded, Launch, ScriptBench, TrialFailed

MOST_PROBES = 7
"""Sizes tried, each in a process of its own."""
FURTHEST = 4
"""Times the largest size known to fit that the line is trusted to jump."""
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
STEPS = 8
"""Steps of a probe, unless they are slow."""
PROBE_S = 2.0
"""Seconds that a probe trains for at least, if its steps allow it: see `switching.Measurement`."""

NEAR_BEST = 0.95
"""Share of the best rate that is as good as it."""
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
    def room_bytes(self) -> int | None:
        """Memory that it may take: what there is without the margin that must stay free, bytes; `None`: not known."""
        capacity = self.memory.capacity_bytes
        if capacity is None:
            return None
        return capacity - max(round(MARGIN * capacity), DEVICE_MARGIN if self.memory.on_device else 0)

    @property
    def reason(self) -> str:
        """Why it does not fit; empty where it does: it ran to its end, without the allocator's emergencies, with room
        to spare."""
        if self.outcome != ProbeOutcome.OK:
            return self.why or self.outcome
        if self.memory.retries:
            return f"the allocator had to free its caches {self.memory.retries} times in {self.steps} steps"
        peak, room, capacity = self.memory.peak_bytes, self.room_bytes, self.memory.capacity_bytes
        if peak is None or room is None or capacity is None or peak <= room:
            return ""
        used, kept = f"{peak / 1e9:.2f} of {capacity / 1e9:.2f} GB", f"the margin of {(capacity - room) / 1e9:.2f} GB"
        return f"it used {used} and left less than {kept}"

    @property
    def fits(self) -> bool:
        return not self.reason


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
    low, high = _bounds(probes)
    if not low:
        # What fails for another reason than memory fails at any size.
        return high // 2 if probes[high].outcome != ProbeOutcome.FAILED else 0
    # Of runs to their end that the allocator's emergencies did not disturb.
    ran = {size: tried.memory for size, tried in sorted(probes.items()) if tried.outcome == ProbeOutcome.OK}
    held = {size: memory.peak_bytes for size, memory in ran.items() if memory.peak_bytes and not memory.retries}
    room = probes[low].room_bytes
    within = None if room is None else _largest_within(held, room)
    if high:
        target = neat(within if within is not None and low < within < high else (low + high) // 2)
        return target if WORTH_A_PROCESS * low <= target < high else 0
    target = min(cap, 2 * low if within is None else neat(min(within, FURTHEST * low)))
    return target if target >= WORTH_A_PROCESS * low or low < target == cap else 0


def _largest_within(held: Mapping[int, int], nbytes: float) -> int | None:
    """Give the largest batch that should fit into so many bytes, by the line through what the two largest held; `None`
    from fewer than two, and where memory does not grow."""
    if len(held) < 2:
        return None
    (small, less), (large, more) = list(held.items())[-2:]
    slope = (more - less) / (large - small)
    return large + int((nbytes - more) / slope) if slope > 0 else None


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

    def rates(self) -> dict[int, Estimate]:
        """Give the samples/s by size, the drift of the machine taken out."""
        every = [(size, number, block) for size, blocks in self.blocks.items() for number, block in blocks]
        fit = BlockFit([(size, number, math.log(block.samples_per_s)) for size, number, block in every])
        return {size: fit.rate(size, every[0][0]) for size in sorted(self.blocks)}

    def most_waiting(self) -> tuple[float, int]:
        """Give the largest share of the time in which the training waited for a batch, 0..1, and the size."""
        shares = (
            (sum(b.wait_ns for _, b in blocks) / sum(b.end_ns - b.begin_ns for _, b in blocks), size)
            for size, blocks in self.blocks.items()
        )
        return max(shares, default=(0.0, 0))


def measure(bench: ScriptBench, settings: LoaderSettings, sizes: Sequence[int], until: float, say: Say) -> Measurements:
    """Measure rounds over the sizes for as long as there is time, and each size without a loader where that binds.

    Args:
        until: seconds, of the bench's clock; a round that would not end by then is not begun.
    """
    found, left, took = Measurements(), list(sizes), 0.0
    try:
        for number in range(MOST_ROUNDS):
            begun = bench.now()
            if not left or begun + took > until:
                break
            for size in shuffled(left, number) if number else list(left):
                if size not in left or bench.now() > until:
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
            took = bench.now() - begun
        for size in sorted(found.blocks) if found.most_waiting()[0] > LOADER_BOUND else ():
            if bench.now() > until:
                break
            say(f"measuring batches of {size} kept in memory")
            with suppress(TrialFailed):
                alone = bench.measure(replace(settings, batch_size=size).without_loader(), BLOCK_S)
                found.alone[size] = alone.samples_per_s
    except BenchEnded as error:
        found.ended = str(error)
    for size in found.blocks:
        # Its workers hold memory. The program's own loader stays.
        if (tried := replace(settings, batch_size=size)) not in (settings, bench.baseline):
            bench.close(tried)
    return found


@dataclass(frozen=True)
class Question:
    """What is asked."""

    settings: LoaderSettings
    """Settings with which sizes are compared: the best that the loader's tuning found, at the program's batch size
    (its micro-batch where it accumulates gradients)."""
    dataset_samples: int | None = None
    """No batch can be larger; `None`: not known."""
    most: int | None = None
    """The user's own limit; `None`: none."""
    varying: bool = False
    """Whether samples differ in size between batches: then what fits depends on which come together."""


def advise(
    bench: ScriptBench, probe: Try, question: Question, budget_s: float, say: Say = lambda _: None
) -> BatchAdvice:
    """Advise how large a batch should be.

    First what fits (children, at most half of the budget), then throughput at up to six sizes in interleaved rounds,
    then what follows from both. Never raises `TrialFailed` or `BenchEnded`: what could not be found out stays `None`,
    with the reason in `notes`. KeyboardInterrupt passes through.

    Args:
        bench: a training; what it holds of a GPU's memory is missing for the children, so there end it before.
        probe: tries a size in a new process.
        say: told in one line what is being done.
    """
    until, own = bench.now() + budget_s, question.settings.batch_size or 1
    ladder = climb(probe, own, LADDER_SHARE * budget_s, question.dataset_samples, question.most, bench.now, say)
    sizes = sizes_to_measure(own, max(own, ladder.b_max or own), question.settings.num_workers)
    sizes = [size for size in sizes if size not in ladder.failed]
    found = measure(bench, question.settings, sizes, until, say)
    rates = found.rates() if found.blocks else {}
    notes = [*_notes_of_memory(question, ladder)]
    waits, slowest = found.most_waiting()
    b_95 = None
    if found.ended:
        notes.append(f"Throughput was not measured further: {found.ended}")
    if len(rates) < 2:
        notes.append("Throughput was measured at fewer than two sizes")
    elif waits > LOADER_BOUND:
        notes += _notes_of_loader(found, rates)
        notes.append(
            f"The training waits for its loader {100 * waits:.0f} % of the time at a batch of {slowest}: rates depend "
            "on the loader as well"
        )
    else:
        # Only measured sizes count: a rate need not rise with the size.
        b_95 = min(s for s in rates if rates[s].value >= NEAR_BEST * max(rate.value for rate in rates.values()))
    if not found.ended and (missed := sorted(set(sizes) - found.blocks.keys() - found.failed.keys())):
        notes.append(f"There was no time to measure batches of {', '.join(map(str, missed))}")
    return BatchAdvice(
        b_max=ladder.b_max,
        b_95=b_95,
        samples_per_s={size: rate.value for size, rate in rates.items()},
        intervals={size: (rate.low, rate.high) for size, rate in rates.items() if not math.isnan(rate.low)},
        memory_bytes=ladder.memory,
        failed=ladder.failed | found.failed,
        loader_bound=waits > LOADER_BOUND and len(rates) > 1,
        alone=dict(found.alone),
        notes=tuple(notes),
    )


def _notes_of_memory(question: Question, ladder: Ladder) -> Iterator[str]:
    if ladder.b_max is None:
        yield f"The largest size that fits is unknown: {ladder.bounded_by}"
    else:
        yield f"The search for what fits ended at {ladder.b_max}: {ladder.bounded_by}"
        if (steps := ladder.probes[ladder.b_max].steps) < STEPS:
            yield f"A batch of {ladder.b_max} ran for only {steps} optimizer steps"
    if question.varying:
        yield "Batches differ in size, so leave room: what fits depends on which samples share a batch"


def _notes_of_loader(found: Measurements, rates: Mapping[int, Estimate]) -> Iterator[str]:
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
