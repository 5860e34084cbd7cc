"""The loader does not keep up: too few hands, too few CPUs, slow reads, or workers that exclude each other."""

from __future__ import annotations

import math

import numpy as np

from ...record.schema import NOT_MEASURED, ThreadState
from ..predict.advice import VanishedWork
from ..predict.predict import Assumed
from ..run.exclusion import Exclusion, SeenWaiting, TimeGrowth
from ..run.exposed_data_wait import MOSTLY_READING
from ..run.facts import Facts
from ..run.loader_stats import HEAVILY_QUEUED_PCT, QUEUED_PCT
from ..where.selection import NOT_MENDED, OF_HANDS, OF_THE_MACHINE, PREPARING, WORTH_A_LINE, Lines, making
from ..where.stages import cheaper_by_words
from .claim import SUPPLY, Piece, cause, gains, number
from .finding import Evidence, Finding, Next, shown
from .wait import CPUS, INPUT, Wait, Wanted

ALONE = "Run it where nothing else runs, or give it CPUs of its own (`taskset`, a cpuset, a quota for the others)"
MORE_CPUS = "Ask for more CPUs: the limit of the container or batch job"


@cause("input.serial", Piece.IN_TRAINING, lines=OF_HANDS)
def serial(wait: Wait) -> Finding:
    """Batches are prepared in the training's own process (`num_workers=0`), so nothing overlaps.

    Also where the dataset has workers of its own, which the training waits for; and in a loop without a loader, by its
    stack samples.
    """
    facts, loader, own = wait.facts, wait.loader, wait.facts.own_workers
    if own is not None:
        more = (
            f"Let the dataset start more workers{f' (`num_workers` above {own})' if own else ''}; keep "
            "`num_workers=0` in the loader around it, whose workers could start none"
        )
        workers = Evidence("Workers of the dataset's own", own or None)
        return wait.found(
            f"{wait.begins}: the dataset prepares batches in workers of its own, and the training process waits for "
            "them.",
            0.9,
            (Evidence("num_workers", 0), workers, "make_ms_per_sample", *wait.pace),
            wait.removing(more, "workers", likely=0.5),
        )
    wanted, work_ms = wait.wanted, loader.work_ms_per_batch
    change = wait.so_many(
        f"{wait.workers_setting(wanted)} to prepare batches while the {facts.waiter} computes", wanted
    )
    if work_ms is not None and _not_worth_a_worker(facts, work_ms, change):
        change = wait.removing(
            "Index a whole batch at once: use a dataset with `__getitems__`, or tensors that the loop slices itself "
            f"(handing a batch over takes a worker about as long as preparing it: {work_ms:.2f} ms)",
            "cheaper",
            likely=0.5,
        )
    # Other programs take as much of the wait as the training's thread waits for a CPU.
    queued, changes, crowd = wait.queued_pct, [change], ""
    if facts.crowded and (queued is None or queued >= QUEUED_PCT):
        crowd = ", while other programs use the machine's CPUs (input.foreign_load)"
        most = wait.ns if facts.main_queued_ns is None else min(wait.ns, facts.main_queued_ns)
        first = (queued or 0.0) >= HEAVILY_QUEUED_PCT
        changes.insert(0 if first else 1, wait.removing(ALONE, ns=most, likely=0.6))
    return wait.found(
        f"{wait.begins}: batches are prepared in the training process, one after the other{crowd}.",
        0.95,
        (
            Evidence("num_workers", facts.set_workers, "", str(wanted.workers)),
            Evidence("Batches prepared in the training process", facts.made_in_fetch_pct, "%", "near 0 %"),
            "make_ms_per_sample",
            *(*wait.waiting, *wait.stage, *wait.pace),
            *((shown("run_queue_pct", queued),) if crowd else ()),
            *(CPUS if crowd else ()),
        ),
        *changes,
    )


def _not_worth_a_worker(facts: Facts, work_ms: float, change: Next) -> bool:
    """Return whether handing a batch over takes about as long as making it; `change`: workers."""
    if work_ms < INPUT.handover_ms:
        return True
    to_try = change.speedup is not None and change.speedup.to_try
    return not (gains(change) or to_try) and work_ms * 1e6 < INPUT.nearly_as_long * Assumed.handoff_ns(facts.handed)


@serial.also(*SUPPLY)
def in_its_own_thread(wait: Wait) -> Finding | None:
    """Nothing is known to prepare batches ahead: the fetch is their making."""
    facts = wait.facts
    if not wait.says_nothing:
        return None
    # The thread's share of the fetches on a CPU, at least and at most, since only whole steps are known.
    steps = facts.window.steps
    known = steps[(steps["cpu_ns"] != NOT_MEASURED) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    fetch, cpu_ns = float((known["fetch_end_ns"] - known["fetch_begin_ns"]).sum()), float(known["cpu_ns"].sum())
    elsewhere = float(np.maximum(0, known["step_end_ns"] - known["fetch_end_ns"]).sum())
    least = 100 * max(0.0, min(1.0, (cpu_ns - elsewhere) / fetch)) if fetch else math.nan
    most = 100 * min(1.0, cpu_ns / fetch) if fetch else math.nan
    computes, cpu = least >= 50, ", and mostly waits meanwhile" if most < 50 else ""
    change = "Prepare batches ahead: use a DataLoader with workers, or a background thread"
    if not computes:
        change += "; where the loader has threads of its own, use more of them"
    return wait.found(
        f"{wait.begins}: the training's own thread seems to prepare the batches{cpu}.",
        0.8 if computes else 0.5,
        (
            Evidence("Fetching a batch", facts.parts.fetch_ns / facts.window.count / 1e6, "ms per step"),
            Evidence("On a CPU, share of the time spent fetching", f"{least:.0f} to {most:.0f} %" if fetch else None),
            "queue_ready_mean",
        ),
        wait.overlapping(change, "workers"),
    )


@cause("input.sharding", *SUPPLY, lines=NOT_MENDED)
def sharding(wait: Wait) -> Finding | None:
    """An iterable dataset divides itself so that some workers get no data, or next to none."""
    facts, even = wait.facts, wait.loader.even_workers
    if not facts.iterable or not facts.set_workers or even is None or even >= INPUT.uneven * facts.set_workers:
        return None
    return wait.found(
        f"{wait.begins}: only {even:.1f} of {facts.set_workers} workers get data.",
        0.9,
        (
            Evidence("Workers that get data, counted as equal shares", even, "", str(facts.set_workers)),
            Evidence("Workers that prepared batches", wait.loader.workers, "", str(facts.set_workers)),
            "queue_ready_mean",
        ),
        wait.more_workers(
            "Divide the data in `__iter__` with `torch.utils.data.get_worker_info()` into at least "
            f"{facts.set_workers} shards, so every worker has its own",
            "slice",
            facts.set_workers,
        ),
    )


@cause("input.too_few_workers", *SUPPLY, lines=OF_HANDS)
def too_few_workers(wait: Wait) -> Finding | None:
    """All workers are busy all the time, batches still come too late, and CPU is left for more workers.

    Workers that mostly wait (for the network, locks, sleeps) may be more than the CPUs. Where nothing measured says
    why the loader does not keep up, the title calls the reason a guess.
    """
    if not wait.workers_busy or not wait.cpu_known or wait.starved:
        return None
    wanted = wait.wanted
    return wait.found(
        f"{wait.begins}: {_count(wait.loader.workers)} busy all the time, and the job "
        f"uses {wait['cpus_used']:.1f} of its {wait['cpu_budget']:g} CPUs.",
        0.85,
        ("worker_busy_pct", "cpus_used", "cpu_budget", "queue_ready_mean", *wait.pace, *wait.touched),
        wait.so_many(_more_workers(wait, wanted), wanted),
    )


def _count(workers: int) -> str:
    return "1 worker is" if workers == 1 else f"{workers} workers are"


def _more_workers(wait: Wait, wanted: Wanted) -> str:
    now = wait.facts.set_workers
    if now is None:
        return f"Use more workers ({wanted.workers})"
    return f"Set `num_workers={wanted.workers}{wanted.besides}` instead of {now}"


@too_few_workers.also(*SUPPLY)
def latency(wait: Wait) -> Finding | None:
    """Workers are busy all the time, and wait: for the network, for locks, in sleeps."""
    loader = wait.loader
    if not wait.waits_mostly or not wait.behind:
        return None
    wanted, shorten = wait.wanted, "; or shorten the waits: local copies, larger requests"
    return wait.found(
        f"{wait.begins}: {_count(loader.workers)} not enough, because preparing a "
        f"sample is {loader.waiting_pct:.0f} % waiting (network, locks, sleeps).",
        0.85,
        (*wait.waiting, "cpu_pct", "worker_busy_pct", *wait.pace, *wait.touched),
        wait.so_many(wait.workers_setting(wanted), wanted, shorten),
    )


@too_few_workers.also(*SUPPLY)
def general(wait: Wait) -> Finding:
    """The loader does not keep up; nothing measured says why."""
    loader, facts, wanted = wait.loader, wait.facts, wait.wanted
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
    if wanted.said is not None:
        change = wait.so_many(_more_workers(wait, wanted), wanted)
    elif loader.work_ms_per_batch is not None and wanted.workers > loader.workers:
        change = wait.overlapping(_more_workers(wait, wanted), "workers")
    elif facts.set_prefetch is not None:
        deeper = f"Set `prefetch_factor={2 * facts.set_prefetch}` instead of {facts.set_prefetch}"
        change = wait.overlapping(f"{deeper} to prefetch more batches", "settings")
    else:
        change = wait.overlapping("Use more workers or threads, or prefetch more batches", "workers")
    return _guess(wait, rest, change)


def _guess(wait: Wait, rest: str, change: Next) -> Finding:
    evidence = *CPUS, "worker_busy_pct", "queue_ready_mean"
    return wait.found(f"{wait.begins}{rest}.", 0.4 if wait.cpu_known else 0.2, evidence, change)


# Who or what takes the CPUs.


@cause("input.cpu_quota", *SUPPLY, lines=OF_THE_MACHINE)
def quota(wait: Wait) -> Finding | None:
    """A cgroup stops the job again and again: it has used up its CPU quota for the moment."""
    facts, cpus, workers = wait.facts, wait.facts.sampled.cpu_budget, wait.facts.set_workers
    stops = wait["throttled_s"] * 1e9 >= INPUT.throttled * facts.parts.wall_ns * max(1.0, cpus or 1.0)
    near = not wait["cpus_used"] < INPUT.budget_used * wait["cpu_budget"]
    if not stops or wait.waits_mostly or not (near or wait.queues):
        return None
    changes = [wait.removing(MORE_CPUS, likely=0.6)]
    if cpus is not None and workers is not None and workers > cpus:
        why = f"{workers} workers use up the quota at the start of each period"
        changes.append(_fewer(wait, int(cpus), why, likely=0.6))
    return wait.found(
        f"{wait.begins}: a CPU quota{'' if cpus is None else f' of {cpus:.3g} CPUs'} stops the job again and again.",
        0.9,
        (
            *("throttled_s", "cpus_used", "cpu_budget"),
            Evidence("CPUs of the machine", facts.machine_cpus),
            "run_queue_pct",
        ),
        *changes,
        _cheaper(wait),
    )


@quota.also(*SUPPLY)
def held_back(wait: Wait) -> Finding | None:
    """Workers wait for a CPU although there are CPUs that nobody uses: something holds the job back."""
    busy = wait["machine_busy_pct"]
    queued = wait["run_queue_pct"] >= HEAVILY_QUEUED_PCT and wait.loader.workers > wait["cpus_used"]
    if not queued or not busy <= INPUT.machine_idle_pct:
        return None
    idle = wait.evidence("machine_busy_pct", "near 100 % if workers have to wait")
    return wait.found(
        f"{wait.begins}: the workers wait for a CPU, although {100 - busy:.0f} % of the machine's CPU is idle. "
        "A CPU limit of the job, or other programs on the same CPUs, can cause this.",
        0.5,
        ("run_queue_pct", idle, *CPUS),
        wait.removing(MORE_CPUS, likely=0.6),
    )


@cause("input.affinity", *SUPPLY, lines=OF_THE_MACHINE)
def affinity(wait: Wait) -> Finding | None:
    """Workers are confined to fewer CPUs than the job may use, and wait for those."""
    loader, together, budget = wait.loader, wait.loader.cpus, wait["cpu_budget"]
    if not number(together) + 0.5 < budget or not wait.queues:
        return None
    confined = Evidence("CPUs that all workers together may use", together, "CPUs", f"{budget:g}")
    return wait.found(
        f"{wait.begins}: all {loader.workers} workers run on {together} of the {budget:g} CPUs that the job may use.",
        0.9,
        (confined, "run_queue_pct", "worker_busy_pct", "cpus_used"),
        wait.more_workers(
            "Let workers run on any CPU: call `os.sched_setaffinity(0, range(os.cpu_count()))` in a "
            "`worker_init_fn`; look for what confines them (`OMP_PROC_BIND`, `KMP_AFFINITY`, `taskset`, SLURM)",
            "",
            loader.workers,
        ),
    )


@cause("input.worker_threads", *SUPPLY, lines=OF_THE_MACHINE)
def worker_threads(wait: Wait) -> Finding | None:
    """Each worker computes in a pool of threads, and together they are more than the CPUs."""
    loader, cpu = wait.loader, wait["cpu_pct"]
    others = number(loader.process_cpu_pct) - cpu
    pools = others >= INPUT.pool_pct * (1 - (loader.run_queue_pct or 0.0) / 100) and others >= INPUT.pool_times * cpu
    if not pools or not (wait.cpu_used or wait.starved or (wait.queues and wait.few_cpus_left)):
        return None
    return wait.found(
        f"{wait.begins}: each of the {loader.workers} workers starts threads of its own, and all of them compete for "
        "the CPUs.",
        0.85,
        (
            Evidence("CPU time of other worker threads, share of preparing batches", others, "%", "near 0 %"),
            Evidence("CPU time of the thread that prepares the batches", cpu, "%", "near 100 %"),
            *("run_queue_pct", *CPUS),
        ),
        wait.overlapping(
            "Limit each worker to one thread: call `cv2.setNumThreads(0)` and `threadpoolctl.threadpool_limits(1)` "
            "in a `worker_init_fn`, or set `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1` in the environment"
        ),
    )


@cause("input.foreign_load", *SUPPLY, lines=OF_THE_MACHINE)
def foreign_load(wait: Wait) -> Finding | None:
    """Other programs, or the hypervisor, take CPU that the loader asks for: more of it than this job uses."""
    if not wait.starved or not wait.others_use_more:
        return None
    foreign = wait.evidence("foreign_cpus", "fewer than this job uses")
    return wait.found(
        f"{wait.begins}, while other programs use the machine's CPUs.",
        0.7 if wait.loader.run_queue_pct is None else 0.85,
        (foreign, "cpus_used", "run_queue_pct", "cpu_pct", "cpu_steal_pct"),
        wait.removing(ALONE, likely=0.6),
    )


@foreign_load.also(Piece.HANDED)
def delayed_by_others(wait: Wait) -> Finding | None:
    """Batches are finished, but the training's thread gets no CPU to take them: others use the machine up."""
    return _delayed(wait, "other programs use", ALONE) if wait.others_use_more else None


@cause("input.oversubscribed", *SUPPLY, lines=OF_THE_MACHINE)
def oversubscribed(wait: Wait) -> Finding | None:
    """There are far more workers than CPUs, and they wait for each other in the run queue."""
    loader, budget, queued = wait.loader, wait["cpu_budget"], wait["run_queue_pct"]
    too_many = loader.workers >= INPUT.oversubscribed * budget
    if not too_many or not queued >= max(HEAVILY_QUEUED_PCT, loader.waiting_pct or 0.0):
        return None
    fewer, cheaper = _fewer(wait, int(budget), "fewer work as fast with less memory", likely=0.1), _cheaper(wait)
    return wait.found(
        f"{wait.begins}: {loader.workers} workers compete for {budget:g} CPUs, and each spends {queued:.0f} % of its "
        "time waiting for one.",
        0.85,
        (
            Evidence("Workers", loader.workers, "", f"at most {max(1, int(budget))}"),
            *("run_queue_pct", *CPUS),
            *wait.stage,
        ),
        # Fewer workers first, but where that is said to make nothing faster.
        *((fewer, cheaper) if gains(fewer) else (cheaper, fewer)),
    )


@cause("input.cpu_exhausted", *SUPPLY, lines=Lines(making, worth=WORTH_A_LINE, stages="making"))
def cpu_exhausted(wait: Wait) -> Finding | None:
    """This job uses every CPU that it may use, and its loader goes short; the evidence names the costliest stage."""
    if not wait.cpu_used or wait.waits_mostly or wait.keeps_up:
        return None
    if not (wait.workers_busy or wait.queues or wait.says_nothing):
        return None
    stage = wait.costliest
    title = f"{wait.begins}: {'the loader and the training use' if wait.on_cpu else 'the loader uses'} up the CPUs"
    return wait.found(
        f"{title}. The loader works mostly on {stage[0]}." if stage else f"{title}.",
        0.85 if stage else 0.6,
        (*CPUS, "worker_busy_pct", "run_queue_pct", *wait.stage),
        _cheaper(wait),
    )


@cpu_exhausted.also(Piece.HANDED)
def delayed(wait: Wait) -> Finding | None:
    """Batches are finished, but the training's thread gets no CPU to take them: the machine is used up."""
    change = "Use fewer workers, to leave a CPU for the training's own thread"
    return _delayed(wait, "the loader and other programs use", change)


@cpu_exhausted.also(*SUPPLY)
def starved(wait: Wait) -> Finding | None:
    """The loader does not keep up on a full machine; nothing measured says more."""
    if not wait.starved:
        return None
    rest = "; this job and other programs use up the machine's CPUs"
    return _guess(wait, rest, wait.overlapping("Give it CPUs of its own, or less work for them", "cheaper"))


def _delayed(wait: Wait, who: str, change: str) -> Finding | None:
    queued, loader = number(wait.facts.main_queued_ns), wait.loader
    moving_ns = (loader.mean_batch_bytes or 0.0) / INPUT.moved_bytes_per_s * 1e9 * wait.facts.window.count
    cheap = (loader.sent_bytes_per_batch or 0.0) <= INPUT.cheap_sent_bytes
    most = INPUT.thread_queued * wait.ns
    if not (queued >= most and wait.facts.machine_full and cheap and moving_ns <= most):
        return None
    return wait.found(
        f"{wait.begins}: batches are finished, but its thread waits for a CPU to take them, because {who} the CPUs.",
        0.6,
        (
            Evidence("Training thread waiting for a CPU, share of the time", wait.pct(queued), "%"),
            *("machine_busy_pct", *CPUS),
        ),
        wait.removing(change, "fewer_workers", likely=0.6),
    )


def _fewer(wait: Wait, cpus: int, why: str, likely: float) -> Next:
    """Propose fewer workers than there are: as the replay has it, else as many as CPUs."""
    now = wait.facts.set_workers or wait.loader.workers
    said = wait.predicted(lambda settings: 0 < settings.num_workers < now)
    if said is None:
        return wait.removing(f"Set `num_workers={max(1, cpus)}`, since {why}", "fewer_workers", likely=likely)
    return wait.as_predicted(f"Set `num_workers={said.settings.num_workers}`, since {why}", "fewer_workers", said)


def _cheaper(wait: Wait) -> Next:
    """Propose less of what takes most of preparing a batch, where that is known; how much less nobody can say."""
    stage, share = wait.costliest or ("", None)
    any_stage = "Spend less CPU per sample: smaller source images, fewer transforms, the GPU; or add CPUs", "cheaper"
    change, kind = cheaper_by_words(stage) or any_stage
    if share is None:
        return wait.removing(change, kind, likely=0.6)
    return wait.removing(change, kind, gone=VanishedWork(making=share / 100), least=0.3, likely=0.6)


# Reads.


@cause("input.storage", Piece.READING, lines=PREPARING)
def storage(wait: Wait) -> Finding | None:
    """Workers spend most of their time waiting for reads.

    The title says of what kind they are: from a cold page cache, many bytes for few that are used, many small ones, or
    a slow medium.
    """
    loader, batch_size = wait.loader, wait.facts.batch_size
    read, stored, ms = loader.read_chars_bytes_per_sample, loader.storage_bytes_per_sample, loader.make_ms_per_sample
    cold = None if not read or stored is None else stored / read
    rate = read / (ms * loader.read_pct / 100 / 1e3) if read and ms and loader.read_pct else None
    used = loader.mean_batch_bytes / batch_size if loader.mean_batch_bytes and batch_size else None
    amplified = None if read is None or used is None else read / used
    slow = number(rate) < INPUT.slow_bytes_per_s
    if number(amplified) >= INPUT.amplified:
        says = f", and reads {amplified:.0f} bytes for each byte that it uses"
        change = "Read less per sample: use chunks of the size that is used, and unpack no archive for one sample"
    elif number(cold) >= INPUT.cold:
        says = ", because the files are not in the page cache"
        change = "Copy the data to a local disk, or to memory if it fits; or read shards from start to end"
    elif slow and number(read) < INPUT.small_read_bytes:
        says = ", in many small reads that each take long"
        change = "Pack the files into shards (tar, LMDB, records) that are read in large pieces"
    elif slow:
        says, change = ", which is slow", "Read from faster storage, or copy the data there before the training"
    else:
        says, change = "", "Read from faster storage, pack the files into shards, or cache them in memory"
    reading, wanted = VanishedWork(making=(loader.read_pct or 0.0) / 100), wait.wanted
    more = "Use more workers to hide the waiting"
    return wait.found(
        f"{wait.begins}: the loader waits for storage{says}.",
        0.85,
        (
            *("read_pct", wait.evidence("cpu_pct", "near 100 %")),
            Evidence("Reads from storage, not from the cache", None if cold is None else 100 * cold, "%", "near 0 %"),
            Evidence("Bytes read for a sample", read, "bytes"),
            Evidence("Bytes read for each byte of a batch", amplified, "", f"below {INPUT.amplified:.0f}"),
            Evidence("Bytes read per second of waiting", rate, "bytes", f"above {INPUT.slow_bytes_per_s / 1e6:.0f} MB"),
        ),
        wait.removing(change, "order", gone=reading, least=0.5, likely=0.8),
        wait.overlapping(more, "workers")
        if wanted.said is None
        else wait.so_many(f"{more}: `num_workers={wanted.workers}{wanted.besides}`", wanted),
    )


@storage.also(*SUPPLY)
def mostly_reads(wait: Wait) -> Finding | None:
    """Where the batches of the steps are not known one by one: reads are most of what making them takes."""
    return storage(wait) if wait["read_pct"] >= 100 * MOSTLY_READING else None


# Workers that exclude each other.

SURE, LIKELY, BOTH = 0.85, 0.7, 0.95
"""Confidence from looks at a lock, from batches that take longer the more workers are at work, and from both."""
_DOING = {
    ThreadState.RUNS: "computes",
    ThreadState.FILE: "reads or writes a file",
    ThreadState.SOCKET: "waits at a socket",
    ThreadState.PIPE: "waits at a pipe",
    ThreadState.SLEEP: "sleeps",
}
"""What whoever holds the lock does meanwhile."""
_REMOTE = (ThreadState.SOCKET, ThreadState.POLL, ThreadState.PIPE)


@cause("input.exclusive", Piece.FILLING, Piece.READING, *SUPPLY, lines=NOT_MENDED)
def exclusive(wait: Wait) -> Finding | None:
    """Workers exclude each other: they wait for a lock that one of them holds, or share a connection or a rate.

    Told from stack samples that wait for a lock while another worker works, or from batches that take longer the more
    workers are at work, with CPU left over.
    """
    told = wait.facts.exclusion
    if told is None or wait.facts.made_in_training or wait.cpu_used:
        return None
    seen = told.waiting
    if seen is not None and told.waits_for_lock:
        return _by_lock(wait, told, seen)
    # Reads that take longer side by side are the storage's affair. Counters take what comes through a socket for a
    # read, looks do not.
    waits = wait.waits_mostly or (seen is not None and seen.elsewhere in (*_REMOTE, ThreadState.SLEEP))
    if told.growth is not None and told.grows and wait.behind and waits:
        return _by_growth(wait, told, told.growth)
    return None


def _by_lock(wait: Wait, told: Exclusion, waiting: SeenWaiting) -> Finding:
    lock = "the lock of a file" if waiting.of_file else "a lock that they share"
    doing, at = _DOING.get(waiting.elsewhere or 0), f" ({waiting.at})" if waiting.at else ""
    others = f"{told.together * waiting.lock.value:.1f} of {told.together:.1f} busy ones wait for {lock}{at}"
    looks = f"Waiting for {lock}, share of {waiting.looks} stack samples of active workers"
    change = (
        "Give each worker its own file to lock, or use one lock per guarded thing instead of one for all (more workers "
        "bring nothing)"
        if waiting.of_file
        else "Give each worker its own connection, handle or reader, opened in the worker; or do less while "
        "the lock is held (more workers bring nothing)"
    )
    return wait.found(
        f"{wait.begins}: workers exclude each other. On average {others}{f', while one {doing}' if doing else ''}.",
        BOTH if told.grows else SURE,
        (Evidence(looks, 100 * waiting.lock.value, "%", "near 0 %"), *_together(wait, told)),
        _freed(wait, told, change),
    )


def _by_growth(wait: Wait, told: Exclusion, growth: TimeGrowth) -> Finding:
    if told.waiting is not None and told.waiting.elsewhere in _REMOTE:
        what = "one connection or the bandwidth of a remote store"
        change = (
            "Give each worker its own connection; where the remote end is the limit, fetch fewer bytes: use a local "
            "copy or smaller files"
        )
    else:
        what, change = "a rate limit or a connection", "Give each worker its own limit, connection or handle"
    return wait.found(
        f"{wait.begins}: workers hold each other up, since they share {what}. A batch takes {growth.usual_ms:.0f} ms, "
        f"but {growth.fewer_ms:.0f} ms when fewer workers are active: together they deliver what one would.",
        LIKELY,
        (*_together(wait, told), *wait.waiting),
        _freed(wait, told, f"{change} (more workers bring nothing)", shared_beyond=True),
    )


def _together(wait: Wait, told: Exclusion) -> tuple[Evidence | str, ...]:
    growth, grown = told.growth, "Growth of a batch's time with the active workers (0: none, 1: in proportion)"
    fewer = "Preparing a batch with fewer active workers"
    return (
        Evidence("Workers active at a time", told.together),
        *([] if growth is None else [Evidence(grown, growth.exponent.value, "", "near 0")]),
        *([] if growth is None else [Evidence(fewer, growth.fewer_ms, "ms", f"{growth.usual_ms:.0f} ms")]),
        *(wait.evidence("cpu_pct", "near 100 %"), *CPUS),
    )


def _freed(wait: Wait, told: Exclusion, change: str, *, shared_beyond: bool = False) -> Next:
    """Predict what is gained if workers wait for each other no more, so that a batch takes as long as one alone takes,
    on these CPUs. `shared_beyond`: what they share may be none of theirs, so that nothing need be gained."""
    # What is computed is not waited for.
    freed = min(1 - told.alone.value, 1 - (wait.loader.cpu_pct or 0.0) / 100)
    if freed <= 0:
        return wait.overlapping(change, "own_handle")
    least = 0.0 if shared_beyond else max(0.0, 1 - told.alone.high) / freed
    return wait.removing(change, "own_handle", gone=VanishedWork(queueing=freed), least=least, likely=1.0)
