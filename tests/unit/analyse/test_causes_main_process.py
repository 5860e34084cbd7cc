"""A stage behind the loader, in the training's process: told from what else the loop does, and what moving it gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from support.crafted import add_events, amend, evidence, facts_of_run, found, steps_of, train_on_cpu
from support.planted_runs import Making, hosted, pooled, told, trained
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.host_gaps import LEAST_STAGE
from whyidle.analyse.speedup import scattered
from whyidle.record.names import Names
from whyidle.record.reader import Records
from whyidle.record.run import update_run
from whyidle.record.schema import EventKind, StepFlag
from whyidle.scenarios.planted import MS, PlantedWorkers, Step

COMPUTE = 10 * MS


def staged(folder: Path, stage_ms: float, steps: int = 120, **step: Any) -> Path:
    """The loop works on each batch for so long before its model; the device is done with the step before."""
    each = Step(fetch_ns=0, compute_ns=COMPUTE, sync=True, before_ns=round(stage_ms * MS), **step)
    return trained(folder, [[each] * steps])


def staged_on_cpu(folder: Path, stage_ms: float, seen: bool = True) -> Path:
    """Steps of 100 ms on the processor, 10 of them a fetch."""
    train_on_cpu(folder, [{"flags": StepFlag.FORWARD_SEEN * seen, "gap": 0}] * 60)

    def change(steps: Records) -> None:
        steps["forward_begin_ns"] = steps["fetch_end_ns"] + round(stage_ms * MS)

    amend(folder, change)
    return folder


def only(folder: Path) -> Finding:
    findings = found(folder)
    assert set(findings) == {"input.main_process"}
    return findings["input.main_process"]


@pytest.mark.parametrize("share", [0.12, 0.3, 0.6])
def test_a_stage_has_its_share_on_a_device(tmp_path: Path, share: float) -> None:
    finding = only(staged(tmp_path / "run", 10 * share / (1 - share)))
    assert finding.share == pytest.approx(share, abs=0.02)
    assert "before their forward pass, at every step" in finding.title
    taken = evidence(finding)["between a batch's arrival and the forward pass, of a step"]
    assert taken == pytest.approx(10 * share / (1 - share), rel=0.05)
    assert finding.next[0].high == pytest.approx(scattered(800), rel=0.03)


@pytest.mark.parametrize("stage_ms", [8, 30, 60])
def test_a_stage_has_its_share_on_the_processor(tmp_path: Path, stage_ms: int) -> None:
    folder = staged_on_cpu(tmp_path / "run", stage_ms)
    finding = found(folder)["input.main_process"]
    assert finding.share == pytest.approx(stage_ms / 100, abs=0.01)
    assert "host.step_gap" not in found(folder)


def test_a_stage_behind_the_device_costs_nothing(tmp_path: Path) -> None:
    each = Step(fetch_ns=0, compute_ns=COMPUTE, before_ns=8 * MS)
    folder = trained(tmp_path / "run", [[each] * 120])
    assert facts_of_run(folder).staging is None
    assert found(folder) == {}


def test_where_the_model_s_call_is_not_seen_nothing_is_claimed(tmp_path: Path) -> None:
    folder = staged_on_cpu(tmp_path / "run", 30, seen=False)
    assert facts_of_run(folder).staging is None
    assert "input.main_process" not in found(folder)


def test_what_is_short_is_the_loop_s_own_bookkeeping(tmp_path: Path) -> None:
    """As `zero_grad` and a scheduler are: beside other work of the loop it is part of that."""
    folder = staged(tmp_path / "run", 0.9 * LEAST_STAGE * 13.0, host_ns=2 * MS)
    assert set(found(folder)) == {"host.step_gap"}
    host_ns = facts_of_run(folder).parts.host_ns
    assert found(folder)["host.step_gap"].share == pytest.approx(host_ns / facts_of_run(folder).parts.wall_ns)


def test_logging_behind_the_optimizer_keeps_its_own_time(tmp_path: Path) -> None:
    findings = found(staged(tmp_path / "run", 6, host_ns=4 * MS))
    assert {cause: each.share for cause, each in findings.items()} == {
        "input.main_process": pytest.approx(0.3, abs=0.01),
        "host.step_gap": pytest.approx(0.2, abs=0.01),
    }
    where = [what for what in evidence(findings["host.step_gap"]) if what.startswith("host time")]
    assert not any("between the fetch and the computation" in what for what in where)


def test_collections_within_a_stage_are_collections(tmp_path: Path) -> None:
    folder = staged(tmp_path / "run", 10)
    ends = steps_of(folder)["fetch_end_ns"].tolist()
    add_events(folder, [(end + MS, EventKind.GARBAGE, 2, end + 6 * MS) for end in ends])
    findings = found(folder)
    assert findings["host.gc"].share == pytest.approx(0.25, abs=0.01)
    assert findings["input.main_process"].share == pytest.approx(0.25, abs=0.01)


def test_a_breakpoint_there_is_no_stage(tmp_path: Path) -> None:
    plan = [Step(fetch_ns=0, sync=True, before_ns=3000 * MS if n == 60 else 0) for n in range(120)]
    finding = found(trained(tmp_path / "run", [plan]))
    assert set(finding) == {"host.step_gap"}
    assert "stood still once, for 3.0 s in step 60" in finding["host.step_gap"].title


def test_a_phase_of_the_program_is_named(tmp_path: Path) -> None:
    folder = staged(tmp_path / "run", 10)
    number = Names(folder).number("tokenise")
    ends = steps_of(folder)["fetch_end_ns"].tolist()
    add_events(folder, [(end, EventKind.PHASE, number, end + 8 * MS) for end in ends])
    shown = {what: value for what, value in evidence(only(folder)).items() if "tokenise" in what}
    assert list(shown.values()) == [pytest.approx(40, abs=1)]


@pytest.mark.parametrize(
    ("workers", "words"),
    [(0, "with num_workers=1 or more"), (1, "in the worker:"), (3, "in the 3 workers:"), (None, "a DataLoader with")],
)
def test_where_to_put_it_depends_on_the_loader(tmp_path: Path, workers: int | None, words: str) -> None:
    folder = staged(tmp_path / "run", 10)
    if workers is not None:
        told(folder, workers, 2 if workers else None, 0)
    assert words in only(folder).next[0].change


def test_no_more_is_promised_than_workers_and_cpus_can_give(tmp_path: Path) -> None:
    """Two workers that make a batch in 4 ms; the stage takes 30 beside 10 of computing."""

    def first_change(budget: float, used: float, kind: str = "emulated") -> Any:
        folder = tmp_path / f"{budget}-{used}-{kind}"
        each = Step(fetch_ns=4 * MS, compute_ns=COMPUTE, sync=True, before_ns=30 * MS)
        pooled(folder, [[each] * 120], PlantedWorkers(2, 2), Making())
        hosted(folder, used, budget)
        update_run(folder, {"device": {"kind": kind}})
        return found(folder)["input.main_process"].next[0]

    plenty = first_change(8, 1.0)
    assert plenty.predicted_samples_per_s == pytest.approx(2 * 8 / 0.034, rel=0.02)
    assert plenty.high == pytest.approx(1.2 * plenty.predicted_samples_per_s, rel=0.01)
    assert plenty.low < plenty.predicted_samples_per_s
    one = first_change(1, 0.2)
    assert one.predicted_samples_per_s == pytest.approx(8 / 0.034, rel=0.02)
    full = first_change(2, 2.0)
    assert (plenty.kind, one.kind, full.kind) == ("in_workers", "in_workers", "cheaper")
