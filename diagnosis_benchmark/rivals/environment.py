"""The environment that the rivals are installed into: versions pinned, torch and whyidle shared with this one."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import platformdirs

COMPLETE = "complete"


def default_place(requirements: Sequence[str]) -> Path:
    """In the user's cache: another one for other requirements, or for another interpreter."""
    key = hashlib.sha256(repr((sys.executable, sorted(requirements))).encode()).hexdigest()[:12]
    return Path(platformdirs.user_cache_dir("whyidle")) / f"rivals-{key}"


def environment(place: Path, requirements: Sequence[str]) -> Path:
    """The interpreter of the environment with these packages at these versions, made if there is none.

    Raises:
        SystemExit: it could not be made; the message is pip's last line.
    """
    python, complete = place / "bin" / "python", place / COMPLETE
    if complete.exists() and set(requirements) <= set(complete.read_text().split()):
        return python
    if place.exists():
        if not (place / "pyvenv.cfg").exists():
            raise SystemExit(f"{place} is no environment; name another folder with --venv")
        shutil.rmtree(place)
    try:
        environment_beside(place, requirements)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "").strip().splitlines()
        raise SystemExit(f"the rivals could not be installed: {said[-1] if said else error}") from None
    complete.write_text("\n".join(requirements))
    return python


def environment_beside(folder: Path, requirements: Sequence[str]) -> Path:
    """An environment of its own that sees this interpreter's packages, so that torch is the same; its interpreter.

    Raises:
        subprocess.CalledProcessError: it could not be made, or pip found no such package.
    """
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, text=True)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(subprocess.run([python, "-c", ask], check=True, capture_output=True, text=True).stdout.strip())
    ours = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    # As a site folder, so that .pth files within it count.
    lines = [f"import site; site.addsitedir({path!r})\n" for path in sorted(ours)]
    (packages / "beside.pth").write_text("".join(lines))
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check", *requirements]
    subprocess.run(pip, check=True, capture_output=True, text=True)
    return python


def free_port() -> int:
    """One that nobody listens at, for now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
