"""Where the time went, against what the emulated engines really did."""

from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.record.run import open_run
from whyidle.scenarios.planted import MS, Step, train


def facts(folder: Path) -> Facts:
    found = facts_of(open_run(folder))
    assert found is not None
    return found


def test_a_loader_slower_than_the_device_costs_the_difference(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=15 * MS, compute_ns=10 * MS)] * 100])
    parts = facts(tmp_path / "run").parts
    # One step takes 15 ms of fetching, in 10 of which the device still computes the step before.
    assert parts.share("input") == pytest.approx(1 / 3, abs=0.01)
    assert parts.share("compute") == pytest.approx(2 / 3, abs=0.01)


def test_a_wait_behind_queued_work_is_hidden_and_costs_nothing(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=6 * MS, compute_ns=10 * MS)] * 100])
    parts = facts(tmp_path / "run").parts
    assert parts.share("compute") > 0.98
    assert parts.share("input") < 0.01
    # The launch queue holds seventeen steps: while it fills the host fetches, and so it goes on, hidden.
    assert parts.hidden_wait_ns == pytest.approx(95 * 6 * MS, rel=0.05)


def test_exposed_copies_are_copies_and_those_beside_computation_cost_nothing(tmp_path: Path) -> None:
    size = 20_000_000  # 2 ms pinned, 4 ms pageable
    shown = {}
    for name, step in {
        "pageable": Step(copy_bytes=size, pinned=False),
        "serial": Step(copy_bytes=size),
        "ahead": Step(copy_bytes=size, ahead=True),
    }.items():
        train(tmp_path / name, [[step] * 60])
        shown[name] = facts(tmp_path / name).parts
    assert shown["pageable"].share("copy") == pytest.approx(4 / 14, abs=0.01)
    # The host waits in the copy, so the next fetch runs while the device computes: it is hidden.
    assert shown["pageable"].share("input") < 0.01
    assert shown["serial"].share("copy") == pytest.approx(2 / 12, abs=0.01)
    assert shown["ahead"].share("copy") < 0.01


def test_validation_is_boundary_and_neither_host_nor_input(tmp_path: Path) -> None:
    plan = [Step()] * 49 + [Step(boundary_ns=200 * MS)]
    train(tmp_path / "run", [plan, plan])
    parts = facts(tmp_path / "run").parts
    assert parts.boundary_ns == pytest.approx(400 * MS, rel=0.01)
    assert parts.share("host") < 0.001


def test_first_fetches_of_epochs_are_told_apart(tmp_path: Path) -> None:
    epoch = [Step(fetch_ns=400 * MS)] + [Step(fetch_ns=1 * MS)] * 30
    train(tmp_path / "run", [epoch, epoch, epoch])
    parts = facts(tmp_path / "run").parts
    # The first epoch's first fetch is warm-up; each later one waits for 400 ms less the queued work.
    assert 0.9 * parts.input_ns < parts.first_fetch_ns <= parts.input_ns
    assert parts.input_ns > 0
