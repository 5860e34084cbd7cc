"""CPU budgets and limits on memory, read from copies of /proc and /sys/fs/cgroup as containers, slices and batch
systems show them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from whyidle.capture import limits
from whyidle.capture.sampler import host
from whyidle.capture.sampler.host import Host
from whyidle.record.schema import HOST, MEMORY, NOT_MEASURED, Kind, MemoryLimitOf

V2 = "31 23 0:28 {shown} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\nnonsense\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "34 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)
GIB = 1 << 30
S = 10**9


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def machine(root: Path, cgroup: str, groups: dict[str, str], mounts: str = V2.format(shown="/")) -> Path:
    """A machine of 64 GiB, of which 32 can be given; process 77 and this one are in the same groups."""
    files = {
        "proc/self/cgroup": cgroup,
        "proc/77/cgroup": cgroup,
        "proc/self/mountinfo": mounts,
        "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n",
        "proc/vmstat": "nr_free_pages 9\noom_kill 3\n",
        **{f"sys/fs/cgroup/{name}": text for name, text in groups.items()},
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def group(path: str, limit: int | str, used: int, cache: int = 0, **more: Any) -> dict[str, str]:
    """A group of version 2; further files by their names, `_` for `.`."""
    files = {"memory.max": limit, "memory.current": used, "memory.stat": f"anon 1\ninactive_file {cache}\n"}
    files |= {name.replace("_", "."): value for name, value in more.items()}
    return {f"{path}/{name}".lstrip("/"): f"{text}\n" for name, text in files.items()}


def cfs(group: str, quota: int) -> dict[str, str]:
    return {f"{group}/cpu.cfs_quota_us": f"{quota}\n", f"{group}/cpu.cfs_period_us": "100000\n"}


@pytest.mark.parametrize(
    ("cgroup", "mounts", "files", "quota"),
    [
        # The tightest level counts, whichever has it.
        ("0::/a/b", V2, {"a/cpu.max": "150000 100000\n", "cpu.max": "4000000 100000", "a/b/cpu.max": "max 1"}, 1.5),
        ("0::/a", V2, {"a/cpu.max": "20000 100000"}, 0.2),
        ("0::/a", V2, {"a/cpu.max": "300000"}, 3.0),
        *(("0::/a", V2, {"a/cpu.max": text}, None) for text in ("", "abc def", "100000 0", "max 100000")),
        # In the first hierarchy that of the cpu controller alone.
        ("9:cpuset:/j\n4:cpu,cpuacct:/j\n0::/\n", V1, cfs("cpu,cpuacct/j", 250000) | cfs("cpuset/j", 1000), 2.5),
        ("4:cpu,cpuacct:/a:b\n", V1, cfs("cpu,cpuacct/a:b", 50000), 0.5),
        ("4:cpu,cpuacct:/j\n", V1, cfs("cpu,cpuacct/j", -1), None),
        # A container without a cgroup namespace sees its own group at the mount.
        ("0::/docker/abc\n", V2.replace("{shown}", "/docker/abc"), {"cpu.max": "50000 100000"}, 0.5),
        ("0::/../other\n", V2, {"cpu.max": "50000 100000"}, 0.5),
        ("0::/x y/a\n", V2.replace("{shown}", "/x\\040y"), {"a/cpu.max": "50000 100000"}, 0.5),
    ],
)
def test_the_cpu_budget_is_what_affinity_and_the_tightest_quota_leave(
    tmp_path: Path, cgroup: str, mounts: str, files: dict[str, str], quota: float | None
) -> None:
    root = machine(tmp_path, cgroup, files, mounts.format(shown="/"))
    assert limits.cpu_budget(root=root) == limits.cpu_budget(77, root) == limits.CpuBudget(8, quota, quota or 8)


def test_levels_are_a_processs_own_group_and_those_above_it(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/pods/a\n", {})
    levels = [(str(level.folder.relative_to(root)), level.path) for level in limits.cgroup_levels(77, root)]
    top = "sys/fs/cgroup"
    assert levels == [(f"{top}/pods/a", "/pods/a"), (f"{top}/pods", "/pods"), (top, "/")]


def test_a_process_that_is_gone_has_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ProcessLookupError):
        limits.cpu_budget(2**22 + 1)


def test_the_limit_on_memory_that_leaves_least_counts_whichever_level_has_it(tmp_path: Path) -> None:
    groups = group("user.slice/run.scope", 8 * GIB, 1 * GIB) | group("user.slice", 10 * GIB, 9 * GIB)
    root = machine(tmp_path, "0::/user.slice/run.scope\n", groups)
    assert [limit.bytes for limit in limits.memory_limits(77, root)] == [8 * GIB, 10 * GIB]
    use = limits.tightest(limits.memory_limits(77, root))
    assert use is not None
    assert (use.limit.level.path, use.limit.whose, use.left_bytes) == ("/user.slice", MemoryLimitOf.SLICE, 1 * GIB)
    assert limits.memory_available(root) == 1 * GIB


def test_the_page_cache_of_a_group_is_not_used_up(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job\n", group("job", 4 * GIB, 4 * GIB, cache=3 * GIB))
    use = limits.tightest(limits.memory_limits(0, root))
    assert use is not None
    assert (use.used_bytes, use.left_bytes, use.limit.whose) == (1 * GIB, 3 * GIB, MemoryLimitOf.GROUP)


@pytest.mark.parametrize(
    ("limit", "high", "bytes_and_slows"),
    [
        (4 * GIB, 2 * GIB, (2 * GIB, True)),
        (4 * GIB, "max", (4 * GIB, False)),
        # None, or one beyond the machine, leaves the machine.
        ("max", "max", None),
        (64 * GIB, "max", None),
        (2**63 - 4096, "max", None),
    ],
)
def test_a_group_that_is_slowed_down_before_it_is_killed_is_told(
    tmp_path: Path, limit: int | str, high: int | str, bytes_and_slows: tuple[int, bool] | None
) -> None:
    more = {"memory_high": high, "memory_swap_max": 0, "memory_swap_current": 0}
    root = machine(tmp_path, "0::/job\n", group("job", limit, GIB, **more))
    found = limits.memory_limits(0, root)
    assert [(each.bytes, each.slows) for each in found] == ([bytes_and_slows] if bytes_and_slows else [])
    assert all(each.swap_bytes == 0 for each in found)
    assert limits.memory_available(root) == (bytes_and_slows[0] - GIB if bytes_and_slows else 32 * GIB)
    assert limits.memory_available(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("path", "container", "whose"),
    [
        ("/system.slice/docker-0af1.scope", False, MemoryLimitOf.CONTAINER),
        ("/kubepods.slice/kubepods-pod1.slice", False, MemoryLimitOf.CONTAINER),
        ("/slurm/uid_1000/job_77/step_0", False, MemoryLimitOf.JOB),
        ("/user.slice/user-1000.slice", False, MemoryLimitOf.SLICE),
        ("/mine", False, MemoryLimitOf.GROUP),
        ("/", False, MemoryLimitOf.GROUP),
        ("/", True, MemoryLimitOf.CONTAINER),  # the top of what is seen
    ],
)
def test_whose_limit_it_is_stands_in_the_path(tmp_path: Path, path: str, container: bool, whose: int) -> None:
    root = machine(tmp_path, f"0::{path}\n", group(path, GIB, 0))
    if container:
        (root / ".dockerenv").touch()
    assert [limit.whose for limit in limits.memory_limits(0, root)] == [whose]


def test_the_first_hierarchy_has_files_of_its_own(tmp_path: Path) -> None:
    files = {
        "memory.limit_in_bytes": 4 * GIB,
        "memory.memsw.limit_in_bytes": 5 * GIB,
        "memory.usage_in_bytes": 3 * GIB,
        "memory.memsw.usage_in_bytes": 3 * GIB + 7,
        "memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    }
    groups = {f"memory/docker/{name}": f"{text}\n" for name, text in files.items()}
    root = machine(tmp_path, "9:memory:/docker\n4:cpu:/elsewhere\n", groups, V1)
    use = limits.tightest(limits.memory_limits(0, root))
    assert use is not None
    assert (use.limit.bytes, use.limit.swap_bytes, use.used_bytes, use.swap_used_bytes) == (4 * GIB, GIB, 2 * GIB, 7)
    assert limits.oom_kills(limits.cgroup_levels(0, root, "memory"), root) == 2


def test_kills_are_the_own_groups_or_else_the_machines(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job\n", group("job", "max", 0, memory_events="low 0\noom 1\noom_kill 1\n"))
    assert limits.oom_kills(limits.cgroup_levels(0, root, "memory"), root) == 1
    assert limits.oom_kills([], root) == 3
    assert limits.oom_kills([], tmp_path / "nothing") is None


def named(kind: Kind, row: list[float | int] | None) -> dict[str, float]:
    assert row is not None
    return {f.name: v for f, v in zip(kind.fields[1:], row, strict=True) if v != NOT_MEASURED and v == v}


def test_the_sampler_records_the_limit_and_what_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Looks that take long become fewer; here none takes any time.
    monkeypatch.setattr(host.time, "monotonic_ns", lambda: 0)
    events = {"memory_events": "oom_kill 0\n", "memory_swap_max": 0, "memory_swap_current": 0}
    root = machine(tmp_path, "0::/job\n", group("job", 4 * GIB, 3 * GIB, **events))
    seen = Host(77, 0, root)
    assert named(HOST, seen.sample(0, 0))["memory_available_bytes"] == 1 * GIB
    assert named(MEMORY, seen.memory) == {
        "t_ns": 0,
        "whose": MemoryLimitOf.GROUP,
        "slows": 0,
        "limit_bytes": 4 * GIB,
        "used_bytes": 3 * GIB,
        "swap_limit_bytes": 0,
        "swap_used_bytes": 0,
        "oom_kills": 0,
    }
    # Between its looks, of which there is one a second, what was left last counts.
    seen.sample(S // 2, 0)
    assert seen.memory is None
    (root / "sys/fs/cgroup/job/memory.events").write_text("oom_kill 1\n")
    seen.sample(2 * S, 0)
    assert named(MEMORY, seen.memory)["oom_kills"] == 1
