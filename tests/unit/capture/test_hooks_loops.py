"""The loops people write, recorded by the hooks: which fetches become steps, and what lies between them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from support.loops import Net, Recording, data
from whyidle.capture.loop_detector import state as loop_state
from whyidle.record.schema import EventKind, LoaderFlag

PROGRAMS: list[Any] = []
PLAIN = [4, 4, 2]
"""Batches of an epoch of `data()`."""


def gives(samples: Sequence[int | None], unhurried: bool = False, **expected: Any) -> Callable[[Any], Any]:
    """A program is recorded as steps of so many samples; what else is `expected` of it, by the name of a figure."""

    def keep(program: Callable[[Net], object]) -> Callable[[Net], object]:
        everything = {"samples": samples, "boundaries": 0, "said": [], **expected}
        PROGRAMS.append(pytest.param(program, unhurried, everything, id=program.__name__))
        return program

    return keep


def figures(recording: Recording) -> dict[str, Any]:
    steps = recording.done()
    return {
        "samples": [step.get("samples") for step in steps],
        "epoch": [step["epoch"] for step in steps],
        "first": [step["first"] for step in steps],
        "capacity": [step["capacity"] for step in steps],
        "backward": recording.steps.count("backward_end"),
        "updates": recording.steps.count("optimizer_end"),
        "boundaries": recording.boundaries,
        "epochs": recording.epochs,
        "together": [value for kind, value, _ in recording.events if kind == EventKind.BATCHES_TOGETHER],
        "passes": [value for kind, value, _ in recording.events if kind == EventKind.PASSES_WITHOUT_STEPS],
        "loaders": recording.loaders,
    }


def evaluate(net: Net, batches: Iterable[Any], most: int = 99, grad: bool = False) -> None:
    with torch.set_grad_enabled(grad):
        for number, batch in enumerate(batches, 1):
            net.loss(batch)
            if number == most:
                break


def on_a_thread(name: str, work: Callable[[], object]) -> None:
    thread = threading.Thread(target=work, name=name)
    thread.start()
    thread.join()


@gives([*PLAIN, *PLAIN, 4], epochs=[0, 1, 2])
def iterated_by_hand(net: Net) -> None:
    loader = data()
    iterator = iter(loader)
    for _ in range(7):
        batch = next(iterator, None)
        if batch is None:
            iterator = iter(loader)
            batch = next(iterator)
        net.learn(batch)


@gives([4, 4], epoch=[0, 1], first=[True, True])
def left_early(net: Net) -> None:
    loader = data()
    for _ in range(2):
        net.learn(next(iter(loader)))


@gives([2] * 8, backward=[1] * 8, updates=[0, 0, 0, 1] * 2)
def accumulated(net: Net) -> None:
    for number, batch in enumerate(data(16, 2)):
        net.loss(batch).backward()
        if number % 4 == 3:
            net.optimizer.step()


@gives([2] * 15, boundaries=1, said=["1 of 6 optimizer steps came before whyidle knew what a step is"])
def losses_summed(net: Net) -> None:
    batches = iter(data(36, 2))
    for _ in range(6):
        sum(net.loss(next(batches)) for _ in range(3)).backward()  # type: ignore[union-attr]
        net.optimizer.step()


@gives([None] * 9, said=["sees no loader", "3 of 12 optimizer steps came before"])
def batches_of_its_own(net: Net) -> None:
    net.learns([[torch.ones(2, 3)]] * 12)


@gives([None] * 297, said=["sees no loader"])
def a_hundredth_of_the_updates_is_missing(net: Net) -> None:
    net.learns([[torch.ones(2, 3)]] * 300)


@gives([4, *[None] * 68], said=["sees no loader"])
def one_batch(net: Net) -> None:
    net.learns([next(iter(data()))] * 100)


@gives([], passes=[5], said=["5 backward passes were seen"])
def updates_of_its_own(net: Net) -> None:
    for _ in range(5):
        net.loss([torch.ones(2, 3)]).backward()


@gives([], boundaries=1, said=["No backward pass"])
def never_trains(net: Net) -> None:
    for batch in data():
        net.loss(batch)


@gives([6, 6, 6], backward=[3, 3, 3], together=[3], said=["3 batches for each update"])
def micro_batches_fetched_together(net: Net) -> None:
    batches = iter(data(18, 2))
    for _ in range(3):
        for batch in [next(batches) for _ in range(3)]:
            net.loss(batch).backward()
        net.optimizer.step()


@gives(PLAIN, updates=[1, 0, 1])
def a_scaler_skips(net: Net) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for number, batch in enumerate(data()):
        net.optimizer.zero_grad()
        scaler.scale(net.loss(batch)).backward()
        if number == 1:
            net.model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(net.optimizer)
        scaler.update()


@gives(PLAIN, updates=[2, 2, 2])
def two_optimizers(net: Net) -> None:
    discriminator = Net()
    for batch in data():
        discriminator.learn(batch)
        net.learn(batch)


@gives(PLAIN, updates=[1, 1, 1])
def an_optimizer_that_calls_back(net: Net) -> None:
    optimizer = torch.optim.LBFGS(net.model.parameters(), max_iter=2)
    for batch in data():

        def closure(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = net.loss(batch)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]


@gives(PLAIN, backward=[1, 1, 1])
def a_backward_pass_within_one(net: Net) -> None:
    class Nested(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            with torch.enable_grad():
                torch.ones(1, requires_grad=True).sum().backward()
            return grad

    for batch in data():
        Nested.apply(net.loss(batch)).backward()


def ahead(loader: DataLoader[Any]) -> Iterator[Any]:
    """As accelerate and Lightning do: the next batch is fetched before this one is trained."""
    iterator = iter(loader)
    held = next(iterator)
    for following in iterator:
        yield held
        held = following
    yield held


@gives(PLAIN * 2, updates=[1] * 6)
def a_batch_held_back(net: Net) -> None:
    loader = data()
    for _ in range(2):
        net.learns(ahead(loader))


@gives([4, 4, 4, 4, 2] * 3, unhurried=True)
def a_wrapper_that_holds_a_batch_back(net: Net) -> None:
    loader = data(18, 4)
    for _ in range(3):
        net.learns(ahead(loader))


@gives([4, 4] * 3, boundaries=3)
def a_batch_fetched_only_to_leave(net: Net) -> None:
    loader, held_out = data(), data(4, 2)
    for _ in range(3):
        for number, batch in enumerate(loader):
            if number == 2:
                break
            net.learn(batch)
        evaluate(net, held_out)


def many_updates_on_each_batch(net: Net, updates: int) -> None:
    loader = data()
    for _ in range(3):
        for batch in loader:
            net.learns([batch] * updates)


@gives(PLAIN * 3, updates=[31] * 9)
def thirty_one_updates(net: Net) -> None:
    many_updates_on_each_batch(net, 31)


@gives(PLAIN * 2, boundaries=2, epochs=[0, 1], first=[True, False, False] * 2, loaders=[(0, None, 0, ())])
def validation_between_epochs(net: Net) -> None:
    loader, held_out = data(), data(20, 4)
    for _ in range(2):
        net.learns(loader)
        evaluate(net, held_out)


@gives(PLAIN * 2, boundaries=2)
@gives(PLAIN * 2, unhurried=True, boundaries=2)
def validation_before_training(net: Net) -> None:
    loader, held_out = data(), data(20, 4)
    for _ in range(2):
        evaluate(net, held_out, grad=True)
        net.learns(loader)


@gives(PLAIN, boundaries=3)
def validation_left_early(net: Net) -> None:
    held_out = data(20, 4)
    for batch in data():
        net.learn(batch)
        evaluate(net, held_out, most=2)


@gives(PLAIN, first=[True, False, False], boundaries=1)
def a_pass_over_the_training_data_before_it(net: Net) -> None:
    loader = data()
    assert sum(float(batch[0].sum()) for batch in loader)
    net.learns(loader)


@gives([4] * 6, boundaries=1)
def an_evaluation_on_the_training_loader(net: Net) -> None:
    loader = data(40, 4)
    for _ in range(5):
        net.learn(next(iter(loader)))
    for batch in loader:
        net.loss(batch)
    net.learn(next(iter(loader)))


@gives([4] * 4, boundaries=2)
def loaders_without_a_hash(net: Net) -> None:
    class Alike(DataLoader[Any]):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    dataset = TensorDataset(torch.ones(8, 3))
    trains, evaluates = Alike(dataset, batch_size=4), Alike(dataset, batch_size=4)
    for _ in range(2):
        net.learns(trains)
        evaluate(net, evaluates, grad=True)


@gives(PLAIN * 2, capacity=[None, 6, 6] * 2, loaders=[(2, 3, LoaderFlag.PERSISTENT_WORKERS, ())])
def persistent_workers(net: Net) -> None:
    loader = data(num_workers=2, prefetch_factor=3, persistent_workers=True)
    for _ in range(2):
        net.learns(loader)


@gives([4, 4, *PLAIN])
def persistent_workers_left_early(net: Net) -> None:
    loader = data(num_workers=1, persistent_workers=True)
    for _ in range(2):
        for batch in loader:
            net.learn(batch)
            break
    net.learns(loader)


class Broken(Dataset[Any]):
    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 1:
            raise KeyError("sample 1")
        return torch.ones(3)

    def __len__(self) -> int:
        return 4


@gives([1, 1, 1])
def an_error_of_the_dataset_in_a_worker(net: Net) -> None:
    iterator = iter(DataLoader(Broken(), batch_size=1, num_workers=1))
    net.learn([next(iterator)])
    with pytest.raises(KeyError, match="sample 1"):
        next(iterator)
    net.learns([batch] for batch in iterator)


@gives([3, 1, 2, 1])
def a_fetch_that_timed_out(net: Net) -> None:
    def times_out() -> None:
        raise RuntimeError("timed out")

    iterator = iter(data(batch_sampler=[[0, 1, 2], [3], [4, 5], [6]], batch=1, num_workers=1))
    net.learn(next(iterator))
    iterator._get_data = times_out  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="timed out"):
        next(iterator)
    del iterator._get_data  # type: ignore[attr-defined]
    net.learns(iterator)


class Stream(IterableDataset[Any]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        return iter([torch.ones(3)] * 5)


@gives([2, 2, 1])
def an_iterable_dataset(net: Net) -> None:
    net.learns([batch] for batch in DataLoader(Stream(), batch_size=2))


@gives([3, 3])
def ragged_batches(net: Net) -> None:
    net.learns([images[0]] for images in data(6, 3, collate_fn=lambda samples: [x for (x,) in samples]))


@gives([2, 2])
def a_loader_within_a_loader(net: Net) -> None:
    class Outer(Dataset[Any]):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.cat([batch[0] for batch in data(4, 2)])

        def __len__(self) -> int:
            return 4

    net.learns([batch] for batch in DataLoader(Outer(), batch_size=2))


@gives([], said=["prefetcher", "3 of 3 optimizer steps came before whyidle knew"])
def a_prefetching_thread(net: Net) -> None:
    batches: list[Any] = []
    on_a_thread("prefetcher", lambda: batches.extend(data()))
    net.learns(batches)


@gives([4, 2], said=["fit", "1 of 3 optimizer steps came before"])
def a_training_in_another_thread(net: Net) -> None:
    on_a_thread("fit", lambda: net.learns(data()))


@pytest.mark.parametrize(("program", "unhurried", "expected"), PROGRAMS)
def test_a_program_is_recorded_as_the_steps_that_it_has(
    recording: Recording,
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[Net], object],
    unhurried: bool,
    expected: dict[str, Any],
) -> None:
    if unhurried:
        monkeypatch.setattr(loop_state, "ADJACENT_NS", 0)
    program(Net())
    found = figures(recording)
    said = expected.pop("said")
    assert {name: found[name] for name in expected} == expected
    assert len(recording.notices) == len(said), recording.notices
    assert all(part in notice for part, notice in zip(said, recording.notices, strict=True))


def test_a_step_is_begun_by_its_batch_and_learns_once(recording: Recording) -> None:
    Net().learns(data())
    calls = ["begins", "backward_begin", "backward_end", "optimizer_begin", "optimizer_end"]
    assert [step["calls"] for step in recording.done()] == [calls] * 3


def test_validation_between_fetch_and_training_keeps_the_step(recording: Recording) -> None:
    net = Net()
    for number, batch in enumerate(data()):
        if number == 1:
            evaluate(net, data(20, 4))
        net.learn(batch)
    found = figures(recording)
    assert (found["samples"], found["boundaries"], found["backward"]) == (PLAIN, 1, [1, 1, 1])
    # The computation begins after the validation.
    assert recording.steps.count("begins") == [1, 1, 1]
    assert recording.steps.count("compute_begin") == [0, 1, 0]


def test_a_checkpoint_is_a_boundary(recording: Recording, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[Any] = []
    late = SimpleNamespace(__name__="torch.distributed.checkpoint", save=saved.append)
    monkeypatch.setitem(sys.modules, "torch.distributed.checkpoint", late)
    net = Net()
    for batch in data():
        net.learn(batch)
        torch.save(net.model.state_dict(), tmp_path / "model.pt")
        net.learn(batch)
        late.save(net)
    found = figures(recording)
    assert (found["boundaries"], found["samples"], len(saved)) == (6, PLAIN, 3)
    assert torch.load(tmp_path / "model.pt").keys() == {"weight", "bias"}
    assert late.save == saved.append


def wait(recording: Recording) -> None:
    assert recording.hooks is not None
    assert recording.hooks.tell(lambda loop: loop.wait_begins())
    recording.hooks.tell(lambda loop: loop.wait_ends(failed=False))


def test_a_marked_wait_within_a_marked_wait_is_part_of_it(recording: Recording) -> None:
    assert recording.hooks is not None
    net, tell = Net(), recording.hooks.tell
    for _ in range(5):
        assert tell(lambda loop: loop.wait_begins())
        assert not tell(lambda loop: loop.wait_begins())
        tell(lambda loop: loop.wait_ends(failed=False))
        net.learn([torch.ones(4, 3)])
    assert len(recording.done()) == 5


def test_marked_waits_with_nothing_learnt_between_are_no_steps_and_cost_no_later_ones(unhurried: Recording) -> None:
    net = Net()
    wait(unhurried)
    wait(unhurried)
    for _ in range(5):
        wait(unhurried)
        net.learn([torch.ones(4, 3)])
    assert not unhurried.notices
    # That the waits feed a training is known from the first backward pass behind one.
    found = figures(unhurried)
    assert (found["updates"], found["boundaries"]) == ([1] * 4, 1)


def test_a_marked_wait_after_a_checkpoint_costs_no_marked_step(recording: Recording) -> None:
    assert recording.hooks is not None
    net, tell = Net(), recording.hooks.tell
    for _ in range(3):
        tell(lambda loop: loop.step_begins())
        net.learn([torch.ones(4, 3)])
        tell(lambda loop: loop.boundary_begins())
        tell(lambda loop: loop.boundary_ends())
        wait(recording)
    assert not recording.notices
    assert len(recording.done()) == 3
