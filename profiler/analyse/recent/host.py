"""The machine and the job's share of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .gathered import RunRecords
from .series import SECOND_NS, Stamps, last_of, mean_of, means, rate_since, rates, told
from .snapshot import HostView

LAST_NS = 10 * SECOND_NS
"""Rates and shares are of so long."""
PROPORTIONAL_NS = 60 * SECOND_NS
"""Memory with shared pages divided is measured seldom; where it is not after so long, each process counts its own."""


def host_of(run: RunRecords, edges: Stamps) -> HostView:
    """What the sampler saw; all `None` where there is none."""
    looks = run.host
    times = looks["t_ns"]
    since = run.now_ns - LAST_NS
    late = looks[times >= since]

    def rate(name: str) -> float | None:
        return rate_since(times, looks[name], since)

    budget = last_of(looks["cpus"])
    cpus = (run.info.get("host") or {}).get("cpus")
    machine = HostView(
        cpu_budget=None if budget is None else budget / 1000,
        machine_cpus=cpus if isinstance(cpus, int) else None,
        machine_busy_pct=mean_of(late["machine_busy_pct"]),
        machine_busy=told(means(times[:-1], times[1:], looks["machine_busy_pct"][1:], edges)),
        steal_pct=mean_of(late["steal_pct"]),
        iowait_pct=mean_of(late["machine_iowait_pct"]),
        memory_available_bytes=last_of(late["memory_available_bytes"]),
        shm_used_bytes=last_of(late["shm_used_bytes"]),
        shm_total_bytes=last_of(late["shm_total_bytes"]),
    )
    if run.info.get("watching"):
        return machine  # the sampler was given no job to look at, but the process that started it
    busy, throttled = rate("tree_cpu_ns"), rate("throttled_us")
    memory = last_of(looks["tree_pss_bytes"])
    if memory is None and len(times) and times[-1] - times[0] > PROPORTIONAL_NS:
        memory = last_of(late["tree_rss_bytes"])
    return replace(
        machine,
        tree_cpus=None if busy is None else busy / SECOND_NS,
        cpus=told(rates(times, looks["tree_cpu_ns"], edges) / SECOND_NS),
        read_bytes_s=rate("read_chars_bytes"),
        storage_bytes_s=rate("read_storage_bytes"),
        memory_used_bytes=memory,
        # Told in µs, summed over groups.
        throttled_pct=None if throttled is None else float(np.clip(100 * throttled / 1e6, 0.0, 100.0)),
    )
