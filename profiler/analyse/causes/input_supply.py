"""The loader does not keep up: too few hands, too few CPUs, slow reads, or workers that exclude each other."""

from __future__ import annotations

import math

import numpy as np

from ...record.schema import NOT_MEASURED, ThreadState
from ..predict.predict import Assumed, VanishedWork
from ..run.loader_stats import BUSY, HEAVILY_QUEUED_PCT, MOSTLY_READING, QUEUED_PCT
from ..run.window import measured_or
from ..shares import MOSTLY
from ..where.selection import NOT_MENDED, OF_HANDS, OF_THE_MACHINE, PREPARING, WORTH_A_LINE, Lines, making
from ..where.stages import cheaper_by_words
from .claim import SUPPLY, Piece, cause, gains
from .finding import Evidence, Next, shown
from .wait import CPUS, INPUT, Wait, Wanted, prefetching

ALONE = "Run it where nothing else runs, or give it CPUs of its own (`taskset`, a cpuset, a quota for the others)"
MORE_CPUS = "Ask for more CPUs: the limit of the container or batch job"


@cause("input.serial", Piece.IN_TRAINING, lines=OF_HANDS)
def serial(wait: Wait) -> None:
    """Batches are prepared in the training's own process (`num_workers=0`), so nothing overlaps.

    Also where the dataset has workers of its own, which the training waits for; and in a loop
    without a loader, by its stack samples.
    """
    facts, own = wait.facts, wait.facts.own_workers
    if own is not None:
        made = "the dataset prepares batches in workers of its own, and the training process waits for them"
        wait.says(f"{wait.begins}: {made}.", 0.9)
        wait.shows(
            Evidence("num_workers", 0),
            Evidence("Workers of the dataset's own", own or None),
            "make_ms_per_sample",
            *wait.pace,
        )
        above = f" (`num_workers` above {own})" if own else ""
        keep = "keep `num_workers=0` in the loader around it, whose workers could start none"
        wait.advise(f"Let the dataset start more workers{above}; {keep}", "workers", likely=0.5)
        return
    wanted, work_ms = wait.wanted, wait.loader.work_ms_per_batch
    setting = f"{wait.workers_setting(wanted)} to prepare batches while the {facts.waiter} computes"
    change = wait.so_many(setting, wanted)
    to_try = change.speedup is not None and change.speedup.to_try
    long = INPUT.nearly_as_long * Assumed.handoff_ns(facts.handed) / 1e6 if not (gains(change) or to_try) else 0.0
    if work_ms < max(INPUT.handover_ms, long):
        change = wait.removing(
            "Index a whole batch at once: use a dataset with `__getitems__`, or tensors that the loop slices itself "
            f"(handing a batch over takes a worker about as long as preparing it: {work_ms:.2f} ms)",
            "cheaper",
            likely=0.5,
        )
    wait.advice, queued = [change], wait.queued_pct
    wait.shows(
        Evidence("num_workers", facts.set_workers, "", str(wanted.workers)),
        Evidence("Batches prepared in the training process", facts.made_in_fetch_pct, "%", "near 0 %"),
        "make_ms_per_sample",
        *(*wait.waiting, *wait.stage, *wait.pace),
    )
    crowd = ""
    if facts.crowded and not queued < QUEUED_PCT:
        crowd = ", while other programs use the machine's CPUs (input.foreign_load)"
        wait.evidence.append(shown("run_queue_pct", queued))
        wait.shows(*CPUS)
        # They take as much of the wait as the training's thread waits for a CPU.
        most = min(wait.ns, facts.main_queued_ns)
        alone = wait.removing(ALONE, ns=most, likely=0.6)
        wait.advice.insert(0 if queued >= HEAVILY_QUEUED_PCT else 1, alone)
    wait.says(f"{wait.begins}: batches are prepared in the training process, one after the other{crowd}.", 0.95)


@serial.also(*SUPPLY)
def in_its_own_thread(wait: Wait) -> None:
    """Nothing is known to prepare batches ahead: the fetch is their making."""
    facts, steps = wait.facts, wait.facts.window.steps
    if not wait.says_nothing:
        return
    # The thread's share of the fetches on a CPU, at least and at most, since only whole steps are known.
    known = steps[(steps["cpu_ns"] != NOT_MEASURED) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    fetch, cpu_ns = float((known["fetch_end_ns"] - known["fetch_begin_ns"]).sum()), float(known["cpu_ns"].sum())
    elsewhere = float(np.maximum(0, known["step_end_ns"] - known["fetch_end_ns"]).sum())
    least = 100 * max(0.0, min(1.0, (cpu_ns - elsewhere) / fetch)) if fetch else math.nan
    most = 100 * min(1.0, cpu_ns / fetch) if fetch else math.nan
    computes, waits = least >= 50, ", and mostly waits meanwhile" if most < 50 else ""
    says = f"{wait.begins}: the training's own thread seems to prepare the batches{waits}."
    wait.says(says, 0.8 if computes else 0.5)
    wait.shows(Evidence("Fetching a batch", facts.parts.fetch_ns / facts.window.count / 1e6, "ms per step"))
    on_cpu = f"{least:.0f} to {most:.0f} %" if fetch else None
    wait.shows(Evidence("On a CPU, share of the time spent fetching", on_cpu), "queue_ready_mean")
    more = "" if computes else "; where the loader has threads of its own, use more of them"
    change = f"Prepare batches ahead: use a DataLoader with workers, or a background thread{more}"
    wait.advice.append(wait.overlapping(change, "workers"))


@cause("input.sharding", *SUPPLY, lines=NOT_MENDED)
def sharding(wait: Wait) -> None:
    """An iterable dataset divides itself so that some workers get no data, or next to none."""
    loader, workers, even = wait.loader, wait.facts.set_workers, wait.loader.even_workers
    if not wait.facts.iterable or not workers or not even < INPUT.uneven * workers:
        return
    wait.says(f"{wait.begins}: only {even:.1f} of {workers} workers get data.", 0.9)
    wait.shows(
        Evidence("Workers that get data, counted as equal shares", even, "", str(workers)),
        Evidence("Workers that prepared batches", loader.workers, "", str(workers)),
        "queue_ready_mean",
    )
    change = (
        "Divide the data in `__iter__` with `torch.utils.data.get_worker_info()` into at least "
        f"{workers} shards, so every worker has its own"
    )
    wait.advice.append(wait.more_workers(change, "slice", workers))


@cause("input.too_few_workers", *SUPPLY, lines=OF_HANDS)
def too_few_workers(wait: Wait) -> None:
    """All workers are busy all the time, batches still come too late, and CPU is left for more workers.

    Workers that mostly wait (for the network, locks, sleeps) may be more than the CPUs. Where
    nothing measured says why the loader does not keep up, the title calls the reason a guess.
    """
    if not wait.workers_busy or wait.starved:
        return
    used, budget = wait["cpus_used"], wait["cpu_budget"]
    uses = f", and the job uses {used:.1f} of its {budget:g} CPUs" if wait.cpu_known else ""
    wait.says(f"{wait.begins}: {_count(wait.loader.workers)} busy all the time{uses}.", 0.85 if uses else 0.5)
    wait.shows("worker_busy_pct", "cpus_used", "cpu_budget", "queue_ready_mean", *wait.pace)
    wanted = wait.wanted
    wait.advice.append(wait.so_many(_more_workers(wait, wanted), wanted))


def _count(workers: int) -> str:
    return "1 worker is" if workers == 1 else f"{workers} workers are"


def _more_workers(wait: Wait, wanted: Wanted) -> str:
    now = wait.facts.set_workers
    if now is None:
        return f"Use more workers ({wanted.workers})"
    return f"Set `num_workers={wanted.workers}{wanted.besides}` instead of {now}"


@too_few_workers.also(*SUPPLY)
def latency(wait: Wait) -> None:
    """Workers are busy all the time, and wait: for the network, for locks, in sleeps."""
    if not wait.waits_mostly or not wait.behind:
        return
    waiting = f"because preparing a sample is {wait.loader.waiting_pct:.0f} % waiting (network, locks, sleeps)"
    wait.says(f"{wait.begins}: {_count(wait.loader.workers)} not enough, {waiting}.", 0.85)
    wait.shows(*wait.waiting, "cpu_pct", "worker_busy_pct", *wait.pace)
    wanted, shorten = wait.wanted, "; or shorten the waits: local copies, larger requests"
    wait.advice.append(wait.so_many(wait.workers_setting(wanted), wanted, shorten))


@too_few_workers.also(*SUPPLY)
def general(wait: Wait) -> None:
    """The loader does not keep up; nothing measured says why."""
    loader, ahead, wanted = wait.loader, wait.facts.set_prefetch, wait.wanted
    if wait.without_steps and wait["worker_busy_pct"] < 100 * BUSY:
        # Where waits are not known one by one, nothing says why workers that have time to spare are waited for.
        return
    rest = (
        "what was measured does not say why" if wait.cpu_known else "CPU use was not measured, so the reason is a guess"
    )
    if wanted.said is not None or (loader.work_ms_per_batch >= 0 and wanted.workers > loader.workers):
        change = wait.so_many(_more_workers(wait, wanted), wanted)
    elif ahead is not None:
        change = wait.overlapping(prefetching(2 * ahead, ahead), "settings")
    else:
        change = wait.overlapping("Use more workers or threads, or prefetch more batches", "workers")
    wait.says(f"{wait.begins}; {rest}.", 0.4 if wait.cpu_known else 0.2)
    wait.shows(*CPUS, "worker_busy_pct", "queue_ready_mean")
    wait.advice.append(change)


# Who or what takes the CPUs.


@cause("input.cpu_quota", *SUPPLY, lines=OF_THE_MACHINE)
def quota(wait: Wait) -> None:
    """A cgroup stops the job again and again: it has used up its CPU quota for the moment."""
    facts, cpus, workers = wait.facts, wait.facts.sampled.cpu_budget, wait.facts.set_workers
    stops = wait["throttled_s"] * 1e9 >= INPUT.throttled * facts.parts.wall_ns * max(1.0, cpus)
    near = not wait["cpus_used"] < INPUT.budget_used * wait["cpu_budget"]
    if not stops or wait.waits_mostly or not (near or wait.queues):
        return
    of_cpus = "" if math.isnan(cpus) else f" of {cpus:.3g} CPUs"
    wait.says(f"{wait.begins}: a CPU quota{of_cpus} stops the job again and again.", 0.9)
    wait.shows(
        "throttled_s", "cpus_used", "cpu_budget", Evidence("CPUs of the machine", facts.machine_cpus), "run_queue_pct"
    )
    wait.advise(MORE_CPUS, likely=0.6)
    if workers is not None and workers > cpus:
        why = f"{workers} workers use up the quota at the start of each period"
        wait.advice.append(_fewer(wait, int(cpus), why, likely=0.6))
    wait.advice.append(_cheaper(wait))


@quota.also(*SUPPLY)
def held_back(wait: Wait) -> None:
    """Workers wait for a CPU although there are CPUs that nobody uses: something holds the job back."""
    busy = wait["machine_busy_pct"]
    queued = wait["run_queue_pct"] >= HEAVILY_QUEUED_PCT and wait.loader.workers > wait["cpus_used"]
    if not queued or not busy <= INPUT.machine_idle_pct:
        return
    wait.says(
        f"{wait.begins}: the workers wait for a CPU, although {100 - busy:.0f} % of the machine's CPU is idle. "
        "A CPU limit of the job, or other programs on the same CPUs, can cause this.",
        0.5,
    )
    wait.shows("run_queue_pct", wait.figure("machine_busy_pct", "near 100 % if workers have to wait"), *CPUS)
    wait.advise(MORE_CPUS, likely=0.6)


@cause("input.affinity", *SUPPLY, lines=OF_THE_MACHINE)
def affinity(wait: Wait) -> None:
    """Workers are confined to fewer CPUs than the job may use, and wait for those."""
    workers, together, budget = wait.loader.workers, wait.loader.cpus, wait["cpu_budget"]
    if not together + 0.5 < budget or not wait.queues:
        return
    confined = f"all {workers} workers run on {together} of the {budget:g} CPUs that the job may use"
    wait.says(f"{wait.begins}: {confined}.", 0.9)
    wait.shows(
        Evidence("CPUs that all workers together may use", together, "CPUs", f"{budget:g}"),
        *("run_queue_pct", "worker_busy_pct", "cpus_used"),
    )
    change = (
        "Let workers run on any CPU: call `os.sched_setaffinity(0, range(os.cpu_count()))` in a "
        "`worker_init_fn`; look for what confines them (`OMP_PROC_BIND`, `KMP_AFFINITY`, `taskset`, SLURM)"
    )
    wait.advice.append(wait.more_workers(change, "", workers))


@cause("input.worker_threads", *SUPPLY, lines=OF_THE_MACHINE)
def worker_threads(wait: Wait) -> None:
    """Each worker computes in a pool of threads, and together they are more than the CPUs."""
    loader, cpu = wait.loader, wait["cpu_pct"]
    others = loader.process_cpu_pct - cpu
    pools = (
        others >= INPUT.pool_pct * (1 - measured_or(loader.run_queue_pct) / 100) and others >= INPUT.pool_times * cpu
    )
    if not pools or not (wait.cpu_used or wait.starved or (wait.queues and wait["cpu_budget"] - wait["cpus_used"] < 1)):
        return
    each = f"each of the {loader.workers} workers starts threads of its own"
    wait.says(f"{wait.begins}: {each}, and all of them compete for the CPUs.", 0.85)
    wait.shows(
        Evidence("CPU time of other worker threads, share of preparing batches", others, "%", "near 0 %"),
        Evidence("CPU time of the thread that prepares the batches", cpu, "%", "near 100 %"),
        *("run_queue_pct", *CPUS),
    )
    change = (
        "Limit each worker to one thread: call `cv2.setNumThreads(0)` and `threadpoolctl.threadpool_limits(1)` "
        "in a `worker_init_fn`, or set `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1` in the environment"
    )
    wait.advice.append(wait.overlapping(change))


@cause("input.foreign_load", *SUPPLY, lines=OF_THE_MACHINE)
def foreign_load(wait: Wait) -> None:
    """Other programs, or the hypervisor, take CPU that the loader asks for: more of it than this job uses."""
    if not wait.starved or not wait["foreign_cpus"] > wait["cpus_used"]:
        return
    counted = wait.loader.run_queue_pct >= 0
    wait.says(f"{wait.begins}, while other programs use the machine's CPUs.", 0.85 if counted else 0.7)
    wait.shows(
        wait.figure("foreign_cpus", "fewer than this job uses"),
        *("cpus_used", "run_queue_pct", "cpu_pct", "cpu_steal_pct"),
    )
    wait.advise(ALONE, likely=0.6)


@foreign_load.also(Piece.HANDED)
def delayed_by_others(wait: Wait) -> None:
    """Batches are finished, but the training's thread gets no CPU to take them: others use the machine up."""
    if wait["foreign_cpus"] > wait["cpus_used"]:
        _delayed(wait, "other programs use", ALONE)


@cause("input.oversubscribed", *SUPPLY, lines=OF_THE_MACHINE)
def oversubscribed(wait: Wait) -> None:
    """There are far more workers than CPUs, and they wait for each other in the run queue."""
    loader, budget, queued = wait.loader, wait["cpu_budget"], wait["run_queue_pct"]
    too_many = loader.workers >= INPUT.oversubscribed * budget
    if not too_many or not queued >= max(HEAVILY_QUEUED_PCT, loader.waiting_pct):
        return
    spends = f"each spends {queued:.0f} % of its time waiting for one"
    wait.says(f"{wait.begins}: {loader.workers} workers compete for {budget:g} CPUs, and {spends}.", 0.85)
    wait.shows(
        Evidence("Workers", loader.workers, "", f"at most {max(1, int(budget))}"), "run_queue_pct", *CPUS, *wait.stage
    )
    fewer = _fewer(wait, int(budget), "fewer work as fast with less memory", likely=0.1)
    # Fewer workers first, but where that is said to make nothing faster.
    wait.advice += (fewer, _cheaper(wait)) if gains(fewer) else (_cheaper(wait), fewer)


@cause("input.cpu_exhausted", *SUPPLY, lines=Lines(making, worth=WORTH_A_LINE, stages=True))
def cpu_exhausted(wait: Wait) -> None:
    """This job uses every CPU that it may use, and its loader goes short; the evidence names the costliest stage."""
    short = wait.cpu_used or (wait.starved and not wait.says_nothing)
    if not short or wait.waits_mostly or wait.keeps_up:
        return
    if not (wait.workers_busy or wait.queues or wait.says_nothing):
        return
    stage, who = wait.costliest, "the loader and the training use" if wait.on_cpu else "the loader uses"
    mostly = f". The loader works mostly on {stage[0]}" if stage else ""
    wait.says(f"{wait.begins}: {who} up the CPUs{mostly}.", 0.85 if stage else 0.6)
    wait.shows(*CPUS, "worker_busy_pct", "run_queue_pct", *wait.stage)
    wait.advice.append(_cheaper(wait))


@cpu_exhausted.also(Piece.HANDED)
def delayed(wait: Wait) -> None:
    """Batches are finished, but the training's thread gets no CPU to take them: the machine is used up."""
    change = "Use fewer workers, to leave a CPU for the training's own thread"
    _delayed(wait, "the loader and other programs use", change)


def _delayed(wait: Wait, who: str, change: str) -> None:
    queued, loader, most = wait.facts.main_queued_ns, wait.loader, MOSTLY * wait.ns
    moving_ns = measured_or(loader.mean_batch_bytes) / INPUT.moved_bytes_per_s * 1e9 * wait.facts.window.count
    cheap = not loader.sent_bytes_per_batch > INPUT.cheap_sent_bytes and moving_ns <= most
    if not (queued >= most and wait.facts.machine_full and cheap):
        return
    finished = f"batches are finished, but its thread waits for a CPU to take them, because {who} the CPUs"
    wait.says(f"{wait.begins}: {finished}.", 0.6)
    wait.shows(
        Evidence("Training thread waiting for a CPU, share of the time", wait.pct(queued), "%"),
        *("machine_busy_pct", *CPUS),
    )
    wait.advise(change, "fewer_workers", likely=0.6)


def _fewer(wait: Wait, cpus: int, why: str, likely: float) -> Next:
    """Propose fewer workers than there are: as the replay has it, else as many as CPUs."""
    now = wait.facts.set_workers or wait.loader.workers
    said = wait.predicted(lambda settings: 0 < settings.num_workers < now)
    workers = max(1, cpus) if said is None else said.settings.num_workers
    return wait.setting(f"Set `num_workers={workers}`, since {why}", "fewer_workers", said, likely=likely)


def _cheaper(wait: Wait) -> Next:
    """Propose less of what takes most of preparing a batch, where that is known; how much less nobody can say."""
    stage, share = wait.costliest or ("", math.nan)
    any_stage = "Spend less CPU per sample: smaller source images, fewer transforms, the GPU; or add CPUs", "cheaper"
    change, kind = cheaper_by_words(stage) or any_stage
    if math.isnan(share):
        return wait.removing(change, kind, likely=0.6)
    return wait.removing(change, kind, gone=VanishedWork(making=share / 100), least=0.3, likely=0.6)


# Reads.


@cause("input.storage", Piece.READING, lines=PREPARING)
def storage(wait: Wait) -> None:
    """Workers spend most of their time waiting for reads.

    The title says of what kind they are: from a cold page cache, many bytes for few that are used,
    many small ones, or a slow medium.
    """
    loader, batch_size, wanted = wait.loader, wait.facts.batch_size, wait.wanted
    read, stored, ms = loader.read_chars_bytes_per_sample, loader.storage_bytes_per_sample, loader.make_ms_per_sample
    cold = stored / read if read else math.nan
    rate = read / (ms * loader.read_pct / 100 / 1e3) if read and ms and loader.read_pct else math.nan
    used = loader.mean_batch_bytes / batch_size if batch_size else math.nan
    amplified = read / used if used else math.nan
    slow = rate < INPUT.slow_bytes_per_s
    if amplified >= INPUT.amplified:
        says = f", and reads {amplified:.0f} bytes for each byte that it uses"
        change = "Read less per sample: use chunks of the size that is used, and unpack no archive for one sample"
    elif cold >= MOSTLY:
        says = ", because the files are not in the page cache"
        change = "Copy the data to a local disk, or to memory if it fits; or read shards from start to end"
    elif slow and read < INPUT.small_read_bytes:
        says = ", in many small reads that each take long"
        change = "Pack the files into shards (tar, LMDB, records) that are read in large pieces"
    elif slow:
        says, change = ", which is slow", "Read from faster storage, or copy the data there before the training"
    else:
        says, change = "", "Read from faster storage, pack the files into shards, or cache them in memory"
    wait.says(f"{wait.begins}: the loader waits for storage{says}.", 0.85)
    wait.shows(
        "read_pct",
        wait.figure("cpu_pct", "near 100 %"),
        Evidence("Reads from storage, not from the cache", 100 * cold, "%", "near 0 %"),
        Evidence("Bytes read for a sample", read, "bytes"),
        Evidence("Bytes read for each byte of a batch", amplified, "", f"below {INPUT.amplified:.0f}"),
    )
    fast = f"above {INPUT.slow_bytes_per_s / 1e6:.0f} MB"
    wait.shows(Evidence("Bytes read per second of waiting", rate, "bytes", fast))
    reading, more = VanishedWork(making=measured_or(loader.read_pct) / 100), "Use more workers to hide the waiting"
    wait.advise(change, "order", gone=reading, least=0.5, likely=0.8)
    setting = f"{more}: `num_workers={wanted.workers}{wanted.besides}`"
    replayed = wanted.said is not None
    wait.advice.append(wait.so_many(setting, wanted) if replayed else wait.overlapping(more, "workers"))


@storage.also(*SUPPLY)
def mostly_reads(wait: Wait) -> None:
    """Where the batches of the steps are not known one by one: reads are most of what making them takes."""
    if wait["read_pct"] >= 100 * MOSTLY_READING and storage.judge is not None:
        storage.judge(wait)


# Workers that exclude each other.

_REMOTE = (ThreadState.SOCKET, ThreadState.POLL, ThreadState.PIPE)


@cause("input.exclusive", Piece.FILLING, Piece.READING, *SUPPLY, lines=NOT_MENDED)
def exclusive(wait: Wait) -> None:
    """Workers exclude each other: they wait for a lock that one of them holds, or share a connection or a rate.

    Told from stack samples that wait for a lock while another worker works, or from batches that
    take longer the more workers are at work, with CPU left over.
    """
    told = wait.facts.exclusion
    if told is None or wait.facts.made_in_training or wait.cpu_used:
        return
    seen, growth, shared_beyond = told.waiting, told.growth, False
    remote = seen is not None and seen.elsewhere in _REMOTE
    # Reads that take longer side by side are the storage's affair. Counters take what comes through a socket for a
    # read, looks do not.
    waits = wait.waits_mostly or remote or (seen is not None and seen.elsewhere == ThreadState.SLEEP)
    if seen is not None and told.waits_for_lock:
        lock = "the lock of a file" if seen.of_file else "a lock that they share"
        at = f" ({seen.at})" if seen.at else ""
        others = f"{told.together * seen.lock.value:.1f} of {told.together:.1f} busy ones wait for {lock}{at}"
        says = f"{wait.begins}: workers exclude each other. On average {others}."
        wait.says(says, 0.95 if told.grows else 0.85)
        looks = f"Waiting for {lock}, share of {seen.looks} stack samples of active workers"
        wait.shows(Evidence(looks, 100 * seen.lock.value, "%", "near 0 %"))
        change = (
            "Give each worker its own file to lock, or use one lock per guarded thing instead of one for all"
            if seen.of_file
            else "Give each worker its own connection, handle or reader, opened in the worker; or do less while "
            "the lock is held"
        )
    elif growth is not None and told.grows and wait.behind and waits:
        # What they share may be none of theirs, so that nothing need be gained.
        shared_beyond, what = True, "a rate limit or a connection"
        change = "Give each worker its own limit, connection or handle"
        if remote:
            what = "one connection or the bandwidth of a remote store"
            change = (
                "Give each worker its own connection; where the remote end is the limit, fetch fewer bytes: use a "
                "local copy or smaller files"
            )
        wait.says(
            f"{wait.begins}: workers hold each other up, since they share {what}. A batch takes "
            f"{growth.usual_ms:.0f} ms, but {growth.fewer_ms:.0f} ms when fewer workers are active: together they "
            "deliver what one would.",
            0.7,
        )
    else:
        return
    wait.shows(Evidence("Workers active at a time", told.together))
    if growth is not None:
        grown = "Growth of a batch's time with the active workers (0: none, 1: in proportion)"
        wait.shows(Evidence(grown, growth.exponent.value, "", "near 0"))
        fewer, usual = "Preparing a batch with fewer active workers", f"{growth.usual_ms:.0f} ms"
        wait.shows(Evidence(fewer, growth.fewer_ms, "ms", usual))
    wait.shows(wait.figure("cpu_pct", "near 100 %"), *CPUS, *(wait.waiting if shared_beyond else ()))
    change = f"{change} (more workers bring nothing)"
    # A batch then takes as long as one alone takes, on these CPUs: what is computed is not waited for.
    freed = min(1 - told.alone.value, 1 - measured_or(wait.loader.cpu_pct) / 100)
    if freed <= 0:
        wait.advice.append(wait.overlapping(change, "own_handle"))
        return
    least = 0.0 if shared_beyond else max(0.0, 1 - told.alone.high) / freed
    wait.advise(change, "own_handle", gone=VanishedWork(queueing=freed), least=least, likely=1.0)
