"""How large a batch should be: what fits into memory, and what is fast.

What fits is tried in processes of their own, which take nothing along when they run out of memory. Doubling shows how
memory grows with the batch; a line through that says how far to jump; what the jump says is tried too, and halved
towards what is known to fit where it fails. Only sizes that were run are ever returned.

What is fast is measured in interleaved rounds on one training under way. A step of B samples takes T(B) = alpha +
beta B: what it costs whatever its size (launches, Python, the optimizer), and what each sample adds.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from ..analyse.statistics import Estimate, Values
from ..matrix.matrix import rounds
from ..record.files import plain
from ..record.run import create_run
from ..record.tuning import WITHOUT_MEMORY, Block, LoaderSettings
from .result import BatchAdvice
from .search import Bench, BenchEnded, TrialFailed
from .standing import WORTH_TUNING, BlockFit
from .training import KILLED, OUTPUT, Launch, last_lines, popen
from .watchdog import end_all, watched

CLIMBS = 3
"""Sizes tried before the line is trusted to jump: the current one, twice and four times it."""
JUMP = 0.9
"""Share of what the line says fits."""
BISECTIONS = 2
JUMPS = 2
"""The second where memory is no straight line, so that the first could not go far."""
HALVINGS = 6
MOST_TIMES = 64
"""Times the current size: where memory is not what limits, larger ones are of no use to anyone."""
MARGIN = 0.05
"""Share of all memory that stays free."""
DEVICE_MARGIN = 512 << 20
"""At least so many bytes of it where a device's own memory is what runs out: fragments, libraries' workspaces."""
WORTH_A_PROCESS = 1.1
"""A size that is less than so many times the largest known to fit is not worth a process."""
LEAST_STEPS = 3
"""Optimizer steps: its own state is there from the second one on."""
MEMORY_RESIDUAL = 0.03
"""Distance of a measured memory from the line from which that is no line."""
EXTRAPOLATED = 2
"""Times the largest measured size that such a line is trusted to."""
STEPS, STEPS_SECONDS = 20, 10.0
"""Optimizer steps of a probe, and seconds after which `LEAST_STEPS` are enough."""
TICK_SECONDS = 0.05
LAST_LINES = 40

NEAR_BEST = 0.95
"""Share of the best rate that is as good as it."""
OFF_LINE = 0.05
"""Distance of a rate from the line, as a share of it, that is worth a word."""
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
LADDER_SHARE, RACE_SHARE = 0.5, 0.2
"""Shares of the budget: for what fits, and for a search of loader settings at another batch size."""

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
    peak_bytes: int | None = None
    """Most memory that it took, of the memory that runs out first. `None`: not known."""
    capacity_bytes: int | None = None
    """Size of that memory, as far as it is free for this. `None`: not known."""
    on_device: bool = False
    """Whether it is a device's own memory."""
    retries: int = 0
    """Times that the allocator had to free its caches: it does so again and again in a long training."""
    why: str | None = None
    """What it ended with, where that is not `ok`."""
    seconds: float = 0.0

    @property
    def margin_bytes(self) -> int | None:
        """Memory that must stay free, bytes; `None`: not known."""
        if self.capacity_bytes is None:
            return None
        margin = round(MARGIN * self.capacity_bytes)
        return max(margin, DEVICE_MARGIN) if self.on_device else margin

    @property
    def reason(self) -> str:
        """Why it does not fit; empty where it does: it ran to its end, without the allocator's emergencies, with room
        to spare."""
        if self.outcome != ProbeOutcome.OK:
            return self.why or self.outcome
        if self.retries:
            return f"the allocator had to free its caches {self.retries} times in {self.steps} steps"
        peak, capacity, margin = self.peak_bytes, self.capacity_bytes, self.margin_bytes
        if peak is None or capacity is None or margin is None or peak + margin <= capacity:
            return ""
        used, kept = f"{peak / 1e9:.2f} of {capacity / 1e9:.2f} GB", f"the margin of {margin / 1e9:.2f} GB"
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
        return {size: p.peak_bytes for size, p in sorted(self.probes.items()) if p.peak_bytes and p.steps}

    @property
    def failed(self) -> dict[int, str]:
        """Sizes that do not fit, and why."""
        told = ((size, p) for size, p in sorted(self.probes.items()) if p.outcome != ProbeOutcome.LATE)
        return {size: p.reason for size, p in told if not p.fits}


class Climb:
    """A search for the largest batch that fits."""

    def __init__(
        self,
        probe: Try,
        first: int,
        budget_s: float,
        dataset_samples: int | None = None,
        most: int | None = None,
        now: Callable[[], float] = time.monotonic,
        say: Say = lambda _: None,
    ) -> None:
        self._probe, self._first, self._now, self._say = probe, first, now, say
        self._until = now() + budget_s
        limits = [(MOST_TIMES * first, f"larger sizes than {MOST_TIMES}× the program's own are not tried")]
        if dataset_samples is not None:
            of_data = max(first, dataset_samples // LEAST_STEPS)
            limits.append((of_data, f"a pass over {dataset_samples} samples must have {LEAST_STEPS} steps"))
        if most is not None:
            limits.append((most, "no larger size was asked for"))
        self._cap, self._cap_reason = min(limits)
        self._probes: dict[int, Probe] = {}
        self._spent = False

    def climb(self) -> Ladder:
        size = first = min(self._first, self._cap)
        if not self._try(size):
            # The program's own size does not fit: halve it. What fails otherwise, fails at any size.
            for _ in range(HALVINGS):
                if size == 1 or self._spent or self._probes[size].outcome == ProbeOutcome.FAILED:
                    break
                size //= 2
                if self._try(size):
                    break
        for step in range(1, CLIMBS):
            if self._low and not self._high:
                self._try(min(self._cap, first << step))
        for _ in range(JUMPS):
            target = self._jump()
            if target is None or not self._try(target):
                break
        for _ in range(BISECTIONS):
            target = self._between()
            if target is not None and not self._spent:
                self._try(target)
        return Ladder(self._low or None, dict(self._probes), self._bounded_by())

    @property
    def _low(self) -> int:
        """The largest size that fits, 0: none so far."""
        return max((size for size, p in self._probes.items() if p.fits), default=0)

    @property
    def _high(self) -> int:
        """The smallest above it that does not, 0: none so far."""
        told = (size for size, p in self._probes.items() if p.outcome != ProbeOutcome.LATE and not p.fits)
        return min((size for size in told if size > self._low), default=0)

    def _try(self, size: int) -> bool:
        """Tell whether it fits; false too where no time is left to try."""
        if size in self._probes:
            return self._probes[size].fits
        left = self._until - self._now()
        if self._spent or left <= 0 or (self._probes and list(self._probes.values())[-1].seconds > left):
            self._spent = True
            return False
        self._say(f"trying whether a batch of {size} fits")
        tried = self._probes[size] = self._probe(size, left)
        # A larger one would take longer.
        self._spent |= tried.outcome == ProbeOutcome.LATE
        return tried.fits

    def _jump(self) -> int | None:
        """Give how far the line says to go, if it is worth it."""
        if not self._low or self._high or self._spent:
            return None
        ran, known, fits = self._probes[self._low], self._known(), None
        if ran.capacity_bytes is None or ran.margin_bytes is None:
            fits = 2 * self._low  # nothing to draw a line to
        elif len(known) > 1:
            most = largest_within(known, ran.capacity_bytes)
            within = largest_within(known, ran.capacity_bytes - ran.margin_bytes)
            fits = None if most is None or within is None else min(int(JUMP * most), within)
        target = self._cap if fits is None else min(self._cap, neat(fits))
        return target if target >= WORTH_A_PROCESS * self._low or self._low < target == self._cap else None

    def _between(self) -> int | None:
        """Give where to try next between what fits and what does not: where the margin is met, if both ran."""
        low, high, known = self._low, self._high, self._known()
        if not low or not high:
            return None
        middle, ran = (low + high) // 2, self._probes[low]
        if low in known and high in known and ran.capacity_bytes is not None and ran.margin_bytes is not None:
            most = ran.capacity_bytes - ran.margin_bytes
            if known[low] < most < known[high]:
                middle = low + int((high - low) * (most - known[low]) / (known[high] - known[low]))
        return neat(middle) if WORTH_A_PROCESS * low <= neat(middle) < high else None

    def _known(self) -> dict[int, int]:
        """Give the memory of the sizes that ran to their end undisturbed."""
        ran = {size: p for size, p in self._probes.items() if p.outcome == ProbeOutcome.OK and not p.retries}
        return {size: p.peak_bytes for size, p in ran.items() if p.peak_bytes}

    def _bounded_by(self) -> str:
        if self._high:
            return f"a batch of {self._high} does not fit ({self._probes[self._high].reason})"
        late = min((size for size, p in self._probes.items() if p.outcome == ProbeOutcome.LATE), default=0)
        if late:
            return f"a batch of {late} could not be decided ({self._probes[late].why})"
        if not self._low:
            return "no size fits" if self._probes else "there was no time to try one"
        if self._low == self._cap:
            return self._cap_reason
        return "the time for trials ran out" if self._spent else "memory would not hold much more"


def largest_within(held: Mapping[int, int], nbytes: float) -> int | None:
    """Give the largest batch that should fit into so many bytes, by the line through what two sizes or more held;
    `None` where memory does not grow. A line that not all sizes lie on is not trusted far."""
    sizes = np.array(sorted(held), dtype=float)
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
    was: int,
    *,
    first: Sequence[int] = (),
    began: float | None = None,
    on_tick: Callable[[], None] = lambda: None,
    notes: list[str] | None = None,
) -> Try:
    """Make a probe of what `launch` starts. See `capture.tuning.sized` for what happens in it.

    Args:
        folder: for what it prints; each probe has a folder of its own there, removed where all went well.
        was: the program's own batch size.
        first: samples to make the first batches of, where they differ in size.
        began: when the tuning did, as `time.time()`: files that are older are not overwritten.
        notes: where to say what could not be done.
    """
    began = time.time() if began is None else began
    late = "The largest samples could not come first: what fits holds for samples in their usual order"

    def probe(batch_size: int, seconds: float, /) -> Probe:
        place = folder / f"probe-{batch_size}"
        shutil.rmtree(place, ignore_errors=True)
        create_run(place, {"command": list(launch.command), "probe": batch_size})
        asked: dict[str, Any] = {
            "batch_size": batch_size,
            "was": was,
            "steps": STEPS,
            "seconds": min(STEPS_SECONDS, seconds / 3),
        }
        asked |= {"first": list(first), "tuner": os.getpid()}
        options = {"probe": asked, "tuner": os.getpid(), "began": began, "overwrite": launch.overwrite}
        begin = time.monotonic()
        with watched(launch.mark(place)):
            process = popen(list(launch.command), launch.environment(place, options), place / OUTPUT)
            try:
                while process.poll() is None and not _done(_told(place)) and time.monotonic() - begin < seconds:
                    time.sleep(TICK_SECONDS)
                    on_tick()
                ended = process.poll()
                done = _done(_told(place))
            finally:
                # Also on Ctrl-C.
                end_all(launch.mark(place), process.pid)
                process.wait()
        told = _told(place)
        found = replace(_judge(told, done, ended, place / OUTPUT), seconds=time.monotonic() - begin)
        usual = first and told and not any(each.get("worst_first") for each in told)
        if notes is not None and usual and late not in notes:
            notes.append(late)
        if found.outcome == ProbeOutcome.OK:
            shutil.rmtree(place, ignore_errors=True)
        elif found.outcome == ProbeOutcome.LATE:
            found = replace(found, why=f"it made {found.steps} optimizer steps in {found.seconds:.0f} s")
        return found

    return probe


def _judge(told: list[dict[str, Any]], done: bool, ended: int | None, output: Path) -> Probe:
    """Tell what became of a command, by what its processes told, its exit code and what it printed."""
    steps = min((int(each["steps"]) for each in told), default=0)
    # Of several ranks, the one with the least left.
    memories: list[dict[str, Any]] = [dict(each["memory"]) for each in told]
    memory = max(memories, key=lambda m: (m.get("peak_bytes") or 0) / (m.get("capacity_bytes") or math.inf), default={})
    refused = any(int(each.get("refused") or 0) for each in memories)
    last = last_lines(output, LAST_LINES)
    said = next((line for line in reversed(last) if WITHOUT_MEMORY.search(line)), None)
    why: str | None = None
    # A program that was stopped, or ended by itself, after steps enough has shown what it takes.
    if (done or (ended in (None, 0) and steps >= LEAST_STEPS)) and not refused:
        outcome = ProbeOutcome.OK if any(int(each["loaders"]) for each in told) else ProbeOutcome.FAILED
        if outcome == ProbeOutcome.FAILED:
            why = "the program makes no DataLoader whose batch size could be changed"
    elif refused or said is not None or ended in KILLED:
        outcome, why = ProbeOutcome.OOM, "out of memory"
        if said or ended in KILLED:
            why = plain(said.strip()) if said else "the training was killed; the kernel does so when memory runs out"
    elif ended is None:
        outcome = ProbeOutcome.LATE
    else:
        printed = f"; its last output: {plain(last[-1].strip())}" if last else ""
        outcome = ProbeOutcome.FAILED
        why = f"the command ended with exit code {ended} after {steps} optimizer steps{printed}"
    peak, capacity = memory.get("peak_bytes"), memory.get("capacity_bytes")
    return Probe(outcome, steps, peak, capacity, bool(memory.get("on_device")), int(memory.get("retries") or 0), why)


def _told(folder: Path) -> list[dict[str, Any]]:
    """Give what each process that trained wrote last."""
    found = []
    for path in sorted(folder.glob("probe-*.json")):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    return found


def _done(told: list[dict[str, Any]]) -> bool:
    return bool(told) and all(each.get("done") for each in told)


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
        logs = {size: [math.log(block.samples_per_s) for _, block in blocks] for size, blocks in self.blocks.items()}
        level, error = fmean(logs[first]), fit.noise / math.sqrt(len(logs[first]))
        found = {size: fit.ratio(size, first).shifted(level).exp() for size in sorted(self.blocks)}
        return found | {first: fit.around(level, error).exp()}

    def waiting(self) -> dict[int, float]:
        """Give the share of the time in which the training waited for a batch, 0..1, by size."""
        return {
            size: sum(b.wait_ns for _, b in blocks) / sum(b.end_ns - b.begin_ns for _, b in blocks)
            for size, blocks in sorted(self.blocks.items())
        }


def measure(
    bench: Bench,
    settings: LoaderSettings,
    sizes: Sequence[int],
    until: float,
    now: Callable[[], float],
    say: Say,
    seconds: float = BLOCK_S,
) -> Measurements:
    """Measure rounds over the sizes for as long as there is time, and each size without a loader where that binds.

    Args:
        until: seconds, of the clock `now`; a round that would not end by then is not begun.
        seconds: length of a block.
    """
    found = Measurements()
    left = list(sizes)
    begun, current = now(), 0
    try:
        for number, size in rounds(sizes, MOST_ROUNDS):
            if number != current:
                took, begun, current = now() - begun, now(), number
                if not left or now() + took > until:
                    break
            if size not in left or now() > until:
                continue
            say(f"measuring batches of {size}, round {number + 1}")
            try:
                block = bench.measure(replace(settings, batch_size=size), seconds)
            except TrialFailed as error:
                found.failed[size] = str(error)
                # Where memory runs out for one size, it does for larger ones.
                left = [each for each in left if each != size and not (error.out_of_memory and each > size)]
                continue
            if block.batches >= LEAST_BATCHES:
                found.blocks.setdefault(size, []).append((number, block))
        for size in sorted(found.blocks) if max(found.waiting().values(), default=0.0) > LOADER_BOUND else ():
            if now() > until:
                break
            say(f"measuring batches of {size} kept in memory")
            with suppress(TrialFailed):
                found.alone[size] = bench.held(seconds, size).samples_per_s
    except BenchEnded as error:
        found.ended = str(error)
    for size in found.blocks:
        # Its workers hold memory. The program's own loader stays.
        if (tried := replace(settings, batch_size=size)) not in (settings, bench.baseline):
            bench.close(tried)
    return found


def step_time(rates: Rates) -> tuple[float, float, tuple[int, ...]] | None:
    """Draw the line through what steps took: alpha and beta, ns, and the sizes further than `OFF_LINE` from it.

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
    if beta <= 0:
        return None
    off = np.abs(times / (alpha + beta * sizes) - 1) > OFF_LINE
    return alpha, beta, tuple(sorted({int(size) for size in sizes[off]}))


def knee(rates: Rates) -> tuple[int, int, int]:
    """Give the smallest size within 5 % of the best rate: as measured, and the smallest that could be it and that
    surely is it by the ends of the intervals. Only measured sizes count: a rate need not rise with the size."""
    best = max(sorted(rates), key=lambda size: rates[size].value)
    least = NEAR_BEST * rates[best].value

    def smallest(end: str) -> int:
        return next(size for size in sorted(rates) if size == best or getattr(rates[size], end) >= least)

    return smallest("value"), smallest("high"), smallest("low")


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
    *,
    say: Say = lambda _: None,
    race: Callable[[int], LoaderSettings | None] | None = None,
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
        race: asked for the best loader settings at another batch size, where one is proposed.
        now: seconds, of a clock that only goes forward.
    """
    until, own = now() + budget_s, question.batch_size
    ladder = None
    if probe is not None:
        limits = question.dataset_samples, question.most
        ladder = Climb(probe, own, LADDER_SHARE * budget_s, *limits, now, say).climb()
    largest = max(own, (ladder.b_max if ladder else None) or own)
    sizes = sizes_to_measure(own, largest, question.settings.num_workers)
    sizes = [size for size in sizes if ladder is None or size not in ladder.failed]
    enough = until if race is None else until - RACE_SHARE * budget_s
    found = measure(bench, question.settings, sizes, enough, now, say)
    advice = _conclude(question, ladder, found)
    if not found.ended and (missed := sorted(set(sizes) - found.blocks.keys() - found.failed.keys())):
        note = f"There was no time to measure batches of {', '.join(map(str, missed))}"
        advice = replace(advice, notes=(*advice.notes, note))
    if race is not None and advice.micro_batch is not None:
        say(f"comparing loader settings again for batches of {advice.micro_batch}")
        advice = replace(advice, settings=race(advice.micro_batch))
    return advice


def _conclude(question: Question, ladder: Ladder | None, found: Measurements) -> BatchAdvice:
    """Tell what follows from all that was measured."""
    own, rates = question.batch_size, found.rates()
    notes = list(_of_memory(question, ladder))
    if found.ended:
        notes.append(f"Throughput was not measured further: {found.ended}")
    alpha, beta, off_line = step_time(rates) or (None, None, ())
    advice = BatchAdvice(
        b_max=ladder.b_max if ladder else None,
        samples_per_s={size: rate.value for size, rate in rates.items()},
        intervals={size: (rate.low, rate.high) for size, rate in rates.items() if not math.isnan(rate.low)},
        memory_bytes=ladder.memory if ladder else {},
        failed={**(ladder.failed if ladder else {}), **found.failed},
        alpha_ns=alpha,
        beta_ns=beta,
        off_line=off_line,
        alone=dict(found.alone),
    )
    if len(rates) < 2:
        return replace(advice, notes=(*notes, "Throughput was measured at fewer than two sizes"))
    b_95, earliest, latest = knee(rates)
    waiting = found.waiting()
    slowest = max(waiting, key=lambda size: waiting[size])
    if waiting[slowest] > LOADER_BOUND:
        advice = replace(advice, loader_bound=True)
        notes.append("The loader sets the pace, so the smallest size within 5 % of the best is unknown")
        if found.alone:
            # What the training would do without a loader, and what a loader would have to deliver for that.
            best = max(found.alone, key=lambda size: found.alone[size])
            notes.append(
                f"With batches kept in memory the training is fastest at {best}: {found.alone[best]:.0f} samples/s. A "
                f"loader would have to deliver that; it delivers {rates[best].value:.0f}"
            )
        else:
            notes.append("The training's rate at these sizes without a loader was not measured")
        notes.append(
            f"The training waits for its loader {100 * waiting[slowest]:.0f} % of the time at a batch of {slowest}: "
            "rates and line depend on the loader as well"
        )
    else:
        advice = replace(advice, b_95=b_95)
        if earliest != latest:
            notes.append(
                f"The smallest size within 5 % of the best is uncertain: {earliest} to {latest} by the intervals"
            )
        if alpha is not None and beta is not None and (share := alpha / (alpha + beta * own)) > LAUNCH_BOUND:
            notes.append(
                f"At a batch of {own}, {100 * share:.0f} % of a step's time does not depend on the batch: the step is "
                "launch- or overhead-bound"
            )
    if alpha is None and len(rates) > 2:
        notes.append("Larger batches do not make steps longer, so no line is drawn")

    gains = {size: found.fit().ratio(size, own) for size in rates if own in rates}
    clearly = [size for size, gain in gains.items() if gain.low > 0 and gain.value > math.log(1 + WORTH_TUNING)]
    # A smaller batch that is clearly faster, to be accumulated to the same global one; what larger ones would do.
    smaller = [size for size in clearly if size < own and own % size == 0]
    if (micro := max(smaller, key=lambda size: rates[size].value, default=None)) is not None:
        advice = replace(advice, micro_batch=micro, accumulate=own // micro)
        notes.append(
            f"Batches of {micro}, with gradients accumulated over {own // micro}, keep the global batch of {own} "
            f"and are {100 * (rates[micro].value / rates[own].value - 1):.0f} % faster (divide each loss by "
            f"{own // micro}; batch norm uses {micro} samples)"
        )
    above = [size for size in clearly if size > own]
    if (larger := max(above, key=lambda size: rates[size].value, default=None)) is not None:
        gain, ratio = 100 * (rates[larger].value / rates[own].value - 1), larger / own
        notes.append(
            f"A batch of {larger} is {gain:.0f} % faster than {own}. A global batch of {larger} instead of {own} "
            f"changes the training. Rules of thumb multiply the learning rate by {ratio:.2g} for SGD (linear, with a "
            f"warm-up) and by {math.sqrt(ratio):.2g} for Adam (square root). Accuracy was not measured"
        )
    return replace(advice, notes=tuple(notes))


def _of_memory(question: Question, ladder: Ladder | None) -> list[str]:
    if ladder is None:
        return ["No size was tried for whether it fits into memory"]
    notes = []
    if ladder.b_max is None:
        notes.append(f"The largest size that fits is unknown: {ladder.bounded_by}")
    else:
        notes.append(f"The search for what fits ended at {ladder.b_max}: {ladder.bounded_by}")
        if (steps := ladder.probes[ladder.b_max].steps) < STEPS:
            notes.append(f"A batch of {ladder.b_max} ran for only {steps} optimizer steps")
    if question.varying:
        notes.append("Batches differ in size, so leave room: what fits depends on which samples share a batch")
    return notes


def cannot(why: str) -> BatchAdvice:
    """Advise nothing: the loader cannot be rebuilt with another batch size, for `why` (a clause)."""
    return BatchAdvice(notes=(f"The batch size was not tuned: {why}.",))
