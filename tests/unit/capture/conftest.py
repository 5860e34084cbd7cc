"""Fixtures for the sampler's tests against a made-up driver, and for hooks in real loops."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.cuda.recorded import run
from support.fakes.driver import driver, library, looks
from whyidle import native
from whyidle.capture.hooks import forward, install
from whyidle.capture.loop_detector import detector as loop_detector

__all__ = ["driver", "library", "looks", "run"]


@pytest.fixture(params=["C", "Python"])
def either_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hooks whose steady path is in C, where that was built, and hooks that are all Python."""
    if request.param == "C" and native.extension is None:
        pytest.skip(f"no extension: {native.why_not}")
    if request.param == "Python":
        monkeypatch.setattr(install, "steady_of", lambda *_: None)
        monkeypatch.setattr(forward, "in_c", None)


@pytest.fixture(autouse=True)
def what_follows_is_adjacent() -> Iterator[None]:
    """A busy machine may let much time pass between two calls of a training that follow each other."""
    # A patch of its own: a test's shall be undone before what other fixtures do in the end.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_detector, "ADJACENT_NS", 10**12)
        yield
