"""What exports cost of a day's recording: seconds, peak memory, and how large what they write is.

The recording is made up (`tests/support/long_run.py`): 864,000 steps, as many batches, samples five times a second.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).parents[1] / "tests"
HOURS = 24.0
MAKER = "import pathlib, sys, long_run; long_run.make(pathlib.Path(sys.argv[1]), float(sys.argv[2]))"
CASES = {
    "JSON report, to compare with": ("--json", "report.json"),
    "trace": ("--format", "trace", "trace.json"),
    "trace, packed": ("--format", "trace", "trace.json.gz"),
    "csv, steps": ("--format", "csv", "steps.csv"),
    "csv, batches": ("--format", "csv", "--table", "batches", "batches.csv"),
    "parquet, steps": ("--format", "parquet", "steps.parquet"),
    "parquet, batches": ("--format", "parquet", "--table", "batches", "batches.parquet"),
}
"""Options of `report`; the last is the file, which `-o` goes before."""


def exports() -> None:
    with tempfile.TemporaryDirectory() as around:
        folder = Path(around)
        run = folder / "run"
        subprocess.run([sys.executable, "-c", MAKER, run, str(HOURS)], check=True, cwd=TESTS)
        recorded = sum(path.stat().st_size for path in run.iterdir())
        print(f"exports of a recording of {HOURS:g} h, {recorded / 1e9:.2f} GB")
        for name, (*options, target) in CASES.items():
            seconds, cpu, peak = spent(run, *options, "-o", str(folder / target))
            written = (folder / target).stat().st_size
            print(f"  {name}: {seconds:.1f} s, CPU {cpu:.1f} s, peak {peak >> 20} MiB, writes {written / 1e6:.1f} MB")


def spent(run: Path, *options: str) -> tuple[float, float, int]:
    """Wall seconds, CPU seconds and peak bytes of memory of a report."""
    begin = time.monotonic()
    command = [sys.executable, "-m", "whyidle", "report", str(run), *options]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return time.monotonic() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024
