"""Compiled trainings: they compile as without hooks, and are recorded all the same."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader, Dataset

from support.hooked import Net, data, learn, recording
from whyidle.capture.hooks.compiles import leave_uncompiled
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.record.run import open_run
from whyidle.record.schema import BATCH, NOT_MEASURED, TRANSFORM

pytestmark = pytest.mark.usefixtures("either_path")

DIRECT: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: torch.Tensor.to(x, torch.float64) + 1,
    lambda x: torch.Tensor.cpu(x) + 1,
    lambda x: x.to("cpu") + 1,
]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def test_a_compiled_model_and_optimizer_compile_as_without_hooks(tmp_path: Path) -> None:
    def compiled() -> tuple[list[list[tuple[str, str]]], dict[str, int]]:
        """What each graph consists of, and how often a graph was left, by why."""
        graphs: list[list[tuple[str, str]]] = []

        def keep(module: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
            graphs.append([(node.op, str(node.target)) for node in module.graph.nodes])
            return module.forward

        torch._dynamo.reset()
        counters.clear()
        net = Net()
        net.model = torch.compile(net.model, backend=keep)  # type: ignore[assignment]

        @torch.compile(backend=keep)
        def move(x: torch.Tensor) -> torch.Tensor:
            return x.to("cpu", torch.float64) * 2

        step = torch.compile(net.optimizer.step, backend=keep)
        for (batch,) in data(12, 4):
            net.optimizer.zero_grad()
            net.loss(batch).backward()
            step()
            move(batch)
        return graphs, dict(counters["graph_break"])

    bare, left = compiled()
    with recording(tmp_path) as made:
        hooked, left_hooked = compiled()
    assert len(bare) == 3
    assert hooked == bare
    # Fewer are fine: on 3.13 hooked optimizers make Dynamo give up torch's function around the step, which has nothing
    # to compile, where otherwise it splits it; the step itself becomes the same graph.
    assert all(times <= left.get(why, 0) for why, times in left_hooked.items())
    assert made.samples == [4, 4, 4]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_training_step_that_is_compiled_as_a_whole_is_recorded(tmp_path: Path, backend: str) -> None:
    net = Net()
    step = torch.compile(net.learn, backend=backend)
    with recording(tmp_path) as made:
        for (batch,) in data(40, 2):
            step(batch)
    assert (made.done()["backward_begin_ns"] != NOT_MEASURED).tolist() == [True] * 20
    assert made.notices == []


@pytest.mark.parametrize("function", DIRECT)
def test_hooked_methods_compile_into_one_graph_without_a_warning(
    tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    device = EmulatedDevice(EmulatedSpec("t", "T", 10**9, 1e9, 1e9))
    net = Net()
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    with recording(tmp_path, device), warnings.catch_warnings():
        warnings.simplefilter("error")
        for (batch,) in data(12, 3):
            assert torch.equal(compiled(batch), batch + 1)
            net.loss(batch).backward()


@pytest.mark.slow
def test_keeping_the_compiler_away_works_here_and_does_not_import_it() -> None:
    code = (
        "import sys, whyidle.capture.hooks as hooks\n"
        "from whyidle.capture.hooks.compiles import leave_uncompiled\n"
        "assert leave_uncompiled()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


def test_a_torch_that_cannot_keep_its_compiler_away_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_dynamo", object())
    assert leave_uncompiled() is False


class Compiled(Dataset[torch.Tensor]):
    """Calls its transform from code that is compiled as a whole."""

    def __init__(self, transform: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.transform = transform
        self._make = torch.compile(self._twice, backend="eager", fullgraph=True)

    def _twice(self, sample: torch.Tensor) -> torch.Tensor:
        return self.transform(sample) * 2

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return self._make(torch.full((3,), float(index)))


@pytest.mark.parametrize("transform", [torch.nn.ReLU(), lambda sample: sample + 1])
def test_what_compiled_code_of_a_dataset_calls_is_what_it_was_compiled_with(
    tmp_path: Path, transform: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def batches() -> list[list[float]]:
        torch._dynamo.reset()
        model, came = torch.nn.Linear(3, 1), []
        for batch in DataLoader(Compiled(transform), 1):
            learn(model, batch)
            came.append(batch.flatten().tolist())
        return came

    plain = batches()
    with recording(tmp_path) as made:
        assert batches() == plain
    assert made.notices == []
    assert (len(open_run(made.folder).records(BATCH)), len(open_run(made.folder).records(TRANSFORM))) == (8, 0)
