"""The device waits for batches: why?"""

from __future__ import annotations

import math

from ..facts import Facts
from ..finding import Evidence, Finding, Next

BUSY_PCT = 80.0
"""Workers busy this much are the limit."""
BUDGET_USED = 0.80
"""Share of the CPU budget in use from which none is left over."""
MOSTLY_READING_PCT = 50.0
MADE_IN_FETCH_PCT = 90.0


def pipeline_fill(facts: Facts) -> Finding | None:
    """The first batches of the epochs are most of the exposed wait."""
    parts = facts.parts
    if parts.input_ns == 0 or parts.first_fetch_ns < 0.6 * parts.input_ns:
        return None
    epochs = int((facts.window.steps["flags"] & 1).sum())
    return Finding(
        "input.pipeline_fill",
        f"The device waits {_pct(facts)} of the time for data, most of it for the first batch of an epoch.",
        parts.share("input"),
        0.8,
        (
            Evidence(
                "first fetches of epochs, of the exposed wait",
                100 * parts.first_fetch_ns / parts.input_ns,
                "%",
                "below 60",
            ),
            Evidence("epochs in the window", epochs),
        ),
        (
            _next(
                facts,
                "let the loader run on into the next epoch (workers kept alive: persistent_workers=True), or make "
                "epochs longer",
                parts.first_fetch_ns,
            ),
        ),
    )


def storage(facts: Facts) -> Finding | None:
    """Workers spend most of their time waiting for reads."""
    loader = facts.loader
    if loader.read_pct is None or loader.read_pct < MOSTLY_READING_PCT:
        return None
    return Finding(
        "input.storage",
        f"The device waits {_pct(facts)} of the time for data, and the loader waits for storage.",
        facts.parts.share("input"),
        0.8,
        (
            Evidence("reading, of the time spent making batches", loader.read_pct, "%", "below 50"),
            Evidence("CPU used while making batches", loader.cpu_pct, "%", "near 100"),
        ),
        (_next(facts, "read from faster storage, pack the files into shards, or cache them in memory"),),
    )


def serial(facts: Facts) -> Finding | None:
    """Samples are made in the training process, while the training waits for them."""
    made = facts.made_in_fetch_pct
    if made is None or made < MADE_IN_FETCH_PCT or facts.loader.queue_capacity is not None:
        return None
    workers = max(1, math.floor(facts.sampled.cpu_budget or 2))
    return Finding(
        "input.serial",
        f"The device waits {_pct(facts)} of the time for data: batches are made in the training process, "
        "one after the other, while the device idles.",
        facts.parts.share("input"),
        0.95,
        (
            Evidence("batch making that happened inside the fetch", made, "%", "near 0"),
            Evidence("making one sample takes", facts.loader.make_ms_per_sample, "ms"),
            Evidence("workers", 0, "", f"{workers} on this CPU budget"),
        ),
        (_supply_next(facts, f"num_workers={workers}, so that batches are made while the device computes", workers),),
    )


def cpu_exhausted(facts: Facts) -> Finding | None:
    """Workers are busy and so is every CPU the job may use."""
    if not _workers_busy(facts) or not _budget_used(facts):
        return None
    loader = facts.loader
    stage = loader.costliest or "making batches"
    return Finding(
        "input.cpu_exhausted",
        f"The device waits {_pct(facts)} of the time for data: the workers use up the CPU, mostly for {stage}.",
        facts.parts.share("input"),
        0.85,
        (
            Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs", "well above those in use"),
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            Evidence(f"{stage}, of the time spent making batches", _costliest_pct(facts), "%"),
        ),
        (_next(facts, _cheaper(stage)),),
    )


def too_few_workers(facts: Facts) -> Finding | None:
    """Workers are busy all the time while CPU is left over."""
    if not _workers_busy(facts):
        return None
    loader, host = facts.loader, facts.sampled
    enough = math.ceil(loader.workers * _supply_factor(facts))
    want = max(loader.workers + 1, min(enough, math.floor(host.cpu_budget or enough)))
    return Finding(
        "input.too_few_workers",
        f"The device waits {_pct(facts)} of the time for data: {loader.workers} "
        f"{'worker is' if loader.workers == 1 else 'workers are'} busy all the time, and CPU is left over.",
        facts.parts.share("input"),
        0.85 if host.tree_cpus is not None else 0.6,
        (
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            Evidence("CPUs in use by this job", host.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", host.cpu_budget, "CPUs"),
            Evidence("batches ready when asked for", loader.queue_ready_mean, "", "1 or more"),
        ),
        (_supply_next(facts, f"more workers ({want}), or a loader that has them", want),),
    )


def handoff(facts: Facts) -> Finding | None:
    """Workers idle while the training waits: the batch is lost on the way between them."""
    loader = facts.loader
    if loader.worker_busy_pct is None or loader.worker_busy_pct >= BUSY_PCT or loader.queue_capacity is None:
        return None
    if _budget_used(facts):
        return None  # what takes the CPU, here or in the training, explains the wait first
    return Finding(
        "input.handoff",
        f"The device waits {_pct(facts)} of the time for data although the workers are idle part of the time: "
        "moving finished batches to the training costs.",
        facts.parts.share("input"),
        0.5,
        (
            Evidence("workers busy", loader.worker_busy_pct, "%", f"{BUSY_PCT:.0f} or more"),
            Evidence("batches ready when asked for", loader.queue_ready_mean),
            Evidence("bytes in a batch", loader.mean_batch_bytes, "bytes"),
        ),
        (_next(facts, "hand over fewer bytes (uint8 images, normalise on the device), or use a threaded loader"),),
    )


def general(facts: Facts) -> Finding | None:
    """The loader is slower than the device; its own stamps do not say why."""
    if facts.parts.input_ns == 0:
        return None
    if _budget_used(facts):
        return Finding(
            "input.cpu_exhausted",
            f"The device waits {_pct(facts)} of the time for data, and the CPU is used up.",
            facts.parts.share("input"),
            0.6,
            (
                Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
                Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs", "well above those in use"),
            ),
            (_next(facts, _cheaper("making batches")),),
        )
    known = facts.sampled.tree_cpus is not None
    reason = "while CPU is left over" if known else "; CPU use was not measured, so the reason is a guess"
    return Finding(
        "input.too_few_workers",
        f"The device waits {_pct(facts)} of the time for data{' ' * known}{reason}.",
        facts.parts.share("input"),
        0.5 if known else 0.2,
        (
            Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs"),
        ),
        (_next(facts, "more workers or threads in the loader"),),
    )


RULES = (pipeline_fill, serial, storage, cpu_exhausted, too_few_workers, handoff, general)


def _pct(facts: Facts) -> str:
    return f"{100 * facts.parts.share('input'):.0f} %"


def _workers_busy(facts: Facts) -> bool:
    busy = facts.loader.worker_busy_pct
    return busy is not None and busy >= BUSY_PCT


def _budget_used(facts: Facts) -> bool:
    used, budget = facts.sampled.tree_cpus, facts.sampled.cpu_budget
    return used is not None and budget is not None and used >= BUDGET_USED * budget


def _costliest_pct(facts: Facts) -> float | None:
    loader = facts.loader
    return {
        "reading": loader.read_pct,
        "decoding": loader.decode_pct,
        "transforming": loader.transform_pct,
        "collating": loader.collate_pct,
    }.get(loader.costliest or "")


def _cheaper(stage: str) -> str:
    return {
        "decoding": "decode less: smaller source images, or a faster decoder (DALI, or on the GPU)",
        "transforming": "cheaper augmentation: fewer or vectorised transforms, or on the GPU (DALI)",
        "collating": "cheaper collation: uint8 images, normalised on the device",
        "reading": "cheaper reads: shards, or a cache in memory",
    }.get(stage, "less work for the CPU: smaller source images, fewer transforms, work moved to the GPU; or more CPUs")


def _supply_factor(facts: Facts) -> float:
    """How much faster the loader would have to be to keep the device busy."""
    busy = facts.parts.wall_ns - facts.parts.input_ns
    return facts.parts.wall_ns / busy if busy else float("inf")


def _headroom(facts: Facts, removed_ns: int) -> float:
    """Samples/s if `removed_ns` of the wall time vanished."""
    return facts.samples * 1e9 / max(1, facts.parts.wall_ns - removed_ns)


def _next(facts: Facts, change: str, removed_ns: int | None = None) -> Next:
    """A change whose most is known, not its size: the range runs from now to everything gone."""
    most = _headroom(facts, facts.parts.input_ns if removed_ns is None else removed_ns)
    return Next(change, None, facts.samples_per_s, most)


def _supply_next(facts: Facts, change: str, workers: int) -> Next:
    """More workers: what they could supply on this CPU, never more than the device takes."""
    most = _headroom(facts, facts.parts.input_ns)
    per_sample_ms, cpu_pct = facts.loader.make_ms_per_sample, facts.loader.cpu_pct
    budget = facts.sampled.cpu_budget
    if per_sample_ms is None:
        return Next(change, None, facts.samples_per_s, most)
    supply = workers * 1e3 / per_sample_ms
    if budget is not None and cpu_pct:
        supply = min(supply, budget * 1e3 / (per_sample_ms * min(cpu_pct, 100.0) / 100))
    predicted = max(facts.samples_per_s, min(most, supply))
    return Next(change, predicted, max(facts.samples_per_s, 0.6 * predicted), most)
