"""The device waits for batches: why?"""

from __future__ import annotations

import math

from ...record.schema import StepFlag
from ..facts import Facts
from ..finding import Evidence, Finding, Next

BUSY_PCT = 80.0
"""Workers busy this much are the limit."""
BUDGET_USED = 0.80
"""Share of the CPU budget in use from which none is left over."""
MACHINE_USED_PCT = 90.0
"""A machine this busy has no CPU left over, whoever uses it."""
LOADER_CPU_PCT = 80.0
"""A loader that gets less CPU than this share of its working time, reads left out, waits for a CPU."""
MOSTLY_READING_PCT = 50.0
MOSTLY_FILL = 0.6
MOSTLY_HANDOFF_PCT = 50.0
MOSTLY_BLOCKED_PCT = 50.0


def serial(facts: Facts) -> Finding | None:
    """Samples are made in the training process, while the training waits for them."""
    if not facts.made_in_training:
        return None
    workers = max(1, math.floor(facts.sampled.cpu_budget or 2))
    return Finding(
        "input.serial",
        f"The device waits {_pct(facts)} of the time for data: batches are made in the training process, "
        "one after the other, while the device idles.",
        facts.parts.share("input"),
        0.95,
        (
            Evidence("batch making that happened inside the fetch", facts.made_in_fetch_pct, "%", "near 0"),
            Evidence("making one sample takes", facts.loader.make_ms_per_sample, "ms"),
            Evidence("workers", 0, "", f"{workers} on this CPU budget"),
        ),
        (_supply_next(facts, f"num_workers={workers}, so that batches are made while the device computes", workers),),
    )


def pipeline_fill(facts: Facts) -> Finding | None:
    """The first batches of the epochs cost much more than the others: most of the exposed wait."""
    parts = facts.parts
    if parts.input_ns == 0 or parts.fill_ns < MOSTLY_FILL * parts.input_ns:
        return None
    epochs = int((facts.window.steps["flags"] & StepFlag.FIRST_OF_EPOCH).astype(bool).sum())
    return Finding(
        "input.pipeline_fill",
        f"The device waits {_pct(facts)} of the time for data, most of it for the first batch of an epoch.",
        parts.share("input"),
        0.8,
        (
            Evidence(
                "extra cost of first batches, of the exposed wait",
                100 * parts.fill_ns / parts.input_ns,
                "%",
                f"below {100 * MOSTLY_FILL:.0f}",
            ),
            Evidence("epochs in the window", epochs),
        ),
        (_next(facts, "let the loader run on into the next epoch, or make epochs longer", parts.fill_ns),),
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


def straggler(facts: Facts) -> Finding | None:
    """The batch that is due is not finished, while later ones are and the workers have time to spare."""
    blocked, loader = facts.blocked_pct, facts.loader
    if blocked is None or blocked < MOSTLY_BLOCKED_PCT or _workers_busy(facts) or loader.worker_busy_pct is None:
        return None
    slow = loader.slowest[0] if loader.slowest else None
    return Finding(
        "input.straggler",
        f"The device waits {_pct(facts)} of the time for data, most of it for a slow batch while later ones are ready.",
        facts.parts.share("input"),
        0.8,
        (
            Evidence("wait while a later batch was finished, of the exposed wait", blocked, "%", "near 0"),
            Evidence("workers busy", loader.worker_busy_pct, "%"),
            Evidence("the slowest sample took", slow.ms if slow else None, "ms"),
            Evidence("a sample takes", loader.make_ms_per_sample, "ms"),
            Evidence("the slowest sample is", None if slow is None else slow.file or _index(slow.index)),
        ),
        (_next(facts, "make the slow samples cheaper, or hand batches over as they come (in_order=False)"),),
    )


def foreign_load(facts: Facts) -> Finding | None:
    """The loader does not get the CPU it asks for, and others use more of it than this job."""
    foreign, mine = facts.foreign_cpus, facts.sampled.tree_cpus
    if not _starved(facts) or foreign is None or mine is None or foreign <= mine:
        return None
    return Finding(
        "input.foreign_load",
        f"The device waits {_pct(facts)} of the time for data, while other programs use the machine's CPUs.",
        facts.parts.share("input"),
        0.7,
        (
            Evidence("CPUs in use by others", foreign, "CPUs", "fewer than by this job"),
            Evidence("CPUs in use by this job", mine, "CPUs"),
            Evidence("CPU the loader got, of the time it worked", facts.loader.cpu_pct, "%", "near 100"),
        ),
        (_next(facts, "run it where nothing else runs, or give it CPUs of its own"),),
    )


def cpu_exhausted(facts: Facts) -> Finding | None:
    """Every CPU the job may use is in use."""
    if not _cpu_used(facts):
        return None
    loader = facts.loader
    stage = loader.costliest
    who = "the loader and the training use" if facts.device_kind == "cpu" else "the loader uses"
    title = f"The device waits {_pct(facts)} of the time for data: {who} up the CPU"
    return Finding(
        "input.cpu_exhausted",
        f"{title}, the loader mostly for {stage}." if stage else f"{title}.",
        facts.parts.share("input"),
        0.85 if stage else 0.6,
        (
            Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs", "well above those in use"),
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            *((Evidence(f"{stage}, of the time spent making batches", _costliest_pct(facts), "%"),) if stage else ()),
        ),
        (_next(facts, _cheaper(stage)),),
    )


def too_few_workers(facts: Facts) -> Finding | None:
    """Workers are busy all the time while CPU is left over."""
    if not _workers_busy(facts) or not _cpu_known(facts):
        return None
    loader, host = facts.loader, facts.sampled
    enough = math.ceil(loader.workers * _supply_factor(facts))
    want = max(loader.workers + 1, min(enough, math.floor(host.cpu_budget or enough)))
    return Finding(
        "input.too_few_workers",
        f"The device waits {_pct(facts)} of the time for data: {loader.workers} "
        f"{'worker is' if loader.workers == 1 else 'workers are'} busy all the time, and the job uses "
        f"{host.tree_cpus:.1f} of its {host.cpu_budget:g} CPUs.",
        facts.parts.share("input"),
        0.85,
        (
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            Evidence("CPUs in use by this job", host.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", host.cpu_budget, "CPUs"),
            Evidence("batches ready when asked for", loader.queue_ready_mean, "", "1 or more"),
        ),
        (_supply_next(facts, f"more workers ({want}), or a loader that has them", want),),
    )


def handoff(facts: Facts) -> Finding | None:
    """Most of the wait comes after the batch was finished: it is lost on the way to the training."""
    handed = facts.handoff_pct
    if handed is None or handed < MOSTLY_HANDOFF_PCT or facts.loader.queue_capacity is None:
        return None
    return Finding(
        "input.handoff",
        f"The device waits {_pct(facts)} of the time for data, most of it for batches that are finished and on "
        "their way from worker to training.",
        facts.parts.share("input"),
        0.7,
        (
            Evidence("wait after the batch was finished, of the exposed wait", handed, "%", "near 0"),
            Evidence("bytes in a batch", facts.loader.mean_batch_bytes, "bytes"),
        ),
        (_next(facts, "hand over fewer bytes (uint8 images, normalise on the device), or use a threaded loader"),),
    )


def general(facts: Facts) -> Finding | None:
    """The loader does not keep up; nothing measured says why."""
    if facts.parts.input_ns == 0:
        return None
    if not _cpu_known(facts):
        rest = "; CPU use was not measured, so the reason is a guess"
    elif facts.loader.worker_busy_pct is None:
        rest = " while CPU is left over; the loader does not say what it does"
    else:
        rest = " while CPU is left over and its workers are idle part of the time"
    return Finding(
        "input.too_few_workers",
        f"The device waits {_pct(facts)} of the time for data{rest}.",
        facts.parts.share("input"),
        0.4 if _cpu_known(facts) else 0.2,
        (
            Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs"),
            Evidence("workers busy", facts.loader.worker_busy_pct, "%"),
        ),
        (_next(facts, "more workers or threads, or more batches ahead"),),
    )


RULES = (serial, pipeline_fill, storage, straggler, foreign_load, cpu_exhausted, handoff, too_few_workers, general)


def _pct(facts: Facts) -> str:
    return f"{100 * facts.parts.share('input'):.0f} %"


def _workers_busy(facts: Facts) -> bool:
    busy = facts.loader.worker_busy_pct
    return busy is not None and busy >= BUSY_PCT


def _cpu_known(facts: Facts) -> bool:
    return facts.sampled.tree_cpus is not None and facts.sampled.cpu_budget is not None


def _cpu_used(facts: Facts) -> bool:
    """By this job alone, or by all programs of the machine together so that its loader goes short."""
    used, budget = facts.sampled.tree_cpus, facts.sampled.cpu_budget
    return (used is not None and budget is not None and used >= BUDGET_USED * budget) or _starved(facts)


def _starved(facts: Facts) -> bool:
    """Whether the machine is full and the loader, which is not reading, waits for a CPU."""
    busy, got, reading = facts.sampled.machine_busy_pct, facts.loader.cpu_pct, facts.loader.read_pct
    if busy is None or busy < MACHINE_USED_PCT or got is None:
        return False
    return got + (reading or 0.0) < LOADER_CPU_PCT


def _costliest_pct(facts: Facts) -> float | None:
    return facts.loader.stages.get(facts.loader.costliest or "")


def _index(index: int | None) -> str | None:
    return None if index is None else f"index {index}"


def _cheaper(stage: str | None) -> str:
    return {
        "decoding": "decode less: smaller source images, or a faster decoder (DALI, or on the GPU)",
        "transforming": "cheaper augmentation: fewer or vectorised transforms, or on the GPU (DALI)",
        "collating": "cheaper collation: uint8 images, normalised on the device",
        "reading": "cheaper reads: shards, or a cache in memory",
    }.get(stage or "", "less work for the CPU: smaller source images, fewer transforms, the GPU; or more CPUs")


def _supply_factor(facts: Facts) -> float:
    """How much faster the loader would have to be to keep the device busy."""
    busy = facts.parts.wall_ns - facts.parts.input_ns
    return facts.parts.wall_ns / busy if busy else float("inf")


def _next(facts: Facts, change: str, removed_ns: int | None = None) -> Next:
    """A change whose most is known, not its size: the range runs from now to everything gone."""
    most = facts.without(facts.parts.input_ns if removed_ns is None else removed_ns)
    return Next(change, None, facts.samples_per_s, most)


def _supply_next(facts: Facts, change: str, workers: int) -> Next:
    """More workers: what they could supply on this CPU, never more than the device takes."""
    most = facts.without(facts.parts.input_ns)
    per_sample_ms, cpu_pct = facts.loader.make_ms_per_sample, facts.loader.cpu_pct
    budget = facts.sampled.cpu_budget
    if per_sample_ms is None or most is None:
        return Next(change, None, facts.samples_per_s, most)
    supply = workers * 1e3 / per_sample_ms
    if budget is not None and cpu_pct:
        supply = min(supply, budget * 1e3 / (per_sample_ms * min(cpu_pct, 100.0) / 100))
    predicted = max(facts.samples_per_s, min(most, supply))
    return Next(change, predicted, max(facts.samples_per_s, 0.6 * predicted), most)
