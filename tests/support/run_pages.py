"""The page of a run, what is embedded in it, and what a browser makes of it."""

from __future__ import annotations

import base64
import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.timeline.timeline import Timeline, timelines
from whyidle.record.run import open_run
from whyidle.report.page.run_page import TYPES, page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def page_of(*folders: Path) -> tuple[str, Analysis, list[Timeline]]:
    """The page of a run or a job, and what it was made of."""
    runs = [open_run(folder) for folder in folders]
    analysis = analyse(*runs)
    return page(analysis, runs), analysis, timelines(analysis, runs)


def unpack(packed: dict[str, str]) -> npt.NDArray[Any]:
    """As `static/unpack.js` does."""
    return np.frombuffer(base64.b64decode(packed["base64"]), dtype=TYPES[packed["type"]])


def data_in(made: str) -> Any:
    """What its scripts read."""
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', made, re.DOTALL)
    return json.loads(found)


def opened(file: Path) -> tuple[str, str]:
    """(the document as Chromium has it once loaded, what went to its console)."""
    command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]
    done = subprocess.run(
        [*command, "--virtual-time-budget=5000", "--dump-dom", file.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


def told_by(made: str, script: str, file: Path) -> Any:
    """The list `told` of a script of ours, which clicks as a reader would; the page itself lets in none but its own."""
    made = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", made)
    script = f"(async () => {{ {script} document.body.dataset.told = JSON.stringify(told); }})();"
    file.write_text(made.replace("</body>", f"<script>{script}</script></body>"))
    document, console = opened(file)
    assert console == ""
    (told,) = re.findall(r'data-told="([^"]*)"', document)
    return json.loads(html.unescape(told))
