"""What reports of a day's recording cost: exports (seconds, peak memory, size), and the page, which a browser draws.

The recording is made up (`tests/support/long_run.py`): 864,000 steps, as many batches, samples five times a second. A
browser says when it has drawn the charts: its own clock since the navigation began, which the page's script writes into
the document.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from whyidle.analyse.run.analysis import analyse
from whyidle.record.run import open_run
from whyidle.report.page.run_page import page

HOURS = 24.0
OPENINGS = 5
TESTS = Path(__file__).parents[2] / "tests"
MAKER = (
    "import pathlib, sys; from support import long_run; long_run.make(pathlib.Path(sys.argv[1]), float(sys.argv[2]))"
)
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


def pages(hours: float = HOURS) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        # In a process of its own, so that its memory is not counted.
        subprocess.run([sys.executable, "-c", MAKER, run, str(hours)], check=True, cwd=TESTS)
        opened = open_run(run)
        begin = time.process_time()
        analysis = analyse(opened)
        analysed = time.process_time()
        made = page(analysis, [opened])
        end = time.process_time()
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        (run / "page.html").write_text(made, encoding="utf-8")
        print(f"page of {hours:g} h: {len(made) / 1e6:.2f} MB; CPU s: analysis {analysed - begin:.1f}, page ", end="")
        print(f"{end - analysed:.1f}; {most:.1f} GB of memory at most")
        drawn = openings(run / "page.html")
        if drawn:
            print(
                f"  drawn in Chromium after ms: median {median(drawn):.0f} of {', '.join(f'{ms:.0f}' for ms in drawn)}"
            )


def openings(file: Path) -> list[float]:
    """ms until the charts were drawn, each in a browser just started; none where there is no browser."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        return []
    command = [browser, "--headless=new", "--no-sandbox", "--window-size=1280,900", "--dump-dom", file.as_uri()]
    documents = (subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(OPENINGS))
    return [float(found[1]) for document in documents if (found := re.search(r'data-drawn="(\d+)"', document))]
