"""What is around a training: other programs that are busy, a quota. And whether this machine allows it."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from whyidle.capture.limits import CgroupLevel, cgroup_levels

PAGES = 64
PERIOD_US = 20_000
"""Of a quota; the kernel's usual 100 ms would stop a short training for several steps at a time."""
PER_SESSION = 2
"""Busy processes of a session. Where the kernel shares CPUs out among sessions first, two of these beside a training of
two workers leave that as much as it gets where all processes are equal: a third."""


def unmet(needs: Sequence[str]) -> str | None:
    """Why this machine cannot run a case with these needs; `None` if it can."""
    return next((why for need in needs if (why := _CHECKS[need]()) is not None), None)


def confine(cpus: int | None) -> None:
    """Leave this process, and those it starts from now on, so many CPUs."""
    if cpus is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cpus])


@contextlib.contextmanager
def foreign_load(processes: int, rests: bool = False) -> Iterator[None]:
    """Busy processes of sessions of their own, that are no descendants of this one."""
    if not processes:
        yield
        return
    # The processes see the end of the pipe when this one is gone, however it ended.
    listening, held = os.pipe()
    try:
        for begin in range(0, processes, PER_SESSION):
            _start_busy(min(PER_SESSION, processes - begin), rests, listening)
        yield
    finally:
        os.close(held)
        os.close(listening)


def _start_busy(processes: int, rests: bool, listening: int) -> None:
    # The shell ends within a moment, and init adopts what it started, before a sampler looks at the process tree.
    command = [sys.executable, "-S", "-E", str(Path(__file__).with_name("busy.py")), str(processes), str(rests)]
    subprocess.run(
        ["/bin/sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh", *command],
        stdin=listening,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


@contextlib.contextmanager
def quota(cpus: float | None) -> Iterator[None]:
    """Confine this process and its descendants to so much CPU time; to be undone when the descendants are gone."""
    if cpus is None:
        yield
        return
    level = _level()
    assert level is not None
    for left_behind in level.folder.glob("whyidle-fault-*"):
        # By a training that was killed. One in use cannot be removed.
        with contextlib.suppress(OSError):
            left_behind.rmdir()
    group = level.folder / f"whyidle-fault-{os.getpid()}"
    group.mkdir()
    try:
        if level.version == 2:
            (group / "cpu.max").write_text(f"{round(cpus * PERIOD_US)} {PERIOD_US}")
        else:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(round(cpus * PERIOD_US)))
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        with contextlib.suppress(OSError):
            (level.folder / "cgroup.procs").write_text(str(os.getpid()))
        _remove(group)


def _remove(group: Path) -> None:
    """Workers that are ending still hold it for a moment."""
    for _ in range(100):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.02)


def _level() -> CgroupLevel | None:
    """The control group of this process, if quotas can be set below it."""
    for level in cgroup_levels():
        name = "cpu.max" if level.version == 2 else "cpu.cfs_quota_us"
        probe = level.folder / f"whyidle-probe-{os.getpid()}"
        try:
            probe.mkdir()
        except OSError:
            continue
        try:
            if os.access(probe / name, os.W_OK):
                return level
        finally:
            probe.rmdir()
    return None


def _no_cgroup() -> str | None:
    return None if _level() is not None else "no control group whose CPU quota this user may set"


def _one_cpu() -> str | None:
    return None if len(os.sched_getaffinity(0)) > 1 else "needs at least two CPUs"


def _no_disk() -> str | None:
    """Whether what is dropped from the page cache has to be read again, where temporary files are."""
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(bytes(PAGES * 4096))
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        before = _read_bytes()
        os.pread(file.fileno(), PAGES * 4096, 0)
        if before is not None and _read_bytes() == before:
            return "files are in memory here, and cannot be dropped from it"
    return None


def _read_bytes() -> int | None:
    """Bytes that this process has had read from storage."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("read_bytes:")), None)


_CHECKS: dict[str, Callable[[], str | None]] = {"cgroup": _no_cgroup, "cpus": _one_cpu, "disk": _no_disk}
