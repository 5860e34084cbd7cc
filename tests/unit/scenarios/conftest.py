"""What tests of scenarios start from."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image


def photographs(root: Path, **classes: int) -> Path:
    """So many small JPEG files a class."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True)
        for number in range(count):
            coarse = np.random.default_rng([len(name), number, ord(name[0])]).integers(0, 255, (5, 6, 3))
            levels = Image.fromarray(coarse.astype(np.uint8)).resize((60, 50), Image.Resampling.BICUBIC)
            levels.save(root / name / f"{number}.jpg", quality=90)
    return root


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What is kept from one run to the next is kept there."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Small batches on a machine whose CPUs are busy: threads of one computation would wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Iterator[None]:
    """A process group of this process only, which computes with one thread."""
    import torch

    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    meeting = torch.distributed.FileStore(str(tmp_path / "meeting"), 1)
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=meeting)
    yield
    torch.distributed.destroy_process_group()
