"""The loader goes short of CPU: who or what takes it."""

from __future__ import annotations

from ...predict.advice import VanishedWork
from ...run.loader_stats import HEAVILY_QUEUED_PCT
from ...where.stages import cheaper_by_words
from ..finding import LEAST_GAIN, Evidence, Finding, Next
from .wait import MOSTLY_OWN, Wait

LEAST_THROTTLED = 0.05
"""Share of the time of its CPUs that a quota stops the job, from which it is the reason."""
POOL_PCT = 50.0
"""CPU time of the other threads of workers, in percent of the time spent making batches, from which these compete for
CPUs."""
POOL_TIMES = 0.75
"""CPU time of the other threads of workers over that of the threads that make the batches, from which they compete for
CPUs."""
ALONE = "Run it where nothing else runs, or give it CPUs of its own (`taskset`, a cpuset, a quota for the others)"
MOSTLY_IDLE_PCT = 70.0
"""CPU time of the machine in use, in percent, up to which there is a CPU for whoever may run."""
OVERSUBSCRIBED_TIMES = 1.5
"""Workers for each CPU that they may use, from which they are too many."""
CHEAP_SENT_BYTES = 4096
"""Bytes of a batch through the pipe up to which it is handed over in less than a millisecond, if it is not large."""
MOVED_BYTES_PER_S = 1e9
"""Bytes of a batch that are put into shared memory, mapped and faulted in within a second at least."""
THREAD_QUEUED = 0.5
"""Waiting of the training's thread for a CPU, of the wait for finished batches, from which it is the reason."""


def quota(wait: Wait) -> Finding | None:
    """A cgroup stops the job for parts of each period."""
    sampled, facts = wait.facts.sampled, wait.facts
    throttled_s, cpus, used = sampled.throttled_s, sampled.cpu_budget, sampled.tree_cpus
    if throttled_s is None or throttled_s * 1e9 < LEAST_THROTTLED * facts.parts.wall_ns * max(1.0, cpus or 1.0):
        return None
    near = cpus is None or used is None or used >= MOSTLY_OWN * cpus
    if wait.waits_mostly or not (near or wait.queues):
        return None
    workers = facts.set_workers
    changes = [wait.removing("Ask for more CPUs: the limit of the container or batch job", likely=0.6)]
    if cpus is not None and workers is not None and workers > cpus:
        changes.append(
            _fewer(wait, int(cpus), f"{workers} workers use up the quota at the start of each period", likely=0.6)
        )
    changes.append(_cheaper(wait))
    return wait.found(
        f"{wait.begins}: a CPU quota{'' if cpus is None else f' of {cpus:.3g} CPUs'} stops the job again and again.",
        0.9,
        (
            wait.evidence("throttled_s"),
            wait.evidence("cpus_used"),
            wait.evidence("cpu_budget"),
            Evidence("CPUs of the machine", facts.machine_cpus),
            wait.evidence("run_queue_pct"),
        ),
        tuple(changes),
    )


def held_back(wait: Wait) -> Finding | None:
    """Workers wait for a CPU although there are CPUs that nobody uses: something holds the job back."""
    loader, busy, used = wait.loader, wait.facts.sampled.machine_busy_pct, wait.facts.sampled.tree_cpus
    queued = loader.run_queue_pct
    if busy is None or used is None or queued is None or busy > MOSTLY_IDLE_PCT or queued < HEAVILY_QUEUED_PCT:
        return None
    if loader.workers <= used:
        return None
    return wait.found(
        f"{wait.begins}: the workers wait for a CPU, although {100 - busy:.0f} % of the machine's CPU is idle. "
        "A CPU limit of the job, or other programs on the same CPUs, can cause this.",
        0.5,
        (
            wait.evidence("run_queue_pct"),
            wait.evidence("machine_busy_pct", "near 100 % if workers have to wait"),
            *wait.cpu_evidence,
        ),
        (wait.removing("Ask for more CPUs: the limit of the container or batch job", likely=0.6),),
    )


def affinity(wait: Wait) -> Finding | None:
    """The workers are confined to fewer CPUs than the job may use, and wait for those."""
    loader, budget = wait.loader, wait.facts.sampled.cpu_budget
    together = loader.cpus
    if together is None or budget is None or together + 0.5 >= budget or not wait.queues:
        return None
    return wait.found(
        f"{wait.begins}: all {loader.workers} workers run on {together} of the {budget:g} CPUs that the job may use.",
        0.9,
        (
            Evidence("CPUs that all workers together may use", together, "CPUs", f"{budget:g}"),
            wait.evidence("run_queue_pct"),
            wait.evidence("worker_busy_pct"),
            wait.evidence("cpus_used"),
        ),
        (
            wait.more_workers(
                "Let workers run on any CPU: call `os.sched_setaffinity(0, range(os.cpu_count()))` in a "
                "`worker_init_fn`; look for what confines them (`OMP_PROC_BIND`, `KMP_AFFINITY`, `taskset`, SLURM)",
                loader.workers,
            ),
        ),
    )


def worker_threads(wait: Wait) -> Finding | None:
    """Each worker computes in a pool of threads, and together they are more than the CPUs."""
    loader = wait.loader
    cpu, process = loader.cpu_pct, loader.process_cpu_pct
    if cpu is None or process is None or not (wait.cpu_used or wait.starved or (wait.queues and wait.few_cpus_left)):
        return None
    others = process - cpu
    if others < POOL_PCT * (1 - (loader.run_queue_pct or 0.0) / 100) or others < POOL_TIMES * cpu:
        return None
    return wait.found(
        f"{wait.begins}: each of the {loader.workers} workers starts threads of its own, and all of them compete for "
        "the CPUs.",
        0.85,
        (
            Evidence("CPU time of other worker threads, share of preparing batches", others, "%", "near 0 %"),
            Evidence("CPU time of the thread that prepares the batches", cpu, "%", "near 100 %"),
            wait.evidence("run_queue_pct"),
            *wait.cpu_evidence,
        ),
        (
            wait.overlapping(
                "Limit each worker to one thread: call `cv2.setNumThreads(0)` and `threadpoolctl.threadpool_limits(1)` "
                "in a `worker_init_fn`, or set `OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1` in the environment"
            ),
        ),
    )


def foreign_load(wait: Wait) -> Finding | None:
    """The loader does not get the CPU it asks for, and others use more of it than this job."""
    foreign, mine = wait.facts.foreign_cpus, wait.facts.sampled.tree_cpus
    if not wait.starved or foreign is None or mine is None or foreign <= mine:
        return None
    return wait.found(
        f"{wait.begins}, while other programs use the machine's CPUs.",
        0.7 if wait.loader.run_queue_pct is None else 0.85,
        (
            wait.evidence("foreign_cpus", "fewer than this job uses"),
            wait.evidence("cpus_used"),
            wait.evidence("run_queue_pct"),
            wait.evidence("cpu_pct"),
            wait.evidence("cpu_steal_pct"),
        ),
        (wait.removing(ALONE, likely=0.6),),
    )


def oversubscribed(wait: Wait) -> Finding | None:
    """Many more workers than CPUs: they wait for each other."""
    loader, budget = wait.loader, wait.facts.sampled.cpu_budget
    queued = loader.run_queue_pct
    if (
        budget is None
        or queued is None
        or queued < HEAVILY_QUEUED_PCT
        or loader.workers < OVERSUBSCRIBED_TIMES * budget
    ):
        return None
    if queued < (loader.waiting_pct or 0.0):
        return None
    return wait.found(
        f"{wait.begins}: {loader.workers} workers compete for {budget:g} CPUs, and each spends {queued:.0f} % of its "
        "time waiting for one.",
        0.85,
        (
            Evidence("Workers", loader.workers, "", f"at most {max(1, int(budget))}"),
            wait.evidence("run_queue_pct"),
            *wait.cpu_evidence,
            *wait.stage_evidence,
        ),
        _best_first(
            _fewer(wait, int(budget), "fewer work as fast with less memory", likely=0.1),
            _cheaper(wait),
        ),
    )


def _best_first(fewer: Next, cheaper: Next) -> tuple[Next, Next]:
    """Fewer workers first, but where that is said to make nothing faster."""
    gains = fewer.speedup is None or fewer.speedup.value >= 1 + LEAST_GAIN
    return (fewer, cheaper) if gains else (cheaper, fewer)


def cpu_exhausted(wait: Wait) -> Finding | None:
    """This job uses every CPU it may use, and its loader goes short."""
    facts = wait.facts
    if not wait.cpu_used or wait.waits_mostly or wait.keeps_up:
        return None
    if not (wait.workers_busy or wait.queues or wait.says_nothing):
        return None
    stage = wait.costliest
    who = "the loader and the training use" if facts.device_kind == "cpu" else "the loader uses"
    title = f"{wait.begins}: {who} up the CPUs"
    return wait.found(
        f"{title}. The loader works mostly on {stage[0]}." if stage else f"{title}.",
        0.85 if stage else 0.6,
        (
            *wait.cpu_evidence,
            wait.evidence("worker_busy_pct"),
            wait.evidence("run_queue_pct"),
            *wait.stage_evidence,
        ),
        (_cheaper(wait),),
    )


def delayed_by_others(wait: Wait) -> Finding | None:
    """Batches are finished, but the training's thread gets no CPU to take them: others use the machine up."""
    foreign, mine = wait.facts.foreign_cpus, wait.facts.sampled.tree_cpus
    others = foreign is not None and mine is not None and foreign > mine
    return _delayed(wait, "other programs use", ALONE) if others else None


def delayed(wait: Wait) -> Finding | None:
    """Batches are finished, but the training's thread gets no CPU to take them: the machine is used up."""
    change = "Use fewer workers, to leave a CPU for the training's own thread"
    return _delayed(wait, "the loader and other programs use", change)


def _delayed(wait: Wait, who: str, change: str) -> Finding | None:
    queued = wait.facts.main_queued_ns
    sent, nbytes = wait.loader.sent_bytes_per_batch, wait.loader.mean_batch_bytes
    moving_ns = (nbytes or 0.0) / MOVED_BYTES_PER_S * 1e9 * wait.facts.window.count
    cheap = (sent or 0.0) <= CHEAP_SENT_BYTES and moving_ns <= THREAD_QUEUED * wait.ns
    if queued is None or not wait.facts.machine_full or queued < THREAD_QUEUED * wait.ns or not cheap:
        return None
    return wait.found(
        f"{wait.begins}: batches are finished, but its thread waits for a CPU to take them, because {who} the CPUs.",
        0.6,
        (
            Evidence("Training thread waiting for a CPU, share of the time", wait.pct(queued), "%"),
            wait.evidence("machine_busy_pct"),
            *wait.cpu_evidence,
        ),
        (wait.removing(change, likely=0.6).of("fewer_workers"),),
    )


def _fewer(wait: Wait, cpus: int, why: str, likely: float) -> Next:
    """Fewer workers than there are: as the replay has it, else as many as CPUs."""
    now = wait.facts.set_workers or wait.loader.workers
    said = wait.predicted(lambda settings: 0 < settings.num_workers < now)
    if said is None:
        return wait.removing(f"Set `num_workers={max(1, cpus)}`, since {why}", likely=likely).of("fewer_workers")
    return wait.as_predicted(f"Set `num_workers={said.settings.num_workers}`, since {why}", said).of("fewer_workers")


def _cheaper(wait: Wait) -> Next:
    """Less of what takes most of preparing a batch, where that is known; how much less nobody can say."""
    any_stage = "Spend less CPU per sample: smaller source images, fewer transforms, the GPU; or add CPUs", "cheaper"
    stage, share = wait.costliest or ("", None)
    change, kind = cheaper_by_words(stage) or any_stage
    if share is None:
        return wait.removing(change, likely=0.6).of(kind)
    return wait.lighter(change, VanishedWork(making=share / 100), least=0.3, likely=0.6, kind=kind)
