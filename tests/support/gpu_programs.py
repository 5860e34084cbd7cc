"""Programs as users write them, for a GPU, or for a machine that stands in for it: none of them knows which it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, Dataset

MS = 1_000_000
BATCH, WIDTH = 4, 8
WAITS: dict[str, Callable[[torch.Tensor], object]] = {
    "cuda": lambda _: torch.cuda.synchronize(),
    "accelerator": lambda _: torch.accelerator.synchronize(),
    "item": lambda loss: loss.item(),
    "tolist": lambda loss: loss.tolist(),
}
"""What waits for the device, given a tensor that is on it."""
HOST, INPUT = "host", "input"
spin_cycles = 0
"""Cycles of its clock that a device spins in each forward pass of a `Learner`, whose own work takes a GPU no time."""


def spend(ns: int, what: str = HOST) -> None:
    """Keep the host busy for so long; at what, as a part of the report is named. A machine has its own way to do it."""
    time.sleep(ns / 1e9)


class Data(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Samples that take the host so long each."""

    def __init__(self, batches: int = 30, sample_ns: int = 2 * MS) -> None:
        self.batches, self.sample_ns = batches, sample_ns

    def __len__(self) -> int:
        return BATCH * self.batches

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        spend(self.sample_ns, INPUT)
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


def spin(_model: nn.Module, images: tuple[torch.Tensor], _result: torch.Tensor) -> None:
    with torch.cuda.device(images[0].device):
        torch.cuda._sleep(spin_cycles)


class Learner:
    """A model on a device, and its optimizer."""

    def __init__(self, device: str = "cuda", kind: Callable[..., torch.optim.Optimizer] = torch.optim.SGD) -> None:
        self.model = net().to(device)
        if spin_cycles:
            self.model.register_forward_hook(spin)
        self.optimizer = kind(self.model.parameters(), lr=0.01)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss = cross_entropy(self.model(images), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss


def plain(
    load_ns: int = 20 * MS,
    after_ns: int = 0,
    steps: int = 60,
    *,
    device: str = "cuda",
    pinned: bool = False,
    before_ns: int = 0,
    moved_ns: int = 0,
    waits: Callable[[torch.Tensor], object] | None = None,
) -> None:
    """The loop that every tutorial has. The host may work before it moves a batch, when it has, and after a step, which
    may be waited for, given its loss."""
    learner = Learner(device)
    for batch in loader(steps, load_ns, pin_memory=pinned):
        spend(before_ns)
        images, labels = moved(batch, device, pinned)
        spend(moved_ns)
        loss = learner.step(images, labels)
        if waits is not None:
            waits(loss)
        spend(after_ns)


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


def follows(side: torch.cuda.Stream) -> None:
    torch.cuda.current_stream().wait_stream(side)


def accumulates(_: object) -> None:
    learner = Learner(kind=torch.optim.AdamW)
    for number, batch in enumerate(loader(80, 30 * MS)):
        images, labels = moved(batch)
        (cross_entropy(learner.model(images), labels) / 4).backward()
        if number % 4 == 3:
            learner.optimizer.step()
            learner.optimizer.zero_grad()


def scaled(_: object) -> None:
    learner, scaler = Learner(kind=torch.optim.AdamW), torch.amp.GradScaler("cuda")
    for batch in loader(60, 70 * MS):
        images, labels = moved(batch)
        learner.optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = cross_entropy(learner.model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(learner.optimizer)
        scaler.update()


def computes_on_another_stream(_: object) -> None:
    learner, side = Learner(), torch.cuda.Stream()
    for batch in loader(60, 20 * MS, pin_memory=True):
        with torch.cuda.stream(side):
            learner.step(*moved(batch, pinned=True))


def all_on_another_stream(_: object) -> None:
    with torch.cuda.stream(torch.cuda.Stream()):
        plain(60 * MS, pinned=True)


def looks_at_a_batch_first(_: object) -> None:
    """As in PyTorch's quickstart."""
    next(iter(loader(5)))
    plain(60 * MS)


def captures_among_its_steps(_: object) -> None:
    learner, still = Learner(), torch.ones(4, 8, device="cuda")
    graph, looks = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    for number, batch in enumerate(loader(60, 60 * MS)):
        learner.step(*moved(batch))
        if number == 20:
            with torch.cuda.graph(graph):
                cross_entropy(learner.model(still), torch.zeros(4, dtype=torch.long, device="cuda")).backward()
            with torch.cuda.graph(looks), torch.no_grad():
                learner.model(still)
        if number > 20:
            looks.replay()
            graph.replay()


def replays_whole_steps(_: object) -> None:
    learner, batches = Learner(), loader(63, 60 * MS, pin_memory=True)
    images, labels = moved(next(iter(batches)))
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            learner.step(images, labels)
    follows(side)
    graph = torch.cuda.CUDAGraph()
    learner.optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        cross_entropy(learner.model(images), labels).backward()
        learner.optimizer.step()
    for new_images, new_labels in batches:
        images.copy_(new_images, non_blocking=True)
        labels.copy_(new_labels, non_blocking=True)
        graph.replay()
