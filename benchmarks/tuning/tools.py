"""The tuners that are compared: each started as its documentation says, and the settings that it chose."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .programs.workloads import WORKLOADS

PROGRAMS = Path(__file__).parent / "programs"
WHYIDLE, LOADTUNE = "whyidle", "loadtune"
BASELINE = {"num_workers": 2, "prefetch_factor": 2}
"""What the script has before it is tuned."""
MOST_WORKERS = 8
"""As in the grid."""
LONGEST_S = 1800.0
TRIED = ("num_workers", "prefetch_factor", "in_order", "pin_memory", "batch_size")
"""Settings that a block can be run with, and that matter within an epoch."""
_BEST = re.compile(r"^\[loadtune\] best overall: (.*) — [0-9.]+x baseline$", re.MULTILINE)


@dataclass(frozen=True)
class Choice:
    """What a tuner came to with a workload."""

    tool: str
    settings: dict[str, Any] | None
    """`None`: it failed."""
    seconds: float
    """By the clock, from its start to its end."""
    said: Any = field(default_factory=dict)
    """All that it left, or its last words where it failed."""


def tune(workload: str, budget_s: float, options: Sequence[str]) -> Choice:
    """By `whyidle tune`."""
    train = [sys.executable, str(PROGRAMS / "train.py"), "--workload", workload]
    train += ["--workers", str(BASELINE["num_workers"]), "--prefetch", str(BASELINE["prefetch_factor"])]
    command = [sys.executable, "-m", "whyidle", "tune", "--json", "-", "--budget", f"{budget_s:g}"]
    # What the grid has, and nothing else.
    command += ["--max-workers", str(MOST_WORKERS), "--batch-sizes", "none", "--no-live", *options]
    with tempfile.TemporaryDirectory() as folder:
        seconds, done = _timed([*command, "--", *train], Path(folder))
    try:
        told = json.loads(done.stdout)
        if done.returncode:
            return Choice(WHYIDLE, None, seconds, _last_words(done) | {"told": told})
        return Choice(WHYIDLE, tried(told["best"]["settings"], WORKLOADS[workload].batch), seconds, told)
    except (ValueError, KeyError, TypeError):
        return Choice(WHYIDLE, None, seconds, _last_words(done))


def loadtune(workload: str, python: Path) -> Choice:
    """By `loadtune tune workload.py`, with the options that it has by default; no charts."""
    command = [str(python.with_name("loadtune")), "tune", str(PROGRAMS / "workload_loadtune.py"), "--no-plots"]
    command += ["--workers", str(BASELINE["num_workers"]), "--save-raw", "raw.json"]
    with tempfile.TemporaryDirectory() as folder:
        seconds, done = _timed(command, Path(folder), TUNING_WORKLOAD=workload)
        raw = Path(folder) / "raw.json"
        if done.returncode or not raw.exists():
            return Choice(LOADTUNE, None, seconds, _last_words(done))
        return Choice(LOADTUNE, recommended(done.stdout), seconds, json.loads(raw.read_text()))


def recommended(output: str) -> dict[str, Any]:
    """What loadtune says is best; where nothing was better, what there was."""
    found = _BEST.search(output)
    if found is None:
        return dict(BASELINE)
    label = dict(part.partition("=")[::2] for part in found[1].split(", "))
    return tried({"num_workers": int(label["workers"]), "prefetch_factor": int(label.get("prefetch", 2))})


def tried(settings: Mapping[str, Any], batch: int | None = None) -> dict[str, Any]:
    """The settings as a block is run with them: those that say nothing are left out, as is the batch that there was."""
    kept = {name: settings[name] for name in TRIED if settings.get(name) is not None}
    if not kept["num_workers"]:
        kept["prefetch_factor"] = None
    if kept.get("in_order", True):
        kept.pop("in_order", None)
    if kept.get("batch_size") == batch:
        kept.pop("batch_size", None)
    if not kept.get("pin_memory"):
        kept.pop("pin_memory", None)
    return kept


def _timed(command: Sequence[str], folder: Path, **environment: str) -> tuple[float, subprocess.CompletedProcess[str]]:
    begin = time.monotonic()
    try:
        around = {"cwd": folder, "env": os.environ | environment, "stdin": subprocess.DEVNULL}
        done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST_S, check=False, **around)
    except subprocess.TimeoutExpired:
        done = subprocess.CompletedProcess(command, 124, "", f"not done after {LONGEST_S:g} s")
    return time.monotonic() - begin, done


def _last_words(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    lines = (done.stderr or done.stdout).strip().splitlines()
    return {"exit_code": done.returncode, "error": lines[-1] if lines else ""}
