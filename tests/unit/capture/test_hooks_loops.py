"""The loops people write, recorded by the hooks: which fetches become steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from support.loops import Net, Recording, data
from whyidle.record.schema import EventKind


def test_a_plain_loop_has_a_step_a_batch(recording: Recording) -> None:
    net, loader = Net(), data()
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
    steps = recording.done()
    assert [(step["epoch"], step["first"], step["samples"]) for step in steps] == [
        (0, True, 4), (0, False, 4), (0, False, 2), (1, True, 4), (1, False, 4), (1, False, 2)
    ]  # fmt: skip
    assert steps[0]["calls"] == [
        "begins", "backward_begin", "backward_end", "optimizer_begin", "optimizer_end"
    ]  # fmt: skip
    assert all(step["calls"] == steps[0]["calls"] for step in steps)
    assert recording.epochs == [0, 1]
    assert recording.loaders == [(0, None, 0, ())]
    assert not recording.notices
    assert not recording.boundaries


def test_enumerate_and_a_loader_made_anew_each_epoch_change_nothing(recording: Recording) -> None:
    net = Net()
    for _ in range(2):
        for number, batch in enumerate(data()):
            assert number < 3
            net.learn(batch)
    assert [step["first"] for step in recording.done()] == [True, False, False] * 2
    assert recording.epochs == [0, 1]


def test_a_manual_iterator_is_followed_across_its_ends(recording: Recording) -> None:
    net, loader = Net(), data()
    iterator = iter(loader)
    for _ in range(7):
        try:
            batch = next(iterator)
        except StopIteration:
            iterator = iter(loader)
            batch = next(iterator)
        net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2, 4, 4, 2, 4]
    assert recording.epochs == [0, 1, 2]


def test_an_epoch_left_early_is_followed_by_the_next(recording: Recording) -> None:
    net, loader = Net(), data()
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
            break
    assert [(step["epoch"], step["first"]) for step in recording.done()] == [(0, True), (1, True)]


def test_accumulated_batches_are_steps_of_their_own(recording: Recording) -> None:
    net = Net()
    for number, batch in enumerate(data(16, 2)):
        net.loss(batch).backward()
        if number % 4 == 3:
            net.optimizer.step()
    recording.done()
    assert recording.steps.count("backward_end") == [1] * 8
    assert recording.steps.count("optimizer_end") == [0, 0, 0, 1] * 2


def test_losses_summed_over_batches_are_said_to_lack_the_first_update(recording: Recording) -> None:
    net, loss = Net(), torch.zeros(())
    for number, batch in enumerate(data(36, 2)):
        loss = loss + net.loss(batch)
        if number % 3 == 2:
            loss.backward()
            net.optimizer.step()
            loss = torch.zeros(())
    recording.done()
    assert recording.samples == [2] * 15
    (said,) = recording.notices
    assert said.startswith("1 of 6 optimizer steps came before it was known what a step is")


def test_steps_of_batches_of_its_own_are_said_to_lack_the_first(recording: Recording) -> None:
    net = Net()
    for _ in range(12):
        net.learn([torch.ones(2, 3)])
    assert len(recording.done()) == 9
    assert any(said.startswith("3 of 12 optimizer steps came before") for said in recording.notices)


def test_backward_passes_with_an_update_of_their_own_are_said_and_how_to_have_steps(recording: Recording) -> None:
    net = Net()
    for _ in range(5):
        net.loss([torch.ones(2, 3)]).backward()
    assert not recording.done()
    (said,) = recording.notices
    assert said.startswith("5 backward passes were seen")
    assert "whyidle.step()" in said
    assert (EventKind.PASSES_WITHOUT_STEPS, 5) in [event[:2] for event in recording.events]


def test_micro_batches_fetched_before_the_first_is_computed_are_one_step(recording: Recording) -> None:
    net, batches = Net(), iter(data(18, 2))
    for _ in range(3):
        update = [next(batches) for _ in range(3)]
        for batch in update:
            net.loss(batch).backward()
        net.optimizer.step()
    recording.done()
    assert recording.samples == [6, 6, 6]
    assert recording.steps.count("backward_end") == [3, 3, 3]
    assert (EventKind.BATCHES_TOGETHER, 3) in [event[:2] for event in recording.events]


def test_backward_passes_of_one_batch_all_count(recording: Recording) -> None:
    net = Net()
    for batch in data(8, 4):
        for _ in range(4):
            net.loss(batch).backward()
        net.optimizer.step()
    recording.done()
    assert recording.steps.count("backward_end") == [4, 4]
    assert recording.steps.count("optimizer_end") == [1, 1]


def test_a_step_that_the_scaler_skips_has_no_optimizer_step(recording: Recording) -> None:
    net, scaler = Net(), torch.amp.GradScaler("cpu", init_scale=2.0)
    for number, batch in enumerate(data()):
        net.optimizer.zero_grad()
        scaler.scale(net.loss(batch)).backward()
        if number == 1:
            net.model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(net.optimizer)
        scaler.update()
    recording.done()
    assert recording.steps.count("optimizer_end") == [1, 0, 1]


def test_two_optimizers_are_one_step(recording: Recording) -> None:
    generator, discriminator = Net(), Net()
    for batch in data():
        discriminator.learn(batch)
        generator.learn(batch)
    recording.done()
    assert recording.steps.count("optimizer_end") == [2, 2, 2]


def test_an_optimizer_that_calls_back_is_one_optimizer_step(recording: Recording) -> None:
    net = Net()
    optimizer = torch.optim.LBFGS(net.model.parameters(), max_iter=2)

    for batch in data():

        def closure(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = net.loss(batch)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]
    recording.done()
    assert recording.steps.count("optimizer_end") == [1, 1, 1]


def test_a_hundredth_of_the_updates_that_is_missing_is_not_worth_a_word(recording: Recording) -> None:
    net = Net()
    for _ in range(300):
        net.learn([torch.ones(2, 3)])
    assert len(recording.done()) == 297
    assert not any("came before it was known" in said for said in recording.notices)


def test_a_backward_pass_within_one_counts_once(recording: Recording) -> None:
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                torch.ones(1, requires_grad=True).sum().backward()
            return grad

    net = Net()
    for batch in data():
        Nested.apply(net.loss(batch)).backward()
    recording.done()
    assert recording.steps.count("backward_begin") == [1, 1, 1]


def test_two_loaders_of_one_step_are_one_fetch(recording: Recording) -> None:
    net = Net()
    for _ in range(2):
        for labelled, other in zip(data(8, 4), data(6, 3), strict=True):
            net.learn(labelled)
            assert len(other[0]) == 3
    recording.done()
    assert recording.samples == [4, 4] * 2
    assert recording.epochs == [0, 1]


def test_a_batch_held_back_keeps_steps_and_samples_together(recording: Recording) -> None:
    """As accelerate and Lightning do: the next batch is fetched before this one is trained."""

    def ahead(loader: DataLoader[Any]) -> Iterator[Any]:
        iterator = iter(loader)
        held = next(iterator)
        while True:
            try:
                following = next(iterator)
            except StopIteration:
                yield held
                return
            yield held
            held = following

    net, loader = Net(), data()
    for _ in range(2):
        for batch in ahead(loader):
            net.learn(batch)
    recording.done()
    assert recording.samples == [4, 4, 2] * 2
    assert recording.steps.count("optimizer_end") == [1] * 6


def test_losses_summed_over_batches_before_one_backward_pass_lose_no_later_steps(unhurried: Recording) -> None:
    net, loader = Net(), data(16, 2)
    for _ in range(2):
        loss = torch.zeros(())
        for number, batch in enumerate(loader):
            loss = loss + net.loss(batch)
            if number % 2 == 1:
                loss.backward()
                loss = torch.zeros(())
    steps = unhurried.done()
    assert [step["epoch"] for step in steps].count(1) == 8


def test_a_batch_fetched_only_to_leave_the_epoch_is_no_step(recording: Recording) -> None:
    net, loader, held_out = Net(), data(), data(4, 2)
    for _ in range(3):
        for number, batch in enumerate(loader):
            if number == 2:
                break
            net.learn(batch)
        with torch.no_grad():
            for batch in held_out:
                net.loss(batch)
    recording.done()
    assert recording.samples == [4, 4] * 3
    assert recording.boundaries == 3


def test_a_wrapper_that_holds_a_batch_back_is_known_from_the_second_epoch_on(unhurried: Recording) -> None:
    def ahead(loader: DataLoader[Any]) -> Iterator[Any]:
        iterator = iter(loader)
        held = next(iterator)
        for following in iterator:
            yield held
            held = following
        yield held

    net, loader = Net(), data(18, 4)
    for _ in range(3):
        for batch in ahead(loader):
            net.learn(batch)
    steps = unhurried.done()
    assert [step["samples"] for step in steps if step["epoch"]] == [4, 4, 4, 4, 2] * 2


def test_a_training_on_one_batch_has_a_step_per_update(recording: Recording) -> None:
    net, batch = Net(), next(iter(data()))
    for _ in range(100):
        net.learn(batch)
    assert len(recording.done()) > 60
    assert len(recording.notices) == 1


@pytest.mark.parametrize("updates", [16, 31])
def test_many_optimizer_steps_on_each_batch_are_one_step_a_batch_in_every_epoch(
    recording: Recording, updates: int
) -> None:
    net, loader = Net(), data()
    for _ in range(3):
        for batch in loader:
            for _ in range(updates):
                net.learn(batch)
    recording.done()
    assert recording.steps.count("optimizer_end") == [updates] * 9
    assert recording.samples == [4, 4, 2] * 3
    assert not recording.notices


def test_many_optimizer_steps_on_the_one_batch_of_each_iteration_are_one_step(recording: Recording) -> None:
    net = Net()
    for _ in range(6):
        for batch in data(4, 4):
            for _ in range(20):
                net.learn(batch)
    recording.done()
    assert recording.steps.count("optimizer_end") == [20] * 6
    assert not recording.notices
