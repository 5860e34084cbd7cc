"""Machines of the stand-in for torch.cuda."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.cuda import GpuSpec, Machine, installed


@pytest.fixture
def machine_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Puts a machine with such devices below torch."""
    return lambda *specs: installed(Machine(*specs), monkeypatch)


@pytest.fixture
def machine(machine_of: Callable[..., Machine]) -> Machine:
    """One with two ordinary devices."""
    return machine_of(GpuSpec(), GpuSpec())
