"""The JSON of a recording from outside: `attach --json`. Shares are 0 to 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from ...analyse.attached.attached import UNKNOWN, Attached
from ...analyse.attached.trainers import Cpu, Trainer, Workers
from ...analyse.causes.finding import Finding
from ...analyse.run.resource_usage import Sampled
from .common import DeviceJson, FindingJson, finding


class AttachedRunJson(Struct):
    """What was watched."""

    id: str | None
    pid: int | None
    command: list[str] | None
    started_at: str | None
    """Start of the recording, ISO 8601."""
    seconds: float
    """Length of the recording, s."""
    ended_by: str | None
    """Why the recording ended."""
    host: dict[str, object] | None
    device: DeviceJson


class ShareJson(Struct):
    share: float
    low: float | None
    """Lower end of its 95 % interval."""
    high: float | None


class PlaceJson(Struct):
    """Where in the code stacks were."""

    where: str
    share: float


class CpuJson(Struct):
    """What `/proc` says processes did, as shares of their time."""

    running: float | None
    """On a CPU; above 1 for several threads."""
    queued: float | None
    """The main thread waited for a CPU."""
    io: float | None
    """It waited for a disk."""
    main: float | None
    """It was on a CPU."""
    idle: float | None
    """It waited for something else."""


class WorkersJson(Struct):
    """Worker processes of the loader."""

    count: float
    """Mean number at a time."""
    seen: int
    """Different ones."""
    busy: float | None
    """Share of their time in which they prepared batches."""
    cpu: CpuJson
    stages: Mapping[str, float]
    """Shares of the time in which they prepared batches."""
    top: list[PlaceJson]
    """The same by place in the code."""
    read_bytes_per_s: float | None
    """From storage."""
    read_chars_per_s: float | None
    """By read calls, cached or not."""


class TrainerJson(Struct):
    """A process that trains."""

    pid: int
    rank: int | None
    thread: str
    """The one that trains: `MainThread`, or the kernel's number of it."""
    main_thread: bool
    looks: int
    """Samples of its stack."""
    missed_looks: int
    shares: dict[str, ShareJson]
    """Shares of its time by what it did; empty where no stacks were read."""
    data_wait: Mapping[str, float]
    """Shares of the time in which it waited for data."""
    data_making: Mapping[str, float]
    """Shares of the time in which it prepared batches itself."""
    top: dict[str, list[PlaceJson]]
    """Places in the code by what it did."""
    cpu: CpuJson
    workers: WorkersJson | None


class ProcessJson(Struct):
    pid: int
    command: str


class DeviceSeenJson(Struct):
    """Figures from its driver."""

    utilisation_pct: float | None
    sm_active_pct: float | None
    memory_peak_bytes: int | None


class HostSeenJson(Struct):
    tree_cpus: float | None
    """CPUs that the process and its children kept busy."""
    cpu_budget: float | None
    """CPUs they may use."""
    foreign_cpus: float | None
    """CPUs that others kept busy."""
    cpu_steal_pct: float | None


class AttachedQualityJson(Struct):
    stacks_read: bool
    training_seen: bool
    notes: tuple[str, ...]


class AttachedJson(Struct, kw_only=True):
    format: str = "whyidle-attach"
    version: int = 1
    run: AttachedRunJson
    trainers: list[TrainerJson]
    others: list[ProcessJson]
    """Processes that neither train nor prepare batches."""
    device: DeviceSeenJson
    host: HostSeenJson
    verdict: FindingJson
    findings: list[FindingJson]
    unknown: tuple[str, ...]
    """What cannot be known from outside."""
    quality: AttachedQualityJson


def report(seen: Attached, verdict: Finding, findings: Iterable[Finding]) -> AttachedJson:
    info, facts = seen.info, seen.info["attach"]
    return AttachedJson(
        run=AttachedRunJson(
            id=info.get("id"),
            pid=facts.get("pid"),
            command=info.get("command"),
            started_at=info.get("started_at"),
            seconds=seen.seconds,
            ended_by=facts.get("why"),
            host=info.get("host"),
            device=DeviceJson(seen.device_kind, (info.get("device") or {}).get("title")),
        ),
        trainers=[_trainer(each) for each in seen.trainers],
        others=[ProcessJson(each.pid, each.command or each.name) for each in seen.others],
        device=_device(seen.sampled),
        host=_host(seen.sampled, seen.foreign_cpus),
        verdict=finding(verdict, of_none=0.0),
        findings=[finding(each) for each in findings],
        unknown=UNKNOWN,
        quality=AttachedQualityJson(seen.stacks_read, seen.training_seen, seen.notes),
    )


def _device(seen: Sampled | None) -> DeviceSeenJson:
    if seen is None:
        return DeviceSeenJson(None, None, None)
    return DeviceSeenJson(seen.utilisation_pct, seen.sm_active_pct, seen.memory_peak_bytes)


def _host(seen: Sampled | None, foreign_cpus: float | None) -> HostSeenJson:
    if seen is None:
        return HostSeenJson(None, None, foreign_cpus, None)
    return HostSeenJson(seen.tree_cpus, seen.cpu_budget, foreign_cpus, seen.steal_pct)


def _trainer(trainer: Trainer) -> TrainerJson:
    return TrainerJson(
        pid=trainer.pid,
        rank=trainer.rank,
        thread=trainer.thread,
        main_thread=trainer.main_thread,
        looks=trainer.looks,
        missed_looks=trainer.missed,
        shares={name: ShareJson(each.value, each.low, each.high) for name, each in trainer.shares.items()},
        data_wait=trainer.waits,
        data_making=trainer.stages,
        top={name: _places(places) for name, places in trainer.top.items()},
        cpu=_cpu(trainer.cpu),
        workers=None if trainer.workers is None else _workers(trainer.workers),
    )


def _workers(workers: Workers) -> WorkersJson:
    return WorkersJson(
        count=workers.count,
        seen=workers.seen,
        busy=workers.busy,
        cpu=_cpu(workers.cpu),
        stages=workers.stages,
        top=_places(workers.top),
        read_bytes_per_s=workers.read_bytes_per_s,
        read_chars_per_s=workers.read_chars_per_s,
    )


def _places(top: Iterable[tuple[str, float]]) -> list[PlaceJson]:
    return [PlaceJson(where, share) for where, share in top]


def _cpu(cpu: Cpu) -> CpuJson:
    return CpuJson(cpu.running, cpu.queued, cpu.io, cpu.main, cpu.idle)
