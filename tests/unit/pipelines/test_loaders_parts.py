"""What loaders are made of: the common order and randomness, samples and their stamps, a thread that works ahead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whyidle.errors import DataError
from whyidle.pipelines import assemble
from whyidle.pipelines import photos as photos_module
from whyidle.pipelines.background import Background
from whyidle.pipelines.order import batches, count, epoch_order, randomness
from whyidle.pipelines.protocol import Settings

SETTINGS = Settings(batch_size=4)


class Clock:
    """Stands still but for what is told to take time."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def taking(self, ns: int, work: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            self.now += ns
            return work(*arguments)

        return timed


def test_each_part_of_a_trace_holds_its_own_time_and_nothing_else(photos: Any, monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(assemble.time, "monotonic_ns", lambda: clock.now)
    monkeypatch.setattr(photos_module, "read", clock.taking(1_000, photos_module.read))
    monkeypatch.setattr(photos_module, "decode", clock.taking(20, photos_module.decode))
    monkeypatch.setattr(assemble, "stack", clock.taking(7, assemble.stack))
    stages = [clock.taking(300, stage) for stage in photos.stages]
    samples = [assemble.make_sample(photos.staged(*stages), index, 0, SETTINGS) for index in (2, 0, 5)]
    trace = assemble.collate(samples, worker=3, join=assemble.stack).trace
    assert trace is not None
    assert (trace.read_ns, trace.decode_ns, trace.transform_ns, trace.collate_ns) == (3_000, 60, 1_800, 7)
    assert (trace.begin_ns, trace.end_ns, trace.worker) == (1_000_000, 1_004_867, 3)


def test_a_batch_holds_the_samples_in_the_order_asked_for(photos: Any) -> None:
    batch = assemble.make_batch(photos, [5, 0, 2], 0, SETTINGS, worker=0)
    assert batch.indices == (5, 0, 2)
    assert batch.inputs.dtype == batch.targets.dtype == torch.float32
    for position, index in enumerate(batch.indices):
        alone = assemble.make_batch(photos, [index], 0, SETTINGS, worker=0)
        assert torch.equal(batch.inputs[position], alone.inputs[0])
        rows = batch.targets[batch.targets[:, 0] == position]
        assert np.array_equal(rows[:, 1:].numpy(), photos.targets(index))


@pytest.mark.parametrize("content", [b"", b"no image at all"], ids=["empty", "text"])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.jpg cannot be decoded"):
        photos_module.decode(photos_module.read(broken), broken)


ANY = st.builds(
    Settings,
    batch_size=st.integers(1, 12),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**40),
)


@given(st.integers(0, 60), ANY, st.integers(0, 1000))
def test_an_epoch_visits_every_sample_once_and_batches_are_its_order_cut_up(
    samples: int, settings: Settings, epoch: int
) -> None:
    order, groups = epoch_order(samples, settings, epoch), batches(samples, settings, epoch)
    assert sorted(order) == list(range(samples))
    assert settings.shuffle or order == sorted(order)
    joined = [index for group in groups for index in group]
    assert joined == order[: len(joined)]
    assert len(groups) == count(samples, settings)
    assert all(len(group) == settings.batch_size for group in groups[:-1])
    assert samples - len(joined) == (samples % settings.batch_size if settings.drop_last else 0)


def test_seeds_and_epochs_shuffle_differently_and_augmentation_depends_on_the_index_besides() -> None:
    every = list(product(range(3), range(3)))
    orders = [tuple(epoch_order(50, Settings(4, seed=seed), epoch)) for seed, epoch in every]
    assert len(set(orders)) == 9
    assert orders[5] == tuple(epoch_order(50, Settings(4, seed=1), 2))
    assert orders[3] != tuple(randomness(Settings(4, seed=1), 0, 0).permutation(50).tolist())

    def drawn(seed: int, epoch: int, index: int, batch_size: int = 4) -> float:
        return randomness(Settings(batch_size=batch_size, seed=seed), epoch, index).random()

    assert len({drawn(*each, index) for each in every for index in range(3)}) == 27
    assert drawn(1, 2, 0) == drawn(1, 2, 0, batch_size=9)


def test_a_thread_that_works_ahead_gives_an_exception_after_the_good_items_and_once() -> None:
    def source() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("spoilt")

    thread = Background(source(), 5, "test")
    assert [next(thread), next(thread)] == [1, 2]
    with pytest.raises(KeyError, match="spoilt"):
        next(thread)
    assert list(thread) == []
    thread.close()


def test_closing_it_when_full_stops_it_and_closes_its_source_there(until: Any) -> None:
    closed_by: list[int] = []

    def source() -> Iterator[int]:
        try:
            while True:
                yield 0
        finally:
            closed_by.append(threading.get_ident())

    before = threading.active_count()
    thread = Background(source(), 2, "test")
    assert until(lambda: thread.ready() == 2)
    thread.close()
    thread.close()
    assert threading.active_count() == before
    assert len(closed_by) == 1
    assert closed_by[0] != threading.get_ident()
    assert list(thread) == []
