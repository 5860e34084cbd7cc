"""What the check of public programs takes for a disagreement with what was found of them by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.public_programs import inputs
from benchmarks.public_programs.__main__ import Run, disagreements
from benchmarks.public_programs.programs import Program, last

PROGRAM = Program(
    "made up",
    (),
    ("python", "train.py"),
    inputs.nothing,
    last(r"trained (\d+)"),
    re.compile(r"loss (\S+)"),
    steps=60,
    batch_size=4,
    causes=frozenset({"input.serial"}),
    lines=re.compile(r"/data\.py in "),
)
RAN = Run(0, "loss 0.5\nloss 0.25\ntrained 60\n", 1.0)


def report(
    cause: str = "input.serial", file: str | None = "/p/data.py", steps: int = 57, batch: int = 4
) -> dict[str, Any]:
    where = [] if file is None else [{"file": file, "line": 3, "function": "read", "samples": 9}]
    verdict = {"cause": cause, "share_pct": 40.0, "where": where}
    return {"window": {"steps": steps, "warmup_steps": 3, "batch_size": batch}, "verdict": verdict}


@pytest.mark.parametrize(
    ("recorded", "seen", "said"),
    [
        (replace(RAN, exit_code=1), report(), "exit codes"),
        (replace(RAN, text=RAN.text.replace("0.25", "0.26")), report(), "losses"),
        (replace(RAN, text=RAN.text.replace("60", "59")), report(), "steps by its own log"),
        (RAN, report(steps=56), "steps by the report: 59"),
        (RAN, report(batch=2), "batch size: 2"),
        (RAN, report(cause="none"), "verdict: none"),
        (RAN, report(file="/p/train.py"), "line: /p/train.py in read"),
        (RAN, report(file=None), "line: none is named"),
    ],
)
def test_each_difference_is_said(recorded: Run, seen: dict[str, Any], said: str) -> None:
    assert disagreements(PROGRAM, RAN, RAN, report()) == []
    (wrong,) = disagreements(PROGRAM, RAN, recorded, seen)
    assert wrong.startswith(said)


def test_a_program_that_prints_no_losses_is_not_taken_for_one_whose_losses_agree() -> None:
    silent = replace(RAN, text="trained 60\n")
    assert disagreements(PROGRAM, silent, silent, report()) == ["no losses printed"]
