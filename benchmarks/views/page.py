"""The page of a day's training: how long it takes to make, how large it is, how long a browser takes to draw it.

The recording is made up (`tests/support/long_run.py`). A browser says when it has drawn the charts: its own clock since
the navigation began, which the page's script writes into the document.
"""

from __future__ import annotations

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
MAKER = "import pathlib, sys, long_run; long_run.make(pathlib.Path(sys.argv[1]), float(sys.argv[2]))"
TESTS = Path(__file__).parents[1] / "tests"


def measure(hours: float = HOURS) -> None:
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
