"""What the integration tests share: a small set of images."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.scenarios.voc.generate import compose


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty-eight composed JPEG files in VOC layout."""
    folder = tmp_path_factory.mktemp("voc")
    compose(folder, 48, 0, None, 2)
    return folder


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's pointer to the newest recording and cache of checked images stay the user's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
