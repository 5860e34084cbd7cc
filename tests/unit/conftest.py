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
