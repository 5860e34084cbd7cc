"""The device waits for batches: why?"""

from __future__ import annotations

import math

import numpy as np

from ...record.schema import NOT_MEASURED, StepFlag
from ..facts import Facts
from ..finding import LEAST_GAIN, Evidence, Finding, Next

BUSY_PCT = 80.0
"""Workers busy this much are the limit."""
BUDGET_USED = 0.80
"""Share of the CPU budget in use from which none is left over."""
MOSTLY_OWN = 0.6
"""The same where other programs use what is left over."""
MACHINE_USED_PCT = 90.0
"""A machine this busy has no CPU left over, whoever uses it."""
LOADER_CPU_PCT = 80.0
"""A loader that gets less CPU than this share of its working time, reads left out, waits for a CPU: a guess, for
loaders whose waiting for a CPU was not measured."""
QUEUED_PCT = 20.0
"""Share of its working time from which a loader's waiting for a CPU is considerable."""
MOSTLY_WAITING_PCT = 50.0
"""A loader that waits so much, neither for a CPU nor for reads, needs more hands rather than CPUs."""
MOST_WORKERS = 64
"""More worker processes are not proposed: each costs memory, and its start time."""
MOSTLY_READY = 0.5
"""Share of the batches that a loader can hold: with so many ready, on average, it keeps up."""
MOSTLY_READING_PCT = 50.0
MOSTLY_FILL = 0.6
MOSTLY_HANDOFF_PCT = 50.0
MOSTLY_BLOCKED_PCT = 50.0


def serial(facts: Facts) -> Finding | None:
    """Samples are made in the training process, while the training waits for them."""
    if not facts.made_in_training:
        return None
    workers, loader = _workers_wanted(facts) or max(1, math.floor(facts.sampled.cpu_budget or 2)), facts.loader
    return Finding(
        "input.serial",
        f"{_waits(facts, facts.parts.share('input'))}: batches are made in the training process, one after the other.",
        facts.parts.share("input"),
        0.95,
        (
            Evidence("batch making that happened inside the fetch", facts.made_in_fetch_pct, "%", "near 0"),
            Evidence("making one sample takes", loader.make_ms_per_sample, "ms"),
            *_waiting_evidence(facts),
            *_pace_evidence(facts),
            Evidence("workers", 0, "", str(workers)),
        ),
        (
            _supply_next(
                facts,
                f"num_workers={workers}{_beyond(facts, workers)}: batches are made while the {facts.waiter} computes",
                workers,
            ),
        ),
    )


def pipeline_fill(facts: Facts) -> Finding | None:
    """The first batches of the epochs cost much more than the others: most of the exposed wait."""
    parts = facts.parts
    mostly = parts.fill_ns >= MOSTLY_FILL * parts.input_ns
    if not parts.fill_ns or not (mostly or (_is_worth(facts, parts.fill_ns) and not _is_worth(facts, _rest_ns(facts)))):
        return None
    epochs = _epochs(facts)
    each_ms = parts.fill_ns / max(1, epochs) / 1e6
    return Finding(
        "input.pipeline_fill",
        f"{_waits(facts, facts.parts.share('input'))}, most of it for the first batch of an epoch.",
        parts.fill_ns / parts.wall_ns,
        0.8,
        (
            Evidence(
                "extra cost of first batches, of the exposed wait",
                100 * parts.fill_ns / parts.input_ns,
                "%",
                f"below {100 * MOSTLY_FILL:.0f}",
            ),
            Evidence("extra cost of one first batch", each_ms, "ms"),
            Evidence("making a batch takes", facts.loader.work_ms_per_batch, "ms"),
            Evidence("epochs in the window", epochs),
            Evidence("persistent workers", _set(facts.persistent_workers)),
        ),
        (_next(facts, _fill_change(facts, each_ms), parts.fill_ns),),
    )


def _fill_change(facts: Facts, each_ms: float) -> str:
    """What shortens the first fetches, given how the loader is set."""
    took = f"{each_ms:.0f} ms" if each_ms >= 1 else f"{each_ms:.1f} ms"
    if not facts.set_workers:
        return f"longer epochs, or data that is open before they begin: each first batch costs {took} more"
    if not facts.persistent_workers:
        return (
            f"persistent_workers=True, so that workers are not started anew for each epoch ({took}), or longer epochs"
        )
    too_many = facts.set_workers > (facts.sampled.cpu_budget or facts.set_workers) or not _workers_busy(facts)
    if _queues(facts) and too_many and facts.set_workers > 1:
        return (
            f"fewer than {facts.set_workers} workers, which wait for CPUs while they make the first batches ({took} an "
            "epoch), or longer epochs"
        )
    return f"longer epochs, or smaller batches: the first one of each is waited for {took}, although workers persist"


def storage(facts: Facts) -> Finding | None:
    """Workers spend most of their time waiting for reads."""
    loader = facts.loader
    if loader.read_pct is None or loader.read_pct < MOSTLY_READING_PCT:
        return None
    return Finding(
        "input.storage",
        f"{_waits(facts)}, and the loader waits for storage.",
        _rest_share(facts),
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
        f"{_waits(facts)}, most of it for a slow batch while later ones are ready.",
        _rest_share(facts),
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
    queued = facts.loader.run_queue_pct
    return Finding(
        "input.foreign_load",
        f"{_waits(facts)}, while other programs use the machine's CPUs.",
        _rest_share(facts),
        0.7 if queued is None else 0.85,
        (
            Evidence("CPUs in use by others", foreign, "CPUs", "fewer than by this job"),
            Evidence("CPUs in use by this job", mine, "CPUs"),
            Evidence("waiting for a CPU, of the time spent making batches", queued, "%", f"below {QUEUED_PCT:.0f}"),
            Evidence("on a CPU, of the time spent making batches", facts.loader.cpu_pct, "%"),
        ),
        (_next(facts, "run it where nothing else runs, or give it CPUs of its own"),),
    )


def cpu_exhausted(facts: Facts) -> Finding | None:
    """This job uses every CPU it may use, and its loader goes short."""
    loader = facts.loader
    if not _cpu_used(facts) or _waits_mostly(facts) or _keeps_up(facts):
        return None
    if not (_workers_busy(facts) or _queues(facts) or _says_nothing(facts)):
        return None
    stage = loader.costliest
    who = "the loader and the training use" if facts.device_kind == "cpu" else "the loader uses"
    title = f"{_waits(facts)}: {who} up the CPU"
    return Finding(
        "input.cpu_exhausted",
        f"{title}, the loader mostly for {stage}." if stage else f"{title}.",
        _rest_share(facts),
        0.85 if stage else 0.6,
        (
            Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
            Evidence("CPUs in use by others", facts.foreign_cpus, "CPUs"),
            Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs", "well above those in use"),
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            Evidence("waiting for a CPU, of the time spent making batches", loader.run_queue_pct, "%"),
            *((Evidence(f"{stage}, of the time spent making batches", _costliest_pct(facts), "%"),) if stage else ()),
        ),
        (_next(facts, _cheaper(stage)),),
    )


def in_its_own_thread(facts: Facts) -> Finding | None:
    """Nothing is known to prepare batches ahead: the fetch is their making."""
    if not _says_nothing(facts):
        return None
    least, most = _fetch_cpu(facts)
    computes = least is not None and least >= 50
    cpu = "" if most is None or computes else ", in which that thread mostly waits" if most < 50 else ""
    change = "make batches ahead: a DataLoader with workers, or a background thread"
    if not computes:
        change += "; where it has threads of its own, more of them"
    return Finding(
        "input.serial",
        f"{_waits(facts)}: batches are made in the training's own thread, as far as is known{cpu}.",
        _rest_share(facts),
        0.8 if computes else 0.5,
        (
            Evidence("fetching takes", facts.parts.fetch_ns / facts.window.count / 1e6, "ms a step"),
            Evidence("on a CPU, of the time spent fetching", _between(least, most)),
            Evidence("batches ready when asked for", facts.loader.queue_ready_mean, "", "1 or more"),
        ),
        (_next(facts, change),),
    )


def latency(facts: Facts) -> Finding | None:
    """Workers are busy all the time, and wait: for the network, for locks, in sleeps."""
    loader = facts.loader
    if not _waits_mostly(facts) or not _behind(facts):
        return None
    want = _workers_wanted(facts) or loader.workers + 1
    return Finding(
        "input.too_few_workers",
        f"{_waits(facts)}: {_count(loader.workers)} not enough, because making a "
        f"sample is {loader.waiting_pct:.0f} % waiting for something that is no CPU (network, locks, sleeps).",
        _rest_share(facts),
        0.85,
        (
            *_waiting_evidence(facts),
            Evidence("on a CPU, of the time spent making batches", loader.cpu_pct, "%"),
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            *_pace_evidence(facts),
        ),
        (
            _supply_next(
                facts,
                f"num_workers={want}{_beyond(facts, want)}; or shorter waits: local copies, larger requests",
                want,
            ),
        ),
    )


def too_few_workers(facts: Facts) -> Finding | None:
    """Workers are busy all the time while CPU is left over."""
    if not _workers_busy(facts) or not _cpu_known(facts) or _starved(facts):
        return None
    loader, host = facts.loader, facts.sampled
    want = _workers_wanted(facts) or loader.workers + 1
    return Finding(
        "input.too_few_workers",
        f"{_waits(facts)}: {_count(loader.workers)} busy all the time, and the job "
        f"uses {host.tree_cpus:.1f} of its {host.cpu_budget:g} CPUs.",
        _rest_share(facts),
        0.85,
        (
            Evidence("workers busy", loader.worker_busy_pct, "%", f"below {BUSY_PCT:.0f}"),
            Evidence("CPUs in use by this job", host.tree_cpus, "CPUs"),
            Evidence("CPUs it may use", host.cpu_budget, "CPUs"),
            Evidence("batches ready when asked for", loader.queue_ready_mean, "", "1 or more"),
            *_pace_evidence(facts),
        ),
        (_supply_next(facts, _more_workers(facts, want), want),),
    )


def _more_workers(facts: Facts, want: int) -> str:
    return (
        f"more workers ({want})" if facts.set_workers is None else f"num_workers={want} instead of {facts.set_workers}"
    )


def handoff(facts: Facts) -> Finding | None:
    """Most of the wait comes after the batch was finished: it is lost on the way to the training."""
    handed = facts.handoff_pct
    if handed is None or handed < MOSTLY_HANDOFF_PCT or facts.loader.queue_capacity is None:
        return None
    where = "in the training step" if facts.device_kind == "cpu" else "on the device"
    return Finding(
        "input.handoff",
        f"{_waits(facts)}, most of it for batches that are finished and on their way from worker to training.",
        _rest_share(facts),
        0.7,
        (
            Evidence("wait after the batch was finished, of the exposed wait", handed, "%", "near 0"),
            Evidence("bytes in a batch", facts.loader.mean_batch_bytes, "bytes"),
        ),
        (_next(facts, f"hand over fewer bytes (uint8 images, normalised {where}), or use a threaded loader"),),
    )


def uneven(facts: Facts) -> Finding | None:
    """The loader keeps up on average, and yet is waited for."""
    loader = facts.loader
    if not _keeps_up(facts):
        return None
    ahead = facts.set_prefetch
    change = "more batches ahead" if ahead is None else f"more batches ahead (prefetch_factor={2 * ahead}, now {ahead})"
    return Finding(
        "input.prefetch_depth",
        f"{_waits(facts)}, although the loader keeps up on average: batches come unevenly.",
        _rest_share(facts),
        0.4,
        (
            Evidence("batches ready when asked for", loader.queue_ready_mean, "", f"of {loader.queue_capacity}"),
            Evidence("workers busy", loader.worker_busy_pct, "%"),
            Evidence("wait after the batch was finished, of the exposed wait", facts.handoff_pct, "%"),
            Evidence("waiting for a CPU, of the time spent making batches", loader.run_queue_pct, "%"),
        ),
        (_next(facts, change),),
    )


def general(facts: Facts) -> Finding | None:
    """The loader does not keep up; nothing measured says why."""
    loader = facts.loader
    if facts.parts.input_ns == 0:
        return None
    if _starved(facts):
        rest = "; this job and other programs use up the machine's CPUs"
    elif not _cpu_known(facts):
        rest = "; CPU use was not measured, so the reason is a guess"
    elif _cpu_used(facts):
        rest = "; the job uses its CPUs up, its workers do not"
    elif loader.worker_busy_pct is None:
        rest = " while CPU is left over; the loader does not say what it does"
    elif _workers_busy(facts):
        rest = "; its workers are busy all the time"
    else:
        rest = " while CPU is left over and its workers are idle part of the time"
    want = _workers_wanted(facts)
    if _starved(facts):
        change = "CPUs of its own, or less work for them"
    elif want is not None and want > loader.workers:
        change = _more_workers(facts, want)
    elif facts.set_prefetch is not None:
        change = f"more batches ahead (prefetch_factor above {facts.set_prefetch})"
    else:
        change = "more workers or threads, or more batches ahead"
    return Finding(
        "input.cpu_exhausted" if _starved(facts) else "input.too_few_workers",
        f"{_waits(facts)}{rest}.",
        _rest_share(facts),
        0.4 if _cpu_known(facts) else 0.2,
        (
            Evidence("CPUs in use by this job", facts.sampled.tree_cpus, "CPUs"),
            Evidence("CPUs in use by others", facts.foreign_cpus, "CPUs"),
            Evidence("CPUs it may use", facts.sampled.cpu_budget, "CPUs"),
            Evidence("workers busy", loader.worker_busy_pct, "%"),
            Evidence("batches ready when asked for", loader.queue_ready_mean),
        ),
        (_next(facts, change),),
    )


RULES = (
    serial,
    pipeline_fill,
    storage,
    straggler,
    foreign_load,
    cpu_exhausted,
    in_its_own_thread,
    handoff,
    latency,
    too_few_workers,
    uneven,
    general,
)


def _epochs(facts: Facts) -> int:
    """That began in the window."""
    return int((facts.window.steps["flags"] & StepFlag.FIRST_OF_EPOCH).astype(bool).sum())


def _rest_ns(facts: Facts) -> int:
    """The exposed wait without what first batches of epochs cost more than others: of that, `pipeline_fill` speaks."""
    return max(0, facts.parts.input_ns - facts.parts.fill_ns)


def _rest_share(facts: Facts) -> float:
    return _rest_ns(facts) / facts.parts.wall_ns if facts.parts.wall_ns else 0.0


def _is_worth(facts: Facts, removed_ns: int) -> bool:
    return removed_ns >= LEAST_GAIN * (facts.parts.wall_ns - removed_ns)


def _waits(facts: Facts, share: float | None = None) -> str:
    """How every title begins; the share is that of the input without first batches where none is given."""
    pct = _pct(facts) if share is None else f"{100 * share:.0f} %"
    return f"The {facts.waiter} waits {pct} of the time for data"


def _pct(facts: Facts) -> str:
    return f"{100 * _rest_share(facts):.0f} %"


def _set(setting: bool | None) -> str | None:
    return None if setting is None else "on" if setting else "off"


def _count(workers: int) -> str:
    return "1 worker is" if workers == 1 else f"{workers} workers are"


def _workers_busy(facts: Facts) -> bool:
    busy = facts.loader.worker_busy_pct
    return busy is not None and busy >= BUSY_PCT


def _keeps_up(facts: Facts) -> bool:
    """Batches are ready, on average, and the workers have time to spare."""
    ready, capacity = facts.loader.queue_ready_mean, facts.loader.queue_capacity
    if ready is None or not capacity or _workers_busy(facts):
        return False
    return ready >= max(1.0, MOSTLY_READY * capacity)


def _behind(facts: Facts) -> bool:
    """The workers have no time to spare, or the training finds nothing ready."""
    ready = facts.loader.queue_ready_mean
    return facts.loader.workers > 0 and (_workers_busy(facts) or (ready is not None and ready < 1))


def _says_nothing(facts: Facts) -> bool:
    """No DataLoader, and nothing known of how batches are made."""
    return facts.set_workers is None and facts.loader.workers == 0 and facts.loader.queue_capacity is None


def _cpu_known(facts: Facts) -> bool:
    return facts.sampled.tree_cpus is not None and facts.sampled.cpu_budget is not None


def _cpu_used(facts: Facts) -> bool:
    """By this job, which has most of the CPU even where others use the rest."""
    used, budget = facts.sampled.tree_cpus, facts.sampled.cpu_budget
    if used is None or budget is None or used < (MOSTLY_OWN if _starved(facts) else BUDGET_USED) * budget:
        return False
    # A training on the processor uses it up whatever its loader does.
    return facts.device_kind != "cpu" or not _says_nothing(facts)


def _queues(facts: Facts) -> bool:
    """Whether the loader's waiting for a CPU is considerable."""
    queued = facts.loader.run_queue_pct
    return queued is not None and queued >= QUEUED_PCT


def _starved(facts: Facts) -> bool:
    """Whether the machine is full and the loader waits for a CPU more than for anything else but reads."""
    loader, busy = facts.loader, facts.sampled.machine_busy_pct
    if busy is None or busy < MACHINE_USED_PCT:
        return False
    if loader.run_queue_pct is not None:
        return _queues(facts) and loader.run_queue_pct >= (loader.waiting_pct or 0.0)
    return loader.cpu_pct is not None and loader.cpu_pct + (loader.read_pct or 0.0) < LOADER_CPU_PCT


def _waits_mostly(facts: Facts) -> bool:
    """For neither a CPU nor reads. On an accelerator with the CPU used up, for other threads of the loader."""
    waiting = facts.loader.waiting_pct
    if waiting is None or waiting < MOSTLY_WAITING_PCT:
        return False
    return facts.device_kind == "cpu" or not _cpu_used(facts)


def _fetch_cpu(facts: Facts) -> tuple[float | None, float | None]:
    """The training thread's share of the fetches on a CPU: at least, and at most, since only whole steps are known."""
    steps = facts.window.steps
    known = steps[(steps["cpu_ns"] != NOT_MEASURED) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    fetch = float((known["fetch_end_ns"] - known["fetch_begin_ns"]).sum())
    if not fetch:
        return None, None
    cpu = float(known["cpu_ns"].sum())
    elsewhere = float(np.maximum(0, known["step_end_ns"] - known["fetch_end_ns"]).sum())
    return 100 * max(0.0, min(1.0, (cpu - elsewhere) / fetch)), 100 * min(1.0, cpu / fetch)


def _between(least: float | None, most: float | None) -> str | None:
    return None if least is None or most is None else f"{least:.0f} to {most:.0f} %"


def _workers_wanted(facts: Facts) -> int | None:
    """Workers that keep the device busy: as many as batches have to be under way at a time, busy no more than
    `BUSY_PCT`, since batches differ. No more than the CPUs can run, nor than make two batches of an epoch, and at least
    one more than there are."""
    work_ms, pace_ms = facts.loader.work_ms_per_batch, _pace_ms(facts)
    if work_ms is None:
        return None
    now = 0 if facts.made_in_training else facts.loader.workers
    most = MOST_WORKERS
    if facts.sampled.cpu_budget is not None:
        most = min(most, max(1, math.floor(facts.sampled.cpu_budget / _cpus_of_a_worker(facts))))
    epochs = _epochs(facts)
    if epochs > 1:
        most = min(most, max(1, facts.window.count // (2 * epochs)))
    enough = math.ceil(work_ms / pace_ms / (BUSY_PCT / 100)) if pace_ms else most
    return max(now + 1, min(enough, most))


def _beyond(facts: Facts, workers: int) -> str:
    cpus = facts.sampled.cpu_budget
    return " (more than CPUs, which they hardly use)" if cpus is not None and workers > cpus else ""


def _cpus_of_a_worker(facts: Facts) -> float:
    """What a worker would use if it never waited for a CPU."""
    cpu, queued = facts.loader.cpu_pct, facts.loader.run_queue_pct or 0.0
    if cpu is None or queued >= 100:
        return 1.0
    return min(1.0, max(0.01, cpu / (100 - queued)))


def _pace_ms(facts: Facts) -> float:
    """A step as it would be without waiting for data."""
    return (facts.parts.wall_ns - facts.parts.input_ns) / facts.window.count / 1e6


def _pace_evidence(facts: Facts) -> tuple[Evidence, ...]:
    return (
        Evidence("making a batch takes", facts.loader.work_ms_per_batch, "ms of a worker"),
        Evidence("a step without the wait takes", _pace_ms(facts), "ms"),
    )


def _waiting_evidence(facts: Facts) -> tuple[Evidence, ...]:
    waiting = facts.loader.waiting_pct
    if waiting is None or waiting < MOSTLY_WAITING_PCT:
        return ()
    what = "waiting for neither CPU nor reads, of making a sample"
    return (Evidence(what, waiting, "%", f"below {MOSTLY_WAITING_PCT:.0f}"),)


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


def _next(facts: Facts, change: str, removed_ns: int | None = None) -> Next:
    """A change whose most is known, not its size: the range runs from now to everything gone."""
    most = facts.without(_rest_ns(facts) if removed_ns is None else removed_ns)
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
