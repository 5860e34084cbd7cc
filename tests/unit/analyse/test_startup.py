"""The time before a training's first step: each instant in one stage, and what of it could be spared."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.crafted import add_events, amend, analysis_of_run, facts_of_run, found
from support.planted_runs import Making, pooled
from whyidle.analyse.intervals import intersect
from whyidle.analyse.run import startup as before
from whyidle.record.run import update_run
from whyidle.record.schema import NOT_MEASURED, EventKind
from whyidle.report.contract import run as contract
from whyidle.report.contract.encode import builtins
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

S = 1000 * MS


def started(folder: Path, before_s: float, imports_s: float, *events: tuple[int, int, int, int]) -> Path:
    """A training whose process began so long before its first fetch, and imported so long at first."""
    train(folder, [[Step(fetch_ns=2 * MS)] * 100])
    begin = START - round(before_s * S)
    imported = (begin + MS, EventKind.IMPORT, NOT_MEASURED, begin + round(imports_s * S))
    at = {EventKind.PROCESS_BEGIN: begin, EventKind.IMPORTS_TIMED: START + 20 * MS}
    known = [(t_ns, kind, NOT_MEASURED, NOT_MEASURED) for kind, t_ns in at.items()]
    add_events(folder, [*known, *([imported] if imports_s else []), *events])
    return folder


def startup(folder: Path) -> before.Startup:
    known = facts_of_run(folder).startup
    assert known is not None
    return known


def test_every_instant_before_the_first_step_is_in_one_stage(tmp_path: Path) -> None:
    events = (
        (START - 3 * S, EventKind.COMPILE, NOT_MEASURED, START - 2 * S),
        (START - 2 * S, EventKind.BOUNDARY, NOT_MEASURED, START - S),
        (START - 2 * S, EventKind.EVALUATION, S // 10, START - S),
    )
    known = startup(started(tmp_path / "run", 10, 4, *events))
    assert sum(known.ns(stage) for stage in before.STAGES) == known.total_ns
    stretches = [known.stretches[stage] for stage in before.STAGES]
    assert all(len(intersect(a, b)) == 0 for n, a in enumerate(stretches) for b in stretches[:n])
    seconds = {stage: known.ns(stage) / S for stage in before.STAGES}
    assert seconds[before.IMPORTS] == pytest.approx(4)
    assert seconds[before.SET_UP] == pytest.approx(4, abs=0.01)
    assert seconds[before.COMPILING] == seconds[before.EVALUATING] == pytest.approx(1)
    assert seconds[before.FIRST_FETCH] == pytest.approx(0.002)
    assert seconds[before.FIRST_STEP] < 0.02
    assert known.whole


@pytest.mark.parametrize(
    ("before_s", "imports_s"), [(20, 19.5), (2.5, 0), (0.5, 0.2)], ids=["imports", "a few seconds", "short"]
)
def test_imports_and_short_set_ups_are_shown_and_no_finding(tmp_path: Path, before_s: float, imports_s: float) -> None:
    folder = started(tmp_path / "run", before_s, imports_s)
    assert "run.startup" not in found(folder)
    assert startup(folder).total_ns == pytest.approx(before_s * S, rel=0.05)


def test_half_a_minute_of_a_long_run_is_worth_a_word_and_not_the_verdict(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, 40, 5, (START + 3600 * S, EventKind.TRAINING_END, NOT_MEASURED, NOT_MEASURED))
    analysis = analysis_of_run(folder)
    assert (analysis.findings[0].cause, analysis.findings[0].severity) == ("run.startup", "minor")
    assert analysis.verdict.cause == "none"


@pytest.mark.parametrize(
    ("spent_fetching", "first_batch", "stage"),
    [(0.99, 250, before.SKIPPING), (0.99, 0, before.EVALUATING), (0.3, 250, before.EVALUATING)],
)
def test_batches_that_are_fetched_and_not_trained_on_are_told_and_validation_is_no_fault(
    tmp_path: Path, spent_fetching: float, first_batch: int, stage: str
) -> None:
    """Five seconds over the loader before its first step, so much of it in fetches."""
    plan = [Step(fetch_ns=2 * MS)] * 100
    pooled(tmp_path / "run", [plan], PlantedWorkers(2, 2), Making())

    def later(steps: object) -> None:
        steps["batch"] += first_batch  # type: ignore[index]

    amend(tmp_path / "run", later)
    begin = START - 5 * S
    passed = (begin, EventKind.EVALUATION, round(5 * S * spent_fetching), START)
    kinds = {EventKind.TRAINING_BEGIN: NOT_MEASURED, EventKind.BOUNDARY: START}
    add_events(tmp_path / "run", [*((begin, kind, NOT_MEASURED, end) for kind, end in kinds.items()), passed])
    titles = {cause: finding.title for cause, finding in found(tmp_path / "run").items()}
    assert ("250 of them" in titles.get("run.startup", "")) == ("run.startup" in titles) == (stage == before.SKIPPING)
    assert startup(tmp_path / "run").ns(stage) == pytest.approx(5 * S)


def test_of_the_first_fetch_what_making_its_batch_takes_longer_is_the_programs_own(tmp_path: Path) -> None:
    plan = [Step(fetch_ns=(8000 if n == 0 else 5) * MS) for n in range(100)]
    pooled(tmp_path / "making", [plan], PlantedWorkers(1, 2), Making())
    assert "the first batch" in found(tmp_path / "making")["run.startup"].title
    plan = [Step(fetch_ns=5 * MS)] * 100
    pooled(tmp_path / "starting", [plan], PlantedWorkers(1, 2, start_ns=8 * S), Making())
    assert "run.startup" not in found(tmp_path / "starting")
    assert startup(tmp_path / "starting").ns(before.FIRST_FETCH) >= 8 * S


def test_set_up_that_may_be_imports_is_no_finding(tmp_path: Path) -> None:
    """An optimizer imports for seconds when the first is made, and recordings of before told nothing of it."""
    train(tmp_path / "run", [[Step(fetch_ns=2 * MS)] * 100])
    update_run(tmp_path / "run", {"trial": None})
    add_events(tmp_path / "run", [(START - 5 * S, EventKind.TRAINING_BEGIN, NOT_MEASURED, NOT_MEASURED)])
    assert startup(tmp_path / "run").ns(before.SET_UP) == pytest.approx(5 * S)
    assert "run.startup" not in found(tmp_path / "run")


def test_of_a_recording_that_began_late_nothing_is_said_of_what_came_before(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=2 * MS)] * 100])
    known = startup(tmp_path / "run")
    assert not known.whole
    assert known.begin_ns == START
    assert builtins(contract.report(analysis_of_run(tmp_path / "run")))["startup"]["imports_s"] is None
