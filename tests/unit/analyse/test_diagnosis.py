"""Verdicts on planted causes, on the virtual clock, and when there is none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from support.crafted import add_events, evidence, facts_of_run, steps_of, train_on_cpu, verdict_of_run
from whyidle.analyse.causes.diagnosis import verdict_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.stall_breakdown import PARTS
from whyidle.analyse.statistics import Estimate
from whyidle.analyse.where.own_loop import COMPUTING, EVALUATING, MAKING, OTHER, OwnLoop
from whyidle.analyse.where.places import Where
from whyidle.devices.emulated import EmulatedEvent
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import STEP, EventKind
from whyidle.report.contract import run as contract
from whyidle.scenarios.planted import MS, START, Step, train


def test_a_healthy_run_stays_silent(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=2 * MS, compute_ns=10 * MS)] * 100])
    found = verdict_of_run(tmp_path / "run")
    assert (found.cause, found.severity) == ("none", "none")
    assert analyse(open_run(tmp_path / "run")).findings == ()


def test_too_few_steps_are_no_verdict_and_say_so(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=50 * MS)] * 20])
    found = verdict_of_run(tmp_path / "run")
    assert found.cause is None
    assert found.title.startswith("No verdict: 19 steps")


@pytest.mark.parametrize(("ended", "way_out"), [(None, "train longer"), ({"status": "ok"}, "record a longer run")])
def test_only_a_run_that_still_trains_is_told_to_train_longer(tmp_path: Path, ended: object, way_out: str) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=0)] * 8])
    update_run(tmp_path / "run", {"ended": ended})
    title = verdict_of_run(tmp_path / "run").title
    assert [each for each in ("train longer", "record a longer run") if each in title] == [way_out]


def test_a_dozen_steps_advise_without_a_verdict_what_they_would_with_one(tmp_path: Path) -> None:
    step = Step(copy_bytes=20_000_000, pinned=False)
    train(tmp_path / "many", [[step] * 60])
    train(tmp_path / "few", [[step] * 12])
    train(tmp_path / "hardly", [[step] * 9])
    many, few, hardly = (verdict_of_run(tmp_path / name) for name in ("many", "few", "hardly"))
    assert [change.change for change in few.next] == [change.change for change in many.next]
    assert {change.predicted_samples_per_s for change in few.next} == {None}
    assert "What these few show: " in few.title
    assert (few.cause, few.severity, hardly.next) == (None, "none", ())


LINE = Where("/home/me/train.py", 31, "train", "log(loss)", 0.6, 40)


@pytest.mark.parametrize(
    ("shares", "headroom", "cause"),
    [
        ({"compute": 0.91, "input": 0.045, "host": 0.045}, None, "none"),
        ({"compute": 0.87, "input": 0.045, "host": 0.045, "boundary": 0.04}, None, None),
        # An infinitely fast loader was measured to gain nothing.
        ({"compute": 0.87, "input": 0.12, "host": 0.01}, 1.0, "none"),
    ],
)
def test_nothing_is_worth_changing_only_where_the_time_has_a_name(
    tmp_path: Path, shares: dict[str, float], headroom: float | None, cause: str | None
) -> None:
    train(tmp_path / "run", [[Step()] * 60])
    facts = facts_of_run(tmp_path / "run")
    lengths = {f"{part}_ns": round(shares.get(part, 0.0) * facts.parts.wall_ns) for part in PARTS}
    found = verdict_of(replace(facts, parts=replace(facts.parts, **lengths), headroom=headroom, unnamed=(LINE,)), ())
    assert (found.cause, found.severity) == (cause, "none")
    if cause is None:
        assert found.title.startswith("No verdict: 13 % of the time has no name")
        assert "train.py:31" in found.title
        assert (found.where, evidence(found)["outside the steps"]) == ((LINE,), pytest.approx(4, abs=0.01))


def test_what_the_stack_of_a_loop_without_a_loader_does_not_tell_has_no_name(tmp_path: Path) -> None:
    train_on_cpu(tmp_path / "run", [{"end": 100}] * 60)
    facts = replace(facts_of_run(tmp_path / "run"), unfed_share=1.0, unnamed=(LINE,))
    for other, cause in ((0.08, "none"), (0.4, None)):
        shares = {COMPUTING: 1 - other, MAKING: 0.0, EVALUATING: 0.0, OTHER: other}
        loop = OwnLoop(200, {kind: Estimate(share, share, share) for kind, share in shares.items()}, {OTHER: (LINE,)})
        found = verdict_of(replace(facts, own_loop=loop), ())
        assert found.cause == cause
        assert ("40 % of the time has no name" in found.title and "train.py:31" in found.title) == (cause is None)


def test_no_step_at_all_is_no_verdict(tmp_path: Path) -> None:
    train(tmp_path / "run", [])
    assert verdict_of_run(tmp_path / "run").title == "No verdict: no training step was recorded."


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (Step(copy_bytes=20_000_000, pinned=False), "copy.pageable"),
        (Step(copy_bytes=20_000_000, pinned=True), "copy.serial"),
        (Step(host_ns=20 * MS), "host.step_gap"),
    ],
)
def test_other_waits_have_their_own_causes(tmp_path: Path, step: Step, cause: str) -> None:
    train(tmp_path / "run", [[step] * 60])
    assert verdict_of_run(tmp_path / "run").cause == cause


def test_validation_that_takes_long_is_a_boundary(tmp_path: Path) -> None:
    plan = [Step()] * 39 + [Step(boundary_ns=400 * MS)]
    train(tmp_path / "run", [plan] * 2)
    assert verdict_of_run(tmp_path / "run").cause == "host.boundary"


def test_findings_are_ranked_by_gain_and_the_verdict_is_the_first(tmp_path: Path) -> None:
    plan = [Step(copy_bytes=40_000_000, pinned=False, host_ns=0)] * 39 + [Step(boundary_ns=100 * MS)]
    train(tmp_path / "run", [plan] * 2)
    analysis = analyse(open_run(tmp_path / "run"))
    assert [f.cause for f in analysis.findings] == ["copy.pageable", "host.boundary"]
    assert analysis.verdict is analysis.findings[0]
    gains = [f.gain for f in analysis.findings]
    assert gains == sorted(gains, reverse=True)


def test_without_the_devices_stamps_there_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The device answers about the first ten steps, then nothing comes back any more.
    answers = EmulatedEvent.done
    monkeypatch.setattr(EmulatedEvent, "done", lambda e: e.at_ns < START + 100 * MS and answers(e))
    train(tmp_path / "run", [[Step(fetch_ns=MS, compute_ns=10 * MS)] * 60])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.verdict.cause is None
    assert analysis.findings == ()
    assert any("had not finished the last 5" in note for note in analysis.notes)
    # Not one stamp: nothing is known, and nothing is claimed.
    monkeypatch.setattr(EmulatedEvent, "done", lambda e: False)
    train(tmp_path / "silent", [[Step(fetch_ns=MS, compute_ns=10 * MS)] * 60])
    silent = analyse(open_run(tmp_path / "silent"))
    assert silent.facts is None
    assert "60 steps were recorded" in silent.verdict.title
    assert contract.report(silent).breakdown.compute_pct is None


def test_exposed_garbage_collection_is_named(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(host_ns=20 * MS)] * 60])
    ends = steps_of(tmp_path / "run")["step_end_ns"].tolist()
    add_events(tmp_path / "run", [(end - 18 * MS, EventKind.GARBAGE, 0, end) for end in ends])
    assert verdict_of_run(tmp_path / "run").cause == "host.gc"


def test_on_the_processor_no_gain_of_a_faster_loader_is_promised_and_garbage_counts_once(tmp_path: Path) -> None:
    """Loader and training share the CPU: what one gives up the other gets."""
    folder = train_on_cpu(tmp_path / "run", [{"fetch": 60, "gap": 4}] * 60)
    # 10 ms within the fetch, 6 ms within the computation.
    garbage = [
        (begin + low * MS, EventKind.GARBAGE, 0, begin + high * MS)
        for begin in steps_of(folder)["fetch_begin_ns"].tolist()
        for low, high in ((10, 20), (70, 76))
    ]
    add_events(folder, garbage)
    analysis = analyse(open_run(folder))
    facts = analysis.facts
    assert facts is not None
    shares = {part: round(100 * facts.parts.share(part)) for part in ("compute", "input", "copy", "sync", "host")}
    assert shares == {"compute": 30, "input": 60, "copy": 0, "sync": 0, "host": 10}
    promised = {f.cause: [n.predicted_samples_per_s for n in f.next] for f in analysis.findings}
    # 4 of the 10 ms are within the host's own time, and 98, 60 and 95 % of these go.
    collected = [80 / (1 - share * 0.06) for share in (0.98, 0.6, 0.95)]
    assert promised == {"input.serial": [None], "host.gc": [pytest.approx(rate, rel=1e-3) for rate in collected]}
    assert contract.report(analysis).headroom.samples_per_s is None


def test_records_that_were_overwritten_are_left_out_and_said(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(fetch_ns=20 * MS)] * 100])
    (path,) = (tmp_path / "run").glob("step-*.rec")
    whole = path.read_bytes()
    at = 4096 + 50 * STEP.record_bytes + 16
    path.write_bytes(whole[:at] + b"\x5a" * 200 + whole[at + 200 :])
    analysis = analyse(open_run(tmp_path / "run"))
    assert analysis.facts is not None
    assert analysis.facts.samples_per_s == pytest.approx(400, rel=0.05)
    assert any("1 records of steps are damaged" in note for note in analysis.notes)
    path.write_bytes(whole[: 4096 + 60 * STEP.record_bytes + 100])
    assert any("is cut short" in note for note in analyse(open_run(tmp_path / "run")).notes)


def test_a_training_that_did_not_end_well_is_said_first(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step()] * 50])
    update_run(tmp_path / "run", {"ended": {"status": "failed", "error": "ValueError: a broken image"}})
    assert "failed: ValueError: a broken image" in analyse(open_run(tmp_path / "run")).notes[0]


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
