"""TraceML: step timing, figures of host and GPU, and a verdict when the training ends."""

from __future__ import annotations

import json
from pathlib import Path

from whyidle_bench.cases.case import Case

from ..environment import free_port
from ..tool import GPU, NOTHING, PROGRAMS, Commands, Said, Tool, names, script

PROGRAM = PROGRAMS / "train_traceml.py"
BUSY_PROCESSOR = ("HIGH_CPU", "HIGH_PROCESS_CPU")


def _commands(python: Path, case: Case) -> Commands:
    command = [script(python, "traceml"), "run", str(PROGRAM), "--mode", "summary"]
    command += ["--logs-dir", "logs", "--run-name", "run"]
    command += ["--aggregator-port", str(free_port()), "--master-port", str(free_port())]
    return [[*command, *([f"--nproc-per-node={case.plan.ranks}"] if case.plan.ranks > 1 else [])]]


def _read(folder: Path) -> Said:
    summary = json.loads((folder / "logs" / "run" / "final_summary.json").read_text())
    primary = summary["primary_diagnosis"]
    told = [primary]
    # Not part of its verdict, but printed beside it: read together they say more.
    if primary["kind"] == "INPUT_BOUND":
        beside = (summary[section]["diagnosis"] for section in ("system", "process"))
        told += [each for each in beside if each["kind"] in BUSY_PROCESSOR]
    sentences = [f"{each['status']}: {each['summary']} {each['action']}" for each in told]
    return Said(tuple(each["kind"] for each in told), " ".join(sentences))


TOOL = Tool(
    "TraceML",
    "`traceml run train.py`",
    _commands,
    _read,
    {
        "INPUT_BOUND": names(part="input"),
        # "Inspect CPU-side preprocessing or host contention", printed beside the verdict.
        **dict.fromkeys(BUSY_PROCESSOR, names("input.cpu_exhausted", "input.foreign_load")),
        "H2D_BOUND": names(part="copy"),
        # What is left of a step: "CPU stalls, logging, checkpointing, validation".
        "RESIDUAL_HEAVY": names("host.step_gap", part="host"),
        "INPUT_STRAGGLER": names("rank.straggler"),
        "COMPUTE_STRAGGLER": names("rank.straggler"),
        "H2D_STRAGGLER": names("rank.straggler"),
        "STRAGGLER": names("rank.straggler"),
        "COMPUTE_BOUND": NOTHING,
        "NO_CLEAR_PERFORMANCE_BOTTLENECK": NOTHING,
        "INSUFFICIENT_STEP_TIME_DATA": NOTHING,
        "LOW_GPU_UTILIZATION_UNEXPLAINED": GPU,
    },
    program=PROGRAM,
    package="traceml-ai",
    version="0.5.0",
)
