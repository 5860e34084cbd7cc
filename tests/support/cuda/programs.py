"""Programs as users write them, for a machine: none of them knows that it is no GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

from .clock import MS
from .machine import INPUT, Machine, the

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
    """A loader whose batches take so long, in the training's own process."""
    return DataLoader(Data(batches, load_ns // BATCH), batch_size=BATCH, **options)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 2))


def compute(step_ns: int) -> dict[str, int]:
    """Durations of kernels with which a step of `net` takes about so long: two linear layers and their three
    matrix products backward."""
    return dict.fromkeys(("linear", "mm"), step_ns // 5)


def moved(batch: list[torch.Tensor], device: str = "cuda", pinned: bool = False) -> Iterator[torch.Tensor]:
    return (each.to(device, non_blocking=pinned) for each in batch)


class Learner:
    """A model on a device, and its optimizer."""

    def __init__(self, device: str = "cuda", kind: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> None:
        self.model = net().to(device)
        self.optimizer = kind(self.model.parameters(), lr=0.01)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def plain(
    machine: Machine,
    load_ns: int = 20 * MS,
    after_ns: int = 0,
    steps: int = 60,
    *,
    device: str = "cuda",
    pinned: bool = False,
    reads: bool = False,
) -> None:
    """The loop that every tutorial has."""
    learner = Learner(device)
    for batch in loader(steps, load_ns, pin_memory=pinned):
        loss = learner.step(*moved(batch, device, pinned))
        if reads:
            loss.item()
        machine.host(after_ns)


class Prefetcher:
    """One batch ahead, copied on a stream of its own, as NVIDIA's examples do."""

    def __init__(self, batches: DataLoader[Any], waits: Callable[[torch.cuda.Stream], object]) -> None:
        self._batches, self._waits = iter(batches), waits
        self._stream = torch.cuda.Stream()
        self._ahead()

    def _ahead(self) -> None:
        self._next = next(self._batches, None)
        if self._next is not None:
            with torch.cuda.stream(self._stream):
                self._next = [each.to("cuda", non_blocking=True) for each in self._next]

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        while self._next is not None:
            self._waits(self._stream)
            batch = self._next
            for each in batch:
                each.record_stream(torch.cuda.current_stream())
            self._ahead()
            yield batch
