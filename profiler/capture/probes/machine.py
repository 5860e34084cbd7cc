"""The machine a training would run on: CPUs, memory, clock, storage, limits, and whose stacks may be read.

`root` is where `/proc`, `/sys` and `/dev` are looked for.
"""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

from ...errors import WhyidleError
from ...record.check import Check
from ...record.schema import STEP
from ...record.segment import RecordWriter
from .. import limits
from ..sampler.host import shared_memory, throttling
from ..sampler.procfs import (
    MachineCpu,
    parse_machine_cpu,
    parse_pairs,
    parse_pressure,
    parse_schedstat,
    parse_status,
    read,
    read_text,
)
from ..stacks.spy import NoStacks, why_none

CPUS, STORAGE, STACKS = "CPU, memory and clock", "Storage and limits", "Stacks of other processes"
MUCH_STEAL_PCT = 2.0
"""More shifts figures by as much as what is looked for."""
SLOW_CLOCK_NS = 300
"""A step asks for the time about ten times."""
GOOD_CLOCKS = ("tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page", "timebase")
LEAST_FREE_BYTES = 1 << 30
LEAST_SHM_BYTES = 1 << 30
SLOW_STORE_NS = 20_000
"""A record is stored in about a microsecond where memory is mapped from a local disk."""
SLOW_DISK_MB_S = 30.0
OVER_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "fuse", "9p", "afs", "glusterfs", "virtiofs")
LONGEST_SOCKET = 107
"""Bytes in the path of a Unix socket."""
SOCKET_BELOW = len("/torch-shm-dir-XXXXXX/manager.sock")
"""What torch's sharing adds to the folder for temporary files; multiprocessing's own adds two bytes less."""
LEAST_FILES, WANTED_FILES = 4096, 65536
CAP_SYS_PTRACE = 1 << 19
YAMA = {
    0: "processes of the same user",
    1: "a process's own children",
    2: "processes with CAP_SYS_PTRACE",
    3: "nobody",
}
"""`kernel.yama.ptrace_scope` → whose stacks it allows to be read."""
OWN_CHILDREN, NEVER = 1, 3


def cpus(root: Path = Path("/")) -> list[Check]:
    """Check what one look tells of CPUs, memory and clock."""
    return [_budget(root), _memory(root), _quota(root), _pressure(root), _run_queue(root), _clock(root)]


def storage(runs: Path, root: Path = Path("/")) -> list[Check]:
    """Check storage and limits. `runs`: the folder in which recordings are to lie, there already or not."""
    return [_reads(root), _place(runs, root), _shm(root), _sockets(tempfile.gettempdir()), _open_files()]


def machine_cpu(root: Path = Path("/")) -> MachineCpu | None:
    """Take a look for `steal`; `None` where the kernel reports nothing."""
    return parse_machine_cpu(read(str(root / "proc/stat")))


def steal(before: MachineCpu | None, after: MachineCpu | None, seconds: float) -> Check:
    """Check what others took of the machine's CPUs between two looks."""
    shares = after.shares_since(before) if before and after else None
    if shares is None:
        return Check(CPUS, "Steal", "missing", "/proc/stat does not report it.", "CPU time taken by the hypervisor.")
    busy, waiting, stolen = shares
    found = partial(Check, CPUS, "Steal", values={"busy_pct": busy, "iowait_pct": waiting, "steal_pct": stolen})
    says = f"{stolen:.1f} % over the last {seconds:.1f} s ({busy:.0f} % busy)."
    if stolen < MUCH_STEAL_PCT:
        return found("ok", says)
    lost = "Times vary with what other tenants do, which hides small differences; reports name the share."
    return found("limited", says, lost, "Use another machine or hour, or a dedicated one.")


def _budget(root: Path) -> Check:
    counted, budget = os.cpu_count() or 0, limits.cpu_budget(root=root)
    found = partial(Check, CPUS, "CPU budget", values={"cpus": counted, **asdict(budget)})
    if budget.budget >= counted:
        return found("ok", f"All {counted} CPUs of the machine.")
    by_quota = budget.quota is not None and budget.quota < budget.affinity
    why = "a cgroup quota" if by_quota else "affinity (a CPU set)"
    ways = "docker --cpus, Kubernetes limits.cpu" if by_quota else "taskset, cpuset"
    says = f"{budget.budget:g} of the machine's {counted} CPUs, by {why}."
    lost = "Programs that size themselves by os.cpu_count() start too many workers and threads."
    return found("limited", says, lost, f"Set num_workers for {budget.budget:g} CPUs, or ask for more ({ways}).")


def _memory(root: Path) -> Check:
    """Check what the machine could give, and the control group's limit where it leaves less than the machine has."""
    whole = limits.machine_memory(root).get(b"MemTotal")
    use, left = limits.tightest(limits.memory_limits(0, root)), limits.memory_available(root)
    values = {
        "machine_bytes": None if whole is None else 1024 * whole,
        "limit_bytes": None if use is None else use.limit.bytes,
        "available_bytes": left,
        "oom_kills": limits.oom_kills(limits.cgroup_levels(0, root, "memory"), root),
    }
    found = partial(Check, CPUS, "Memory", values=values)
    could = "" if left is None else f", {left / 2**30:.1f} GiB available now"
    of_machine = "an unknown amount" if whole is None else f"{whole / 2**20:.1f} GiB"
    if use is not None:
        says = f"{use.limit.bytes / 2**30:.1f} GiB of the machine's {of_machine}, by a limit of {use.limit.level.path}"
        lost = "The kernel kills a worker or the training that takes more, whatever the machine has left."
        if use.limit.slows:
            lost = "The kernel slows a training that takes more, and takes pages back from it (memory.high)."
        fix = "Raise docker run --memory, Kubernetes limits.memory, sbatch --mem, or MemoryMax= of the unit."
        return found("limited", f"{says}{could}.", lost, fix)
    if whole is None:
        return found("missing", "No /proc/meminfo.", "When memory will run out (input.memory).", "Mount /proc.")
    return found("ok", f"{of_machine} of the machine{could}; no limit.")


def _quota(root: Path) -> Check:
    levels = limits.cgroup_levels(root=root)
    versions = sorted({level.version for level in levels})
    if not levels:
        lost = "CPU quotas and how much they throttle (input.cpu_quota)."
        fix = "Mount /sys/fs/cgroup into the container; on a machine without quotas nothing is lost."
        return Check(CPUS, "cgroup", "missing", "No CPU cgroup is visible.", lost, fix, {"versions": None})
    throttled = throttling(levels)
    periods, spent = throttled["throttled_periods"], throttled["throttled_us"]
    values = {
        "versions": ", ".join(map(str, versions)),
        "throttled_periods": periods,
        "throttled_s": None if spent is None else spent / 1e6,
    }
    found, says = partial(Check, CPUS, "cgroup", values=values), f"Version {' and '.join(map(str, versions))}"
    if periods:
        says += f"; throttled in {periods:.0f} periods since it was made."
        lost = "The quota has held the job back before."
        return found("limited", says, lost, "Raise the quota, or use fewer workers.")
    return found("ok", says + ("; it does not report throttling." if periods is None else "; never throttled."))


def _pressure(root: Path) -> Check:
    seen = [n for n in ("cpu", "io", "memory") if parse_pressure(read(str(root / f"proc/pressure/{n}"))) is not None]
    found = partial(Check, CPUS, "Pressure (PSI)", values={"files": ", ".join(seen) or None})
    if len(seen) == 3:
        return found("ok", "CPU, I/O and memory.")
    lost = "How long tasks of the machine waited for CPU, disk or memory; a report uses other signs."
    fix = "Boot with psi=1 (kernel 4.20 or newer); some containers cannot have it."
    if seen:
        return found("limited", f"Only {', '.join(seen)}.", lost, fix)
    return found("missing", "The kernel does not report it.", lost, fix)


def _run_queue(root: Path) -> Check:
    if parse_schedstat(read(str(root / "proc/self/schedstat"))) != (None, None):
        return Check(CPUS, "Run-queue time", "ok", "Reported for each thread.", values={"told": "yes"})
    lost = "How long workers were ready and waited for a CPU (input.oversubscribed)."
    fix = "Use a kernel with CONFIG_SCHED_INFO; sandboxes such as gVisor do not report it."
    return Check(CPUS, "Run-queue time", "missing", "No schedstat in /proc.", lost, fix, {"told": "no"})


def _clock(root: Path) -> Check:
    """Check the clock source, and what asking for the time costs: the median of rounds, others may interrupt one."""
    name = read_text(root / "sys/devices/system/clocksource/clocksource0/current_clocksource").strip() or None
    rounds = []
    for _ in range(9):
        begin = time.monotonic_ns()
        for _ in range(100):
            time.monotonic_ns()
        rounds.append((time.monotonic_ns() - begin) / 101)
    cost = statistics.median(rounds)
    found = partial(Check, CPUS, "Clock", values={"source": name, "cost_ns": cost})
    says = f"{name or 'Unknown source'}, {cost:.0f} ns per reading."
    if cost < SLOW_CLOCK_NS and (name is None or name in GOOD_CLOCKS):
        return found("ok", says)
    lost = f"Each step reads the clock about ten times, which takes {10 * cost / 1e3:.1f} µs."
    return found("limited", says, lost, "Boot with clocksource=tsc, unless the kernel log calls the TSC unstable.")


def _reads(root: Path) -> Check:
    """Check whether the kernel says what a process read, and how much of it came from the cache."""
    if {b"rchar", b"read_bytes"} <= parse_pairs(read(str(root / "proc/self/io"))).keys():
        says = "/proc/PID/io reports what was read, and how much of it came from storage."
        return Check(STORAGE, "Reads and cache", "ok", says, values={"told": "yes"})
    lost = "Whether samples came from the page cache or from storage (input.storage)."
    fix = "Use a kernel with CONFIG_TASK_IO_ACCOUNTING; sandboxes such as gVisor do not report it."
    return Check(STORAGE, "Reads and cache", "missing", "No /proc/PID/io.", lost, fix, {"told": "no"})


def _place(runs: Path, root: Path) -> Check:
    """Check the folder for recordings: room, file system, speed, and what storing a record there takes."""
    # A link that leads nowhere is in the way of a folder too.
    folder = next(p for p in (runs.absolute(), *runs.absolute().parents) if os.path.lexists(p))
    values: dict[str, float | str | None] = {"folder": str(folder)}
    found = partial(Check, STORAGE, "Place for runs", values=values)
    nothing = ("Nothing can be recorded there.", "Name another folder with --out.")
    if not os.path.isdir(folder):  # noqa: PTH112 - that of Path raises where a link leads to what one may not see
        leads = "leads to something that is" if folder.is_symlink() else "is"
        return found("missing", f"{folder} {leads} not a folder.", *nothing)
    kind, free = _file_system(folder, root), shutil.disk_usage(folder).free
    values |= {"file_system": kind, "free_bytes": free}
    try:
        with tempfile.TemporaryDirectory(prefix=".whyidle-", dir=folder) as scratch:
            speed, record_ns = _write_speed(Path(scratch)), _store_ns(Path(scratch))
    except (OSError, WhyidleError) as error:
        return found("missing", f"{folder}: {error}", *nothing)
    values |= {"write_mb_s": speed, "record_ns": record_ns}
    says = f"{folder} ({kind or 'unknown file system'}): {free / 2**30:.0f} GiB free, writes {speed:.0f} MB/s"
    says += f" to the disk, stores a step's record in {record_ns / 1e3:.1f} µs."
    troubles = {
        "every write into the recording may wait for the network": kind and kind.startswith(OVER_NETWORK),
        "a long recording may not fit; records that do not are counted as dropped": free < LEAST_FREE_BYTES,
        "the kernel may stop the training while it writes the recording to disk": speed < SLOW_DISK_MB_S,
        f"the hooks cost more than {SLOW_STORE_NS / 1e3:.0f} µs per step": record_ns > SLOW_STORE_NS,
    }
    lost = "; ".join(trouble for trouble, here in troubles.items() if here)
    if not lost:
        return found("ok", says)
    fix = "Record onto a local disk with free space: `--out DIR`."
    return found("limited", says, f"{lost[0].upper()}{lost[1:]}.", fix)


def _shm(root: Path) -> Check:
    """Check the shared memory through which workers hand their batches over."""
    size, used = (shared_memory(root).get(n) for n in ("shm_total_bytes", "shm_used_bytes"))
    found = partial(Check, STORAGE, "/dev/shm", values={"total_bytes": size, "used_bytes": used})
    if size is None or used is None:
        says = "It is not a file system of its own, so its size is unknown."
        return found("limited", says, "How near the workers' batches come to filling it.", "Mount a tmpfs there.")
    says = f"{_size(size)}, {_size(used)} in use."
    if size >= LEAST_SHM_BYTES and size - used >= LEAST_SHM_BYTES // 2:
        return found("ok", says)
    fix = "Use docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir of medium Memory on /dev/shm."
    if size >= LEAST_SHM_BYTES:
        fix = "List it with `ls -lt /dev/shm`; remove what ended processes left behind (torch_*, psm_*)."
    return found("limited", says, "Workers die with a bus error when the batches they hand over fill it.", fix)


def _sockets(folder: str) -> Check:
    """Check the folder for temporary files, below which lie the sockets by which workers hand memory over."""
    longest = len(os.fsencode(folder)) + SOCKET_BELOW
    found = partial(Check, STORAGE, "Length of TMPDIR", values={"folder": folder, "longest_bytes": longest})
    says = f"{folder}: paths of sockets have {longest} bytes; at most {LONGEST_SOCKET} are possible."
    if longest <= LONGEST_SOCKET:
        return found("ok", says)
    lost = "A DataLoader with workers fails, or waits for ever without a message."
    return found("limited", says, lost, "Set TMPDIR to a short path, such as /tmp.")


def _open_files() -> Check:
    """Check how many files a process may hold open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    no_limit = {resource.RLIM_INFINITY: "no limit"}
    values = {name: None if value in no_limit else value for name, value in (("soft", soft), ("hard", hard))}
    found = partial(Check, STORAGE, "Open files", values=values)
    says = f"{no_limit.get(soft, soft)}, can be raised to {no_limit.get(hard, hard)}."
    says = says if soft != hard else f"{no_limit.get(soft, soft)}."
    if soft in no_limit or soft >= LEAST_FILES:
        return found("ok", says)
    lost = "Each tensor that a worker hands over holds one; many small ones fail with “too many open files”."
    # Up to the hard limit everyone may go, beyond it only who set it.
    fix = f"The hard limit is {hard}; root can raise it: /etc/security/limits.conf, LimitNOFILE= of a service, or"
    fix += f" docker run --ulimit nofile={WANTED_FILES}."
    if hard in no_limit or hard >= WANTED_FILES:
        fix = f"Run ulimit -n {WANTED_FILES} before the training."
    elif hard > soft:
        fix = f"Run ulimit -n {hard} before the training. {fix}"
    return found("limited", says, lost, fix)


def _file_system(folder: Path, root: Path) -> str | None:
    """Return the kind of the mount that a folder lies on, wherever links to it lead."""
    folder = Path(os.path.realpath(folder))
    best, kind = -1, None
    for line in read_text(root / "proc/self/mountinfo").splitlines():
        left, separator, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not separator or len(fields) < 5 or not kinds:
            continue
        point = fields[4].replace("\\040", " ")
        # Among mounts on top of one another the last counts.
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= best:
            best, kind = len(point), kinds[0]
    return kind


def _write_speed(folder: Path) -> float:
    """Measure MB/s of 8 MiB written and brought to the disk. Random bytes: some file systems compress."""
    content = os.urandom(8 << 20)
    with open(folder / "speed", "wb", buffering=0) as file:
        begin = time.monotonic_ns()
        file.write(content)
        os.fsync(file)
        return len(content) * 1e3 / (time.monotonic_ns() - begin)


def _store_ns(folder: Path) -> float:
    """Measure what a step's record takes to store: the median of rounds of 500."""
    writer = RecordWriter(folder, STEP)
    body, rounds = STEP.missing(), []
    try:
        for _ in range(9):
            begin = time.monotonic_ns()
            for _ in range(500):
                writer.append(*body)
            rounds.append((time.monotonic_ns() - begin) / 500)
    finally:
        writer.close()
    return statistics.median(rounds)


def _size(value: float) -> str:
    for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f} bytes"


def stacks(root: Path = Path("/")) -> list[Check]:
    """Check by Yama's rule, this user's capabilities, and a child whether stacks of others may be read.

    Those of trainings by `whyidle run`, those of any process by `whyidle attach`.
    """
    status = parse_status(read(str(root / "proc/self/status")))
    told = read_text(root / "proc/sys/kernel/yama/ptrace_scope").strip()
    scope = int(told) if told.isdigit() else None
    capable = bool(int(status.get("CapEff", "0"), 16) & CAP_SYS_PTRACE)
    hindrance = why_no_child()
    values = {
        "ptrace_scope": scope,
        "cap_sys_ptrace": "yes" if capable else "no",
        "stacks_of_a_child": "seen" if hindrance is None else hindrance.reason,
    }
    of_run, of_attach = (partial(Check, STACKS, f"By whyidle {verb}", values=values) for verb in ("run", "attach"))
    if hindrance is not None and not hindrance.refused:
        fix = "Install py-spy in the environment of whyidle."
        says = f"py-spy sees none: {hindrance.reason}."
        return [found("missing", says, "Lines of code in findings.", fix) for found in (of_run, of_attach)]
    free = capable or not scope
    rule = f"kernel.yama.ptrace_scope is {scope}"

    def ways(sudo: str) -> str:
        sudo = "--cap-add SYS_PTRACE for the container" if limits.in_container(root) else sudo
        return f"{sudo}{'; or sysctl kernel.yama.ptrace_scope=0' if scope == OWN_CHILDREN else ''}."

    within = "A thread within the training samples its stacks instead, and sees less of C code; with "
    within += "`run --stacks outside` nothing does."
    says = "The sampler reads stacks of its trainings from outside"
    if hindrance is None and (free or scope == OWN_CHILDREN):
        run = of_run("ok", f"{says}." if free else f"{says}: {rule}, so they let it in (PR_SET_PTRACER).")
    else:
        says = "Not from outside: the system refuses it"
        says += "." if scope is None or scope <= OWN_CHILDREN else f" ({rule})."
        run = of_run("limited", says, within, "" if scope == NEVER else ways("run it as a user with CAP_SYS_PTRACE"))
    allows = f"{rule}: it allows {YAMA.get(scope or 0, 'what is unknown here')}."
    lost, fix = "`whyidle attach` records no stacks, only what the system reports.", ways("sudo whyidle attach")
    if scope == NEVER:
        attach = of_attach("missing", allows, lost, "Only a reboot without that setting changes it.")
    elif hindrance is not None and free:
        says = "py-spy sees no stacks of another process, though Yama does not forbid it"
        attach = of_attach("missing", f"{says}: {hindrance.reason}.", lost, fix)
    elif free:
        says = "Without Yama, the system allows processes of the same user." if scope is None else allows
        attach = of_attach("ok", "This user has CAP_SYS_PTRACE, which allows every process." if capable else says)
    else:
        attach = of_attach("limited" if scope == OWN_CHILDREN else "missing", allows, lost, fix)
    return [run, attach]


def why_no_child() -> NoStacks | None:
    """Try py-spy on a child that does nothing; return what kept it from seeing that one's stacks."""
    # It lets anyone in: py-spy is no ancestor of it, as Yama's rule wants by default.
    lets = "import ctypes, time; ctypes.CDLL(None).prctl(0x59616D61, ctypes.c_ulong(-1))"
    command = [sys.executable, "-S", "-c", f"{lets}; print(flush=True); time.sleep(60)"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        try:
            child.stdout.readline()
            return why_none(child.pid)
        finally:
            child.kill()
