"""A sampler that takes the time: told from what workers do meanwhile, from first batches, and from making them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from support.crafted import add_events, amend, evidence, facts_of_run, found, steps_of
from support.judged_waits import COMPUTING, CPUS, judge, only, pieces, waiting_for_data
from support.planted_runs import Making, serial, told, trained
from whyidle.analyse.run.facts import Facts, Sampling
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.record.reader import Records
from whyidle.record.schema import EventKind
from whyidle.scenarios.planted import MS, Step

Spans = Iterable[tuple[int, int]]


def drew(folder: Path, when: Callable[[Records], Spans], indices: int = 8) -> Path:
    """A sampler worked then."""
    add_events(folder, [(begin, EventKind.SAMPLER, indices, end) for begin, end in when(steps_of(folder))])
    return folder


def epochs_of(folder: Path, first_ms: int) -> Path:
    """Five epochs, whose first fetches take so long; the loss is read at each step, so that nothing hides them."""
    plan = [Step(fetch_ns=(first_ms if n == 0 else 0) * MS, sync=True) for n in range(20)]
    return trained(folder, [plan] * 5)


def fetches(steps: Records) -> list[tuple[int, int]]:
    return list(zip(steps["fetch_begin_ns"].tolist(), steps["fetch_end_ns"].tolist(), strict=True))


@pytest.mark.parametrize("drawn_ms", [8, 15, 25])
def test_what_the_training_waits_for_its_sampler_is_that_and_no_more(tmp_path: Path, drawn_ms: int) -> None:
    """Of fetches of 30 ms that follow computations of 10, the sampler takes the end."""
    folder = trained(tmp_path / "run", [[Step(fetch_ns=30 * MS)] * 100])
    drew(folder, lambda steps: ((end - drawn_ms * MS, end) for _, end in fetches(steps)))
    facts = facts_of_run(folder)
    # The first 10 ms of each fetch the device computes.
    share = min(drawn_ms, 20) / 30
    assert found(folder)["input.sampler"].share == pytest.approx(share, abs=0.01)
    assert facts.waits.total_ns == facts.parts.input_ns
    assert facts.waits.making_ns / facts.parts.wall_ns == pytest.approx(2 / 3 - share, abs=0.01)


def test_a_sampler_behind_the_device_costs_nothing(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", [[Step(fetch_ns=9 * MS, compute_ns=10 * MS)] * 100])
    drew(folder, fetches)
    assert found(folder) == {}
    sampling = facts_of_run(folder).sampling
    assert sampling is not None
    assert sampling.ns < 0.01 * facts_of_run(folder).parts.wall_ns


def test_each_batch_is_told_from_the_beginnings_of_epochs(tmp_path: Path) -> None:
    each = trained(tmp_path / "each", [[Step(fetch_ns=30 * MS)] * 40] * 3)
    told(each, 0, None, 0)
    drew(each, fetches, indices=64)
    finding = found(each)["input.sampler"]
    assert "draws the indices of each batch: 20 ms a step, in the training's own process." in finding.title
    assert evidence(finding)["the sampler takes for a batch"] == pytest.approx(30)
    assert evidence(finding)["indices that it draws at a time"] == 64
    assert "argsort" in finding.next[0].change

    epochs = epochs_of(tmp_path / "epochs", 300)
    told(epochs, 2, 2, 0)
    drew(epochs, lambda steps: (span for span in fetches(steps) if span[1] - span[0] > 100 * MS), indices=0)
    finding = found(epochs)["input.sampler"]
    assert "gets each epoch ready: 300 ms an epoch, in the training's own process, whatever" in finding.title
    assert evidence(finding)["waiting for the sampler, at other steps"] == 0
    assert evidence(finding)["the sampler takes for a batch"] is None
    assert not {"input.worker_restart", "input.pipeline_fill"} & set(found(epochs))


def test_what_first_batches_take_besides_is_still_pipeline_fill(tmp_path: Path) -> None:
    """The sampler takes 100 ms before each epoch, its first batch 200 more."""
    folder = epochs_of(tmp_path / "run", 310)
    first = [span for span in fetches(steps_of(folder)) if span[1] - span[0] > 100 * MS]
    drew(folder, lambda _: ((begin + 10 * MS, begin + 110 * MS) for begin, _ in first), indices=0)
    findings = found(folder)
    # Four epochs, and what the warm-up leaves of the first.
    wall = 4 * (20 * 10 + 310) + 15 * 10
    assert findings["input.sampler"].share == pytest.approx(4 * 100 / wall, abs=0.01)
    assert findings["input.pipeline_fill"].share == pytest.approx(4 * 210 / wall, abs=0.01)


def test_what_makes_the_iterator_twice_can_be_halved(tmp_path: Path) -> None:
    folder = epochs_of(tmp_path / "run", 300)
    told(folder, 2, 2, 0)
    first = [span for span in fetches(steps_of(folder)) if span[1] - span[0] > 100 * MS]
    drew(folder, lambda _: ((begin, begin + 140 * MS) for begin, _ in first), indices=0)
    assert not any("persistent_workers" in each.change for each in found(folder)["input.sampler"].next)
    drew(folder, lambda _: ((begin + 150 * MS, end) for begin, end in first), indices=0)
    assert any("persistent_workers=True" in each.change for each in found(folder)["input.sampler"].next)


def test_batches_that_the_training_makes_itself_are_serial_the_rest_is_the_sampler_s(tmp_path: Path) -> None:
    folder = serial(tmp_path / "run", 100, 30, Making())
    drew(folder, lambda steps: ((begin, begin + 20 * MS) for begin, _ in fetches(steps)))
    findings = found(folder)
    assert {cause: each.share for cause, each in findings.items()} == {
        "input.sampler": pytest.approx(1 / 3, abs=0.02),
        "input.serial": pytest.approx(1 / 3, abs=0.02),
    }


def test_of_steps_that_nobody_looked_at_the_sampler_has_as_large_a_part(tmp_path: Path) -> None:
    folder = trained(tmp_path / "run", [[Step(fetch_ns=30 * MS)] * 100])

    def thin(steps: Records) -> None:
        """Every second step but the first ten was let pass."""
        steps["skipped"][11::2] = 3
        steps["skipped_samples"][11::2] = 24

    drew(folder, fetches)
    amend(folder, thin)
    assert facts_of_run(folder).waits.total_ns == facts_of_run(folder).parts.input_ns
    facts = facts_of_run(folder)
    assert facts.sampling is not None
    assert facts.sampling.ns == pytest.approx(facts.parts.input_ns, rel=0.01)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


def sampled(run: Facts, share: float, **more: Any) -> dict[str, Any]:
    """The sampler took such a share of the exposed wait, for each batch."""
    ns = round(share * run.parts.input_ns)
    return {"sampling": Sampling(ns, 0, 20.0, 8.0, 0)} | more


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_where_the_workers_are_busy_all_the_time_a_quick_sampler_would_not_help(run: Facts, share: float) -> None:
    waits = pieces(run, sampling=share)
    idle = COMPUTING | {"worker_busy_pct": 30.0, "samples_per_s_limit": 1e6}
    causes = {each.cause: each.share for each in judge(run, idle, CPUS, waits, **sampled(run, share))}
    assert causes["input.sampler"] == pytest.approx(share * run.parts.share("input"), rel=0.02)
    busy = only(judge(run, COMPUTING, CPUS, waits, **sampled(run, share)))
    assert busy.cause == "input.too_few_workers"
    assert busy.share == pytest.approx(run.parts.share("input"))


def test_no_more_is_promised_than_the_workers_can_make(run: Facts) -> None:
    waits = pieces(run, sampling=1.0)
    now = run.samples_per_s
    for limit, most in ((1e6, 2 * now), (1.2 * now, 1.2 * now), (0.5 * now, now)):
        idle = COMPUTING | {"worker_busy_pct": 30.0, "samples_per_s_limit": limit}
        for change in only(judge(run, idle, CPUS, waits, **sampled(run, 1.0))).next:
            assert change.low is not None
            assert change.high is not None
            assert change.predicted_samples_per_s is not None
            assert change.low <= change.predicted_samples_per_s <= most * 1.01
            assert change.high <= (most if limit < 1e6 else most * math.exp(1.645 * SCATTER_SD)) * 1.01


def test_a_little_is_no_finding_of_its_own(run: Facts) -> None:
    waits = pieces(run, sampling=0.04)
    idle = COMPUTING | {"worker_busy_pct": 30.0}
    assert only(judge(run, idle, CPUS, waits, **sampled(run, 0.04))).cause == "input.too_few_workers"
