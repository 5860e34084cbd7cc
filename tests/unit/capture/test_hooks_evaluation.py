"""What is no step in the loops people write: validation, evaluations and checkpoints."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from support.loops import Net, Recording, data


@pytest.mark.parametrize("without_grad", [True, False])
def test_validation_between_epochs_is_one_boundary_each(recording: Recording, without_grad: bool) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
        with torch.set_grad_enabled(not without_grad):
            for batch in held_out:
                net.loss(batch)
    recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert recording.boundaries == 2
    assert recording.epochs == [0, 1]


@pytest.mark.parametrize("without_grad", [True, False])
def test_validation_before_training_leaves_no_steps(recording: Recording, without_grad: bool) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for _ in range(2):
        with torch.set_grad_enabled(not without_grad):
            for batch in held_out:
                net.loss(batch)
        for batch in loader:
            net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert recording.boundaries == 2


def test_slow_validation_before_training_leaves_no_steps(unhurried: Recording) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for batch in held_out:
        net.loss(batch)
    for batch in loader:
        net.learn(batch)
    unhurried.done()
    assert unhurried.samples == [4, 4, 2]
    assert unhurried.boundaries == 1


def test_validation_left_early_ends_with_the_next_training_batch(recording: Recording) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for batch in loader:
        net.learn(batch)
        with torch.no_grad():
            for number, other in enumerate(held_out):
                net.loss(other)
                if number == 1:
                    break
    recording.done()
    assert recording.samples == [4, 4, 2]
    assert recording.boundaries == 3


def test_validation_between_fetch_and_training_keeps_the_step(recording: Recording) -> None:
    net, loader, held_out = Net(), data(), data(20, 4)
    for number, batch in enumerate(loader):
        if number == 1:
            with torch.no_grad():
                for other in held_out:
                    net.loss(other)
        net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2]
    assert recording.boundaries == 1
    assert recording.steps.count("backward_end") == [1, 1, 1]
    # The computation begins after the validation.
    assert recording.steps.count("begins") == [1, 1, 1]
    assert recording.steps.count("compute_begin") == [0, 1, 0]


def test_a_pass_over_the_training_data_before_training_does_not_cost_the_first_epoch(recording: Recording) -> None:
    net, loader = Net(), data()
    total = sum(float(batch[0].sum()) for batch in loader)
    for batch in loader:
        net.learn(batch)
    assert [step["first"] for step in recording.done()] == [True, False, False]
    assert total > 0


def test_a_checkpoint_is_a_boundary(recording: Recording, tmp_path: Any) -> None:
    net = Net()
    for batch in data():
        net.learn(batch)
        torch.save(net.model.state_dict(), tmp_path / "model.pt")
    recording.done()
    assert recording.boundaries == 3
    assert recording.samples == [4, 4, 2]
    assert torch.load(tmp_path / "model.pt").keys() == {"weight", "bias"}


def test_distributed_checkpoints_are_boundaries_once_they_are_imported(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[Any] = []
    late = SimpleNamespace(__name__="torch.distributed.checkpoint", save=saved.append)
    monkeypatch.setitem(sys.modules, "torch.distributed.checkpoint", late)
    net = Net()
    for batch in data():
        net.learn(batch)
        late.save(net)
    recording.done()
    assert len(saved) == 3
    assert recording.boundaries == 3
    assert late.save == saved.append


def test_an_evaluation_on_the_training_loader_is_no_training(recording: Recording) -> None:
    net, loader = Net(), data(40, 4)
    for _ in range(5):
        net.learn(next(iter(loader)))
    for batch in loader:
        net.loss(batch)
    net.learn(next(iter(loader)))
    assert len(recording.done()) == 6
    assert recording.boundaries == 1
