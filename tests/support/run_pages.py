"""The page of a run, what is embedded in it, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.timeline.timeline import Timeline, timelines
from whyidle.record.run import open_run
from whyidle.report.page.run_page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page_of(*folders: Path) -> tuple[str, Analysis, list[Timeline]]:
    """The page of a run or a job, and what it was made of."""
    runs = [open_run(folder) for folder in folders]
    analysis = analyse(*runs)
    return page(analysis, runs), analysis, timelines(analysis, runs)


def data_in(made: str) -> Any:
    """What its scripts read."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    return json.loads(found)


def opened(file: Path) -> tuple[str, str]:
    """(the document as Chromium has it once loaded, what went to its console)."""
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    done = subprocess.run([*command, "--dump-dom", file.as_uri()], capture_output=True, text=True, timeout=120)
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)
