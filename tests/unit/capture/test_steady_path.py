"""The hooks' steady path in C: what is recorded is what the hooks in Python record, and nothing of it can hurt."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset, dataloader

from support.hooked import AllLookedAt, SomePass
from whyidle import native
from whyidle.capture.hooks import install
from whyidle.capture.session import Session
from whyidle.capture.steps import Thinning
from whyidle.devices.cpu import CpuDevice
from whyidle.record.notices import read_notices
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, STEP, EventKind, StepFlag

in_c = pytest.mark.skipif(native.extension is None, reason=f"no extension: {native.why_not}")
COUNTED = ("step", "epoch", "samples", "queue_capacity", "sync_ns", "skipped", "skipped_samples")
STAMPS = ("fetch_begin_ns", "fetch_end_ns", "forward_begin_ns", "backward_begin_ns", "optimizer_begin_ns")
STAMPS += ("optimizer_end_ns", "step_end_ns")
BY_CHANCE = (EventKind.GARBAGE, EventKind.SAMPLER, EventKind.PYTHON_THREADS, EventKind.SAVE)


def recorded(folder: Path, workers: int, thinning: Thinning | None = None) -> tuple[Records, list[int], list[float]]:
    """Steps, kinds of events and the weights of a training of three epochs, one of them left early."""
    torch.manual_seed(3)
    session = Session(create_run(folder, {"device": {"kind": "cpu"}}), CpuDevice(), thinning=thinning)
    hooks = install.install(session, CpuDevice())
    data = TensorDataset(torch.randn(99, 3), torch.randn(99, 1))
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    try:
        for epoch in range(3):
            for number, (features, targets) in enumerate(loader):
                if epoch == 1 and number == 13:
                    break
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(features), targets).backward()
                optimizer.step()
            with torch.no_grad():
                sum(float(model(features).sum()) for features, _ in DataLoader(data, batch_size=33))
        assert hooks.off == []
    finally:
        hooks.remove()
    session.finish()
    assert read_notices(folder) == []
    run = open_run(folder)
    events = [int(what) for what in run.records(EVENT)["what"] if what not in BY_CHANCE]
    return run.records(STEP), events, model.weight.flatten().tolist()


@in_c
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("passing", [False, True])
def test_what_is_recorded_is_the_same(
    tmp_path: Path, workers: int, passing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def thinning() -> Thinning:
        return SomePass(4, 6) if passing else AllLookedAt(1)

    ours, events, weights = recorded(tmp_path / "c", workers, thinning())
    monkeypatch.setattr(install, "steady_of", lambda *_: None)
    pure, pure_events, pure_weights = recorded(tmp_path / "python", workers, thinning())
    assert weights == pure_weights
    assert events == pure_events
    assert len(ours) + int(ours["skipped"].sum()) >= 55
    assert len(ours) == len(pure)
    for name in COUNTED:
        assert ours[name].tolist() == pure[name].tolist(), name
    # Whether the way to the model's call took long is the machine's.
    assert (ours["flags"] & ~StepFlag.FORWARD_SEEN).tolist() == (pure["flags"] & ~StepFlag.FORWARD_SEEN).tolist()
    assert ((ours["batch"] > 0) == (pure["batch"] > 0)).all()
    for name in STAMPS:
        assert ((ours[name] > 0) == (pure[name] > 0)).all(), name
    for before, after in pairwise(STAMPS):
        assert (ours[before] <= ours[after]).all(), after
    assert (ours["overhead_ns"] > 0).all()
    assert (ours["cpu_ns"] > 0).all()


@in_c
def test_recordings_leave_nothing_behind(tmp_path: Path) -> None:
    recorded(tmp_path / "first", 0)
    gc.collect()
    before = [type(each).__name__ for each in gc.get_objects()]
    for number in range(3):
        recorded(tmp_path / str(number), 0)
    gc.collect()
    now = [type(each).__name__ for each in gc.get_objects()]
    for name in ("Instead", "Steady", "StepRecorder", "Loop", "KnownIterator", "Iteration"):
        assert now.count(name) <= before.count(name), name


@in_c
def test_what_stands_in_for_a_method_can_be_asked_for_by_a_class_and_an_object(tmp_path: Path) -> None:
    session = Session(create_run(tmp_path / "run", {"device": {"kind": "cpu"}}), CpuDevice())
    hooks = install.install(session, CpuDevice())
    try:
        base = dataloader._BaseDataLoaderIter
        assert type(vars(base)["__next__"]).__name__ == "Instead"
        iterator = iter(DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2))
        taken: list[Any] = [next(iterator), base.__next__(iterator), iterator.__next__()]
        assert [batch[0].tolist() for batch in taken] == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(StopIteration):
            next(iterator)
        with pytest.raises(TypeError):
            base.__next__()  # type: ignore[call-arg]
    finally:
        hooks.remove()
        session.finish()


def test_the_environment_says_that_the_hooks_are_to_be_python() -> None:
    ask = "from whyidle import native; print(native.extension, native.why_not)"
    shown = subprocess.run(
        [sys.executable, "-c", ask], env=os.environ | {native.PURE: "1"}, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "None WHYIDLE_PURE is set\n"
