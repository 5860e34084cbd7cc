"""Stretches without waiting, in real loops: what the training gets stays what it was."""

from __future__ import annotations

import gc
import resource
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from whyidle.capture.hooks import headroom as module
from whyidle.capture.hooks import headroom as room_module
from whyidle.capture.hooks.headroom import BATCHES, FIRST_AT, Held, Room, weigh
from whyidle.capture.recording import recording
from whyidle.record.notices import NO_HEADROOM, read_notices
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, STEP, EventKind, StepFlag


class Numbers(Dataset[torch.Tensor]):
    def __init__(self, samples: int, fails_at: int = -1, error: type[BaseException] = ValueError) -> None:
        self.samples, self.fails_at, self.error = samples, fails_at, error

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == self.fails_at:
            self.fails_at = -1
            raise self.error("planted")
        return torch.tensor([float(index)])


class Endless(IterableDataset[torch.Tensor]):
    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        return (torch.tensor([float(n)]) for n in range(self.samples))


class Net:
    def __init__(self) -> None:
        self.weight = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.SGD([self.weight], 1e-9)
        self.seen: list[float] = []

    def learn(self, *batches: torch.Tensor) -> None:
        for batch in batches:
            self.seen += batch.flatten().tolist()
            (self.weight * batch).sum().backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def flags(folder: Path, flag: int) -> list[int]:
    """Numbers of the steps that have it."""
    steps = open_run(folder).records(STEP)
    return [int(n) for n in steps["step"][(steps["flags"] & flag) != 0]]


def told(folder: Path, what: int) -> list[int]:
    events = open_run(folder).records(EVENT)
    return [int(n) for n in events["value"][events["what"] == what]]


def reasons(folder: Path) -> list[str]:
    return [n.removeprefix(NO_HEADROOM) for n in read_notices(folder) if n.startswith(NO_HEADROOM)]


def loop(folder: Path, loader: Any, epochs: int = 1) -> Net:
    net = Net()
    with recording(folder, "cpu", sampler=False, headroom=True):
        for _ in range(epochs):
            for batch in loader:
                net.learn(batch)
    return net


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_long_run_has_stretches_and_trains_on_the_same(tmp_path: Path, workers: int) -> None:
    loader = DataLoader(Numbers(2000), batch_size=2, num_workers=workers)
    net = loop(tmp_path / "run", loader)
    assert net.seen == [float(n) for n in range(2000)]
    stretches = told(tmp_path / "run", EventKind.HEADROOM_STRETCH)
    assert stretches == [1, 2]
    assert told(tmp_path / "run", EventKind.HEADROOM_FILL) == [BATCHES, BATCHES]
    stretched = flags(tmp_path / "run", StepFlag.HEADROOM)
    assert stretched[:BATCHES] == list(range(FIRST_AT, FIRST_AT + BATCHES))
    assert len(stretched) == 2 * BATCHES
    recovering = flags(tmp_path / "run", StepFlag.RECOVERY)
    assert not set(stretched) & set(recovering)
    if workers:
        assert recovering[:4] == list(range(FIRST_AT + BATCHES, FIRST_AT + BATCHES + 4))
    else:
        assert not recovering
    assert not reasons(tmp_path / "run")


def test_short_epochs_have_short_stretches_and_too_short_ones_none(tmp_path: Path) -> None:
    net = loop(tmp_path / "short", DataLoader(Numbers(16), batch_size=1), epochs=10)
    assert net.seen == [float(n) for n in range(16)] * 10
    assert told(tmp_path / "short", EventKind.HEADROOM_FILL) == [12]
    loop(tmp_path / "shorter", DataLoader(Numbers(11), batch_size=1), epochs=10)
    assert told(tmp_path / "shorter", EventKind.HEADROOM_FILL) == []
    assert reasons(tmp_path / "shorter") == ["an epoch has 11 batches; a stretch needs at least 12."]


def test_too_few_steps_are_said(tmp_path: Path) -> None:
    loop(tmp_path / "run", DataLoader(Numbers(40), batch_size=1))
    assert reasons(tmp_path / "run") == ["the training ended after 40 steps; the first stretch comes after 50."]


def test_loaders_that_take_turns_or_feed_one_step_have_no_stretch(tmp_path: Path) -> None:
    one, other = DataLoader(Numbers(200), batch_size=1), DataLoader(Numbers(200), batch_size=1)
    with recording(tmp_path / "turns", "cpu", sampler=False, headroom=True):
        net = Net()
        for first, second in zip(one, other, strict=True):
            net.learn(first, second)
    with recording(tmp_path / "each", "cpu", sampler=False, headroom=True):
        net, more = Net(), iter(other)
        for first in one:
            net.learn(first)
            net.learn(next(more))
    for name in ("turns", "each"):
        assert told(tmp_path / name, EventKind.HEADROOM_FILL) == []
        assert reasons(tmp_path / name) == ["its steps are not fed by one torch DataLoader alone."]


def test_a_stateful_loader_is_left_alone(tmp_path: Path) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    net = loop(tmp_path / "run", stateful.StatefulDataLoader(Numbers(100), batch_size=1))
    assert net.seen == [float(n) for n in range(100)]
    assert told(tmp_path / "run", EventKind.HEADROOM_FILL) == []
    assert "saved state would be ahead" in reasons(tmp_path / "run")[0]


def test_validation_in_a_stretch_is_no_part_of_it(tmp_path: Path) -> None:
    loader, checking = DataLoader(Numbers(200), batch_size=1), DataLoader(Numbers(20), batch_size=1)
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        for number, batch in enumerate(loader):
            net.learn(batch)
            if number % 25 == 9:
                with torch.no_grad():
                    assert len(list(checking)) == 20
    assert net.seen == [float(n) for n in range(200)]
    assert flags(tmp_path / "run", StepFlag.HEADROOM) == list(range(FIRST_AT, FIRST_AT + BATCHES))


def test_an_error_of_the_dataset_comes_where_it_would_have_come(tmp_path: Path) -> None:
    net, caught = Net(), []
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        batches = iter(DataLoader(Numbers(200, fails_at=60), batch_size=1))
        while True:
            try:
                net.learn(next(batches))
            except StopIteration:
                break
            except ValueError:
                caught.append(len(net.seen))
    # The loader itself goes on behind the sample that failed.
    assert caught == [60]
    assert net.seen == [float(n) for n in range(200) if n != 60]
    assert flags(tmp_path / "run", StepFlag.HEADROOM) == list(range(50, 60))


def test_an_interrupted_fill_loses_no_batch(tmp_path: Path) -> None:
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        batches = iter(DataLoader(Numbers(100, fails_at=60, error=KeyboardInterrupt), batch_size=1))
        with pytest.raises(KeyboardInterrupt):
            while True:
                net.learn(next(batches))
        assert len(net.seen) == FIRST_AT
        for batch in batches:
            net.learn(batch)
    assert net.seen == [float(n) for n in range(100) if n != 60]


def test_an_epoch_left_in_a_stretch_leaves_nothing_behind(tmp_path: Path) -> None:
    loader = DataLoader(Numbers(100), batch_size=1)
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        batches = iter(loader)
        for _ in range(FIRST_AT + 5):
            net.learn(next(batches))
        gone = weakref.ref(batches)
        gc.disable()
        del batches
        gc.enable()
        assert gone() is None
        for batch in loader:
            net.learn(batch)
    assert net.seen == [float(n) for n in (*range(FIRST_AT + 5), *range(100))]
    assert flags(tmp_path / "run", StepFlag.HEADROOM) == list(range(FIRST_AT, FIRST_AT + 5))


def test_persistent_workers_begin_anew_in_the_midst_of_a_stretch(tmp_path: Path) -> None:
    loader = DataLoader(Numbers(100), batch_size=1, num_workers=2, persistent_workers=True)
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        for number, batch in enumerate(loader):
            net.learn(batch)
            if number == FIRST_AT + 5:
                break
        for batch in loader:
            net.learn(batch)
    assert net.seen == [float(n) for n in (*range(FIRST_AT + 6), *range(100))]


def test_a_recording_that_ends_in_a_stretch_takes_no_batch_with_it(tmp_path: Path) -> None:
    batches = iter(DataLoader(Numbers(100), batch_size=1))
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        for _ in range(FIRST_AT + 5):
            net.learn(next(batches))
    for batch in batches:
        net.learn(batch)
    assert net.seen == [float(n) for n in range(100)]
    assert not {"_next_data", "_reset"} & set(vars(batches))


def test_random_numbers_that_a_fetch_draws_are_said(tmp_path: Path) -> None:
    class Augmented(Numbers):
        def __getitem__(self, index: int) -> torch.Tensor:
            return super().__getitem__(index) + torch.rand(1)

    for name, data in (("plain", Numbers(200)), ("augmented", Augmented(200))):
        loop(tmp_path / name, DataLoader(data, batch_size=1, shuffle=True))
        said = [n for n in read_notices(tmp_path / name) if "draws random numbers" in n]
        assert len(said) == (name == "augmented")


def test_without_room_no_batch_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_module, "memory_available", lambda: 10 * 7.5 * 4)
    net = loop(tmp_path / "run", DataLoader(Numbers(100), batch_size=1))
    assert net.seen == [float(n) for n in range(100)]
    assert told(tmp_path / "run", EventKind.HEADROOM_FILL) == [1]
    assert reasons(tmp_path / "run") == ["memory holds 7 batches of 0.0 MB and 1 tensors; 8 are needed."]
    monkeypatch.setattr(room_module, "memory_available", lambda: 10 * 9.5 * 4)
    loop(tmp_path / "little", DataLoader(Numbers(100), batch_size=1))
    assert told(tmp_path / "little", EventKind.HEADROOM_FILL) == [9]


def test_tensors_from_workers_count_as_files(monkeypatch: pytest.MonkeyPatch) -> None:
    batches = iter(DataLoader(Numbers(4), batch_size=1, num_workers=1))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1000, 1000))
    monkeypatch.setattr(room_module.os, "listdir", lambda _: [""] * 200)
    room = Room.now(batches)
    assert room.for_batches(1.0, 10) == 20
    assert room.for_batches(1.0, 100) == 2


def test_a_failing_hook_takes_no_batch_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> bool:
        raise RuntimeError("planted")

    monkeypatch.setattr(module.Headroom, "_marks", fail)
    net = loop(tmp_path / "run", DataLoader(Numbers(200), batch_size=1))
    assert net.seen == [float(n) for n in range(200)]
    assert any("headroom failed and was switched off" in n for n in read_notices(tmp_path / "run"))


def test_a_batch_that_cannot_be_weighed_is_handed_out_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Odd:
        def __init__(self, rows: list[torch.Tensor]) -> None:
            self.batch = torch.stack(rows)

    def weigh(batch: Any) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr("whyidle.capture.hooks.headroom.weigh", weigh)
    net = Net()
    with recording(tmp_path / "run", "cpu", sampler=False, headroom=True):
        for odd in DataLoader(Numbers(100), batch_size=1, collate_fn=Odd):
            net.learn(odd.batch)
    assert net.seen == [float(n) for n in range(100)]
    assert any("headroom failed and was switched off (RuntimeError" in n for n in read_notices(tmp_path / "run"))


def test_what_is_held_is_counted_as_yielded_when_it_is_handed_out() -> None:
    batches = iter(DataLoader(TensorDataset(torch.arange(20.0)), batch_size=2))
    next(batches)
    held = Held(batches)
    assert held.fill(8) is None
    assert (held.left, batches._num_yielded) == (8, 1)
    assert [float(b[0][0]) for b in batches] == [2.0 * n for n in range(1, 10)]
    assert batches._num_yielded == 10
    assert held.left == 0


def test_batches_are_weighed_whatever_they_are_made_of() -> None:
    class Encoding:
        def __init__(self) -> None:
            self.ids, self.text = torch.zeros(10, dtype=torch.int64), "abc"

    weight = weigh({"a": [torch.zeros(3), (torch.zeros(2, 2), None)], "b": Encoding(), "c": 3})
    assert weight is not None
    assert (weight.nbytes, weight.tensors, weight.on_device) == (12 + 16 + 80 + 3, 3, False)
    on_device = weigh([torch.zeros(3, device="meta")])
    assert on_device is not None
    assert on_device.on_device
    assert weigh([1, None, 2.0]) is None
    endless: list[Any] = []
    endless.append(endless)
    assert weigh(endless) is None


def test_a_loader_of_unknown_length_that_ended_in_a_fill_is_tried_once_more(tmp_path: Path) -> None:
    net = loop(tmp_path / "run", DataLoader(Endless(52), batch_size=1), epochs=2)
    assert net.seen == [float(n) for n in range(52)] * 2
    assert told(tmp_path / "run", EventKind.HEADROOM_FILL) == [2, BATCHES]
    assert told(tmp_path / "run", EventKind.HEADROOM_STRETCH) == [1]
    assert flags(tmp_path / "run", StepFlag.HEADROOM) == [50, 51, *range(54, 54 + BATCHES)]


class Progressing:
    def __len__(self) -> int:
        return 100

    def __iter__(self) -> Iterator[list[int]]:
        return ([n] for n in range(100))


def test_a_sampler_of_the_programs_own_and_a_dataset_in_the_training_are_told_of(tmp_path: Path) -> None:
    for name, workers, settings in (
        ("own", 1, {"batch_sampler": Progressing()}),
        ("torch", 1, {"shuffle": True, "batch_size": 1}),
        ("training", 0, {"batch_size": 1}),
    ):
        net = Net()
        with recording(tmp_path / name, "cpu", sampler=False, headroom=True):
            for batch in DataLoader(Numbers(100), num_workers=workers, **settings):  # type: ignore[arg-type]
                net.learn(batch)
    told = {
        name: [n for n in read_notices(tmp_path / name) if "earlier than the training" in n]
        for name in ("own", "torch", "training")
    }
    assert told["torch"] == []
    assert [("the sampler Progressing" in n) for n in told["own"]] == [True]
    assert [("num_workers=0" in n) for n in told["training"]] == [True]
