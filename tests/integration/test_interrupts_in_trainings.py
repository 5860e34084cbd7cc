"""Storms of Ctrl-C: not one is lost in the hooks, and what comes after it is recorded."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.runs import WHYIDLE, WITHOUT_COMPILER
from whyidle import native
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run
from whyidle.record.schema import STEP

PROGRAM = (Path(__file__).parent / "programs" / "interrupted_steps.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("pure", [False, True], ids=["C", "Python"])
@pytest.mark.parametrize("turn", [1, 2, 3])
def test_of_16000_interrupts_none_is_lost(tmp_path: Path, pure: bool, turn: int) -> None:
    if not pure and native.extension is None:
        pytest.skip(f"no extension: {native.why_not}")
    storm(tmp_path / "run", 16_000, pure)


@pytest.mark.parametrize("pure", [False, True], ids=["C", "Python"])
def test_of_some_interrupts_none_is_lost(tmp_path: Path, pure: bool) -> None:
    storm(tmp_path / "run", 200, pure)


def storm(folder: Path, interrupts: int, pure: bool) -> None:
    environment = os.environ | {"WHYIDLE_PURE": str(int(pure)), "OMP_NUM_THREADS": "1"}
    program = folder.with_name("train.py")
    program.write_text(PROGRAM.replace("import torch\n", WITHOUT_COMPILER, 1))
    command = [*WHYIDLE, "run", "--out", str(folder), "--", sys.executable, str(program)]
    # A process group of its own: what is sent to the training is sent to it alone.
    done = subprocess.run(
        [*command, str(interrupts)], env=environment, capture_output=True, text=True, start_new_session=True
    )
    assert f"{interrupts} reached the training" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert [each for each in read_notices(folder) if "failed" in each] == []
    steps = open_run(folder).records(STEP)
    # Few of very short steps are recorded, the fewer the slower the machine: those after the last interrupt are whole.
    assert len(steps) > 4
    assert (steps["optimizer_end_ns"][-4:-1] > 0).all()
