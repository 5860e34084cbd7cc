"""How many CPUs a process may really use: what its affinity leaves, and what its cgroups' quotas allow.

`os.cpu_count()` counts the machine. A container with a quota of two CPUs on a 64-core machine still sees 64, and
so does a loader that sizes itself by that number.

The control groups (cgroups) that bound a process, as folders of the mounted hierarchies.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True)
class CgroupLevel:
    """One cgroup that bounds a process, as a folder of the mounted hierarchy."""

    folder: Path
    version: int
    path: str
    """Where it lies in its hierarchy, as far as this process is told: below `/` of a container, say."""


def cgroup_levels(pid: int = 0, root: Path = Path("/"), controller: str = "cpu") -> list[CgroupLevel]:
    """The cgroups by which a controller may limit a process: its own first, then each above it, as far as visible.

    Both hierarchies where both are mounted; a level without that controller simply holds no limit.

    Args:
        pid: the process; 0: this one.
        root: where `/proc` and `/sys` are looked for.
        controller: `cpu` or `memory`; each may have a hierarchy of its own in version 1.
    """
    try:
        own = (root / "proc" / (str(pid) if pid else "self") / "cgroup").read_text()
        mounts = (root / "proc/self/mountinfo").read_text()
    except OSError:
        return []
    paths = parse_cgroup(own, controller)
    levels = []
    for version, mount_root, mount_point in parse_mounts(mounts, controller):
        path = paths.pop(version, None)
        if path is not None:
            top = root / mount_point.lstrip("/")
            for folder in _upwards(top, path, mount_root):
                at = PurePosixPath(mount_root) / folder.relative_to(top)
                levels.append(CgroupLevel(folder, version, str(at)))
    return levels


def parse_cgroup(text: str, controller: str = "cpu") -> dict[int, str]:
    """`/proc/PID/cgroup` as the path within the unified hierarchy (2) and within a controller's (1)."""
    paths = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths[2] = path
        elif controller in controllers.split(","):
            paths[1] = path
    return paths


def parse_mounts(text: str, controller: str = "cpu") -> Iterator[tuple[int, str, str]]:
    """From `/proc/self/mountinfo`: (version, path the mount shows, mount point) of a controller's cgroup mounts."""
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not separator or len(fields) < 5 or not kinds:
            continue
        if kinds[0] == "cgroup2":
            yield 2, _unescape(fields[3]), _unescape(fields[4])
        elif kinds[0] == "cgroup" and controller in kinds[-1].split(","):
            yield 1, _unescape(fields[3]), _unescape(fields[4])


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
    """CPUs' worth of time one cgroup grants; `None` without a quota.

    Version 2 has both in `cpu.max`, such as `150000 100000` (1.5 CPUs) or `max 100000` (no quota); in version 1 a quota
    of -1 is none.
    """
    names = ("cpu.max",) if level.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        told = " ".join((level.folder / name).read_text() for name in names).split()
    except OSError:
        return None
    quota, period = (*told, "100000")[:2] if told else ("", "")
    return int(quota) / int(period) if quota.isdigit() and period.isdigit() and int(period) else None
