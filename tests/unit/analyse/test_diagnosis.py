"""Verdicts on planted causes, on the virtual clock, and when there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.crafted import add_events, evidence, facts_of_run, train_on_cpu, verdict_of_run
from support.planted_runs import Making, hosted, serial
from support.rendered import rendered
from whyidle.analyse.causes.diagnosis import verdict_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.analyse.statistics import Estimate
from whyidle.analyse.where.own_loop import COMPUTING, EVALUATING, MAKING, OTHER, OwnLoop
from whyidle.analyse.where.places import Where
from whyidle.devices.emulated import EmulatedEvent
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import NOT_MEASURED, EventKind, LoaderFlag
from whyidle.report.contract import run as contract
from whyidle.report.documents.run import run_document
from whyidle.scenarios.planted import MS, START, Step, train


@pytest.mark.parametrize(
    ("steps", "ended", "words"),
    [
        (20, None, "No verdict: 19 steps"),
        (0, None, "No verdict: no training step was recorded."),
        # Only a run that still trains is told to train longer.
        (8, None, "Train longer"),
        (8, {"status": "ok"}, "Record a longer run"),
    ],
)
def test_too_few_steps_are_no_verdict_and_say_so(tmp_path: Path, steps: int, ended: object, words: str) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=50 * MS)] * steps] if steps else [])
    update_run(tmp_path / "run", {"ended": ended})
    found = verdict_of_run(tmp_path / "run")
    assert found.cause is None
    assert found.title.startswith("No verdict: ")
    assert words in found.title
    assert ("Train longer" in found.title) == (bool(steps) and ended is None)


def test_without_the_devices_stamps_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The device answers about the first ten steps, then nothing comes back any more.
    answers = EmulatedEvent.done
    monkeypatch.setattr(EmulatedEvent, "done", lambda e: e.at_ns < START + 100 * MS and answers(e))
    train(tmp_path / "run", [[Step(fetch_ns=MS, compute_ns=10 * MS)] * 60])
    analysis = analyse(open_run(tmp_path / "run"))
    assert (analysis.verdict.cause, analysis.findings) == (None, ())
    assert any("had not finished the last 5" in note for note in analysis.notes)
    # Not one stamp: nothing is known, and nothing is claimed.
    monkeypatch.setattr(EmulatedEvent, "done", lambda e: False)
    for steps, said in ((60, "60 steps were recorded"), (1, "1 step was recorded")):
        train(tmp_path / str(steps), [[Step(fetch_ns=MS, compute_ns=10 * MS)] * steps])
        silent = analyse(open_run(tmp_path / str(steps)))
        assert silent.facts is None
        assert said in silent.verdict.title
        assert contract.report(silent)["breakdown"]["compute_pct"] is None


LINE = Where("/home/me/train.py", 31, "train", "log(loss)", 0.6, 40)


@pytest.mark.parametrize(
    ("shares", "cause"),
    [
        ({"compute": 0.91, "input": 0.045, "host": 0.045}, "none"),
        ({"compute": 0.87, "input": 0.045, "host": 0.045, "boundary": 0.04}, None),
    ],
)
def test_nothing_is_worth_changing_only_where_the_time_has_a_name(
    tmp_path: Path, shares: dict[str, float], cause: str | None
) -> None:
    train(tmp_path / "run", [[Step()] * 60])
    facts = facts_of_run(tmp_path / "run")
    lengths = {f"{part}_ns": round(shares.get(part, 0.0) * facts.parts.wall_ns) for part in PARTS}
    found = verdict_of(replace(facts, parts=replace(facts.parts, **lengths), unnamed=(LINE,)), ())
    assert (found.cause, found.severity) == (cause, "none")
    if cause is None:
        assert found.title.startswith("No verdict: 13 % of the time has no name")
        assert "train.py:31" in found.title
        assert (found.where, evidence(found)["Outside the steps"]) == ((LINE,), pytest.approx(4, abs=0.01))


def test_what_the_stack_of_a_loop_without_a_loader_does_not_tell_has_no_name(tmp_path: Path) -> None:
    train_on_cpu(tmp_path / "run", [{"end": 100}] * 60)
    facts = replace(facts_of_run(tmp_path / "run"), unfed_share=1.0, unnamed=(LINE,))
    for other, cause in ((0.08, "none"), (0.4, None)):
        shares = {COMPUTING: 1 - other, MAKING: 0.0, EVALUATING: 0.0, OTHER: other}
        loop = OwnLoop(200, {kind: Estimate(share, share, share) for kind, share in shares.items()}, {OTHER: (LINE,)})
        found = verdict_of(replace(facts, own_loop=loop), ())
        assert found.cause == cause
        assert ("40 % of the time has no name" in found.title and "train.py:31" in found.title) == (cause is None)


@pytest.mark.parametrize(
    ("share", "gain", "severity"),
    [(0.04, 1 / 24, "none"), (1 / 21, 0.05, "minor"), (1 / 11, 0.1, "major"), (0.23, 23 / 77, "major")]
    + [(0.3, 3 / 7, "critical"), (0.5, 1.0, "critical")],
)
def test_what_vanishes_leaves_the_rest_of_the_time_for_all_the_samples(
    share: float, gain: float, severity: str
) -> None:
    # Beside the boundary, which floats do not meet.
    finding = Finding("input.serial", "", share + 1e-12, 1.0)
    assert finding.gain == pytest.approx(gain)
    assert finding.severity == severity


def made(worker: int, begin: int, end: int, **told: int) -> Any:
    """What a loader says of a batch, a tenth of which it read."""
    wall = end - begin
    stages = {"read_ns": wall // 10, "decode_ns": wall * 8 // 10, "transform_ns": wall // 20, "collate_ns": wall // 20}
    usual = {"cpu_ns": wall * 9 // 10, "minor_faults": None, "read_bytes": 1000, "threads": 1}
    return SimpleNamespace(worker=worker, begin_ns=begin, end_ns=end, **(stages | usual | told))


QUEUE = SimpleNamespace(capacity=4, ready=lambda: 0)


@pytest.mark.parametrize("inner", [0, 2])
def test_no_workers_are_advised_around_a_data_set_with_workers_of_its_own(tmp_path: Path, inner: int) -> None:
    folder = serial(tmp_path / "run", 100, 20, Making(read=0.8, cpu=0.1))
    add_events(
        folder,
        [(START, EventKind.LOADER_FLAGS, LoaderFlag.OWN_WORKERS + inner * LoaderFlag.INNER_WORKER, NOT_MEASURED)],
    )
    hosted(folder, 1.0, 4)
    run = analyse(open_run(folder))
    found = run.verdict
    assert (found.cause, found.severity) == ("input.serial", "critical")
    assert "in workers of its own" in found.title
    assert "one after the other" not in found.title
    shown = {each.what: each for each in found.evidence}
    assert (shown["num_workers"].value, shown["num_workers"].expected) == (0, "")
    assert shown["Workers of the dataset's own"].value == (inner or None)
    (change,) = found.next
    assert ("`num_workers` above 2" in change.change) == bool(inner)
    assert "keep `num_workers=0`" in change.change
    assert change.settings == {}
    assert change.speedup is not None
    assert change.speedup.to_try
    text = rendered(run_document(run), 120)
    assert "waiting for reads of files" not in text
    assert "waiting for its own workers" in text


def test_a_batch_that_is_finished_before_the_one_that_is_due_is_not_on_its_way(tmp_path: Path) -> None:
    """Every other batch is slow; the next one is finished long before it, and handed over at once."""

    def trace(step: int, begin: int, end: int) -> Any:
        return made(step % 2, end - 40 * MS, end if step % 2 else begin - 30 * MS)

    plan = [Step(fetch_ns=(30 if number % 2 else 1) * MS) for number in range(100)]
    train(tmp_path / "run", [plan], trace=trace, queue=QUEUE)
    facts = facts_of_run(tmp_path / "run")
    assert facts.handoff_pct < 10


def test_epochs_of_equally_slow_batches_are_no_pipeline_fill(tmp_path: Path) -> None:
    """Half of all fetches are first ones here, and no slower than the others."""
    epochs = [[Step(fetch_ns=50 * MS)] * 2] * 30
    train(tmp_path / "run", epochs, trace=lambda n, _, end: made(n % 2, end - 95 * MS, end), queue=QUEUE)
    hosted(tmp_path / "run", 2.0, 8)
    assert verdict_of_run(tmp_path / "run").cause == "input.too_few_workers"


def test_a_pool_of_threads_counts_its_threads(tmp_path: Path) -> None:
    def trace(_step: int, _begin: int, end: int) -> Any:
        # Four threads: the batch is under way for 60 ms, in which its samples take 76 ms of work in all.
        return made(0, end - 60 * MS, end, decode_ns=76 * MS, threads=4)

    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100], trace=trace, queue=QUEUE)
    loader = facts_of_run(tmp_path / "run").loader
    assert loader.workers == 4
    assert loader.samples_per_s_limit == pytest.approx(4 * 8 / 0.088, rel=0.01)
