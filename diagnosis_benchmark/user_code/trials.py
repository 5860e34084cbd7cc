"""Runs of the programs: under `whyidle run`, which keeps a recording each, and alone, by their own clocks."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from ..execute import execute
from .cases import BROKEN, FIXED, UserProgram

_RATE = re.compile(r"throughput: ([\d.]+) samples/s\s*\Z")
OUTPUT, ALONE, RECORDING = "output.txt", "alone.txt", "run"


def place(folder: Path, program: UserProgram, form: str, number: int = 0) -> Path:
    """Where the run of a form in a round lies."""
    first = folder / program.name / form
    return first / f"round-{number}" if number else first


def run(program: UserProgram, form: str, at: Path) -> None:
    """Record one form; what is recorded already is left as it is, what was interrupted is done anew."""
    recording = at / RECORDING
    if _has_ended(recording):
        return
    shutil.rmtree(recording, ignore_errors=True)
    at.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", str(recording.resolve())]
    command += ["--", sys.executable, str(program.program(form))]
    _keep(command, at / OUTPUT)


def run_alone(program: UserProgram, form: str, at: Path) -> None:
    """The same without whyidle; a run that has told its throughput is not made again."""
    if rate(at / ALONE) is None:
        at.mkdir(parents=True, exist_ok=True)
        _keep([sys.executable, str(program.program(form))], at / ALONE)


def report(at: Path) -> dict[str, Any] | None:
    """`whyidle report --format json` of the recording of `run`; `None` where there is none."""
    command = [sys.executable, "-m", "whyidle", "report", str(at / RECORDING), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return dict(json.loads(done.stdout)) if done.returncode == 0 else None


def rounds(folder: Path, program: UserProgram) -> int:
    """How many rounds of a program a folder has."""
    number = 0
    while any((place(folder, program, form, number) / RECORDING).is_dir() for form in (BROKEN, FIXED)):
        number += 1
    return number


def cost(folder: Path, program: UserProgram, number: int) -> float | None:
    """Of the broken form's time, what the fixed form did without in the same round, 0..1, by their own clocks as they
    were recorded; `None` where one did not tell."""
    broken, fixed = (rate(place(folder, program, form, number) / OUTPUT) for form in (BROKEN, FIXED))
    return 1 - broken / fixed if broken and fixed else None


def gain(program: UserProgram, folder: Path) -> float | None:
    """Throughput of the fixed form over that of the broken one, medians of runs without whyidle by their own clocks;
    without such runs what was measured where the program was written."""
    told = [
        [each for output in (folder / program.name / form).glob(f"alone-*/{ALONE}") if (each := rate(output))]
        for form in (BROKEN, FIXED)
    ]
    if not all(told):
        told = [[each] if (each := program.measured.get(form)) else [] for form in (BROKEN, FIXED)]
    broken, fixed = (statistics.median(rates) if rates else None for rates in told)
    return fixed / broken if broken and fixed else None


def rate(output: Path) -> float | None:
    """Samples a second, as a program printed them in its last line."""
    try:
        found = _RATE.search(output.read_text(errors="replace"))
    except OSError:
        return None
    return float(found[1]) if found else None


def _keep(command: list[str], output: Path) -> None:
    execute(command, Path.cwd(), output, errors=subprocess.DEVNULL)


def _has_ended(recording: Path) -> bool:
    """Whether there is a recording whose program came to its end, well or not."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return json.loads((recording / "run.json").read_text())["ended"] is not None
    return False
