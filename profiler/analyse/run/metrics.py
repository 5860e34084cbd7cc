"""The figures that more than one output shows, each registered once: names, unit, normal value, reader.

Evidence of causes, JSON, tables, limits of `check`, differences, loggers and Prometheus take them from here. A figure
that belongs to one rule alone stays with that rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter as read
from types import MappingProxyType

from ...record.schema import NAN
from .facts import MACHINE_FULL_PCT, Facts
from .loader_stats import BUSY, MOSTLY_READING, QUEUED_PCT


@dataclass(frozen=True)
class Metric:
    name: str
    """Its name in the JSON of the contract."""
    label: str
    """What evidence and limits call it, in words."""
    unit: str
    of: Callable[[Facts], float]
    """NaN where it was not measured."""
    normal: str = ""
    """Value without a cause, to follow "normal:"; empty where that depends on the cause."""
    logged: str = ""
    """Its name for loggers; empty where it is not logged."""
    gauge: str = ""
    """Its name for Prometheus, without `whyidle_`, in base units; empty: not exported."""
    meaning: str = ""
    """Help text for Prometheus."""


def _pct(of: Callable[[Facts], float]) -> Callable[[Facts], float]:
    """A share of the computing in percent, where that is told from waiting."""
    return lambda facts: 100 * of(facts) if facts.told_apart else NAN


def _below(limit: float) -> str:
    return f"below {limit:.0f} %"


_METRICS = (
    Metric("utilisation_pct", "Utilisation", "%", read("sampled.utilisation_pct")),
    Metric("sm_active_pct", "SM active", "%", read("sampled.sm_active_pct")),
    Metric("memory_peak_bytes", "Device memory in use, peak", "bytes", read("sampled.memory_peak_bytes")),
    Metric("queue_ready_mean", "Batches ready when requested", "", read("loader.queue_ready_mean"), "1 or more"),
    Metric("worker_busy_pct", "Workers busy", "%", read("loader.worker_busy_pct"), _below(100 * BUSY)),
    Metric("cpus_used", "CPUs this job uses", "CPUs", read("sampled.tree_cpus")),
    Metric("cpu_steal_pct", "CPU time taken by the hypervisor", "%", read("sampled.steal_pct")),
    Metric("overhead_pct", "Time in whyidle's hooks", "%", lambda f: 100 * f.overhead_share),
    Metric("busy_pct", "Device busy", "%", _pct(lambda f: f.parts.share("compute"))),
    Metric("au_pct", "Accelerator utilisation (AU)", "%", _pct(lambda f: f.parts.stepping_share)),
    Metric("cpu_budget", "CPUs this job may use", "CPUs", read("sampled.cpu_budget")),
    Metric("foreign_cpus", "CPUs other programs use", "CPUs", read("foreign_cpus")),
    Metric(
        "machine_busy_pct", "CPU use of the machine", "%", read("sampled.machine_busy_pct"), _below(MACHINE_FULL_PCT)
    ),
    Metric("throttled_s", "Stopped by the CPU quota, summed over CPUs", "s", read("sampled.throttled_s"), "0 s"),
    Metric(
        "run_queue_pct",
        "Waiting for a CPU, share of preparing batches",
        "%",
        read("loader.run_queue_pct"),
        _below(QUEUED_PCT),
    ),
    Metric("cpu_pct", "On a CPU, share of preparing batches", "%", read("loader.cpu_pct")),
    Metric(
        "read_pct", "Reading, share of preparing batches", "%", read("loader.read_pct"), _below(100 * MOSTLY_READING)
    ),
    Metric("prep_pct", "Decoding and transforming, share of preparing batches", "%", read("loader.prep_pct")),
    Metric("collate_pct", "Collating, share of preparing batches", "%", read("loader.collate_pct")),
    Metric("make_ms_per_sample", "Preparing one sample", "ms", read("loader.make_ms_per_sample")),
    Metric("samples_per_s_limit", "Possible throughput of the loader", "samples/s", read("loader.samples_per_s_limit")),
    Metric("mean_batch_bytes", "Bytes in a batch", "bytes", read("loader.mean_batch_bytes")),
    Metric("handoff_pct", "Hand-over of finished batches, share of exposed wait", "%", read("handoff_pct"), "near 0 %"),
    Metric(
        "slow_times",
        "Time to prepare batches waited for, relative to others",
        "times",
        read("waits.slow_times"),
        "about 1",
    ),
    Metric("epochs", "Epochs in the window", "", read("waits.epochs")),
)
_EXPORTED = {
    "utilisation_pct": ("", "device_utilisation_ratio", "Share of time in which any kernel ran (NVML)."),
    "sm_active_pct": ("", "device_sm_active_ratio", "Share of the multiprocessors at work (GPM)."),
    "memory_peak_bytes": ("device_memory_bytes", "device_memory_bytes", "Peak of the device memory in use."),
    "queue_ready_mean": (
        "queue_ready",
        "queue_ready_batches",
        "Mean number of batches ready when the training asks for one.",
    ),
    "worker_busy_pct": ("", "worker_busy_ratio", "Share of time in which loader workers prepared batches."),
    "cpus_used": ("", "job_cpus", "CPUs that the job's processes kept busy."),
    "cpu_steal_pct": ("", "cpu_steal_ratio", "Share of the machine's CPU time taken by the hypervisor."),
    "overhead_pct": ("", "overhead_ratio", "Share of the training's time spent in whyidle's hooks."),
}
"""Figures for loggers and Prometheus: name for loggers if another one, gauge, meaning."""


_BY_NAME = {each.name: each for each in _METRICS}
METRICS: Mapping[str, Metric] = MappingProxyType(
    _BY_NAME
    | {
        name: replace(_BY_NAME[name], logged=logged or name, gauge=gauge, meaning=meaning)
        for name, (logged, gauge, meaning) in _EXPORTED.items()
    }
)
"""Metrics by name, in the order of the Prometheus output."""
