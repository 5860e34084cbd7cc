"""A recorded run as what the replay is fed with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import WhyidleError
from ...record.reader import RecordFile, Records, measured
from ...record.run import Run, Writer
from ...record.schema import BATCH, EVENT, HOST, NOT_MEASURED, PAUSE, STEP, EventKind, PauseKind, StepFlag
from ...record.tuning import DEFAULT_PREFETCH, LoaderSettings
from ..run.facts import Facts
from ..run.worker_records import of_training, within
from ..shares import MOSTLY
from .advice import Advice
from .assumed import Assumed
from .observed_machine import limits_of, main_cpus_of, median_of, peers_cpus
from .observed_making import making_of
from .observed_steps import Handoff, handoff_of, host_of, on_device, start_of
from .pools import in_processes
from .workload import Times, Workload

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
    """What making batches and training on them cost in a run.

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
        raise Unobserved(f"{len(host_ns)} steps follow each other in the recording; {LEAST_BATCHES} are needed.")
    queued = facts.device_kind != "cpu"
    batch_bytes = median_of(observed.batches, "batch_bytes")
    size = float(batch_bytes or 0)
    sharing_ns = Assumed.sharing_ns(facts.handed, size)
    cpu_ns, collate_ns = making.cpu_ns, making.collate_ns
    shares = bool(settings.num_workers) and in_processes(settings)
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
            f"The making of {len(batches)} batches was recorded; {LEAST_BATCHES} are needed to replay the loader."
            if len(batches)
            else "How batches are made was not recorded."
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
        raise Unobserved("The training's batches come from no DataLoader of torch.")
    if pipeline == "naive" and not facts.made_in_training:
        raise Unobserved("The recording does not say how its loader is set.")
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
        raise Unobserved(f"Each step fetches {together[-1]} batches before it computes: that is not replayed.")
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
