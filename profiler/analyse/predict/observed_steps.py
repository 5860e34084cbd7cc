"""What the training's side of a recorded run took: its own work, the device's, fetches, beginnings of epochs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED, EventKind, PauseKind, StepFlag
from ..intervals import covered, union_of
from ..run.events import lasting, under_way
from ..run.facts import Facts
from ..run.training_thread import rises
from .workload import Times

LAIN_NS = 2_000_000
"""Time before it is asked for at which a batch has to be finished to lie ready then: in it the batch is pickled and
sent."""
QUICK = 0.1
"""Share of the steps, the quickest ones, that are taken not to have waited for a CPU."""
HELD_NS = 1_000_000
"""Time beyond the quickest from which a hand-over was delayed."""
LEAST_FETCHES = 5
"""Fetches of a kind that a median is taken of, at least."""


@dataclass(frozen=True)
class Handoff:
    """What taking over a batch costs where nothing delays it. `None`: too few fetches were of the kind."""

    ready_ns: float | None
    """Length of a fetch whose batch lay ready."""
    waited_ns: float | None
    """Time from a batch's end in its worker to the end of the fetch that waited for it."""
    delay_ns: float = 0.0
    """What batches were on their way longer than that, the mean: the thread of a busy worker that sends them waits for
    its interpreter, and whoever wants a CPU for that."""


def host_of(steps: Records, host: Records, events: Records, facts: Facts, serial: Records | None) -> Times:
    """The training's own time of each step that another one follows, waiting for a CPU left out.

    `serial`: the batches that the training made itself, whose waiting for a CPU is theirs.
    """
    follows = _followed(steps)
    rows = np.flatnonzero(follows)
    begin, end = steps["fetch_end_ns"][rows], steps["fetch_begin_ns"][rows + 1]
    outside = union_of(
        under_way(lasting(events, EventKind.BOUNDARY)), under_way(lasting(events, EventKind.HEADROOM_FILL))
    )
    own = (end - begin - covered(outside, begin, end)).astype(np.float64)
    own -= np.nan_to_num(measured(steps["sync_ns"]))[rows] + np.nan_to_num(measured(steps["overhead_ns"]))[rows]
    own = np.asarray(np.maximum(0.0, own))
    queued = rises(host["t_ns"], host["main_thread_queue_ns"], facts.window)
    if queued is None or not own.any():
        return own
    makers = measured(np.empty(0) if serial is None else serial["run_queue_ns"])
    elsewhere = 0.0 if np.isnan(makers).all() else float(np.nanmean(makers))
    # Some of it was in fetches: what makes a step longer than the quickest ones is at most of the step itself.
    longer = np.maximum(0.0, own - np.quantile(own, QUICK))
    waited = max(0.0, float(queued.mean()) - elsewhere)
    quick: Times = own - longer * min(1.0, waited / max(1.0, float(longer.mean())))
    # Steps differ by their batches, too: what ran on a CPU did not wait for one.
    fetched = (steps["fetch_end_ns"] - steps["fetch_begin_ns"])[rows].astype(np.float64)
    taking = fetched if serial is not None else np.minimum(fetched, np.quantile(fetched, QUICK))
    ran = np.nan_to_num(measured(steps["cpu_ns"]))[rows] - taking
    return np.asarray(np.maximum(quick, np.minimum(own, ran)))


def on_device(steps: Records, pauses: Records) -> Times | None:
    """Work of each step on the device, its copy included, its pauses not; `None` where no step has stamps."""
    stamped = (steps["device_begin_ns"] != NOT_MEASURED) & (steps["device_end_ns"] != NOT_MEASURED)
    known = steps[stamped]
    if len(known) == 0:
        return None
    work = (known["device_end_ns"] - known["device_begin_ns"]).astype(np.float64)
    copied = (known["device_copy_begin_ns"] != NOT_MEASURED) & (known["device_copy_end_ns"] != NOT_MEASURED)
    # A copy on a stream of its own holds nothing up.
    copied &= (known["flags"] & StepFlag.COPIED_AHEAD) == 0
    before = np.minimum(known["device_copy_end_ns"], known["device_begin_ns"]) - known["device_copy_begin_ns"]
    work += np.where(copied, np.maximum(0, before), 0)
    held = pauses[
        (pauses["device_begin_ns"] != NOT_MEASURED)
        & (pauses["device_end_ns"] != NOT_MEASURED)
        & (pauses["what"] != PauseKind.COPY_AHEAD)
    ]
    place = np.searchsorted(known["step"], held["step"])
    place = np.minimum(place, len(known) - 1)
    of_these = known["step"][place] == held["step"]
    idle = np.maximum(0, held["device_end_ns"] - held["device_begin_ns"])
    np.subtract.at(work, place[of_these], idle[of_these])
    return np.asarray(np.maximum(0.0, work))


def handoff_of(steps: Records, batches: Records, most_ns: float | None, sampling_ns: float) -> Handoff:
    """What taking over a batch cost, first fetches of epochs left out; without the next indices being drawn.

    Args:
        most_ns: CPU time that the training's thread spent on it, the mean, where that is known.
        sampling_ns: what the sampler took of it, the mean.
    """
    ordinary = steps[((steps["flags"] & StepFlag.FIRST_OF_EPOCH) == 0) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    _, place, batch = np.intersect1d(ordinary["step"], batches["step"], return_indices=True)
    begin, end = ordinary["fetch_begin_ns"][place], ordinary["fetch_end_ns"][place]
    finished = batches["end_ns"][batch]
    waits = (finished > begin) & (finished <= end)
    # A batch that was finished when the training last waited for another one may have been taken over then.
    last_wait = np.maximum.accumulate(np.where(waits, end, 0))
    ready = (finished + LAIN_NS <= begin) & (finished > last_wait)
    taken = _undelayed((end - begin)[ready], most_ns)
    waited = _undelayed((end - finished)[waits], None)
    least = waited if taken is None else taken
    if least is None:
        return Handoff(None, None)
    # Of a fetch that was not held up it is only known that its batch was there before. What takes longer than making
    # the next batch is held up by something else.
    held = end - begin > least + HELD_NS
    making = float((batches["end_ns"] - batches["begin_ns"]).mean())
    late = np.clip(end - finished - max(least, waited or 0.0), 0, making)
    usual = float(np.median(late[held])) if held.any() else 0.0
    delay = float(np.where(held, late, np.clip(begin - finished, 0, usual)).mean())
    if taken is not None:
        taken = max(taken - sampling_ns, min(taken, HELD_NS))
    return Handoff(taken, None if waited is None else max(0.0, waited - sampling_ns), delay)


def start_of(steps: Records, batches: Records) -> float | None:
    """From asking for an iterator until one of its workers took up a batch: the median over the iterators that were
    made, of workers that persist over those that started them. `None` where no such begin was seen."""
    first = steps[(steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    _, new = np.unique(first["loader"], return_index=True)
    begins = []
    for row in first[new]:
        if row["loader"] == NOT_MEASURED:
            continue
        made = batches[(batches["loader"] == row["loader"]) & (batches["batch"] >> 32 == row["batch"] >> 32)]
        if len(made) and made["begin_ns"].min() >= row["fetch_begin_ns"]:
            begins.append(float(made["begin_ns"].min() - row["fetch_begin_ns"]))
    return float(np.median(begins)) if begins else None


def _followed(steps: Records) -> npt.NDArray[np.bool_]:
    """Steps with a fetch whose next step was looked at, in the same epoch."""
    next_ = steps[1:]
    follows = np.zeros(len(steps), dtype=bool)
    follows[:-1] = (
        (np.diff(steps["step"]) == 1)
        & (next_["skipped"] <= 0)
        & ((next_["flags"] & StepFlag.FIRST_OF_EPOCH) == 0)
        & (steps["fetch_end_ns"][:-1] != NOT_MEASURED)
        & (next_["fetch_end_ns"] != NOT_MEASURED)
    )
    return follows


def _undelayed(lengths: npt.NDArray[np.int64], most_ns: float | None) -> float | None:
    """The median; where that is far from the quickest ones, something delays most, and those tell it. Nothing above
    `most_ns` is work."""
    if len(lengths) < LEAST_FETCHES:
        return None
    quick, usual = np.quantile(lengths, (QUICK, 0.5))
    least = float(usual if usual <= quick + HELD_NS else max(quick, min(usual, HELD_NS)))
    return least if most_ns is None else min(least, max(most_ns, HELD_NS))
