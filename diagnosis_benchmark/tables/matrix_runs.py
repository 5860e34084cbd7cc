"""Runs of `whyidle compare faults` and `batch-sizes` in a folder: made, told again, and where they were made."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from whyidle.devices.choose import choose


def machine() -> str:
    """What the runs are made on."""
    import torch

    cpu, cpus = choose("cpu").describe()["title"], len(os.sched_getaffinity(0))
    return f"{cpu}, {cpus} CPUs, Python {platform.python_version()}, torch {torch.__version__}"


def make(scenario: str, options: Sequence[str], folder: Path, seed: int) -> None:
    """Run `whyidle compare SCENARIO` with these options into the folder; Ctrl-C ends it early.

    Raises:
        SystemExit: it could not be run.
    """
    command = [sys.executable, "-m", "whyidle", "compare", scenario, *options, "--seed", str(seed)]
    done = subprocess.run([*command, "--out", str(folder)], stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 130):
        raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")


def told(folder: Path, key: str) -> dict[str, Any]:
    """The JSON of a folder of such runs.

    Args:
        key: what the JSON of such runs has, and that of others has not.

    Raises:
        SystemExit: the folder has no such runs.
    """
    command = [sys.executable, "-m", "whyidle", "report", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    content = dict(json.loads(done.stdout)) if done.returncode == 0 else {}
    if key not in content:
        raise SystemExit(done.stderr.strip() or f"{folder} holds no such runs. Name the folder that --out named.")
    return content
