"""Small files: whole or not there, and texts that do no harm."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from whyidle.errors import RecordError
from whyidle.record.comparison import COMPARISON_JSON, read_comparison
from whyidle.record.files import plain, replacing, write_text


def test_what_goes_wrong_midway_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "kept"
    target.write_text("old")
    with pytest.raises(ValueError, match="midway"), replacing(target) as draft:
        draft.write(b"half")
        raise ValueError("midway")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_pipe_is_written_to_and_stays_one(tmp_path: Path) -> None:
    """As /dev/null must, which root could replace by a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "through", named=True)
        assert os.read(reader, 100) == b"through"
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("named", [True, False])
def test_only_a_link_that_the_user_named_is_written_through(tmp_path: Path, named: bool) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_text("old")
    link.symlink_to(real)
    write_text(link, "new", named)
    assert link.read_text() == "new"
    assert link.is_symlink() is named
    assert real.read_text() == ("new" if named else "old")


def test_a_draft_is_not_written_through_what_was_put_in_its_place(tmp_path: Path) -> None:
    victim, target = tmp_path / "victim", tmp_path / "run.json"
    victim.write_text("precious")
    (tmp_path / f".run.json.{os.getpid()}").symlink_to(victim)
    write_text(target, "{}")
    assert victim.read_text() == "precious"
    assert (target.is_symlink(), target.read_text()) == (False, "{}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "victim"]


def test_texts_can_be_shown_and_written() -> None:
    hostile = "a\x1b[31m\udce9\u202eb\tc\nd é \N{GRINNING FACE}"
    assert plain([{hostile: hostile}]) == [{plain(hostile): "a?[31m??b\tc\nd é \N{GRINNING FACE}"}]
    plain(hostile).encode()


@pytest.mark.parametrize("name", ["../elsewhere", "/elsewhere", "..", "", "a/b", 3])
def test_a_comparison_names_only_runs_beside_it(tmp_path: Path, name: object) -> None:
    cell = {"pipeline": "naive", "batch_size": 8, "status": "ok", "error": None, "runs": [name]}
    content = {"format": "whyidle-comparison", "version": 1, "setting": {}, "cells": [cell]}
    (tmp_path / COMPARISON_JSON).write_text(json.dumps(content))
    with pytest.raises(RecordError, match="not a readable comparison"):
        read_comparison(tmp_path)
