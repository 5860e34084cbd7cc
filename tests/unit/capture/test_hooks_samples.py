"""Loaders of all kinds in loops that the hooks record: settings, samples, errors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from support.loops import Net, Recording, data
from whyidle.record.schema import LoaderFlag


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_tell_their_queue_and_their_settings(recording: Recording, persistent: bool) -> None:
    net, loader = Net(), data(num_workers=2, prefetch_factor=3, persistent_workers=persistent)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
    steps = recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert [step["capacity"] for step in steps] == [None, 6, 6] * 2
    assert recording.loaders == [(2, 3, LoaderFlag.PERSISTENT_WORKERS * persistent, ())]


def test_persistent_workers_left_early_keep_the_samples_right(recording: Recording) -> None:
    net, loader = Net(), data(num_workers=1, persistent_workers=True)
    for _ in range(2):
        for number, batch in enumerate(loader):
            net.learn(batch)
            if number == 0:
                break
    for batch in loader:
        net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 4, 4, 2]


class Broken(Dataset[Any]):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            raise KeyError("sample 1")
        return torch.ones(3)

    def __len__(self) -> int:
        return 4


@pytest.mark.parametrize("workers", [0, 1])
def test_an_error_of_the_dataset_reaches_the_training_and_is_no_step(recording: Recording, workers: int) -> None:
    net = Net()
    iterator = iter(DataLoader(Broken(), batch_size=1, num_workers=workers))
    net.learn([next(iterator)])
    with pytest.raises(KeyError, match="sample 1"):
        next(iterator)
    for batch in iterator:
        net.learn([batch])
    recording.done()
    assert recording.samples == [1, 1, 1]
    assert not recording.notices


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(5):
            yield torch.ones(3)


def test_an_iterable_dataset_is_counted_by_its_tensors(recording: Recording) -> None:
    net = Net()
    for batch in DataLoader(Endless(), batch_size=2):
        net.learn([batch])
    recording.done()
    assert recording.samples == [2, 2, 1]


def test_without_a_batch_size_the_batch_is_what_the_dataset_gives(recording: Recording) -> None:
    net = Net()
    for batch in DataLoader([torch.ones(7, 3), torch.ones(5, 3)], batch_size=None):  # type: ignore[arg-type]
        net.learn([batch])
    recording.done()
    assert recording.samples == [7, 5]


def test_samples_of_a_ragged_batch_are_its_indices(recording: Recording) -> None:
    net = Net()
    for images in data(6, 3, collate_fn=lambda samples: [x for (x,) in samples]):
        net.learn([images[0]])
    recording.done()
    assert recording.samples == [3, 3]


def test_a_loader_within_a_loader_counts_once(recording: Recording) -> None:
    class Outer(Dataset[Any]):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.cat([batch[0] for batch in data(4, 2)])

        def __len__(self) -> int:
            return 4

    net = Net()
    for batch in DataLoader(Outer(), batch_size=2):
        net.learn([batch])
    recording.done()
    assert recording.samples == [2, 2]


def test_loaders_are_told_apart_without_their_hash(recording: Recording) -> None:
    class Alike(DataLoader[Any]):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    net = Net()
    dataset = TensorDataset(torch.ones(8, 3))
    trains, evaluates = Alike(dataset, batch_size=4), Alike(dataset, batch_size=4)
    for _ in range(2):
        for batch in trains:
            net.learn(batch)
        for batch in evaluates:
            net.loss(batch)
    recording.done()
    assert recording.samples == [4] * 4
    assert recording.boundaries == 2
    assert not recording.notices


def test_a_fetch_that_timed_out_leaves_the_samples_right(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net()
    loader = data(batch_sampler=[[0, 1, 2], [3], [4, 5], [6]], batch=1, num_workers=1)
    iterator = iter(loader)
    net.learn(next(iterator))
    with monkeypatch.context() as patched:
        patched.setattr(iterator, "_get_data", lambda: (_ for _ in ()).throw(RuntimeError("timed out")))
        with pytest.raises(RuntimeError, match="timed out"):
            next(iterator)
    for batch in iterator:
        net.learn(batch)
    recording.done()
    assert recording.samples == [3, 1, 2, 1]
