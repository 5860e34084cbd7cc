"""Small photograph-like JPEG sets, a copier that remembers, and a look at what a process runs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from whyidle.pipelines import registry
from whyidle.pipelines.photos import JpegFiles
from whyidle.pipelines.protocol import Batch, Settings, Stage, Targets
from whyidle.pipelines.stages import plain_stages

SIDE = 64
SIZES = ((160, 120), (97, 131), (40, 33), (64, 64), (201, 150), (150, 83), (51, 70), (128, 96), (75, 75), (180, 61))
"""Width and height: larger and smaller than `SIDE`, odd and even."""
GRAY = 3
"""Which of the images has one channel."""


def photograph(width: int, height: int, random: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Colours that vary at many scales with a little noise, uint8 `[height, width, 3]`."""
    levels = random.normal(0, 4, (height, width, 3))
    for cells in (2, 4, 8, 16, 32):
        grid = random.normal(0, 70 / cells**0.7, (cells, cells, 3)).astype(np.float32)
        planes = [Image.fromarray(grid[..., c]).resize((width, height), Image.Resampling.BICUBIC) for c in range(3)]
        levels += np.stack([np.asarray(plane) for plane in planes], axis=-1)
    return np.clip(levels + 128, 0, 255).astype(np.uint8)


@dataclass(frozen=True)
class Photos(JpegFiles):
    """A dataset of files; sample i has i mod 3 objects, so some have none."""

    files: tuple[Path, ...]
    stages: Sequence[Stage] = field(default_factory=lambda: plain_stages(SIDE))

    def __len__(self) -> int:
        return len(self.files)

    def path(self, index: int) -> Path:
        return self.files[index]

    def targets(self, index: int) -> Targets:
        random = np.random.default_rng(index)
        corners = random.uniform(0.0, 0.5, (index % 3, 2))
        sides = random.uniform(0.2, 0.5, corners.shape)
        classes = random.integers(1, 21, len(corners))
        return np.column_stack((classes, corners, corners + sides)).astype(np.float32)

    def times(self, repeats: int) -> Photos:
        return replace(self, files=self.files * repeats)

    def staged(self, *stages: Stage) -> Photos:
        return replace(self, stages=stages)


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Photos:
    folder = tmp_path_factory.mktemp("photos")
    files = []
    for number, (width, height) in enumerate(SIZES):
        picture = Image.fromarray(photograph(width, height, np.random.default_rng(number)))
        if number == GRAY:
            picture = picture.convert("L")
        files.append(folder / f"{number}.jpg")
        subsampling = {} if number == GRAY else {"subsampling": (0, 1, 2)[number % 3]}
        picture.save(files[-1], quality=(75, 85, 90, 95)[number % 4], **subsampling)
    return Photos(tuple(files))


@dataclass
class RecordingCopier:
    """Copies to nowhere; remembers each call as (what, indices, thread)."""

    calls: list[tuple[str, tuple[int, ...], int]] = field(default_factory=list)
    own_memory: bool = False

    def pin(self, batch: Batch) -> Batch:
        self.calls.append(("pin", batch.indices, threading.get_ident()))
        return replace(batch, inputs=batch.inputs.clone(), targets=batch.targets.clone())

    def start(self, batch: Batch) -> Batch:
        self.calls.append(("start", batch.indices, threading.get_ident()))
        return replace(batch, copy="under way")

    def of(self, what: str) -> list[tuple[int, ...]]:
        return [indices for call, indices, _ in self.calls if call == what]


@pytest.fixture
def copier() -> RecordingCopier:
    return RecordingCopier()


def made(name: str, dataset: Any, copier: Any, settings: Settings, epochs: Sequence[int] = (0,)) -> list[Batch]:
    """All batches of these epochs, by a loader of its own."""
    loader = registry.factory(name)(dataset, settings, copier)
    try:
        told = [list(loader.epoch(number)) for number in epochs]
    finally:
        loader.close()
    assert [len(each) for each in told] == [len(loader)] * len(told)
    return [batch for each in told for batch in each]


def _running() -> tuple[int, int]:
    """Threads of this process, native ones included, and its child processes."""
    return len(os.listdir("/proc/self/task")), len(active_children())


def _until(holds: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Waits for something to come true; whether it did in time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], bool]:
    return _until


@pytest.fixture
def nothing_left() -> Iterator[Callable[[], None]]:
    """Call it first to say "from here on"; fails the test if it ends with more threads or children than then."""
    before: list[tuple[int, int]] = []
    yield lambda: before.append(_running())
    threads, children = before[-1]
    assert _until(lambda: _running()[0] <= threads and _running()[1] <= children), (before, _running())
