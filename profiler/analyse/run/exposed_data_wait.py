"""What the training waited for when it waited for data, and how these waits are spread over the steps.

Only exposed waiting counts: that in which the device had nothing else to do. Each nanosecond of it falls into one
piece:

- *sampling*: the sampler worked, in the training's thread. It draws the indices of batches within the fetches, with
  any number of workers: the first ones of an epoch when that begins, those of a later batch when one is handed over;
- *starting*: at the beginning of an epoch, until a worker took up the first batch of the pass;
- *filling*: the rest of an epoch's first fetch, beyond what fetches cost otherwise;
- *handed*: the batch was finished, and on its way to the training;
- *slow*: one of few batches that take much longer than the others, for a single sample, was being made, while later
  ones lay finished;
- *reading*: a batch that is mostly read from storage was being made, or not even begun;
- *making*: any other batch was.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from ...record.reader import Records
from ...record.schema import NAN, NOT_MEASURED, EventKind
from ..intervals import Intervals, blocks, covered, intersect, subtract, total, union
from ..shares import MOSTLY, NEARLY_ALL
from .loader_stats import first_later_end, is_read, joined, unqueued_ns
from .stall_breakdown import Partition
from .window import Lengths, Mask, Stamps, Window, known, lasting

LEAST_HIT_NS, LEAST_HIT_SHARE = 300_000, 0.1
"""Length of a wait, ns, and over a step's own time, from which both its step counts: less is scheduling."""
SINGLE_STEPS = 0.15
"""Share of the steps up to which those that wait are single ones."""
STANDS_OUT = 3
"""Waits of waiting steps over the others', medians, from which it matters which steps these are."""
LEAST_PERIODS = 4
"""Times that a period has to be seen to be one."""
SLOW_TIMES = 2.5
"""Time of preparing a batch over the median of all, from which the batch is slow by itself."""
MOST_SLOW = 0.25
"""Share of the batches that may be slow by themselves; none is where the rest are uneven too."""
ALIKE_TIMES = 1.3
"""Time of making a batch over the median of all, up to which the other batches are even."""


class Spread(Enum):
    """How waits are spread over the steps, in words to put into a sentence."""

    NOWHERE = "at no step"
    EVERY_STEP = "at {almost}every step"
    FIRST_OF_EPOCH = "at the first step of an epoch"
    PERIODIC = "at every {nth} step"
    A_LITTLE = "a little at a time"
    SINGLE = "at {hit} of {steps} steps, the longest {ms:.0f} ms"
    IRREGULAR = "at {hit} of {steps} steps, irregularly, the longest {ms:.0f} ms"


@dataclass(frozen=True)
class Shape:
    """How waits are spread over the steps."""

    spread: Spread
    hit: int = 0
    """Steps that waited considerably."""
    steps: int = 0
    """Steps that might have: first ones of epochs count only where all waiting is theirs."""
    period: int | None = None
    """Steps from one wait to the next, of `PERIODIC` waits."""
    longest_ns: int = 0
    """Length of the longest wait."""

    @property
    def words(self) -> str:
        """Where in the training the waits are, to put into a sentence."""
        nth, almost = self.period or 0, "" if self.hit == self.steps else "almost "
        ending = {1: "st", 2: "nd", 3: "rd"}.get(nth % 10 if nth % 100 not in (11, 12, 13) else 0, "th")
        numbers = {"hit": self.hit, "steps": self.steps, "ms": self.longest_ns / 1e6}
        return self.spread.value.format(almost=almost, nth=f"{nth}{ending}", **numbers)


@dataclass(frozen=True)
class Waits:
    """Pieces of the exposed wait, ns (see the module); they sum to the partition's `input_ns`."""

    sampling_ns: int
    starting_ns: int
    filling_ns: int
    handed_ns: int
    slow_ns: int
    reading_ns: int
    making_ns: int
    blocked_ns: int
    """No piece of its own: waiting for a batch in the making, while a later one lay finished."""
    told: float
    """Share of the steps, 0..1, whose batch is known; the others' waits are divided alike."""
    epochs: int
    """Passes over the data that began in the window."""
    iterators: int | None
    """Iterators of the loader in these passes: one, where workers are kept. `None`: not known."""
    batches_per_epoch: float
    """Steps of each pass that began in the window; NaN: fewer than two passes."""
    left_early: float
    """Share of the loader's iterators, 0..1, the last left out, whose workers made more batches than were taken;
    NaN: not told apart, or fewer than two."""
    shape: Shape
    """How waits are spread; without epochs' first fetches, unless these are nearly all."""
    slow_times: float
    """Time to make batches of steps that waited (if any, those slow by themselves) over that of all, medians; NaN: no
    step waited, or none is known."""

    @property
    def total_ns(self) -> int:
        of_epochs = self.sampling_ns + self.starting_ns + self.filling_ns
        return of_epochs + self.handed_ns + self.slow_ns + self.reading_ns + self.making_ns

    def pct(self, piece_ns: int) -> float:
        """A piece in percent of the exposed wait; NaN: no wait, or no known batch."""
        whole = self.total_ns
        return 100 * piece_ns / whole if whole and self.told > 0 else NAN


@dataclass(frozen=True)
class Sampling:
    """A sampler's work in the window. What took it less than 0.1 ms is not told, and not in it."""

    ns: int
    """Part of the exposed wait for data, unsampled steps taken to be like the others."""
    first_ns: int
    """Part of it in the first fetches of epochs."""
    draw_ms: float | None
    """Time for a batch after its epoch's first, exposed or not; the median. `None`: not told."""
    drawn: float | None
    """Indices drawn at a time; the median. `None` where they were no lists."""
    each_ns: float = 0.0
    """Time for a batch after its epoch's first, exposed or not; the mean."""

    def of_epochs(self, ns: float) -> bool:
        """Whether so much of it is mostly where epochs begin."""
        return self.first_ns >= MOSTLY * ns


def sampling_of(window: Window, events: Records, parts: Partition) -> Sampling | None:
    """`None` where no sampler's work was told."""
    told = window.during(lasting(events, EventKind.SAMPLER))
    if len(told) == 0:
        return None
    first = window.steps[window.firsts]
    # The fetch of a step without one is empty.
    firsts = union(first["fetch_begin_ns"], first["fetch_end_ns"])
    first_ns = total(intersect(parts.sampling, firsts))
    # First fetches are always seen.
    others_ns = total(parts.when["input"]) - parts.first_fetch_ns
    grown = (parts.input_ns - parts.first_fetch_ns) / others_ns if others_ns > 0 else 1.0
    drew = told[told["value"] != 0]
    later = drew[covered(firsts, drew["t_ns"], drew["end_ns"]) == 0]
    took_ns, counted = later["end_ns"] - later["t_ns"], known(drew, "value")
    return Sampling(
        ns=first_ns + round((total(parts.sampling) - first_ns) * grown),
        first_ns=first_ns,
        draw_ms=float(np.median(took_ns)) / 1e6 if len(later) else None,
        drawn=float(np.median(counted)) if len(counted) else None,
        each_ns=float(took_ns.sum()) / max(1, len(window.steps) - len(first)),
    )


def waits_of(window: Window, batches: Records, parts: Partition, sampling_ns: int = 0) -> Waits:
    """Take the exposed wait apart.

    Args:
        batches: those of the loaders that train, with their steps (`of_training`).
        sampling_ns: the sampler's part of it.
    """
    steps, first = window.steps, window.firsts
    # Whatever became of the batch that was due, the training waited for its sampler.
    waiting = subtract(parts.when["input"], parts.sampling)
    # A fetch that was not seen is empty.
    begin, end = steps["fetch_begin_ns"], np.maximum(steps["fetch_begin_ns"], steps["fetch_end_ns"])
    exposed = covered(waiting, begin, end)
    place, batch = joined(steps, batches)
    by_one = _is_slow(batches)[batch]
    ordinary = ~first[place]
    amounts = _divided(waiting, begin[place], end[place], batches, batch, by_one, ordinary)
    # Until a worker takes up any batch; nothing where none is seen to.
    taken_up = np.append(np.sort(batches["begin_ns"]), np.iinfo(np.int64).max)
    taken_up = taken_up[np.searchsorted(taken_up[:-1], begin[first])]
    until = np.where(taken_up < end[first], taken_up, begin[first])
    starting_ns = round(float(covered(waiting, begin[first], until).sum()))
    filling_ns = max(0, parts.fill_ns - starting_ns)
    first_slow_ns = 0
    if by_one[first[place]].any() and by_one[first[place]].mean() >= MOSTLY:
        # It is not that they are the first ones.
        first_slow_ns, filling_ns = filling_ns, 0
    # What first fetches cost as others do is shared out as the others' is. Of waits in the midst of a step nothing is
    # known: another loader may feed it.
    whole = parts.input_ns - sampling_ns - starting_ns - filling_ns - first_slow_ns
    in_steps = covered(waiting, begin, steps["step_end_ns"])
    seen, elsewhere = float(exposed[place][ordinary].sum()), float((in_steps - exposed)[~first].sum())
    del in_steps
    known_ns = whole * seen / (seen + max(0.0, elsewhere)) if seen > 0 else 0.0
    shared = {name: round(known_ns * each / seen) if seen > 0 else 0 for name, each in amounts.items()}
    epochs, begun = int(first.sum()), int(np.argmax(first))
    earlier = begun + int(np.maximum(steps["skipped"][1 : begun + 1], 0).sum())
    pace = (parts.wall_ns - parts.input_ns) / max(1, window.count)
    iterators = known(steps[first], "loader")
    # How long batches of steps that waited took to make; where some are slow by themselves, those.
    made = (batches["end_ns"] - batches["begin_ns"])[batch].astype(np.float64)
    hit = exposed[place] >= max(LEAST_HIT_NS, LEAST_HIT_SHARE * pace)
    hit = hit & by_one if (hit & by_one).any() else hit
    usual_ns = float(np.median(made)) if hit.any() else 0.0
    return Waits(
        sampling_ns=sampling_ns,
        starting_ns=starting_ns,
        filling_ns=filling_ns,
        handed_ns=shared["handed"],
        slow_ns=shared["slow"] + first_slow_ns,
        reading_ns=shared["reading"],
        making_ns=whole - shared["handed"] - shared["slow"] - shared["reading"],
        blocked_ns=shared["blocked"],
        told=len(place) / len(steps) if len(steps) else 0.0,
        epochs=epochs,
        iterators=len(np.unique(iterators)) if len(iterators) else None,
        batches_per_epoch=(window.count - earlier) / epochs if epochs > 1 else NAN,
        left_early=_left_early(steps, batches),
        shape=shape_of(covered(parts.when["input"], begin, steps["step_end_ns"]), first, pace),
        slow_times=float(np.median(made[hit])) / usual_ns if usual_ns else NAN,
    )


def shape_of(lengths: Lengths | Stamps, first: Mask, pace_ns: float) -> Shape:
    """Tell how waits are spread over steps that follow each other.

    `lengths`: each step's wait, ns; `first`: which steps begin an epoch; `pace_ns`: a step's own time.
    """
    hit = lengths >= max(LEAST_HIT_NS, LEAST_HIT_SHARE * pace_ns)
    if not hit.any():
        return Shape(Spread.NOWHERE, 0, len(lengths))
    of_epochs = Shape(Spread.FIRST_OF_EPOCH, int(hit[first].sum()), len(lengths), None, int(lengths.max()))
    if first.any() and not first.all() and float(lengths[first].sum()) >= NEARLY_ALL * float(lengths.sum()):
        return of_epochs
    ordinary = np.where(first, 0.0, lengths)
    hits = np.flatnonzero(hit & ~first)
    if len(hits) == 0:
        return of_epochs
    longest, count = int(ordinary.max()), len(lengths) - int(first.sum())
    # Steps that hold less of the waiting, or wait hardly longer than the rest, do not tell how it is spread.
    rest, period = lengths[~hit & ~first], None
    alike = len(rest) > 0 and float(np.median(ordinary[hits])) < STANDS_OUT * float(np.median(rest))
    if len(hits) >= NEARLY_ALL * count:
        spread = Spread.EVERY_STEP
    elif alike or float(ordinary[hits].sum()) < MOSTLY * float(ordinary.sum()):
        spread = Spread.A_LITTLE
    elif (period := _period(ordinary, hits)) is not None:
        spread = Spread.PERIODIC
    else:
        spread = Spread.SINGLE if len(hits) <= SINGLE_STEPS * count else Spread.IRREGULAR
    return Shape(spread, len(hits), count, period, longest)


def _period(lengths: Lengths, hits: Stamps) -> int | None:
    """The distance at which nearly all waiting returns, nearly every time, with little between."""
    # Of two neighbouring steps that wait, the longer one tells.
    starts = hits[np.concatenate(([True], np.diff(hits) > 1))]
    if len(starts) < LEAST_PERIODS:
        return None
    period = int(np.median(np.diff(starts)))
    if period < 2 or len(lengths) < LEAST_PERIODS * period:
        return None
    places = np.bincount(np.arange(len(lengths)) % period, weights=lengths, minlength=period)
    width = max(1, round(len(hits) / len(starts)))
    if width > MOSTLY * period:
        return None
    around = sum(np.roll(places, -shift) for shift in range(width))
    begin = int(np.argmax(around))
    late = (hits - begin) % period < width
    times = len(np.unique((hits - begin)[late] // period))
    returns = times >= NEARLY_ALL * (len(lengths) // period)
    return period if returns and float(np.max(around)) >= NEARLY_ALL * float(lengths.sum()) else None


def _left_early(steps: Records, batches: Records) -> float:
    """An iterator that is left takes what its workers have made ahead with it."""
    told = steps[(steps["loader"] != NOT_MEASURED) & (steps["batch"] != NOT_MEASURED)]
    taken = {iterator: told["batch"][told["loader"] == iterator].max() for iterator in np.unique(told["loader"])[:-1]}
    left = [(batches["batch"][batches["loader"] == iterator] > last).any() for iterator, last in taken.items()]
    return float(np.mean(left)) if left else NAN


def _divided(
    waiting: Intervals, begin: Stamps, end: Stamps, batches: Records, batch: Stamps, by_one: Mask, which: Mask
) -> dict[str, float]:
    """The exposed waiting in fetches by what became of their batches, ns.

    `begin`, `end` and `batch` (its place): of each fetch; `by_one`: whether that is slow for the sake of one sample;
    `which`: the fetches that count.
    """
    later, read = first_later_end(batches), is_read(batches)
    sums = dict.fromkeys(("handed", "slow", "reading", "making", "blocked"), 0.0)
    for some in blocks(len(batch)):
        b, e, of = begin[some], end[some], batch[some]
        finished = batches["end_ns"][of]
        still = np.minimum(e, finished)
        handed = covered(waiting, np.maximum(b, finished), e)
        rest = covered(waiting, b, e) - handed
        blocked = covered(waiting, np.minimum(np.maximum(b, later[of]), still), still)
        slow = by_one[some] & (blocked >= MOSTLY * rest)
        counts = which[some]
        sums["handed"] += float(handed.sum(where=counts))
        sums["slow"] += float(rest.sum(where=counts & slow))
        sums["reading"] += float(rest.sum(where=counts & read[of] & ~slow))
        sums["making"] += float(rest.sum(where=counts & ~read[of] & ~slow))
        sums["blocked"] += float(blocked.sum(where=counts))
    return sums


def _is_slow(batches: Records) -> Mask:
    """Which batches take much longer than the others for the sake of one sample; none where many do.

    Waiting for a CPU tells nothing of the samples, and on a busy machine buries all else.
    """
    if len(batches) == 0:
        return np.zeros(0, dtype=bool)
    made = unqueued_ns(batches) / np.maximum(1, batches["threads"])
    slowest = batches["slowest_ns"]
    slow = (made >= SLOW_TIMES * np.median(made)) & (slowest != NOT_MEASURED) & (slowest >= MOSTLY * made)
    alike = np.quantile(made, 1 - MOST_SLOW) <= ALIKE_TIMES * np.median(made)
    return np.asarray(slow) if alike else np.zeros(len(made), dtype=bool)
