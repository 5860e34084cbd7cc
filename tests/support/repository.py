"""Repositories of code that is run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

SOMEONE = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *words: str) -> str:
    """What git prints, in nobody's configuration."""
    settled = os.environ | SOMEONE | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(["git", *words], cwd=folder, env=settled, capture_output=True, text=True, check=True)
    return done.stdout.strip()
