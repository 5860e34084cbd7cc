"""The figures that more than one output shows, each registered once: names, unit, normal value, reader.

Evidence of causes, JSON, tables, limits of `check`, differences, loggers and Prometheus take them from here. A figure
that belongs to one rule alone stays with that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from .exposed_data_wait import MOSTLY_READING
from .facts import MACHINE_FULL_PCT, Facts
from .loader_stats import BUSY, QUEUED_PCT


@dataclass(frozen=True)
class Metric:
    name: str
    """Its name in the JSON of the contract."""
    label: str
    """What evidence and limits call it, in words."""
    unit: str
    of: Callable[[Facts], float | None]
    """`None` where it was not measured."""
    normal: str = ""
    """Value without a cause, to follow "normal:"; empty where that depends on the cause."""
    meaning: str = ""
    """Help text for Prometheus."""
    over_ranks: Callable[[list[float]], float] = fmean
    """The figure of a job from those of its ranks."""
    logged: str = ""
    """Its name for loggers; empty where it is not logged."""
    gauge: str = ""
    """Its name for Prometheus, without `whyidle_`, in base units; empty where it is not exported."""


_METRICS = (
    Metric(
        "utilisation_pct",
        "Utilisation",
        "%",
        lambda f: f.sampled.utilisation_pct,
        meaning="Share of time in which any kernel ran (NVML).",
        logged="utilisation_pct",
        gauge="device_utilisation_ratio",
    ),
    Metric(
        "sm_active_pct",
        "SM active",
        "%",
        lambda f: f.sampled.sm_active_pct,
        meaning="Share of the multiprocessors at work (GPM).",
        logged="sm_active_pct",
        gauge="device_sm_active_ratio",
    ),
    Metric(
        "memory_peak_bytes",
        "Device memory in use, peak",
        "bytes",
        lambda f: f.sampled.memory_peak_bytes,
        meaning="Peak of the device memory in use.",
        over_ranks=max,
        logged="device_memory_bytes",
        gauge="device_memory_bytes",
    ),
    Metric(
        "queue_ready_mean",
        "Batches ready when requested",
        "",
        lambda f: f.loader.queue_ready_mean,
        "1 or more",
        meaning="Mean number of batches ready when the training asks for one.",
        logged="queue_ready",
        gauge="queue_ready_batches",
    ),
    Metric(
        "worker_busy_pct",
        "Workers busy",
        "%",
        lambda f: f.loader.worker_busy_pct,
        f"below {100 * BUSY:.0f} %",
        meaning="Share of time in which loader workers prepared batches.",
        logged="worker_busy_pct",
        gauge="worker_busy_ratio",
    ),
    Metric(
        "cpus_used",
        "CPUs this job uses",
        "CPUs",
        lambda f: f.sampled.tree_cpus,
        meaning="CPUs that the job's processes kept busy.",
        logged="cpus_used",
        gauge="job_cpus",
    ),
    Metric(
        "cpu_steal_pct",
        "CPU time taken by the hypervisor",
        "%",
        lambda f: f.sampled.steal_pct,
        meaning="Share of the machine's CPU time taken by the hypervisor.",
        over_ranks=max,
        logged="cpu_steal_pct",
        gauge="cpu_steal_ratio",
    ),
    Metric(
        "overhead_pct",
        "Time in whyidle's hooks",
        "%",
        lambda f: 100 * f.overhead_share,
        meaning="Share of the training's time spent in whyidle's hooks.",
        over_ranks=max,
        logged="overhead_pct",
        gauge="overhead_ratio",
    ),
    Metric("busy_pct", "Device busy", "%", lambda f: 100 * f.parts.share("compute") if f.told_apart else None),
    Metric(
        "au_pct",
        "Accelerator utilisation (AU)",
        "%",
        lambda f: 100 * f.parts.stepping_share if f.told_apart else None,
    ),
    Metric("cpu_budget", "CPUs this job may use", "CPUs", lambda f: f.sampled.cpu_budget),
    Metric("foreign_cpus", "CPUs other programs use", "CPUs", lambda f: f.foreign_cpus),
    Metric(
        "machine_busy_pct",
        "CPU use of the machine",
        "%",
        lambda f: f.sampled.machine_busy_pct,
        f"below {MACHINE_FULL_PCT:.0f} %",
    ),
    Metric("throttled_s", "Stopped by the CPU quota, summed over CPUs", "s", lambda f: f.sampled.throttled_s, "0 s"),
    Metric(
        "run_queue_pct",
        "Waiting for a CPU, share of preparing batches",
        "%",
        lambda f: f.loader.run_queue_pct,
        f"below {QUEUED_PCT:.0f} %",
    ),
    Metric("cpu_pct", "On a CPU, share of preparing batches", "%", lambda f: f.loader.cpu_pct),
    Metric(
        "read_pct",
        "Reading, share of preparing batches",
        "%",
        lambda f: f.loader.read_pct,
        f"below {100 * MOSTLY_READING:.0f} %",
    ),
    Metric("prep_pct", "Decoding and transforming, share of preparing batches", "%", lambda f: f.loader.prep_pct),
    Metric("collate_pct", "Collating, share of preparing batches", "%", lambda f: f.loader.collate_pct),
    Metric("make_ms_per_sample", "Preparing one sample", "ms", lambda f: f.loader.make_ms_per_sample),
    Metric(
        "samples_per_s_limit",
        "Possible throughput of the loader",
        "samples/s",
        lambda f: f.loader.samples_per_s_limit,
        over_ranks=sum,
    ),
    Metric("mean_batch_bytes", "Bytes in a batch", "bytes", lambda f: f.loader.mean_batch_bytes),
    Metric(
        "handoff_pct", "Hand-over of finished batches, share of exposed wait", "%", lambda f: f.handoff_pct, "near 0 %"
    ),
    Metric(
        "slow_times",
        "Time to prepare batches waited for, relative to others",
        "times",
        lambda f: None if f.waits.slow is None else f.waits.slow.times,
        "about 1",
    ),
    Metric("epochs", "Epochs in the window", "", lambda f: f.waits.epochs),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _METRICS})
"""Metrics by name, in the order of the Prometheus output."""
