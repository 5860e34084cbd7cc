from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from whyidle.capture.tuning.guard import Guard
from whyidle.commands.tune import said_of_writes
from whyidle.tune.bench.script_bench import writes


def test_files_that_were_there_are_not_the_user_s_to_remove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, run = tmp_path / "here", tmp_path / "run"
    here.mkdir()
    run.mkdir()
    monkeypatch.chdir(here)
    old, new = here / "old.csv", here / "new.csv"
    old.write_text("mine")
    os.utime(old, (1e9, 1e9))
    guard = Guard(str(run), time.time(), False)
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    guard.opens(new, append)
    new.write_text("theirs")
    for path in (old, new):
        guard.opens(path, append)
    # A worker, which does not know that the file is old: it has been added to since.
    old.write_text("mine and theirs")
    Guard(str(run), time.time() - 60, False).opens(old, append | os.O_TRUNC)
    assert said_of_writes(writes(run)) == [
        f"The training wrote new files: {new}. They are yours to remove.",
        f"The training added to files that were there, or opened them to change them: {old}.",
    ]


def test_more_than_a_few_files_are_counted() -> None:
    said = said_of_writes([("new", f"/data/{number}") for number in range(9)] + [("refused", "/data/kept")])
    assert said == [
        "The training wrote new files: /data/0, /data/1, /data/2, /data/3, /data/4 and 4 more. "
        "They are yours to remove."
    ]
