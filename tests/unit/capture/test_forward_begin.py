"""Where the forward pass begins: what a training does with a batch before that is its own work, not the step's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from whyidle.analyse.run.analysis import analyse
from whyidle.capture.hooks import forward
from whyidle.capture.hooks.install import install
from whyidle.capture.session import Session
from whyidle.devices.cpu import CpuDevice
from whyidle.record.notices import read_notices
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import STEP, StepFlag

pytestmark = pytest.mark.usefixtures("either_path")

MS = 1_000_000
Step = Callable[[torch.Tensor], torch.Tensor]


class Clocked(CpuDevice):
    """A processor whose clock shows what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ns = 10**15
        self.now = self._tick  # type: ignore[assignment, method-assign]

    def _tick(self) -> int:
        self.now_ns += 1000
        return self.now_ns

    def works(self, ms: int) -> None:
        self.now_ns += ms * MS


class Model(torch.nn.Module):
    """A network that takes 20 ms."""

    def __init__(self, device: Clocked) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
        self._device = [device]

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self._device[0].works(20)
        return self.layers(batch).sum()  # type: ignore[no-any-return]


class Training:
    def __init__(self, folder: Path, steps: int = 60) -> None:
        self.device = Clocked()
        self.folder = create_run(folder / "run", {"device": self.device.describe()})
        self.model = Model(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = DataLoader(TensorDataset(torch.ones(4 * steps, 3)), batch_size=4)

    def run(self, step: Callable[[torch.Tensor], object]) -> Records:
        session = Session(self.folder, self.device, watch_threads=False)
        hooks = install(session, self.device)
        before = torch.nn.Module.__call__
        try:
            for (batch,) in self.loader:
                step(batch)
        finally:
            off = hooks.off
            hooks.remove()
            session.finish()
        assert (off, read_notices(self.folder)) == ([], [])
        assert torch.nn.Module.__call__ is before
        return open_run(self.folder).records(STEP)

    def learns(self, loss: torch.Tensor) -> None:
        loss.backward()
        self.device.works(10)
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def training(tmp_path: Path) -> Training:
    return Training(tmp_path)


def seen(steps: Records) -> np.ndarray[Any, Any]:
    return (steps["flags"] & StepFlag.FORWARD_SEEN) != 0


def before_forward_ms(steps: Records) -> np.ndarray[Any, Any]:
    found = steps[seen(steps)]
    return (found["forward_begin_ns"] - found["fetch_end_ns"]) / MS  # type: ignore[no-any-return]


def test_a_stage_behind_the_loader_is_time_of_the_host(training: Training) -> None:
    def step(batch: torch.Tensor) -> None:
        training.device.works(30)  # packing, tokenising
        training.learns(training.model(torch.roll(batch, 1)))

    steps = training.run(step)
    assert seen(steps)[forward.FIRST_LOOK + 1 :].all()
    assert before_forward_ms(steps) == pytest.approx(30, abs=0.1)
    analysis = analyse(open_run(training.folder))
    assert analysis.facts is not None
    # 30 of 60 ms; the steps until the model was found are warm-up, or counted as computing.
    assert analysis.facts.shares["host"] == pytest.approx(0.5, abs=0.05)
    assert analysis.facts.shares["compute"] == pytest.approx(0.5, abs=0.05)
    assert analysis.verdict.cause == "input.main_process"
    assert analysis.verdict.share == pytest.approx(0.5, abs=0.05)


def test_a_generator_around_the_loader_is_a_stage_too(training: Training) -> None:
    loader = training.loader

    class Augmented:
        def __iter__(self) -> Iterator[Any]:
            for (batch,) in loader:
                training.device.works(30)
                yield (torch.roll(batch, 1),)

    training.loader = Augmented()  # type: ignore[assignment]
    steps = training.run(lambda batch: training.learns(training.model(batch)))
    assert before_forward_ms(steps) == pytest.approx(30, abs=0.1)
    verdict = analyse(open_run(training.folder)).verdict
    assert verdict.cause == "input.main_process"
    assert verdict.share == pytest.approx(0.5, abs=0.05)


def test_clearing_gradients_there_is_part_of_the_step(training: Training, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = torch.optim.Optimizer.zero_grad

    def slow(optimizer: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        training.device.works(25)
        plain(optimizer, set_to_none)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", slow)

    def step(batch: torch.Tensor) -> None:
        training.optimizer.zero_grad()
        training.device.works(15)
        training.model(batch).backward()
        training.optimizer.step()
        training.optimizer.zero_grad()

    steps = training.run(step)
    assert before_forward_ms(steps)[-20:] == pytest.approx(15, abs=0.1)
    assert torch.optim.Optimizer.zero_grad is slow


def test_clearing_gradients_is_timed_only_where_something_takes_time_before_the_model(training: Training) -> None:
    plain = torch.optim.Optimizer.zero_grad
    hooked: list[bool] = []

    def step(batch: torch.Tensor) -> None:
        hooked.append(torch.optim.Optimizer.zero_grad is not plain)
        training.optimizer.zero_grad()
        if len(hooked) == 40:
            training.device.works(15)
        training.learns(training.model(batch))

    steps = training.run(step)
    assert hooked == [False] * 40 + [True] * 20
    assert seen(steps).nonzero()[0].tolist() == [39]
    assert torch.optim.Optimizer.zero_grad is plain


def test_augmentation_by_modules_that_learn_nothing_is_no_forward_pass(training: Training) -> None:
    augment = torch.nn.Dropout(0.1)

    def step(batch: torch.Tensor) -> None:
        changed = augment(batch)
        training.device.works(15)
        training.learns(training.model(changed))

    assert before_forward_ms(training.run(step)) == pytest.approx(15, abs=0.1)


def test_a_loop_that_fetches_before_it_learns_is_not_blamed(training: Training) -> None:
    """What follows the hand-over is the pass of the batch before."""
    held: list[torch.Tensor] = []

    def step(batch: torch.Tensor) -> None:
        if held:
            training.learns(held.pop())
        held.append(training.model(batch))

    assert not seen(training.run(step))[2:].any()


def test_a_program_without_modules_is_left_alone(training: Training) -> None:
    weight = torch.ones(3, 1, requires_grad=True)

    def step(batch: torch.Tensor) -> None:
        loss = (batch @ weight).sum()
        training.model.layers(batch)
        loss.backward()

    assert not seen(training.run(step)).any()


def test_a_model_that_gives_way_to_another_is_followed(training: Training) -> None:
    models = [training.model] * 24 + [Model(training.device)] * 36

    def step(batch: torch.Tensor) -> None:
        training.device.works(5)
        training.learns(models.pop(0)(batch))

    steps = training.run(step)
    assert seen(steps)[-10:].all()
    assert not seen(steps)[25:30].any()


@pytest.mark.parametrize(
    "how", ["module", "in place", "function", "inner", "whole step", "hooked module", "hooked function"]
)
def test_a_compiled_training_compiles_no_graph_more(training: Training, tmp_path: Path, how: str) -> None:
    def graphs(watched: bool) -> int:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        each = Training(tmp_path / str(watched), steps=30)
        each.model._device = [Unclocked()]  # type: ignore[list-item]
        layers = each.model.layers
        if how == "in place":
            layers.compile(backend="eager")
        elif how == "inner":
            layers[0] = torch.compile(layers[0], backend="eager")  # type: ignore[assignment]
        elif how.startswith("hooked"):
            layers[0].register_forward_hook(lambda _module, _args, returned: returned + 1)
            layers.register_forward_pre_hook(lambda _module, args: args)
        called = torch.compile(layers, backend="eager") if how.endswith("module") else layers

        def loss_of(batch: torch.Tensor) -> torch.Tensor:
            return called(batch).sum()  # type: ignore[no-any-return]

        loss = torch.compile(loss_of, backend="eager") if how.endswith("function") else loss_of

        def learn(batch: torch.Tensor) -> None:
            loss(batch).backward()
            each.optimizer.step()
            each.optimizer.zero_grad()

        step = torch.compile(learn, backend="eager") if how == "whole step" else learn
        if watched:
            each.run(step)
        else:
            for (batch,) in each.loader:
                step(batch)
        return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    assert graphs(watched=True) == graphs(watched=False) > 0


class Unclocked:
    def works(self, _ms: int) -> None: ...
