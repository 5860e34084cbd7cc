"""Running commands through `stallscope run`, as a user does."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

STALLSCOPE = [sys.executable, "-m", "stallscope"]


def run(
    folder: Path, *command: str | Path, options: tuple[str, ...] = ("--no-live",), **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, recorded into `folder`."""
    return subprocess.run(
        [*STALLSCOPE, "run", *options, "--out", folder, "--", *command],
        capture_output=True,
        text=True,
        timeout=120,
        **more,
    )


def report(folder: Path) -> dict[str, Any]:
    """The JSON report of a recording."""
    done = subprocess.run(
        [*STALLSCOPE, "report", folder, "--json"], capture_output=True, text=True, timeout=60, check=True
    )
    return dict(json.loads(done.stdout))
