"""What `doctor` looks at, on faked machines: each trouble is named with its value, its price and the way out."""

from __future__ import annotations

import os
import resource
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from whyidle.capture.limits import in_container
from whyidle.capture.probes import accelerator, look, machine, python
from whyidle.capture.sampler.procfs import MachineCpu
from whyidle.capture.stacks.spy import NoStacks
from whyidle.record.check import Check

GIB = 1 << 30
CGROUP2 = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def named(checks: list[Check], name: str) -> Check:
    (found,) = [check for check in checks if check.name == name]
    return found


def told(check: Check) -> str:
    return " | ".join((check.status, check.says, check.lost, check.fix))


JOB = {"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": CGROUP2}
MEMORY = {
    **JOB,
    "proc/meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n",
    "sys/fs/cgroup/job/memory.max": f"{4 * GIB}\n",
    "sys/fs/cgroup/job/memory.current": f"{3 * GIB}\n",
}
THROTTLED = "usage_usec 9\nnr_periods 50\nnr_throttled 12\nthrottled_usec 3400000\n"
QUOTA = JOB | {"sys/fs/cgroup/job/cpu.max": "150000 100000\n", "sys/fs/cgroup/job/cpu.stat": THROTTLED}
PRESSURE = {f"proc/pressure/{name}": "some avg10=0.00 total=12\n" for name in ("cpu", "io", "memory")}
SOURCE = "sys/devices/system/clocksource/clocksource0/current_clocksource"


@pytest.mark.parametrize(
    ("files", "name", "status", "says", "values"),
    [
        (
            QUOTA,
            "CPU budget",
            "limited",
            ("1.5 of the machine's 64 CPUs, by a cgroup quota", "limits.cpu"),
            {"cpus": 64, "affinity": 8, "quota": 1.5, "budget": 1.5},
        ),
        ({}, "CPU budget", "limited", ("8 of the machine's 64 CPUs, by affinity", "taskset"), {"quota": None}),
        (QUOTA, "cgroup", "limited", ("12 periods",), {"throttled_periods": 12, "throttled_s": 3.4}),
        ({}, "cgroup", "missing", ("No CPU cgroup",), {"versions": None}),
        (
            MEMORY,
            "Memory",
            "limited",
            ("4.0 GiB of the machine's 64.0 GiB, by a limit of /job, 1.0 GiB available now.", "kills", "--memory"),
            {"limit_bytes": 4 * GIB, "available_bytes": GIB},
        ),
        (MEMORY | {"sys/fs/cgroup/job/memory.high": f"{4 * GIB - 1}"}, "Memory", "limited", ("slows",), {}),
        (MEMORY | {"sys/fs/cgroup/job/memory.max": "max"}, "Memory", "ok", ("32.0 GiB", "no limit"), {}),
        ({}, "Memory", "missing", ("No /proc/meminfo",), {"limit_bytes": None, "machine_bytes": None}),
        (PRESSURE, "Pressure (PSI)", "ok", ("CPU, I/O and memory.",), {}),
        ({"proc/pressure/cpu": PRESSURE["proc/pressure/cpu"]}, "Pressure (PSI)", "limited", ("Only cpu.",), {}),
        ({}, "Pressure (PSI)", "missing", ("psi=1",), {"files": None}),
        ({"proc/self/schedstat": "1 2 3"}, "Run-queue time", "ok", ("each thread",), {"told": "yes"}),
        ({}, "Run-queue time", "missing", ("input.oversubscribed",), {"told": "no"}),
        ({SOURCE: "hpet\n"}, "Clock", "limited", ("hpet", "clocksource=tsc"), {"source": "hpet"}),
        ({}, "Clock", "", ("Unknown source",), {"source": None}),
        ({"proc/self/io": "rchar: 1\nread_bytes: 2\n"}, "Reads and cache", "ok", (), {"told": "yes"}),
        ({}, "Reads and cache", "missing", ("input.storage",), {"told": "no"}),
        ({}, "/dev/shm", "limited", ("its size is unknown",), {"total_bytes": None}),
    ],
)
def test_what_a_machine_tells_and_what_it_does_not(
    files: dict[str, str],
    name: str,
    status: str,
    says: tuple[str, ...],
    values: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(machine, "_place", lambda *_: Check("", "Place for runs", "ok", ""))
    root = write(tmp_path, files)
    check = named([*machine.cpus(root), *machine.storage(tmp_path, root)], name)
    assert check.status == (status or check.status)
    assert all(part in told(check) for part in says), told(check)
    assert values.items() <= check.values.items()
    assert bool(check.lost and check.fix) == (check.status != "ok")


@pytest.mark.parametrize(("stolen", "status"), [(1, "ok"), (30, "limited")])
def test_steal_is_what_the_hypervisor_took_between_two_looks(stolen: int, status: str, tmp_path: Path) -> None:
    before = MachineCpu(busy=100, iowait=0, steal=0, total=1000)
    check = machine.steal(before, MachineCpu(busy=150, iowait=0, steal=stolen, total=1100), 2.0)
    assert (check.status, check.values["steal_pct"]) == (status, stolen)
    assert f"{stolen}.0 % over the last 2.0 s" in check.says
    assert machine.machine_cpu(tmp_path) is None
    assert machine.steal(None, None, 1.0).status == "missing"


@pytest.mark.parametrize(("more", "status", "says"), [(0, "ok", "107 bytes"), (1, "limited", "108 bytes; at most 107")])
def test_a_long_tmpdir_is_told_before_workers_hang(more: int, status: str, says: str) -> None:
    check = machine._sockets("/" + "x" * (machine.LONGEST_SOCKET - machine.SOCKET_BELOW - 1 + more))
    assert check.status == status
    assert says in check.says
    assert ("TMPDIR" in check.fix) == (status == "limited")


@pytest.mark.parametrize(
    ("total", "used", "status", "says"),
    [
        (64 * 2**20, 2**20, "limited", ("64.0 MiB, 1.0 MiB in use", "--shm-size", "bus error")),
        (64 * GIB, 63.9 * GIB, "limited", ("64.0 GiB, 63.9 GiB in use.", "ls -lt /dev/shm")),
        (GIB, 2**20, "ok", ()),  # the least that is enough, with something in it
    ],
)
def test_shared_memory_that_is_too_small_or_filled_by_others_is_limited(
    total: float, used: float, status: str, says: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "shared_memory", lambda root: {"shm_total_bytes": total, "shm_used_bytes": used})
    check = machine._shm(Path("/"))
    assert check.status == status
    assert all(part in told(check) for part in says)
    assert ("--shm-size" in check.fix) == ("--shm-size" in says)


@pytest.mark.parametrize(
    ("soft", "hard", "fix", "unfit"),
    [
        (1024, resource.RLIM_INFINITY, "ulimit -n 65536", "hard limit"),
        (1024, 524288, "ulimit -n 65536", "hard limit"),
        (1024, 4096, "ulimit -n 4096 before the training. The hard limit is 4096;", "ulimit -n 65536"),
        (1024, 1024, "The hard limit is 1024;", "ulimit -n"),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, "", "limit"),
    ],
)
def test_no_more_open_files_are_advised_than_the_hard_limit_lets_one_have(
    soft: int, hard: int, fix: str, unfit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda what: (soft, hard))
    files = machine._open_files()
    known = None if soft == resource.RLIM_INFINITY else soft
    assert (files.status, files.values["soft"]) == ("limited" if known else "ok", known)
    assert fix in files.fix
    assert unfit not in files.fix
    assert ("no limit" in files.says) == (hard == resource.RLIM_INFINITY)


@pytest.mark.parametrize(
    ("files", "inside"),
    [
        ({".dockerenv": ""}, True),
        ({"run/secrets/kubernetes.io/serviceaccount/namespace": "x"}, True),
        ({"proc/self/environ": "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.0.0.1\0"}, True),
        ({"proc/self/environ": "PATH=/bin\0container=podman\0"}, True),
        ({"proc/1/cgroup": "0::/kubepods/pod1\n"}, True),
        ({"proc/1/cgroup": "0::/\n", "proc/self/mountinfo": "9 1 0:1 / / rw - overlay overlay rw,lowerdir=/a\n"}, True),
        ({"proc/1/cgroup": "0::/init.scope\n", "proc/self/environ": "X=container=\0"}, False),
        (
            {"proc/self/mountinfo": "20 1 0:1 / / rw - overlay composefs rw\n21 20 0:2 / /x rw - overlay overlay\n"},
            False,
        ),
    ],
)
def test_a_container_is_told_by_any_of_its_marks(files: dict[str, str], inside: bool, tmp_path: Path) -> None:
    assert in_container(write(tmp_path, files)) is inside


def test_the_place_for_runs_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    check = machine._place(tmp_path / "runs" / "deep", Path("/"))
    assert list(tmp_path.iterdir()) == []
    assert check.values["folder"] == str(tmp_path)
    assert all(float(check.values[name] or 0) > 0 for name in ("free_bytes", "write_mb_s", "record_ns"))
    (tmp_path / "f.txt").touch()
    (tmp_path / "lost").symlink_to(tmp_path / "nowhere")
    for runs in (tmp_path / "f.txt", tmp_path / "f.txt" / "runs"):
        check = machine._place(runs, Path("/"))
        assert (check.status, check.says) == ("missing", f"{tmp_path / 'f.txt'} is not a folder.")
        assert "--out" in check.fix
    assert "leads to something that is not a folder" in machine._place(tmp_path / "lost", Path("/")).says


def test_a_place_on_a_network_or_without_rights_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is judged by where it leads."""
    (tmp_path / "there").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "there")
    mounts = f"20 1 0:1 / / rw - ext4 /dev/a rw\n21 20 0:2 / {tmp_path / 'there'} rw - nfs4 server:/x rw\n"
    root = write(tmp_path / "root", {"proc/self/mountinfo": mounts})
    check = machine._place(tmp_path / "runs", root)
    assert (check.status, check.values["file_system"]) == ("limited", "nfs4")
    assert check.values["folder"] == str(tmp_path / "runs")
    assert "network" in check.lost
    assert machine._place(tmp_path, root).values["file_system"] == "ext4"

    def refuse(folder: Path) -> float:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(machine, "_write_speed", refuse)
    check = machine._place(tmp_path / "runs", root)
    assert check.status == "missing"
    assert "Permission denied" in check.says
    assert "--out" in check.fix


REFUSED = NoStacks("Permission denied", refused=True)


@pytest.mark.parametrize(
    ("scope", "capable", "hindrance", "of_run", "of_attach", "says"),
    [
        ("0", False, None, "ok", "ok", "same user"),
        ("1", False, None, "ok", "limited", "ptrace_scope=0"),
        ("2", False, REFUSED, "limited", "missing", "sudo whyidle attach"),
        ("3", False, REFUSED, "limited", "missing", "reboot"),
        ("2", True, None, "ok", "ok", "CAP_SYS_PTRACE"),
        ("", False, None, "ok", "ok", "Without Yama"),
        ("", False, REFUSED, "limited", "missing", "Yama does not forbid it: Permission denied."),
        ("", False, NoStacks("it said no"), "missing", "missing", "Install py-spy"),
    ],
)
def test_yamas_rule_decides_without_a_capability_and_none_where_the_stacks_of_a_child_are_not_seen(
    scope: str,
    capable: bool,
    hindrance: NoStacks | None,
    of_run: str,
    of_attach: str,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    status = f"CapEff:\t{machine.CAP_SYS_PTRACE * capable:016x}\nSeccomp:\t0\n"
    root = write(tmp_path, {"proc/self/status": status})
    write(root, {"proc/sys/kernel/yama/ptrace_scope": scope} if scope else {})
    monkeypatch.setattr(machine, "why_no_child", lambda: hindrance)
    run, attach = machine.stacks(root)
    assert (run.status, attach.status) == (of_run, of_attach)
    assert attach.values["ptrace_scope"] == (int(scope) if scope else None)
    assert says in told(attach)
    assert ("PR_SET_PTRACER" in run.says) == (scope == "1")
    assert ("a thread within the training" in run.lost.lower()) == (of_run == "limited")
    write(root, {".dockerenv": ""})
    assert ("--cap-add SYS_PTRACE" in machine.stacks(root)[1].fix) == (
        scope != "3" and "py-spy" not in attach.fix and of_attach != "ok"
    )


def test_a_child_of_ones_own_is_looked_into_by_whoever_has_the_right() -> None:
    if os.geteuid() == 0 and machine.stacks()[0].values["cap_sys_ptrace"] == "yes":
        assert machine.why_no_child() is None
    seen = machine.stacks()[1].values["stacks_of_a_child"]
    assert seen == "seen" or "ermi" in str(seen)


SAID = {
    "sitecustomize": None,
    "torch": "2.15.0+cu132",
    "cuda": "13.2",
    "hip": None,
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
        (1, "la", NO_TORCH, CUDA, "not applicable", "No torch"),
        (None, "la", {}, CUDA, "not applicable", "No GPU"),
        (2, "la", {"available": True, "gpus": 2}, CUDA, "ok", "2 usable GPUs."),
        (0, "la", {}, "torch", "ok", "2.15.0+cu132, built for CUDA 13.2."),
        (0, "la", {"torch": "2.4.1+cpu", "cuda": None}, "torch", "limited", "for the CPU only"),
        (0, "la", {"torch": "3.1.0", "cuda": None}, "torch", "ok", "last tested with 2.15"),
        (0, "la", NO_TORCH, "torch", "missing", "Cannot be imported: ModuleNotFoundError"),
        (0, "la", {"no_torch": ""}, "torch", "missing", "Not installed"),
        (0, "", {}, HOOKS, "missing", "did not read our sitecustomize"),
        (0, "l", NO_TORCH, HOOKS, "missing", "no torch"),
        (0, "l", {}, HOOKS, "missing", "the hooks were not set up"),
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


def test_a_python_that_fails_is_told_by_its_last_line_and_a_missing_library_with_its_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done = subprocess.CompletedProcess([], 1, stdout="", stderr="Traceback\nImportError: libc.so.7: no such file\n")
    monkeypatch.setattr(python.subprocess, "run", lambda *_, **__: done)
    (check,) = python.python(None)
    assert (check.status, "libc.so.7" in check.says) == ("missing", True)
    monkeypatch.setattr(python, "_version", lambda package: None if package == "pyarrow" else "1.2")
    arrow = named(python.libraries(), "pyarrow")
    assert (arrow.status, arrow.fix) == ("missing", "pip install 'whyidle[parquet]'")
    assert named(python.libraries(), "lmdb").says == "1.2."


def test_a_check_that_fails_leaves_the_others_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object) -> list[Check]:
        raise RuntimeError("of ours")

    monkeypatch.setattr(python, "python", fail)
    monkeypatch.setattr(accelerator, "gpus", list)
    checks = look(tmp_path)
    assert "RuntimeError: of ours" in named(checks, "Python").says
    assert named(checks, "Place for runs").values["record_ns"]
    groups = [check.group for check in checks]
    # One heading a group.
    assert len({*groups}) == 1 + sum(one != other for one, other in pairwise(groups))
