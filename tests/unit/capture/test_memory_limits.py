"""Limits on memory, read from copies of /proc and /sys/fs/cgroup as containers, slices and batch systems show them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from whyidle.capture.cpu_budget import cgroup_levels
from whyidle.capture.memory_limits import memory_available, memory_limits, oom_kills, tightest
from whyidle.capture.sampler import host
from whyidle.capture.sampler.host import Host
from whyidle.record.schema import HOST, MEMORY, NOT_MEASURED, Kind, MemoryLimitOf

V2 = "31 23 0:28 {shown} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = """31 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 23 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
"""
GIB = 1 << 30
S = 10**9


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


def test_the_limit_that_leaves_least_counts_whichever_level_has_it(tmp_path: Path) -> None:
    groups = group("user.slice/run.scope", 8 * GIB, 1 * GIB) | group("user.slice", 10 * GIB, 9 * GIB)
    root = machine(tmp_path, "0::/user.slice/run.scope\n", groups)
    assert [limit.bytes for limit in memory_limits(77, root)] == [8 * GIB, 10 * GIB]
    use = tightest(memory_limits(77, root))
    assert use is not None
    assert (use.limit.level.path, use.limit.whose, use.left_bytes) == ("/user.slice", MemoryLimitOf.SLICE, 1 * GIB)
    assert memory_available(root) == 1 * GIB


def test_the_page_cache_of_a_group_is_not_used_up(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job\n", group("job", 4 * GIB, 4 * GIB, cache=3 * GIB))
    use = tightest(memory_limits(0, root))
    assert use is not None
    assert (use.used_bytes, use.left_bytes, use.limit.whose) == (1 * GIB, 3 * GIB, MemoryLimitOf.GROUP)


def test_a_group_that_is_slowed_down_before_it_is_killed_is_told(tmp_path: Path) -> None:
    more = {"memory_high": 2 * GIB, "memory_swap_max": 0, "memory_swap_current": 0}
    root = machine(tmp_path, "0::/job\n", group("job", 4 * GIB, 1 * GIB, **more))
    (limit,) = memory_limits(0, root)
    assert (limit.bytes, limit.slows, limit.swap_bytes) == (2 * GIB, True, 0)
    (root / "sys/fs/cgroup/job/memory.high").write_text("max\n")
    (limit,) = memory_limits(0, root)
    assert (limit.bytes, limit.slows) == (4 * GIB, False)


@pytest.mark.parametrize("limit", ["max", 64 * GIB, 2**63 - 4096])
def test_no_limit_or_one_beyond_the_machine_leaves_the_machine(tmp_path: Path, limit: int | str) -> None:
    root = machine(tmp_path, "0::/job\n", group("job", limit, GIB))
    assert memory_limits(0, root) == []
    assert memory_available(root) == 32 * GIB
    assert memory_available(tmp_path / "nothing") is None


@pytest.mark.parametrize(
    ("path", "whose"),
    [
        ("/system.slice/docker-0af1.scope", MemoryLimitOf.CONTAINER),
        ("/kubepods.slice/kubepods-pod1.slice", MemoryLimitOf.CONTAINER),
        ("/slurm/uid_1000/job_77/step_0", MemoryLimitOf.JOB),
        ("/user.slice/user-1000.slice", MemoryLimitOf.SLICE),
        ("/mine", MemoryLimitOf.GROUP),
    ],
)
def test_whose_limit_it_is_stands_in_the_path(tmp_path: Path, path: str, whose: int) -> None:
    root = machine(tmp_path, f"0::{path}\n", group(path, GIB, 0))
    assert [limit.whose for limit in memory_limits(0, root)] == [whose]


def test_within_a_container_the_top_of_what_is_seen_is_the_containers(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/\n", group("", GIB, 0))
    assert [limit.whose for limit in memory_limits(0, root)] == [MemoryLimitOf.GROUP]
    (root / ".dockerenv").touch()
    assert [limit.whose for limit in memory_limits(0, root)] == [MemoryLimitOf.CONTAINER]


def test_the_first_hierarchy_has_files_of_its_own(tmp_path: Path) -> None:
    told = {
        "memory.limit_in_bytes": 4 * GIB,
        "memory.memsw.limit_in_bytes": 5 * GIB,
        "memory.usage_in_bytes": 3 * GIB,
        "memory.memsw.usage_in_bytes": 3 * GIB + 7,
        "memory.stat": f"inactive_file 5\ntotal_inactive_file {GIB}\n",
        "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n",
    }
    groups = {f"memory/docker/{name}": f"{text}\n" for name, text in told.items()}
    root = machine(tmp_path, "9:memory:/docker\n4:cpu:/elsewhere\n", groups, V1)
    use = tightest(memory_limits(0, root))
    assert use is not None
    assert (use.limit.bytes, use.limit.swap_bytes, use.used_bytes, use.swap_used_bytes) == (4 * GIB, GIB, 2 * GIB, 7)
    assert oom_kills(cgroup_levels(0, root, "memory"), root) == 2


def test_kills_are_the_own_groups_or_else_the_machines(tmp_path: Path) -> None:
    root = machine(tmp_path, "0::/job\n", group("job", "max", 0, memory_events="low 0\noom 1\noom_kill 1\n"))
    assert oom_kills(cgroup_levels(0, root, "memory"), root) == 1
    assert oom_kills([], root) == 3
    assert oom_kills([], tmp_path / "nothing") is None


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
