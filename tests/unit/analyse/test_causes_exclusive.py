"""The rule of workers that exclude each other: what it claims, and what it says would be gained."""

from __future__ import annotations

from typing import Any

import pytest

from support.judged_waits import COMPUTING, CPUS, FULL, judge, only, pieces, waiting_for_data
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.exclusion import Exclusion, SeenWaiting, TimeGrowth
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.statistics import Estimate
from whyidle.record.schema import ThreadState

WAITS = COMPUTING | {"workers": 4, "cpu_pct": 4.0, "make_ms_per_sample": 10.0}
QUEUE = SeenWaiting(100, Estimate(0.7, 0.6, 0.78), False, "data.py:27", ThreadState.SOCKET)
PROPORTIONAL = TimeGrowth(Estimate(0.95, 0.85, 1.05), 50.0, 100.0)
INDEPENDENT = TimeGrowth(Estimate(0.02, -0.1, 0.1), 100.0, 100.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


def found(
    run: Facts, waiting: SeenWaiting | None, growth: TimeGrowth | None, sampled: dict[str, Any] = CPUS, **waits: float
) -> list[Finding]:
    exclusion = Exclusion(3.6, waiting, growth)
    return judge(run, WAITS, sampled, pieces(run, **waits), set_workers=4, exclusion=exclusion)


def test_a_lock_that_workers_queue_for_is_named_with_its_line(run: Facts) -> None:
    said = only(found(run, QUEUE, None))
    assert said.cause == "input.exclusive"
    assert "2.5 wait for a lock that they share (data.py:27), while one waits at a socket" in said.title
    assert said.next[0].kind == "own_handle"
    assert not any("num_workers" in each.change for each in said.next)


def test_both_signs_are_surer_than_one(run: Facts) -> None:
    by_growth, by_looks = only(found(run, None, PROPORTIONAL)), only(found(run, QUEUE, None))
    both = only(found(run, QUEUE, PROPORTIONAL))
    assert by_growth.confidence < by_looks.confidence < both.confidence


def test_a_shared_rate_is_told_by_what_fewer_workers_take(run: Facts) -> None:
    said = only(found(run, None, PROPORTIONAL))
    assert said.cause == "input.exclusive"
    assert "A batch takes 100 ms, and 50 ms when fewer of them are at work" in said.title
    # Whoever limits the rate may limit it beyond these workers, too.
    assert said.next[0].low == run.samples_per_s


def test_the_bandwidth_of_a_remote_store_is_told_from_other_rates(run: Facts) -> None:
    at_sockets = SeenWaiting(100, Estimate(0.0, 0.0, 0.04), False, "", ThreadState.SOCKET)
    assert "the bandwidth of a remote store" in only(found(run, at_sockets, PROPORTIONAL)).title


def test_remote_latency_wants_more_requests_under_way_and_is_no_exclusion(run: Facts) -> None:
    at_sockets = SeenWaiting(100, Estimate(0.0, 0.0, 0.04), False, "", ThreadState.SOCKET)
    assert only(found(run, at_sockets, INDEPENDENT)).cause == "input.too_few_workers"


def test_reads_and_first_batches_that_wait_for_the_lock_are_its_too(run: Facts) -> None:
    epochs = {"reading": 0.5, "filling": 0.3}
    assert {each.cause for each in found(run, QUEUE, None, **epochs)} == {"input.exclusive"}
    assert {each.cause for each in found(run, None, None, **epochs)} > {"input.storage", "input.pipeline_fill"}


def test_what_comes_through_a_socket_is_no_read_of_a_file(run: Facts) -> None:
    def told(state: int) -> str | None:
        seen = SeenWaiting(100, Estimate(0.0, 0.0, 0.04), False, "", state)
        reads = WAITS | {"read_pct": 95.0}
        return only(judge(run, reads, CPUS, pieces(run), exclusion=Exclusion(3.6, seen, PROPORTIONAL))).cause

    assert told(ThreadState.SOCKET) == "input.exclusive"
    assert told(ThreadState.FILE) == "input.storage"


def test_workers_that_use_up_the_cpus_are_not_in_each_others_way_but_in_the_cpus(run: Facts) -> None:
    assert only(found(run, QUEUE, PROPORTIONAL, FULL)).cause != "input.exclusive"


def test_no_more_is_promised_than_all_workers_make_when_each_is_as_fast_as_alone(run: Facts) -> None:
    said = only(found(run, QUEUE, None))
    change = said.next[0]
    assert change.predicted_samples_per_s is not None
    assert change.high is not None
    # 10 ms a sample, of which at most 78 % are spent waiting for the others, by each of four workers.
    assert change.high <= 4 * 1e3 / (10.0 * (1 - 0.78))
    assert run.samples_per_s < change.predicted_samples_per_s <= change.high
    two_cpus = CPUS | {"tree_cpus": 0.1, "cpu_budget": 2.0}
    assert only(found(run, QUEUE, None, two_cpus)).next[0].high <= 2 * 1e3 / (10.0 * 0.04)
