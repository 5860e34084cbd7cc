"""Compiled trainings: they compile as without hooks, and are recorded all the same."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

from whyidle.capture.hooks.compiles import leave_uncompiled
from whyidle.capture.hooks.install import install
from whyidle.capture.recording import recording
from whyidle.capture.session import Session
from whyidle.devices.cpu import CpuDevice
from whyidle.devices.emulated import EmulatedDevice, EmulatedSpec
from whyidle.record.notices import read_notices
from whyidle.record.reader import RecordFile
from whyidle.record.run import create_run, open_run
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


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_training_step_that_is_compiled_as_a_whole_is_recorded(tmp_path: Path, backend: str) -> None:
    create_run(tmp_path, {"device": {"kind": "cpu"}})
    session = Session(tmp_path, CpuDevice())
    hooks = install(session, CpuDevice())
    model = torch.nn.Linear(3, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @torch.compile(backend=backend)
    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    for (batch,) in DataLoader(TensorDataset(torch.ones(40, 3)), batch_size=2):
        step(batch)
    assert hooks.off == []
    hooks.remove()
    session.finish()
    (path,) = tmp_path.glob("step-*.rec")
    stored = RecordFile(path).all()
    assert len(stored) == 20
    assert (stored["backward_begin_ns"] != NOT_MEASURED).all()
    assert read_notices(tmp_path) == []


@pytest.mark.parametrize("function", DIRECT)
def test_hooked_methods_compile_into_one_graph_without_a_warning(
    tmp_path: Path, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    create_run(tmp_path, {"device": {"kind": "emulated"}})
    device = EmulatedDevice(EmulatedSpec("t", "T", 10**9, 1e9, 1e9))
    session = Session(tmp_path, device)
    hooks = install(session, device)
    model = torch.nn.Linear(3, 1)
    compiled = torch.compile(function, backend="eager", fullgraph=True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for (batch,) in DataLoader(TensorDataset(torch.ones(12, 3)), batch_size=3):
                assert torch.equal(compiled(batch), torch.full((3, 3), 2.0))
                model(batch).sum().backward()
        assert hooks.off == []
    finally:
        hooks.remove()
        session.finish()


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
    def made() -> list[list[float]]:
        torch._dynamo.reset()
        model = torch.nn.Linear(3, 1)
        batches = []
        for batch in DataLoader(Compiled(transform), 1):
            model(batch).sum().backward()
            batches.append(batch.flatten().tolist())
        return batches

    plain = made()
    with recording(tmp_path, "cpu", sampler=False):
        assert made() == plain
    assert read_notices(tmp_path) == []
    assert len(open_run(tmp_path).records(BATCH)) == 8
    assert len(open_run(tmp_path).records(TRANSFORM)) == 0
