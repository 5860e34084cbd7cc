"""What tests of reports start from."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.scenarios.planted import MS, Step, train


@pytest.fixture
def starved(tmp_path: Path) -> Path:
    """A run whose device waits for data half of the time."""
    train(tmp_path / "starved", [[Step(fetch_ns=20 * MS)] * 100])
    return tmp_path / "starved"
