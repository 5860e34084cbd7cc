"""The loops people write, recorded by the hooks: which fetches become steps, and what lies between them."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from support.hooked import MS, Clocked, Net, Recording, ahead, data, recording
from whyidle.capture.loop_detector import detector as loop_detector
from whyidle.capture.loop_detector.loaders import MOST_HELD, MOST_TOGETHER
from whyidle.capture.steps import ALWAYS
from whyidle.record.schema import NOT_MEASURED, EventKind, LoaderFlag, PauseKind, StepFlag

PROGRAMS: list[Any] = []
PLAIN = [4, 4, 2]
"""Batches of an epoch of `data()`."""
OWN = [torch.ones(2, 3)]
"""A batch that comes from no loader."""


def gives(samples: Sequence[int | None], unhurried: bool = False, **expected: Any) -> Callable[[Any], Any]:
    """A program is recorded as steps of so many samples; what else is `expected` of it, by the name of a figure.

    `unhurried`: nothing is close together, as if every batch took long.
    """

    def keep(program: Callable[[Net], object]) -> Callable[[Net], object]:
        everything = {"samples": samples, "boundaries": 0, "said": [], **expected}
        PROGRAMS.append(pytest.param(program, unhurried, everything, id=program.__name__))
        return program

    return keep


def figures(made: Recording) -> dict[str, Any]:
    steps = made.done()
    known: dict[str, Any] = {
        name: [None if value == NOT_MEASURED else value for value in steps[field].tolist()]
        for name, field in {"samples": "samples", "capacity": "queue_capacity", "epoch": "epoch"}.items()
    }
    return known | {
        "first": made.flagged(StepFlag.FIRST_OF_EPOCH),
        "backward": (steps["backward_begin_ns"] != NOT_MEASURED).tolist(),
        "updated": made.flagged(StepFlag.OPTIMIZER),
        "boundaries": len(made.values(EventKind.BOUNDARY)),
        "evaluations": len(made.values(EventKind.EVALUATION)),
        "epochs": made.values(EventKind.EPOCH_BEGIN),
        "together": made.values(EventKind.BATCHES_TOGETHER),
        "passes": made.values(EventKind.PASSES_WITHOUT_STEPS),
        "waits_within": len(made.pauses(PauseKind.FETCH)),
        "workers": made.values(EventKind.LOADER_WORKERS),
        "prefetch": made.values(EventKind.LOADER_PREFETCH),
        "settings": made.values(EventKind.LOADER_FLAGS),
    }


class Computing(Net):
    """What it computes takes 20 ms on the recording's clock, as nothing else does."""

    def __init__(self, clock: Clocked) -> None:
        super().__init__()
        self.clock = clock

    def loss(self, batch: Any) -> torch.Tensor:
        self.clock.take(20)
        return super().loss(batch)


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


@gives([4, 4] * 3, epoch=[0, 0, 1, 1, 2, 2], updated=[True] * 6)
def an_endless_cycle(net: Net) -> None:
    def cycle(loader: Any) -> Iterator[Any]:
        while True:
            yield from loader

    batches = cycle(data(shuffle=True, drop_last=True))
    net.learns(next(batches) for _ in range(6))


@gives([4, 4], epoch=[0, 1], first=[True, True])
def left_early(net: Net) -> None:
    loader = data()
    for _ in range(2):
        net.learn(next(iter(loader)))


@gives([2] * 8, backward=[True] * 8, updated=[False, False, False, True] * 2)
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
    net.learns([OWN] * 12)


@gives([None] * 297, said=["sees no loader"])
def a_hundredth_of_the_updates_is_missing(net: Net) -> None:
    net.learns([OWN] * 300)


@gives([4, *[None] * 68], said=["sees no loader"])
def one_batch(net: Net) -> None:
    net.learns([next(iter(data()))] * 100)


@gives([], passes=[5], said=["5 backward passes were seen"])
def updates_of_its_own(net: Net) -> None:
    for _ in range(5):
        net.loss(OWN).backward()


@gives([], boundaries=1, said=["No backward pass"])
def never_trains(net: Net) -> None:
    for batch in data():
        net.loss(batch)


@gives([None] * (8 + 40 - 16), said=["sees no loader", "4 of 60"])
def one_of_two_optimizers_ends(net: Net) -> None:
    """The third optimizer step is the first's: the fourth begins the steps. The second one's end is noticed later."""
    other = Net()
    for _ in range(10):
        net.learn(OWN)
        other.learn(OWN)
    net.learns([OWN] * 40)


@gives([None, None, 3, 3, 3, 3, None, None], said=["sees no loader", "6 of 14"])
def a_loader_comes_later(net: Net) -> None:
    net.learns([OWN] * 5)
    net.learns(data(12, 3))
    net.learns([OWN] * 5)


@gives([6, 6, 6], backward=[True] * 3, together=[3], said=["3 batches for each update"])
def micro_batches_fetched_together(net: Net) -> None:
    batches = iter(data(18, 2))
    for _ in range(3):
        for batch in [next(batches) for _ in range(3)]:
            net.loss(batch).backward()
        net.optimizer.step()


@gives([4] * 6 + [8, 8, 8])
def several_are_fetched_together_later(net: Net) -> None:
    """The first update of two batches is two steps, of which one computes nothing."""
    batches = iter(data(48, 4))
    for _ in range(4):
        net.learn(next(batches))
    for _ in range(4):
        for batch in [next(batches), next(batches)]:
            net.loss(batch).backward()
        net.optimizer.step()


@gives([4] * 6)
def a_resumed_training_skips_batches(net: Net) -> None:
    """They lie before its first step."""
    batches = iter(data(100, 4))
    for _ in range(20):
        batch = next(batches)
    for _ in range(5):
        net.learn(batch)
        batch = next(batches)
    net.learn(batch)


@gives([None] * 5, boundaries=1, evaluations=1, said=["sees no loader", "3 of 8 optimizer steps"])
def a_list_of_all_batches(net: Net) -> None:
    net.learns((list(data(24, 4)) * 2)[:8])


@gives([14, 14], boundaries=1, said=["1 of 3 optimizer steps"])
def epochs_of_one_update(net: Net) -> None:
    loader = data(14, 4)
    for _ in range(3):
        update_on(net, ahead(loader), 4, 4)


@gives([8, 4, 4, 4, 4, 4], unhurried=True)
def an_adversarial_net_under_a_loader_that_fetches_ahead(net: Net) -> None:
    for batch in ahead(data(24, 4)):
        net.loss(batch).backward()
        net.learn(batch)
        net.learn(batch)


@gives(PLAIN, updated=[True, False, True])
def a_scaler_skips(net: Net) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for number, batch in enumerate(data()):
        net.optimizer.zero_grad()
        scaler.scale(net.loss(batch)).backward()
        if number == 1:
            net.model.weight.grad.fill_(float("inf"))  # type: ignore[union-attr]
        scaler.step(net.optimizer)
        scaler.update()


@gives(PLAIN)
def two_optimizers(net: Net) -> None:
    discriminator = Net()
    for batch in data():
        discriminator.learn(batch)
        net.learn(batch)


@gives(PLAIN, updated=[True] * 3)
def an_optimizer_that_calls_back(net: Net) -> None:
    optimizer = torch.optim.LBFGS(net.model.parameters(), max_iter=2)
    for batch in data():

        def closure(batch: Any = batch) -> torch.Tensor:
            optimizer.zero_grad()
            loss = net.loss(batch)
            loss.backward()
            return loss

        optimizer.step(closure)  # type: ignore[arg-type]


@gives(PLAIN, backward=[True] * 3)
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


@gives(PLAIN * 2, updated=[True] * 6)
def a_batch_held_back(net: Net) -> None:
    loader = data()
    for _ in range(2):
        net.learns(ahead(loader))


@gives([4, 4, 4, 4, 2] * 3, unhurried=True)
def a_wrapper_that_holds_a_batch_back(net: Net) -> None:
    loader = data(18, 4)
    for _ in range(3):
        net.learns(ahead(loader))


@gives(PLAIN * 2)
def batches_without_tensors_held_back(net: Net) -> None:
    loader = data(collate_fn=lambda samples: ["text"] * len(samples))
    for _ in range(2):
        for _texts in ahead(loader):
            net.learn(OWN)


@gives([4, 4] * 3, boundaries=3)
def a_batch_fetched_only_to_leave(net: Net) -> None:
    loader, held_out = data(), data(4, 2)
    for _ in range(3):
        for number, batch in enumerate(loader):
            if number == 2:
                break
            net.learn(batch)
        net.evaluate(held_out)


@gives(PLAIN * 3)
def thirty_one_updates_on_each_batch(net: Net) -> None:
    loader = data()
    for _ in range(3):
        for batch in loader:
            net.learns([batch] * 31)


@gives(PLAIN * 2, boundaries=2, epochs=[0, 1], first=[True, False, False] * 2, workers=[0], prefetch=[], settings=[0])
def validation_between_epochs(net: Net) -> None:
    loader, held_out = data(), data(20, 4)
    for _ in range(2):
        net.learns(loader)
        net.evaluate(held_out)


@gives(PLAIN * 2, boundaries=2)
@gives(PLAIN * 2, unhurried=True, boundaries=2)
def validation_before_training(net: Net) -> None:
    loader, held_out = data(), data(20, 4)
    for _ in range(2):
        net.evaluate(held_out, grad=True)
        net.learns(loader)


@gives(PLAIN, boundaries=3)
def validation_left_early(net: Net) -> None:
    held_out = data(20, 4)
    for batch in data():
        net.learn(batch)
        net.evaluate(held_out, most=2)


@gives([3] * 20, boundaries=9)
def a_validation_iterator_that_is_kept(net: Net) -> None:
    checks = iter(data(60, 4))
    for number, batch in enumerate(data(60, 3)):
        net.learn(batch)
        if number % 2 == 1:
            with torch.no_grad():
                net.loss(next(checks))


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
        net.evaluate(evaluates, grad=True)


@gives([3] * 10, unhurried=True, waits_within=9)
def a_second_loader_is_asked_in_the_midst_of_a_step(net: Net) -> None:
    others = iter(data(100, 5))
    for number, (batch,) in enumerate(data(30, 3)):
        net.learn(torch.cat([batch, next(others)[0]]) if number else batch)


@gives(PLAIN * 2, capacity=[None, 6, 6] * 2, workers=[2], prefetch=[3], settings=[LoaderFlag.PERSISTENT_WORKERS])
def persistent_workers(net: Net) -> None:
    loader = data(num_workers=2, prefetch_factor=3, persistent_workers=True)
    for _ in range(2):
        net.learns(loader)


@gives([4, 4, *PLAIN])
def persistent_workers_left_early(net: Net) -> None:
    loader = data(num_workers=1, persistent_workers=True)
    for _ in range(2):
        net.learn(next(iter(loader)))
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
    net.learn(next(iterator))
    with pytest.raises(KeyError, match="sample 1"):
        next(iterator)
    net.learns(iterator)


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
    net.learns(DataLoader(Stream(), batch_size=2))


@gives(PLAIN * 2, epochs=[0, 1], first=[True, False, False] * 2)
def a_stateful_loader(net: Net) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")
    loader = stateful.StatefulDataLoader(TensorDataset(torch.ones(10, 3)), 4)
    for _ in range(2):
        net.learns(loader)


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

    net.learns(DataLoader(Outer(), batch_size=2))


@gives([], said=["prefetcher", "3 of 3 optimizer steps came before whyidle knew"])
def a_prefetching_thread(net: Net) -> None:
    batches: list[Any] = []
    on_a_thread("prefetcher", lambda: batches.extend(data()))
    net.learns(batches)


@gives([4, 2], said=["fit", "1 of 3 optimizer steps came before"])
def a_training_in_another_thread(net: Net) -> None:
    on_a_thread("fit", lambda: net.learns(data()))


@gives([4] * 8, said=["fit", "1 of 9 optimizer steps came before"])
def a_training_in_another_thread_beside_one_that_tried_the_model(net: Net) -> None:
    net.loss(OWN).backward()
    on_a_thread("fit", lambda: net.learns(data(40, 4)))


@gives([4] * 8, said=["fit", "(MainThread)", "1 of 9 optimizer steps came before"])
def a_training_in_another_thread_beside_one_that_fetches(net: Net) -> None:
    """It takes more to believe."""
    next(iter(data()))
    on_a_thread("fit", lambda: net.learns(data(40, 4)))


@gives(PLAIN * 2)
def another_thread_learns_once_an_epoch_was_trained(net: Net) -> None:
    loader = data()
    net.learns(loader)
    on_a_thread("distil", lambda: Net().learns(data(40, 4)))
    net.learns(loader)


@gives([None] * 9, said=["sees no loader", "3 of 12 optimizer steps came before"])
def another_thread_learns_beside_a_training_without_a_loader(net: Net) -> None:
    net.learns([OWN] * 2)
    on_a_thread("distil", lambda: Net().learns([OWN] * 9))
    net.learns([OWN] * 10)


@pytest.mark.usefixtures("either_path")
@pytest.mark.parametrize(("program", "unhurried", "expected"), PROGRAMS)
def test_a_program_is_recorded_as_the_steps_that_it_has(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    program: Callable[[Net], object],
    unhurried: bool,
    expected: dict[str, Any],
) -> None:
    monkeypatch.setattr(loop_detector, "ADJACENT_NS", 0 if unhurried else 10 * MS)
    clock = Clocked(1000)
    with recording(tmp_path, clock) as made:
        program(Computing(clock))
    found, said, notices = figures(made), expected["said"], made.notices
    assert {name: found.get(name, said) for name in expected} == expected
    assert len(notices) == len(said), notices
    assert all(part in notice for part, notice in zip(said, notices, strict=True)), notices


def update_on(net: Net, batches: Iterator[Any], count: int, together: int) -> None:
    """As transformers' Trainer trains an epoch of so many batches: those of an update are all fetched first."""
    for begin in range(0, count, together):
        for batch in [next(batches) for _ in range(min(together, count - begin))]:
            net.loss(batch).backward()
        net.optimizer.step()
    assert next(batches, None) is None


def updates_of(folder: Path, sizes: list[int], together: int, held: int, epochs: int) -> Recording:
    """A recording of such a training on batches of these sizes, whose loader holds so many batches back."""
    begins = [sum(sizes[:number]) for number in range(len(sizes))]
    batches = [list(range(begin, begin + size)) for begin, size in zip(begins, sizes, strict=True)]
    loader = DataLoader(TensorDataset(torch.ones(sum(sizes), 3)), batch_sampler=batches)
    net = Net()
    with recording(folder) as made:
        for _ in range(epochs):
            given: Iterator[Any] = iter(loader)
            for _ in range(held):
                given = ahead(given)
            update_on(net, given, len(sizes), together)
    return made


@pytest.mark.parametrize("held", [0, 1])
@pytest.mark.parametrize("together", [2, 3, 4, 16])
@pytest.mark.parametrize("last", [1, 2, 4])
def test_an_update_is_one_step_with_its_micro_batches_from_the_first_to_the_shorter_last_of_each_epoch(
    tmp_path: Path, together: int, held: int, last: int
) -> None:
    sizes = [*range(1, 3 * together + last), 1]
    made = updates_of(tmp_path, sizes, together, held, 3)
    assert made.samples == 3 * [sum(sizes[begin : begin + together]) for begin in range(0, len(sizes), together)]
    assert made.values(EventKind.BATCHES_TOGETHER) == [together]
    (said,) = made.notices
    assert f"{together} batches for each update" in said


@given(
    # No more batches in all than are looked at before steps may be let pass.
    sizes=st.lists(st.integers(1, 9), min_size=7, max_size=ALWAYS // 3),
    together=st.integers(1, 3),
    held=st.integers(0, MOST_HELD),
    epochs=st.integers(1, 3),
)
def test_each_batch_is_counted_once_and_each_update_is_a_step(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], together: int, held: int, epochs: int
) -> None:
    samples = updates_of(tmp_path_factory.mktemp("updates"), sizes, together, held, epochs).samples
    assert sum(samples) == epochs * sum(sizes)
    if held < MOST_HELD:
        # Of two held back the last is learnt from with no fetch before it.
        updates = [sum(sizes[begin : begin + together]) for begin in range(0, len(sizes), together)]
        assert samples == epochs * updates


@pytest.mark.parametrize("batches", [3, 40, MOST_TOGETHER + 1])
@pytest.mark.parametrize("stops", [True, False])
def test_a_pass_that_only_looks_at_the_data_is_a_boundary_and_no_step(
    tmp_path: Path, batches: int, stops: bool
) -> None:
    net, loader, clock = Net(), data(4 * (batches + 6), 4), Clocked(1000)
    with recording(tmp_path, clock) as made:
        begin_ns = clock.now_ns
        looks = iter(loader)
        for _ in range(batches + 6 if stops else batches):
            next(looks)
        assert not stops or next(looks, None) is None
        net.learns(data(24, 4))
    assert made.samples == [4] * 6
    (looked,) = made.events(EventKind.EVALUATION)
    assert 0 < looked["t_ns"] - begin_ns < 50_000


@pytest.mark.parametrize("apart", [False, True])
def test_an_iterator_that_is_made_just_before_its_first_fetch_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    clock = Clocked(1000)
    monkeypatch.setattr(loop_detector, "ADJACENT_NS", 10 * MS)
    with recording(tmp_path, clock) as made:
        begin_ns = clock.now_ns
        batches = iter(data())
        clock.take(20 if apart else 5)
        Net().learns(batches)
    fetch_begin_ns = int(made.done()["fetch_begin_ns"][0])
    assert (fetch_begin_ns - begin_ns > 20 * MS) == apart
    assert made.samples == PLAIN


def test_validation_between_fetch_and_training_keeps_the_step(tmp_path: Path) -> None:
    """The computation begins after the validation."""
    net, clock = Net(), Clocked(1000)
    with recording(tmp_path, clock) as made:
        for number, batch in enumerate(data()):
            if number == 1:
                net.evaluate(data(20, 4))
            net.learn(batch)
    steps = made.done()
    assert (made.samples, len(made.events(EventKind.BOUNDARY))) == (PLAIN, 1)
    assert made.lasted(EventKind.BOUNDARY)[0] < steps["backward_begin_ns"][1] - steps["fetch_begin_ns"][1]


@pytest.mark.usefixtures("either_path")
def test_a_checkpoint_is_a_boundary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, net = "torch.distributed.checkpoint", Net()
    (tmp_path / "checkpoint.py").write_text("saved = []\ndef save(what):\n    saved.append(what)\n")
    monkeypatch.setattr(torch.distributed, "__path__", [str(tmp_path)])
    monkeypatch.setitem(sys.modules, name, sys)  # is put back after the test
    del sys.modules[name]
    monkeypatch.setattr(torch.distributed, "checkpoint", None, raising=False)
    with recording(tmp_path) as made:
        late: Any = importlib.import_module(name)
        original = late.save.__wrapped__
        for batch in data():
            net.learn(batch)
            torch.save(net.model.state_dict(), tmp_path / "model.pt")
            net.learn(batch)
            late.save(net)
    assert (len(made.events(EventKind.BOUNDARY)), made.samples, len(late.saved)) == (6, PLAIN, 3)
    assert torch.load(tmp_path / "model.pt").keys() == {"weight", "bias"}
    assert late.save is original


def wait(made: Recording, within: int = 0) -> None:
    """A wait for data that the program marks, with so many marked waits within it."""
    tell = made.hooks.tell
    assert tell(lambda loop: loop.wait_begins())
    assert not [True for _ in range(within) if tell(lambda loop: loop.wait_begins())]
    tell(lambda loop: loop.happens(loop.wait_ended, False))


def test_a_marked_wait_within_a_marked_wait_is_part_of_it(tmp_path: Path) -> None:
    net = Net()
    with recording(tmp_path) as made:
        for _ in range(5):
            wait(made, within=1)
            net.learn(OWN)
    assert len(made.samples) == 5


def test_marked_waits_with_nothing_learnt_between_are_no_steps_and_cost_no_later_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_detector, "ADJACENT_NS", 0)
    net = Net()
    with recording(tmp_path) as made:
        for number in range(7):
            wait(made)
            if number >= 2:
                net.learn(OWN)
    # That the waits feed a training is known from the first backward pass behind one.
    assert (made.flagged(StepFlag.OPTIMIZER), figures(made)["boundaries"]) == ([True] * 4, 1)
    assert "1 of 5 optimizer steps" in made.notices[0]


def test_a_marked_wait_after_a_checkpoint_costs_no_marked_step(tmp_path: Path) -> None:
    net = Net()
    with recording(tmp_path) as made:
        tell = made.hooks.tell
        for _ in range(3):
            tell(lambda loop: loop.happens(loop.step_marked))
            net.learn(OWN)
            tell(lambda loop: loop.boundary_begins())
            tell(lambda loop: loop.happens(loop.end_boundary))
            wait(made)
    assert (made.notices, len(made.samples)) == ([], 3)


@pytest.mark.usefixtures("either_path")
def test_forked_children_do_not_write_into_the_recording(tmp_path: Path) -> None:
    net, batches = Net(), iter(data())
    with recording(tmp_path) as made:
        net.learn(next(batches))
        child = os.fork()
        if child == 0:
            # No backward pass: torch refuses it where another thread has run one before the fork.
            for batch in batches:
                net.loss(batch)
                net.optimizer.step()
            os._exit(hasattr(torch.autograd.backward, "__wrapped__"))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        net.learns(batches)
    assert made.samples == PLAIN
