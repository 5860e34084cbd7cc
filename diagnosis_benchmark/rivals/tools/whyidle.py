"""Whyidle itself, of the interpreter that runs the benchmark."""

from __future__ import annotations

import json
from pathlib import Path

from whyidle_bench.cases.case import Case

from ..tool import PLAIN, Commands, Said, Tool, launched

QUIET = ("none", "minor")
"""Severities that nobody need act on."""


def _commands(python: Path, case: Case) -> Commands:
    ours = [str(python), "-m", "whyidle"]
    return [
        [*ours, "run", "--no-live", "--out", "run", "--", *launched(python, PLAIN, case)],
        [*ours, "report", "run", "--format", "json", "-o", "report.json"],
    ]


def _read(folder: Path) -> Said:
    verdict = json.loads((folder / "report.json").read_text())["verdict"]
    cause, severity = verdict["cause"], verdict["severity"]
    if cause is None or cause == "none":
        return Said((), str(verdict["title"]))
    word = f"{cause}, minor" if severity in QUIET else cause
    return Said((word,), f"{cause} ({severity}): {verdict['title']}")


TOOL = Tool("whyidle", "`whyidle run -- python train.py`", _commands, _read)
