"""Lets the sampler look into this process, where the system lets processes look into their children alone.

That is Yama's rule (`kernel.yama.ptrace_scope` 1, the default of Debian and Ubuntu). A process may name one other that
may look into it, with all that this one starts (prctl(2), PR_SET_PTRACER). The sampler is no ancestor of the training:
whoever started both is named.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from ..hooks.switch import ours

SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
CHILDREN_ALONE = "1"
NAMESPACE = Path("/proc/self/ns/pid")
TRACER = "WHYIDLE_TRACER"
"""The process that may look, as `tracer()` says it."""
_PR_SET_PTRACER = 0x59616D61

_permitted = False


def tracer() -> str:
    """This process, as others in its namespace know it; empty without a /proc."""
    return f"{os.getpid()} {_namespace()}" if NAMESPACE.is_symlink() else ""


def permit(told: str | None, scope: Path = SCOPE) -> None:
    """Let that process, and what it starts, look into this one and into its forks. Never raises.

    Args:
        told: what `tracer()` said there; in another namespace its number means another process, so nothing is done.
        scope: the file that tells Yama's rule.
    """
    global _permitted
    with ours():
        if not told or _permitted or scope.read_text().strip() != CHILDREN_ALONE:
            return
        pid, _, namespace = told.partition(" ")
        if namespace != _namespace():
            return
        _permitted = True
        # A fork is a process of its own, which nobody was let into.
        os.register_at_fork(after_in_child=lambda: _set(int(pid)))
        _set(int(pid))


def _set(pid: int) -> None:
    with ours():
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), *[ctypes.c_ulong(0)] * 3)


def _namespace() -> str:
    return str(NAMESPACE.readlink())
