"""What tests of several layers start from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.cells import Planned


@pytest.fixture
def planned(tmp_path: Path) -> Planned:
    """Makes cells of a comparison."""
    # Not before a test asks for it: what these import takes long.
    from support.cells import Planned

    return Planned(tmp_path)


@pytest.fixture
def starved(tmp_path: Path) -> Path:
    """A run whose device waits for data half of the time: batches take 20 ms, 10 of them while it still computes."""
    from whyidle.scenarios.planted import MS, Step, train

    train(tmp_path / "starved", [[Step(fetch_ns=20 * MS)] * 100])
    return tmp_path / "starved"
