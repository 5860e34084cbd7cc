"""What real loops leave in the record besides their steps: evaluation, checkpoints, compilations, settings."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.context
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from support.crafted import verdict_of_run
from support.hooked import Clocked, learn, recording, shapes, sized
from whyidle.capture.hooks.compiles import CompileHook
from whyidle.capture.hooks.install import install
from whyidle.capture.hooks.loader_facts import starts_python
from whyidle.capture.loop_detector import state as loop_state
from whyidle.capture.session import Session
from whyidle.devices.cpu import CpuDevice
from whyidle.record.notices import read_notices
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, STEP, EventKind, LoaderFlag

pytestmark = pytest.mark.usefixtures("either_path")

MS = 1_000_000


class Slow(Dataset[torch.Tensor]):
    """Each sample takes so long on a clock that is the training's."""

    def __init__(self, samples: int, ms: int = 0, clock: Clocked | None = None) -> None:
        self.samples, self.ms, self.clock = samples, ms, clock

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.clock is not None:
            self.clock.take(self.ms)
        return torch.ones(4)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        yield from torch.ones(12, 4)


def events(folder: Path, what: int) -> Records:
    records = open_run(folder / "run").records(EVENT)
    return records[records["what"] == what]


def lasted(records: Records) -> list[int]:
    return [int(ns) for ns in records["end_ns"] - records["t_ns"]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clocked:
    """What a batch of workers takes, the training sees only as its wait for them: 40 ms each."""
    clock = Clocked()
    gets = _MultiProcessingDataLoaderIter._get_data

    def waits(self: Any) -> Any:
        clock.take(40)
        return gets(self)

    monkeypatch.setattr(_MultiProcessingDataLoaderIter, "_get_data", waits)
    return clock


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("without_grad", [True, False])
def test_an_evaluating_pass_tells_how_long_it_waited(
    tmp_path: Path, workers: int, without_grad: bool, clock: Clocked
) -> None:
    training, checking = DataLoader(Slow(8), 2), DataLoader(Slow(12, 20, clock), 2, num_workers=workers)
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path, device=clock):
        for _ in range(2):
            for batch in training:
                learn(net, batch)
            with torch.no_grad() if without_grad else contextlib.nullcontext():
                for batch in checking:
                    net(batch)
                    clock.take(30)
            clock.take(7)
    found = events(tmp_path, EventKind.EVALUATION)
    assert found["value"].tolist() == [6 * 40 * MS] * 2
    assert lasted(found) == [6 * (40 + 30) * MS] * 2
    assert events(tmp_path, EventKind.EVALUATION_WORKERS)["value"].tolist() == [workers] * 2
    # It is the boundary's pass, no more and no less.
    assert lasted(found) == lasted(events(tmp_path, EventKind.BOUNDARY))


def test_an_iterator_that_evaluates_a_batch_now_and_then_counts_each_time_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clocked
) -> None:
    monkeypatch.setattr(loop_state, "MOST_EVALUATIONS", 5)
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path, device=clock), torch.no_grad():
        checking = iter(DataLoader(Slow(100, 5, clock), 2))
        for batch in DataLoader(Slow(20), 2):
            with torch.enable_grad():
                learn(net, batch)
            net(next(checking))
            clock.take(3)
    # The first iteration was made without gradients too, and is known to train once it has.
    found = events(tmp_path, EventKind.EVALUATION)
    assert len(found) == 5
    assert set(found["value"].tolist()) == {0, 2 * 5 * MS}
    assert all(value <= took for value, took in zip(found["value"], lasted(found), strict=True))


def test_a_checkpoint_is_recorded_once_also_within_validation(tmp_path: Path) -> None:
    net = torch.nn.Linear(400, 400)
    with recording(tmp_path):
        for (batch,) in DataLoader(TensorDataset(torch.ones(8, 400)), 2):
            learn(net, batch)
        torch.save({"net": net.state_dict()}, tmp_path / "one.pt")
        with torch.no_grad():
            for (batch,) in DataLoader(TensorDataset(torch.ones(4, 400)), 2):
                net(batch)
                torch.save({"net": net.state_dict()}, tmp_path / "two.pt")
    assert len(events(tmp_path, EventKind.SAVE)) == 3
    assert len(events(tmp_path, EventKind.BOUNDARY)) == 2
    boundaries, saves = events(tmp_path, EventKind.BOUNDARY), events(tmp_path, EventKind.SAVE)
    assert saves["t_ns"][0] >= boundaries["t_ns"][0]
    assert saves["end_ns"][0] <= boundaries["end_ns"][0]


def test_what_is_saved_in_no_time_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whyidle.capture.hooks.loop.LEAST_SAVE_NS", 10**12)
    with recording(tmp_path):
        torch.save(torch.ones(1), tmp_path / "one.pt")
    assert len(events(tmp_path, EventKind.SAVE)) == 0
    assert len(events(tmp_path, EventKind.BOUNDARY)) == 1


def compile_with_changing_shapes(tmp_path: Path, between: Callable[[], object] = lambda: None) -> None:
    torch._dynamo.reset()
    function = torch.compile(lambda x: (x * 2).sum(), backend="eager", dynamic=False)
    with recording(tmp_path):
        for batch in DataLoader(sized(3, 3, 4, 4, 3), batch_size=None):  # type: ignore[arg-type]
            function(batch.requires_grad_()).backward()
            between()
    torch._dynamo.reset()


def test_each_compilation_is_recorded_in_its_step(tmp_path: Path) -> None:
    compile_with_changing_shapes(tmp_path)
    found, steps = events(tmp_path, EventKind.COMPILE), open_run(tmp_path / "run").records(STEP)
    within = [
        int(((steps["fetch_begin_ns"] <= t) & (t < steps["step_end_ns"])).argmax()) for t in found["t_ns"].tolist()
    ]
    assert within == [0, 2]
    assert all(ns > 0 for ns in lasted(found))
    assert shapes(tmp_path) == "nknkk"


def test_a_compilation_within_another_or_on_another_thread_counts_once(tmp_path: Path) -> None:
    with recording(tmp_path) as hooks:
        (compiling,) = (hook for hook in hooks._hooks if isinstance(hook, CompileHook))

        def nested() -> None:
            for call in (compiling._begins, compiling._begins, compiling._ends, compiling._ends, compiling._ends):
                call()

        for batch in DataLoader(Slow(4), 2):
            learn(torch.nn.Linear(4, 1), batch)
            elsewhere = threading.Thread(target=nested)
            elsewhere.start()
            elsewhere.join()
    assert len(events(tmp_path, EventKind.COMPILE)) == 2


def test_a_compiler_that_calls_nobody_back_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._dynamo.callback as callback

    monkeypatch.setattr(callback, "callback_handler", object())
    session = Session(create_run(tmp_path / "run", {}), CpuDevice())
    hooks = install(session, CpuDevice())
    assert hooks.off == ["torch's compiler"]
    hooks.remove()
    session.finish()
    assert len(read_notices(tmp_path / "run")) == 1 + 1  # and that nothing was trained


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({}, 0),
        ({"dataset": Stream()}, LoaderFlag.ITERABLE),
        ({"num_workers": 1, "multiprocessing_context": "fork"}, 0),
        # Starts a Python that imports torch.
        pytest.param(
            {"num_workers": 1, "multiprocessing_context": "spawn"}, LoaderFlag.STARTS_PYTHON, marks=pytest.mark.slow
        ),
        ({"num_workers": 1, "in_order": False, "multiprocessing_context": "fork"}, LoaderFlag.OUT_OF_ORDER),
        (
            {"num_workers": 1, "persistent_workers": True, "multiprocessing_context": "fork"},
            LoaderFlag.PERSISTENT_WORKERS,
        ),
    ],
)
def test_a_loaders_settings_are_told(tmp_path: Path, settings: dict[str, Any], flags: int) -> None:
    if settings.get("multiprocessing_context") == "spawn":
        settings = {**settings, "dataset": torch.ones(12, 4)}  # a new Python knows nothing of this file
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path):
        for batch in DataLoader(**{"dataset": Slow(12), "batch_size": 4, **settings}):
            learn(net, batch)
    assert events(tmp_path, EventKind.LOADER_FLAGS)["value"].tolist() == [flags]
    assert NOT_MEASURED not in events(tmp_path, EventKind.LOADER_WORKERS)["value"]


def test_asking_how_workers_start_does_not_settle_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.context._default_context, "_actual_context", None)  # type: ignore[attr-defined]
    default = multiprocessing.get_all_start_methods()[0]
    assert starts_python(None) == (default != "fork")
    assert multiprocessing.get_start_method(allow_none=True) is None
    assert [starts_python(method) for method in ("fork", "spawn", "forkserver")] == [False, True, True]


def test_a_program_that_trains_without_steps_is_told_how_to_have_some(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 1)
    with recording(tmp_path):
        for _ in range(7):
            net(torch.ones(2, 4)).sum().backward()
    verdict = verdict_of_run(tmp_path / "run")
    assert verdict.cause is None
    assert "7 backward passes were seen" in verdict.title
    assert "whyidle.step()" in verdict.next[0].change
