"""What tests of scenarios start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.voc_sets import VocMaker


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept from one run to the next is kept there."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def maker(tmp_path: Path) -> VocMaker:
    """Of a set in VOC's layout, which is empty as yet."""
    return VocMaker(tmp_path / "data")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small batches on a machine whose CPUs are busy: threads of one computation would wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
