"""The lines of code in the live view and in the panel."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.snapshots import VERDICT, running, shown
from whyidle.analyse.recent.snapshot import CodeView
from whyidle.analyse.where.places import Where
from whyidle.report import live

OPENING = "with zipfile.ZipFile(self.path) as archive:"
WORKERS = CodeView("workers", 84.3, 412, "/home/me/data.py", 27, "Shards.__getitem__", OPENING, "ZipFile._open")
TRAINING = CodeView("training", 12.0, 48, "/home/me/train.py", 88, "train", "for x, y in loader:", "")
BOTH = running(code=(WORKERS, TRAINING))
MAKING = "the time in which workers make batches"
NAMED = Where("/home/me/data.py", 27, "Shards.__getitem__", OPENING, 0.91, 380, "ZipFile._open", MAKING)
MADE = Where("/home/me/train.py", 12, "main", "loader = DataLoader(data)", None, 0, time="where the loader is made")


def test_each_line_has_a_row_where_there_is_room() -> None:
    rows = shown(BOTH, 100, 40)
    at = next(number for number, row in enumerate(rows) if row.startswith(" code"))
    assert rows[at].rstrip() == f" code       workers 84 % data.py:27 {OPENING}"
    assert rows[at + 1].strip() == "training 12 % train.py:88 for x, y in loader:"


def test_a_small_terminal_has_both_in_a_row() -> None:
    rows = [row for row in shown(BOTH, 80, 10) if "data.py:27" in row]
    assert len(rows) == 1
    assert "train.py:88" in rows[0]


def test_where_source_is_not_kept_the_function_stands() -> None:
    unsaid = CodeView("workers", 84.3, 412, "/home/me/data.py", 27, "Shards.__getitem__", "", "")
    assert any("data.py:27 Shards.__getitem__" in row for row in shown(running(code=(unsaid,)), 80, 24))


def test_without_lines_there_is_no_row() -> None:
    assert not any(row.startswith(" code") for row in shown(running(), 100, 40))


@pytest.mark.parametrize("width", [40, 60, 100, 200])
@pytest.mark.parametrize("height", [8, 16, 24, 60])
def test_rows_fit_whatever_the_line_holds(width: int, height: int) -> None:
    hostile = CodeView("training", 12.0, 48, "/home/me/世界.py", 8, "f", "\x1b[31m世界" * 80, "")
    for view in (BOTH, running(code=(hostile, WORKERS))):
        rows = live.screen(view, width, height, live.Options())
        assert len(rows) <= height
        assert all(row.cells <= width for row in rows)
        assert not any("\x1b" in row.plain for row in rows)


def test_the_line_that_the_verdict_names_comes_first_and_is_told_once() -> None:
    view = running(code=(WORKERS, TRAINING), verdict=replace(VERDICT, where=(NAMED, MADE)))
    rows = [row.rstrip() for row in shown(view, 140, 40)]
    at = next(number for number, row in enumerate(rows) if row.startswith(" code"))
    assert rows[at] == f" code       verdict 91 % data.py:27 {OPENING}  of {MAKING}"
    assert rows[at + 1].strip() == "training 12 % train.py:88 for x, y in loader:"
    assert "\n".join(rows).count("data.py:27") == 1


def test_what_the_share_is_of_gives_way_to_the_line_itself() -> None:
    view = running(code=(), verdict=replace(VERDICT, where=(NAMED,)))
    row = next(row.rstrip() for row in shown(view, 90, 40) if row.startswith(" code"))
    assert row == f" code       verdict 91 % data.py:27 {OPENING}"


def test_where_the_loader_is_made_has_no_share() -> None:
    view = running(code=(TRAINING,), verdict=replace(VERDICT, where=(MADE,)))
    rows = [row.rstrip() for row in shown(view, 100, 40)]
    at = next(number for number, row in enumerate(rows) if row.startswith(" code"))
    assert rows[at] == " code       verdict train.py:12 loader = DataLoader(data)  where the loader is made"
    assert "training 12 %" in rows[at + 1]
