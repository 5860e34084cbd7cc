"""The plain PyTorch loop whose steps `python -m benchmarks.overhead` observes, and how long a block of them took."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch.utils.data import DataLoader, TensorDataset

SAMPLES = 1 << 16
BATCH = 8
FEATURES = 32
SHORT_SIDE, LONG_SIDE = 128, 256
"""Sides of the matrices whose products fill a step up to its length."""
LONG_STEP_MS = 5.0

Around = Callable[[torch.nn.Module], AbstractContextManager[object]]


@dataclass(frozen=True)
class Length:
    """How a step is filled up: so many products of square matrices."""

    target_ms: float
    products: int = 0

    @property
    def side(self) -> int:
        return LONG_SIDE if self.target_ms >= LONG_STEP_MS else SHORT_SIDE


@dataclass(frozen=True)
class Block:
    """What the steps of one block took, in ns, without the ones at its begin that do not count."""

    steps: int
    wall_ns: int
    cpu_ns: int
    """CPU time of the training's thread: free of what other programs do to the wall clock."""
    process_ns: int
    """CPU time of all threads of the process."""
    filling_wall_ns: int
    filling_cpu_ns: int
    """The part within the products, where no observer has anything to do but to see the products themselves."""

    def per_step_us(self) -> dict[str, float]:
        """By the name of the column."""
        total = {
            "wall": self.wall_ns,
            "cpu": self.cpu_ns,
            "threads": self.process_ns,
            "wall_around": self.wall_ns - self.filling_wall_ns,
            "cpu_around": self.cpu_ns - self.filling_cpu_ns,
        }
        return {name: value / self.steps / 1e3 for name, value in total.items()}


class Training:
    """Tensors in memory, torch's DataLoader, an MLP of two layers, Adam; one thread computes."""

    def __init__(self, workers: int, device: str) -> None:
        torch.manual_seed(1)
        self.device = torch.device(device)
        on_gpu = self.device.type == "cuda"
        data = TensorDataset(torch.randn(SAMPLES, FEATURES), torch.randint(0, 4, (SAMPLES,)))
        working = {"num_workers": workers, "persistent_workers": workers > 0, "pin_memory": on_gpu}
        self.loader = DataLoader(data, batch_size=BATCH, shuffle=True, **working)
        layers = (torch.nn.Linear(FEATURES, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
        self.net = torch.nn.Sequential(*layers).to(self.device)
        self._loss = torch.nn.CrossEntropyLoss()
        self._optimizer = torch.optim.Adam(self.net.parameters())
        self._matrices = {
            side: (torch.randn(side, side, device=self.device), torch.empty(side, side, device=self.device))
            for side in (SHORT_SIDE, LONG_SIDE)
        }
        self._filling_wall = self._filling_cpu = 0
        # What torch's import left behind need not be looked through before each block, nor now and then within one.
        gc.freeze()

    def block(
        self,
        length: Length,
        steps: int,
        discard: int,
        around: Around | None = None,
        after: Callable[[], object] | None = None,
    ) -> Block:
        """Train `discard` steps that do not count, then `steps` that do.

        Args:
            around: what a step, from its batch on, is to be wrapped in.
            after: called at the end of each step.
        """
        gc.collect()
        left = discard + steps
        begin = (0, 0, 0)
        while True:
            for features, classes in self.loader:
                if left == steps:
                    begin = self._stamps()
                    self._filling_wall = self._filling_cpu = 0
                elif left == 0:
                    end = self._stamps()
                    wall, cpu, process = (b - a for a, b in zip(begin, end, strict=True))
                    return Block(steps, wall, cpu, process, self._filling_wall, self._filling_cpu)
                left -= 1
                if around is None:
                    self.step(features, classes, length)
                else:
                    with around(self.net):
                        self.step(features, classes, length)
                if after is not None:
                    after()

    def step(self, features: torch.Tensor, classes: torch.Tensor, length: Length) -> int:
        """One step with a batch. Returns the ns of wall time that filled it."""
        filled = self._filling_wall
        if self.device.type == "cuda":
            features = features.to(self.device, non_blocking=True)
            classes = classes.to(self.device, non_blocking=True)
        self._optimizer.zero_grad()
        loss = self._loss(self.net(features), classes)
        if length.products:
            factor, product = self._matrices[length.side]
            wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
            for _ in range(length.products):
                torch.mm(factor, factor, out=product)
            self._filling_cpu += time.thread_time_ns() - cpu
            self._filling_wall += time.perf_counter_ns() - wall
        loss.backward()
        self._optimizer.step()
        return self._filling_wall - filled

    def _stamps(self) -> tuple[int, int, int]:
        """(wall, CPU of this thread, CPU of the process). On a GPU once it is idle, for the wall clock's sake."""
        cpu, process = time.thread_time_ns(), time.process_time_ns()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter_ns(), cpu, process


def fitted(training: Training, target_ms: float) -> Length:
    """The length of step that comes closest to `target_ms`; none is shorter than the loop without any products."""
    bare, probe = Length(target_ms), 20
    _, shortest = (training.block(bare, 200, 20) for _ in range(2))
    filled = training.block(Length(target_ms, probe), 40, 5)
    each = (filled.wall_ns / filled.steps - shortest.wall_ns / shortest.steps) / probe
    missing = target_ms * 1e6 - shortest.wall_ns / shortest.steps
    return Length(target_ms, max(0, round(missing / each)))
