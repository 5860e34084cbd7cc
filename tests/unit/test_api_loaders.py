"""`watch` over loaders that tell how their batches are made, and how many are ready."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import whyidle
from support.hooked import Net
from whyidle.capture.recording import recording
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, NOT_MEASURED, STEP


def steps_of(folder: Path) -> Any:
    return open_run(folder).records(STEP)


class Stamped(torch.Tensor):
    """A batch that knows how it was made."""

    made: whyidle.MadeBatch | None


def stamped(number: int) -> torch.Tensor:
    batch = torch.ones(4, 3).as_subclass(Stamped)
    batch.made = None
    if number != 2:
        batch.made = whyidle.MadeBatch(
            worker=number % 2,
            begin_ns=1000 * number,
            end_ns=1000 * number + 900,
            read_ns=500,
            decode_ns=100,
            transform_ns=200,
            collate_ns=0,
            batch_bytes=48,
        )
    return batch


def made(batch: Any) -> whyidle.MadeBatch | None:
    told: whyidle.MadeBatch | None = batch.made
    return told


def test_a_loader_can_tell_how_its_batches_were_made_and_how_many_are_ready(tmp_path: Path) -> None:
    class Loader:
        left = 0

        def __iter__(self) -> Iterator[torch.Tensor]:
            for number in range(5):
                self.left = 4 - number
                yield stamped(number)

    net, loader = Net(), Loader()
    with recording(tmp_path / "run", "cpu", sampler=False):
        watched = whyidle.watch(loader, made=made, ready=lambda: loader.left, capacity=6)
        for _ in range(2):
            with torch.no_grad():
                list(watched)  # what only evaluates is no batch of a step
            for x in watched:
                net.learn(x.as_subclass(torch.Tensor))
    steps, batches = steps_of(tmp_path / "run"), open_run(tmp_path / "run").records(BATCH)
    assert batches["step"].tolist() == [0, 1, 3, 4, 5, 6, 8, 9]
    assert batches["worker"].tolist() == [0, 1, 1, 0] * 2
    assert (batches["end_ns"] - batches["begin_ns"]).tolist() == [900] * 8
    assert batches["samples"].tolist() == [4] * 8
    assert batches["read_ns"].tolist() == [500] * 8
    assert set(batches["collate_ns"]) == {0}
    assert set(batches["cpu_ns"]) == {NOT_MEASURED}
    # Each epoch's first fetch begins with its `iter()`, before which there is no queue to look at.
    assert steps["queue_ready"].tolist() == [NOT_MEASURED, 4, 3, 2, 1] * 2
    assert set(steps["queue_capacity"][1:5]) == {6}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_tells_of_itself_is_not_recorded_as_a_data_loader_besides(tmp_path: Path, workers: int) -> None:
    loader = DataLoader(TensorDataset(torch.ones(16, 3)), batch_size=4, num_workers=workers)

    def batches() -> Iterator[torch.Tensor]:
        for (x,) in loader:
            yield x

    def told(x: torch.Tensor) -> whyidle.MadeBatch:
        return whyidle.MadeBatch(begin_ns=1, end_ns=2, worker=7)

    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False):
        for x in whyidle.watch(batches(), made=told):
            net.learn(x)
        for (x,) in whyidle.watch(loader, made=lambda batch: told(batch[0])):
            net.learn(x)
    batches_made = open_run(tmp_path / "run").records(BATCH)
    assert batches_made["worker"].tolist() == [7] * 8
    assert batches_made["step"].tolist() == list(range(8))


def test_what_fails_while_a_loader_is_asked_ends_the_telling_and_nothing_else(tmp_path: Path) -> None:
    def fails(*_: Any) -> Any:
        raise KeyError("their own")

    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False):
        for x in whyidle.watch(iter([torch.ones(4, 3)] * 5), made=fails, ready=fails, capacity=2):
            net.learn(x)
    steps = steps_of(tmp_path / "run")
    assert steps["samples"].tolist() == [4] * 5
    assert set(steps["queue_ready"]) == {NOT_MEASURED}
    notices = (tmp_path / "run" / "training-notices.txt").read_text()
    assert notices.count("how batches are made") == 1


def test_a_batch_whose_step_is_taken_back_was_made_for_none(tmp_path: Path) -> None:
    """The first batch is looked at and thrown away."""
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False):
        next(iter(whyidle.watch((stamped(0) for _ in range(3)), made=made)))
        for x in whyidle.watch((stamped(1) for _ in range(3)), made=made):
            net.learn(x.as_subclass(torch.Tensor))
    batches = open_run(tmp_path / "run").records(BATCH)
    assert (batches["worker"].tolist(), batches["step"].tolist()) == ([1] * 3, [0, 1, 2])
