"""Hooks go in only where things are as expected, come out without a trace, and fail alone; their steady path in C
records what they do in Python."""

from __future__ import annotations

import gc
import inspect
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader, TensorDataset, dataloader

from support.hooked import AllLookedAt, Net, SomePass, data, recording
from whyidle import native
from whyidle.capture.hooks import install
from whyidle.capture.hooks.loader import LoaderHook
from whyidle.capture.steps import StepRecorder, Thinning
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, EventKind, StepFlag

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


def in_place() -> list[Any]:
    of_optimizers = (torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks)
    return [vars(owner)[name] for owner, name in PLACES] + [list(each.values()) for each in of_optimizers]


@pytest.mark.usefixtures("either_path")
def test_hooked_functions_look_like_the_ones_they_stand_for_and_removed_hooks_leave_all_as_it_was(
    tmp_path: Path,
) -> None:
    before = in_place()
    signatures = [inspect.signature(getattr(owner, name)) for owner, name in PLACES]
    with recording(tmp_path) as made:
        assert all(now is not old for now, old in zip(in_place()[: len(PLACES)], before, strict=False))
        for (owner, name), signature in zip(PLACES, signatures, strict=True):
            hooked = getattr(owner, name)
            assert (hooked.__name__, inspect.signature(hooked)) == (name, signature)
        assert pickle.loads(pickle.dumps(torch.save)) is torch.save
        assert pickle.loads(pickle.dumps(torch.autograd.backward)) is torch.autograd.backward
    made.hooks.remove()
    assert in_place() == before


@pytest.mark.usefixtures("either_path")
def test_what_others_put_on_top_of_a_hook_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "backward", torch.autograd.backward)  # put back after the test
    with recording(tmp_path):
        ours = torch.autograd.backward

        def theirs(*args: Any, **kwargs: Any) -> None:
            ours(*args, **kwargs)

        torch.autograd.backward = theirs  # type: ignore[assignment]
    assert torch.autograd.backward is theirs
    x = torch.ones(1, requires_grad=True)
    x.sum().backward()
    assert x.grad is not None


@pytest.mark.usefixtures("either_path")
def test_a_hook_without_its_target_stays_out_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch_optimizer, "register_optimizer_step_pre_hook")
    monkeypatch.setattr(torch.autograd, "backward", lambda: None)
    with recording(tmp_path, off=["torch.autograd.backward", "optimizers"]) as made:
        said = made.notices
    assert len(said) == 2
    assert "takes other arguments" in said[0]
    assert "optimizer steps are not recorded" in said[1]


@pytest.mark.usefixtures("either_path")
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, off: str
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise StopIteration("ours")

    net, loader = Net(), data()
    monkeypatch.setattr(StepRecorder, method, broken)
    with recording(tmp_path, off=[off]) as made:
        for _ in range(2):
            net.learns(loader)
        (said,) = made.notices
    assert "StopIteration: ours" in said


@pytest.mark.usefixtures("either_path")
def test_an_error_of_ours_while_a_fetch_fails_does_not_hide_the_training_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> int:
        raise RuntimeError("ours")

    def collate(_samples: Any) -> Any:
        raise ValueError("theirs")

    monkeypatch.setattr(LoaderHook, "_received", broken)
    with recording(tmp_path, off=["torch's DataLoader"]), pytest.raises(ValueError, match="theirs"):
        next(iter(data(collate_fn=collate, num_workers=1)))


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize("fails_at", ["iter", "draw", "collate"])
def test_an_error_of_the_training_reads_as_without_us(tmp_path: Path, fails_at: str) -> None:
    def fails(place: str) -> None:
        if place == fails_at:
            raise ValueError("theirs")

    class Sampler:
        def __iter__(self) -> Iterator[list[int]]:
            fails("iter")
            return self.draws()

        def draws(self) -> Iterator[list[int]]:
            yield [0, 1]
            fails("draw")

    def frames() -> list[str]:
        with pytest.raises(ValueError, match="theirs") as raised:
            list(data(8, 1, batch_sampler=Sampler(), collate_fn=lambda _samples: fails("collate")))
        assert raised.value.__context__ is None
        return [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]

    bare = frames()
    with recording(tmp_path):
        assert frames() == bare


# The steady path in C.

in_c = pytest.mark.skipif(native.extension is None, reason=f"no extension: {native.why_not}")
COUNTED = ("step", "epoch", "samples", "queue_capacity", "sync_ns", "skipped", "skipped_samples")
STAMPS = ("fetch_begin_ns", "fetch_end_ns", "forward_begin_ns", "backward_begin_ns", "optimizer_begin_ns")
STAMPS += ("optimizer_end_ns", "step_end_ns")
BY_CHANCE = (EventKind.GARBAGE, EventKind.SAMPLER, EventKind.PYTHON_THREADS, EventKind.SAVE)


def recorded(folder: Path, workers: int, thinning: Thinning | None = None) -> tuple[Records, list[int], list[float]]:
    """Steps, kinds of events and the weights of a training of three epochs, one of them left early."""
    torch.manual_seed(3)
    loader = data(99, 4, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    net, held_out = Net(), data(99, 33)
    net.optimizer = torch.optim.Adam(net.model.parameters())  # type: ignore[assignment]
    with recording(folder, thinning=thinning) as made:
        for epoch in range(3):
            for number, batch in enumerate(loader):
                if epoch == 1 and number == 13:
                    break
                net.learn(batch)
            net.evaluate(held_out)
    assert made.notices == []
    events = [int(what) for what in open_run(made.folder).records(EVENT)["what"] if what not in BY_CHANCE]
    return made.done(), events, net.model.weight.flatten().tolist()


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
    with recording(tmp_path):
        base = dataloader._BaseDataLoaderIter
        assert type(vars(base)["__next__"]).__name__ == "Instead"
        iterator = iter(DataLoader(TensorDataset(torch.arange(6.0)), batch_size=2))
        taken: list[Any] = [next(iterator), base.__next__(iterator), iterator.__next__()]
        assert [batch[0].tolist() for batch in taken] == [[0, 1], [2, 3], [4, 5]]
        with pytest.raises(StopIteration):
            next(iterator)
        with pytest.raises(TypeError):
            base.__next__()  # type: ignore[call-arg]


def test_the_environment_says_that_the_hooks_are_to_be_python() -> None:
    ask = "from whyidle import native; print(native.extension, native.why_not)"
    shown = subprocess.run(
        [sys.executable, "-c", ask], env=os.environ | {native.PURE: "1"}, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "None WHYIDLE_PURE is set\n"
