"""Batch size within a budget: what fits, and what is fast.

How fast a few batch sizes train: blocks in interleaved rounds on one training under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from math import inf

from ...analyse.cells.batch_size import RunTerms, SweepFit
from ...analyse.run.stall_breakdown import TOTAL
from ...analyse.statistics import Estimate
from ...errors import WhyidleError
from ...matrix.matrix import rounds
from ...record.tuning import Block, LoaderSettings
from ..bench.bench import Bench, BenchEnded, TrialFailed
from ..search.race import WORTH_TUNING
from ..search.result import BatchAdvice
from .batch_choice import Rates, knee, learning_rate_note, step_time
from .ladder import Ladder, Try, climb, neat

MOST_SIZES = 6
FEWEST_SIZES = 4
"""With many workers, since each size keeps its own."""
MANY_PROCESSES = 96
MOST_BELOW = 2
"""Of them below the program's own, where there is something above."""
APART = 1.25
"""A size that is less than so many times another tells nothing new."""
BLOCK_S = 1.0
MOST_ROUNDS = 6
LEAST_BATCHES = 3
LOADER_BOUND = 0.2
"""Share of the time that a training waits for batches, from which sizes tell of the loader as much as of it."""


def sizes_to_measure(own: int, largest: int, workers: int = 0) -> list[int]:
    """Four to six, geometric, the program's own first and then the largest, should there be no time for all; smaller
    ones divide the own, so that gradients can be accumulated to the same global batch."""
    most = max(FEWEST_SIZES, min(MOST_SIZES, MANY_PROCESSES // max(1, workers)))
    most_below = min(MOST_BELOW, most - 3)
    above: list[int] = []
    room = most - 1 - most_below
    steps = next((n for n in range(room, 0, -1) if largest / own >= APART**n), 0)
    ratio = max(2.0, (largest / own) ** (1 / steps)) if steps else 0.0
    size = float(own)
    while steps and size * ratio <= largest * 1.001 and len(above) < room:
        size *= ratio
        above.append(largest if size * APART > largest else neat(round(size)))
    if largest >= APART * (above[-1] if above else own):
        above = [*above[: room - 1], largest]
    below: list[int] = []
    while len(below) < most - 1 - len(above) and len(below) < (most_below if len(above) > 1 else 3):
        smaller = _half(below[-1] if below else own)
        if smaller is None:
            break
        below.append(smaller)
    return list(dict.fromkeys((own, *reversed(above), *below)))


def _half(size: int) -> int | None:
    """The largest divisor that is at most half of it, and not far less."""
    return next((part for part in range(size // 2, max(0, size // 5), -1) if size % part == 0), None)


@dataclass
class Measurements:
    """What blocks told, by batch size."""

    blocks: dict[int, list[Block]] = field(default_factory=dict)
    rounds: dict[int, list[int]] = field(default_factory=dict)
    """In which round each block was."""
    alone: dict[int, float] = field(default_factory=dict)
    """Samples/s with batches that were fetched before, where the loader sets the pace."""
    failed: dict[int, str] = field(default_factory=dict)
    ended: str | None = None
    """Why no more could be measured."""

    def fit(self) -> SweepFit | None:
        """Drift of the machine taken out."""
        runs = [
            RunTerms(size, number, {TOTAL: 1e6 / block.samples_per_s})
            for size, blocks in self.blocks.items()
            for number, block in zip(self.rounds[size], blocks, strict=True)
        ]
        return SweepFit(runs) if runs else None

    def rates(self) -> dict[int, Estimate]:
        """Samples/s by size."""
        fit = self.fit()
        return {} if fit is None else {size: _per_second(fit.at(size, TOTAL)) for size in sorted(self.blocks)}

    def waiting(self, size: int) -> float:
        """Share of the time in which the training waited for a batch, 0..1."""
        blocks = self.blocks[size]
        return sum(b.wait_ns for b in blocks) / sum(b.end_ns - b.begin_ns for b in blocks)

    @property
    def loader_bound(self) -> bool:
        """Whether the loader sets the pace at a size."""
        return any(self.waiting(size) > LOADER_BOUND for size in self.blocks)


def _per_second(took: Estimate) -> Estimate:
    """From µs a sample."""
    return Estimate(1e6 / took.value, 1e6 / took.high, 1e6 / took.low if took.low > 0 else inf)


def measure(
    bench: Bench,
    settings: LoaderSettings,
    sizes: Sequence[int],
    until: float,
    now: Callable[[], float],
    say: Callable[[str], object],
    seconds: float = BLOCK_S,
) -> Measurements:
    """Rounds over the sizes for as long as there is time, two at least where each size can have one.

    Args:
        until: seconds, of the clock `now`; a round that would not end by then is not begun.
        seconds: of a block.
    """
    found = Measurements()
    left = list(sizes)
    begun, current = now(), 0
    for number, size in rounds(sizes, MOST_ROUNDS):
        if number != current:
            took, begun, current = now() - begun, now(), number
            if len(left) < 1 or now() + took > until:
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
        except BenchEnded as error:
            found.ended = str(error)
            break
        if block.batches >= LEAST_BATCHES:
            found.blocks.setdefault(size, []).append(block)
            found.rounds.setdefault(size, []).append(number)
    if found.loader_bound and found.ended is None:
        _measure_alone(bench, found, until, now, say, seconds)
    for size in found.blocks:
        # Its workers hold memory. The program's own loader stays.
        if (tried := replace(settings, batch_size=size)) not in (settings, bench.baseline):
            bench.close(tried)
    return found


def _measure_alone(
    bench: Bench,
    found: Measurements,
    until: float,
    now: Callable[[], float],
    say: Callable[[str], object],
    seconds: float,
) -> None:
    """What the training does of each size without a loader: a block each, as long as there is time."""
    for size in sorted(found.blocks):
        if now() > until:
            return
        say(f"measuring batches of {size} kept in memory")
        try:
            found.alone[size] = bench.held(seconds, size).samples_per_s
        except TrialFailed:
            continue
        except BenchEnded as error:
            found.ended = str(error)
            return


LADDER_SHARE = 0.5
"""Of the budget."""
RACE_SHARE = 0.2
"""Of it, kept for racing loader settings at another batch size."""

Say = Callable[[str], object]


@dataclass(frozen=True)
class Question:
    """What is asked."""

    settings: LoaderSettings
    """With which sizes are compared: the best that the loader's tuning found, at the program's own batch size."""
    batch_size: int
    """The program's own, samples that one step loads (its micro-batch where it accumulates gradients)."""
    dataset_samples: int | None = None
    """No batch can be larger; `None`: not known."""
    most: int | None = None
    """The user's own limit."""
    varying: bool = False
    """Whether samples differ in size between batches: then what fits depends on which come together."""


def advise(
    bench: Callable[[], AbstractContextManager[Bench]],
    probe: Try | None,
    question: Question,
    budget_s: float,
    *,
    say: Say = lambda _: None,
    race: Callable[[int], LoaderSettings | None] | None = None,
    now: Callable[[], float] = time.monotonic,
) -> BatchAdvice:
    """How large a batch should be.

    Order: the memory ladder (children, at most half of the budget), then throughput at up to six sizes in interleaved
    rounds on `bench`, then what follows from both. Never raises `TrialFailed` or `BenchEnded`: what could not be found
    out stays `None`, with the reason in `notes`. KeyboardInterrupt passes through.

    Args:
        bench: opened once, after the ladder; asked to `measure` with `settings.batch_size` set. `lambda:
            nullcontext(bench)` for a training that is under way already. What that holds of a GPU's memory is missing
            for the ladder's children, so on a GPU end it first and start another one here.
        probe: tries a size in a new process, see `probe.child_probe`; `None`: memory is not
            looked at, and only sizes up to the current one are measured.
        say: told in one line what is being done.
        race: asked for the best loader settings at another batch size, where one is proposed; by whoever has `search`.
            Called with the bench still open.
        now: seconds, of a clock that only goes forward.
    """
    until = now() + budget_s
    own = question.batch_size
    ladder = None
    if probe is not None:
        limits = {"dataset_samples": question.dataset_samples, "most": question.most}
        ladder = climb(probe, own, LADDER_SHARE * budget_s, now=now, say=say, **limits)
    largest = max(own, (ladder.b_max if ladder else None) or own)
    sizes = sizes_to_measure(own, largest, question.settings.num_workers)
    sizes = [size for size in sizes if ladder is None or size not in ladder.failed]
    try:
        with bench() as training:
            enough = until if race is None else until - RACE_SHARE * budget_s
            found = measure(training, question.settings, sizes, enough, now, say)
            advice = _conclude(question, ladder, found)
            if missed := sorted(set(sizes) - found.blocks.keys() - found.failed.keys()):
                note = f"There was no time to measure batches of {', '.join(map(str, missed))}"
                advice = replace(advice, notes=(*advice.notes, note))
            if race is not None and advice.micro_batch is not None:
                say(f"racing loader settings again for batches of {advice.micro_batch}")
                advice = replace(advice, settings=race(advice.micro_batch))
    except WhyidleError as error:
        # The training could not be started once more.
        found = Measurements(ended=str(error))
        advice = _conclude(question, ladder, found)
    return advice


def _conclude(question: Question, ladder: Ladder | None, found: Measurements) -> BatchAdvice:
    """What follows from all that was measured."""
    own = question.batch_size
    rates = found.rates()
    line = step_time(rates)
    bend = knee(rates)
    b_max = ladder.b_max if ladder else None
    notes = _of_memory(question, ladder)
    if found.ended:
        notes.append(f"Throughput was not measured further: {found.ended}")
    advice = BatchAdvice(
        b_max=b_max,
        b_95=bend.batch_size if bend and len(rates) > 1 else None,
        rates=dict(rates),
        memory_bytes=ladder.memory if ladder else {},
        failed={**(ladder.failed if ladder else {}), **found.failed},
        alpha_ns=line.alpha_ns if line else None,
        beta_ns=line.beta_ns if line else None,
        off_line=line.off_line if line else (),
        alone=dict(found.alone),
    )
    if len(rates) < 2:
        return replace(advice, notes=(*notes, "Throughput was measured at fewer than two sizes"))
    assert bend is not None
    if found.loader_bound:
        advice = replace(advice, b_95=None, loader_bound=True)
        notes.append("The loader sets the pace, so the smallest size within 5 % of the best is unknown")
        notes += _of_device(found)
    elif bend.earliest != bend.latest:
        notes.append(
            f"The smallest size within 5 % of the best is uncertain: {bend.earliest} to {bend.latest} by the intervals"
        )
    notes += _of_time(own, found, advice, line is not None and line.launch_bound(own))
    micro, said = _micro_batch(own, rates, found)
    if micro is not None:
        advice = replace(advice, micro_batch=micro, accumulate=own // micro)
    return replace(advice, notes=(*notes, *said))


def _of_memory(question: Question, ladder: Ladder | None) -> list[str]:
    if ladder is None:
        return ["No size was tried for whether it fits into memory"]
    notes = []
    if ladder.b_max is None:
        notes.append(f"The largest size that fits is unknown: {ladder.bounded_by}")
    else:
        notes.append(f"The search for what fits ended at {ladder.b_max}: {ladder.bounded_by}")
        steps = ladder.probes[ladder.b_max].steps
        if steps < 20:
            notes.append(f"A batch of {ladder.b_max} ran for only {steps} optimizer steps")
    if question.varying:
        notes.append("Batches differ in size, so leave room: what fits depends on which samples share a batch")
    return notes


def _of_time(own: int, found: Measurements, advice: BatchAdvice, launch_bound: bool) -> list[str]:
    notes = []
    waiting = {size: found.waiting(size) for size in sorted(found.blocks)}
    bound = [size for size, share in waiting.items() if share > LOADER_BOUND]
    if bound:
        notes.append(
            f"The training waits for its loader {100 * max(waiting.values()):.0f} % of the time at a batch of "
            f"{max(bound, key=lambda size: waiting[size])}: rates and line depend on the loader as well"
        )
    elif launch_bound and advice.alpha_ns is not None and advice.beta_ns is not None:
        share = advice.alpha_ns / (advice.alpha_ns + advice.beta_ns * own)
        notes.append(
            f"At a batch of {own}, {100 * share:.0f} % of a step's time does not depend on the batch: the step is "
            "launch- or overhead-bound"
        )
    if advice.alpha_ns is None and len(found.blocks) > 2:
        notes.append("Larger batches do not make steps longer, so no line is drawn")
    return notes


def _of_device(found: Measurements) -> list[str]:
    """What the training would do without a loader, and what a loader would have to deliver for that."""
    if not found.alone:
        return ["The training's rate at these sizes without a loader was not measured"]
    best = max(found.alone, key=lambda size: found.alone[size])
    now = found.rates()[best].value
    return [
        f"With batches kept in memory the training is fastest at {best}: {found.alone[best]:.0f} samples/s. A loader "
        f"would have to deliver that; it delivers {now:.0f}"
    ]


def _micro_batch(own: int, rates: Rates, found: Measurements) -> tuple[int | None, list[str]]:
    """A smaller batch that is clearly faster, to be accumulated to the same global one; what larger ones would do."""
    fit = found.fit()
    of = {size: rate.value for size, rate in rates.items()}
    if fit is None or own not in of:
        return None, []

    def faster(size: int) -> bool:
        return of[size] > (1 + WORTH_TUNING) * of[own] and fit.change(size, own, TOTAL).above_zero

    notes = []
    smaller = [size for size in of if size < own and own % size == 0 and faster(size)]
    micro = max(smaller, key=lambda size: of[size], default=None)
    if micro is not None:
        notes.append(
            f"Batches of {micro}, with gradients accumulated over {own // micro}, keep the global batch of {own} "
            f"and are {100 * (of[micro] / of[own] - 1):.0f} % faster (divide each loss by {own // micro}; batch norm "
            f"uses {micro} samples)"
        )
    larger = max((size for size in of if size > own and faster(size)), key=lambda size: of[size], default=None)
    if larger is not None:
        gain = 100 * (of[larger] / of[own] - 1)
        notes.append(f"A batch of {larger} is {gain:.0f} % faster than {own}. {learning_rate_note(own, larger)}")
    return micro, notes


def cannot(why: str) -> BatchAdvice:
    """Advise nothing: the loader cannot be rebuilt with another batch size, for `why` (a clause)."""
    return BatchAdvice(None, None, notes=(f"The batch size was not tuned: {why}.",))
