"""What is known about a run, gathered once; every cause is judged on these alone.

Whether what was recorded as steps can be: with the same work none computes a hundred times as long as many others.
Where it seems so, the program works in another way than the steps were told by: some of them only fetch, others
compute for several. Sums over the run hold all the same; what compares single steps with each other does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np

from ...record import schema
from ...record.reader import Records
from ...record.run import Run, Writer
from ...record.schema import NOT_MEASURED, EventKind, LoaderFlag, PauseKind, StepFlag
from ...record.stacks import read_names
from ..intervals import EMPTY
from ..predict.predict import Advice
from ..shares import MOSTLY
from ..where.looks import ProcessLooks
from ..where.own_loop import OwnLoop
from ..where.places import Where
from ..where.stages import Stages
from . import exposed_data_wait, host_gaps, loader_stats, resource_usage
from . import window as windows
from .device_state import DeviceState, OutlierSteps, device_state, memory_pressure, shape_churn
from .stall_breakdown import PARTS, UNTOLD, Gil, Partition, divided_time, rises
from .startup import Startup, startup_of
from .trends import Trend, trends_of
from .window import Window, elements_of, flagged, last_told, lasting, loader_flag, or_nan, or_zero, per_step, under_way

Known = TypeVar("Known")
"""Figures of one kind."""
MOST_TIMES = 100
"""Computation over that of others with as much work, from which those that do not learn are no steps."""
MOST_TIMES_AT_ALL = 1000
"""The same of steps that learn: no tuning of kernels explains it."""
LEAST_SHARE = 0.02
"""Share of the steps that the short and the long ones must each be: single ones may be anything."""
LEAST_WORK = 0.5
"""Samples of the short steps over the long ones', medians, from which they have as much work."""
MACHINE_FULL_PCT = 90.0
"""CPU time in use, in percent, from which a machine is full: what is on no CPU may wait for one."""
VARY = 1.1
"""Elements a sample of the largest batch over the median batch's, from which sizes vary."""


def doubtful_steps(window: Window, events: Records, parts: Partition) -> str:
    """Say that some steps compute next to nothing beside others with as much work; empty where all are plausible."""
    steps = window.steps
    # What the compiler does in a step is no work of it.
    looked = per_step(window, under_way(lasting(events, EventKind.COMPILE))) == 0
    looked &= (steps["device_end_ns"] != NOT_MEASURED) | np.bool_(not window.queued)
    computing = per_step(window, parts.when["compute"])
    lengths = computing[looked]
    # Half of the whole time lies in steps that are no longer than the longest.
    if not lengths.any() or not (lengths * MOST_TIMES < lengths.max()).any():
        return ""
    longest = np.sort(lengths)[::-1]
    long = float(longest[np.searchsorted(np.cumsum(longest), lengths.sum() / 2)])
    short, others = (looked & which for which in (computing * MOST_TIMES < long, computing * MOST_TIMES >= long))
    if min(short.sum(), others.sum()) < max(1, LEAST_SHARE * looked.sum()):
        return ""
    if float(np.median(steps["samples"][short])) < LEAST_WORK * float(np.median(steps["samples"][others])):
        return ""
    usual = float(np.median(computing[short]))
    times = float(np.median(computing[others])) / usual if usual > 0 else math.inf
    learns = (steps["backward_begin_ns"] != NOT_MEASURED) | flagged(steps, StepFlag.OPTIMIZER)
    idle = float(np.mean(~learns[short])) > MOSTLY > float(np.mean(~learns[others]))
    if not idle and not MOST_TIMES_AT_ALL <= times < math.inf:
        return ""
    compute = "nothing" if times == math.inf else f"a {times:.0f}th of what the others do"
    return (
        f"{short.sum()} of {looked.sum()} steps compute {compute}, with as much work: these cannot all be steps. Times "
        "of single steps are unreliable, and no cause rests on them. Call `whyidle.step()` in the loop, "
        "where a step begins."
    )


@dataclass(frozen=True)
class Facts:
    """One rank's window, where its time went, and what loader, device and host showed. `None`, of a figure NaN: unknown
    or none."""

    window: Window
    parts: Partition
    device_kind: str
    batch_size: int | None
    samples: int
    unfed_share: float
    """Share of the steps whose fetch was not seen: their waits for data count as other time."""
    loader: loader_stats.LoaderStats
    sampled: resource_usage.Sampled
    pinned: bool | None
    """Whether batches were copied from page-locked memory; `None` when nothing was copied."""
    copied_ahead: bool
    made_in_fetch_pct: float
    """Share of the batch making that happened while the training waited in the fetch."""
    waits: exposed_data_wait.Waits
    """What the training waited for when it waited for data."""
    loader_unread: loader_stats.LoaderStats | None
    """The loader's batches that are not mostly read from storage; `None`: all or none are."""
    machine_cpus: int | None
    """All CPUs of the machine, whether the job may use them or not."""
    set_workers: int | None
    """Worker processes of torch's DataLoader, as it is set; `None` for other loaders."""
    clock_uncertainty_ns: float
    """How far the device's times may be from the host's clock."""
    cut_steps: int
    """Steps at the end that the device had not finished; they are not in the window."""
    other_processes: int
    """Training processes of the same rank in the same folder that these facts leave out."""
    overhead_ns: float
    """Time in whyidle's hooks in a sampled step; the median: the scheduler may interrupt a hook."""
    set_prefetch: int | None = None
    """Batches that each of torch's worker processes prepares ahead, as it is set."""
    persistent_workers: bool | None = None
    """Whether torch's worker processes outlive an epoch, as it is set."""
    main_queued_ns: float = math.nan
    """Time that the training's thread waited for a CPU."""
    iterable: bool | None = None
    """Whether the dataset is iterated over, and divides itself among the workers."""
    out_of_order: bool | None = None
    """Whether batches are handed over as they come."""
    starts_python: bool | None = None
    """Whether workers are new Python processes, which import the program and unpickle the data."""
    own_workers: int | None = None
    """Worker processes set for a loader within the data set, 0: others; `None`: it has none."""
    pin_memory: bool | None = None
    """Whether the loader is set to put batches into page-locked memory."""
    gil: Gil | None = None
    """Waiting for Python's global lock; `None` also without other Python threads."""
    running: float = math.nan
    """Share of its time outside fetches and waiting calls in which the thread ran, 0..1."""
    sampling: exposed_data_wait.Sampling | None = None
    """What the loader's sampler took."""
    staging: host_gaps.Idling | None = None
    """Work on each batch between its arrival and the forward pass."""
    gaps: host_gaps.Idling | None = None
    """Time behind the training loop's own work."""
    syncs: host_gaps.Idling | None = None
    """Time behind synchronising calls."""
    outside: host_gaps.Outside | None = None
    """Time outside the steps."""
    doubtful: str = ""
    """That some steps can be none, in sentences: nothing is made then of what single steps take; empty otherwise."""
    shape_churn: OutlierSteps | None = None
    """Steps with input shapes not seen before, or in which torch's compiler was at work."""
    memory_pressure: OutlierSteps | None = None
    """Steps in which the device's memory allocator had to try again."""
    making_seen: float = math.nan
    """Share of looks at workers during waits for data in which they ran, 0..1; NaN: too few."""
    stages: Stages | None = None
    """What preparing batches consists of, by stack samples; `None` also of too few."""
    own_loop: OwnLoop | None = None
    """What a loop without a loader does, by its stack; `None`: clocks tell it, or few looks."""
    unnamed: tuple[Where, ...] = ()
    """Lines of what is not computing, and of no known kind; empty where that was not looked at."""
    advice: Advice | None = None
    """What other loader settings would do; `None`: the run does not tell, or nobody will ask."""
    device_state: DeviceState | None = None
    """Clocks and link of the accelerator; `None` where the processor is the device."""
    exclusion: loader_stats.Exclusion | None = None
    """Whether workers exclude each other; `None` with fewer than two."""
    trends: tuple[Trend, ...] = ()
    """How the parts of a step change as the run goes on; empty of a run with too few steps."""
    startup: Startup | None = None
    """The time before the first step was over."""
    memory_grew: tuple[float, float] | None = None
    """Memory of the training's processes at the beginning and at the end of the window, bytes."""
    wasted: loader_stats.WastedSamples | None = None
    """Samples made for nothing."""
    handed: loader_stats.HandedOver | None = None
    """What a batch consists of that workers hand over."""
    memory: resource_usage.MemoryGrowth | None = None
    """Memory of the loader's workers that grows without end."""

    @property
    def samples_known(self) -> bool:
        """Whether most steps' samples are known: else their figures are 0, not to be shown."""
        return self.batch_size is not None

    @property
    def input_known(self) -> bool:
        """Whether the fetches of most steps were seen."""
        return self.unfed_share <= MOSTLY

    @property
    def told_apart(self) -> bool:
        """Whether computing is told from waiting: without fetches, by copies that lead steps."""
        return self.input_known or (
            self.device_kind != "cpu" and float(np.mean(self.window.steps["copy_bytes"] > 0)) > MOSTLY
        )

    @property
    def shares(self) -> dict[str, float]:
        """Parts of the wall time that are known, 0..1, and as `UNTOLD` what is not told apart."""
        shares = {part: self.parts.share(part) for part in PARTS}
        if self.told_apart:
            return {part: share for part, share in shares.items() if part != "input" or self.input_known}
        # Of the time outside the steps, validation without a loader is not seen either.
        known = {part: shares[part] for part in ("copy", "sync", "boundary") if part != "boundary" or shares[part] > 0}
        return known | {UNTOLD: 1 - sum(known.values())}

    @property
    def untold_share(self) -> float:
        """Share of the wall time, 0..1, not told apart into computing, waiting, evaluating."""
        return self.shares.get(UNTOLD, 0.0)

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.parts.wall_ns

    @property
    def waiter(self) -> str:
        """Who waits, in a sentence: with the processor as device, only the training idles."""
        return "training" if self.device_kind == "cpu" else "device"

    @property
    def overhead_share(self) -> float:
        """Share of the wall time, 0..1, in whyidle's hooks, typical steps taken for all."""
        return self.overhead_ns * len(self.window.steps) / self.parts.wall_ns

    @property
    def overhead_ns_per_step(self) -> float:
        """Time spent in whyidle's own hooks, spread over all steps that ran, ns a step."""
        return self.overhead_ns * self.window.looked_at

    @property
    def made_in_training(self) -> bool:
        """Whether batches are made in the training process, when it asks for them."""
        if self.set_workers is not None:
            return self.set_workers == 0
        made_in_fetch = self.made_in_fetch_pct >= loader_stats.MADE_IN_FETCH_PCT
        return made_in_fetch and math.isnan(self.loader.queue_capacity)

    def samples_per_s_without(self, removed_ns: float) -> float:
        """Samples/s if so much of the wall time vanished; NaN where samples are not known."""
        return self.samples * 1e9 / max(1.0, self.parts.wall_ns - removed_ns) if self.samples_known else math.nan

    @property
    def cpu_limit(self) -> float:
        """Rate over today's at which all CPUs of the job would be busy, at today's cost; NaN where not measured."""
        used, budget = self.sampled.tree_cpus, self.sampled.cpu_budget
        return max(budget / used, 1.0) if used else math.nan

    @property
    def handoff_pct(self) -> float:
        """Share of the exposed wait for data that came after the worker had finished the batch; NaN: not known."""
        return self.waits.pct(self.waits.handed_ns)

    @property
    def blocked_pct(self) -> float:
        """Share of the exposed wait, %, in which a later batch was finished before the due one; NaN: not known."""
        return self.waits.pct(self.waits.blocked_ns)

    @property
    def foreign_cpus(self) -> float:
        """CPUs that other programs of the machine kept busy; NaN where not measured."""
        return self.sampled.foreign_cpus(self.machine_cpus)

    @property
    def machine_full(self) -> bool:
        """Whether no CPU of the machine was left over; false where that was not measured."""
        return self.sampled.machine_busy_pct >= MACHINE_FULL_PCT

    @property
    def crowded(self) -> bool:
        """Whether the machine is full, and other programs use more of it than this job."""
        return self.machine_full and self.foreign_cpus > self.sampled.tree_cpus


def facts_of(run: Run, mine: Writer | None = None, looks: ProcessLooks | None = None) -> Facts | None:
    """Gather the facts of one training process, by default of the one that ran most steps. `looks`: at its stacks.

    `None` when no step was recorded, or when the device has stamped none.
    """
    mine = run.leading_writer() if mine is None else mine
    if mine is None or not run.files(schema.STEP):
        return None
    events, pauses, made = (run.records(kind, mine) for kind in (schema.EVENT, schema.PAUSE, schema.BATCH))
    window, cut, events = _window(run, mine, events)
    if window is None:
        return None
    info, names, steps = run.info, read_names(run.folder), window.steps
    device, host, contents = run.records(schema.DEVICE), run.records(schema.HOST), run.records(schema.CONTENT, mine)
    device_kind, set_workers = device_kind_of(info), last_told(events, EventKind.LOADER_WORKERS)
    queued = window.queued
    parts, gil, running = divided_time(window, events, pauses, host, device_kind)
    unseen = steps["step"][steps["fetch_end_ns"] == NOT_MEASURED]
    unfed = ~np.isin(unseen, pauses["step"][pauses["what"] == PauseKind.FETCH])
    batches = loader_stats.of_training(made, window.all_steps)
    read = loader_stats.is_read(batches)
    iterable = loader_flag(events, LoaderFlag.ITERABLE)
    sampling = exposed_data_wait.sampling_of(window, events, parts)
    staging, gaps, syncs = host_gaps.idling_of(window, events, pauses, parts, names)
    seen = resource_usage.sampled(window, device, host)
    copied = steps[steps["copy_bytes"] > 0]
    waited_for_cpu = rises(host["t_ns"], host["main_thread_queue_ns"], window)
    doubtful = doubtful_steps(window, events, parts)
    churn = pressure = None
    if not doubtful:
        churn = shape_churn(window, events, parts)
        pressure = memory_pressure(window, events, parts, seen.utilisation_pct) if queued else None
    facts = Facts(
        window=window,
        parts=parts,
        device_kind=device_kind,
        batch_size=windows.batch_size_of(window, events),
        samples=window.samples,
        unfed_share=float(unfed.sum()) / len(steps),
        loader=loader_stats.loader_of(window, batches, run.records(schema.TRANSFORM, mine), names),
        loader_unread=None if read.all() or not read.any() else loader_stats.loader_of(window, batches[~read]),
        sampled=seen,
        pinned=_pinned(copied, pauses[pauses["step"] >= steps["step"][0]]),
        copied_ahead=bool(len(copied) and np.mean(flagged(copied, StepFlag.COPIED_AHEAD)) > MOSTLY),
        made_in_fetch_pct=loader_stats.made_in_fetch_pct(window, batches),
        waits=exposed_data_wait.waits_of(window, batches, parts, 0 if sampling is None else sampling.ns),
        main_queued_ns=math.nan if waited_for_cpu is None else float(waited_for_cpu.sum()) / window.looked_at,
        machine_cpus=(info.get("host") or {}).get("cpus"),
        set_workers=set_workers,
        set_prefetch=last_told(events, EventKind.LOADER_PREFETCH),
        persistent_workers=loader_flag(events, LoaderFlag.PERSISTENT_WORKERS),
        iterable=iterable,
        out_of_order=loader_flag(events, LoaderFlag.OUT_OF_ORDER),
        starts_python=loader_flag(events, LoaderFlag.STARTS_PYTHON),
        pin_memory=loader_flag(events, LoaderFlag.PIN_MEMORY),
        own_workers=windows.own_workers(events),
        gil=gil,
        running=running,
        sampling=sampling,
        staging=staging,
        gaps=gaps,
        syncs=syncs,
        outside=host_gaps.outside_of(window, events, made, parts, names),
        doubtful=doubtful,
        shape_churn=churn,
        memory_pressure=pressure,
        device_state=device_state(window, device, parts) if queued else None,
        exclusion=loader_stats.exclusion_of(window, batches, looks),
        clock_uncertainty_ns=or_nan(last_told(events, EventKind.CLOCK_UNCERTAINTY)),
        cut_steps=cut,
        other_processes=sum(f.pid != mine[1] and f.count() > 0 for f in run.files(schema.STEP, mine[0])),
        overhead_ns=float(np.median(steps["overhead_ns"])),
        startup=startup_of(window, events, batches, bool(info.get("trial"))),
        wasted=loader_stats.wasted_samples_of(window, contents, iterable),
        handed=loader_stats.handed_over_of(contents, window.all_steps),
        memory=resource_usage.memory_growth_of(window, host, run.records(schema.MEMORY), set_workers, info),
    )
    trends, memory = trends_of(facts, batches, device, host)
    return replace(facts, trends=trends, memory_grew=memory)


def _window(run: Run, mine: Writer, events: Records) -> tuple[Window | None, int, Records]:
    """(the window, `None` without one; steps at the end that the device had not finished; the events before these)"""
    stored = run.records(schema.STEP, mine)
    steps = recorded = windows.plausible(stored)
    damaged = f"{len(stored) - len(recorded)} records of steps are damaged and left out."
    if len(recorded) < len(stored) and damaged not in run.damaged:
        run.damaged.append(damaged)
    queued = device_kind_of(run.info) != "cpu"
    if queued and not (events["what"] == EventKind.DEVICE_DONE).any():
        steps = windows.resolved(recorded)
    cut = len(recorded) - len(steps)
    if cut and len(steps):
        # What came after the last step that is known belongs to none.
        events = events[events["t_ns"] <= steps["step_end_ns"][-1]]
    window = windows.window_of(steps, events, queued)
    return (window if window is not None and window.wall_ns > 0 else None), cut, events


def device_kind_of(info: Mapping[str, Any]) -> str:
    """`cpu`, `cuda` or `emulated`; `info` is run.json."""
    return str((info.get("device") or {}).get("kind", "cpu"))


def _pinned(copied: Records, pauses: Records) -> bool | None:
    """Whether most bytes were copied from page-locked memory; `None` when nothing was copied."""
    of_first, nbytes = flagged(copied, StepFlag.PINNED), copied["copy_bytes"]
    amount = or_zero(pauses["amount_bytes"])
    pinned = int(nbytes[of_first].sum()) + int(amount[pauses["what"] == PauseKind.QUEUED_COPY].sum())
    pageable = int(nbytes[~of_first].sum()) + int(amount[pauses["what"] == PauseKind.COPY].sum())
    return pinned > pageable if pinned + pageable else None


def largest_samples(facts: Facts | None) -> tuple[int, ...] | None:
    """Find the samples that took longest, as indices of the dataset: likely the largest. `None` where batches of as
    many samples do not differ in size, or that is not known."""
    if facts is None:
        return None
    steps = facts.window.steps
    elements = elements_of(steps)
    told = flagged(steps, StepFlag.SHAPE_KNOWN) & (elements > 0) & (steps["samples"] > 0)
    each = elements[told] / steps["samples"][told]
    if not len(each) or each.max() <= VARY * np.median(each):
        return None
    return tuple(sample.index for sample in facts.loader.slowest if sample.index is not None)


# Windows of which no steps are known, a validation outside the steps and a training seen from outside, are judged by
# the rules of the wait for data, as the training itself is. The clock is that of the thread that waits; all of the
# window is one step, with one batch of one sample, so no time of a step, batch or sample is told.


def unknown(kind: type[Known], **known: Any) -> Known:
    """Return such figures, of which all that is not given, or `None`, and has no default is not measured."""
    needed = (each for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING)  # type: ignore[arg-type]
    unmeasured = {each.name: None if "None" in str(each.type) else math.nan for each in needed}
    return kind(**unmeasured | {name: value for name, value in known.items() if value is not None})


def window_facts(wall_ns: float, waits: dict[str, Any], loader: dict[str, Any], **facts: Any) -> Facts:
    """Return the facts of such a window.

    `waits`: pieces of the wait for data, ns, and figures of epochs, as `Waits` has them; `loader`, `facts`: the fields
    of `LoaderStats` and `Facts` that are known. `work_ms_per_batch` is the time of all its making.
    """
    pieces = dict.fromkeys((each.name for each in fields(exposed_data_wait.Waits) if each.name.endswith("_ns")), 0)
    pieces |= {name: round(of) for name, of in waits.items() if name.endswith("_ns")}
    waited, wall = sum(pieces.values()), max(1, round(wall_ns))
    of_epochs = {"told": 1.0, "epochs": 1, "shape": exposed_data_wait.Shape(exposed_data_wait.Spread.NOWHERE)} | waits
    divided: dict[str, Any] = {each.name: 0 for each in fields(Partition) if each.compare}
    divided |= {"gaps_ns": EMPTY, "when": dict.fromkeys(PARTS, EMPTY)}
    divided |= {"wall_ns": wall, "input_ns": min(wall, waited), "compute_ns": max(0, wall - waited), "fetch_ns": waited}
    given = {"workers": 0, "slowest": (), "transforms": (), "make_ms_per_sample": loader.get("work_ms_per_batch")}
    known: dict[str, Any] = {
        "window": Window(0, wall, host_gaps.NO_STEP, 0, host_gaps.NO_STEP),
        "parts": Partition(**divided),
        "waits": unknown(exposed_data_wait.Waits, **of_epochs | pieces),
        "loader": unknown(loader_stats.LoaderStats, **given | loader),
        "sampled": unknown(resource_usage.Sampled),
        **{"device_kind": "cpu", "samples": 1, "copied_ahead": False, "unfed_share": 0.0},
    }
    return unknown(Facts, **known | facts)


def evaluation_facts(facts: Facts, evaluation: host_gaps.Evaluation) -> Facts:
    """Return the facts of the passes over loaders that train nothing: what they took outside the steps."""
    known, work_ms = evaluation.loader, None if evaluation.making_ns is None else evaluation.making_ns / 1e6
    all_of_it = {"make_ms_per_sample": work_ms, "work_ms_per_batch": work_ms}
    starting_ns, first_ns = evaluation.starting_ns, evaluation.first_ns
    # It is summed over the whole run.
    throttled = facts.sampled.throttled_s * evaluation.ns / facts.parts.wall_ns
    return window_facts(
        evaluation.ns,
        {
            **{"starting_ns": starting_ns, "filling_ns": first_ns, "epochs": evaluation.passes},
            "making_ns": max(0, evaluation.waited_ns - starting_ns - first_ns),
            **{"iterators": evaluation.iterators, "batches_per_epoch": evaluation.batches},
        },
        {"workers": evaluation.workers or 0} | ({} if known is None else vars(known)) | all_of_it,
        device_kind=facts.device_kind,
        sampled=replace(facts.sampled, throttled_s=throttled),
        machine_cpus=facts.machine_cpus,
        set_workers=evaluation.workers,
    )
