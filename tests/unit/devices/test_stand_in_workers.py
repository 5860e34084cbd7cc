"""The stand-in's loader workers and its thread that pins: when batches are there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from support.cuda import MS, Machine
from support.cuda.programs import Data, loader
from support.cuda.workers import Workers


def arrivals(machine: Machine, batches: DataLoader[Any]) -> list[float]:
    """When batches come, in milliseconds, to one who does nothing else."""
    began = machine.now_ns
    return [round((machine.now_ns - began) / MS, 1) for _ in batches]


def test_workers_make_their_batches_side_by_side_each_one_after_the_other(machine: Machine) -> None:
    assert arrivals(machine, loader(6, 40 * MS, num_workers=2)) == [40, 40, 80, 80, 120, 120]


def test_a_worker_makes_no_more_than_it_was_asked_for(machine: Machine) -> None:
    batches = iter(loader(9, 10 * MS, num_workers=1, prefetch_factor=2))
    next(batches)
    machine.host(100 * MS)
    assert batches._data_queue.qsize() == 2
    began = machine.now_ns
    for _ in range(3):
        next(batches)
    assert machine.now_ns - began == 10 * MS


def test_the_thread_that_pins_takes_one_batch_after_another_beside_the_workers(machine: Machine) -> None:
    torch.cuda.init()
    torch.cuda.current_stream().query()
    torch.zeros(1, device="cuda")
    machine.pinning_ns = 15 * MS  # for each of two tensors
    batches = loader(4, 40 * MS, num_workers=2, pin_memory=True)
    assert arrivals(machine, batches) == [70, 100, 130, 160]
    assert all(each.is_pinned() for batch in batches for each in batch)


def test_the_thread_that_pins_makes_a_context_on_the_device_that_is_current(machine: Machine) -> None:
    torch.cuda.set_device(1)
    next(iter(loader(2, num_workers=1, pin_memory=True)))
    assert [gpu.has_context for gpu in machine.gpus] == [False, True]


def test_an_error_of_a_worker_is_raised_where_its_batch_is_due(machine: Machine) -> None:
    class Broken(Data):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
            if index == 1:
                raise ValueError("a broken file")
            return super().__getitem__(index)

    for pinned in (False, True):
        batches = iter(DataLoader(Broken(), num_workers=1, multiprocessing_context=Workers(machine), pin_memory=pinned))
        next(batches)
        with pytest.raises(ValueError, match="a broken file"):
            next(batches)


@pytest.mark.parametrize("persistent", [False, True])
def test_iterable_datasets_know_their_worker_and_begin_anew_in_each_epoch(machine: Machine, persistent: bool) -> None:
    class Numbers(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            found = get_worker_info()
            assert found is not None
            return iter(range(found.id, 4, found.num_workers))

    batches = DataLoader(
        Numbers(),
        batch_size=None,
        num_workers=2,
        persistent_workers=persistent,
        multiprocessing_context=Workers(machine),
    )
    for _ in range(2):
        assert list(batches) == [0, 1, 2, 3]
