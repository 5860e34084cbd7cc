"""Too few hands: batches are prepared in the training itself, or by fewer workers than it takes.

Batches that come late one by one: slow ones in a loader that keeps its order, and uneven ones. Samples are made and
thrown away: by `collate_fn`, by workers that make the same, by the loop behind the loader.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....record.schema import NOT_MEASURED
from ...predict.advice import VanishedWork
from ...predict.predict import Assumed
from ...run.exposed_data_wait import Spread
from ...run.facts import Facts
from ...run.loader_stats import HEAVILY_QUEUED_PCT, QUEUED_PCT
from ...speedup import Speedup
from ..finding import LEAST_GAIN, Evidence, Finding, Next, shown
from ..speedup import LEAST_OF_GAIN, Vanishing, as_next, by_parts, by_replay
from .cpus import ALONE
from .wait import HANDOVER_MS, NEARLY_AS_LONG, Wait, Wanted, count

LEAST_WASTED = 0.15
"""Share of the samples that have to be made for nothing: to leave out a broken file now and then is no fault."""
LEAST_TOLD = 0.02
"""Share of the samples from which a way to waste them is named."""


def wasted(wait: Wait) -> Finding | None:
    """Much of the making is for nothing."""
    found = wait.facts.wasted
    if found is None or found.share < LEAST_WASTED:
        return None
    ways = sorted(
        (
            (
                found.dropped,
                f"samples are dropped after they were prepared ({100 * found.dropped:.0f} %)",
                "Leave samples out before preparing them: choose the indices once, or check a label, "
                "length or header before decoding; in a stream, let each worker prepare only its part",
            ),
            (
                found.repeated,
                f"workers prepare the same batches ({100 * found.repeated:.0f} % are duplicates)",
                "Divide the data in `__iter__` by `torch.utils.data.get_worker_info()`: each worker prepares its part",
            ),
            (
                found.passed_over,
                f"the training computes nothing with {100 * found.passed_over:.0f} % of the batches it fetches",
                "Filter in the dataset or its sampler, before samples are prepared, instead of in the loop",
            ),
        ),
        reverse=True,
    )
    told = [(how, change) for share, how, change in ways if share >= LEAST_TOLD]
    return wait.found(
        f"{wait.begins}, and {100 * found.share:.0f} % of the preparation of samples is wasted: "
        f"{'; '.join(how for how, _ in told)}.",
        0.9,
        (
            Evidence(
                "Preparation of samples that is wasted", 100 * found.share, "%", f"below {100 * LEAST_WASTED:.0f} %"
            ),
            Evidence("Samples dropped after they were prepared", 100 * found.dropped, "%", "near 0 %"),
            Evidence("Batches that another worker prepared too", 100 * found.repeated, "%", "0 %"),
            Evidence("Batches fetched and not computed with", 100 * found.passed_over, "%", "near 0 %"),
            wait.evidence("make_ms_per_sample"),
            wait.evidence("worker_busy_pct"),
        ),
        tuple(_using_all(wait, change) for _, change in told),
    )


def crowding(wait: Wait) -> Finding | None:
    """What is made for nothing takes the CPUs from whatever hands batches over."""
    return wasted(wait) if wait.few_cpus_left else None


def _using_all(wait: Wait, change: str) -> Next:
    """What is gained where nothing is made for nothing: the same steps with so much less making, and each sample of
    an epoch once."""
    facts, found = wait.facts, wait.facts.wasted
    assert found is not None
    once = 1 / (1 - found.repeated)
    less = 1 - (1 - found.dropped) * (1 - found.passed_over)
    making = wait.ns if facts.made_in_training else facts.parts.wall_ns - facts.parts.boundary_ns
    less_made = Vanishing(LEAST_OF_GAIN, 1.0)
    made = by_replay(facts, VanishedWork(making=less), less_made) or by_parts(
        facts, min(wait.ns, less * making), less_made
    )
    low = 1 + (made.low * once - 1) * (LEAST_OF_GAIN if once > 1 else 1.0)
    return as_next(facts, change, Speedup(made.value * once, low, made.high * once, made.to_try), "slice")


VARIED_TIMES = 1.25
"""Time of making the batches that are waited for over that of all, from which their variance is why they are."""


def straggler(wait: Wait) -> Finding | None:
    """Single slow samples hold up later batches that are finished, in a loader that has time to spare."""
    facts, loader = wait.facts, wait.loader
    if facts.out_of_order:
        return None
    slowest = loader.slowest[0] if loader.slowest else None
    index = None if slowest is None or slowest.index is None else f"index {slowest.index}"
    return wait.found(
        f"{wait.begins}: straggler samples hold up later, finished batches.",
        0.85,
        (
            Evidence("Wait while a later batch was finished", facts.blocked_pct, "% of the exposed wait", "near 0 %"),
            wait.evidence("slow_times"),
            wait.evidence("worker_busy_pct", ""),
            Evidence("Slowest sample", slowest.ms if slowest else None, "ms"),
            Evidence("Preparing one sample", loader.make_ms_per_sample, "ms"),
            Evidence("File or index of the slowest sample", None if slowest is None else slowest.file or index),
        ),
        (
            _as_they_come(wait),
            wait.removing("Make the slow samples cheaper, or prepare them once and keep the result", kind="cheaper"),
        ),
    )


def uneven(wait: Wait) -> Finding | None:
    """The loader keeps up on average, and yet is waited for: batches differ more than what lies ready makes up for."""
    loader, facts = wait.loader, wait.facts
    slow = facts.waits.slow
    varied = slow is not None and slow.times >= VARIED_TIMES and not wait.workers_busy and loader.workers > 0
    spread = facts.waits.shape.spread in (Spread.SINGLE, Spread.IRREGULAR, Spread.PERIODIC)
    if not wait.keeps_up and not (varied and spread and _supplies(wait)):
        return None
    return wait.found(
        f"{wait.begins}, although the loader keeps up on average: batches come unevenly.",
        0.6 if varied else 0.4,
        (
            wait.evidence("queue_ready_mean", f"1 or more of {loader.queue_capacity}"),
            wait.evidence("worker_busy_pct", ""),
            wait.evidence("slow_times", ""),
            wait.evidence("handoff_pct", ""),
            wait.evidence("samples_per_s_limit"),
            wait.evidence("run_queue_pct", ""),
        ),
        (_deeper(wait),),
    )


def _as_they_come(wait: Wait) -> Next:
    """Finished batches are handed over, whichever it is."""
    change = "Set `in_order=False` (torch 2.6 or later) to hand over batches as they come"
    workers = wait.facts.set_workers
    said = wait.predicted(lambda settings: settings.num_workers == workers, in_order=False)
    if said is None:
        return replace(wait.removing(change, likely=0.8, kind="settings"), settings={"in_order": False})
    return wait.as_predicted(change, said).of("settings")


def _deeper(wait: Wait) -> Next:
    """More batches ahead, with as many workers."""
    ahead, workers = wait.facts.set_prefetch, wait.facts.set_workers
    if ahead is None:
        return wait.overlapping("Prefetch more batches").of("settings")
    said = wait.predicted(lambda s: s.num_workers == workers and (s.prefetch_factor or 0) > ahead)
    deeper = 2 * ahead if said is None else said.settings.prefetch_factor
    change = f"Set `prefetch_factor={deeper}` instead of {ahead} to prefetch more batches"
    if said is None:
        return replace(wait.overlapping(change), settings={"prefetch_factor": deeper}).of("settings")
    return wait.as_predicted(change, said).of("settings")


def _supplies(wait: Wait) -> bool:
    """Whether the workers would deliver, on average, what the training takes without waiting."""
    limit, facts = wait.loader.samples_per_s_limit, wait.facts
    wanted = facts.samples_per_s_without(facts.parts.input_ns)
    return limit is not None and wanted is not None and limit >= wanted


UNEVEN = 0.75
"""Workers that with equal shares would be as uneven as these, over all that are set, below which some get no data."""


def serial(wait: Wait) -> Finding:
    """Samples are made in the training process, while the training waits for them."""
    facts, loader = wait.facts, wait.loader
    if facts.own_workers is not None:
        return _by_its_own(wait, facts.own_workers)
    wanted, work_ms = wait.wanted, loader.work_ms_per_batch
    setting = f"Set `num_workers={wanted.workers}{wanted.besides}`{wait.beyond_cpus(wanted.workers)}"
    change = wait.so_many(f"{setting} to prepare batches while the {facts.waiter} computes", wanted)
    if work_ms is not None and _not_worth_a_worker(wait, work_ms, change):
        change = wait.removing(
            "Index a whole batch at once: use a dataset with `__getitems__`, or tensors that the loop slices itself "
            f"(handing a batch over takes a worker about as long as preparing it: {work_ms:.2f} ms)",
            wait.ns,
            likely=0.5,
            kind="cheaper",
        )
    crowd, alone = _others(wait)
    return wait.found(
        f"{wait.begins}: batches are prepared in the training process, one after the other{crowd}.",
        0.95,
        (
            Evidence("num_workers", facts.set_workers, "", str(wanted.workers)),
            Evidence("Batches prepared in the training process", facts.made_in_fetch_pct, "%", "near 0 %"),
            wait.evidence("make_ms_per_sample"),
            *wait.waiting_evidence,
            *wait.stage_evidence,
            *wait.pace_evidence,
            *(_crowd_evidence(wait) if crowd else ()),
        ),
        (*alone, change) if (wait.queued_pct or 0.0) >= HEAVILY_QUEUED_PCT else (change, *alone),
    )


def _by_its_own(wait: Wait, workers: int) -> Finding:
    """Samples come from worker processes of the data set's, which the training waits for."""
    change = (
        f"Let the dataset start more workers{f' (`num_workers` above {workers})' if workers else ''}; keep "
        "`num_workers=0` in the loader around it, whose workers could start none"
    )
    own = Evidence("Workers of the dataset's own", workers or None)
    return wait.found(
        f"{wait.begins}: the dataset prepares batches in workers of its own, and the training process waits for them.",
        0.9,
        (Evidence("num_workers", 0), own, wait.evidence("make_ms_per_sample"), *wait.pace_evidence),
        (wait.removing(change, likely=0.5, kind="workers"),),
    )


def _not_worth_a_worker(wait: Wait, work_ms: float, change: Next) -> bool:
    """Whether handing a batch over takes about as long as making it; `change`: workers."""
    if work_ms < HANDOVER_MS:
        return True
    told = change.speedup
    gains = told is None or told.to_try or told.value >= 1 + LEAST_GAIN
    return not gains and work_ms * 1e6 < NEARLY_AS_LONG * Assumed.handoff_ns(wait.facts.handed)


def _others(wait: Wait) -> tuple[str, tuple[Next, ...]]:
    """What the title says of other programs that take the CPUs, and what to do about them: as much of the wait as the
    training's thread waits for a CPU. Nothing where they do not, or it does not wait."""
    facts, queued = wait.facts, wait.queued_pct
    if not facts.crowded or (queued is not None and queued < QUEUED_PCT):
        return "", ()
    most = wait.ns if facts.main_queued_ns is None else min(wait.ns, facts.main_queued_ns)
    return ", while other programs use the machine's CPUs (input.foreign_load)", (
        wait.removing(ALONE, most, likely=0.6),
    )


def _crowd_evidence(wait: Wait) -> tuple[Evidence, ...]:
    return (shown("run_queue_pct", wait.queued_pct), *wait.cpu_evidence)


def in_its_own_thread(wait: Wait) -> Finding | None:
    """Nothing is known to prepare batches ahead: the fetch is their making."""
    facts = wait.facts
    if not wait.says_nothing:
        return None
    least, most = _fetch_cpu(facts)
    computes = least is not None and least >= 50
    cpu = "" if most is None or computes else ", and mostly waits meanwhile" if most < 50 else ""
    change = "Prepare batches ahead: use a DataLoader with workers, or a background thread"
    if not computes:
        change += "; where the loader has threads of its own, use more of them"
    return wait.found(
        f"{wait.begins}: the training's own thread seems to prepare the batches{cpu}.",
        0.8 if computes else 0.5,
        (
            Evidence("Fetching a batch", facts.parts.fetch_ns / facts.window.count / 1e6, "ms per step"),
            Evidence("On a CPU, share of the time spent fetching", _between(least, most)),
            wait.evidence("queue_ready_mean"),
        ),
        (wait.overlapping(change).of("workers"),),
    )


def sharding(wait: Wait) -> Finding | None:
    """An iterable dataset divides itself so that some workers get no data, or next to none."""
    facts, even = wait.facts, wait.loader.even_workers
    if not facts.iterable or not facts.set_workers or even is None or even >= UNEVEN * facts.set_workers:
        return None
    return wait.found(
        f"{wait.begins}: only {even:.1f} of {facts.set_workers} workers get data.",
        0.9,
        (
            Evidence("Workers that get data, counted as equal shares", even, "", str(facts.set_workers)),
            Evidence("Workers that prepared batches", wait.loader.workers, "", str(facts.set_workers)),
            wait.evidence("queue_ready_mean"),
        ),
        (
            wait.more_workers(
                "Divide the data in `__iter__` with `torch.utils.data.get_worker_info()` into at least "
                f"{facts.set_workers} shards, so every worker has its own",
                facts.set_workers,
            ).of("slice"),
        ),
    )


def latency(wait: Wait) -> Finding | None:
    """Workers are busy all the time, and wait: for the network, for locks, in sleeps."""
    loader = wait.loader
    if not wait.waits_mostly or not wait.behind:
        return None
    wanted = wait.wanted
    setting = f"Set `num_workers={wanted.workers}{wanted.besides}`{wait.beyond_cpus(wanted.workers)}"
    return wait.found(
        f"{wait.begins}: {count(loader.workers)} not enough, because preparing a "
        f"sample is {loader.waiting_pct:.0f} % waiting (network, locks, sleeps).",
        0.85,
        (
            *wait.waiting_evidence,
            wait.evidence("cpu_pct"),
            wait.evidence("worker_busy_pct"),
            *wait.pace_evidence,
            *wait.touched_evidence,
        ),
        (wait.so_many(setting, wanted, "; or shorten the waits: local copies, larger requests"),),
    )


def too_few_workers(wait: Wait) -> Finding | None:
    """Workers are busy all the time while CPU is left over."""
    if not wait.workers_busy or not wait.cpu_known or wait.starved:
        return None
    loader, sampled = wait.loader, wait.facts.sampled
    wanted = wait.wanted
    return wait.found(
        f"{wait.begins}: {count(loader.workers)} busy all the time, and the job "
        f"uses {sampled.tree_cpus:.1f} of its {sampled.cpu_budget:g} CPUs.",
        0.85,
        (
            wait.evidence("worker_busy_pct"),
            wait.evidence("cpus_used"),
            wait.evidence("cpu_budget"),
            wait.evidence("queue_ready_mean"),
            *wait.pace_evidence,
            *wait.touched_evidence,
        ),
        (wait.so_many(_more_workers(wait, wanted), wanted),),
    )


def starved(wait: Wait) -> Finding | None:
    """The loader does not keep up on a full machine; nothing measured says more."""
    if not wait.starved:
        return None
    rest = "; this job and other programs use up the machine's CPUs"
    return _guess(wait, rest, wait.overlapping("Give it CPUs of its own, or less work for them").of("cheaper"))


def general(wait: Wait) -> Finding:
    """The loader does not keep up; nothing measured says why."""
    loader, facts = wait.loader, wait.facts
    if not wait.cpu_known:
        rest = "; CPU use was not measured, so the reason is a guess"
    elif wait.cpu_used:
        rest = "; the job uses up its CPUs, but its workers do not"
    elif loader.worker_busy_pct is None:
        rest = " while CPU is left over, and the loader does not tell what it does"
    elif wait.workers_busy:
        rest = "; its workers are busy all the time"
    else:
        rest = " while CPU is left over and its workers are idle part of the time"
    wanted = wait.wanted
    if wanted.said is not None:
        change = wait.so_many(_more_workers(wait, wanted), wanted)
    elif loader.work_ms_per_batch is not None and wanted.workers > loader.workers:
        change = wait.overlapping(_more_workers(wait, wanted)).of("workers")
    elif facts.set_prefetch is not None:
        change = wait.overlapping(
            f"Set `prefetch_factor={2 * facts.set_prefetch}` instead of {facts.set_prefetch} to prefetch more batches"
        ).of("settings")
    else:
        change = wait.overlapping("Use more workers or threads, or prefetch more batches").of("workers")
    return _guess(wait, rest, change)


def _guess(wait: Wait, rest: str, change: Next) -> Finding:
    return wait.found(
        f"{wait.begins}{rest}.",
        0.4 if wait.cpu_known else 0.2,
        (*wait.cpu_evidence, wait.evidence("worker_busy_pct"), wait.evidence("queue_ready_mean")),
        (change,),
    )


def _more_workers(wait: Wait, wanted: Wanted) -> str:
    now = wait.facts.set_workers
    if now is None:
        return f"Use more workers ({wanted.workers})"
    return f"Set `num_workers={wanted.workers}{wanted.besides}` instead of {now}"


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
