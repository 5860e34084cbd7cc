"""Storms of Ctrl-C: not one is lost in the hooks, and what comes after it is recorded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.runs import WHYIDLE, WITHOUT_COMPILER, ended
from whyidle import native
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run
from whyidle.record.schema import STEP

PROGRAM = (Path(__file__).parent / "programs" / "interrupted_steps.py").read_text()


SOME, ALL = 200, 16_000


@pytest.mark.parametrize("pure", [False, True], ids=["C", "Python"])
@pytest.mark.parametrize("interrupts", [SOME, *[pytest.param(ALL, marks=pytest.mark.slow)] * 3])
def test_of_so_many_interrupts_none_is_lost(tmp_path: Path, interrupts: int, pure: bool) -> None:
    if not pure and interrupts == ALL and native.extension is None:
        pytest.skip(f"no extension: {native.why_not}")
    folder = tmp_path / "run"
    environment = os.environ | {"WHYIDLE_PURE": str(int(pure)), "OMP_NUM_THREADS": "1"}
    program = folder.with_name("train.py")
    program.write_text(PROGRAM.replace("import torch\n", WITHOUT_COMPILER, 1))
    command = [*WHYIDLE, "run", "--out", str(folder), "--", sys.executable, str(program)]
    # A process group of its own: what is sent to the training is sent to it alone.
    done = ended(*command, interrupts, env=environment, start_new_session=True)
    assert f"{interrupts} reached the training" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0, done.stderr
    assert [each for each in read_notices(folder) if "failed" in each] == []
    steps = open_run(folder).records(STEP)
    # Few of very short steps are recorded, the fewer the slower the machine: those after the last interrupt are whole.
    assert len(steps) > 4
    assert (steps["optimizer_end_ns"][-4:-1] > 0).all()
