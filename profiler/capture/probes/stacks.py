"""Whether stacks of other processes may be read here: of trainings by `whyidle run`, of any by `whyidle attach`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from ...record.check import Check
from ..sampler.procfs import read
from ..stacks.spy import NoStacks, why_none
from .container import in_container

GROUP = "Stacks of other processes"
OF_RUN, OF_ATTACH = "By whyidle run", "By whyidle attach"
WITHIN = (
    "A thread within the training samples its stacks instead, and sees less of C code; with `run --stacks outside` "
    "nothing does."
)
LOST = "`whyidle attach` records no stacks, only what the system reports."
CAP_SYS_PTRACE = 1 << 19
_SCOPES = {
    0: "processes of the same user",
    1: "a process's own children",
    2: "processes with CAP_SYS_PTRACE",
    3: "nobody",
}
OWN_CHILDREN = 1
NEVER = 3


def stacks(root: Path = Path("/")) -> list[Check]:
    """Yama's rule, this user's capabilities, and whether py-spy sees the stacks of a child at all."""
    scope = _number(read(str(root / "proc/sys/kernel/yama/ptrace_scope")))
    capable = bool(int(_status(root).get("CapEff", "0"), 16) & CAP_SYS_PTRACE)
    hindrance = why_no_child()
    values: dict[str, float | str | None] = {
        "ptrace_scope": scope,
        "cap_sys_ptrace": "yes" if capable else "no",
        "stacks_of_a_child": "seen" if hindrance is None else hindrance.reason,
    }
    if hindrance is not None and not hindrance.refused:
        says, fix = f"py-spy sees none: {hindrance.reason}.", "Install py-spy in the environment of whyidle."
        lost = "Lines of code in findings."
        return [Check(GROUP, name, "missing", says, lost, fix, values) for name in (OF_RUN, OF_ATTACH)]
    allowed = hindrance is None and (capable or scope is None or scope <= OWN_CHILDREN)
    return [_of_run(root, allowed, capable, scope, values), _of_attach(root, hindrance, capable, scope, values)]


def _of_run(
    root: Path, allowed: bool, capable: bool, scope: int | None, values: dict[str, float | str | None]
) -> Check:
    if allowed:
        says = "The sampler reads stacks of its trainings from outside."
        if scope == OWN_CHILDREN and not capable:
            how = f"kernel.yama.ptrace_scope is {scope}, so they let it in (PR_SET_PTRACER)"
            says = f"The sampler reads stacks of its trainings from outside: {how}."
        return Check(GROUP, OF_RUN, "ok", says, values=values)
    rule = "" if scope is None or scope <= OWN_CHILDREN else f" (kernel.yama.ptrace_scope is {scope})"
    fix = "" if scope == NEVER else _fix(root, scope, sudo="run it as a user with CAP_SYS_PTRACE")
    return Check(GROUP, OF_RUN, "limited", f"Not from outside: the system refuses it{rule}.", WITHIN, fix, values)


def _of_attach(
    root: Path, hindrance: NoStacks | None, capable: bool, scope: int | None, values: dict[str, float | str | None]
) -> Check:
    told = f"kernel.yama.ptrace_scope is {scope}: it allows {_SCOPES.get(scope or 0, 'what is unknown here')}."
    if scope == NEVER:
        fix = "Only a reboot without that setting changes it."
        return Check(GROUP, OF_ATTACH, "missing", told, LOST, fix, values)
    fix = _fix(root, scope, sudo="sudo whyidle attach")
    if hindrance is not None and (capable or not scope):
        says = f"py-spy sees no stacks of another process, though Yama does not forbid it: {hindrance.reason}."
        return Check(GROUP, OF_ATTACH, "missing", says, LOST, fix, values)
    if capable or not scope:
        free = "Without Yama, the system allows processes of the same user." if scope is None else told
        says = "This user has CAP_SYS_PTRACE, which allows every process." if capable else free
        return Check(GROUP, OF_ATTACH, "ok", says, values=values)
    return Check(GROUP, OF_ATTACH, "limited" if scope == OWN_CHILDREN else "missing", told, LOST, fix, values)


def _fix(root: Path, scope: int | None, sudo: str) -> str:
    ways = "--cap-add SYS_PTRACE for the container" if in_container(root) else sudo
    return f"{ways}{'; or sysctl kernel.yama.ptrace_scope=0' if scope == OWN_CHILDREN else ''}."


def why_no_child() -> NoStacks | None:
    """Tried on one that does nothing."""
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


def _status(root: Path) -> dict[str, str]:
    lines = (read(str(root / "proc/self/status")) or b"").decode(errors="replace").splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def _number(text: bytes | None) -> int | None:
    told = (text or b"").strip()
    return int(told) if told.isdigit() else None
