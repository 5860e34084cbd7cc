"""A training that is recorded by the hooks, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import torch

from whyidle.capture.hooks.install import Hooks, install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.cpu import CpuDevice
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import STEP, StepFlag


class AllLookedAt(Thinning):
    """Whatever they cost."""

    def first(self) -> int:
        return 1 << 40


class SomePass(Thinning):
    """Looks at so many steps, lets so many pass, and so on; the first of an epoch is always looked at."""

    def __init__(self, looks: int, passes: int) -> None:
        super().__init__(1)
        self.looks, self.passes = looks, passes

    def first(self) -> int:
        return self.looks

    def plan(self, first_of_epoch: bool, left: int) -> tuple[int, int]:
        return (1, left) if first_of_epoch and left else (self.looks, self.passes)


class Clocked(CpuDevice):
    """A processor whose clock stands still but for what is said to take time, and for each look at it."""

    def __init__(self, look_ns: int = 0) -> None:
        super().__init__()
        self.now_ns, self.look_ns = 10**15, look_ns
        self.now = self._look  # type: ignore[assignment, method-assign]

    def _look(self) -> int:
        self.now_ns += self.look_ns
        return self.now_ns

    def take(self, ms: float) -> None:
        self.now_ns += round(ms * 1_000_000)


@contextlib.contextmanager
def recording(folder: Path, thinning: Thinning | None = None, device: CpuDevice | None = None) -> Iterator[Hooks]:
    """Record what is trained within, into `folder / "run"`. No hook may fail."""
    device = device or CpuDevice()
    session = Session(create_run(folder / "run", {"device": {"kind": "cpu"}}), device, thinning=thinning)
    hooks = install(session, device)
    try:
        yield hooks
        assert hooks.off == []
    finally:
        hooks.remove()
        session.finish()


class Net:
    """A small net that learns from tensors of three columns."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01)

    def learn(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()


def learn(net: torch.nn.Module, batch: torch.Tensor) -> None:
    net(batch).sum().backward()


def sized(*lengths: int) -> list[torch.Tensor]:
    return [torch.ones(2, length) for length in lengths]


def shapes(folder: Path) -> str:
    """A letter for each step: new, known, or `-` where that was not looked at."""
    flags = open_run(folder / "run").records(STEP)["flags"]
    known = {0: "-", StepFlag.SHAPE_KNOWN: "k", StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE: "n"}
    return "".join(known[int(f) & (StepFlag.SHAPE_KNOWN | StepFlag.NEW_SHAPE)] for f in flags)
