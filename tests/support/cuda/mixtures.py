"""Random trainings for a machine: each of what a training may do, or not, in any combination."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from .clock import MS, US
from .collectives import ProcessGroup, reduce_gradients
from .gpu import GpuSpec
from .machine import BOUNDARY, HOST, Machine
from .programs import BATCH, Data, Prefetcher, net
from .workers import Workers


@dataclass(frozen=True)
class Mixture:
    """A training, and the device it runs on."""

    spec: GpuSpec
    step_ns: int
    """How long the device computes for a batch."""
    load_ns: tuple[int, ...]
    """How long batches take in turn."""
    batches: int
    epochs: int
    pinned: bool
    workers: int
    """Of the loader; 0: it makes batches in the training's own process."""
    pinning_ns: int
    """What it takes to copy a tensor into page-locked memory."""
    ahead: bool
    """Batches are copied a step ahead, on a side stream."""
    every: int
    """Batches to an optimizer step."""
    adam: bool
    scaled: bool
    """Gradients are scaled."""
    reads: int
    """The loss is read every so many batches; 0: never."""
    before_ns: int
    """Work of the host between a batch and its computation."""
    within_ns: int
    """Work of the host while it waits for the backward pass, say."""
    after_ns: int
    synchronises: int
    """The device is waited for every so many batches; 0: never."""
    beside_ns: int
    """What a second stream computes beside each forward pass, which the first waits for; 0: nothing."""
    teaches: bool
    """Another device computes something of each batch, which this one needs."""
    reduces_ns: int
    """How long each of two buckets of gradients takes to be reduced over several ranks; 0: there is one rank."""
    late_ns: int
    """How long after this rank the last one comes to that."""
    runs_out: int
    """Every so many batches one is left out for want of memory, but never the first of an epoch; 0: none."""
    validates: bool
    """Between epochs."""


class Varying(Data):
    """Batches that take as long as they are told to in turn."""

    def __init__(self, mixture: Mixture, batches: int) -> None:
        super().__init__(batches)
        self._load_ns = mixture.load_ns

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        self.sample_ns = self._load_ns[index // BATCH % len(self._load_ns)] // BATCH
        return super().__getitem__(index)


def train(machine: Machine, mixture: Mixture) -> None:
    model = net().cuda()
    kind = torch.optim.AdamW if mixture.adam else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cuda", enabled=mixture.scaled)
    machine.pinning_ns = mixture.pinning_ns
    batches, validation = (
        DataLoader(
            Varying(mixture, number),
            batch_size=BATCH,
            pin_memory=mixture.pinned,
            num_workers=mixture.workers,
            multiprocessing_context=Workers(machine) if mixture.workers else None,
        )
        for number in (mixture.batches, 3)
    )
    beside = torch.cuda.Stream()
    teacher = net().to("cuda:1") if mixture.teaches else None
    if mixture.reduces_ns:
        reduce_gradients(
            ProcessGroup(machine, late_ns=mixture.late_ns), model, (mixture.reduces_ns, mixture.reduces_ns)
        )
    number = 0
    for _ in range(mixture.epochs):
        for at, (images, labels) in enumerate(_on_device(machine, mixture, batches)):
            number += 1
            if at and mixture.runs_out and number % mixture.runs_out == 0:
                try:
                    torch.empty(10**10, dtype=torch.uint8, device="cuda")
                except torch.OutOfMemoryError:
                    continue
            if mixture.beside_ns:
                beside.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(beside):
                    torch.cuda._sleep(mixture.beside_ns)
            loss = _loss(model, teacher, images, labels) / mixture.every
            if mixture.beside_ns:
                torch.cuda.current_stream().wait_stream(beside)
            scaler.scale(loss).backward()
            machine.host(mixture.within_ns, HOST)
            if number % mixture.every == 0:
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
            if mixture.reads and number % mixture.reads == 0:
                loss.item()
            if mixture.synchronises and number % mixture.synchronises == 0:
                torch.cuda.synchronize()
            machine.host(mixture.after_ns)
        if mixture.validates:
            with machine.at(BOUNDARY), torch.no_grad():
                for images, labels in validation:
                    cross_entropy(model(images.cuda()), labels.cuda()).item()


def _loss(model: nn.Module, teacher: nn.Module | None, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    if teacher is None:
        return cross_entropy(model(images), labels)
    with torch.no_grad():
        wanted = teacher(images.to("cuda:1")).to("cuda:0")
    said = model(images)
    return cross_entropy(said, labels) + (said - wanted).square().mean()


def _on_device(machine: Machine, mixture: Mixture, batches: DataLoader[Any]) -> Iterator[Any]:
    if mixture.ahead:
        yield from Prefetcher(batches, lambda side: torch.cuda.current_stream().wait_stream(side))
        return
    for batch in batches:
        machine.host(mixture.before_ns)
        yield [each.to("cuda", non_blocking=mixture.pinned) for each in batch]


@st.composite
def mixtures(draw: st.DrawFn) -> Mixture:
    """Steps are long beside what calls take, so that a tenth of a point is more than those.

    Left out: second streams that compute for longer than the first, clocks that drift, and queues that are full at the
    begin of an epoch, which have programs of their own (`test_cuda_findings.py`).
    """
    slow = draw(st.booleans())
    ahead = draw(st.booleans())
    return Mixture(
        GpuSpec(
            pinned_bytes_per_s=4_000 if slow else 25e9,
            pageable_bytes_per_s=2_000 if slow else 6e9,
            launch_ns=draw(st.sampled_from([2 * US, 4 * US])),
            arrival_ns=draw(st.sampled_from([2 * US, 8 * US])),
            answer_late_ns=draw(st.sampled_from([0, 10 * US])),
        ),
        step_ns=draw(st.sampled_from([150 * MS, 300 * MS])),
        load_ns=tuple(draw(st.lists(st.sampled_from([MS, 10 * MS, 180 * MS, 500 * MS]), min_size=1, max_size=4))),
        batches=draw(st.integers(8, 16)),
        epochs=draw(st.integers(1, 3)),
        pinned=ahead or draw(st.booleans()),
        workers=draw(st.sampled_from([0, 0, 2])),
        pinning_ns=draw(st.sampled_from([0, 5 * MS, 100 * MS])),
        ahead=ahead,
        every=draw(st.sampled_from([1, 1, 4])),
        adam=draw(st.booleans()),
        scaled=draw(st.booleans()),
        reads=draw(st.sampled_from([0, 0, 1, 5])),
        before_ns=draw(st.sampled_from([0, 0, 5 * MS])),
        within_ns=draw(st.sampled_from([0, 0, 5 * MS])),
        after_ns=draw(st.sampled_from([0, 0, 5 * MS, 50 * MS])),
        synchronises=draw(st.sampled_from([0, 0, 1, 4])),
        beside_ns=draw(st.sampled_from([0, 0, 20 * MS])),
        teaches=draw(st.sampled_from([False, False, False, True])),
        reduces_ns=draw(st.sampled_from([0, 0, 5 * MS, 40 * MS])),
        late_ns=draw(st.sampled_from([0, 5 * MS, 60 * MS])),
        runs_out=draw(st.sampled_from([0, 0, 5])),
        validates=draw(st.booleans()),
    )
