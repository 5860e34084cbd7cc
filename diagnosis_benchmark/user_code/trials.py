"""Runs of the programs: under `whyidle run`, which keeps a recording each, and alone, by their own clocks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cases import UserProgram

LONGEST_S = 240
_RATE = re.compile(r"throughput: ([\d.]+) samples/s\s*\Z")
OUTPUT, ALONE, RECORDING = "output.txt", "alone.txt", "run"


@dataclass(frozen=True)
class RecordedProgram:
    """What became of one form of a program."""

    rate: float | None
    """Samples a second by its own clock, while it was recorded; `None` where it did not say."""
    report: dict[str, Any] | None
    """`whyidle report --format json` of the recording; `None` where there is none."""


def run(program: UserProgram, form: str, folder: Path) -> None:
    """Record one form into the folder; one that is recorded already is left as it is."""
    if (folder / RECORDING).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", str((folder / RECORDING).resolve())]
    command += ["--", sys.executable, str(program.program(form))]
    _keep(command, folder / OUTPUT)


def run_alone(program: UserProgram, form: str, folder: Path) -> None:
    """The same without whyidle."""
    folder.mkdir(parents=True, exist_ok=True)
    _keep([sys.executable, str(program.program(form))], folder / ALONE)


def told(folder: Path) -> RecordedProgram:
    """What a folder of `run` says."""
    command = [sys.executable, "-m", "whyidle", "report", str(folder / RECORDING), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout) if done.returncode == 0 else None
    return RecordedProgram(rate(folder / OUTPUT), report)


def rate(output: Path) -> float | None:
    """Samples a second, as a program printed them in its last line."""
    try:
        found = _RATE.search(output.read_text(errors="replace"))
    except OSError:
        return None
    return float(found[1]) if found else None


def _keep(command: list[str], output: Path) -> None:
    with output.open("wb") as file:
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.DEVNULL,
                timeout=LONGEST_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            file.write(b"\nended: it ran too long\n")
