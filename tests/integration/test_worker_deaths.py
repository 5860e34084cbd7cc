"""Workers that die in real trainings: the training ends as it would have, and the recording says who died of what."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from support import runs, warm
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, EventKind

PROGRAM = runs.WITHOUT_COMPILER + (Path(__file__).parent / "programs" / "dying_worker.py").read_text()
# Torch finds it by a signal or by a look, whichever is first.
ERROR = re.compile(r"^RuntimeError: DataLoader worker \(pid(?:\(s\))? (\d+)\) .*$", re.MULTILINE)


@pytest.mark.parametrize(("number", "code", "name"), [(signal.SIGKILL, -9, "SIGKILL"), (0, 3, None)])
def test_a_worker_that_dies_is_told_with_what_it_died_of(
    tmp_path: Path, number: int, code: int, name: str | None
) -> None:
    folder, program = tmp_path / "run", tmp_path / "train.py"
    program.write_text(PROGRAM)
    ended, bare = warm.run(folder, sys.executable, program, str(int(number))), warm.bare(program, str(int(number)))
    assert ended.returncode == bare.returncode == 1
    mine, theirs = (ERROR.search(each.stderr) for each in (ended, bare))
    assert theirs is not None
    traceback = ended.stderr[: mine.end()]
    assert "whyidle" not in traceback
    assert "profiler/capture" not in traceback

    events = open_run(folder).records(EVENT)
    assert events["value"][events["what"] == EventKind.WORKER_DIED].tolist() == [code]
    (told,) = events["value"][events["what"] == EventKind.DIED_WORKER].tolist()
    assert told & 0xFFFF_FFFF == int(mine.group(1))
    assert told >> 32 in (1, 2)

    (death,) = runs.report(folder)["worker_deaths"]
    assert (death["pid"], death["exit_code"], death["signal"]) == (int(mine.group(1)), code, name)
    assert death["worker"] == (told >> 32) - 1
    assert death["likely"]
    assert death["way_out"]


def test_a_training_that_goes_on_without_its_worker_does_so(tmp_path: Path) -> None:
    """A program that catches the error finds the same as without us, and the death is recorded once."""
    program = tmp_path / "goes_on.py"
    caught = '    try:\n        main()\n    except RuntimeError:\n        print("went on")\n'
    program.write_text(PROGRAM.replace("    main()\n", caught))
    ended, bare = warm.run(tmp_path / "run", sys.executable, program, "9"), warm.bare(program, "9")
    assert (ended.returncode, bare.returncode) == (0, 0)
    assert bare.stdout == "went on\n"
    assert "went on\n" in ended.stdout
    events = open_run(tmp_path / "run").records(EVENT)
    assert events["value"][events["what"] == EventKind.WORKER_DIED].tolist() == [-9]
