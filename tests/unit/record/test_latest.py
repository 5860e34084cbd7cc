"""The pointer to the newest recording."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.record.latest import latest, note_latest


def test_the_newest_recording_is_found_while_it_exists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert latest() is None
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        note_latest(tmp_path / name)
    assert latest() == tmp_path / "two"
    (tmp_path / "two").rmdir()
    assert latest() is None
