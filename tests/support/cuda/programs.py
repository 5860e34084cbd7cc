"""Programs as users write them, for a machine: none of them knows that it is no GPU."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from .clock import MS
from .machine import INPUT, the

BATCH, WIDTH = 4, 8


class Data(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that take the host so long each."""

    def __init__(self, batches: int = 30, sample_ns: int = 2 * MS) -> None:
        self.batches, self.sample_ns = batches, sample_ns

    def __len__(self) -> int:
        return BATCH * self.batches

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        the().host(self.sample_ns, INPUT)
        return torch.full((WIDTH,), float(index % 7)), torch.tensor(index % 2)


def loader(batches: int = 30, load_ns: int = 8 * MS, **options: Any) -> DataLoader[Any]:
    """A loader in the training's own process, whose batches take so long."""
    return DataLoader(Data(batches, load_ns // BATCH), batch_size=BATCH, **options)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))


def compute(step_ns: int) -> dict[str, int]:
    """Durations of kernels with which a step of `net` takes about so long: two linear layers and their three
    matrix products backward."""
    return dict.fromkeys(("linear", "mm"), step_ns // 5)


def endlessly(loader: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from loader
