"""What `doctor` looks at, on faked machines: each trouble is named with its value, its price and the way out."""

from __future__ import annotations

import os
import resource
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from whyidle.capture.probes import cpus, libraries, look, python, stacks, storage
from whyidle.capture.probes.container import in_container
from whyidle.capture.sampler.procfs import MachineCpu
from whyidle.capture.stacks.spy import NoStacks
from whyidle.record.check import Check

CGROUP2 = "29 23 0:26 / {mount} rw,nosuid - cgroup2 cgroup2 rw"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def named(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


def test_a_quota_is_told_as_the_budget_that_it_leaves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "proc/self/cgroup": "0::/job\n",
        "proc/self/mountinfo": CGROUP2.format(mount="/sys/fs/cgroup") + "\n",
        "sys/fs/cgroup/job/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/job/cpu.stat": "usage_usec 9\nnr_periods 50\nnr_throttled 12\nthrottled_usec 3400000\n",
    }
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    checks = cpus.cpus(write(tmp_path, files))

    budget = named(checks, "CPU budget")
    assert budget.status == "limited"
    assert "1.5 of the machine's 64 CPUs, by a cgroup quota" in budget.says
    assert "limits.cpu" in budget.fix
    assert budget.values == {"cpus": 64, "affinity": 8, "quota": 1.5, "budget": 1.5}
    group = named(checks, "cgroup")
    assert (group.status, group.values["throttled_periods"], group.values["throttled_s"]) == ("limited", 12, 3.4)
    assert "12 periods" in group.says


def test_an_affinity_is_told_from_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1})
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    budget = named(cpus.cpus(tmp_path), "CPU budget")
    assert "2 of the machine's 64 CPUs, by affinity" in budget.says
    assert "taskset" in budget.fix


def test_what_a_kernel_does_not_tell_is_missing_with_what_is_lost(tmp_path: Path) -> None:
    checks = cpus.cpus(tmp_path)
    for name in ("cgroup", "Pressure (PSI)", "Run-queue time"):
        check = named(checks, name)
        assert (check.status, bool(check.lost), bool(check.fix)) == ("missing", True, True)
    assert storage.reads(tmp_path).status == "missing"
    assert cpus.machine(tmp_path) is None
    assert cpus.steal(None, None, 1.0).status == "missing"
    assert cpus.clock(tmp_path).values["source"] is None
    write(tmp_path, {"proc/pressure/cpu": "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n"})
    check = named(cpus.cpus(tmp_path), "Pressure (PSI)")
    assert (check.status, check.says) == ("limited", "Only cpu.")


@pytest.mark.parametrize(("stolen", "status"), [(1, "ok"), (30, "limited")])
def test_steal_is_what_the_hypervisor_took_between_two_looks(stolen: int, status: str) -> None:
    before = MachineCpu(busy=100, iowait=0, steal=0, total=1000)
    check = cpus.steal(before, MachineCpu(busy=150, iowait=0, steal=stolen, total=1100), 2.0)
    assert (check.status, check.values["steal_pct"]) == (status, stolen)
    assert f"{stolen}.0 % over the last 2.0 s" in check.says


def test_a_slow_clock_source_is_limited(tmp_path: Path) -> None:
    check = cpus.clock(write(tmp_path, {"sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n"}))
    assert check.status == "limited"
    assert "hpet" in check.says
    assert "clocksource=tsc" in check.fix


def test_a_long_tmpdir_is_told_before_workers_hang() -> None:
    longest = "/" + "x" * (storage.LONGEST_SOCKET - storage.SOCKET_BELOW - 1)
    assert storage.sockets(longest).status == "ok"
    check = storage.sockets(longest + "y")
    assert check.status == "limited"
    assert "108 bytes; at most 107 are possible" in check.says
    assert "TMPDIR" in check.fix


@pytest.mark.parametrize(
    ("total", "used", "status", "says", "fix", "lost"),
    [
        (64 * 2**20, 2**20, "limited", "64.0 MiB, 1.0 MiB in use", "--shm-size", "bus error"),
        (64 * 2**30, 63.9 * 2**30, "limited", "64.0 GiB, 63.9 GiB in use.", "ls -lt /dev/shm", ""),
        (2**30, 2**20, "ok", "", "", ""),  # the least that is enough, with something in it
    ],
)
def test_shared_memory_that_is_too_small_or_filled_by_others_is_limited(
    total: float, used: float, status: str, says: str, fix: str, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "shared_memory", lambda root: {"shm_total_bytes": total, "shm_used_bytes": used})
    check = storage.shm(Path("/"))
    assert check.status == status
    assert says in check.says
    assert fix in check.fix
    assert lost in check.lost
    assert ("--shm-size" in check.fix) == (fix == "--shm-size")
    monkeypatch.setattr(storage, "shared_memory", lambda root: {})
    assert storage.shm(Path("/")).values["total_bytes"] is None


@pytest.mark.parametrize(
    ("soft", "hard", "told", "untold"),
    [
        (1024, resource.RLIM_INFINITY, "ulimit -n 65536", "hard limit"),
        (1024, 524288, "ulimit -n 65536", "hard limit"),
        (1024, 4096, "ulimit -n 4096 before the training. The hard limit is 4096;", "ulimit -n 65536"),
        (1024, 1024, "The hard limit is 1024;", "ulimit -n"),
    ],
)
def test_no_more_open_files_are_advised_than_the_hard_limit_lets_one_have(
    soft: int, hard: int, told: str, untold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, hard))
    check = storage.open_files()
    assert (check.status, check.values["soft"]) == ("limited", 1024)
    assert told in check.fix
    assert untold not in check.fix


def test_no_limit_is_not_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert (storage.open_files().status, storage.open_files().says) == ("ok", "no limit.")
    assert storage.locked_memory().values["soft_bytes"] is None


@pytest.mark.parametrize(
    "files",
    [
        {".dockerenv": ""},
        {"run/secrets/kubernetes.io/serviceaccount/namespace": "x"},
        {"proc/self/environ": "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.0.0.1\0"},
        {"proc/self/environ": "PATH=/bin\0container=podman\0"},
        {"proc/1/cgroup": "0::/kubepods/pod1\n"},
        {"proc/1/cgroup": "0::/\n", "proc/self/mountinfo": "9 1 0:1 / / rw - overlay overlay rw,lowerdir=/a:/b\n"},
    ],
)
def test_a_container_is_told_by_any_of_its_marks(files: dict[str, str], tmp_path: Path) -> None:
    assert in_container(write(tmp_path, files))


def test_a_machine_of_its_own_is_no_container(tmp_path: Path) -> None:
    mounts = "20 1 0:1 / / rw - overlay composefs rw\n21 20 0:2 / /var/lib/docker/x rw - overlay overlay rw\n"
    files = {"proc/1/cgroup": "0::/init.scope\n", "proc/self/environ": "X=container=\0", "proc/self/mountinfo": mounts}
    assert not in_container(write(tmp_path, files))


def test_the_place_for_runs_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    check = storage.place(tmp_path / "runs" / "deep", Path("/"))
    assert list(tmp_path.iterdir()) == []
    assert check.values["folder"] == str(tmp_path)
    for name in ("free_bytes", "write_mb_s", "record_ns"):
        value = check.values[name]
        assert isinstance(value, float | int)
        assert value > 0


def test_a_file_where_the_folder_is_to_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "f.txt").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for runs in (tmp_path / "f.txt", tmp_path / "f.txt" / "runs"):
        check = storage.place(runs, Path("/"))
        assert (check.status, check.says) == ("missing", f"{tmp_path / 'f.txt'} is not a folder.")
        assert "--out" in check.fix
    assert "leads to something that is not a folder" in storage.place(tmp_path / "lost", Path("/")).says


def test_a_link_is_judged_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "there")
    mounts = f"20 1 0:1 / / rw - ext4 /dev/a rw\n21 20 0:2 / {tmp_path / 'there'} rw - nfs4 server:/x rw\n"
    check = storage.place(tmp_path / "runs", write(tmp_path / "root", {"proc/self/mountinfo": mounts}))
    assert check.values["file_system"] == "nfs4"
    assert check.values["folder"] == str(tmp_path / "runs")


def test_a_place_on_a_network_or_without_rights_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = f"20 1 0:1 / / rw - ext4 /dev/a rw\n21 20 0:2 / {tmp_path} rw - nfs4 server:/x rw\n"
    root = write(tmp_path / "root", {"proc/self/mountinfo": mounts})
    assert storage.file_system(tmp_path / "runs", root) == "nfs4"
    assert storage.file_system(Path("/somewhere"), root) == "ext4"
    check = storage.place(tmp_path / "runs", root)
    assert check.status == "limited"
    assert "network" in check.lost

    def refuse(folder: Path) -> float:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(storage, "_write_speed", refuse)
    check = storage.place(tmp_path / "runs", root)
    assert check.status == "missing"
    assert "Permission denied" in check.says
    assert "--out" in check.fix


@pytest.mark.parametrize(
    ("scope", "capable", "opens", "of_run", "of_attach", "way_out"),
    [
        ("0", False, True, "ok", "ok", ""),
        ("1", False, True, "ok", "limited", "ptrace_scope=0"),
        ("2", False, False, "limited", "missing", "sudo whyidle attach"),
        ("3", False, False, "limited", "missing", "reboot"),
        ("2", True, True, "ok", "ok", ""),
    ],
)
def test_yamas_rule_decides_without_a_capability(
    scope: str,
    capable: bool,
    opens: bool,
    of_run: str,
    of_attach: str,
    way_out: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = f"CapEff:\t{stacks.CAP_SYS_PTRACE * capable:016x}\nSeccomp:\t0\n"
    root = write(tmp_path, {"proc/sys/kernel/yama/ptrace_scope": scope, "proc/self/status": status})
    monkeypatch.setattr(stacks, "why_no_child", lambda: None if opens else NoStacks("Permission denied", refused=True))
    run, attach = stacks.stacks(root)
    assert (run.status, attach.status, attach.values["ptrace_scope"]) == (of_run, of_attach, int(scope))
    assert way_out in attach.fix
    assert ("PR_SET_PTRACER" in run.says) == (scope == "1")
    assert ("a thread within the training" in run.lost.lower()) == (of_run == "limited")


@pytest.mark.parametrize("refused", [True, False])
def test_where_the_stacks_of_a_child_are_not_seen_no_rule_counts(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "why_no_child", lambda: NoStacks("it said no", refused))
    run, attach = stacks.stacks(write(tmp_path, {".dockerenv": "", "proc/self/status": "CapEff:\t0\n"}))
    assert (run.status, attach.status) == ("limited" if refused else "missing", "missing")
    assert "it said no." in attach.says
    assert ("--cap-add SYS_PTRACE" in attach.fix) is refused
    assert ("--stacks outside" in run.lost) is refused
    assert ("Install py-spy" in run.fix) is not refused


def test_a_child_of_ones_own_is_looked_into_by_whoever_has_the_right() -> None:
    if os.geteuid() == 0 and stacks.stacks()[0].values["cap_sys_ptrace"] == "yes":
        assert stacks.why_no_child() is None
    told = stacks.stacks()[1].values["stacks_of_a_child"]
    assert told == "seen" or "ermi" in str(told)


SAID = {
    "sitecustomize": None,
    "start_method": "fork",
    "torch": "2.15.0+cu132",
    "cuda": "13.2",
    "hip": None,
    "sharing": "file_descriptor",
    "available": False,
    "gpus": 0,
}
NO_TORCH = {"no_torch": "ModuleNotFoundError: No module named 'torch'"}
OURS_FIRST = {"sitecustomize": "/etc/python/sitecustomize.py"}
CUDA, HOOKS = "CUDA in torch", "Hooks (whyidle run)"


@pytest.mark.parametrize(
    ("shown", "marks", "changed", "name", "status", "says"),
    [
        (1, "la", {"refused": "The NVIDIA driver on your system is too old"}, CUDA, "missing", "system is too old"),
        (1, "la", {"cuda": None}, CUDA, "missing", "built without CUDA"),
        (None, "la", {}, CUDA, "not applicable", ""),
        (2, "la", {"available": True, "gpus": 2}, CUDA, "ok", "2 usable GPUs."),
        (0, "la", {}, "torch", "ok", "2.15.0+cu132, built for CUDA 13.2."),
        (0, "la", {"torch": "2.4.1+cpu", "cuda": None}, "torch", "limited", ""),
        (0, "la", {"torch": "3.1.0", "cuda": None}, "torch", "ok", "last tested with 2.15"),
        (0, "", {}, HOOKS, "missing", "did not read our sitecustomize"),
        (0, "l", NO_TORCH, HOOKS, "missing", "no torch"),
        (0, "la", OURS_FIRST, HOOKS, "ok", "/etc/python/sitecustomize.py runs after ours"),
    ],
)
def test_what_a_python_says_of_torch_and_of_the_hooks(
    shown: float | None,
    marks: str,
    changed: dict[str, Any],
    name: str,
    status: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def ask(folder: Path) -> tuple[dict[str, Any], str]:
        for mark in marks:
            (folder / {"l": "bootstrap-loaded", "a": "bootstrap-armed"}[mark]).touch()
        return SAID | changed, ""

    monkeypatch.setattr(python, "_ask", ask)
    check = named(python.python(shown), name)
    assert check.status == status
    assert says in check.says


def test_a_python_that_fails_is_told_by_its_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    done = subprocess.CompletedProcess([], 1, stdout="", stderr="Traceback\nImportError: libc.so.7: no such file\n")
    monkeypatch.setattr(python.subprocess, "run", lambda *_, **__: done)
    (check,) = python.python(None)
    assert check.status == "missing"
    assert "libc.so.7" in check.says


def test_a_library_that_is_not_there_comes_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "_version", lambda package: None if package == "pyarrow" else "1.2")
    checks = libraries.libraries()
    arrow = named(checks, "pyarrow")
    assert (arrow.status, arrow.fix) == ("missing", "pip install 'whyidle[parquet]'")
    assert named(checks, "lmdb").says == "1.2."


def test_a_check_that_fails_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> list[Check]:
        raise RuntimeError("of ours")

    monkeypatch.setattr(look.python, "python", fail)
    monkeypatch.setattr(look.gpus, "gpus", list)
    checks = look.look(tmp_path)
    assert "RuntimeError: of ours" in named(checks, "Python").says
    assert named(checks, "Place for runs").values["record_ns"]
    groups = [check.group for check in checks]
    # One heading a group.
    assert len({*groups}) == 1 + sum(one != other for one, other in pairwise(groups))
