"""A run that is being recorded, as it stands: its last seconds, analysed as a whole run is for its report, and what the
live view shows of them. `None` and empty: not measured (yet).

Each look reads the ends of the record files again. Only what was told once and still counts (how many
workers a loader has) is kept between looks, so stamps that a device fills in late need no special care.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import RecordError
from ..record.reader import RecordFile, Records, Rows
from ..record.run import AGAIN, RecordFiles, Run, open_run, processes, sampled_devices
from ..record.schema import (
    BATCH,
    DEVICE,
    EVENT,
    HOST,
    KINDS,
    MEMORY,
    NOT_MEASURED,
    PAUSE,
    SPAN,
    STACK,
    STEP,
    EventKind,
    Kind,
)
from ..record.stacks import StackTable
from .causes.diagnosis import LEAST_STEPS
from .causes.finding import Finding
from .ranks import figures as of_job
from .run.analysis import Analysis, analyse
from .run.device_state import IDLE, POWER_CAP, SLOWDOWN, THERMAL
from .run.facts import Facts, device_kind_of
from .run.loader_stats import loader_of, of_training
from .run.resource_usage import WorkerDeath, deaths_of
from .run.window import MOST_WARMUP_STEPS, known, mean_of, or_none, resolved
from .where.located import LEAST_LOOKS
from .where.looks import looks_at
from .where.places import Where, places

Series = tuple[float, ...]
"""Means of successive seconds, oldest first; NaN where nothing was measured."""
UNDER_WAY = ("starting", "running", "watching")
"""States of a run that has not ended."""
SECOND_NS = 1_000_000_000
BEFORE_ALL = -(1 << 62)
RECENT_NS = 10 * SECOND_NS
"""Length of the analysed stretch; longer where it holds fewer steps than a verdict needs."""
MOST_STEPS = 2000
"""Steps of that stretch that are analysed, at most."""
MOST_RANKS = 64
"""Ranks of a job that are analysed, at most: of more, as many from all over it."""
LOOKS_NS = 30 * SECOND_NS
"""How far back stack samples count: workers are sampled in turn, and stored some seconds late."""
HISTORY_S = 120
"""Seconds that a series goes back."""
STALE_NS = 30 * SECOND_NS
"""Age from which a reading of a device is not shown as current; the slowest come every 20 s."""
LATE_NS = 3 * SECOND_NS
"""How much older a record may be than one stored before it; and how far back a series may end."""
MOST_READ, FIRST_READ = 16_384, 256
"""Records of a file that a look reads, at most and at first."""
UNSTAMPED_READ = 4096
"""The same of records without a stamp: what a batch consists of, what its transforms took."""
ONCE_TOLD = (
    EventKind.LOADER_WORKERS,
    EventKind.LOADER_PREFETCH,
    EventKind.LOADER_FLAGS,
    EventKind.LOADER_MADE,
    EventKind.ALLOCATOR_RETRIES,
    EventKind.BATCHES_TOGETHER,
)
"""Events of which the last one counts, however long ago."""
DEATHS = (EventKind.WORKER_DIED, EventKind.DIED_WORKER)
"""Events that are shown until the end."""
MOST_SHARE = 0.03
"""Share of one CPU that looks may take: where one takes longer, there are fewer."""
MOST_WAITS = 20
"""Times the planned distance between two looks that a costly one may stretch it to, at most."""
GONE_NS = 5 * SECOND_NS
"""Time since its last step after which a training whose process is not there counts as killed."""
PROPORTIONAL_NS = 60 * SECOND_NS
"""How long to wait for memory with shared pages divided among processes, which is measured seldom;
from then on each process counts all pages that it holds."""
THROTTLES = ((THERMAL, "heat"), (SLOWDOWN, "hardware slowdown"), (POWER_CAP, "power cap"))
"""Why clocks are held down; of several the one that is least usual."""
STAMPED = dict.fromkeys((kind.name for kind in (DEVICE, HOST, MEMORY, STACK)), "t_ns")
STAMPED |= dict.fromkeys((kind.name for kind in (BATCH, PAUSE, EVENT)), "end_ns")
STAMPED[STEP.name] = "step_end_ns"
"""Kind of record → the field that says when it was stored, about."""
Stamps = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeviceView:
    """One accelerator, as the sampler sees it."""

    number: int
    name: str
    emulated: bool = False
    busy_pct: Series = ()
    """Share of the time in which any kernel ran (NVML's utilisation; of an emulated device, computed the same way)."""
    sm_active_pct: Series = ()
    """Share of the multiprocessors that had work (GPM)."""
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    """The cap that its driver holds it to."""
    pcie_rx_bytes_s: float | None = None
    """From host to device."""
    pcie_tx_bytes_s: float | None = None
    """From device to host."""
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    temperature_c: int | None = None
    held_down: str | None = None
    """Why its clocks are held down (`power cap`, `heat`, …); `None` if they are not, or unknown."""


@dataclass(frozen=True)
class WorkerView:
    """One worker, or pool of threads, with the figures that a report has of all workers."""

    number: int
    busy_pct: float | None = None
    """Share of the time in which it prepared batches."""
    reading_pct: float | None = None
    """Part of that time in which it waited in reads."""
    queued_pct: float | None = None
    """Part of that time in which it was ready to run and waited for a CPU."""
    batch_ms: float | None = None
    """Time of preparing one batch, the mean."""
    quiet_s: float | None = None
    """Time since its last batch was finished."""


@dataclass(frozen=True)
class RankView:
    """One training process of several."""

    rank: int
    host: str
    steps: int
    samples_per_s: float | None = None
    shares: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class HostView:
    """The machine, and the job's share of it; rates are of the last seconds."""

    tree_cpus: float | None = None
    """CPUs that the job's processes keep busy."""
    cpu_budget: float | None = None
    """CPUs that the job may use."""
    machine_busy_pct: float | None = None
    steal_pct: float | None = None
    iowait_pct: float | None = None
    read_bytes_s: float | None = None
    """What the job's read calls got, from cache or storage."""
    storage_bytes_s: float | None = None
    """What storage gave; another counter, which includes read-ahead and pages of mapped files."""
    memory_used_bytes: int | None = None
    """Of the job's processes."""
    memory_available_bytes: int | None = None
    shm_used_bytes: int | None = None
    shm_total_bytes: int | None = None
    throttled_pct: float | None = None
    """Share of the time in which a CPU quota held the job back."""


@dataclass(frozen=True)
class Snapshot:
    """The run, with the figures and the verdict of its last seconds; of a job, of all ranks together."""

    title: str
    device: str
    state: str
    """`starting`, `running`, `watching` (no steps will come: only the sampler writes), or how the run ended: `ok`,
    `oom`, `failed`, `stopped`, `lost` (killed)."""
    deaths: tuple[WorkerDeath, ...] = ()
    """Workers of loaders that died, of all processes."""
    stand_in: str | None = None
    """What generated data stand for; `None` of real ones, and of a run that does not say."""
    steps: int = 0
    planned_steps: int | None = None
    elapsed_s: float | None = None
    """From the first step on."""
    left_s: float | None = None
    quiet_s: float | None = None
    """Since the last step ended; `None` before the first, and once the run has ended."""
    epoch: int | None = None
    """From 0."""
    batch_size: int | None = None
    samples_per_s: float | None = None
    steps_per_s: float | None = None
    rates: Series = ()
    """Samples/s of successive seconds of the leading rank, up to its last step."""
    shares: dict[str, float] = field(default_factory=dict)
    """Parts of the wall time, 0..1."""
    queue_ready: float | None = None
    queue_capacity: int | None = None
    workers: int | None = None
    """Processes or threads that prepare batches; 0: the training process makes them itself."""
    worker_busy_pct: float | None = None
    verdict: Finding | None = None
    verdict_since_s: float | None = None
    """How long the verdict has named its cause, as far as was watched; `None` if it names none."""
    rank: int = 0
    """The rank that leads a job: whose queue and workers are shown."""
    ranks: int = 1
    rank_views: tuple[RankView, ...] = ()
    """All ranks that were recorded here, by number; empty of a training with a single one."""
    devices: tuple[DeviceView, ...] = ()
    makers: tuple[WorkerView, ...] = ()
    made_in_training: bool | None = None
    """Whether the training process prepares batches itself; there are no makers then."""
    host: HostView = HostView()
    code: tuple[Where, ...] = ()
    """The lines with most stack samples of the last 30 s, of all `workers` and of the `training` thread, as
    `time` says; shares are of all samples, also of idle workers. Empty where stacks are not sampled, or no
    line was seen often enough."""


def moments(kind: Kind, rows: Rows) -> Stamps:
    """CLOCK_MONOTONIC ns of the moment each record tells of."""
    stamps: Stamps = rows[STAMPED[kind.name]]
    return np.where(stamps == NOT_MEASURED, rows["t_ns"], stamps) if kind is EVENT else stamps


def last_rows(file: RecordFile, since_ns: int, least: int = 0) -> Rows:
    """The records of a file since a moment, and at least its last `least`; none if the file is gone."""
    kind, size, count = file.kind, max(least, FIRST_READ), 0
    with suppress(OSError):
        count = file.count()
        if kind.name not in STAMPED:
            return file.read(max(0, count - UNSTAMPED_READ), UNSTAMPED_READ)
        while True:
            rows = file.read(max(0, count - size), size)
            stamps = moments(kind, rows)
            if size >= min(count, MOST_READ) or len(rows) == 0 or stamps[0] < since_ns - LATE_NS:
                break
            size *= 4
        fresh = stamps >= since_ns
        fresh[max(0, len(fresh) - least) :] = True
        kept: Rows = rows[fresh]
        return kept
    return np.empty(0, dtype=kind.dtype)


class LastRecords(RecordFile):
    """Some records of a file as if they were all that it holds."""

    def __init__(self, file: RecordFile, rows: Rows) -> None:
        vars(self).update(vars(file))
        known: bool = file.complete if isinstance(file, LastRecords) else True
        self.complete: bool = known and len(rows) == file.count()
        """Whether they are all that it holds."""
        self.rows: Rows = rows.copy()
        self.rows["seq"] = np.arange(1, len(rows) + 1)
        self.most_at_first = len(rows)

    def count(self) -> int:
        """How many records there are."""
        return len(self.rows)

    def chunks(self, first: int = 0) -> Iterator[Rows]:
        """All records from number `first` on, at once."""
        if first < len(self.rows):
            yield self.rows[first:]


def stretch(steps: Rows, device_kind: str) -> Rows:
    """The steps to analyse: those of the last seconds, or as many as a verdict needs, and those that the
    device has still to do."""
    done = steps if device_kind == "cpu" else resolved(steps)
    if len(done) == 0:
        return steps
    late = int((done["fetch_begin_ns"] >= done["step_end_ns"][-1] - RECENT_NS).sum())
    return steps[max(0, len(done) - min(MOST_STEPS, max(late, LEAST_STEPS) + MOST_WARMUP_STEPS)) :]


class RecentReader:
    """Follows a run folder. `snapshot()` may be called often; it looks about once in `judge_s` seconds.

    Args:
        folder: the run.
        clock: tells CLOCK_MONOTONIC, ns.

    Raises:
        RecordError: not a run folder, or one of an unknown version.
    """

    def __init__(self, folder: Path, clock: Callable[[], int] = time.monotonic_ns, judge_s: float = 0.9) -> None:
        self.folder = folder
        self._clock = clock
        self._judge_ns = round(judge_s * SECOND_NS)
        self._told: dict[Path, tuple[int, Rows]] = {}
        """File of events → how many were read, and those of them that count however old they are."""
        self._stacks = StackTable(folder)
        self._cause: tuple[str | None, int] = None, 0
        """Code of the cause that the verdict names, and since when."""
        self.analysis: Analysis | None = None
        """What the last snapshot is made of; `None` before the first step."""
        self._last: Snapshot | None = None
        self._due_ns = self._changed_ns = 0
        open_run(folder)

    def snapshot(self) -> Snapshot:
        """The state of the run now.

        Raises:
            RecordError: the folder is gone.
        """
        now_ns = self._clock()
        try:
            changed_ns = self.folder.stat().st_mtime_ns
            due = self._last is None or (self._last.state in UNDER_WAY and now_ns >= self._due_ns)
            if self._last is None or due or changed_ns != self._changed_ns:
                began = time.thread_time_ns()
                # Damaged records may hold any number: no warning is to be printed onto a view.
                with np.errstate(all="ignore"):
                    self._last = self._look(open_run(self.folder), now_ns)
                cost_ns = time.thread_time_ns() - began
                wait_ns = min(round(cost_ns / MOST_SHARE), MOST_WAITS * self._judge_ns)
                self._due_ns, self._changed_ns = now_ns + max(self._judge_ns, wait_ns), changed_ns
        except OSError as error:
            raise RecordError(
                f"{self.folder} is gone: the run's folder was removed or moved while it was watched."
            ) from error
        return self._last

    def _look(self, whole: Run, now_ns: int) -> Snapshot:
        self.analysis, steps, ended = None, self._last_steps(whole), whole.info.get("ended")
        here = (whole.info.get("host") or {}).get("name") == socket.gethostname()
        state = str(ended.get("status")) if isinstance(ended, dict) else None
        if state is None and here and _is_lost(steps, now_ns):
            state = "lost"
        if state is not None or not here:
            # The clock of another machine is known by its newest record only.
            ends = (newest_ns(file) for name in STAMPED for file in whole.files(KINDS[name]))
            now_ns = max((end for end in ends if end is not None), default=now_ns)
        run = self._recent(whole, steps, now_ns)
        ran = [file.rows[-1] for file in steps if file.count()]
        waits = "watching" if run.info.get("watching") or run.info.get("attach") else "starting"
        view = _of_machine(run, state or ("running" if ran else waits), now_ns)
        if not ran:
            return replace(view, code=tuple(_code(run, None)))
        firsts = np.concatenate([file.read(0, 1)["fetch_begin_ns"] for file in whole.files(STEP)])
        # What is damaged the report tells: the view goes on.
        with suppress(ArithmeticError, LookupError, ValueError):
            analysis = analyse(run, briefly=True)
            view = replace(view, **_figures(analysis, run, now_ns), code=tuple(_code(run, analysis)))
            self.analysis = analysis
        lead = next((file.rows for file in steps if file.rank == view.rank), None)
        cause = view.verdict.cause if view.verdict is not None else None
        if cause != self._cause[0]:
            self._cause = cause, now_ns
        # How far the training is, by the process that ran most.
        foremost = max(ran, key=lambda row: int(row["step"]))
        step, ended_ns, goes_on = int(foremost["step"]) + 1, int(foremost["step_end_ns"]), view.state == "running"
        left = None if view.planned_steps is None or not goes_on else max(0, view.planned_steps - step)
        return replace(
            view,
            ranks=max(1, len({file.rank for file in whole.files(STEP)})),
            rates=() if lead is None or view.samples_per_s is None else rates_of(lead),
            verdict_since_s=None if cause is None else (now_ns - self._cause[1]) / SECOND_NS,
            steps=step,
            epoch=int(foremost["epoch"]),
            elapsed_s=max(0, (now_ns if goes_on else ended_ns) - int(firsts.min(initial=now_ns))) / SECOND_NS,
            quiet_s=max(0, now_ns - ended_ns) / SECOND_NS if goes_on else None,
            left_s=left / view.steps_per_s if left is not None and view.steps_per_s else None,
        )

    def _last_steps(self, whole: Run) -> list[LastRecords]:
        """The last steps of each rank: a folder may hold several processes of it, the newest counts."""
        newest: dict[int, tuple[int, RecordFile]] = {}
        for file in whole.files(STEP):
            known, rank = newest_ns(file) or 0, file.rank
            if rank not in newest or known > newest[rank][0]:
                newest[rank] = known, file
        ranks = sorted(newest)[:: -(-len(newest) // MOST_RANKS) or 1]
        return [
            LastRecords(file, last_rows(file, last - HISTORY_S * SECOND_NS, FIRST_READ))
            for last, file in (newest[rank] for rank in ranks)
        ]

    def _recent(self, whole: Run, steps: list[LastRecords], now_ns: int) -> Run:
        """The run of its last seconds, as if no more had been recorded."""
        kept = [LastRecords(file, stretch(file.rows, device_kind_of(whole.info))) for file in steps]
        begins = {}
        for file in kept:
            if file.count():
                # A training that has just begun counts as a whole, with what was before its first step.
                first = BEFORE_ALL if file.complete else int(file.rows["fetch_begin_ns"][0])
                begins[file.rank, file.pid] = first
        first_ns = min(begins.values(), default=now_ns)
        since = {DEVICE: now_ns - HISTORY_S * SECOND_NS, STACK: now_ns - LOOKS_NS}
        since |= {HOST: since[DEVICE], MEMORY: since[DEVICE]}
        of_kind: dict[str, list[RecordFile]] = {STEP.name: list(kept)}
        for kind in KINDS.values():
            for each in whole.files(kind) if kind not in (STEP, SPAN) else ():
                begin_ns = begins.get((each.rank, each.pid), first_ns)
                # A batch is prepared some time before the step that takes it.
                begin_ns -= RECENT_NS if kind is BATCH else 0
                rows = last_rows(each, min(since.get(kind, begin_ns), begin_ns))
                if kind is EVENT:
                    rows = np.concatenate((self._once_told(each, rows), rows))
                of_kind.setdefault(kind.name, []).append(LastRecords(each, rows))
        self._stacks.look()
        return Run(whole.folder, whole.info, record_files=RecordFiles(of_kind, self._stacks))

    def _once_told(self, file: RecordFile, rows: Rows) -> Rows:
        """What was told before these events and still counts."""
        read, told = self._told.get(file.path, (0, np.empty(0, dtype=EVENT.dtype)))
        with suppress(OSError):
            for chunk in file.chunks(read):
                read = int(chunk["seq"][-1])
                told = np.concatenate((told, chunk[np.isin(chunk["what"], (*ONCE_TOLD, *DEATHS))]))
        last = [told[told["what"] == what][-1:] for what in ONCE_TOLD]
        kept: Rows = np.concatenate((*last, told[np.isin(told["what"], DEATHS)]))
        self._told[file.path] = read, kept
        return kept[~np.isin(kept["seq"], rows["seq"])]


def newest_ns(file: RecordFile) -> int | None:
    """The moment that the last record of a file tells of; `None` where there is none."""
    with suppress(OSError):
        rows = file.read(max(0, file.count() - 1), 1)
        return int(moments(file.kind, rows)[0]) if len(rows) else None
    return None


def _is_lost(steps: list[LastRecords], now_ns: int) -> bool:
    """Whether the training was killed: its process is not there, and it was on this machine.

    One that has just ended is not: whoever started it has yet to say how.
    """
    last_ns = max((int(file.rows["step_end_ns"][-1]) for file in steps if file.count()), default=None)
    if last_ns is None or abs(now_ns - last_ns) < GONE_NS:
        return False
    # The clock begins at 0 when the machine is started anew.
    return last_ns > now_ns or not any(Path(f"/proc/{file.pid % AGAIN}").exists() for file in steps)


def _figures(analysis: Analysis, run: Run, now_ns: int) -> dict[str, Any]:
    """The fields of a snapshot that an analysis has."""
    facts, lead = analysis.facts, of_job.leading(analysis, [run])
    found: dict[str, Any] = {"verdict": analysis.verdict}
    if facts is None or lead is None:
        return found
    loader, apart = facts.loader, not facts.made_in_training
    return found | {
        "rank": lead[1][0],
        "batch_size": facts.batch_size,
        "samples_per_s": analysis.job.samples_per_s if analysis.job is not None and facts.samples_known else None,
        "steps_per_s": facts.window.count * SECOND_NS / facts.window.wall_ns,
        "shares": dict(of_job.shares(analysis)),
        "queue_ready": or_none(loader.queue_ready_mean),
        "queue_capacity": or_none(loader.queue_capacity),
        "workers": (loader.workers or None) if apart else 0,
        "worker_busy_pct": or_none(loader.worker_busy_pct) if apart else None,
        "made_in_training": not apart,
        "makers": tuple(_workers(facts, lead[0].records(BATCH, lead[1]), now_ns)) if apart else (),
        "rank_views": tuple(
            _rank(each.rank, each.host, each.analysis.facts)
            for each in analysis.ranks
            if each.analysis.facts is not None or len(analysis.ranks) <= MOST_RANKS
        ),
    }


def _rank(rank: int, host: str, facts: Facts | None) -> RankView:
    if facts is None:
        return RankView(rank, host, 0)
    rate = facts.samples_per_s if facts.samples_known else None
    return RankView(rank, host, int(facts.window.steps["step"][-1]) + 1, rate, facts.shares)


def _workers(facts: Facts, batches: Records, now_ns: int) -> Iterator[WorkerView]:
    """Each worker by itself; a worker that a new epoch starts takes over the number of an old one."""
    batches = of_training(batches, facts.window.all_steps)
    for number in np.unique(batches["worker"][batches["worker"] >= 0]).tolist():
        own = batches[batches["worker"] == number]
        made = loader_of(facts.window, own)
        quiet_s = max(0, now_ns - int(own["end_ns"].max())) / SECOND_NS
        figures = (made.worker_busy_pct, made.read_pct, made.run_queue_pct, made.work_ms_per_batch)
        busy_pct, reading_pct, queued_pct, batch_ms = map(or_none, figures)
        yield WorkerView(number, busy_pct, reading_pct, queued_pct, batch_ms, quiet_s)


def rates_of(steps: Rows) -> Series:
    """Samples/s of each whole second; the samples of a step are spread evenly since the step before."""
    ends, samples = steps["step_end_ns"], np.where(steps["samples"] == NOT_MEASURED, 0, steps["samples"])
    last = int(ends[-1]) // SECOND_NS
    edges = np.arange(max(-(-int(ends[0]) // SECOND_NS), last - HISTORY_S), last + 1) * SECOND_NS
    until = np.cumsum(samples + np.maximum(0, steps["skipped_samples"])).astype(np.float64)
    return tuple(np.diff(np.interp(edges - ends[0], ends - ends[0], until)).tolist())


def _of_machine(run: Run, state: str, now_ns: int) -> Snapshot:
    """What is known of a run without its steps."""
    info, host, plan = run.info, run.records(HOST), (run.info.get("plan") or {}).get("steps")
    trial, device = info.get("trial") or {}, info.get("device") or {}
    named = [str(trial[name]) for name in ("scenario", "net", "pipeline") if trial.get(name)]
    named += [f"batch {trial['batch_size']}"] if trial.get("batch_size") else []
    return Snapshot(
        " · ".join(named) or " ".join(str(word) for word in info.get("command") or ["run"]),
        str(device.get("title") or device.get("name") or ""),
        state,
        planned_steps=plan if isinstance(plan, int) and plan > 0 else None,
        deaths=deaths_of(run.records(EVENT), host, run.records(MEMORY)),
        stand_in=(info.get("dataset") or {}).get("stand_in"),
        devices=tuple(_devices(run, now_ns - (SECOND_NS if state in UNDER_WAY else 0), now_ns)),
        host=_host(run, host, now_ns),
    )


def per_second(times: Stamps, values: npt.NDArray[Any], until_ns: int) -> Series:
    """Means of the last whole seconds; empty where nothing was measured. Ends up to three seconds early
    where the newest are not recorded yet."""
    known = ~np.isnan(values) & (times > until_ns - HISTORY_S * SECOND_NS) & (times < until_ns)
    if not known.any():
        return ()
    second, values = times[known] // SECOND_NS, values[known]
    last = int(second.max())
    last = last if (last + 1) * SECOND_NS >= until_ns - LATE_NS else until_ns // SECOND_NS
    place = second - last + HISTORY_S - 1
    count, total = (np.bincount(place[place >= 0], of[place >= 0], HISTORY_S) for of in (np.ones(len(values)), values))
    return tuple(np.divide(total, count, np.full(HISTORY_S, np.nan), where=count > 0).tolist())


def rate_since(times: Stamps, counter: Stamps, since_ns: int) -> float | None:
    """Rise of a cumulative counter a second; `None` with fewer than two readings, or if it was reset."""
    known = (counter != NOT_MEASURED) & (times >= since_ns)
    times, counter = times[known], counter[known]
    if len(times) < 2 or times[-1] <= times[0] or (np.diff(counter) < 0).any():
        return None
    return float(counter[-1] - counter[0]) * SECOND_NS / float(times[-1] - times[0])


def _last(rows: Records, name: str) -> int | None:
    """The last value that was measured."""
    values = known(rows, name)
    return int(values[-1]) if len(values) else None


def _devices(run: Run, until_ns: int, now_ns: int) -> Iterator[DeviceView]:
    """The sampled devices by number, named by their driver, or else by the trainings."""
    rows, told, since_ns = run.records(DEVICE), processes(run.folder), now_ns - RECENT_NS
    device, emulated = run.info.get("device") or {}, device_kind_of(run.info) == "emulated"
    sampled = {each.number: each for each in sampled_devices(run.folder) or ()} if not emulated else {}
    numbers = np.unique(rows["device"]).tolist()
    titles = {str(of["title"]) for of in (device, *(each.device for each in told)) if of.get("title")}
    # An attached process does not tell its devices' name, nor which of several is its own.
    says = not run.info.get("attach") and (emulated or len(numbers) <= max(1, len(told)))
    title = titles.pop() if len(titles) == 1 and says and not any(each.name for each in sampled.values()) else None
    for number in numbers:
        own = rows[rows["device"] == number]
        # Windows tell utilisation only; states, which have none, are few.
        states = own[own["window_ns"] == NOT_MEASURED]
        fresh = states[states["t_ns"] >= now_ns - STALE_NS]
        power_mw, limit_mw = _last(fresh, "power_mw"), sampled[number].power_limit_mw if number in sampled else None
        reasons = _last(fresh, "throttle_reasons") or IDLE
        yield DeviceView(
            number,
            (sampled[number].name if number in sampled else None)
            or title
            or f"{'emulated device' if emulated else 'GPU'} {number}",
            emulated,
            busy_pct=per_second(own["t_ns"], own["utilisation_pct"], until_ns),
            sm_active_pct=per_second(own["t_ns"], own["sm_active_pct"], until_ns),
            power_w=None if power_mw is None else power_mw / 1000,
            power_limit_w=None if limit_mw is None else limit_mw / 1000,
            pcie_rx_bytes_s=rate_since(states["t_ns"], states["pcie_rx_bytes"], since_ns),
            pcie_tx_bytes_s=rate_since(states["t_ns"], states["pcie_tx_bytes"], since_ns),
            held_down=None if reasons & IDLE else next((why for bits, why in THROTTLES if reasons & bits), None),
            **{name: _last(fresh, name) for name in ("memory_used_bytes", "sm_clock_mhz", "temperature_c")},
            **{name: _last(states, name) for name in ("memory_total_bytes", "sm_clock_max_mhz")},
        )


def _host(run: Run, looks: Records, now_ns: int) -> HostView:
    """What the sampler saw of the machine and the job; all `None` where there is none."""
    times, late = looks["t_ns"], looks[looks["t_ns"] >= now_ns - RECENT_NS]
    budget = _last(looks, "cpus")
    machine = HostView(
        cpu_budget=None if budget is None else budget / 1000,
        machine_busy_pct=or_none(mean_of(late, "machine_busy_pct")),
        steal_pct=or_none(mean_of(late, "steal_pct")),
        iowait_pct=or_none(mean_of(late, "machine_iowait_pct")),
        **{name: _last(late, name) for name in ("memory_available_bytes", "shm_used_bytes", "shm_total_bytes")},
    )
    if run.info.get("watching"):
        return machine  # the sampler was given no job to look at, but the process that started it
    counters = ("tree_cpu_ns", "throttled_us", "read_chars_bytes", "read_storage_bytes")
    busy, throttled, read, storage = (rate_since(times, looks[name], now_ns - RECENT_NS) for name in counters)
    memory = _last(looks, "tree_pss_bytes")
    if memory is None and len(times) and times[-1] - times[0] > PROPORTIONAL_NS:
        memory = _last(late, "tree_rss_bytes")
    return replace(
        machine,
        tree_cpus=None if busy is None else busy / SECOND_NS,
        read_bytes_s=read,
        storage_bytes_s=storage,
        memory_used_bytes=memory,
        # In µs, summed over groups.
        throttled_pct=None if throttled is None else min(100.0, 100 * throttled / 1e6),
    )


def _code(run: Run, analysis: Analysis | None) -> Iterator[Where]:
    """The line with most stack samples of the workers, and of the training; none of too few samples."""
    told = sorted((each.rank, each.pid) for each in processes(run.folder))
    lead = None if analysis is None else of_job.leading(analysis, [run])
    writer = lead[1] if lead is not None else next(iter(told), None)
    looks = None if writer is None else looks_at(run, writer)
    if looks is None:
        return
    for whose, seen, among in (("workers", looks.making, looks.workers), ("training", looks.training, looks.training)):
        for line in places(seen.stacks(), whose, most=1):
            if line.samples >= LEAST_LOOKS:
                yield replace(line, share=line.samples / (len(among) - among.failed))
