"""What these programs have in common: samples that take so long, and steps that compute so long."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from benchmarks.gpu_check.spinning import cycles_per_ms

LOAD_MS, COMPUTE_MS, STEPS = 20, 10, 80
WIDTH = 16


class Samples(Dataset[tuple[torch.Tensor, int]]):
    """Each takes the host some time, in which it does nothing."""

    def __init__(self, count: int = STEPS, load_ms: float = LOAD_MS) -> None:
        self.count, self.load_ms = count, load_ms

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(self.load_ms / 1e3)
        return torch.full((WIDTH,), float(index % 7)), index % 2


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))


def spin(milliseconds: float) -> Callable[[], None]:
    """Queues so much work on the current stream."""
    cycles = int(milliseconds * cycles_per_ms())
    return lambda: torch.cuda._sleep(cycles)


def train(
    model: nn.Module, batches: DataLoader[tuple[torch.Tensor, int]], device: str, work: Callable[[], None]
) -> torch.Tensor:
    """A pass over the batches; the last loss."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for inputs, labels in batches:
        loss = cross_entropy(model(inputs.to(device)), labels.to(device))
        work()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return loss.detach()
