"""Whether this is a container: then the way out of most troubles lies with who started it."""

from __future__ import annotations

from pathlib import Path

_MARKS = ("docker", "kubepods", "containerd", "libpod", "lxc")


def in_container(root: Path = Path("/")) -> bool:
    if (root / ".dockerenv").exists() or (root / "run/.containerenv").exists():
        return True
    try:
        groups = (root / "proc/1/cgroup").read_text()
    except OSError:
        return False
    return any(mark in groups for mark in _MARKS)
