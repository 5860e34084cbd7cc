"""Which files a training that is only tuned may write to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from whyidle.capture.tuning.guard import Guard, WouldOverwrite


def test_whoever_works_in_a_folder_for_temporary_files_keeps_the_files_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, other, run = tmp_path / "work", tmp_path / "other", tmp_path / "run"
    for folder in (work, other, run):
        folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(work)
    guard = Guard(str(run), time.time() + 10, overwrite=False)
    for folder in (work, other, run):
        (folder / "model.pt").write_bytes(b"weights")
    guard.opens(str(other / "model.pt"), os.O_WRONLY | os.O_TRUNC)
    guard.opens(str(run / "model.pt"), os.O_WRONLY | os.O_TRUNC)
    with pytest.raises(WouldOverwrite, match="existed before"):
        guard.opens("model.pt", os.O_WRONLY | os.O_TRUNC)
