"""A run in one line and as JSON: the same as the live view, in short."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.snapshots import NAN, device, running, text
from whyidle.analyse.recent.reader import RecentReader
from whyidle.analyse.recent.snapshot import Snapshot
from whyidle.record.run import create_run
from whyidle.report import live
from whyidle.report.live import as_json
from whyidle.scenarios.planted import MS, Step, train
from whyidle.terminal.console import json_text


@pytest.mark.parametrize("size", [(39, 5), (40, 8), (80, 24), (120, 40)])
def test_a_recording_that_ended_without_a_step_says_so(tmp_path: Path, size: tuple[int, int]) -> None:
    create_run(tmp_path / "run", {"command": ["job"], "ended": {"status": "ok"}})
    view = RecentReader(tmp_path / "run").snapshot()
    assert live.line(view) == "job: ended well, no training step was recorded"
    together = text(view, *size)
    assert "ended well" in together
    assert "waiting" not in together


def test_the_snapshot_as_json_has_null_for_what_was_not_measured() -> None:
    view = running(devices=(device(busy_pct=(NAN, 5.0), sm_active_pct=(), memory_used_bytes=None),))
    content = json.loads(json_text(as_json(view)))
    assert (content["format"], content["version"]) == ("whyidle-live", 1)
    assert content["devices"][0]["busy_pct"] == [None, 5.0]
    assert content["devices"][0]["memory_used_bytes"] is None
    assert content["samples_per_s"] == 1234.5
    assert content["verdict"]["cause"] == "input.storage"


def test_plain_lines_say_the_same_in_words(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    line = live.line(RecentReader(tmp_path / "run").snapshot())
    assert "ok, step 60, on emulated Test, 400.0 samples/s, device busy 50 %" in line
    assert live.line(Snapshot("ssd · naive", "", "starting")) == "ssd · naive: no training step yet"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.4, "59 s"), (59.6, "1:00 min"), (187, "3:07 min"), (7500, "2:05 h")]
)
def test_durations_for_people(seconds: float, said: str) -> None:
    assert live.duration(seconds) == said
