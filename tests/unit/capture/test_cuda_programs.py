"""Whole programs on the stand-in for torch.cuda, recorded with the real hooks: the report says what the engines did.

A test that fails for a known reason says which and why; who mends that takes the mark away.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from support.cuda import MS, GpuSpec, Machine, installed
from support.cuda.gpu import Gpu
from support.cuda.programs import compute, loader, net
from support.cuda.recorded import Recorded, record

Run = Callable[..., Recorded]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Runs a program on a machine that it is given."""

    def run(program: Callable[[Machine], object], *specs: GpuSpec, step_ns: int = 40 * MS, **options: type) -> Recorded:
        machine = installed(Machine(*specs), monkeypatch)
        machine.durations = compute(step_ns)
        return record(machine, monkeypatch, tmp_path / "run", lambda: program(machine), **options)

    return run


def assert_true(recorded: Recorded, gpu: Gpu | None = None, points: float = 0.1) -> None:
    """The report is right, and no hook failed on its way there."""
    assert recorded.notices == []
    assert max(map(abs, recorded.off_by(gpu).values())) < points, recorded.off_by(gpu)


def plain(
    machine: Machine,
    load_ns: int = 20 * MS,
    after_ns: int = 0,
    *,
    device: str = "cuda",
    steps: int = 60,
    pinned: bool = False,
    reads: bool = False,
) -> None:
    """The loop that every tutorial has."""
    model = net().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for images, labels in loader(steps, load_ns, pin_memory=pinned):
        images, labels = images.to(device, non_blocking=pinned), labels.to(device, non_blocking=pinned)
        loss = cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if reads:
            loss.item()
        machine.host(after_ns)


LOOPS = {
    "a slow loader": {"load_ns": 70 * MS},
    "a slow loader that pins": {"load_ns": 70 * MS, "pinned": True},
    "a loader that is fast enough": {"load_ns": 10 * MS, "pinned": True},
    "the loss is read in each step": {"reads": True},
    "the loss is read, and the host is slow": {"reads": True, "after_ns": 30 * MS},
    "the host is slow": {"load_ns": 10 * MS, "after_ns": 80 * MS, "pinned": True},
}


@pytest.mark.parametrize("how", LOOPS)
def test_a_plain_loop(run: Run, how: str) -> None:
    recorded = run(lambda machine: plain(machine, **LOOPS[how]))
    assert recorded.device == "cuda"
    assert_true(recorded)


@pytest.mark.parametrize("pinned", [False, True])
def test_a_plain_loop_whose_copies_take_long(run: Run, pinned: bool) -> None:
    slow = GpuSpec(pinned_bytes_per_s=20_000, pageable_bytes_per_s=10_000)
    assert_true(run(lambda machine: plain(machine, pinned=pinned), slow))
