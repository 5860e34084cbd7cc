"""What the training waited for when it waited for data, and how these waits are spread over the steps.

Only exposed waiting counts: that in which the device had nothing else to do. Each nanosecond of it falls into one
piece:

- *sampling*: the sampler worked, in the training's thread;
- *starting*: at the beginning of an epoch, until a worker took up the first batch of the pass;
- *filling*: the rest of an epoch's first fetch, beyond what fetches cost otherwise;
- *handed*: the batch was finished, and on its way to the training;
- *slow*: one of few batches that take much longer than the others, for a single sample, was being made, while later
  ones lay finished;
- *reading*: a batch that is mostly read from storage was being made, or not even begun;
- *making*: any other batch was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, StepFlag
from ..intervals import blocks, covered, subtract
from ..shares import MOSTLY, NEARLY_ALL
from .stall_breakdown import Partition
from .window import Window
from .worker_records import first_later_end, joined

LEAST_HIT_NS = 300_000
"""Length of a wait, ns, from which its step counts as one that waited, if the wait is `LEAST_HIT_SHARE` as well."""
LEAST_HIT_SHARE = 0.1
"""Length of a wait, as a share of what a step takes without waiting, from which its step counts as one that waited:
shorter ones are noise of the scheduler."""
SINGLE_STEPS = 0.15
"""Share of the steps up to which those that wait are single ones."""
STANDS_OUT = 3
"""Times that the waits of steps that wait considerably are as long as the others', medians, from which it matters which
steps these are; below, where the line between them falls is chance."""
LEAST_PERIODS = 4
"""Times that a period has to be seen to be one."""
MOSTLY_READING = 0.5
"""Share of its making from which a batch is one that is read, the time it queued for a CPU left out; and of all making,
from which a loader is one that reads."""
SLOW_TIMES = 2.5
"""Time of preparing a batch over the median of all, from which the batch is slow by itself."""
MOST_SLOW = 0.25
"""Share of the batches that may be slow by themselves; where the others are uneven as well, none is."""
ALIKE_TIMES = 1.3
"""Time of making a batch over the median of all, up to which those that are not slow by themselves are even."""

Lengths = npt.NDArray[np.float64]


class Spread(Enum):
    NOWHERE = "nowhere"
    EVERY_STEP = "every step"
    FIRST_OF_EPOCH = "first step of an epoch"
    PERIODIC = "every so many steps"
    A_LITTLE = "a little at every step"
    SINGLE = "single steps"
    IRREGULAR = "irregular"


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
        longest = f"the longest {self.longest_ns / 1e6:.0f} ms"
        return {
            Spread.NOWHERE: "at no step",
            Spread.EVERY_STEP: "at every step" if self.hit == self.steps else "at almost every step",
            Spread.FIRST_OF_EPOCH: "at the first step of an epoch",
            Spread.PERIODIC: f"at every {_ordinal(self.period or 0)} step",
            Spread.A_LITTLE: "a little at a time",
            Spread.SINGLE: f"at {self.hit} of {self.steps} steps, {longest}",
            Spread.IRREGULAR: f"at {self.hit} of {self.steps} steps, irregularly, {longest}",
        }[self.spread]


@dataclass(frozen=True)
class Waits:
    """The pieces of the exposed wait in ns; they sum to `input_ns` of the partition. See the module."""

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
    """Share of the steps, 0..1, whose batch is known; waits of the others are divided in the same proportions."""
    epochs: int
    """Passes over the data that began in the window."""
    iterators: int | None
    """Iterators of the loader that these passes went over: one, where workers are kept. `None` where not known."""
    batches_per_epoch: float | None
    """Steps of each pass that began in the window, what of the window came before the first of them left out; `None`
    with fewer than two passes."""
    left_early: float | None
    """Share of the loader's iterators, 0..1, of which workers had made more batches than were taken, the last of the
    window left out; `None` where they were not told apart, or there were fewer than two."""
    shape: Shape
    """How waits are spread over the steps; first fetches of epochs are left out, unless they are nearly all of it."""
    slow: Slow | None
    """How much longer the batches of steps that waited took; `None` where no step waited, or no batch is known."""

    @property
    def total_ns(self) -> int:
        of_epochs = self.sampling_ns + self.starting_ns + self.filling_ns
        return of_epochs + self.handed_ns + self.slow_ns + self.reading_ns + self.making_ns

    def pct(self, piece_ns: int) -> float | None:
        """A piece in percent of the whole exposed wait; `None` where there was none, or no step's batch is known."""
        whole = self.total_ns
        return 100 * piece_ns / whole if whole and self.told > 0 else None


@dataclass(frozen=True)
class Slow:
    """The batches of the steps that waited, or where there are any those of them that are slow by themselves, against
    all batches."""

    times: float
    """Their median making time over that of all."""


def waits_of(window: Window, batches: Records, parts: Partition, sampling_ns: int = 0) -> Waits:
    """Take the exposed wait apart. `batches`: those of the loaders that train, with their steps (`of_training`).
    `sampling_ns`: what the sampler took of it."""
    steps = window.steps
    every_wait = parts
    # Whatever became of the batch that was due, the training waited for its sampler.
    parts = replace(parts, input_ns=parts.input_ns - sampling_ns, loading=subtract(parts.loading, parts.sampling))
    first = (steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0
    begin, end = _fetches(steps)
    exposed = _waited(parts, begin, end)
    place, batch = joined(steps, batches)
    by_one = _is_slow(batches)[batch]
    ordinary = ~first[place]
    amounts = _divided(parts, begin[place], end[place], batches, batch, by_one, ordinary)
    starting_ns = round(_starting(parts, batches, begin[first], end[first]))
    filling_ns = max(0, parts.fill_ns - starting_ns)
    if by_one[first[place]].any() and by_one[first[place]].mean() >= MOSTLY:
        # It is not that they are the first ones.
        first_slow_ns, filling_ns = filling_ns, 0
    else:
        first_slow_ns = 0
    # What first fetches cost as others do is shared out as the others' is. Of waits in the midst of a step nothing is
    # known: another loader may feed it.
    whole = parts.input_ns - starting_ns - filling_ns - first_slow_ns
    in_steps = _waited(parts, begin, steps["step_end_ns"])
    seen, elsewhere = float(exposed[place][ordinary].sum()), float((in_steps - exposed)[~first].sum())
    del in_steps
    known_ns = whole * seen / (seen + max(0.0, elsewhere)) if seen > 0 else 0.0
    shared = {name: round(known_ns * each / seen) if seen > 0 else 0 for name, each in amounts.items()}
    shared["making"] = whole - shared["handed"] - shared["slow"] - shared["reading"]
    epochs, begun = int(first.sum()), int(np.argmax(first))
    earlier = begun + int(np.maximum(steps["skipped"][1 : begun + 1], 0).sum())
    pace = (parts.wall_ns - every_wait.input_ns) / max(1, window.count)
    waited = _waited(every_wait, begin, steps["step_end_ns"])
    return Waits(
        sampling_ns=sampling_ns,
        starting_ns=starting_ns,
        filling_ns=filling_ns,
        handed_ns=shared["handed"],
        slow_ns=shared["slow"] + first_slow_ns,
        reading_ns=shared["reading"],
        making_ns=shared["making"],
        blocked_ns=shared["blocked"],
        told=len(place) / len(steps) if len(steps) else 0.0,
        epochs=epochs,
        iterators=_iterators(steps[first]),
        batches_per_epoch=(window.count - earlier) / epochs if epochs > 1 else None,
        left_early=_left_early(steps, batches),
        shape=shape_of(waited, first, pace),
        slow=_slow(exposed, pace, place, batches, batch, by_one),
    )


def shape_of(lengths: Lengths, first: npt.NDArray[np.bool_], pace_ns: float) -> Shape:
    """How waits are spread over steps that follow each other.

    Args:
        lengths: the wait of each step, ns.
        first: which steps begin an epoch.
        pace_ns: a step's own time.
    """
    least = max(LEAST_HIT_NS, LEAST_HIT_SHARE * pace_ns)
    whole = float(lengths.sum())
    if not (lengths >= least).any():
        return Shape(Spread.NOWHERE, 0, len(lengths))
    if first.any() and not first.all() and float(lengths[first].sum()) >= NEARLY_ALL * whole:
        hit = int((lengths[first] >= least).sum())
        return Shape(Spread.FIRST_OF_EPOCH, hit, len(lengths), None, int(lengths.max()))
    ordinary = np.where(first, 0.0, lengths)
    hits = np.flatnonzero(ordinary >= least)
    longest = int(ordinary.max())
    count = len(lengths) - int(first.sum())
    if len(hits) == 0:
        return Shape(Spread.FIRST_OF_EPOCH, int((lengths >= least).sum()), len(lengths), None, int(lengths.max()))
    if len(hits) >= NEARLY_ALL * count:
        return Shape(Spread.EVERY_STEP, len(hits), count, None, longest)
    # Steps that hold less of the waiting, or wait hardly longer than the rest, do not tell how it is spread.
    rest = np.delete(lengths, hits)[~np.delete(first, hits)]
    alike = float(np.median(ordinary[hits])) < STANDS_OUT * float(np.median(rest))
    if alike or float(ordinary[hits].sum()) < MOSTLY * float(ordinary.sum()):
        return Shape(Spread.A_LITTLE, len(hits), count, None, longest)
    period = _period(ordinary, hits)
    if period is not None:
        return Shape(Spread.PERIODIC, len(hits), count, period, longest)
    spread = Spread.SINGLE if len(hits) <= SINGLE_STEPS * count else Spread.IRREGULAR
    return Shape(spread, len(hits), count, None, longest)


def _period(lengths: Lengths, hits: npt.NDArray[np.int64]) -> int | None:
    """The distance at which nearly all of the waiting returns, nearly every time, while most steps between have little
    of it."""
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


def _slow(
    exposed: Lengths,
    pace_ns: float,
    place: npt.NDArray[np.int64],
    batches: Records,
    batch: npt.NDArray[np.int64],
    by_one: npt.NDArray[np.bool_],
) -> Slow | None:
    made = (batches["end_ns"] - batches["begin_ns"])[batch].astype(np.float64)
    hit = exposed[place] >= max(LEAST_HIT_NS, LEAST_HIT_SHARE * pace_ns)
    if not hit.any() or not (usual := float(np.median(made))):
        return None
    hit = hit & by_one if (hit & by_one).any() else hit
    return Slow(float(np.median(made[hit])) / usual)


def _fetches(steps: Records) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Begin and end of each step's fetch; empty where it was not seen."""
    begin, end = steps["fetch_begin_ns"], steps["fetch_end_ns"]
    return begin, np.where(end == NOT_MEASURED, begin, end)


def _waited(parts: Partition, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> Lengths:
    """Exposed waiting within each [begin, end)."""
    return covered(parts.loading, begin, end).astype(np.float64)


def _starting(parts: Partition, batches: Records, begin: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> float:
    """Exposed waiting in first fetches until a worker takes up any batch; none where that is not seen to happen."""
    taken_up = np.sort(batches["begin_ns"])
    place = np.searchsorted(taken_up, begin)
    found = place < len(taken_up)
    first = taken_up[np.minimum(place, len(taken_up) - 1)] if len(taken_up) else begin
    until = np.where(found & (first < end), first, begin)
    return float(_waited(parts, begin, until).sum())


def _iterators(first: Records) -> int | None:
    told = first["loader"][first["loader"] != NOT_MEASURED]
    return len(np.unique(told)) if len(told) else None


def _left_early(steps: Records, batches: Records) -> float | None:
    """An iterator that is left takes what its workers have made ahead with it."""
    told = steps[(steps["loader"] != NOT_MEASURED) & (steps["batch"] != NOT_MEASURED)]
    iterators = np.unique(told["loader"])[:-1]
    if len(iterators) == 0:
        return None
    left = []
    for iterator in iterators.tolist():
        taken = told["batch"][told["loader"] == iterator].max()
        made = batches["batch"][batches["loader"] == iterator]
        left.append(len(made) > 0 and made.max() > taken)
    return float(np.mean(left))


def _divided(
    parts: Partition,
    begin: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    batches: Records,
    batch: npt.NDArray[np.int64],
    by_one: npt.NDArray[np.bool_],
    which: npt.NDArray[np.bool_],
) -> dict[str, float]:
    """The exposed waiting in fetches by what became of their batches, ns.

    Args:
        begin, end: of each fetch.
        batch: the place of each fetch's batch.
        by_one: whether that is slow for the sake of one sample.
        which: the fetches that count.
    """
    later, read = first_later_end(batches), is_read(batches)
    sums = dict.fromkeys(("handed", "slow", "reading", "making", "blocked"), 0.0)
    for some in blocks(len(batch)):
        b, e, of = begin[some], end[some], batch[some]
        finished = batches["end_ns"][of]
        still = np.minimum(e, finished)
        handed = _waited(parts, np.maximum(b, finished), e)
        rest = _waited(parts, b, e) - handed
        blocked = _waited(parts, np.minimum(np.maximum(b, later[of]), still), still)
        slow = by_one[some] & (blocked >= MOSTLY * rest)
        counts = which[some]
        sums["handed"] += float(handed.sum(where=counts))
        sums["slow"] += float(rest.sum(where=counts & slow))
        sums["reading"] += float(rest.sum(where=counts & read[of] & ~slow))
        sums["making"] += float(rest.sum(where=counts & ~read[of] & ~slow))
        sums["blocked"] += float(blocked.sum(where=counts))
    return sums


def _is_slow(batches: Records) -> npt.NDArray[np.bool_]:
    """Which batches take much longer than the others for the sake of one sample; none where many are so.

    Time in which a batch only waited for a CPU tells nothing of its samples, and on a busy machine buries all else.
    """
    if len(batches) == 0:
        return np.zeros(0, dtype=bool)
    queued = np.where(batches["run_queue_ns"] == NOT_MEASURED, 0, batches["run_queue_ns"])
    made = (batches["end_ns"] - batches["begin_ns"] - queued / np.maximum(1, batches["threads"])).astype(np.float64)
    slowest = batches["slowest_ns"]
    slow = (made >= SLOW_TIMES * np.median(made)) & (slowest != NOT_MEASURED) & (slowest >= MOSTLY * made)
    alike = np.quantile(made, 1 - MOST_SLOW) <= ALIKE_TIMES * np.median(made)
    return np.asarray(slow) if alike else np.zeros(len(made), dtype=bool)


def is_read(batches: Records) -> npt.NDArray[np.bool_]:
    """Which batches are mostly read from storage."""
    read = np.where(batches["read_ns"] == NOT_MEASURED, 0, batches["read_ns"])
    queued = np.where(batches["run_queue_ns"] == NOT_MEASURED, 0, batches["run_queue_ns"])
    made = (batches["end_ns"] - batches["begin_ns"]) * np.maximum(1, batches["threads"]) - queued
    return np.asarray((read > 0) & (read >= MOSTLY_READING * made))


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{ending}"
