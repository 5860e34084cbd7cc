"""What tests of several commands start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crafted import add
from whyidle.record.schema import DEVICE
from whyidle.scenarios.planted import MS, START, Step, train


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step: data for 3 ms, a pageable copy of 2 ms, computing for 10 ms with a reading call, 2 ms of the loop's."""
    folder = tmp_path_factory.mktemp("check") / "run"
    step = Step(
        fetch_ns=3 * MS, copy_bytes=10_000_000, pinned=False, sync_within=True, within_ns=MS, sync=True, host_ns=2 * MS
    )
    train(folder, [[*[step] * 39, Step(boundary_ns=40 * MS)]] * 2)
    rows = [{"t_ns": START + n * 100 * MS, "device": 0, "utilisation_pct": 60.0} for n in range(1, 14)]
    add(folder, DEVICE, rows)
    return folder


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder without a configuration, and in nobody's CI."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)
