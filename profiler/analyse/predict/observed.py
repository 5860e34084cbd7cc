"""What preparing batches and training on them cost in a recorded run, apart from the settings of
its loader."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...errors import WhyidleError
from ...record.reader import Records, measured
from ...record.run import Run
from ...record.schema import BATCH, EVENT, HOST, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..intervals import covered
from ..run.facts import Facts
from ..run.loader_stats import of_training, within
from ..run.stall_breakdown import rises
from ..run.window import lasting, measured_or, under_way
from ..shares import MOSTLY
from .predict import Advice, Assumed
from .replay import Times, Workload

LEAST_BATCHES = 20
"""Recorded batches, and steps, that a replay draws its times from, at least."""
LAIN_NS = 2_000_000
"""Time before it is asked for at which a batch has to be finished to lie ready then: in it the
batch is pickled and sent."""
QUICK = 0.1
"""Share of the steps, the quickest ones, that are taken not to have waited for a CPU."""
HELD_NS = 1_000_000
"""Time beyond the quickest from which a hand-over was delayed."""
LEAST_FETCHES = 5
"""Fetches of a kind that a median is taken of, at least."""
MOST_SCALED = 3.0
"""Factor by which batches that were not recorded are taken to differ from those that were, at most:
more is an error of the record."""
LEAST_CPUS = 0.05
"""CPUs that a training is taken to use while it works on its steps, at least."""
LEAST_THREADS = 2
"""Threads of a job that compete with other programs for CPUs, at least: the training's own and a
worker's."""


class Unobserved(WhyidleError):
    """The run does not tell enough to predict other settings."""


def advice_of(run: Run, facts: Facts) -> Advice | None:
    """Give advice on the loader of the training process that ran most steps; `None` where the run
    does not tell enough."""
    try:
        return Advice(workload_of(run, facts))
    except (Unobserved, ValueError, ArithmeticError, LookupError):
        # What cannot be predicted is no reason to have no report.
        return None


def workload_of(run: Run, facts: Facts) -> Workload:
    """Find what preparing batches and training on them cost, in the training process that ran most
    steps.

    Args:
        facts: of that process.

    Raises:
        Unobserved: the run does not tell; the message says why.
    """
    writer, window, steps = run.leading_writer(), facts.window, facts.window.steps
    host, events, pauses = run.records(HOST), run.records(EVENT, writer), run.records(PAUSE, writer)
    made = of_training(run.records(BATCH, writer), window.all_steps)
    batches = made[within(window, made)] if len(made) else made
    if len(batches) < LEAST_BATCHES:
        raise Unobserved(
            f"The preparation of only {len(batches)} batches was recorded; {LEAST_BATCHES} are needed to replay them."
            if len(batches)
            else "How batches are prepared was not recorded."
        )
    settings = _settings(run, facts)
    together = events["value"][events["what"] == EventKind.BATCHES_TOGETHER]
    if len(together) and together[-1] > 1:
        raise Unobserved(f"Each step fetches {together[-1]} batches before it computes, which cannot be replayed.")
    # Iterators of one loader follow each other; those of several take turns.
    told = steps["loader"][steps["loader"] != NOT_MEASURED]
    further = pauses["step"][pauses["what"] == PauseKind.FETCH]
    if (np.diff(told) < 0).any() or np.isin(steps["step"], further).mean() > MOSTLY:
        raise Unobserved("The training takes its batches from several loaders at a time.")
    threads = int(max(1, batches["threads"].max()))
    cpu_ns, wait_ns, read_ns = _making(batches, threads, facts.crowded)
    serial = settings.num_workers == 0 and threads == 1
    host_ns = _host(steps, host, events, facts, batches if serial else None)
    if len(host_ns) < LEAST_BATCHES:
        raise Unobserved(f"{len(host_ns)} consecutive steps were recorded; {LEAST_BATCHES} are needed.")
    batch_bytes = _median(batches, "batch_bytes")
    sharing_ns = Assumed.sharing_ns(facts.handed, float(batch_bytes or 0))
    if settings.num_workers:
        # What was recorded of workers has it; no more of a batch than the batches' quickest.
        sharing_ns = min(sharing_ns, 0.9 * float(np.quantile(cpu_ns, 0.1)))
        cpu_ns = np.maximum(0.0, cpu_ns - sharing_ns)
    sampling_ns = 0.0 if facts.sampling is None else facts.sampling.each_ns
    ready_ns, waited_ns, delay_ns = np.nan, np.nan, 0.0
    if not serial:
        ran = measured(window.steps["cpu_ns"])
        known = not np.isnan(facts.running) and not np.isnan(ran).all()
        # What the training's thread ran in a fetch: all but what it ran in its own part of the
        # step.
        most_ns = max(0.0, float(np.nanmean(ran)) - facts.running * float(host_ns.mean())) if known else np.inf
        ready_ns, waited_ns, delay_ns = _handoff(steps, batches, most_ns, sampling_ns)
    possible = ready_ns, Assumed.OF_WAITED * waited_ns, Assumed.handoff_ns(facts.handed)
    handoff_ns = next(ns for ns in possible if not np.isnan(ns))
    # The training touches a worker's batch while it works on its step: that is no time of a step's
    # own.
    touch_ns = 0.0 if settings.pin_memory else Assumed.TOUCH_NS_PER_BYTE * float(batch_bytes or 0)
    if settings.num_workers:
        touch_ns = min(touch_ns, 0.5 * float(np.median(host_ns)))
        host_ns = np.maximum(0.0, host_ns - touch_ns)
    start_ns = _start(window.all_steps, made)
    otherwise_ns = sampling_ns + (float(cpu_ns.mean()) if serial else touch_ns * (settings.num_workers > 0))
    cpus = _cpus_left(run, facts, settings.num_workers)
    shm_used, shm_size = _median(host, "shm_used_bytes"), _median(host, "shm_total_bytes")
    whole = _median(host, "tree_pss_bytes")
    queued = facts.device_kind != "cpu"
    # A training that waits for its device in most steps: by its calls, and nothing was queued any more when it asked
    # for the next batch.
    waits = np.nan_to_num(measured(steps["sync_ns"])) > 0
    asked, drained = ((steps["flags"] & flag) != 0 for flag in (StepFlag.DRAINED_KNOWN, StepFlag.DRAINED_AT_ENTRY))
    return Workload(
        settings=settings,
        batch_size=facts.batch_size or 1,
        cpu_ns=cpu_ns,
        wait_ns=wait_ns,
        read_ns=read_ns,
        host_ns=host_ns,
        device_ns=_device(steps, pauses) if queued else None,
        synchronous=not queued or bool(waits.mean() > MOSTLY and (not asked.any() or drained[asked].mean() > MOSTLY)),
        handoff_ns=handoff_ns + touch_ns,
        handoff_known=not np.isnan(ready_ns),
        latency_ns=0.0 if np.isnan(waited_ns) else max(0.0, waited_ns - handoff_ns),
        drawing_ns=sampling_ns,
        delay_ns=delay_ns,
        sharing_ns=sharing_ns,
        main_cpus=_main_cpus(facts, host, host_ns, otherwise_ns),
        start_ns=Assumed.START_NS if start_ns is None else start_ns / (settings.num_workers + 1),
        batches_per_epoch=_batches_per_epoch(window.all_steps),
        batch_bytes=batch_bytes,
        # With workers it is in what was recorded.
        contention=Assumed.contention(Assumed.CONTENTION, cpus) if serial else 0.0,
        cpus=cpus,
        memory_bytes=_median(host, "memory_available_bytes"),
        shm_bytes=None if shm_used is None or shm_size is None else max(0, shm_size - shm_used),
        # Only the tree's memory is known, not each process's; the training's is no smaller than a
        # worker's.
        worker_bytes=None if whole is None or not settings.num_workers else whole // (1 + settings.num_workers),
    )


# The loader


def _settings(run: Run, facts: Facts) -> LoaderSettings:
    pipeline, workers = (run.info.get("trial") or {}).get("pipeline"), facts.set_workers
    if workers is None and pipeline is None:
        raise Unobserved("The training's batches do not come from torch's DataLoader.")
    if pipeline == "naive" and not facts.made_in_training:
        raise Unobserved("The recording does not hold the settings of its loader.")
    if workers is None:
        workers = 0 if facts.made_in_training else facts.loader.makers
    capacity = facts.loader.queue_capacity
    ahead = facts.set_prefetch or (int(capacity) // workers if capacity > 0 and workers else None) or DEFAULT_PREFETCH
    return LoaderSettings(
        num_workers=workers,
        prefetch_factor=ahead if workers else None,
        pin_memory=bool(facts.pin_memory),
        batch_size=facts.batch_size,
        pipeline=pipeline,
        in_order=not facts.out_of_order or not workers,
        persistent_workers=bool(facts.persistent_workers and workers),
    )


def _making(batches: Records, threads: int, crowded: bool) -> tuple[Times, Times, Times]:
    """Divide what making each batch took into computing, waiting and reading.

    Waiting for a CPU is left out, as how long that is depends on the setting. A CPU second is taken
    as it was counted, although CPUs that share a core, a cache or a clock slow each other.

    Args:
        threads: threads that work on a batch together.
        crowded: other programs use the machine's CPUs, so that waiting of a kind that is not known
            is for those.
    """
    batches = batches[np.argsort(batches["begin_ns"], kind="stable")]
    wall = (batches["end_ns"] - batches["begin_ns"]).astype(np.float64)
    stages = {name: measured(batches[f"{name}_ns"]) for name in ("read", "decode", "transform", "collate")}
    scale = 1.0
    if threads > 1:
        # Its threads let samples wait in between: only stages are work.
        wall = np.nansum(np.stack(list(stages.values())), axis=0)
    else:
        # Looking at a batch makes it longer, and which are left out is not drawn by lot.
        skipped, skipped_ns = (np.maximum(0, batches[name]) for name in ("skipped", "skipped_ns"))
        if (number := int(skipped.sum())) and wall.sum():
            left_out = float(skipped_ns[skipped > 0].sum())
            scale = (left_out + float(wall.sum())) / (number + len(wall)) / float(wall.mean())
            scale = min(max(scale, 1 / MOST_SCALED), MOST_SCALED)
    read, queued = np.nan_to_num(stages["read"]), measured(batches["run_queue_ns"])
    # Other threads of the process compute while this one waits for them.
    cpu = np.fmax(measured(batches["cpu_ns"]), measured(batches["process_cpu_ns"]))
    cpu = np.where(np.isnan(cpu), np.maximum(0, wall - read), cpu)
    running = np.maximum(0.0, wall - np.nan_to_num(queued))
    read = np.minimum(read, running)
    cpu = np.minimum(cpu, running - read)
    # Where waiting for a CPU was not counted, decoding and transforming are known to wait for
    # nothing else.
    wait = np.where(np.isnan(queued) & (~np.isnan(stages["decode"]) | crowded), 0.0, running - read - cpu)
    return cpu * scale, wait * scale, read * scale


def _handoff(steps: Records, batches: Records, most_ns: float, sampling_ns: float) -> tuple[float, float, float]:
    """Find what taking over a batch costs where nothing delays it; first fetches of epochs are left
    out.

    Args:
        most_ns: CPU time that the training's thread spent on it, the mean; infinite: not known.
        sampling_ns: what the sampler took of it, the mean.

    Returns:
        Length of a fetch whose batch lay ready; time from a batch's end in its worker to the end of
        the fetch that waited for it; what batches were on their way longer than that, the mean, as
        the thread of a busy worker that sends them waits for its interpreter, and whoever wants a
        CPU for that. NaN: too few fetches were of the kind.
    """
    ordinary = steps[((steps["flags"] & StepFlag.FIRST_OF_EPOCH) == 0) & (steps["fetch_end_ns"] != NOT_MEASURED)]
    _, place, batch = np.intersect1d(ordinary["step"], batches["step"], return_indices=True)
    begin, end = ordinary["fetch_begin_ns"][place], ordinary["fetch_end_ns"][place]
    finished = batches["end_ns"][batch]
    waits = (finished > begin) & (finished <= end)
    # A batch that was finished when the training last waited for another one may have been taken
    # over then.
    last_wait = np.maximum.accumulate(np.where(waits, end, 0))
    ready = (finished + LAIN_NS <= begin) & (finished > last_wait)

    def undelayed(lengths: npt.NDArray[np.int64]) -> float:
        """Take the median; where that is far from the quickest ones, something delays most, and
        those tell it."""
        if len(lengths) < LEAST_FETCHES:
            return np.nan
        quick, usual = np.quantile(lengths, (QUICK, 0.5))
        return float(usual if usual <= quick + HELD_NS else max(quick, min(usual, HELD_NS)))

    # Nothing above what the thread ran is work.
    taken = float(np.minimum(undelayed((end - begin)[ready]), max(most_ns, HELD_NS)))
    waited = undelayed((end - finished)[waits])
    least = waited if np.isnan(taken) else taken
    if np.isnan(least):
        return np.nan, np.nan, 0.0
    # A fetch that was not held up tells only that its batch was there before. What takes
    # longer than making the next batch is held up by something else.
    held = end - begin > least + HELD_NS
    making = float((batches["end_ns"] - batches["begin_ns"]).mean())
    late = np.clip(end - finished - np.fmax(least, waited), 0, making)
    usual = float(np.median(late[held])) if held.any() else 0.0
    delay = float(np.where(held, late, np.clip(begin - finished, 0, usual)).mean())
    fetch = float(np.maximum(taken - sampling_ns, np.minimum(taken, HELD_NS)))
    return fetch, float(np.maximum(0.0, waited - sampling_ns)), delay


def _start(steps: Records, batches: Records) -> float | None:
    """Find the time from asking for an iterator until one of its workers took up a batch: the
    median over the iterators that were made, of workers that persist over those that started them.
    `None` where no such begin was seen."""
    first = steps[((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0) & (steps["loader"] != NOT_MEASURED)]
    _, new = np.unique(first["loader"], return_index=True)
    begins = []
    for row in first[new]:
        made = batches[(batches["loader"] == row["loader"]) & (batches["batch"] >> 32 == row["batch"] >> 32)]
        if len(made) and made["begin_ns"].min() >= row["fetch_begin_ns"]:
            begins.append(float(made["begin_ns"].min() - row["fetch_begin_ns"]))
    return float(np.median(begins)) if begins else None


def _batches_per_epoch(steps: Records) -> int | None:
    """Count the batches of the longest pass that another one followed, since passes may be left
    early; `None` where none was."""
    first = np.flatnonzero((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0)
    if len(first) < 2:
        return None
    # Steps that were skipped before the first of a pass are of the pass before.
    ran = 1 + np.where(steps["skipped"] > 0, steps["skipped"], 0)
    return int(np.diff(np.cumsum(ran)[first]).max())


# The training


def _host(steps: Records, host: Records, events: Records, facts: Facts, serial: Records | None) -> Times:
    """Find the training's own time of each step that another one of its epoch follows, waiting for
    a CPU left out.

    Args:
        serial: the batches that the training made itself, whose waiting for a CPU is theirs;
            `None`: it made none.
    """
    after = steps[1:]
    follows = (
        (np.diff(steps["step"]) == 1)
        & (after["skipped"] <= 0)
        & ((after["flags"] & StepFlag.FIRST_OF_EPOCH) == 0)
        & (steps["fetch_end_ns"][:-1] != NOT_MEASURED)
        & (after["fetch_end_ns"] != NOT_MEASURED)
    )
    rows = np.flatnonzero(follows)
    begin, end = steps["fetch_end_ns"][rows], steps["fetch_begin_ns"][rows + 1]
    outside = under_way(lasting(events, EventKind.BOUNDARY))
    own = (end - begin - covered(outside, begin, end)).astype(np.float64)
    own -= np.nan_to_num(measured(steps["sync_ns"]))[rows] + np.nan_to_num(measured(steps["overhead_ns"]))[rows]
    own = np.asarray(np.maximum(0.0, own))
    queued = rises(host["t_ns"], host["main_thread_queue_ns"], facts.window)
    if queued is None or not own.any():
        return own
    makers = measured(np.empty(0) if serial is None else serial["run_queue_ns"])
    elsewhere = 0.0 if np.isnan(makers).all() else float(np.nanmean(makers))
    # Some of it was in fetches: what makes a step longer than the quickest ones is at most of the
    # step itself.
    longer = np.maximum(0.0, own - np.quantile(own, QUICK))
    waited = max(0.0, float(queued.mean()) - elsewhere)
    quick = own - longer * min(1.0, waited / max(1.0, float(longer.mean())))
    # Steps differ by their batches, too: what ran on a CPU did not wait for one.
    fetched = (steps["fetch_end_ns"] - steps["fetch_begin_ns"])[rows].astype(np.float64)
    taking = fetched if serial is not None else np.minimum(fetched, np.quantile(fetched, QUICK))
    ran = np.nan_to_num(measured(steps["cpu_ns"]))[rows] - taking
    return np.asarray(np.maximum(quick, np.minimum(own, ran)))


def _device(steps: Records, pauses: Records) -> Times | None:
    """Find the work of each step on the device, its copy included, its pauses not; `None` where no
    step has stamps."""

    def both(records: Records, begin: str, end: str) -> npt.NDArray[np.bool_]:
        known: npt.NDArray[np.bool_] = (records[begin] != NOT_MEASURED) & (records[end] != NOT_MEASURED)
        return known

    known = steps[both(steps, "device_begin_ns", "device_end_ns")]
    if len(known) == 0:
        return None
    work = (known["device_end_ns"] - known["device_begin_ns"]).astype(np.float64)
    # A copy on a stream of its own holds nothing up.
    copied = both(known, "device_copy_begin_ns", "device_copy_end_ns") & ((known["flags"] & StepFlag.COPIED_AHEAD) == 0)
    before = np.minimum(known["device_copy_end_ns"], known["device_begin_ns"]) - known["device_copy_begin_ns"]
    work += np.where(copied, np.maximum(0, before), 0)
    held = pauses[both(pauses, "device_begin_ns", "device_end_ns") & (pauses["what"] != PauseKind.COPY_AHEAD)]
    place = np.minimum(np.searchsorted(known["step"], held["step"]), len(known) - 1)
    of_these = known["step"][place] == held["step"]
    idle = np.maximum(0, held["device_end_ns"] - held["device_begin_ns"])
    np.subtract.at(work, place[of_these], idle[of_these])
    return np.asarray(np.maximum(0.0, work))


def _main_cpus(facts: Facts, host: Records, host_ns: Times, otherwise_ns: float) -> float:
    """Find the CPUs that the training process uses while it works on its steps.

    Args:
        otherwise_ns: CPU time that it uses in a step for something else.
    """
    window, own = facts.window, float(host_ns.mean())
    if own <= 0:
        return 1.0
    within_window = (host["t_ns"] >= window.begin_ns) & (host["t_ns"] <= window.end_ns)
    known = host[within_window & (host["main_cpu_ns"] != NOT_MEASURED)]
    if len(known) > 1 and known["t_ns"][-1] > known["t_ns"][0]:
        used = float(known["main_cpu_ns"][-1] - known["main_cpu_ns"][0]) / float(known["t_ns"][-1] - known["t_ns"][0])
        of_step = used * window.wall_ns / window.count
    else:
        ran = measured(window.steps["cpu_ns"])
        of_step = float(np.nanmedian(ran)) if not np.isnan(ran).all() else own + otherwise_ns
    return min(max((of_step - otherwise_ns) / own, LEAST_CPUS), _cpus(facts))


# The machine


def _cpus(facts: Facts) -> float:
    """CPUs that the job may use, whether others use them or not."""
    return measured_or(facts.sampled.cpu_budget) or float(facts.machine_cpus or 1)


def _cpus_left(run: Run, facts: Facts, workers: int) -> float:
    """CPUs that other settings may use, by what the sampler saw of the host."""
    window, threads = facts.window, max(LEAST_THREADS, workers + 1)
    # What the job's other training threads used: they are of its tree, and yet leave less to this
    # training.
    peers = 0.0
    for other in {(file.rank, file.pid) for file in run.files(STEP)} - {run.leading_writer()}:
        steps = run.records(STEP, other)
        inside = (steps["step_end_ns"] > window.begin_ns) & (steps["step_end_ns"] <= window.end_ns)
        peers += float(np.nansum(measured(steps["cpu_ns"][inside]))) / window.wall_ns

    def left(cpus: float, used: float) -> float:
        """What nobody used but this training, or a fair share for as many threads as it has."""
        return max(cpus - used, cpus * threads / (threads + used))

    cpus = left(_cpus(facts), peers)
    if np.isnan(facts.foreign_cpus) or facts.machine_cpus is None:
        return cpus
    return min(cpus, left(float(facts.machine_cpus), facts.foreign_cpus + peers))


def _median(records: Records, name: str) -> int | None:
    """Take the median of a field; `None` where it was not measured."""
    known = records[name][records[name] != NOT_MEASURED]
    return int(np.median(known)) if len(known) else None
