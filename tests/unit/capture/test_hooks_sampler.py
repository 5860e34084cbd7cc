"""What a sampler takes in the training's thread is recorded, whenever it does its work; what it is asked for stays."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from support.hooked import Clocked, Net, SomePass, recording
from whyidle.capture.hooks import loader as loader_hook
from whyidle.capture.hooks.install import install
from whyidle.capture.hooks.steady import LEAST_DRAW_NS
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.cpu import CpuDevice
from whyidle.record.notices import read_notices
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, STEP, EventKind

MS = 1_000_000
BATCHES = 6


class Sampler:
    """Batches of four indices in their order. It works when its iterator is made, before the first batch, and for
    each."""

    def __init__(self, device: Clocked, at_iter: float = 0.0, at_first: float = 0.0, each: float = 0.0) -> None:
        self._device = device
        self._at_iter, self._at_first, self._each = at_iter, at_first, each

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[list[int]]:
        self._device.take(self._at_iter)
        return self._draws()

    def _draws(self) -> Iterator[list[int]]:
        self._device.take(self._at_first)
        for batch in range(BATCHES):
            self._device.take(self._each)
            yield list(range(4 * batch, 4 * batch + 4))


def data() -> TensorDataset:
    return TensorDataset(torch.arange(12.0 * BATCHES).reshape(4 * BATCHES, 3))


def trained(
    folder: Path, device: Clocked, loader: DataLoader[Any], epochs: int = 1, thinning: Thinning | None = None
) -> tuple[Records, list[list[float]]]:
    """What was recorded of its samplers, and the batches that came."""
    net, came = Net(), []
    with recording(folder, device=device, thinning=thinning):
        for _ in range(epochs):
            for (batch,) in loader:
                came.append(batch[:, 0].tolist())
                net.learn(batch)
    assert read_notices(folder / "run") == []
    events = open_run(folder / "run").records(EVENT)
    return events[events["what"] == EventKind.SAMPLER], came


def lasted_ms(events: Records) -> list[float]:
    return [round((end - begin) / MS, 1) for begin, end in zip(events["t_ns"], events["end_ns"], strict=True)]


@pytest.mark.parametrize(
    ("workers", "persistent", "made"),
    # Torch makes the first iterator twice where there are workers.
    [(0, False, 2), (1, False, 4), (1, True, 3)],
)
def test_a_sampler_that_works_when_it_is_iterated_over_is_timed_there(
    tmp_path: Path, workers: int, persistent: bool, made: int
) -> None:
    device = Clocked(1000)
    loader = DataLoader(
        data(), batch_sampler=Sampler(device, at_iter=30), num_workers=workers, persistent_workers=persistent
    )
    found, came = trained(tmp_path, device, loader, epochs=2)
    assert lasted_ms(found) == [30.0] * made
    assert found["value"].tolist() == [0] * made
    assert came == [batch[:, 0].tolist() for batch in data().tensors[0].split(4)] * 2


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_works_for_each_batch_is_timed_for_each(tmp_path: Path, workers: int) -> None:
    device = Clocked(1000)
    loader = DataLoader(data(), batch_sampler=Sampler(device, at_first=50, each=2), num_workers=workers)
    found, _ = trained(tmp_path, device, loader)
    assert lasted_ms(found) == [52.0] + [2.0] * (BATCHES - 1)
    assert found["value"].tolist() == [4] * BATCHES


def test_what_it_takes_lies_within_the_fetch(tmp_path: Path) -> None:
    device = Clocked(1000)
    found, _ = trained(tmp_path, device, DataLoader(data(), batch_sampler=Sampler(device, at_iter=5, each=2)), epochs=2)
    steps = open_run(tmp_path / "run").records(STEP)
    for begin, end in zip(found["t_ns"], found["end_ns"], strict=True):
        within = (steps["fetch_begin_ns"] <= begin) & (end <= steps["fetch_end_ns"])
        assert within.sum() == 1


def test_a_sampler_of_single_indices_is_timed_as_a_whole_batch(tmp_path: Path) -> None:
    device = Clocked(1000)

    class Slow:
        def __len__(self) -> int:
            return 4 * BATCHES

        def __iter__(self) -> Iterator[int]:
            for index in range(4 * BATCHES):
                device.take(0.5)
                yield index

    loader: DataLoader[Any] = DataLoader(data(), batch_size=4, sampler=Slow())  # type: ignore[arg-type]
    found, _ = trained(tmp_path, device, loader)
    assert lasted_ms(found) == [2.0] * BATCHES


def test_what_is_quick_is_not_recorded(tmp_path: Path) -> None:
    device = Clocked(1000)
    quick = (LEAST_DRAW_NS - 5000) / MS
    loader = DataLoader(data(), batch_sampler=Sampler(device, at_iter=quick, each=quick))
    assert len(trained(tmp_path, device, loader)[0]) == 0


def test_a_sampler_that_gives_no_lists_is_timed_too(tmp_path: Path) -> None:
    device = Clocked(1000)

    class Tuples(Sampler):
        def _draws(self) -> Iterator[Any]:
            return (tuple(batch) for batch in super()._draws())

    found, _ = trained(tmp_path, device, DataLoader(data(), batch_sampler=Tuples(device, each=3)))
    assert lasted_ms(found) == [3.0] * BATCHES
    assert set(found["value"].tolist()) == {NOT_MEASURED}


def test_in_steps_that_are_let_pass_no_clock_is_read(tmp_path: Path) -> None:
    device = Clocked(1000)
    loader = DataLoader(data(), batch_sampler=Sampler(device, each=2))
    found, came = trained(tmp_path, device, loader, thinning=SomePass(2, 1000))
    steps = open_run(tmp_path / "run").records(STEP)
    assert len(came) == BATCHES
    assert 0 < len(steps) < BATCHES
    assert len(found) == len(steps)


@pytest.mark.parametrize("where", ["at_iter", "draws"])
def test_an_error_of_a_sampler_reads_as_without_us(tmp_path: Path, where: str) -> None:
    class Broken(Sampler):
        def __iter__(self) -> Iterator[list[int]]:
            if where == "at_iter":
                raise ValueError("theirs")
            return super().__iter__()

        def _draws(self) -> Iterator[list[int]]:
            yield [0, 1]
            raise ValueError("theirs")

    def frames() -> list[str]:
        loader = DataLoader(data(), batch_sampler=Broken(Clocked(1000)))
        with pytest.raises(ValueError, match="theirs") as raised:
            for _ in loader:
                pass
        return [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]

    bare = frames()
    with recording(tmp_path):
        assert frames() == bare


def test_without_torch_s_functions_the_steps_are_recorded_and_a_notice_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moved(self: Any, loader: Any, first_iter: bool, further: Any) -> None: ...

    monkeypatch.setattr(loader_hook.dataloader._BaseDataLoaderIter, "_reset", moved)
    session = Session(create_run(tmp_path / "run", {"device": {"kind": "cpu"}}), CpuDevice())
    hooks = install(session, CpuDevice())
    net = Net()
    for (batch,) in DataLoader(data(), batch_size=4):
        net.learn(batch)
    assert "torch's DataLoader" not in hooks.off
    hooks.remove()
    session.finish()
    said = [text for text in read_notices(tmp_path / "run") if "sampler" in text]
    assert len(said) == 1
    assert said[0].startswith("Work of a sampler at the start of an epoch counts for its first batch")
    assert len(open_run(tmp_path / "run").records(STEP)) == BATCHES
