"""Parts of the steps that grow as a run goes on: what counts as growth, what it cost, and what is something else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from support.crafted import add, analysis_of_run, evidence, facts_of_run, found
from support.planted_runs import Making, elements, hosted, pooled
from whyidle.analyse.causes.claim import Claim
from whyidle.analyse.causes.run import slowing
from whyidle.analyse.run.stall_breakdown import TOTAL, UNTOLD
from whyidle.analyse.run.trends import FALLS, FLAT, GROWS, JUMPS, RISES, Trend
from whyidle.analyse.statistics import Estimate
from whyidle.analyse.where.own_loop import MAKING, OwnLoop
from whyidle.analyse.where.places import Where
from whyidle.record.run import update_run
from whyidle.record.schema import HOST
from whyidle.scenarios.planted import MS, START, PlantedWorkers, Step, train

STEPS = 200


def worked(ms: Callable[[int], float], steps: int = STEPS) -> list[Step]:
    """Steps whose loop works for so long once the device is done."""
    return [Step(sync=True, host_ns=round(ms(n) * MS)) for n in range(steps)]


def trends_of(folder: Path) -> dict[str, Trend]:
    return {each.part: each for each in facts_of_run(folder).trends}


def trends(folder: Path, *epochs: Sequence[Step]) -> dict[str, Trend]:
    train(folder, epochs)
    return trends_of(folder)


def looked(folder: Path, busy: Callable[[int], float], queued: Callable[[int], float] | None = None) -> None:
    """Looks at a host of 4 CPUs, one of which is the job's; `busy`: CPU in use on the machine at each, in percent;
    `queued`: share of the time before each in which the training's thread waited for a CPU."""
    update_run(folder, {"host": {"cpus": 4}})
    times = range(START, facts_of_run(folder).window.end_ns, 20 * MS)
    rows, waited = [], 0.0
    for n, t in enumerate(times):
        at = n * 100 // len(times)
        rows.append({"t_ns": t, "machine_busy_pct": busy(at), "tree_cpu_ns": t - START})
        if queued is not None:
            waited += 20 * MS * queued(at)
            rows[-1]["main_thread_queue_ns"] = round(waited)
    add(folder, HOST, rows)


def test_what_grows_is_told_with_how_fast_from_when_and_what_it_cost(tmp_path: Path) -> None:
    known = trends(tmp_path / "run", worked(lambda n: max(0, n - 60) * 0.1))
    host, whole = known["host"], known[TOTAL]
    assert (host.shape, whole.shape, known["compute"].shape, known["input"].shape) == (GROWS, GROWS, FLAT, FLAT)
    assert host.slope.value == pytest.approx(100, rel=0.25)
    assert host.since == pytest.approx(60, abs=12)
    assert host.first_ms == pytest.approx(0, abs=0.1)
    assert host.last_ms == pytest.approx(12, abs=0.5)
    assert host.grown is not None
    assert host.grown.value == pytest.approx(sum(range(140)) * 0.1 * MS, rel=0.1)


NOISE = np.random.default_rng(3).exponential(4.0, STEPS)
NO_GROWTH = {FLAT, FALLS}


@pytest.mark.parametrize(
    ("part", "shapes", "slope", "epochs"),
    [
        # At every tenth step, through noise, and from epoch to epoch.
        ("host", {GROWS}, pytest.approx(30, rel=0.1), [worked(lambda n: n * 0.3 if n % 10 == 9 else 0)]),
        ("host", {GROWS}, pytest.approx(100, rel=0.5), [worked(lambda n: NOISE[n] + n * 0.1)]),
        ("host", {GROWS}, pytest.approx(100, rel=0.5), [worked(lambda n, e=e: 7 * e + n * 0.1, 70) for e in range(3)]),  # type: ignore[misc]
        ("host", {FALLS}, pytest.approx(-100, rel=0.1), [worked(lambda n: 20 - n * 0.1)]),
        (TOTAL, {FALLS}, pytest.approx(-100, rel=0.1), [worked(lambda n: 20 - n * 0.1)]),
        # Even, noise, at every tenth step, rare, in waves.
        (TOTAL, NO_GROWTH, None, [worked(lambda n: 0)]),
        ("host", NO_GROWTH, None, [worked(lambda n: NOISE[n])]),
        ("host", NO_GROWTH, None, [worked(lambda n: 30 if n % 10 == 9 else 0)]),
        ("host", NO_GROWTH, None, [worked(lambda n: 200 if n in (150, 170, 190) else 0)]),
        ("host", NO_GROWTH, None, [worked(lambda n: 5 * np.sin(n / 20) + 5)]),
        # Epochs that are sorted in themselves, and epochs of different kinds.
        ("host", {*NO_GROWTH, RISES}, None, [worked(lambda n: n * 0.2, 100)] * 3),
        ("compute", {*NO_GROWTH, RISES}, None, [[Step(sync=True, compute_ns=ms * MS)] * 60 for ms in (10, 14, 20)]),
    ],
)
def test_what_rises_all_along_grows_and_nothing_else_does(
    tmp_path: Path, part: str, shapes: set[str], slope: object, epochs: list[list[Step]]
) -> None:
    seen = trends(tmp_path / "run", *epochs)[part]
    assert seen.shape in shapes
    assert (seen.grown is not None) == ("run.slowing" in found(tmp_path / "run")) == (shapes == {GROWS})
    assert slope is None or seen.slope.value == slope


def test_larger_batches_explain_why_steps_take_longer(tmp_path: Path) -> None:
    train(tmp_path / "run", [[Step(sync=True, compute_ns=(100 + n) * MS // 10) for n in range(STEPS)]])
    elements(tmp_path / "run", 1000 + 10 * np.arange(STEPS), 0)
    compute = trends_of(tmp_path / "run")["compute"]
    assert (compute.shape, compute.grown, compute.why) == (RISES, None, "as batches get larger")


@pytest.mark.parametrize(
    ("busy", "queued", "why"),
    [
        (lambda n: 25 + 0.75 * n, None, "as other programs take more CPU time"),
        # On a machine that was full before, further programs take turns, and no more of its CPUs.
        (lambda _: 98.0, lambda n: n / 200, "as the training waits longer for a CPU"),
        (lambda _: 98.0, lambda _: 0.3, ""),
    ],
)
def test_other_programs_explain_growth_where_more_is_taken_than_at_the_beginning(
    tmp_path: Path, busy: Callable[[int], float], queued: Callable[[int], float] | None, why: str
) -> None:
    train(tmp_path / "run", [worked(lambda n: n * 0.1)])
    looked(tmp_path / "run", busy, queued)
    host = trends_of(tmp_path / "run")["host"]
    assert (host.shape, host.why) == (RISES if why else GROWS, why)
    assert ("run.slowing" in found(tmp_path / "run")) == (why == "")


def test_a_jump_is_growth_only_where_nothing_else_can_be_why(tmp_path: Path) -> None:
    plan = worked(lambda n: 8.0 if n >= 120 else 0)
    assert trends(tmp_path / "unwatched", plan)["host"].why == "in a jump, beside programs that were not seen"
    train(tmp_path / "watched", [plan])
    looked(tmp_path / "watched", lambda _: 26.0)
    host = trends_of(tmp_path / "watched")["host"]
    assert (host.shape, host.since) == (JUMPS, pytest.approx(120, abs=10))
    assert found(tmp_path / "watched")["run.slowing"].share == pytest.approx(8 * 80 / (11 * 200 + 8 * 80), abs=0.02)
    train(tmp_path / "epochs", [plan[:120], plan[120:]])
    looked(tmp_path / "epochs", lambda _: 26.0)
    host = trends_of(tmp_path / "epochs")["host"]
    assert (host.shape, host.why) == (RISES, "at the start of an epoch")


def test_a_queue_that_runs_empty_is_no_growth(tmp_path: Path) -> None:
    """Workers that are a little too slow, and forty batches ready when the training begins."""
    plan = [Step(fetch_ns=(1 if n < 40 else 30) * MS, sync=True) for n in range(STEPS)]
    pooled(tmp_path / "run", [plan], PlantedWorkers(2, 20), Making())
    rising = trends_of(tmp_path / "run")["input"]
    assert rising.grown is None
    assert "run.slowing" not in found(tmp_path / "run")


def test_batches_that_take_longer_and_longer_to_make_are_growth(tmp_path: Path) -> None:
    plan = [Step(fetch_ns=(20 + n // 2) * MS, sync=True) for n in range(STEPS)]
    pooled(tmp_path / "run", [plan], PlantedWorkers(2, 2), Making())
    finding = found(tmp_path / "run")["run.slowing"]
    assert "waiting for data grows" in finding.title
    assert "sampler" in finding.next[0].change


@pytest.mark.parametrize("share", [0.13, 0.3, 0.6])
def test_growth_leads_with_what_the_run_would_be_at_its_first_pace(tmp_path: Path, share: float) -> None:
    step_ms = 11.0
    most = 2 * step_ms * share / (1 - share)
    train(tmp_path / "run", [worked(lambda n: most * n / STEPS)])
    analysis = analysis_of_run(tmp_path / "run")
    assert analysis.verdict.cause == "run.slowing"
    assert analysis.verdict.share == pytest.approx(share, abs=0.04)
    first = analysis.verdict.next[0]
    pace = 8e3 / step_ms
    # Of what grew as much is gone as is expected; all of it may be.
    assert first.predicted_samples_per_s == pytest.approx(pace * (1 - share) / (1 - 0.9 * share), rel=0.12)
    assert first.low is not None
    assert first.high is not None
    assert first.low <= first.predicted_samples_per_s <= first.high
    assert first.low < pace <= 1.05 * first.high
    assert evidence(analysis.verdict)["Growth of the loop's own work in 1,000 steps"] == pytest.approx(
        1e3 * most / STEPS, rel=0.05
    )


def test_growth_in_a_loop_that_its_stack_tells_apart_is_of_the_work_that_grows(tmp_path: Path) -> None:
    host = trends(tmp_path / "run", worked(lambda n: n * 0.1))["host"]
    assert host.grown is not None
    line = Where("/home/u/train.py", 32, "sample", "x = memory[i]", 0.9, 36)
    loop = OwnLoop(40, {MAKING: Estimate(0.6, 0.5, 0.7)}, {MAKING: (line,)}, MAKING)
    facts = dataclasses.replace(facts_of_run(tmp_path / "run"), trends=(dataclasses.replace(host, part=UNTOLD),))
    for known, where, of in ((loop, (line,), MAKING), (None, (), "the whole step")):
        finding = slowing(Claim(dataclasses.replace(facts, own_loop=known), host.grown.value, "run.slowing"))
        assert finding is not None
        assert finding.where == where
        assert f"Growth as a share of {of}" in evidence(finding)


def test_no_time_is_explained_by_growth_and_by_another_cause(tmp_path: Path) -> None:
    plan = [Step(fetch_ns=(5 + n // 10) * MS, sync=True, host_ns=(5 + n // 20) * MS) for n in range(STEPS)]
    train(tmp_path / "run", [plan])
    facts = facts_of_run(tmp_path / "run")
    idle = 1 - facts.parts.share("compute")
    shares = {cause: finding.share for cause, finding in found(tmp_path / "run").items()}
    assert {"run.slowing", "host.step_gap", "input.serial"} <= set(shares)
    assert sum(shares.values()) <= idle + 1e-9


def test_what_grows_outside_the_steps_is_told_by_its_stretches(tmp_path: Path) -> None:
    epochs = [[*[Step(sync=True)] * 19, Step(sync=True, boundary_ns=(20 + 10 * e) * MS)] for e in range(12)]
    boundary = trends(tmp_path / "run", *epochs)["boundary"]
    assert boundary.shape == GROWS
    assert "time outside the steps" in found(tmp_path / "run")["run.slowing"].title


def test_memory_that_grows_too_is_part_of_the_advice(tmp_path: Path) -> None:
    train(tmp_path / "run", [worked(lambda n: n * 0.1)])
    hosted(tmp_path / "run", 1.0, 4)
    window = facts_of_run(tmp_path / "run").window
    times = range(START, window.end_ns, 20 * MS)
    add(tmp_path / "run", HOST, [{"t_ns": t, "tree_pss_bytes": 10**9 + 10**6 * n} for n, t in enumerate(times)])
    assert "memory grows too" in found(tmp_path / "run")["run.slowing"].next[0].change
