"""Whether `whyidle attach` may look into processes: py-spy, and the right to trace (ptrace)."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
from pathlib import Path

from ...record.check import Check
from ..attach.spy import find_py_spy
from ..sampler.procfs import read
from .container import in_container

GROUP = "Attaching (whyidle attach)"
LOST = "`whyidle attach` records no stacks, only what the system tells. `whyidle run` needs none of this."
CAP_SYS_PTRACE = 1 << 19
_SCOPES = {
    0: "processes of the same user",
    1: "a process's own children",
    2: "processes with CAP_SYS_PTRACE",
    3: "nobody",
}
_TO_SCOPE = "sysctl kernel.yama.ptrace_scope=0"


def stacks(root: Path = Path("/")) -> list[Check]:
    return [_program(), _right(root)]


def _program() -> Check:
    program = find_py_spy()
    if program is None:
        return Check(GROUP, "py-spy", "missing", "Not found.", LOST, "pip install py-spy", {"program": None})
    try:
        version = importlib.metadata.version("py-spy")
    except importlib.metadata.PackageNotFoundError:
        version = "of unknown version"
    return Check(GROUP, "py-spy", "ok", f"{version}.", values={"program": program, "version": version})


def _right(root: Path) -> Check:
    """Yama's rule, this user's capabilities, and whether a filter stands before the call itself."""
    name = "Right to trace"
    scope = _number(read(str(root / "proc/sys/kernel/yama/ptrace_scope")))
    status = _status(root)
    capable = bool(int(status.get("CapEff", "0"), 16) & CAP_SYS_PTRACE)
    filtered = status.get("Seccomp") == "2"
    readable = may_read_memory()
    granted = _has_file_capability()
    values: dict[str, float | str | None] = {
        "ptrace_scope": scope,
        "cap_sys_ptrace": "yes" if capable else "no",
        "seccomp": status.get("Seccomp"),
        "process_vm_readv": "refused" if not readable else "allowed",
    }
    if not readable:
        says = "The call that reads another process's memory is refused" + (
            " by a seccomp filter." if filtered else "."
        )
        fix = "Start the container with --cap-add SYS_PTRACE (its filter then lets the call pass)."
        return Check(GROUP, name, "missing", says, LOST, fix, values)
    if capable or granted:
        whose = "This user has" if capable else "py-spy has been given"
        return Check(GROUP, name, "ok", f"{whose} CAP_SYS_PTRACE: any process may be looked into.", values=values)
    if scope is None:
        says = "No rule of Yama's: processes of the same user may be looked into."
        return Check(GROUP, name, "ok", says, values=values)
    says = f"kernel.yama.ptrace_scope is {scope}: {_SCOPES.get(scope, 'a rule unknown here')} may be looked into."
    if scope == 0:
        return Check(GROUP, name, "ok", says, values=values)
    ways = "sudo whyidle attach; or sudo setcap cap_sys_ptrace+ep on py-spy"
    if in_container(root):
        ways = "--cap-add SYS_PTRACE for the container"
    if scope == 3:
        fix = "Only a reboot without that setting changes it."
    else:
        fix = f"{ways}{f'; or {_TO_SCOPE}' if scope == 1 else ''}."
    return Check(GROUP, name, "limited" if scope == 1 else "missing", says, LOST, fix, values)


def may_read_memory() -> bool:
    """Whether `process_vm_readv` works at all, tried on this process itself: a filter refuses that as well."""

    class IoVector(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))

    source, target = ctypes.create_string_buffer(b"x", 1), ctypes.create_string_buffer(1)
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (OSError, AttributeError):
        return False
    call.restype = ctypes.c_ssize_t
    here = IoVector(ctypes.cast(target, ctypes.c_void_p), 1)
    there = IoVector(ctypes.cast(source, ctypes.c_void_p), 1)
    one = ctypes.c_ulong(1)
    return bool(call(os.getpid(), ctypes.byref(here), one, ctypes.byref(there), one, ctypes.c_ulong(0)) == 1)


def _has_file_capability() -> bool:
    program = find_py_spy()
    try:
        return program is not None and bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def _status(root: Path) -> dict[str, str]:
    lines = (read(str(root / "proc/self/status")) or b"").decode(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _number(text: bytes | None) -> int | None:
    told = (text or b"").strip()
    return int(told) if told.isdigit() else None
