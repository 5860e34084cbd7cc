"""Which steps the hooks look at, and that thinning loses neither steps nor samples nor the proportions."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from support.hooked import Net, SomePass, data, recording
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.capture.steps import ALWAYS, BURST, MOST_COST, MOST_SKIPPED, Thinning
from whyidle.record.run import open_run
from whyidle.record.schema import EVENT, STEP, EventKind
from whyidle.scenarios.planted import MS, Step, train

RUN_AHEAD = 17
"""Steps of 60 kernels that the launch queue holds."""


class Costly(Thinning):
    """As if the hooks took a tenth of a millisecond: on a virtual clock they take nothing."""

    def looked(self, step_ns: int, cost_ns: int) -> None:
        super().looked(step_ns, 100_000)


def looks(steps: int, step_ns: int, cost_ns: int, seed: int = 1) -> list[bool]:
    thinning = Thinning(seed)
    seen = [True] * thinning.first()
    for _ in seen:
        thinning.looked(step_ns, cost_ns)
    while len(seen) < steps:
        look, skip = thinning.plan(False, 0)
        seen += [True] * look + [False] * skip
        for _ in range(look):
            thinning.looked(step_ns, cost_ns)
    return seen


def test_cheap_hooks_are_never_thinned() -> None:
    assert all(looks(1000, MS, round(0.9 * MOST_COST * MS)))


def test_long_steps_are_never_thinned_whatever_the_hooks_cost(tmp_path: Path) -> None:
    class Dear(Thinning):
        def looked(self, step_ns: int, cost_ns: int) -> None:
            super().looked(step_ns, step_ns)

    train(tmp_path / "run", [[Step(fetch_ns=2 * MS, compute_ns=MS)] * 300], thinning=Dear(1))
    assert len(open_run(tmp_path / "run").records(STEP)) == 300


@pytest.mark.parametrize("step_ns", [50_000, 200_000, 1_000_000, 1_900_000])
def test_short_steps_are_looked_at_as_often_as_the_budget_allows(step_ns: int) -> None:
    cost = 20_000
    seen = looks(200_000, step_ns, cost)
    assert all(seen[:ALWAYS])
    share = sum(seen) * cost / (len(seen) * step_ns)
    assert MOST_COST / 1.5 < share < 1.5 * MOST_COST


def test_steps_are_looked_at_in_bursts_and_at_uneven_distances() -> None:
    seen = looks(50_000, 200_000, 15_000)
    # The first burst comes right after the steps that are always looked at.
    runs = "".join("x" if s else "." for s in seen[ALWAYS + BURST :]).split(".")
    assert {len(run) for run in runs if run} == {BURST}
    pauses = {len(p) for p in "".join("x" if s else "." for s in seen).split("x") if p}
    assert len(pauses) > 20
    assert max(pauses) <= MOST_SKIPPED


def test_the_trainings_random_numbers_stay_as_they_are() -> None:
    random.seed(5)
    expected = random.random()
    random.seed(5)
    looks(5_000, 100_000, 15_000)
    assert random.random() == expected


def found(folder: Path) -> Facts:
    facts = facts_of(open_run(folder))
    assert facts is not None
    return facts


@pytest.mark.parametrize("steps", [200, 1_000, 5_000])
def test_a_thinned_recording_counts_every_step_and_every_sample(tmp_path: Path, steps: int) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=MS // 2, compute_ns=MS // 5)] * steps], thinning=Costly(3))
    facts = found(tmp_path / "run")
    assert len(open_run(tmp_path / "run").records(STEP)) < steps
    assert facts.window.count + facts.window.warmup_steps == steps
    assert facts.samples == 8 * facts.window.count
    # Each step lasts what its fetch lasts.
    assert facts.samples_per_s == pytest.approx(8 / 0.0005, rel=0.01)


@given(
    fetch_ns=st.integers(0, MS),
    compute_ns=st.integers(MS // 10, MS),
    copy_bytes=st.sampled_from([0, 1_000_000]),
    host_ns=st.sampled_from([0, MS // 4]),
    epochs=st.integers(1, 3),
    validation_ns=st.sampled_from([0, 40 * MS]),
    seed=st.integers(0, 1000),
)
def test_what_was_not_looked_at_is_taken_to_be_as_the_rest(
    tmp_path_factory: pytest.TempPathFactory,
    fetch_ns: int,
    compute_ns: int,
    copy_bytes: int,
    host_ns: int,
    epochs: int,
    validation_ns: int,
    seed: int,
) -> None:
    """Uniform steps with slow first fetches and validation: the estimate is the truth, and the parts sum."""
    usual = Step(fetch_ns=fetch_ns, compute_ns=compute_ns, copy_bytes=copy_bytes, host_ns=host_ns)
    plan = [Step(**vars(usual) | {"fetch_ns": 30 * MS})] + [usual] * 400
    plan.append(Step(**vars(usual) | {"boundary_ns": validation_ns}))
    run = train(tmp_path_factory.mktemp("thin") / "run", [plan] * epochs, thinning=Costly(seed))
    facts = found(run.folder)
    parts, window = facts.parts, facts.window
    assert parts.unseen_ns > 0
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns
    truth = run.truth(window.begin_ns, window.end_ns)
    # Whether the device still works when a boundary begins is not known where the steps before were left out.
    slack = 0.02 * window.wall_ns + epochs * RUN_AHEAD * compute_ns
    for part in PARTS:
        assert getattr(parts, f"{part}_ns") == pytest.approx(truth[part], abs=slack), (part, truth)


def test_epochs_of_one_step_are_thinned_and_every_step_is_counted(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=MS // 5, compute_ns=MS // 5)]] * 1_000, thinning=Costly(3))
    assert len(open_run(tmp_path / "run").records(STEP)) < 300
    facts = found(tmp_path / "run")
    assert facts.window.count + facts.window.warmup_steps == 1_000


def counted(folder: Path) -> tuple[int, int]:
    """Steps and samples; some of the steps were let pass."""
    run = open_run(folder / "run")
    steps, events = run.records(STEP), run.records(EVENT)
    last = {
        kind: events["value"][events["what"] == kind].sum()
        for kind in (EventKind.SKIPPED_STEPS, EventKind.SKIPPED_SAMPLES)
    }
    passed = steps["skipped"].sum() + last[EventKind.SKIPPED_STEPS]
    assert len(steps) > 0 < passed
    return len(steps) + passed, steps["samples"].sum() + steps["skipped_samples"].sum() + last[
        EventKind.SKIPPED_SAMPLES
    ]


@pytest.mark.parametrize("workers", [0, 1])
def test_steps_that_are_let_pass_are_counted_with_their_samples_to_the_end_of_an_epoch(
    tmp_path: Path, workers: int
) -> None:
    net, loader, held_out = Net(), data(22, 2, num_workers=workers), data(6, 2)
    with recording(tmp_path, thinning=SomePass(2, 5)):
        for _ in range(2):
            net.learns(loader)
            net.evaluate(held_out)
    assert counted(tmp_path) == (22, 44)
    kinds = open_run(tmp_path / "run").records(EVENT)["what"].tolist()
    assert (kinds.count(EventKind.BOUNDARY), kinds.count(EventKind.EPOCH_BEGIN)) == (2, 2)


def test_loaders_that_train_in_turns_keep_a_step_each_when_steps_are_let_pass(tmp_path: Path) -> None:
    net = Net()
    with recording(tmp_path, thinning=SomePass(2, 5)):
        ones, others = iter(data(16, 2)), iter(data(16, 2))
        for _ in range(8):
            net.learn(next(ones))
            net.learn(next(others))
    assert counted(tmp_path) == (16, 32)


def test_an_error_among_steps_that_are_let_pass_reaches_the_training(tmp_path: Path) -> None:
    class Failing(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            if index == 5:
                raise ValueError("theirs")
            return super().__getitem__(index)

    net = Net()
    with recording(tmp_path, thinning=SomePass(2, 5)):
        batches = iter(DataLoader(Failing(torch.ones(9, 3))))
        for _ in range(5):
            net.learn(next(batches))
        with pytest.raises(ValueError, match="theirs"):
            next(batches)
        net.learns(batches)
    assert counted(tmp_path) == (8, 8)
