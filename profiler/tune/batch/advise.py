"""Batch size within a budget: what fits, and what is fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ...analyse.run.stall_breakdown import TOTAL
from ...errors import WhyidleError
from ...record.tuning import LoaderSettings
from ..bench.bench import Bench
from ..search.race import WORTH_TUNING
from ..search.result import BatchAdvice
from .batch_choice import Rates, knee, learning_rate_note, step_time
from .ladder import Ladder, Try, climb
from .sizes import LOADER_BOUND, Measurements, measure, sizes_to_measure

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
        notes.append("The loader sets the pace, so the smallest within 5 % of the best cannot be told")
        notes += _of_device(found)
    elif bend.earliest != bend.latest:
        notes.append(
            f"By the intervals, the smallest within 5 % of the best could be any from {bend.earliest} to {bend.latest}"
        )
    notes += _of_time(own, found, advice, line is not None and line.launch_bound(own))
    micro, said = _micro_batch(own, rates, found)
    if micro is not None:
        advice = replace(advice, micro_batch=micro, accumulate=own // micro)
    return replace(advice, notes=(*notes, *said))


def _of_memory(question: Question, ladder: Ladder | None) -> list[str]:
    if ladder is None:
        return ["What fits into memory was not tried"]
    notes = []
    if ladder.b_max is None:
        notes.append(f"What fits is not known: {ladder.bounded_by}")
    else:
        notes.append(f"What fits was looked for up to {ladder.b_max}: {ladder.bounded_by}")
        steps = ladder.probes[ladder.b_max].steps
        if steps < 20:
            notes.append(f"{ladder.b_max} was run for {steps} optimizer steps only")
    if question.varying:
        notes.append("Batches differ in size, so what fits depends on which samples come together: leave room")
    return notes


def _of_time(own: int, found: Measurements, advice: BatchAdvice, launch_bound: bool) -> list[str]:
    notes = []
    waiting = {size: found.waiting(size) for size in sorted(found.blocks)}
    bound = [size for size, share in waiting.items() if share > LOADER_BOUND]
    if bound:
        notes.append(
            f"The training waits for its loader {100 * max(waiting.values()):.0f} % of the time at a batch of "
            f"{max(bound, key=lambda size: waiting[size])}: rates and the line tell of the loader as much as of it"
        )
    elif launch_bound and advice.alpha_ns is not None and advice.beta_ns is not None:
        share = advice.alpha_ns / (advice.alpha_ns + advice.beta_ns * own)
        notes.append(
            f"At a batch of {own} {100 * share:.0f} % of a step does not depend on the batch: it is launch- or "
            "overhead-bound at this size"
        )
    if advice.alpha_ns is None and len(found.blocks) > 2:
        notes.append("Steps take no longer with larger batches, so that no line is drawn")
    return notes


def _of_device(found: Measurements) -> list[str]:
    """What the training would do without a loader, and what a loader would have to deliver for that."""
    if not found.alone:
        return ["What the training would do of these sizes without a loader was not measured"]
    best = max(found.alone, key=lambda size: found.alone[size])
    now = found.rates()[best].value
    return [
        f"With batches that lay ready it trains most at {best}: {found.alone[best]:.0f} samples/s, which a loader "
        f"would have to deliver; it delivers {now:.0f}"
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
            f"Batches of {micro} with gradients accumulated over {own // micro} of them keep the global batch of {own} "
            f"and are {100 * (of[micro] / of[own] - 1):.0f} % faster (divide each loss by {own // micro}; batch norm "
            f"sees {micro} samples)"
        )
    larger = max((size for size in of if size > own and faster(size)), key=lambda size: of[size], default=None)
    if larger is not None:
        gain = 100 * (of[larger] / of[own] - 1)
        notes.append(f"{larger} trains {gain:.0f} % more samples/s than {own}. {learning_rate_note(own, larger)}")
    return micro, notes


def cannot(why: str) -> BatchAdvice:
    """The advice where the loader cannot be rebuilt with another batch size, for `why` (a clause)."""
    return BatchAdvice(None, None, notes=(f"The batch size was not tuned: {why}.",))
