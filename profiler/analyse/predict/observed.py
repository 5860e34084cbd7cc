"""A recorded run as what the replay is fed with.

What the training's side of a recorded run took: its own work, the device's, fetches, beginnings of epochs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...errors import WhyidleError
from ...record.reader import RecordFile, Records, measured
from ...record.run import Run, Writer
from ...record.schema import BATCH, EVENT, HOST, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..intervals import covered, union_of
from ..run.divided_time import rises
from ..run.events import lasting, under_way
from ..run.facts import Facts
from ..run.worker_records import of_training, within
from ..shares import MOSTLY
from .advice import Advice
from .predict import Assumed
from .replay import loader_of
from .workload import MachineLimits, Times, Workload

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


MOST_SCALED = 3.0
"""Factor by which batches that were not recorded are taken to differ from those that were, at most: more is an error of
the record."""


@dataclass(frozen=True)
class Making:
    """What making each recorded batch took, ns; fields as in `Workload`."""

    cpu_ns: Times
    wait_ns: Times
    read_ns: Times
    collate_ns: Times
    slowest_ns: Times
    threads: int
    """Threads that work on batches together."""


def making_of(batches: Records, crowded: bool = False) -> Making:
    """What making each batch took, waiting for a CPU left out: how long that is depends on the setting.

    Args:
        crowded: other programs use the machine's CPUs, so that waiting of a kind that is not known is for those.

    A CPU second is taken as it was counted, although CPUs that share a core, a cache or a clock slow each other.
    """
    order = np.argsort(batches["begin_ns"], kind="stable")
    batches = batches[order]
    threads = int(max(1, batches["threads"].max()))
    wall = (batches["end_ns"] - batches["begin_ns"]).astype(np.float64)
    stages = {name: measured(batches[f"{name}_ns"]) for name in ("read", "decode", "transform", "collate")}
    told_apart = ~np.isnan(stages["decode"])
    if threads > 1:
        # Its threads let samples wait in between: only stages are work.
        wall = np.nansum(np.stack(list(stages.values())), axis=0)
    read = np.nan_to_num(stages["read"])
    queued = measured(batches["run_queue_ns"])
    thread_cpu, process_cpu = measured(batches["cpu_ns"]), measured(batches["process_cpu_ns"])
    # Other threads of the process compute while this one waits for them.
    cpu = np.fmax(thread_cpu, process_cpu)
    cpu = np.where(np.isnan(cpu), np.maximum(0, wall - read), cpu)
    running = np.maximum(0.0, wall - np.nan_to_num(queued))
    read = np.minimum(read, running)
    cpu = np.minimum(cpu, running - read)
    # Where waiting for a CPU was not counted, decoding and transforming are known to wait for nothing else.
    wait = np.where(np.isnan(queued) & (told_apart | crowded), 0.0, running - read - cpu)
    made = cpu + wait + read
    slowest = measured(batches["slowest_ns"])
    slowest = np.minimum(slowest, made)
    collate = np.minimum(np.nan_to_num(stages["collate"]), cpu)
    scale = _of_all(batches, wall) if threads == 1 else 1.0
    return Making(cpu * scale, wait * scale, read * scale, collate * scale, slowest * scale, threads)


def _of_all(batches: Records, wall: Times) -> float:
    """The mean of all batches over that of the recorded ones: looking at a batch makes it longer, and which are left
    out is not drawn by lot."""
    skipped = np.maximum(0, batches["skipped"])
    left_out = float(np.maximum(0, batches["skipped_ns"])[skipped > 0].sum())
    number = int(skipped.sum())
    if not number or not wall.sum():
        return 1.0
    scale = (left_out + float(wall.sum())) / (number + len(wall)) / float(wall.mean())
    return min(max(scale, 1 / MOST_SCALED), MOST_SCALED)


LEAST_CPUS = 0.05
"""CPUs that a training is taken to use while it works on its steps, at least."""
LEAST_THREADS = 2
"""Threads of a job that compete with other programs for CPUs, at least: the training's own and a worker's."""


def limits_of(facts: Facts, host: Records, settings: LoaderSettings, peers_cpus: float = 0.0) -> MachineLimits:
    """CPUs and memory that other settings may use, by what the sampler saw of the host.

    Args:
        peers_cpus: CPUs that other training processes of the job use, which need them as before.
    """
    available = median_of(host, "memory_available_bytes")
    shm_used, shm_size = median_of(host, "shm_used_bytes"), median_of(host, "shm_total_bytes")
    whole = median_of(host, "tree_pss_bytes")
    # Of the tree's memory no process's own part is told; the training's is no smaller than a worker's.
    processes = 1 + settings.num_workers
    return MachineLimits(
        cpus=_left_cpus(facts, settings, peers_cpus),
        memory_bytes=available,
        shm_bytes=None if shm_used is None or shm_size is None else max(0, shm_size - shm_used),
        worker_bytes=None if whole is None or not settings.num_workers else whole // processes,
    )


def peers_cpus(run: Run, facts: Facts, writer: Writer | None) -> float:
    """CPUs that the training threads of the job's other processes used in the window: they are of the job's tree, and
    yet leave less to this training.

    Args:
        writer: this one; `None`: the one that ran most steps.
    """
    window = facts.window
    others = {(file.header.rank, file.header.pid) for file in run.files(STEP)} - {writer or run.leading_writer()}
    used = 0.0
    for other in others:
        steps = run.records(STEP, other)
        within = (steps["step_end_ns"] > window.begin_ns) & (steps["step_end_ns"] <= window.end_ns)
        used += float(np.nansum(measured(steps["cpu_ns"][within])))
    return used / window.wall_ns


def main_cpus_of(facts: Facts, host: Records, host_ns: Times, otherwise_ns: float) -> float:
    """CPUs that the training process uses while it works on its steps. `otherwise_ns`: CPU time that it uses in a step
    for something else."""
    window = facts.window
    within = (host["t_ns"] >= window.begin_ns) & (host["t_ns"] <= window.end_ns)
    known = host[within & (host["main_cpu_ns"] != NOT_MEASURED)]
    own = float(host_ns.mean())
    if own <= 0:
        return 1.0
    if len(known) > 1 and known["t_ns"][-1] > known["t_ns"][0]:
        used = float(known["main_cpu_ns"][-1] - known["main_cpu_ns"][0]) / float(known["t_ns"][-1] - known["t_ns"][0])
        of_step = used * facts.window.wall_ns / facts.window.count
    else:
        ran = measured(window.steps["cpu_ns"])
        of_step = float(np.nanmedian(ran)) if not np.isnan(ran).all() else own + otherwise_ns
    return min(max((of_step - otherwise_ns) / own, LEAST_CPUS), _cpus(facts))


def _cpus(facts: Facts) -> float:
    """CPUs that the job may use, whether others use them or not."""
    return facts.sampled.cpu_budget or float(facts.machine_cpus or 1)


def _left_cpus(facts: Facts, settings: LoaderSettings, peers: float) -> float:
    """CPUs that others leave of those the job may use: what nobody used but this training, or a fair share for as many
    threads as it has."""
    threads = max(LEAST_THREADS, settings.num_workers + 1)

    def left(cpus: float, used: float) -> float:
        return max(cpus - used, cpus * threads / (threads + used))

    budget, foreign = left(_cpus(facts), peers), facts.foreign_cpus
    if foreign is None or facts.machine_cpus is None:
        return budget
    return min(budget, left(float(facts.machine_cpus), foreign + peers))


def median_of(records: Records, name: str) -> int | None:
    """The median of a field; `None` where it was not measured."""
    known = records[name][records[name] != NOT_MEASURED]
    return int(np.median(known)) if len(known) else None


LEAST_BATCHES = 20
"""Recorded batches, and steps, that a replay draws its times from, at least."""


class Unobserved(WhyidleError):
    """The run does not tell enough to say what other settings would do."""


@dataclass(frozen=True)
class Observed:
    """One training's records, as far as the replay needs them."""

    facts: Facts
    steps: Records
    """Steps of the window, up to the moment that the caller asked for."""
    batches: Records
    """Batches that were made for those steps."""
    made_before: Records
    """All batches of the training's loaders, those of the warm-up included."""
    host: Records
    events: Records
    pauses: Records


def workload_of(run: Run, facts: Facts, until_ns: int | None = None, writer: Writer | None = None) -> Workload:
    """What preparing batches and training on them cost in a run.

    Args:
        facts: of one training process of the run.
        until_ns: leave out what happened later.
        writer: which process; by default the one that ran most steps.

    Raises:
        Unobserved: the run does not tell; the message says why.
    """
    observed = _observed(run, facts, until_ns, writer)
    settings = _settings(run, facts)
    _has_one_loader(observed)
    making = making_of(observed.batches, facts.crowded)
    serial = settings.num_workers == 0 and making.threads == 1
    host_ns = host_of(observed.steps, observed.host, observed.events, facts, observed.batches if serial else None)
    if len(host_ns) < LEAST_BATCHES:
        raise Unobserved(f"{len(host_ns)} consecutive steps were recorded; {LEAST_BATCHES} are needed.")
    queued = facts.device_kind != "cpu"
    batch_bytes = median_of(observed.batches, "batch_bytes")
    size = float(batch_bytes or 0)
    sharing_ns = Assumed.sharing_ns(facts.handed, size)
    cpu_ns, collate_ns = making.cpu_ns, making.collate_ns
    shares = loader_of(settings).processes
    if shares:
        # What was recorded of workers has it; no more of a batch than the batches' quickest.
        sharing_ns = min(sharing_ns, 0.9 * float(np.quantile(cpu_ns, 0.1)))
        cpu_ns, collate_ns = cpu_ns - sharing_ns, np.maximum(0.0, collate_ns - sharing_ns)
    sampling_ns = 0.0 if facts.sampling is None else facts.sampling.each_ns
    handed = (
        Handoff(None, None)
        if serial
        else handoff_of(observed.steps, observed.batches, _fetching_ns(facts, host_ns), sampling_ns)
    )
    handoff_ns, waited_ns = handed.ready_ns, handed.waited_ns
    if handoff_ns is None:
        handoff_ns = Assumed.handoff_ns(facts.handed) if waited_ns is None else Assumed.OF_WAITED * waited_ns
    latency_ns = 0.0 if waited_ns is None else max(0.0, waited_ns - handoff_ns)
    # The training touches a worker's batch while it works on its step: that is no time of a step's own.
    touch_ns = 0.0 if settings.pin_memory else Assumed.TOUCH_NS_PER_BYTE * size
    if shares:
        touch_ns = min(touch_ns, 0.5 * float(np.median(host_ns)))
        host_ns = np.maximum(0.0, host_ns - touch_ns)
    start_ns = start_of(facts.window.all_steps, observed.made_before)
    otherwise_ns = sampling_ns + (float(making.cpu_ns.mean()) if serial else touch_ns * shares)
    limits = limits_of(facts, observed.host, settings, peers_cpus(run, facts, writer))
    return Workload(
        settings=settings,
        batch_size=facts.batch_size or 1,
        cpu_ns=np.maximum(0.0, cpu_ns),
        wait_ns=making.wait_ns,
        read_ns=making.read_ns,
        collate_ns=collate_ns,
        slowest_ns=making.slowest_ns,
        host_ns=host_ns,
        device_ns=on_device(observed.steps, observed.pauses) if queued else None,
        synchronous=not queued or _waits_for_the_device(observed.steps),
        handoff_ns=handoff_ns + touch_ns,
        drawing_ns=sampling_ns,
        handoff_known=handed.ready_ns is not None,
        latency_ns=latency_ns,
        delay_ns=handed.delay_ns,
        sharing_ns=sharing_ns,
        main_cpus=main_cpus_of(facts, observed.host, host_ns, otherwise_ns),
        start_ns=Assumed.START_NS if start_ns is None else start_ns / (settings.num_workers + 1),
        batches_per_epoch=_batches_per_epoch(facts),
        batch_bytes=batch_bytes,
        limits=limits,
        threads_per_worker=making.threads,
        # With workers it is in what was recorded.
        contention=Assumed.contention(Assumed.CONTENTION, limits.cpus) if serial else 0.0,
    )


def advice_of(run: Run, facts: Facts) -> Advice | None:
    """Advice on the loader of the training process that ran most steps; `None` where the run does not tell enough."""
    try:
        return Advice(workload_of(run, facts))
    except (Unobserved, ValueError, ArithmeticError, LookupError):
        # What cannot be predicted is no reason to have no report.
        return None


def _observed(run: Run, facts: Facts, until_ns: int | None, writer: Writer | None) -> Observed:
    files = run.files(STEP)
    if writer is None and files:
        header = max(files, key=RecordFile.count).header
        writer = header.rank, header.pid
    window = facts.window
    made = of_training(run.records(BATCH, writer), window.all_steps)
    batches = made[within(window, made)] if len(made) else made
    steps, host = window.steps, run.records(HOST)
    if until_ns is not None:
        batches = batches[batches["end_ns"] <= until_ns]
        steps = steps[steps["step_end_ns"] <= until_ns]
        host = host[host["t_ns"] <= until_ns]
    if len(batches) < LEAST_BATCHES:
        raise Unobserved(
            f"The preparation of only {len(batches)} batches was recorded; {LEAST_BATCHES} are needed to replay them."
            if len(batches)
            else "How batches are prepared was not recorded."
        )
    return Observed(facts, steps, batches, made, host, run.records(EVENT, writer), run.records(PAUSE, writer))


def _fetching_ns(facts: Facts, host_ns: Times) -> float | None:
    """CPU time of the training's thread in a step's fetch, the mean: all but what it ran in its own part of the step;
    `None` where that is not known."""
    ran = measured(facts.window.steps["cpu_ns"])
    if facts.running is None or np.isnan(ran).all():
        return None
    return max(0.0, float(np.nanmean(ran)) - facts.running * float(host_ns.mean()))


def _settings(run: Run, facts: Facts) -> LoaderSettings:
    trial = run.info.get("trial") or {}
    pipeline = trial.get("pipeline")
    workers = facts.set_workers
    if workers is None and pipeline is None:
        raise Unobserved("The training's batches do not come from torch's DataLoader.")
    if pipeline == "naive" and not facts.made_in_training:
        raise Unobserved("The recording does not hold the settings of its loader.")
    if workers is None:
        workers = 0 if facts.made_in_training else facts.loader.makers
    capacity = facts.loader.queue_capacity
    ahead = facts.set_prefetch or (capacity // workers if capacity and workers else None) or DEFAULT_PREFETCH
    return LoaderSettings(
        num_workers=workers,
        prefetch_factor=ahead if workers else None,
        pin_memory=bool(facts.pin_memory),
        batch_size=facts.batch_size,
        pipeline=pipeline,
        in_order=not facts.out_of_order or not workers,
        persistent_workers=bool(facts.persistent_workers and workers),
    )


def _has_one_loader(observed: Observed) -> None:
    """That all batches come from one loader, one for each step: its iterators follow each other, those of several
    loaders take turns.

    Raises:
        Unobserved: they come from several, or several are fetched for each step.
    """
    together = observed.events["value"][observed.events["what"] == EventKind.BATCHES_TOGETHER]
    if len(together) and together[-1] > 1:
        raise Unobserved(f"Each step fetches {together[-1]} batches before it computes, which cannot be replayed.")
    told = observed.steps["loader"][observed.steps["loader"] != NOT_MEASURED]
    within_steps = observed.pauses["step"][observed.pauses["what"] == PauseKind.FETCH]
    if (np.diff(told) < 0).any() or np.isin(observed.steps["step"], within_steps).mean() > MOSTLY:
        raise Unobserved("The training takes its batches from several loaders at a time.")


def _waits_for_the_device(steps: Records) -> bool:
    """Whether the training waits for its device in most steps: by its calls, and nothing was queued any more when it
    asked for the next batch."""
    waits = np.nan_to_num(measured(steps["sync_ns"])) > 0
    known = (steps["flags"] & StepFlag.DRAINED_KNOWN) != 0
    drained = (steps["flags"] & StepFlag.DRAINED_AT_ENTRY) != 0
    return bool(waits.mean() > MOSTLY and (not known.any() or drained[known].mean() > MOSTLY))


def _batches_per_epoch(facts: Facts) -> int | None:
    """Batches of the longest pass that another one followed, since passes may be left early; `None` where none was."""
    steps = facts.window.all_steps
    first = np.flatnonzero((steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0)
    if len(first) < 2:
        return None
    ran = 1 + np.where(steps["skipped"] > 0, steps["skipped"], 0)
    before = np.concatenate(([0], np.cumsum(ran)))
    # Steps that were skipped before the first of a pass are of the pass before.
    begins = before[first + 1] - 1
    return int(np.diff(begins).max())
