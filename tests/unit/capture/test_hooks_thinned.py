"""Loops some of whose steps are let pass: they are counted all the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from support.loops import Net, Recording, Steps, data
from whyidle.capture.loop_detector import state as loop_state
from whyidle.capture.workers import hook as workers_module


class Thinned(Steps):
    """Looks at the first two steps of a recording and at first fetches; lets `passes` after those pass."""

    def __init__(self, passes: int) -> None:
        super().__init__()
        self.passing = False
        self.skip_left = 0
        self.passes = passes
        self.let: list[int] = []
        self._looks = 2

    def fetch_begin(self, epoch: int, first: bool, queue: Any, begin_ns: int) -> None:
        if self.skip_left and not first:
            self.end_step()
            self.skip_left -= 1
            self.passing = True
            return
        super().fetch_begin(epoch, first, queue, begin_ns)
        self.passing = False
        self._looks -= 1
        if self._looks == 0:
            self.skip_left = self.passes

    def let_pass(self, now: int) -> None:
        assert self.passing
        assert self.skip_left > 0
        self.skip_left -= 1

    def passes_with(self, samples: int) -> None:
        self.let.append(samples)

    def fetch_end(self, samples: int, end_ns: int = 0, begins: bool = False, *which: int, flags: int = 0) -> None:
        if self.passing:
            self.passes_with(samples)
        super().fetch_end(samples, end_ns, begins, *which)

    def abandon_fetch(self) -> None:
        super().abandon_fetch()
        self.passing = False

    def end_step(self, at_last_hook: bool = False, end_ns: int = 0) -> None:
        super().end_step(at_last_hook)
        self.passing = False


@pytest.fixture
def thinned(monkeypatch: pytest.MonkeyPatch) -> Iterator[Recording]:
    monkeypatch.setattr(loop_state, "ADJACENT_NS", 10**12)
    # What making a batch costs is another matter.
    monkeypatch.setattr(workers_module, "TrainingFetchTimer", lambda *_: None)
    made = Recording()
    made.steps = Thinned(passes=5)
    made.install()
    yield made
    made.done()


@pytest.mark.parametrize("workers", [0, 1])
def test_steps_that_are_let_pass_are_counted_with_their_samples(thinned: Recording, workers: int) -> None:
    net = Net()
    for _ in range(2):
        for batch in data(22, 2, num_workers=workers):
            net.learn(batch)
    thinned.done()
    steps = thinned.steps
    assert isinstance(steps, Thinned)
    assert steps.let == [2] * 5
    assert thinned.samples == [2] * 17
    assert thinned.epochs == [0, 1]
    assert not thinned.boundaries


def test_an_epoch_can_end_among_steps_that_are_let_pass(thinned: Recording) -> None:
    net, loader, held_out = Net(), data(10, 2), data(6, 2)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
        with torch.no_grad():
            for batch in held_out:
                net.loss(batch)
    assert isinstance(thinned.steps, Thinned)
    assert len(thinned.steps.let) + len(thinned.done()) == 10
    assert thinned.boundaries == 2
    assert thinned.epochs == [0, 1]


def test_loaders_that_train_in_turns_keep_a_step_each_when_steps_are_let_pass(thinned: Recording) -> None:
    net = Net()
    ones, others = iter(data(16, 2)), iter(data(16, 2))
    for _ in range(8):
        net.learn(next(ones))
        net.learn(next(others))
    assert isinstance(thinned.steps, Thinned)
    assert len(thinned.steps.let) + len(thinned.done()) == 16
    assert thinned.steps.let


def test_an_error_among_steps_that_are_let_pass_reaches_the_training(thinned: Recording) -> None:
    net, fails = Net(), {5}

    class Failing(Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 9

        def __getitem__(self, index: int) -> list[torch.Tensor]:
            if index in fails:
                raise ValueError("theirs")
            return [torch.ones(3)]

    iterator = iter(DataLoader(Failing(), batch_size=1))
    trained = 0
    while True:
        try:
            batch = next(iterator)
        except ValueError:
            continue
        except StopIteration:
            break
        net.learn(batch)
        trained += 1
    assert trained == 8
    assert isinstance(thinned.steps, Thinned)
    assert len(thinned.steps.let) + len(thinned.done()) == 8
    assert thinned.hooks is not None
    assert not thinned.notices
