"""Stacks of recordings of before looks had times."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whyidle.record.attached import COUNTED_STACKS, read_counted
from whyidle.record.schema import NOT_MEASURED
from whyidle.record.stacks import Call

FRAMES = [
    {"name": "main", "file": "/a/train.py", "line": 3, "text": ""},
    {"name": "step", "file": "/a/model\x1b[31m.py", "line": 9, "text": "loss.backward()"},
]


def profile(pid: int, tid: int, name: str, samples: list[list[int]], weights: list[int]) -> dict[str, Any]:
    return {"pid": pid, "tid": tid, "thread": name, "samples": samples, "weights": weights}


def test_they_are_looks_without_times(tmp_path: Path) -> None:
    profiles = [
        profile(7, 7, "MainThread", [[0], [0, 1]], [2, 3]),
        profile(8, 0x7F10, "MainThread", [[0]], [1]),
        profile(8, 12, "pin", [[1]], [4]),
    ]
    (tmp_path / COUNTED_STACKS).write_text(json.dumps({"shared": {"frames": FRAMES}, "profiles": profiles}))
    records, table = read_counted(tmp_path, {8: 7}) or pytest.fail("nothing was read")
    whose = [tuple(int(each[name]) for name in ("process", "thread", "parent")) for each in records]
    assert whose == [(7, 7, NOT_MEASURED)] * 5 + [(8, 8, 7)] + [(8, 12, 7)] * 4
    main, step = (
        Call("main", "/a/train.py", 3),
        Call("step", "/a/model?[31m.py", 9, "loss.backward()"),
    )
    assert [table.stack(int(each)) for each in records["stack"][:5]] == [(main,)] * 2 + [(main, step)] * 3
    assert table.stack(int(records["stack"][-1])) == (step,)
    assert set(records["t_ns"].tolist()) == {NOT_MEASURED}


def test_without_any_there_are_none(tmp_path: Path) -> None:
    assert read_counted(tmp_path, {}) is None
    (tmp_path / COUNTED_STACKS).write_text(json.dumps({"shared": {"frames": []}, "profiles": []}))
    records, table = read_counted(tmp_path, {}) or pytest.fail("nothing was read")
    assert (len(records), len(table)) == (0, 0)
