"""gpu-idle: reads a trace of torch's profiler."""

from __future__ import annotations

import json
from pathlib import Path

from whyidle_bench.cases.case import Case

from ..tool import GPU, PROGRAMS, Commands, Said, Tool, names, script

PROGRAM = PROGRAMS / "train_gpu_idle.py"
CONTROL = "control.compute"
"""The one healthy training that it is given."""


def _commands(python: Path, _case: Case) -> Commands:
    reader = script(python, "gpu-idle")
    return [[str(python), str(PROGRAM)], [reader, "trace.json"], [reader, "trace.json", "--json"]]


def _read(folder: Path) -> Said:
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


def _cannot(case: Case) -> str:
    if case.name != CONTROL and not any(cause.startswith("input.") for cause in case.causes):
        return f"without a GPU knows of the DataLoader only ({CONTROL} shows what it says of a healthy training)"
    return ""


TOOL = Tool(
    "gpu-idle",
    "`gpu-idle trace.json`",
    _commands,
    _read,
    {
        "dataloader": names(part="input"),
        "dataloader, num_workers=0": names("input.serial"),
        "h2d_copy": names(part="copy"),
        "smallbatch": GPU,
        "unattributed": GPU,
    },
    program=PROGRAM,
    package="gpu-idle",
    version="0.1.0",
    cannot=_cannot,
    profiled=(10, 39),
    note=(
        "needs a GPU: all that it says rests on how busy that was. Without one it still tells how long the training "
        "was in its DataLoader, which counts here; the rest does not"
    ),
)
