"""What is known about a run, gathered once; every cause is judged on these alone.

Samples that were made and never computed with: thrown away by `collate_fn`, made by several workers alike, or in
batches that the training passes over.

Whether what was recorded as steps can be: with the same work none computes a hundred times as long as many others.
Where it seems so, the program works in another way than the steps were told by: some of them only fetch, others
compute for several. Sums over the run hold all the same; what compares single steps with each other does not.

What a DataLoader's sampler took of the time in which the training waited for data. It draws the indices of batches
in the training's own thread, within the fetches, whatever the number of workers: the first ones of an epoch when
that begins, those of a later batch whenever one is handed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ...record.names import read_names
from ...record.reader import Records
from ...record.run import Run, Writer
from ...record.schema import (
    BATCH,
    CONTENT,
    DEVICE,
    EVENT,
    HOST,
    MEMORY,
    NOT_MEASURED,
    PAUSE,
    STEP,
    TRANSFORM,
    EventKind,
    LoaderFlag,
    PauseKind,
    StepFlag,
)
from ..intervals import covered, intersect, total, union
from ..predict.advice import Advice
from ..shares import MOSTLY
from ..where.looks import ProcessLooks
from ..where.own_loop import OwnLoop
from ..where.places import Where
from ..where.stage_shares import Stages
from .device_state import DeviceState, device_state
from .divided_time import DividedTime, Gil, divided_time, queued_ns
from .events import last_told, lasting, loader_flag, own_workers, under_way
from .exclusion import Exclusion, exclusion_of
from .exposed_data_wait import Waits, waits_of
from .host_gaps import Gaps, Staging, Syncs, gaps_of, staging_of, syncs_of
from .loader_stats import MADE_IN_FETCH_PCT, LoaderStats, loader_of, made_in_fetch_pct, unread_loader
from .memory_growth import MemoryGrowth, memory_growth_of
from .non_step_time import Outside, outside_of
from .outlier_steps import OutlierSteps, memory_pressure, per_step, shape_churn
from .resource_usage import Sampled, sampled, swings_to_zero_pct
from .stall_breakdown import Partition
from .startup import Startup, startup_of
from .trends import Trend, trends_of
from .window import Window, plausible, resolved, window_of
from .worker_records import HandedOver, handed_over_of, of_loaders, of_training

LEAST_BATCHES = 8
"""Batches that have to be looked at before anything is said of them."""
LEAST_STREAMED = 2
"""The same of batches of which it was seen how an iterable dataset prepares its samples."""
LEAST_PLACES = 4
"""Places in the workers' streams that two of them have to have reached for their batches to be compared."""
MOSTLY_DIFFERENT = 0.5
"""Share of a worker's own batches that differ from each other, below which its data are always the same, and being
equal to another worker's says nothing."""
MOST_PASSED_OVER = 0.95
"""Share of the steps that may compute nothing."""
_PASS = 1 << 32


@dataclass(frozen=True)
class WastedSamples:
    """Shares, 0..1, of the samples that were made; 0 also where nothing of the kind was found."""

    dropped: float
    """Left out of their batch by `collate_fn`; or, as a share of the time, made by a stream and not given."""
    repeated: float
    """In batches that another worker made too."""
    passed_over: float
    """In batches that the training fetched and computed nothing with."""

    @property
    def share(self) -> float:
        """Of the samples made, those that were made for nothing."""
        return 1 - (1 - self.dropped) * (1 - self.repeated) * (1 - self.passed_over)


def wasted_samples_of(window: Window, contents: Records, iterable: bool | None, queued: bool) -> WastedSamples | None:
    """What became of the samples of the loaders that train; `None` where nothing of theirs was looked at and every
    step computed.

    Args:
        contents: CONTENT records of the training's rank.
        iterable: whether the dataset is iterated over: only then can workers make the same.
        queued: whether the device has stamps of its own.
    """
    loaders = window.all_steps["loader"]
    mine = contents[(contents["loader"] == NOT_MEASURED) | np.isin(contents["loader"], loaders)]
    found = WastedSamples(_dropped(mine), _repeated(mine) if iterable else 0.0, _passed_over(window, queued))
    return found if len(mine) or found.passed_over else None


def _dropped(contents: Records) -> float:
    known = contents[(contents["made"] > 0) & (contents["kept"] != NOT_MEASURED)]
    left = 1.0
    if len(known) >= LEAST_BATCHES:
        made, present, kept = (known[name] for name in ("made", "present", "kept"))
        left = float(present.sum()) / float(made.sum())
        # So many samples to each row, every time: they are put together, views of one thing say, and not left out.
        together = len(np.unique(kept)) == 1 and kept[0] > 0 and (present % kept[0] == 0).all()
        left *= 1.0 if together or not present.any() else float(kept.sum()) / float(present.sum())
    streamed = contents[(contents["stream_ns"] > 0) & (contents["unused_ns"] != NOT_MEASURED)]
    if len(streamed) >= LEAST_STREAMED:
        left *= 1 - float(streamed["unused_ns"].sum()) / float(streamed["stream_ns"].sum())
    return 1 - left


def _repeated(contents: Records) -> float:
    """Batches that are equal to the one that another worker made at the same place of its stream, as the share that
    one worker could have saved."""
    known = contents[(contents["fingerprint"] != NOT_MEASURED) & (contents["batch"] != NOT_MEASURED)]
    places: dict[tuple[int, int, int], list[int]] = {}
    for loader in np.unique(known["loader"]):
        of_loader = known[known["loader"] == loader]
        for number in np.unique(of_loader["batch"] // _PASS):
            of_pass = of_loader[of_loader["batch"] // _PASS == number]
            for worker in np.unique(of_pass["worker"]):
                own = np.sort(of_pass[of_pass["worker"] == worker], order="batch")
                if len(np.unique(own["fingerprint"])) < MOSTLY_DIFFERENT * len(own):
                    return 0.0
                for place, fingerprint in enumerate(own["fingerprint"].tolist()):
                    places.setdefault((int(loader), int(number), place), []).append(fingerprint)
    compared = [prints for prints in places.values() if len(prints) > 1]
    if len(compared) < LEAST_PLACES:
        return 0.0
    saved = sum(len(prints) - len(set(prints)) for prints in compared)
    share = saved / sum(len(prints) for prints in compared)
    workers = max(len(prints) for prints in compared)
    return share if share >= MOSTLY * (1 - 1 / workers) else 0.0


def _passed_over(window: Window, queued: bool) -> float:
    steps = window.steps
    flags = steps["flags"]
    if queued:
        nothing = (flags & StepFlag.COMPUTED_NOTHING) != 0
    else:
        nothing = (steps["backward_begin_ns"] == NOT_MEASURED) & (steps["optimizer_end_ns"] == NOT_MEASURED)
        nothing &= (flags & (StepFlag.FORWARD_SEEN | StepFlag.OPTIMIZER | StepFlag.FORWARD_AFTER)) == 0
    share = float(np.mean(nothing & (steps["fetch_end_ns"] != NOT_MEASURED))) if len(steps) else 0.0
    # Where nothing is ever computed, computing is not seen.
    return share if share <= MOST_PASSED_OVER else 0.0


@dataclass(frozen=True)
class Sampling:
    """A sampler's work in the window. What took it less than 0.1 ms is not told, and not in it."""

    ns: int
    """Part of the exposed wait for data; in steps that nobody looked at as large a one as in the others."""
    first_ns: int
    """Part of it in the first fetches of epochs."""
    draw_ms: float | None
    """What it took for a batch after the first one of its epoch, exposed or not; the median. `None` where none was
    told."""
    drawn: float | None
    """Indices drawn at a time; the median. `None` where they were no lists."""
    iterators: int
    """Times that making its iterator was told."""
    each_ns: float = 0.0
    """What it took for a batch after the first one of its epoch, exposed or not; the mean of all of them."""

    def of_epochs(self, ns: float) -> bool:
        """Whether so much of it is mostly where epochs begin."""
        return self.first_ns >= MOSTLY * ns


def sampling_of(window: Window, events: Records, parts: Partition) -> Sampling | None:
    """`None` where no sampler's work was told."""
    told = lasting(events, EventKind.SAMPLER)
    told = told[(told["end_ns"] > window.begin_ns) & (told["t_ns"] < window.end_ns)]
    if len(told) == 0:
        return None
    first = window.steps[(window.steps["flags"] & StepFlag.FIRST_OF_EPOCH) != 0]
    # The fetch of a step without one is empty.
    firsts = union(first["fetch_begin_ns"], first["fetch_end_ns"])
    first_ns = total(intersect(parts.sampling, firsts))
    # First fetches are always seen.
    others_ns = total(parts.loading) - parts.first_fetch_ns
    grown = (parts.input_ns - parts.first_fetch_ns) / others_ns if others_ns > 0 else 1.0
    drew = told[told["value"] != 0]
    later = drew[covered(firsts, drew["t_ns"], drew["end_ns"]) == 0]
    took_ns = later["end_ns"] - later["t_ns"]
    counted = drew["value"][drew["value"] != NOT_MEASURED]
    return Sampling(
        ns=first_ns + round((total(parts.sampling) - first_ns) * grown),
        first_ns=first_ns,
        draw_ms=float(np.median(took_ns)) / 1e6 if len(later) else None,
        drawn=float(np.median(counted)) if len(counted) else None,
        iterators=int((told["value"] == 0).sum()),
        each_ns=float(took_ns.sum()) / max(1, len(window.steps) - len(first)),
    )


MOST_TIMES = 100
"""Computation of a step over that of others with as much work, from which steps that learn nothing are no steps."""
MOST_TIMES_AT_ALL = 1000
"""The same of steps that learn: no tuning of kernels explains it."""
LEAST_SHARE = 0.02
"""Share of the steps that the short and the long ones must each be: single ones may be anything."""
LEAST_WORK = 0.5
"""Samples of the short steps over those of the long ones, medians, from which they have as much work."""


@dataclass(frozen=True)
class DoubtfulSteps:
    """Steps that compute next to nothing beside others with as much work."""

    short: int
    of: int
    """Steps that were looked at and whose computation is known."""
    times: float | None
    """Computation of the other steps over theirs, medians; `None` where theirs is nothing."""

    @property
    def sentence(self) -> str:
        times = "nothing" if self.times is None else f"a {self.times:.0f}th of what the others do"
        return (
            f"{self.short} of {self.of} steps compute {times}, with as much work: these cannot all be steps. Times "
            "of single steps are unreliable, and no cause rests on them. Call `whyidle.step()` in the loop, "
            "where a step begins."
        )


def doubtful_steps(window: Window, events: Records, parts: Partition, asynchronous: bool) -> DoubtfulSteps | None:
    """`None` where all steps are plausible."""
    steps = window.steps
    known = (steps["device_end_ns"] != NOT_MEASURED) | np.bool_(not asynchronous)
    # What the compiler does in a step is no work of it.
    compiled = per_step(window, under_way(lasting(events, EventKind.COMPILE)), asynchronous) > 0
    looked = known & ~compiled
    computing = per_step(window, parts.computing, asynchronous)
    lengths = computing[looked]
    # Half of the whole time lies in steps that are no longer than the longest.
    if not lengths.any() or not (lengths * MOST_TIMES < lengths.max()).any():
        return None
    long = _holding_half(lengths)
    short = looked & (computing * MOST_TIMES < long)
    others = looked & (computing * MOST_TIMES >= long)
    if min(short.sum(), others.sum()) < max(1, LEAST_SHARE * looked.sum()):
        return None
    if float(np.median(steps["samples"][short])) < LEAST_WORK * float(np.median(steps["samples"][others])):
        return None
    usual = float(np.median(computing[short]))
    times = float(np.median(computing[others])) / usual if usual > 0 else None
    learns = (steps["backward_begin_ns"] != NOT_MEASURED) | ((steps["flags"] & StepFlag.OPTIMIZER) != 0)
    idle = float(np.mean(~learns[short])) > MOSTLY > float(np.mean(~learns[others]))
    if not idle and (times is None or times < MOST_TIMES_AT_ALL):
        return None
    return DoubtfulSteps(int(short.sum()), int(looked.sum()), times)


def _holding_half(lengths: npt.NDArray[np.float64]) -> float:
    """The length at which half of the whole time lies in longer ones."""
    longest = np.sort(lengths)[::-1]
    return float(longest[np.searchsorted(np.cumsum(longest), lengths.sum() / 2)])


MACHINE_FULL_PCT = 90.0
"""CPU time of a machine in use, in percent, from which it has none left over: what is on no CPU may wait for one."""


@dataclass(frozen=True)
class Facts(DividedTime):
    """One rank's window, where its time went, and what loader, device and host showed."""

    loader: LoaderStats
    sampled: Sampled
    pinned: bool | None
    """Whether batches were copied from page-locked memory; `None` when nothing was copied."""
    copied_ahead: bool
    made_in_fetch_pct: float | None
    """Share of the batch making that happened while the training waited in the fetch."""
    waits: Waits
    """What the training waited for when it waited for data."""
    loader_unread: LoaderStats | None
    """The loader as far as it made batches that are not mostly read from storage; `None` where all or none are."""
    machine_cpus: int | None
    """All CPUs of the machine, whether the job may use them or not."""
    zero_windows_pct: float | None
    """Utilisation windows that read 0 %."""
    set_workers: int | None
    """Worker processes of torch's DataLoader, as it is set; `None` for other loaders."""
    clock_uncertainty_ns: int | None
    """How far the device's times may be from the host's clock; `None` where that is not known."""
    cut_steps: int
    """Steps at the end that the device had not finished; they are not in the window."""
    other_processes: int
    """Training processes of the same rank in the same folder that these facts leave out."""
    overhead_ns: float
    """Time in whyidle's own hooks in a step that they look at; the median, since the scheduler may interrupt a hook."""
    set_prefetch: int | None = None
    """Batches that each of torch's worker processes prepares ahead, as it is set; `None` where that is not known."""
    persistent_workers: bool | None = None
    """Whether torch's worker processes outlive an epoch, as it is set; `None` where that is not known."""
    main_queued_ns: float | None = None
    """Time that the training's thread waited for a CPU; `None` where that was not measured."""
    iterable: bool | None = None
    """Whether the dataset is iterated over, and divides itself among the workers."""
    out_of_order: bool | None = None
    """Whether batches are handed over as they come."""
    starts_python: bool | None = None
    """Whether workers are new Python processes, which import the program and unpickle the dataset."""
    own_workers: int | None = None
    """Worker processes that a loader within the data set is set to, 0 where it has others of its own; `None` where it
    has none, and so may be used by workers."""
    pin_memory: bool | None = None
    """Whether the loader is set to put batches into page-locked memory."""
    gil: Gil | None = None
    """Waiting for Python's global lock; `None` where other Python threads were not measured, or there were none."""
    running: float | None = None
    """Share of its time outside fetches and calls that wait in which the training's thread ran, 0..1; the median."""
    sampling: Sampling | None = None
    """What the loader's sampler took; `None` where it took nothing that was told."""
    staging: Staging | None = None
    """Work on each batch between its arrival and the forward pass; `None` where there is none, or it is not seen."""
    gaps: Gaps | None = None
    """Time behind the training loop's own work."""
    syncs: Syncs | None = None
    """Time behind synchronising calls."""
    outside: Outside | None = None
    """Time outside the steps."""
    doubtful: DoubtfulSteps | None = None
    """Steps that can be none; where there are any, nothing is made of what single steps take."""
    shape_churn: OutlierSteps | None = None
    """Steps with input shapes not seen before, or in which torch's compiler was at work."""
    memory_pressure: OutlierSteps | None = None
    """Steps in which the device's memory allocator had to try again."""
    making_seen: float | None = None
    """Of looks at workers while the training waited for data, the share in which they ran, making a batch, 0..1; `None`
    where that was not looked at, or too seldom."""
    stages: Stages | None = None
    """What preparing batches consists of, by stack samples; `None` where there were too few."""
    own_loop: OwnLoop | None = None
    """What a loop without a loader spends its time on, as its stack tells; `None` where clocks tell it, or too few
    looks were made."""
    unnamed: tuple[Where, ...] = ()
    """The lines of what is no computing, and in a loop without a loader of no kind that its stack tells; empty where
    that was not looked at."""
    advice: Advice | None = None
    """What other settings of the loader would do; `None` where the run does not tell, or nobody will ask."""
    device_state: DeviceState | None = None
    """Clocks and link of the accelerator; `None` where the processor is the device."""
    exclusion: Exclusion | None = None
    """Whether workers exclude each other; `None` with fewer than two."""
    trends: tuple[Trend, ...] = ()
    """How the parts of a step change as the run goes on; empty of a run with too few steps."""
    startup: Startup | None = None
    """The time before the first step was over; `None` where its begin is not known."""
    memory_grew: tuple[float, float] | None = None
    """Memory of the training's processes at the beginning and at the end of the window, bytes; `None`: not known."""
    wasted: WastedSamples | None = None
    """Samples made for nothing; `None` where that was not looked at."""
    handed: HandedOver | None = None
    """What a batch consists of that workers hand over; `None` where that was not looked at."""
    memory: MemoryGrowth | None = None
    """Memory of the loader's workers that grows without end; `None` where it does not."""

    @property
    def waiter(self) -> str:
        """Who waits, in a sentence: where the processor is the device, nothing idles but the training."""
        return "training" if self.device_kind == "cpu" else "device"

    @property
    def overhead_share(self) -> float:
        """Share of the wall time, 0..1, spent in whyidle's own hooks, typical steps taken for all."""
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
        made = self.made_in_fetch_pct
        return made is not None and made >= MADE_IN_FETCH_PCT and self.loader.queue_capacity is None

    def samples_per_s_without(self, removed_ns: float) -> float | None:
        """Samples/s if so much of the wall time vanished; `None` where samples are not known."""
        if not self.samples_known:
            return None
        return self.samples * 1e9 / max(1.0, self.parts.wall_ns - removed_ns)

    @property
    def cpu_limit(self) -> float | None:
        """Rate over today's at which the CPUs this job may use would all be busy, if a sample cost the CPU what it does
        now."""
        used, budget = self.sampled.tree_cpus, self.sampled.cpu_budget
        return None if not used or budget is None else max(1.0, budget / used)

    @property
    def handoff_pct(self) -> float | None:
        """Share of the exposed wait for data that came after the worker had finished the batch."""
        return self.waits.pct(self.waits.handed_ns)

    @property
    def blocked_pct(self) -> float | None:
        """Share of the exposed wait for data in which a later batch was finished and the one that was due was not."""
        return self.waits.pct(self.waits.blocked_ns)

    @property
    def foreign_cpus(self) -> float | None:
        """CPUs that other programs of the machine kept busy."""
        busy, mine = self.sampled.machine_busy_pct, self.sampled.tree_cpus
        if busy is None or mine is None or self.machine_cpus is None:
            return None
        return max(0.0, busy / 100 * self.machine_cpus - mine)

    @property
    def machine_full(self) -> bool:
        """Whether no CPU of the machine was left over, whoever used them; false where that was not measured."""
        return self.sampled.machine_busy_pct is not None and self.sampled.machine_busy_pct >= MACHINE_FULL_PCT

    @property
    def crowded(self) -> bool:
        """Whether the machine is full, and other programs use more of it than this job."""
        foreign, mine = self.foreign_cpus, self.sampled.tree_cpus
        return self.machine_full and foreign is not None and mine is not None and foreign > mine


def facts_of(run: Run, mine: Writer | None = None, looks: ProcessLooks | None = None) -> Facts | None:
    """Gather the facts of one training process, by default of the one that ran most steps. `looks`: at its stacks.

    `None` when no step was recorded, or when the device has stamped none.
    """
    files = run.files(STEP)
    mine = run.leading_writer() if mine is None else mine
    if mine is None or not files:
        return None
    recorded = _undamaged(run, mine)
    events = run.records(EVENT, mine)
    steps, cut = recorded, 0
    done = (events["what"] == EventKind.DEVICE_DONE).any()
    if device_kind_of(run.info) != "cpu" and not done:
        steps = resolved(recorded)
        cut = len(recorded) - len(steps)
        if len(steps) == 0:
            return None
    if cut:
        # What came after the last step that is known belongs to none.
        events = events[events["t_ns"] <= steps["step_end_ns"][-1]]
    window = window_of(steps, events)
    if window is None or window.wall_ns <= 0:
        return None
    facts = judge(
        window,
        events,
        run.records(PAUSE, mine),
        run.records(BATCH, mine),
        run.records(DEVICE),
        run.records(HOST),
        run.info,
        run.records(TRANSFORM, mine),
        read_names(run.folder),
        looks,
    )
    others = sum(f.header.pid != mine[1] and f.count() > 0 for f in run.files(STEP, mine[0]))
    contents = run.records(CONTENT, mine)
    wasted = wasted_samples_of(window, contents, facts.iterable, facts.device_kind != "cpu")
    handed = handed_over_of(contents, window.all_steps)
    memory = memory_growth_of(window, run.records(HOST), run.records(MEMORY), facts.set_workers, run.info)
    return replace(facts, cut_steps=cut, other_processes=others, wasted=wasted, handed=handed, memory=memory)


def device_kind_of(info: Mapping[str, Any]) -> str:
    """`cpu`, `cuda` or `emulated`; `info` is run.json."""
    return str((info.get("device") or {}).get("kind", "cpu"))


def judge(
    window: Window,
    events: Records,
    pauses: Records,
    batches: Records,
    device: Records,
    host: Records,
    info: dict[str, Any],
    transforms: Records | None = None,
    names: Mapping[int, str] | None = None,
    looks: ProcessLooks | None = None,
) -> Facts:
    """The facts of a window, from the records around it; `info` is run.json, `names` what records name by number."""
    device_kind = device_kind_of(info)
    of_all, batches = batches, of_training(batches, window.all_steps)
    queued = device_kind != "cpu"
    divided, own, gil = divided_time(window, events, pauses, host, device_kind)
    parts = divided.parts
    sampling, staging = sampling_of(window, events, parts), staging_of(window, events, parts, names)
    seen = sampled(window, device, host)
    doubtful = doubtful_steps(window, events, parts, queued)
    retries = queued and doubtful is None
    flags = window.steps["flags"]
    copied = window.steps["copy_bytes"] > 0
    facts = Facts(
        **vars(divided),
        loader=loader_of(window, batches, None if transforms is None else of_loaders(transforms, batches), names),
        loader_unread=unread_loader(window, batches),
        sampled=seen,
        pinned=_pinned(window.steps[copied], pauses[pauses["step"] >= window.steps["step"][0]]),
        copied_ahead=bool(copied.any() and np.mean((flags[copied] & StepFlag.COPIED_AHEAD) != 0) > MOSTLY),
        made_in_fetch_pct=made_in_fetch_pct(window, batches),
        waits=waits_of(window, batches, parts, 0 if sampling is None else sampling.ns),
        main_queued_ns=queued_ns(window, host),
        machine_cpus=(info.get("host") or {}).get("cpus"),
        zero_windows_pct=swings_to_zero_pct(window, device),
        set_workers=last_told(events, EventKind.LOADER_WORKERS),
        set_prefetch=last_told(events, EventKind.LOADER_PREFETCH),
        persistent_workers=loader_flag(events, LoaderFlag.PERSISTENT_WORKERS),
        iterable=loader_flag(events, LoaderFlag.ITERABLE),
        out_of_order=loader_flag(events, LoaderFlag.OUT_OF_ORDER),
        starts_python=loader_flag(events, LoaderFlag.STARTS_PYTHON),
        own_workers=own_workers(events),
        pin_memory=loader_flag(events, LoaderFlag.PIN_MEMORY),
        gil=gil,
        running=own.running(_making_ns(events, window.steps)),
        sampling=sampling,
        staging=staging,
        gaps=gaps_of(window, events, parts, names, staging),
        syncs=syncs_of(window, pauses, parts),
        outside=outside_of(window, events, of_all, parts, names),
        doubtful=doubtful,
        shape_churn=None if doubtful else shape_churn(window, events, parts, queued),
        memory_pressure=memory_pressure(window, events, parts, queued, seen.utilisation_pct) if retries else None,
        device_state=device_state(window, device, parts) if queued else None,
        exclusion=exclusion_of(window, batches, looks),
        clock_uncertainty_ns=last_told(events, EventKind.CLOCK_UNCERTAINTY),
        cut_steps=0,
        other_processes=0,
        overhead_ns=float(np.median(window.steps["overhead_ns"])),
        startup=startup_of(window, events, batches, bool(info.get("trial"))),
    )
    trends, memory = trends_of(facts, batches, device, host)
    return replace(facts, trends=trends, memory_grew=memory)


def _undamaged(run: Run, mine: Writer) -> Records:
    """The steps as they were stored; what is left out is said in the run's damage."""
    recorded = run.records(STEP, mine)
    steps = plausible(recorded)
    damaged = f"{len(recorded) - len(steps)} records of steps are damaged and left out."
    if len(steps) < len(recorded) and damaged not in run.damaged:
        run.damaged.append(damaged)
    return steps


def _pinned(copied: Records, pauses: Records) -> bool | None:
    """Whether most bytes were copied from page-locked memory; `None` when nothing was copied."""
    of_first = (copied["flags"] & StepFlag.PINNED) != 0
    pinned = int(copied["copy_bytes"][of_first].sum())
    pageable = int(copied["copy_bytes"][~of_first].sum())
    amount = np.where(pauses["amount_bytes"] == NOT_MEASURED, 0, pauses["amount_bytes"])
    pinned += int(amount[pauses["what"] == PauseKind.QUEUED_COPY].sum())
    pageable += int(amount[pauses["what"] == PauseKind.COPY].sum())
    return pinned > pageable if pinned + pageable else None


def _making_ns(events: Records, steps: Records) -> npt.NDArray[np.float64] | None:
    """Time in which the training's thread may have prepared the batches itself; `None` where workers do."""
    if last_told(events, EventKind.LOADER_WORKERS):
        return None
    end = np.where(steps["fetch_end_ns"] == NOT_MEASURED, steps["fetch_begin_ns"], steps["fetch_end_ns"])
    return np.asarray(end - steps["fetch_begin_ns"], dtype=np.float64)
