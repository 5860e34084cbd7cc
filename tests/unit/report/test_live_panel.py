"""A run in a few rows, in one line and as JSON: the same as the live view, in short."""

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
    for rows in (6, 3, 1):
        assert "no training step was recorded" in live.panel(view, 80, rows, live.Options())[0].plain


def test_the_line_of_a_replay_says_which_moment_it_is() -> None:
    assert "running at 1:03 of its replay, step 412" in live.line(running(at_s=63.4))


@pytest.mark.parametrize("rows", [6, 3, 1])
@pytest.mark.parametrize("width", [40, 79, 200])
def test_the_panel_has_exactly_its_rows(rows: int, width: int) -> None:
    for view in (running(), Snapshot("x", "", "starting"), running(devices=(), makers=(), verdict=None)):
        panel = live.panel(view, width, rows, live.Options())
        assert len(panel) == rows
        assert all(row.cells <= width for row in panel)
        assert "whyidle" in panel[0].plain


def test_the_panel_says_what_the_view_says_in_short() -> None:
    rows = [row.plain for row in live.panel(running(), 100, 6, live.Options())]
    assert rows[0].split("  ")[:4] == [" whyidle", "running", "412/1000 steps", "2:10 min left"]
    assert "busy 63 %" in rows[1]
    assert rows[2].endswith("25.9 ms")
    assert "compute 63 %" in rows[3]
    for each in ("1234 samples/s", "queue 3.1 of 8", "workers 4 busy 92 %"):
        assert each in rows[4]
    assert rows[5].endswith("(for 42 s)")
    three = [row.plain for row in live.panel(running(), 100, 3, live.Options())]
    assert "compute 63 %" in three[1]
    assert three[2] == rows[5]


def test_the_panel_takes_fewer_rows_of_a_smaller_terminal() -> None:
    assert [live.rows_for(height) for height in (60, 24, 23, 16, 15, 5)] == [6, 6, 3, 3, 1, 1]


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


def test_the_panel_of_a_training_without_accelerator_shows_the_host() -> None:
    rows = [row.plain for row in live.panel(running(devices=()), 80, 6, live.Options())]
    assert "3.2 of 4 CPUs" in rows[4]
    assert all(rows)
