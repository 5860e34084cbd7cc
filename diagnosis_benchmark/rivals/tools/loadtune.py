"""loadtune: tries loader settings on a workload of one step, and says what bound it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from whyidle_bench.cases.case import Case

from ..tool import NOTHING, PROGRAMS, Commands, Meaning, Said, Tool, names, one_process, script

PROGRAM = PROGRAMS / "workload_loadtune.py"
WARMUP, STEPS = 10, 50
"""Of a trial, as in its README's example of the Python interface."""
CLEAR_GAIN = 1.10
"""A setting that trains so much faster is recommended; one that gains less is suggested. By loadtune's own rule less
than 1.02 is noise."""
PHRASES: Mapping[str, Meaning] = {
    "input-bound": names(part="input"),
    "CPU already saturated": names("input.cpu_exhausted"),
    "mildly contended": names(part="input", alarms=False),
    "compute-bound": NOTHING,
}
TRIED: Mapping[str, Meaning] = {
    "workers": names("input.serial"),
    "more workers": names("input.too_few_workers"),
    "fewer workers": names("input.oversubscribed"),
    "no workers": names("input.overkill"),
    # In its own words deeper prefetching "absorbs straggler batches".
    "prefetch": names("input.prefetch_depth", "input.straggler"),
    "persistent": names("input.worker_restart"),
    "threads": names(part="input"),
    "compiled": NOTHING,
    "amp": NOTHING,
}
"""Settings, if the configuration that it found fastest has them and the case had not."""
_RECOMMENDED = re.compile(r"\*\*Recommended config: `([^`]*)` — ([0-9.]+)x baseline")


def _commands(python: Path, case: Case) -> Commands:
    command = [script(python, "loadtune"), "tune", str(PROGRAM), "--fast", "--no-plots"]
    command += ["--steps", str(STEPS), "--warmup", str(WARMUP)]
    return [[*command, "--workers", str(case.plan.loader.workers), "--save-raw", "raw.json"]]


def _read(folder: Path) -> Said:
    raw = json.loads((folder / "raw.json").read_text())
    narrative = str(raw["narrative"]).replace("**", "")
    words = [phrase for phrase in PHRASES if phrase in narrative]
    found = _RECOMMENDED.search((folder / "loadtune_report.md").read_text())
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


def _cannot(case: Case) -> str:
    if case.plan.data.first_worker_only:
        return "takes no iterable dataset"
    if case.plan.data.new_shape_every:
        return "draws samples in random order, so that no batch is of a shape of its own"
    if "host.boundary" in case.causes:
        return "its workload is one step: nothing comes between epochs"
    return one_process(case)


TOOL = Tool(
    "loadtune",
    "`loadtune tune workload.py --fast`",
    _commands,
    _read,
    {
        **PHRASES,
        **{f"recommends {change}": meaning for change, meaning in TRIED.items()},
        **{f"suggests {change}": Meaning(each.exact, each.families, False) for change, each in TRIED.items()},
    },
    program=PROGRAM,
    package="loadtune",
    version="0.3.0",
    cannot=_cannot,
    own_loop=(WARMUP, STEPS),
)
