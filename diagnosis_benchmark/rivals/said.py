"""What a tool said of a run, in its own words, read from the files and the output that it left in the run's folder."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .tools import FOURNEX, GPU_IDLE, LOADTUNE, TRACEML, WHYIDLE

QUIET = ("none", "minor")
"""Severities of whyidle's that nobody need act on."""
CLEAR_GAIN = 1.10
"""A setting that trains so much faster is recommended; one that gains less is suggested. By loadtune's own rule less
than 1.02 is noise."""
LED_BY_NO_GPU = ("launch_bound", "underutilized_gpu")
"""What fournex puts first where no GPU was seen; what it names after them would come first with one."""
_RECOMMENDED = re.compile(r"\*\*Recommended config: `([^`]*)` — ([0-9.]+)x baseline")


@dataclass(frozen=True)
class Said:
    """A tool's verdict."""

    words: tuple[str, ...]
    """Its own terms for what it found, as `words.py` lists them; none: it found nothing."""
    sentence: str
    """What a user reads."""


def said(tool: str, folder: Path) -> Said:
    """
    Raises:
        OSError, ValueError, KeyError: it left nothing that can be read.
    """
    return _READERS[tool](folder)


def _whyidle(folder: Path) -> Said:
    verdict = json.loads((folder / "report.json").read_text())["verdict"]
    cause, severity = verdict["cause"], verdict["severity"]
    if cause is None or cause == "none":
        return Said((), str(verdict["title"]))
    word = f"{cause}, minor" if severity in QUIET else cause
    return Said((word,), f"{cause} ({severity}): {verdict['title']}")


def _traceml(folder: Path) -> Said:
    summary = _read(folder / "logs" / "run" / "final_summary.json")
    primary = summary["primary_diagnosis"]
    told = [primary]
    # Not part of its verdict, but printed beside it: read together they say more.
    if primary["kind"] == "INPUT_BOUND":
        beside = (summary[section]["diagnosis"] for section in ("system", "process"))
        told += [each for each in beside if each["kind"] in ("HIGH_CPU", "HIGH_PROCESS_CPU")]
    sentences = [f"{each['status']}: {each['summary']} {each['action']}" for each in told]
    return Said(tuple(each["kind"] for each in told), " ".join(sentences))


def _fournex(folder: Path) -> Said:
    summary = _read(folder / "frx" / "run" / "derived" / "summary.json")
    diagnosis = summary["steady_state"]["diagnosis"]
    label = diagnosis["user_facing_bottleneck"]
    if label is None:
        return Said((), "No bottleneck detected above threshold.")
    words, why = [label], list(diagnosis["why"])
    if label in LED_BY_NO_GPU:
        words += diagnosis["secondary_bottlenecks"]
        why = [*diagnosis["why_not_others"], *why]
    todo = "; ".join(each["title"] for each in diagnosis["recommendations"])
    return Said(tuple(words), f"{label}: {' '.join(why)}{' ' + todo + '.' if todo else ''}")


def _gpu_idle(folder: Path) -> Said:
    # The last command's output, which is JSON.
    findings = json.loads((folder / "output-2.txt").read_text())["findings"]
    if not findings:
        return Said((), "No bottleneck found. The GPU is being kept fed.")
    words = [
        "dataloader, num_workers=0"
        if each["cause"] == "dataloader" and "num_workers=0" in each["fix"]
        else str(each["cause"])
        for each in findings
    ]
    # Without a GPU what it says of kernels comes first, and means nothing.
    told = next((each for each in findings if each["cause"] == "dataloader"), findings[0])
    return Said(tuple(words), f"{told['evidence']} {told['fix']}")


def _loadtune(folder: Path) -> Said:
    raw = _read(folder / "raw.json")
    narrative = str(raw["narrative"]).replace("**", "")
    phrases = ("input-bound", "CPU already saturated", "mildly contended", "compute-bound")
    words = [phrase for phrase in phrases if phrase in narrative]
    report = (folder / "loadtune_report.md").read_text()
    found = _RECOMMENDED.search(report)
    if found is None:
        return Said(tuple(words), narrative)
    gain = float(found[2])
    manner = "recommends" if gain >= CLEAR_GAIN else "suggests"
    words += [f"{manner} {change}" for change in _changed(raw["baseline"]["knobs"], found[1])]
    return Said(tuple(words), f"{narrative} Recommended config: {found[1]} — {gain:.2f}x.")


def _changed(baseline: Mapping[str, Any], label: str) -> list[str]:
    """What a recommended configuration, as it is written out, has that the baseline has not."""
    settings = dict(part.partition("=")[::2] for part in label.split(", "))
    workers, before = int(settings["workers"]), int(baseline["num_workers"])
    changes = []
    if workers > before:
        changes.append("more workers" if before else "workers")
    elif workers < before:
        changes.append("fewer workers" if workers else "no workers")
    changes += [name for name in ("prefetch", "threads", "persistent", "compiled", "amp") if name in settings]
    return changes


def _read(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path} is no JSON object")
    return content


_READERS: Mapping[str, Callable[[Path], Said]] = {
    WHYIDLE: _whyidle,
    TRACEML: _traceml,
    LOADTUNE: _loadtune,
    FOURNEX: _fournex,
    GPU_IDLE: _gpu_idle,
}
