"""Where the time went, against what the emulated engines really did."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from support.crafted import amend
from support.trainings import Training, trainings
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.record.reader import Records
from whyidle.record.run import open_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.scenarios.planted import MS, Step, train


def facts(folder: Path) -> Facts:
    found = facts_of(open_run(folder))
    assert found is not None
    return found


def test_a_wait_behind_queued_work_is_hidden_and_costs_nothing(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=6 * MS, compute_ns=10 * MS)] * 100])
    parts = facts(tmp_path / "run").parts
    # The launch queue holds seventeen steps: while it fills the host fetches, and so it goes on, hidden.
    assert parts.hidden_wait_ns == pytest.approx(95 * 6 * MS, rel=0.05)


def test_first_fetches_of_epochs_are_told_apart(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=400 * MS)] + [Step(fetch_ns=1 * MS)] * 30] * 3)
    parts = facts(tmp_path / "run").parts
    # The first epoch's first fetch is warm-up; each later one waits for 400 ms less the queued work.
    assert 0 < 0.9 * parts.input_ns < parts.first_fetch_ns <= parts.input_ns


@settings(suppress_health_check=[HealthCheck.data_too_large])
@given(training=trainings())
def test_every_part_of_a_random_training_is_what_the_engines_and_the_loop_really_did(
    tmp_path_factory: pytest.TempPathFactory, training: Training
) -> None:
    """The truth shares nothing with the analysis but the order in which causes are blamed."""
    epochs, workers, spec = training
    run = train(tmp_path_factory.mktemp("truth") / "run", epochs, workers=workers, spec=spec)
    found = facts(run.folder)
    parts, window = found.parts, found.window
    assert parts.unresolved_steps == 0
    assert sum(getattr(parts, f"{part}_ns") for part in PARTS) == parts.wall_ns == window.wall_ns
    truth = run.truth(window.begin_ns, window.end_ns)
    assert sum(truth.values()) == window.wall_ns
    for part in PARTS:
        assert getattr(parts, f"{part}_ns") == pytest.approx(truth[part], abs=0.001 * window.wall_ns), (part, parts)
    assert parts.input_ns <= parts.fetch_ns


def test_a_step_before_which_nobody_knows_how_many_were_let_pass_counts_alone(tmp_path: Path) -> None:
    """Such a number is missing where the bytes of a record were overwritten."""
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 60])
    known = facts(tmp_path / "run")

    def forget(steps: Records) -> None:
        steps["skipped"][:9:4] = steps["skipped_samples"][:9:4] = NOT_MEASURED

    amend(tmp_path / "run", forget)
    found = facts(tmp_path / "run")
    assert (found.window.count, found.window.warmup_steps, found.samples) == (57, 3, known.samples)
    assert found.parts == known.parts
