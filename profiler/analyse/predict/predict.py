"""Throughput of any loader settings from what a recorded run cost: rates, waits and what binds, of
replayed steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...record.tuning import LoaderSettings
from ..run.loader_stats import HandedOver
from .replay import Replay, draw
from .workload import Prediction, Workload


class Assumed:
    """What torch's loader costs on Linux, where a run does not tell: measured on two virtual CPUs
    with torch 2.15, at batches of 4 kB to 13 MB, of 1 to 100 tensors and 0 to 10,000 other
    objects."""

    HANDOFF_NS = 800_000.0
    """Taking over a batch that lies ready, whatever is in it."""
    HANDOFF_NS_PER_TENSOR = 450_000.0
    """Each tensor's memory is asked for at a socket, opened and mapped by itself."""
    HANDOFF_NS_PER_OBJECT = 500.0
    """What is no tensor is unpickled."""
    TENSORS = 2
    """In a batch that nobody looked into."""
    TOUCH_NS_PER_BYTE = 0.43
    """Memory that was mapped for a batch costs a page fault for each page when the training first
    looks at it."""
    SHARE_NS_PER_TENSOR = 225_000.0
    """CPU time of a worker on a batch that the training's own process would not need: memory that
    all see, pickling."""
    SHARE_NS_PER_BYTE = 0.64
    """What each byte of the batch adds to that."""
    CONTENTION = 0.1
    """Share by which whatever computes takes longer where all other CPUs compute too: caches,
    memory and power are shared. Measured with two: none for most pairs of work, 0.25 beside work
    that waits for memory."""
    MOST_CONTENTION = 0.25
    """What that may well be."""
    OF_WAITED = 0.6
    """The hand-over's part of the time from a batch's end to the end of the fetch that waited for
    it."""
    START_NS = 25e6
    """Starting a worker, and ending it with its epoch, as `Workload.start_ns`: 1, 4, 8 and 16
    forked workers took 67, 105, 200 and 470 ms."""

    @staticmethod
    def contention(most: float, cpus: float) -> float:
        """`Workload.contention` of such a share, of so many CPUs."""
        return most / max(1.0, cpus - 1)

    @classmethod
    def handoff_ns(cls, held: HandedOver | None) -> float:
        """What the training spends to take a batch over, its memory untouched."""
        tensors, objects = (cls.TENSORS, 0.0) if held is None else (held.tensors, held.objects)
        return cls.HANDOFF_NS + cls.HANDOFF_NS_PER_TENSOR * tensors + cls.HANDOFF_NS_PER_OBJECT * objects

    @classmethod
    def sharing_ns(cls, held: HandedOver | None, nbytes: float) -> float:
        """CPU time that a worker spends to hand over a batch of so many bytes."""
        tensors = cls.TENSORS if held is None else held.tensors
        return cls.SHARE_NS_PER_TENSOR * tensors + cls.SHARE_NS_PER_BYTE * nbytes


STEPS, SEQUENCES = 192, 8
"""Steps, and sequences of them, that each setting is replayed with."""
MODEL_SD = 0.06
"""Standard deviation of a predicted log rate that is due to the model itself, beside all that is
counted. A choice."""
UNSEEN_SD = 0.3
"""Standard deviation of the log of a batch's time that a recording of few batches may not have
seen. A choice."""
UNKNOWN_HANDOFF_NS = 3e6
"""Hand-over that may well be where none was measured: the slow end of a prediction's interval."""
_Z90 = 1.645
"""Standard deviations to either side of a 90 % interval of a normal value."""


def predict(workload: Workload, settings: Sequence[LoaderSettings]) -> list[Prediction]:
    """Replay a training with each setting: the predictions in their order, each time the same.

    Pinning is predicted as equal: what a copy from pageable memory costs is part of the recorded
    step and not known apart. The interval holds 90 % of what would be measured if the recorded
    batches are what is to come: from sequences drawn from them, from hand-overs or storage limits
    that were not seen, and from what the model is off by.
    """
    rng = np.random.default_rng(0)
    # The replay does not tell these apart; all are of the recorded batch size.
    cases = [replace(each, batch_size=None, pin_memory=False, pipeline=None) for each in settings]
    different = list(dict.fromkeys(cases))
    drawn = draw(workload, SEQUENCES, STEPS, rng)
    replays = [[Replay(sequence, each, STEPS) for each in different] for sequence in drawn]
    ns = np.array([[each.ns_per_batch for each in sequence] for sequence in replays])
    stall = np.array([[each.stall_share for each in sequence] for sequence in replays]).mean(axis=0)
    # The variance of few sequences is mixed with that of settings that are bound by the same.
    own, first = np.log(ns).var(axis=0, ddof=1), replays[0]
    kinds = [(each.loader.num_workers > 0, each.binding) for each in first]
    alike = np.array([own[[kind == other for other in kinds]].mean() for kind in kinds])
    variance = ((SEQUENCES - 1) * own + 3 * alike) / (SEQUENCES + 2)
    # That of sequences is put to the length of the recording.
    away = np.exp(_Z90 * np.sqrt((variance * STEPS + UNSEEN_SD**2) / len(workload.cpu_ns) + MODEL_SD**2))
    mean, said = ns.mean(axis=0), {}
    for n, each in enumerate(different):
        slower, faster = (
            Replay(replace(drawn[0], **known), each, STEPS).ns_per_batch / ns[0, n] if known else 1.0
            for known in (_doubts(workload) if each.num_workers else ({}, {}))
        )
        rate = workload.batch_size * 1e9 / mean[n]
        low, high = rate / away[n] / max(1.0, slower), rate * away[n] / min(1.0, faster)
        figures = float(rate), float(low), float(high), float(stall[n])
        said[each] = Prediction(each, *figures, first[n].binding)
    return [
        replace(said[case], settings=each, infeasible=infeasible(workload, each))
        for case, each in zip(cases, settings, strict=True)
    ]


def _doubts(workload: Workload) -> tuple[dict[str, Any], dict[str, Any]]:
    """(fields of the workload at their worst, at their best) that the recording does not tell: the
    hand-over, and what two that compute slow each other by, where no worker did; and reads that may
    slow each other beyond as many as were seen at a time."""
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    if not workload.handoff_known:
        low["handoff_ns"] = max(2 * workload.handoff_ns, UNKNOWN_HANDOFF_NS)
        high["handoff_ns"] = workload.handoff_ns / 3
    if workload.settings.num_workers == 0:
        low["contention"] = max(workload.contention, Assumed.contention(Assumed.MOST_CONTENTION, workload.cpus))
        high["contention"] = 0.0
    reading, making = float(workload.read_ns.mean()), float(workload.making_ns.mean())
    if workload.storage_parallel is None and reading > 0.01 * making:
        low["storage_parallel"] = max(1.0, max(1, workload.settings.num_workers) * reading / making)
    return low, high


def infeasible(workload: Workload, settings: LoaderSettings) -> str | None:
    """Say why settings cannot run here: what they would need beyond the recorded ones, and what
    there is. `None` where they can, or nothing is known."""
    recorded = workload.settings
    batch = float(workload.batch_bytes or 0)
    # The batch in use is one more.
    held_before, held = (recorded.outstanding + 1) * batch, (settings.outstanding + 1) * batch
    shared = held - held_before * (recorded.num_workers > 0)
    if workload.shm_bytes is not None and settings.num_workers and shared > workload.shm_bytes:
        return (
            f"{settings.outstanding + 1} batches of {_bytes(batch)} take {_bytes(shared)} more of /dev/shm, "
            f"but only {_bytes(workload.shm_bytes)} are free"
        )
    more = held - held_before + (settings.num_workers - recorded.num_workers) * (workload.worker_bytes or 0)
    if workload.memory_bytes is not None and more > workload.memory_bytes:
        pinned = ", all of which may be pinned" if settings.pin_memory else ""
        return (
            f"{settings.num_workers} workers and {settings.outstanding + 1} batches of {_bytes(batch)}{pinned} "
            f"take {_bytes(more)} more memory, but only {_bytes(workload.memory_bytes)} are available"
        )
    return None


def _bytes(count: float) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
