"""What the integration tests share: a small set of images, and what is made once for all of pytest's processes."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from whyidle.scenarios.voc.generate import compose

Once = Callable[[str, Callable[[Path], object]], Path]
"""A folder of this name, filled by the call unless another process of this test session has filled it."""


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """Side by side, each of pytest's processes would make for itself what takes long. The first that needs it makes
    it, in a folder that all share; others that come meanwhile wait."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent

    def made(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = base / name, base / f"{name}.done"
        with (base / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return made


@pytest.fixture(scope="session")
def images(once: Once) -> Path:
    """Forty-eight composed JPEG files in VOC layout."""
    return once("voc", lambda folder: compose(folder, 48, 0, None, 2))


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's pointer to the newest recording and cache of checked images stay the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
