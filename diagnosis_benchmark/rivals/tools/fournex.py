"""fournex: events of an instrumented loop, classified."""

from __future__ import annotations

import json
from pathlib import Path

from whyidle_bench.cases.case import Case

from ..tool import GPU, NOTHING, PROGRAMS, Commands, Said, Tool, names, one_process, script

PROGRAM = PROGRAMS / "train_fournex.py"
LED_BY_NO_GPU = ("launch_bound", "underutilized_gpu")
"""What it puts first where no GPU was seen; what it names after them would come first with one."""


def _commands(python: Path, _case: Case) -> Commands:
    frx = script(python, "frx")
    collect = [frx, "collect", "--name", "rivals", "--run-id", "run", "--out", "frx", "--no-zip", "--"]
    return [[*collect, str(python), str(PROGRAM)], [frx, "analyze", "frx/run"]]


def _read(folder: Path) -> Said:
    summary = json.loads((folder / "frx" / "run" / "derived" / "summary.json").read_text())
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


TOOL = Tool(
    "fournex",
    "`frx collect -- python train.py`, `frx analyze`",
    _commands,
    _read,
    {
        "input_bound": names(part="input"),
        "copy_bound": names(part="copy"),
        "sync_bound": names("host.sync"),
        "shape_instability": names("device.shape_churn"),
        "memory_pressure": names("device.memory_pressure"),
        "inconclusive": NOTHING,
        "insufficient_telemetry": NOTHING,
        "underutilized_gpu": GPU,
        "launch_bound": GPU,
    },
    program=PROGRAM,
    package="fournex",
    version="0.3.1",
    cannot=one_process,
)
