"""The CPU budget read from copies of /proc and /sys/fs/cgroup as different machines show them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyidle.capture.cpu_budget import (
    CpuBudget,
    cgroup_levels,
    cpu_budget,
    parse_cfs,
    parse_cgroup,
    parse_cpu_max,
    parse_mounts,
)

MOUNT_V2 = "31 23 0:28 {root} /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
MOUNTS_V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:31 {root} /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
)


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))


def machine(root: Path, cgroup: str, mounts: str, files: dict[str, str]) -> Path:
    """A root folder with the given /proc files, and files below /sys/fs/cgroup."""
    for name, text in {"proc/self/cgroup": cgroup, "proc/77/cgroup": cgroup, "proc/self/mountinfo": mounts}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    for name, text in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_unified_hierarchy_takes_the_tightest_level(tmp_path: Path) -> None:
    files = {
        "cpu.stat": "usage_usec 1\n",
        "pods/cpu.max": "150000 100000\n",
        "pods/a/cpu.max": "400000 100000\n",
        "pods/a/b/cpu.max": "max 100000\n",
    }
    root = machine(tmp_path, "0::/pods/a/b\n", MOUNT_V2.format(root="/"), files)
    assert cpu_budget(root=root) == CpuBudget(8, 1.5, 1.5)
    assert cpu_budget(77, root) == CpuBudget(8, 1.5, 1.5)
    base = root / "sys/fs/cgroup"
    assert [level.folder for level in cgroup_levels(77, root)] == [
        base / "pods/a/b",
        base / "pods/a",
        base / "pods",
        base,
    ]


def test_first_hierarchy_reads_cfs_quota_of_the_cpu_controller_only(tmp_path: Path) -> None:
    files = {
        "cpu,cpuacct/job/cpu.cfs_quota_us": "250000\n",
        "cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
        "cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
        "cpu,cpuacct/cpu.cfs_period_us": "100000\n",
        "cpuset/job/cpu.cfs_quota_us": "1000\n",
        "cpuset/job/cpu.cfs_period_us": "100000\n",
    }
    cgroup = "9:cpuset:/job\n4:cpu,cpuacct:/job\n0::/\n"
    root = machine(tmp_path, cgroup, MOUNTS_V1.format(root="/"), files)
    assert cpu_budget(root=root) == CpuBudget(8, 2.5, 2.5)


@pytest.mark.parametrize(("shown", "path"), [("/docker/abc", "/docker/abc"), ("/", "/../other")])
def test_a_container_without_cgroup_namespace_sees_its_own_group_at_the_mount(
    tmp_path: Path, shown: str, path: str
) -> None:
    files = {"cpu.max": "50000 100000"}
    root = machine(tmp_path, f"0::{path}\n", MOUNT_V2.format(root=shown), files)
    assert [level.folder for level in cgroup_levels(root=root)] == [root / "sys/fs/cgroup"]
    assert cpu_budget(root=root).budget == 0.5


def test_a_process_that_is_gone_has_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ProcessLookupError):
        cpu_budget(2**22 + 1)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("max 100000", None),
        ("150000 100000\n", 1.5),
        ("20000 100000", 0.2),
        ("300000", 3.0),
        ("", None),
        ("abc def", None),
        ("100000 0", None),
    ],
)
def test_cpu_max(text: str, cpus: float | None) -> None:
    assert parse_cpu_max(text) == cpus


@given(st.integers(1, 10**9), st.integers(1, 10**6))
def test_cfs_is_the_ratio_and_nothing_below_zero(quota: int, period: int) -> None:
    assert parse_cfs(f"{quota}\n", f"{period}\n") == quota / period
    assert parse_cfs(f"-{quota}\n", f"{period}\n") is None


def test_parsers_find_both_hierarchies() -> None:
    assert parse_cgroup("3:cpu,cpuacct:/a:b\n2:cpuset:/c\n0::/d\n\n") == {1: "/a:b", 2: "/d"}
    mounts = MOUNT_V2.format(root="/x\\040y") + MOUNTS_V1.format(root="/") + "nonsense\n"
    assert list(parse_mounts(mounts)) == [
        (2, "/x y", "/sys/fs/cgroup"),
        (1, "/", "/sys/fs/cgroup/cpu,cpuacct"),
    ]
