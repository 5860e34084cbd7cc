"""Whether this is a container: then the way out of most troubles lies with who started it."""

from __future__ import annotations

from pathlib import Path

from ..sampler.procfs import read

_FILES = (".dockerenv", "run/.containerenv", "run/systemd/container", "run/secrets/kubernetes.io", ".singularity.d")
"""Docker, Podman, whatever systemd runs in, Kubernetes (`/var/run` is `/run`), Apptainer."""
_VARIABLES = ("container=", "KUBERNETES_SERVICE_HOST=")
_GROUPS = ("docker", "kubepods", "containerd", "libpod", "lxc")


def in_container(root: Path = Path("/")) -> bool:
    if any((root / name).exists() for name in _FILES):
        return True
    # What this process was started with.
    variables = _text(root / "proc/self/environ").split("\0")
    if any(variable.startswith(_VARIABLES) for variable in variables):
        return True
    # In a cgroup namespace of its own, as cgroup 2 has it, a container is told "0::/".
    groups = _text(root / "proc/1/cgroup")
    return any(group in groups for group in _GROUPS) or _layered(root)


def _layered(root: Path) -> bool:
    """Whether `/` is made of an image's layers. Systems that boot from an image (composefs) mount it under its name."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[4:5] == ["/"] and right.split()[:2] == ["overlay", "overlay"]:
            return True
    return False


def _text(path: Path) -> str:
    return (read(str(path)) or b"").decode(errors="replace")
