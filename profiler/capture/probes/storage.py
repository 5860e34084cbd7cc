"""Where recordings, shared memory and sockets lie, and what the kernel tells of reads."""

from __future__ import annotations

import os
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from ...errors import WhyidleError
from ...record.check import Check
from ...record.schema import STEP
from ...record.segment import RecordWriter
from ..sampler.host import shared_memory
from ..sampler.procfs import parse_pairs, read

GROUP = "Storage and limits"
MIB = 1 << 20
LEAST_FREE_BYTES = 1 << 30
LEAST_SHM_BYTES = 1 << 30
LEAST_FREE_SHM_BYTES = LEAST_SHM_BYTES // 2
NOTHING = "Nothing can be recorded there."
ANOTHER = "Name another folder with --out."
SLOW_STORE_NS = 20_000
"""A record is stored in about a microsecond where memory is mapped from a local disk."""
SLOW_DISK_MB_S = 30.0
OVER_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "fuse", "9p", "afs", "glusterfs", "virtiofs")
LONGEST_SOCKET = 107
"""Bytes in the path of a Unix socket."""
SOCKET_BELOW = len("/torch-shm-dir-XXXXXX/manager.sock")
"""What torch's sharing adds to the folder for temporary files; multiprocessing's own adds two bytes less."""
LEAST_FILES = 4096
WANTED_FILES = 65536


def storage(runs: Path, root: Path = Path("/")) -> list[Check]:
    """`runs`: the folder in which recordings are to lie, there already or not."""
    return [reads(root), place(runs, root), shm(root), sockets(tempfile.gettempdir()), open_files(), locked_memory()]


def reads(root: Path) -> Check:
    """Whether it is known what a process read, and how much of it came from the cache."""
    told = parse_pairs(read(str(root / "proc/self/io")))
    name = "Reads and cache"
    if b"rchar" in told and b"read_bytes" in told:
        says = "/proc/PID/io reports what was read, and how much of it came from storage."
        return Check(GROUP, name, "ok", says, values={"told": "yes"})
    lost = "Whether samples came from the page cache or from storage (input.storage)."
    fix = "Use a kernel with CONFIG_TASK_IO_ACCOUNTING; sandboxes such as gVisor do not report it."
    return Check(GROUP, name, "missing", "No /proc/PID/io.", lost, fix, {"told": "no"})


def place(runs: Path, root: Path) -> Check:
    """The folder for recordings: room, file system, speed, and what storing a record there takes."""
    name = "Place for runs"
    # A link that leads nowhere is in the way of a folder too.
    folder = next(p for p in (runs.absolute(), *runs.absolute().parents) if os.path.lexists(p))
    if not os.path.isdir(folder):  # noqa: PTH112 - that of Path raises where a link leads to what one may not see
        says = f"{folder} {'leads to something that is' if folder.is_symlink() else 'is'} not a folder."
        return Check(GROUP, name, "missing", says, NOTHING, ANOTHER, {"folder": str(folder)})
    kind = file_system(folder, root)
    free = shutil.disk_usage(folder).free
    values: dict[str, float | str | None] = {"folder": str(folder), "file_system": kind, "free_bytes": free}
    try:
        with tempfile.TemporaryDirectory(prefix=".whyidle-", dir=folder) as scratch:
            speed, record_ns = _write_speed(Path(scratch)), _store_ns(Path(scratch))
    except (OSError, WhyidleError) as error:
        return Check(GROUP, name, "missing", f"{folder}: {error}", NOTHING, ANOTHER, values)
    values |= {"write_mb_s": speed, "record_ns": record_ns}
    says = f"{folder} ({kind or 'unknown file system'}): {free / 2**30:.0f} GiB free, writes {speed:.0f} MB/s"
    says += f" to the disk, stores a step's record in {record_ns / 1e3:.1f} µs."
    troubles = []
    if kind and kind.startswith(OVER_NETWORK):
        troubles.append("every write into the recording may wait for the network")
    if free < LEAST_FREE_BYTES:
        troubles.append("a long recording may not fit; records that do not are counted as dropped")
    if speed < SLOW_DISK_MB_S:
        troubles.append("the kernel may stop the training while it writes the recording to disk")
    if record_ns > SLOW_STORE_NS:
        troubles.append(f"the hooks cost more than {SLOW_STORE_NS / 1e3:.0f} µs per step")
    if not troubles:
        return Check(GROUP, name, "ok", says, values=values)
    lost = "; ".join(troubles)
    fix = "Record onto a local disk with free space: `--out DIR`."
    return Check(GROUP, name, "limited", says, f"{lost[0].upper()}{lost[1:]}.", fix, values)


def shm(root: Path) -> Check:
    """Through shared memory the workers hand their batches over."""
    size, used = (shared_memory(root).get(n) for n in ("shm_total_bytes", "shm_used_bytes"))
    values: dict[str, float | str | None] = {"total_bytes": size, "used_bytes": used}
    name = "/dev/shm"
    if size is None or used is None:
        says = "It is not a file system of its own, so its size is unknown."
        lost = "How near the workers' batches come to filling it."
        return Check(GROUP, name, "limited", says, lost, "Mount a tmpfs there.", values)
    says = f"{_size(size)}, {_size(used)} in use."
    if size >= LEAST_SHM_BYTES and size - used >= LEAST_FREE_SHM_BYTES:
        return Check(GROUP, name, "ok", says, values=values)
    lost = "Workers die with a bus error when the batches they hand over fill it."
    fix = "Use docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir of medium Memory on /dev/shm."
    if size >= LEAST_SHM_BYTES:
        fix = "List it with `ls -lt /dev/shm`; remove what ended processes left behind (torch_*, psm_*)."
    return Check(GROUP, name, "limited", says, lost, fix, values)


def sockets(folder: str) -> Check:
    """Workers hand memory over by sockets below the folder for temporary files."""
    longest = len(os.fsencode(folder)) + SOCKET_BELOW
    values: dict[str, float | str | None] = {"folder": folder, "longest_bytes": longest}
    name = "Length of TMPDIR"
    says = f"{folder}: paths of sockets have {longest} bytes; at most {LONGEST_SOCKET} are possible."
    if longest <= LONGEST_SOCKET:
        return Check(GROUP, name, "ok", says, values=values)
    lost = "A DataLoader with workers fails, or waits for ever without a message."
    return Check(GROUP, name, "limited", says, lost, "Set TMPDIR to a short path, such as /tmp.", values)


def open_files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    values: dict[str, float | str | None] = {"soft": _limit(soft), "hard": _limit(hard)}
    says = f"{_words(soft)}, can be raised to {_words(hard)}." if soft != hard else f"{_words(soft)}."
    if soft == resource.RLIM_INFINITY or soft >= LEAST_FILES:
        return Check(GROUP, "Open files", "ok", says, values=values)
    lost = "Each tensor that a worker hands over holds one; many small ones fail with “too many open files”."
    return Check(GROUP, "Open files", "limited", says, lost, _more_files(soft, hard), values)


def _more_files(soft: int, hard: int) -> str:
    """Up to the hard limit everyone may go, beyond it only who set it."""
    if hard == resource.RLIM_INFINITY or hard >= WANTED_FILES:
        return f"Run ulimit -n {WANTED_FILES} before the training."
    beyond = f"The hard limit is {hard}; root can raise it: /etc/security/limits.conf, LimitNOFILE= of a service, or"
    beyond += f" docker run --ulimit nofile={WANTED_FILES}."
    return beyond if hard <= soft else f"Run ulimit -n {hard} before the training. {beyond}"


def locked_memory() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    says = f"{_words(soft, 1)}; CUDA's pinned memory does not count towards it (RDMA and io_uring do)."
    return Check(GROUP, "Locked memory", "ok", says, values={"soft_bytes": _limit(soft), "hard_bytes": _limit(hard)})


def file_system(folder: Path, root: Path) -> str | None:
    """The kind of the mount that a folder lies on, wherever links to it lead."""
    folder = Path(os.path.realpath(folder))
    text = read(str(root / "proc/self/mountinfo"))
    best, kind = -1, None
    for line in (text or b"").decode(errors="replace").splitlines():
        left, separator, right = line.partition(" - ")
        fields, kinds = left.split(), right.split()
        if not separator or len(fields) < 5 or not kinds:
            continue
        point = fields[4].replace("\\040", " ")
        # Of mounts on top of one another the last counts.
        if (folder == Path(point) or Path(point) in folder.parents) and len(point) >= best:
            best, kind = len(point), kinds[0]
    return kind


def _write_speed(folder: Path) -> float:
    """MB/s of 8 MiB written and brought to the disk. Random bytes: some file systems compress."""
    content = os.urandom(8 * MIB)
    file = os.open(folder / "speed", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        begin = time.monotonic_ns()
        os.write(file, content)
        os.fsync(file)
        return len(content) * 1e3 / (time.monotonic_ns() - begin)
    finally:
        os.close(file)


def _store_ns(folder: Path) -> float:
    """What a step's record takes to store: the median of rounds of 500."""
    writer = RecordWriter(folder, STEP)
    body = STEP.missing()
    try:
        rounds = []
        for _ in range(9):
            begin = time.monotonic_ns()
            for _ in range(500):
                writer.append(*body)
            rounds.append((time.monotonic_ns() - begin) / 500)
    finally:
        writer.close()
    return statistics.median(rounds)


def _limit(value: int) -> float | None:
    return None if value == resource.RLIM_INFINITY else value


def _words(value: int, size: int = 0) -> str:
    if value == resource.RLIM_INFINITY:
        return "no limit"
    return _size(value) if size else str(value)


def _size(value: float) -> str:
    for unit, name in ((2**30, "GiB"), (MIB, "MiB"), (1024, "KiB")):
        if value >= unit:
            return f"{value / unit:.1f} {name}"
    return f"{value:.0f} bytes"
