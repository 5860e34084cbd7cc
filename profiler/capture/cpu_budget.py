"""How many CPUs a process may really use: what its affinity leaves, and what its cgroups' quotas allow.

`os.cpu_count()` counts the machine. A container with a quota of two CPUs on a 64-core machine still sees 64, and
so does a loader that sizes itself by that number.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class CpuBudget:
    """CPUs a process may use."""

    affinity: int
    """CPUs the scheduler may put it on (affinity mask and cpuset)."""
    quota: float | None
    """CPUs' worth of time the tightest cgroup quota grants; `None` where there is no quota."""
    budget: float
    """The smaller of the two."""


@dataclass(frozen=True)
class CgroupLevel:
    """One cgroup that bounds a process, as a folder of the mounted hierarchy."""

    folder: Path
    version: int


def cpu_budget(pid: int = 0, root: Path = Path("/")) -> CpuBudget:
    """The CPU budget of a process (0: this one). `root` is where `/proc` and `/sys` are looked for.

    Raises:
        ProcessLookupError: there is no such process.
    """
    affinity = len(os.sched_getaffinity(pid))
    quotas = [q for q in map(level_quota, cgroup_levels(pid, root)) if q is not None]
    quota = min(quotas, default=None)
    return CpuBudget(affinity, quota, affinity if quota is None else min(float(affinity), quota))


def cgroup_levels(pid: int = 0, root: Path = Path("/")) -> list[CgroupLevel]:
    """The cgroups that may limit a process's CPU time: its own first, then each above it, as far as visible.

    Both hierarchies where both are mounted; a level without a cpu controller simply holds no quota.
    """
    try:
        own = (root / "proc" / (str(pid) if pid else "self") / "cgroup").read_text()
        mounts = (root / "proc/self/mountinfo").read_text()
    except OSError:
        return []
    paths = parse_cgroup(own)
    levels = []
    for version, mount_root, mount_point in parse_mounts(mounts):
        path = paths.pop(version, None)
        if path is not None:
            top = root / mount_point.lstrip("/")
            levels += [CgroupLevel(folder, version) for folder in _upwards(top, path, mount_root)]
    return levels


def level_quota(level: CgroupLevel) -> float | None:
    """CPUs' worth of time one cgroup grants; `None` without a quota."""
    try:
        if level.version == 2:
            return parse_cpu_max((level.folder / "cpu.max").read_text())
        quota = (level.folder / "cpu.cfs_quota_us").read_text()
        return parse_cfs(quota, (level.folder / "cpu.cfs_period_us").read_text())
    except OSError:
        return None


def parse_cgroup(text: str) -> dict[int, str]:
    """`/proc/PID/cgroup` as the path within the unified hierarchy (2) and within the cpu controller's (1)."""
    paths = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths[2] = path
        elif "cpu" in controllers.split(","):
            paths[1] = path
    return paths


def parse_mounts(text: str) -> Iterator[tuple[int, str, str]]:
    """From `/proc/self/mountinfo`: (version, path the mount shows, mount point) of cgroup mounts with CPU control."""
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not separator or len(fields) < 5 or not kinds:
            continue
        if kinds[0] == "cgroup2":
            yield 2, _unescape(fields[3]), _unescape(fields[4])
        elif kinds[0] == "cgroup" and "cpu" in kinds[-1].split(","):
            yield 1, _unescape(fields[3]), _unescape(fields[4])


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


def _upwards(top: Path, path: str, mount_root: str) -> Iterator[Path]:
    """From a cgroup's folder up to the mount point; the mount point alone where the path lies outside it.

    A container without a cgroup namespace reads its path on the host but sees only its own cgroup mounted.
    """
    pure = PurePosixPath(path)
    if ".." in pure.parts or not pure.is_relative_to(mount_root):
        yield top
        return
    folder = top / pure.relative_to(mount_root)
    while folder != top:
        yield folder
        folder = folder.parent
    yield top


def _unescape(path: str) -> str:
    """mountinfo writes blanks as `\\040`."""
    return path.replace("\\040", " ")
