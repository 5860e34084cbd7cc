"""What a process may really use: CPUs (affinity, quotas of its cgroups) and memory (limits of its cgroups).

`os.cpu_count()` and `/proc/meminfo` tell of the machine. A container with a quota of two CPUs on a 64-core machine
still sees 64, and so does a loader that sizes itself by that number; one of 4 GiB sees 256, and is killed at 4.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..record.schema import MemoryLimitOf
from .sampler.procfs import parse_pairs, read, read_text

NO_LIMIT_BYTES = 1 << 60
"""What version 1 writes for no limit is the largest multiple of a page; as much as this no machine has."""
_TAKEN_BACK = (b"inactive_file", b"active_file", b"slab_reclaimable")
"""Of `memory.stat`."""
_CONTAINER = re.compile(r"docker|kubepods|containerd|libpod|lxc|crio|podman|machine\.slice")
_JOB = re.compile(r"slurm|/job[_.]|pbs|htcondor|/lsf/|sge")


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
        # Blanks in a path are written as \040.
        fields, kinds = [field.replace("\\040", " ") for field in left.split()], right.split()
        if not separator or len(fields) < 5 or not kinds:
            continue
        if kinds[0] == "cgroup2":
            yield 2, fields[3], fields[4]
        elif kinds[0] == "cgroup" and controller in kinds[-1].split(","):
            yield 1, fields[3], fields[4]


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


@dataclass(frozen=True)
class MemoryLimit:
    """A control group's limit on memory."""

    level: CgroupLevel
    whose: int
    """A `MemoryLimitOf` value."""
    bytes: int
    slows: bool
    """It is `memory.high`: above it the kernel slows the group down and takes pages back; at others it kills."""
    swap_bytes: int | None
    """What the group may put into swap; `None`: as much as there is."""


@dataclass(frozen=True)
class LimitUse:
    """How much of a limit is in use."""

    limit: MemoryLimit
    used_bytes: int
    """Without the page cache and whatever else the kernel takes back before it kills."""
    swap_used_bytes: int | None

    @property
    def left_bytes(self) -> int:
        return max(0, self.limit.bytes - self.used_bytes)


def memory_limits(pid: int = 0, root: Path = Path("/")) -> list[MemoryLimit]:
    """The limits on a process's memory: of its own control group, then of those above it. Two small files a level.

    What is no less than the machine's memory limits nothing, and is left out.
    """
    whole = machine_memory(root).get(b"MemTotal")
    most = NO_LIMIT_BYTES if whole is None else 1024 * whole
    limits = []
    levels = cgroup_levels(pid, root, "memory")
    for level in levels:
        names = ("memory.max", "memory.high") if level.version == 2 else ("memory.limit_in_bytes",)
        told = {name: value for name in names if (value := _number(level, name)) is not None}
        name = min(told, key=lambda each: told[each], default=None)
        if name is not None and told[name] < most:
            whose = _whose(level, level is levels[-1], root)
            limits.append(MemoryLimit(level, whose, told[name], name == "memory.high", _swap(level, told[name])))
    return limits


def tightest(limits: Iterable[MemoryLimit]) -> LimitUse | None:
    """The limit that leaves least, with its use; `None` without limits. Three files a limit."""
    uses = [use for limit in limits if (use := _use(limit)) is not None]
    return min(uses, key=lambda use: use.left_bytes, default=None)


def oom_kills(levels: Iterable[CgroupLevel], root: Path = Path("/")) -> int | None:
    """Processes that the kernel killed for want of memory so far: of the first level that tells, else the machine's."""
    for level in levels:
        name = "memory.events" if level.version == 2 else "memory.oom_control"
        killed = parse_pairs(read(str(level.folder / name))).get(b"oom_kill")
        if killed is not None:
            return killed
    return parse_pairs(read(str(root / "proc/vmstat"))).get(b"oom_kill")


def memory_available(root: Path = Path("/")) -> int | None:
    """Bytes that could still be given to this process, by the machine and by its control groups; `None`: not told."""
    machine = machine_memory(root).get(b"MemAvailable")
    of_group = tightest(memory_limits(0, root))
    told = [1024 * machine] if machine is not None else []
    return min(told + ([of_group.left_bytes] if of_group is not None else []), default=None)


def machine_memory(root: Path) -> dict[bytes, int]:
    """`/proc/meminfo`, in kB."""
    return parse_pairs(read(str(root / "proc/meminfo")))


def _use(limit: MemoryLimit) -> LimitUse | None:
    level = limit.level
    new = level.version == 2
    used = _number(level, "memory.current" if new else "memory.usage_in_bytes")
    if used is None:
        return None
    stat = parse_pairs(read(str(level.folder / "memory.stat")))
    kept = used - sum(stat.get(name if new else b"total_" + name, 0) for name in _TAKEN_BACK)
    swap = _number(level, "memory.swap.current" if new else "memory.memsw.usage_in_bytes")
    if swap is not None and not new:
        swap = max(0, swap - used)  # counted together there
    return LimitUse(limit, max(0, kept), swap)


def _swap(level: CgroupLevel, limit_bytes: int) -> int | None:
    if level.version == 2:
        return _number(level, "memory.swap.max")
    both = _number(level, "memory.memsw.limit_in_bytes")
    return None if both is None else max(0, both - limit_bytes)


def _number(level: CgroupLevel, name: str) -> int | None:
    """`None` where it is `max`, no limit, or not told."""
    text = (read(str(level.folder / name)) or b"").strip()
    return int(text) if text.isdigit() and int(text) < NO_LIMIT_BYTES else None


def _whose(level: CgroupLevel, top: bool, root: Path) -> int:
    if _CONTAINER.search(level.path):
        return MemoryLimitOf.CONTAINER
    if _JOB.search(level.path):
        return MemoryLimitOf.JOB
    if top and in_container(root):
        # In a namespace of its own the container's group is the top.
        return MemoryLimitOf.CONTAINER
    return MemoryLimitOf.SLICE if level.path.endswith(".slice") else MemoryLimitOf.GROUP


def in_container(root: Path = Path("/")) -> bool:
    """Whether this is a container: then the way out of most troubles lies with who started it.

    By the files of Docker, Podman, whatever systemd runs in, Kubernetes (`/var/run` is `/run`) or Apptainer, the
    variables this process was started with, the first process's groups, or a `/` made of an image's layers. Systems
    that boot from an image (composefs) mount it under its name.
    """
    files = (".dockerenv", "run/.containerenv", "run/systemd/container", "run/secrets/kubernetes.io", ".singularity.d")
    if any((root / name).exists() for name in files):
        return True
    variables = read_text(root / "proc/self/environ").split("\0")
    if any(variable.startswith(("container=", "KUBERNETES_SERVICE_HOST=")) for variable in variables):
        return True
    # In a cgroup namespace of its own, as cgroup 2 has it, a container is told "0::/".
    groups = read_text(root / "proc/1/cgroup")
    if any(group in groups for group in ("docker", "kubepods", "containerd", "libpod", "lxc")):
        return True
    mounts = (line.partition(" - ") for line in read_text(root / "proc/self/mountinfo").splitlines())
    return any(m.split()[4:5] == ["/"] and kind.split()[:2] == ["overlay", "overlay"] for m, _, kind in mounts)
