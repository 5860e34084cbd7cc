"""How many CPUs a process may really use: what its affinity leaves, and what its cgroups' quotas allow.

`os.cpu_count()` counts the machine. A container with a quota of two CPUs on a 64-core machine still sees 64, and
so does a loader that sizes itself by that number.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from .cgroups import CgroupLevel, cgroup_levels


@dataclass(frozen=True)
class CpuBudget:
    """CPUs a process may use."""

    affinity: int
    """CPUs the scheduler may put it on (affinity mask and cpuset)."""
    quota: float | None
    """CPUs' worth of time the tightest cgroup quota grants; `None` where there is no quota."""
    budget: float
    """The smaller of the two."""


def cpu_budget(pid: int = 0, root: Path = Path("/")) -> CpuBudget:
    """The CPU budget of a process (0: this one). `root` is where `/proc` and `/sys` are looked for.

    Raises:
        ProcessLookupError: there is no such process.
    """
    affinity = len(os.sched_getaffinity(pid))
    quotas = [q for q in map(level_quota, cgroup_levels(pid, root)) if q is not None]
    quota = min(quotas, default=None)
    return CpuBudget(affinity, quota, affinity if quota is None else min(float(affinity), quota))


def level_quota(level: CgroupLevel) -> float | None:
    """CPUs' worth of time one cgroup grants; `None` without a quota."""
    try:
        if level.version == 2:
            return parse_cpu_max((level.folder / "cpu.max").read_text())
        quota = (level.folder / "cpu.cfs_quota_us").read_text()
        return parse_cfs(quota, (level.folder / "cpu.cfs_period_us").read_text())
    except OSError:
        return None


def parse_cpu_max(text: str) -> float | None:
    """`cpu.max`, such as `150000 100000` (1.5 CPUs) or `max 100000` (no quota)."""
    quota, _, period = text.strip().partition(" ")
    return _ratio(quota, period or "100000")


def parse_cfs(quota: str, period: str) -> float | None:
    """`cpu.cfs_quota_us` over `cpu.cfs_period_us`; a quota of -1 is none."""
    return _ratio(quota.strip(), period.strip())


def _ratio(quota: str, period: str) -> float | None:
    if not (quota.isdigit() and period.isdigit()) or int(period) == 0:
        return None
    return int(quota) / int(period)
