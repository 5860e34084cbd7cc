"""The environment that the rivals are installed into: versions pinned, torch and whyidle shared with this one."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import platformdirs
from overhead_processes import environment_beside

VERSIONS = {"traceml-ai": "0.5.0", "loadtune": "0.3.0", "fournex": "0.3.1", "gpu-idle": "0.1.0"}
"""Of each rival, by its name at PyPI: the newest when this was written."""
COMPLETE = "complete"


def default_place() -> Path:
    """In the user's cache: another one for other versions, or for another interpreter."""
    key = hashlib.sha256(repr((sys.executable, sorted(VERSIONS.items()))).encode()).hexdigest()[:12]
    return Path(platformdirs.user_cache_dir("whyidle")) / f"rivals-{key}"


def environment(place: Path, packages: Sequence[str]) -> Path:
    """The interpreter of the environment with these packages, made if there is none.

    Raises:
        SystemExit: it could not be made; the message is pip's last line.
    """
    python, complete = place / "bin" / "python", place / COMPLETE
    wanted = [f"{name}=={VERSIONS[name]}" for name in packages]
    if complete.exists() and set(wanted) <= set(complete.read_text().split()):
        return python
    if place.exists():
        if not (place / "pyvenv.cfg").exists():
            raise SystemExit(f"{place} is no environment; name another folder with --venv")
        shutil.rmtree(place)
    try:
        environment_beside(place, wanted)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise SystemExit(f"the rivals could not be installed: {said[-1] if said else error}") from None
    complete.write_text("\n".join(wanted))
    return python
