"""Hooks go in only where things are as expected, come out without a trace, and fail alone."""

from __future__ import annotations

import inspect
import pickle
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

from whyidle.capture.hooks.install import install
from whyidle.capture.hooks.loader import LoaderHook
from whyidle.capture.session import Session
from whyidle.capture.steps import StepRecorder
from whyidle.devices.cpu import CpuDevice
from whyidle.record.notices import read_notices
from whyidle.record.run import create_run

pytestmark = pytest.mark.usefixtures("either_path")

PLACES = [
    (dataloader._BaseDataLoaderIter, "__next__"),
    (dataloader._BaseDataLoaderIter, "_next_index"),
    (dataloader._BaseDataLoaderIter, "__init__"),
    (dataloader._BaseDataLoaderIter, "_reset"),
    (DataLoader, "__iter__"),
    (torch.autograd, "backward"),
    (torch, "save"),
    (torch.serialization, "save"),
]


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    create_run(tmp_path, {"device": {"kind": "cpu"}})
    made = Session(tmp_path, CpuDevice())
    yield made
    made.finish()


def train(epochs: int = 1, loader: DataLoader[Any] | None = None) -> None:
    loader = loader or DataLoader(TensorDataset(torch.ones(10, 3)), batch_size=4)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(epochs):
        for (batch,) in loader:
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()


def test_removed_hooks_leave_everything_as_it_was(session: Session) -> None:
    before = [vars(owner)[name] for owner, name in PLACES]
    of_optimizers = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    before_optimizers = [dict(each) for each in of_optimizers]
    hooks = install(session, CpuDevice())
    assert all(vars(owner)[name] is not old for (owner, name), old in zip(PLACES, before, strict=True))
    hooks.remove()
    hooks.remove()
    assert all(vars(owner)[name] is old for (owner, name), old in zip(PLACES, before, strict=True))
    assert [dict(each) for each in of_optimizers] == before_optimizers


def test_what_others_put_on_top_of_a_hook_stays(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    original = torch.autograd.backward
    monkeypatch.setattr(torch.autograd, "backward", original)  # puts the original back after the test
    hooks = install(session, CpuDevice())
    ours = torch.autograd.backward

    def theirs(*args: Any, **kwargs: Any) -> None:
        ours(*args, **kwargs)

    torch.autograd.backward = theirs  # type: ignore[assignment]
    hooks.remove()
    assert torch.autograd.backward is theirs
    x = torch.ones(1, requires_grad=True)
    x.sum().backward()
    assert x.grad is not None


def test_hooked_functions_look_like_the_ones_they_stand_for(session: Session) -> None:
    signatures = [inspect.signature(getattr(owner, name)) for owner, name in PLACES]
    hooks = install(session, CpuDevice())
    try:
        for (owner, name), signature in zip(PLACES, signatures, strict=True):
            hooked = getattr(owner, name)
            assert hooked.__name__ == name
            assert inspect.signature(hooked) == signature
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save
        assert pickle.loads(pickle.dumps(torch.autograd.backward)) is torch.autograd.backward
    finally:
        hooks.remove()


def test_a_hook_without_its_target_stays_out_and_says_so(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch_optimizer, "register_optimizer_step_pre_hook")
    monkeypatch.setattr(torch.autograd, "backward", lambda: None)
    hooks = install(session, CpuDevice())
    try:
        assert hooks.off == ["torch.autograd.backward", "optimizers"]
        said = read_notices(session.folder)
        assert len(said) == 2
        assert "takes other arguments" in said[0]
        assert "optimizer steps are not recorded" in said[1]
    finally:
        hooks.remove()


@pytest.mark.parametrize(
    ("method", "off"),
    [
        ("fetch_begin", "torch's DataLoader"),
        ("fetch_end", "torch's DataLoader"),
        ("abandon_fetch", "torch's DataLoader"),
        ("backward_begin", "torch.autograd.backward"),
        ("backward_end", "torch.autograd.backward"),
        ("optimizer_begin", "optimizers"),
        ("optimizer_end", "optimizers"),
    ],
)
def test_an_error_of_ours_switches_its_hook_off_and_the_training_goes_on(
    session: Session, monkeypatch: pytest.MonkeyPatch, method: str, off: str
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise StopIteration("ours")

    monkeypatch.setattr(StepRecorder, method, broken)
    hooks = install(session, CpuDevice())
    try:
        train(epochs=2)
        assert hooks.off == [off]
        said = read_notices(session.folder)
        assert len(said) == 1
        assert "StopIteration: ours" in said[0]
    finally:
        hooks.remove()


def test_an_error_of_ours_while_a_fetch_fails_does_not_hide_the_training_s(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> int:
        raise RuntimeError("ours")

    def collate(_samples: Any) -> Any:
        raise ValueError("theirs")

    monkeypatch.setattr(LoaderHook, "_received", broken)
    hooks = install(session, CpuDevice())
    try:
        loader = DataLoader(TensorDataset(torch.ones(4, 3)), collate_fn=collate, num_workers=1)
        with pytest.raises(ValueError, match="theirs"):
            next(iter(loader))
        assert hooks.off == ["torch's DataLoader"]
    finally:
        hooks.remove()


def test_an_error_of_the_training_reads_as_without_us(session: Session) -> None:
    def frames() -> list[str]:
        def collate(samples: Any) -> Any:
            raise ValueError("theirs")

        loader = DataLoader(TensorDataset(torch.ones(4, 3)), collate_fn=collate)
        with pytest.raises(ValueError, match="theirs") as raised:
            next(iter(loader))
        assert raised.value.__context__ is None
        return [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]

    bare = frames()
    hooks = install(session, CpuDevice())
    try:
        hooked = frames()
    finally:
        hooks.remove()
    assert hooked == bare
