"""The JSON of a run, of one training process or of a job of several ranks: `report --format json`.

Of a job, figures are those of all ranks; what only one rank can tell is of the one that leads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict

from ...analyse.cells.cost import Spent
from ...analyse.ranks import figures as ranks_figures
from ...analyse.ranks.job import Job
from ...analyse.run.analysis import Analysis, RankAnalysis
from ...analyse.run.facts import Facts
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from ...analyse.run.worker_deaths import WorkerDeath
from ...record.run import ImageDecoding
from . import cost as cost_json
from . import over_time
from .common import DeviceJson, FindingJson, finding


class DevicesJson(DeviceJson):
    count: int | None
    """Of all ranks."""


class RunJson(Struct):
    """What was recorded, as the recording says."""

    id: str | None
    command: list[str] | None
    started_at: str | None
    """ISO 8601."""
    duration_s: float | None
    """From the begin of its process, where that is known, else from the first event of the training, to the last."""
    exit_code: int | None
    """`null`: it has not ended, or nobody could say."""
    host: dict[str, Any] | None
    """Its name, machine, CPUs and memory."""
    python: str | None
    torch: str | None
    """Versions."""
    ranks: int
    device: DevicesJson
    dataset: dict[str, Any] | None
    """As a scenario describes what it trains on."""


class StepTimesJson(Struct):
    """Length of steps, ms."""

    mean: float | None
    p50: float | None
    p95: float | None
    p99: float | None


class WindowJson(Struct):
    """The steps that figures are about: those after the warm-up."""

    steps: int
    """Of one rank."""
    warmup_steps: int
    """Before these, and left out."""
    samples: int | None
    wall_s: float | None
    samples_per_s: float | None
    batch_size: int | None
    """Of one rank, as most steps have it."""
    step_ms: StepTimesJson


class GapsJson(Struct):
    """Stretches of at least 0.1 ms in which the device idled, without those outside of steps."""

    count: int | None
    total_ms: float | None
    p50_ms: float | None
    """Of one rank."""
    p95_ms: float | None
    """Of one rank."""
    max_ms: float | None


class DeviceFiguresJson(Struct):
    """How busy the device was: registered metrics, see `analyse/run/metrics.py`."""

    busy_pct: float | None
    au_pct: float | None
    utilisation_pct: float | None
    sm_active_pct: float | None
    memory_peak_bytes: float | None
    gaps: GapsJson


class BreakdownJson(Struct):
    """Shares of the wall time; where all are known they sum to 100."""

    compute_pct: float | None = None
    input_pct: float | None = None
    copy_pct: float | None = None
    sync_pct: float | None = None
    host_pct: float | None = None
    boundary_pct: float | None = None


class InputJson(Struct):
    """How batches were prepared, with registered metrics."""

    workers: int | None
    """0 where the training process prepares batches; `null` where the loader does not say."""
    read_pct: float | None
    prep_pct: float | None
    collate_pct: float | None
    handoff_pct: float | None
    worker_busy_pct: float | None
    queue_ready_mean: float | None
    first_fetch_pct: float | None
    """Of the wall time: waits for the first batches of epochs."""
    hidden_wait_ms: float | None
    """Waits for data while the device worked."""
    samples_per_s_limit: float | None


class HeadroomJson(Struct):
    """Rate with an infinitely fast loader."""

    samples_per_s: float | None = None
    speedup: float | None = None
    """Against the run itself."""
    method: str | None = None
    """How it was found, or why not."""
    low: None = None
    """Kept for readers of older reports, which may hold a measured rate, as the next three keys are."""
    high: None = None
    stretches: int = 0
    reason: None = None


class QualityJson(Struct):
    """Quality of the figures, with registered metrics."""

    overhead_pct: float | None
    overhead_us_per_step: float | None
    """Of the rank with the most."""
    dropped_records: int
    late_samples_pct: float | None
    """Percent of the sampler's samples that came late; of the rank with the most."""
    cpu_steal_pct: float | None
    notes: tuple[str, ...]
    """What could not be measured or trusted, a sentence each."""
    left_out: int = 0
    """Values that were not recorded, because they are or look like secrets."""


class WorkerDeathJson(Struct):
    """A worker process of a loader that died."""

    pid: int
    worker: int | None
    """Its number in its loader, from 0."""
    exit_code: int | None
    """Negative: the number of the signal that killed it."""
    signal: str | None
    """Its name, such as `SIGKILL`; `null` where none killed it, or that is not known."""
    at_s: float
    """Since the recording of the training began."""
    likely: str
    """The likely reason."""
    way_out: str


class ImageDecodingJson(Struct):
    """How many of its images the machine decodes a second when it does nothing else."""

    files: int
    """That were tried."""
    decoder: str
    cores: int
    one_core: float
    """Images/s."""
    all_cores: float


class ReportJson(Struct, kw_only=True):
    format: str = "whyidle-report"
    version: int = 1
    run: RunJson
    window: WindowJson
    device: DeviceFiguresJson
    breakdown: BreakdownJson
    input: InputJson
    verdict: FindingJson
    findings: list[FindingJson]
    """By what removing them would gain."""
    headroom: HeadroomJson
    quality: QualityJson
    startup: over_time.StartupJson | None
    """Of the rank that leads; `null`: its begin is not known."""
    trends: list[over_time.TrendJson]
    """Of the rank that leads; empty of a run with too few steps."""
    ranks_detail: list[RankReportJson] | UnsetType = UNSET
    """Of a job alone: each rank by itself."""
    cost: cost_json.SpentJson | UnsetType = UNSET
    """Where there is a price."""
    worker_deaths: list[WorkerDeathJson] | UnsetType = UNSET
    """Where workers died, of all ranks."""
    image_decoding: ImageDecodingJson | UnsetType = UNSET
    """Where the training reads JPEG files and they were decoded when it had ended."""


class RankReportJson(ReportJson):
    rank: int
    host: str | None
    late_ms: float | None
    """Mean delay behind the first rank where ranks wait for each other, ms."""
    waits_ms: float | None
    """Mean wait for the last rank there, ms."""


def report(analysis: Analysis, spent: Spent | None = None) -> ReportJson:
    """One run, as `whyidle-report` version 1. `spent`: what it cost, where that is asked for."""
    decoding = ImageDecoding.of(analysis.info)
    return ReportJson(
        run=_run(analysis),
        window=_window(analysis),
        device=DeviceFiguresJson(**_metrics(analysis, DeviceFiguresJson), gaps=_gaps(analysis)),
        breakdown=breakdown(ranks_figures.shares(analysis)),
        input=_input(analysis),
        verdict=finding(analysis.verdict),
        findings=[finding(each) for each in analysis.findings],
        headroom=_headroom(analysis),
        quality=_quality(analysis),
        startup=None if analysis.facts is None else over_time.startup_json(analysis.facts.startup),
        trends=[] if analysis.facts is None else [over_time.trend_json(each) for each in analysis.facts.trends],
        ranks_detail=[_of_rank(part, analysis.job) for part in analysis.ranks] or UNSET,
        cost=UNSET if spent is None else cost_json.spent(spent),
        worker_deaths=[_death(each) for each in analysis.deaths] or UNSET,
        image_decoding=UNSET if decoding is None else ImageDecodingJson(**dataclasses.asdict(decoding)),
    )


def _death(death: WorkerDeath) -> WorkerDeathJson:
    return WorkerDeathJson(
        death.pid, death.worker, death.exit_code, death.signal, death.at_s, death.likely, death.way_out
    )


def _of_rank(part: RankAnalysis, job: Job | None) -> RankReportJson:
    late, waits = (None, None) if job is None else (job.late_ns.get(part.rank), job.waits_ns.get(part.rank))
    return RankReportJson(
        rank=part.rank,
        host=part.host or None,
        late_ms=None if late is None else late / 1e6,
        waits_ms=None if waits is None else waits / 1e6,
        **asdict(report(part.analysis)),
    )


def breakdown(shares: Mapping[str, float]) -> BreakdownJson:
    return BreakdownJson(**{f"{part}_pct": 100 * shares[part] for part in PARTS if part in shares})


def _run(analysis: Analysis) -> RunJson:
    info = analysis.info
    device = info.get("device") or {}
    return RunJson(
        id=info.get("id"),
        command=info.get("command"),
        started_at=info.get("started_at"),
        duration_s=analysis.duration_s,
        exit_code=(info.get("ended") or {}).get("exit_code"),
        host=info.get("host"),
        python=info.get("python"),
        torch=info.get("torch"),
        ranks=len(ranks_figures.processes(analysis)),
        device=DevicesJson(device.get("kind"), device.get("title") or device.get("name"), _devices(analysis)),
        dataset=info.get("dataset"),
    )


def _devices(analysis: Analysis) -> int | None:
    """Each rank has its own, unless it trains on the processor."""
    devices = [process.info.get("device") or {} for process in ranks_figures.processes(analysis)]
    counts: list[int | None] = [device.get("count") for device in devices]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) and all(d.get("kind") != "cpu" for d in devices) else counts[0]


def _window(analysis: Analysis) -> WindowJson:
    facts, job = analysis.facts, analysis.job
    step_ms = StepTimesJson(*(analysis.step_ms.get(name) for name in StepTimesJson.__struct_fields__))
    if facts is None:
        return WindowJson(0, 0, 0, None, None, None, step_ms)
    of = facts if job is None else job
    known = job is not None or facts.samples_known
    return WindowJson(
        steps=facts.window.count,
        warmup_steps=facts.window.warmup_steps,
        samples=of.samples if known else None,
        wall_s=(facts.parts if job is None else job).wall_ns / 1e9,
        samples_per_s=of.samples_per_s if known else None,
        batch_size=facts.batch_size,
        step_ms=step_ms,
    )


def _metrics(analysis: Analysis, of: type[Struct]) -> dict[str, Any]:
    """The fields that are registered metrics."""
    return {name: ranks_figures.figure(analysis, name) for name in of.__struct_fields__ if name in METRICS}


def _gaps(analysis: Analysis) -> GapsJson:
    lead, each = analysis.gaps_ms, [process.gaps_ms for process in ranks_figures.processes(analysis)]
    told_apart = [facts for facts in ranks_figures.all_facts(analysis) if facts.told_apart]
    return GapsJson(
        count=sum(len(facts.parts.gaps_ns) for facts in told_apart) if told_apart else None,
        total_ms=sum(gaps["total"] for gaps in each if gaps) if any(each) else None,
        p50_ms=lead.get("p50"),
        p95_ms=lead.get("p95"),
        max_ms=max((gaps["max"] for gaps in each if gaps), default=None),
    )


def _input(analysis: Analysis) -> InputJson:
    def over_ranks(read: Callable[[Facts], float]) -> float | None:
        return ranks_figures.over_ranks(analysis, lambda facts: read(facts) if facts.input_known else None)

    workers = [known for facts in ranks_figures.all_facts(analysis) if (known := _workers(facts)) is not None]
    return InputJson(
        workers=sum(workers) if workers else None,
        **_metrics(analysis, InputJson),
        first_fetch_pct=over_ranks(lambda facts: 100 * facts.parts.first_fetch_ns / facts.parts.wall_ns),
        hidden_wait_ms=over_ranks(lambda facts: facts.parts.hidden_wait_ns / 1e6),
    )


def _workers(facts: Facts) -> int | None:
    if facts.set_workers is not None:
        return facts.set_workers
    if facts.loader.workers == 0:
        return None
    return 0 if facts.made_in_training else facts.loader.workers


def _headroom(analysis: Analysis) -> HeadroomJson:
    """No rank may go on before the others: what the rank that leads would gain is what the job would."""
    facts, job = analysis.facts, analysis.job
    if facts is None:
        return HeadroomJson()
    if not (facts.samples_known and facts.input_known):
        return HeadroomJson(method="unknown: no fetch of its batches was recorded")
    rate = facts.samples_per_s_without(facts.parts.input_ns)
    if rate is None or facts.device_kind == "cpu":
        return HeadroomJson(method="unknown: loader and training share the CPU")
    method, speedup = "partition: wall time without the exposed waits for data", rate / facts.samples_per_s
    if job is None:
        return HeadroomJson(rate, speedup, method)
    return HeadroomJson(job.samples_per_s * speedup, speedup, f"{method}, on rank {job.lead}")


def _quality(analysis: Analysis) -> QualityJson:
    return QualityJson(
        **_metrics(analysis, QualityJson),
        overhead_us_per_step=ranks_figures.over_ranks(analysis, lambda facts: facts.overhead_ns_per_step / 1e3, max),
        dropped_records=analysis.dropped_records,
        late_samples_pct=ranks_figures.over_ranks(analysis, lambda facts: facts.sampled.late_samples_pct, max),
        notes=analysis.notes,
        left_out=analysis.left_out,
    )
