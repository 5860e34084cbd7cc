"""Memory that is kept for the next array."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from whyidle.record import reused_memory


def test_large_arrays_are_made_afterwards() -> None:
    reused_memory.reuse_memory()
    assert np.ones(1 << 22).sum() == 1 << 22


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    reused_memory.reuse_memory()
