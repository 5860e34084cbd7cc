"""What a report cannot see or trust because of the sampler, the host, or other programs: a sentence each."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..where.looks import ProcessLooks
from .resource_usage import Sampled
from .window import Window

MOST_LATE_PCT = 5.0
"""Percent of the samples that may come late before that is said."""
MOST_STEAL_PCT = 5.0
"""Percent of the machine's CPU time taken by the hypervisor from which that is said."""
LEAST_FOREIGN_CPUS = 0.3
"""CPUs that other programs use, from which they are mentioned: less is the system's own housekeeping and the
sampler."""
LEAST_UNSEEN_S = 2.0
"""Seconds at an end of the window without a sample from which that is said, if they are `LEAST_UNSEEN_SHARE` as
well."""
LEAST_UNSEEN_SHARE = 0.02
"""Share of the window without a sample at one end, from which that is said, if it is `LEAST_UNSEEN_S` as well."""
LEAST_DEVICE_UNSEEN_S = 3.0
"""Seconds at the end without a sample of the device, though the host was sampled, from which that is said: states of a
GPU come once a second."""
LEAST_THROTTLED_SHARE = 0.01
"""Time that a CPU quota stopped the job, summed over CPUs, as a share of the window, from which that is said."""
MOST_SAMPLER_CPUS = 0.05
"""CPUs that the sampler itself may use before that is said."""
LEAST_THERMAL_PCT = 1.0
"""Percent of the time that temperature held clocks down from which that is said."""
LEAST_POWER_CAPPED_PCT = 10.0
"""Percent of the time that the power cap held clocks down from which that is said: a GPU under full load touches it now
and then."""
OWN_BEYOND_BYTES = 2_000_000_000
"""Device memory that a training takes beside its allocator without any other process, at most: a context (about 0.5
GB), loaded kernels and buffers of libraries."""

LEAST_LOOKED_AT = 50
"""Stack samples in the window from which it is said how many of them failed."""
MOST_FAILED_LOOKS = 0.2
"""Share of the looks that may fail before that is said."""


def quality_notes(
    sampled: Sampled,
    window: Window,
    *,
    device_kind: str,
    foreign_cpus: float | None,
    own_processes: int = 1,
    found: Collection[str | None] = (),
) -> tuple[str, ...]:
    """Sentences about samples that are missing or late, and about others on the machine and on the GPU.

    Args:
        sampled: what the sampler saw in the window.
        window: the window that the report is about.
        device_kind: `cpu`, `cuda` or `emulated`.
        foreign_cpus: CPUs that other programs kept busy.
        own_processes: processes of this training with a context on one GPU.
        found: causes that the report names already.
    """
    if sampled.samples == 0:
        return ("The sampler recorded nothing in this window: utilisation and CPU figures are missing.",)
    return (
        *_unseen(sampled, window, device_kind),
        *_host(sampled, window, foreign_cpus),
        *(_gpu(sampled, own_processes, found) if device_kind == "cuda" else ()),
    )


def _unseen(sampled: Sampled, window: Window, device_kind: str) -> Iterator[str]:
    wall_s = window.wall_ns / 1e9
    least_s = max(LEAST_UNSEEN_S, LEAST_UNSEEN_SHARE * wall_s)
    if sampled.host_samples == 0:
        yield "The sampler recorded nothing of the host in this window: CPU figures are missing."
    begin, end = sampled.unseen_begin_s, sampled.unseen_end_s
    if begin is not None and begin >= least_s:
        yield (
            f"The sampler's first sample came {begin:.0f} s into the {wall_s:.0f} s of the window: its means leave out "
            "the time before it."
        )
    if end is not None and end >= least_s:
        yield (
            f"The sampler's last sample came {end:.0f} s before the end of the window of {wall_s:.0f} s: its means "
            "leave out the time after it."
        )
    if device_kind != "cpu":
        if sampled.device_samples == 0:
            yield "The sampler recorded no accelerator in this window: utilisation and device memory are missing."
        device_end = sampled.device_unseen_end_s
        if device_end is not None and device_end - (end or 0.0) >= max(LEAST_DEVICE_UNSEEN_S, least_s):
            yield (
                f"Samples of the accelerator ended {device_end:.0f} s before the end of the window of {wall_s:.0f} s: "
                "utilisation is the mean of the part before."
            )
    late = sampled.late_samples_pct
    if late is not None and late > MOST_LATE_PCT:
        yield f"{late:.0f} % of the samples came more than 0.1 s late: the host was too busy to sample on time."


def _host(sampled: Sampled, window: Window, foreign_cpus: float | None) -> Iterator[str]:
    steal, throttled = sampled.steal_pct, sampled.throttled_s
    if steal is not None and steal >= MOST_STEAL_PCT:
        yield f"The hypervisor took {steal:.0f} % of the CPU: timings vary from run to run."
    if foreign_cpus is not None and foreign_cpus >= LEAST_FOREIGN_CPUS:
        yield f"Other programs on this machine used {foreign_cpus:.1f} CPUs meanwhile."
    if throttled is not None and throttled >= LEAST_THROTTLED_SHARE * window.wall_ns / 1e9:
        budget = "" if sampled.cpu_budget is None else f" of {sampled.cpu_budget:.3g} CPUs"
        yield (
            f"The CPU quota{budget} stopped the job for {throttled:.1f} s, summed over CPUs: all waits include "
            "that time."
        )
    own = sampled.sampler_cpus
    if own is not None and own >= MOST_SAMPLER_CPUS:
        yield f"The sampler itself used {100 * own:.0f} % of a CPU."


def _gpu(sampled: Sampled, own_processes: int, found: Collection[str | None]) -> Iterator[str]:
    others = None if sampled.gpu_processes is None else sampled.gpu_processes - own_processes
    least, beyond = sampled.others_least_bytes, sampled.beyond_training_bytes
    if "device.contended" in found:
        pass
    elif others is not None and others > 0:
        who = "1 other process" if others == 1 else f"{others} other processes"
        yield (
            f"{who} had a context on the GPU{_held(least, beyond)}: utilisation counts their kernels as well, and "
            "steps may have waited for them."
        )
    elif beyond is not None and beyond >= OWN_BEYOND_BYTES:
        yield (
            f"{beyond / 1e9:.1f} GB of the GPU's memory were in use beyond what torch held: by a process that the "
            "driver does not show here, or by libraries beside torch's allocator."
        )
    if "device.throttled" in found:
        return
    thermal, capped = sampled.thermal_pct, sampled.power_capped_pct
    if thermal is not None and thermal >= LEAST_THERMAL_PCT:
        yield f"Temperature held the GPU's clocks down for {thermal:.0f} % of the time: computing took longer."
    if capped is not None and capped >= LEAST_POWER_CAPPED_PCT:
        yield f"The power cap held the GPU's clocks down for {capped:.0f} % of the time: computing took longer."


def _held(least: int | None, beyond: int | None) -> str:
    """What others hold: at least that of all processes but the largest, at most what is not torch's."""
    if least is not None and beyond is not None and beyond > least:
        return f", with {least / 1e9:.1f} to {beyond / 1e9:.1f} GB of its memory"
    if least is not None:
        return f", with {least / 1e9:.1f} GB of its memory at least"
    return "" if beyond is None else f", with {beyond / 1e9:.1f} GB of its memory at most"


def look_notes(looks: ProcessLooks, window: Window) -> Iterator[str]:
    """Sentences about stack samples within the window of which many failed: a stack that changes while it is read
    fails, one that waits never does."""
    for whose, every in (("training", looks.training), ("workers", looks.workers)):
        within = every.between(window.begin_ns, window.end_ns)
        if len(within) >= LEAST_LOOKED_AT and within.failed >= MOST_FAILED_LOOKS * len(within):
            of = f"{within.failed} of {len(within)} stack samples of the {whose} failed"
            yield f"{of}, because the stack changed meanwhile: running lines take a larger share than shown."
