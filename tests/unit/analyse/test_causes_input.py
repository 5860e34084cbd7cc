"""Rules of the wait for data that workers, CPUs and storage speak for, or do not."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from support.judged_waits import (
    COMPUTING,
    CPUS,
    FULL,
    NOTHING,
    QUEUING,
    judge,
    only,
    pieces,
    waiting_for_data,
)
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.input import pieces as waits_for_data
from whyidle.analyse.run.divided_time import Gil
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.loader_stats import LoaderStats
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.analyse.statistics import wilson
from whyidle.analyse.where.stage_shares import Stages, StageShare


def stages(stage: str, share: float) -> Stages:
    """As 100 looks tell them."""
    parts = (stage, "", share), ("sample", "Shards.__getitem__", 1 - share)
    each = (StageShare(kind, name, wilson(part, 100), round(100 * part)) for kind, name, part in parts)
    return Stages("the time in which workers make batches", 100, tuple(each))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize(
    ("cause", "loader", "sampled", "facts", "change"),
    [
        ("input.too_few_workers", {}, CPUS, {}, "num_workers="),
        ("input.too_few_workers", {"cpu_pct": 3.0, "unsplit_pct": 97.0}, FULL | {"tree_cpus": 0.5}, {}, "num_workers="),
        ("input.cpu_exhausted", {}, FULL | {"tree_cpus": 1.95}, {"machine_cpus": 2}, "less work for the CPU"),
        (
            "input.oversubscribed",
            {"workers": 8, **QUEUING},
            FULL,
            {"machine_cpus": 2, "set_workers": 8},
            "num_workers=2",
        ),
        ("input.foreign_load", QUEUING, FULL | {"tree_cpus": 0.5}, {"machine_cpus": 2}, "where nothing else runs"),
        ("input.affinity", {"cpus": 1, **QUEUING}, {**CPUS, "tree_cpus": 1.0}, {}, "sched_setaffinity"),
        (
            "input.worker_threads",
            {"process_cpu_pct": 180.0, "cpu_pct": 25.0, "run_queue_pct": 60.0},
            FULL,
            {},
            "OMP_NUM",
        ),
        ("input.cpu_quota", QUEUING, {**CPUS, "throttled_s": 1.0, "cpu_budget": 1.5}, {}, "more CPUs"),
        ("input.cpu_quota", QUEUING, {"tree_cpus": 0.8, "cpu_budget": 2.0, "machine_busy_pct": 40.0}, {}, "more CPUs"),
        ("input.sharding", {"workers": 1, "even_workers": 1.0}, CPUS, {"iterable": True}, "get_worker_info"),
        ("input.storage", {"read_pct": 80.0, "cpu_pct": 15.0}, CPUS, {}, "faster storage"),
        ("input.serial", {}, CPUS, {"set_workers": 0}, "num_workers="),
    ],
)
def test_what_the_workers_and_cpus_show_names_the_cause(
    run: Facts, cause: str, loader: dict[str, Any], sampled: dict[str, Any], facts: dict[str, Any], change: str
) -> None:
    found = only(judge(run, COMPUTING | loader, sampled, pieces(run), **facts))
    assert found.cause == cause
    assert found.share == pytest.approx(run.parts.share("input"))
    assert found.evidence
    assert change in " ".join(each.change for each in found.next)
    assert "at every step" in found.title
    headroom = run.samples_per_s_without(run.parts.input_ns)
    assert headroom is not None
    for each in found.next:
        assert each.low is not None
        assert each.predicted_samples_per_s is not None
        assert each.high is not None
        noise = math.exp(1.645 * SCATTER_SD)
        assert run.samples_per_s / noise <= each.low < each.predicted_samples_per_s <= headroom * 1.0001
        assert each.predicted_samples_per_s <= each.high <= headroom * noise * 1.0001


@pytest.mark.parametrize(
    ("loader", "sampled", "facts"),
    [
        ({"cpus": 1, "workers": 1}, CPUS, {}),  # one CPU for one worker, which never waits for it
        ({"process_cpu_pct": 190.0}, CPUS, {}),  # a pool of threads with CPUs of its own
        ({"even_workers": 1.0}, CPUS, {"iterable": False}),  # one worker made all that the window holds
        ({}, {**CPUS, "throttled_s": 0.001}, {}),
    ],
)
def test_what_only_looks_like_a_specific_cause_does_not_hide_the_general_one(
    run: Facts, loader: dict[str, Any], sampled: dict[str, Any], facts: dict[str, Any]
) -> None:
    found = only(judge(run, COMPUTING | loader, sampled, pieces(run), **facts))
    assert found.cause == "input.too_few_workers"


@pytest.mark.parametrize(
    ("loader", "kind"),
    [
        ({"read_chars_bytes_per_sample": 1e6, "storage_bytes_per_sample": 9e5}, "page cache"),
        (
            {"read_chars_bytes_per_sample": 1e6, "mean_batch_bytes": 8e5, "storage_bytes_per_sample": 0.0},
            "10 bytes for each",
        ),
        (
            {"read_chars_bytes_per_sample": 4e4, "mean_batch_bytes": 8e5, "storage_bytes_per_sample": 0.0},
            "many small reads",
        ),
        ({"read_chars_bytes_per_sample": 4e5, "mean_batch_bytes": 8e6, "make_ms_per_sample": 50.0}, "which is slow"),
    ],
)
def test_storage_says_what_kind_of_reading_it_is(run: Facts, loader: dict[str, Any], kind: str) -> None:
    reading = COMPUTING | {"read_pct": 80.0, "cpu_pct": 15.0}
    found = only(judge(run, reading | loader, CPUS, pieces(run, reading=1.0)))
    assert found.cause == "input.storage"
    assert kind in found.title


def test_reads_and_computing_share_the_wait_by_the_batches_that_were_waited_for(run: Facts) -> None:
    loader = LoaderStats(**NOTHING | COMPUTING)
    found = judge(run, COMPUTING | {"read_pct": 45.0}, FULL, pieces(run, reading=0.4), loader_unread=loader)
    shares = {each.cause: each.share / run.parts.share("input") for each in found}
    assert shares == pytest.approx({"input.storage": 0.4, "input.cpu_exhausted": 0.6}, abs=0.001)


def test_nothing_measured_is_a_guess_and_says_so(run: Facts) -> None:
    found = only(judge(run, {}, {}))
    assert found.confidence <= 0.4
    assert "CPU use was not measured" in found.title


def test_no_wait_has_no_cause(run: Facts) -> None:
    parts = dataclasses.replace(run.parts, input_ns=0)
    assert waits_for_data.findings_of(dataclasses.replace(run, parts=parts)) == []


@pytest.mark.parametrize(
    ("sampled", "loader", "cause"),
    [
        # Six hundredths of the time of 48 CPUs: somebody else of the group, or a moment.
        ({"throttled_s": 0.2, "cpu_budget": 48.0, "tree_cpus": 30.0}, {}, "input.too_few_workers"),
        # Workers that wait for the network do not wait for the quota.
        ({"throttled_s": 1.0, "cpu_budget": 2.0, "tree_cpus": 0.3}, {"cpu_pct": 3.0}, "input.too_few_workers"),
        ({"throttled_s": 1.0, "cpu_budget": 2.0, "tree_cpus": 1.9}, {}, "input.cpu_quota"),
    ],
)
def test_a_quota_is_the_cause_only_where_it_stops_the_loader(
    run: Facts, sampled: dict[str, Any], loader: dict[str, Any], cause: str
) -> None:
    assert only(judge(run, COMPUTING | loader, {**CPUS, **sampled}, pieces(run))).cause == cause


def test_cheap_samples_on_a_machine_that_others_fill_are_foreign_load(run: Facts) -> None:
    cheap = COMPUTING | {"make_ms_per_sample": 0.1, "work_ms_per_batch": 0.5, "mean_batch_bytes": 1e3}
    full = {"tree_cpus": 0.5, "cpu_budget": 2.0, "machine_busy_pct": 99.0}
    found = only(judge(run, cheap | QUEUING, full, pieces(run), machine_cpus=2))
    assert found.cause == "input.foreign_load"


def test_no_more_is_promised_than_was_measured_with_an_infinitely_fast_loader(run: Facts) -> None:
    measured = 1.08 * run.samples_per_s
    facts = dataclasses.replace(run, headroom=measured, loader=LoaderStats(**NOTHING | COMPUTING))
    found = findings_of(facts)
    assert found[0].severity == "minor"
    for change in found[0].next:
        assert change.high == pytest.approx(measured)
        assert change.predicted_samples_per_s is not None
        assert change.predicted_samples_per_s <= measured
    assert findings_of(dataclasses.replace(facts, headroom=1.01 * run.samples_per_s)) == ()


def test_what_a_serial_fetch_waits_for_other_threads_is_the_lock_and_not_the_loader(run: Facts) -> None:
    gil = Gil(others_busy=0.6, off_cpu_share=0.2, queue_known=True, waited=np.zeros(1), others=np.zeros(1))
    quick = LoaderStats(**NOTHING | COMPUTING | {"workers": 1, "work_ms_per_batch": 0.5, "queue_capacity": None})
    waits = dataclasses.replace(run.waits, told=1.0)
    facts = dataclasses.replace(run, set_workers=0, loader=quick, waits=waits)
    assert [each.cause for each in findings_of(facts)] == ["input.serial"]
    held = findings_of(dataclasses.replace(facts, gil=gil))
    assert held[0].cause == "host.gil"
    made = 0.5e6 * run.window.count
    assert held[0].share == pytest.approx((run.parts.input_ns - made) / run.parts.wall_ns, rel=0.01)
    slow = dataclasses.replace(quick, work_ms_per_batch=run.parts.input_ns / run.window.count / 1e6)
    assert findings_of(dataclasses.replace(facts, gil=gil, loader=slow))[0].cause == "input.serial"


def test_a_batch_that_is_quickly_made_is_not_given_to_workers(run: Facts) -> None:
    quick = COMPUTING | {"workers": 1, "work_ms_per_batch": 0.4}
    found = only(judge(run, quick, CPUS, pieces(run), set_workers=0))
    assert "num_workers" not in found.next[0].change
    assert "index a whole batch" in found.next[0].change


def test_cpu_that_is_used_up_only_while_batches_are_not_read_is_used_up(run: Facts) -> None:
    """The first epoch reads and leaves the CPUs idle: the mean over the run is no measure of the others."""
    loader = LoaderStats(**NOTHING | COMPUTING)
    mean = FULL | {"tree_cpus": 1.4, "machine_busy_pct": 72.0}
    found = judge(run, COMPUTING | {"read_pct": 45.0}, mean, pieces(run, reading=0.5), loader_unread=loader)
    assert {each.cause for each in found} == {"input.storage", "input.cpu_exhausted"}


CROWD = {"tree_cpus": 0.3, "cpu_budget": 2.0, "machine_busy_pct": 100.0}
"""Of two CPUs others use 1.7."""
DECODING = COMPUTING | {
    "workers": 1,
    "cpu_pct": 20.0,
    "read_pct": 2.0,
    "run_queue_pct": None,
    "make_ms_per_sample": 20.0,
    "work_ms_per_batch": 160.0,
}
"""Samples that are computed, by a thread that is mostly not on a CPU; whether it waits for one was not counted."""


@pytest.mark.parametrize("queued", [None, 78.0])
def test_where_others_use_the_cpus_no_more_workers_than_cpus_are_advised(run: Facts, queued: float | None) -> None:
    """Samples that are not on a CPU may be waiting for one: that is no reason to have more workers than CPUs."""
    crowd = {"set_workers": 0, "machine_cpus": 2}
    found = only(judge(run, DECODING | {"run_queue_pct": queued}, CROWD, **crowd))
    assert found.cause == "input.serial"
    assert found.title.endswith(
        "one after the other, while other programs use the machine's CPUs (input.foreign_load)."
    )
    workers = next(each for each in found.next if each.change.startswith("num_workers"))
    assert workers.change == "num_workers=2: batches are made while the device computes"
    shown = {each.what: each.value for each in found.evidence}
    assert shown["CPUs in use by others"] == pytest.approx(1.7)
    assert shown["waiting for a CPU, of the time spent making batches"] == queued
    # Each gets of the CPUs what the training gets now: 2 workers at 20 ms a sample.
    assert workers.predicted_samples_per_s == pytest.approx(max(100.0, run.samples_per_s), rel=0.01)
    first = found.next[0].change
    assert first.startswith("run it where nothing else runs" if queued else "num_workers=2")


def test_a_quiet_machine_has_workers_for_samples_that_wait(run: Facts) -> None:
    quiet = CROWD | {"machine_busy_pct": 20.0}
    found = only(judge(run, DECODING, quiet, set_workers=0, machine_cpus=2))
    assert found.next[0].change.startswith("num_workers=10 (more than CPUs: they mostly wait)")
    assert len(found.next) == 1
    assert "other programs" not in found.title


def test_the_trainings_thread_tells_how_long_samples_made_in_it_wait_for_a_cpu(run: Facts) -> None:
    """Its loader does not count that, the host's records of the thread do."""
    making_ns = 160e6 * run.window.count
    crowd = {"set_workers": 0, "machine_cpus": 2}
    found = only(judge(run, DECODING, CROWD, main_queued_ns=0.6 * making_ns, **crowd))
    shown = {each.what: each.value for each in found.evidence}
    assert shown["waiting for a CPU, of the time spent making batches"] == pytest.approx(60)
    # No more of it than the thread was on no CPU and did not read.
    found = only(judge(run, DECODING, CROWD, main_queued_ns=0.9 * making_ns, **crowd))
    shown = {each.what: each.value for each in found.evidence}
    assert shown["waiting for a CPU, of the time spent making batches"] == pytest.approx(78)
    # A thread that hardly waits for a CPU is not held up by others.
    found = only(judge(run, DECODING, CROWD, main_queued_ns=0.05 * making_ns, **crowd))
    assert "other programs" not in found.title


def test_workers_that_idle_are_not_called_busy(run: Facts) -> None:
    found = only(judge(run, COMPUTING | {"worker_busy_pct": 40.0}, CPUS, pieces(run)))
    assert found.cause == "input.too_few_workers"
    assert found.title.endswith("while CPU is left over and its workers are idle part of the time.")


def test_the_loader_is_said_to_use_the_cpu_for_the_stage_that_looks_saw_most(run: Facts) -> None:
    full = FULL | {"tree_cpus": 1.95}
    seen = only(judge(run, COMPUTING, full, pieces(run), machine_cpus=2, stages=stages("decompress", 0.61)))
    assert seen.cause == "input.cpu_exhausted"
    assert "mostly for decompressing" in seen.title
    assert "decompress less" in seen.next[0].change
    assert {e.what: e.value for e in seen.evidence}["decompressing, of the time spent making batches"] == 61
    # The loader's own clocks know better where they tell decoding from transforming.
    told = {"unsplit_pct": None, "decode_pct": 20.0, "transform_pct": 70.0}
    clocked = only(judge(run, COMPUTING | told, full, pieces(run), machine_cpus=2, stages=stages("decompress", 0.61)))
    assert "mostly for transforming" in clocked.title


def test_what_is_the_programs_own_code_for_the_most_part_is_no_stage_to_make_cheaper(run: Facts) -> None:
    full = FULL | {"tree_cpus": 1.95}
    seen = only(judge(run, COMPUTING, full, pieces(run), machine_cpus=2, stages=stages("decode", 0.3)))
    assert "mostly for preparing samples" in seen.title
    assert "less work for the CPU" in seen.next[0].change


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        ({"read_chars_bytes_per_sample": 4_100_000.0, "mean_batch_bytes": 32 * 300_000.0}, ["bytes read for a sample"]),
        ({"read_chars_bytes_per_sample": 2_900_000.0, "mean_batch_bytes": 32 * 300_000.0}, []),
        ({"read_chars_bytes_per_sample": 9_000.0, "mean_batch_bytes": 32 * 8.0}, []),
        ({"read_chars_bytes_per_sample": None, "mean_batch_bytes": 1.0}, []),
        ({"minor_faults_per_batch": 21_000.0, "work_ms_per_batch": 100.0}, ["page faults in making a batch"]),
        ({"minor_faults_per_batch": 2_100.0, "work_ms_per_batch": 100.0}, []),
    ],
)
def test_bytes_read_and_pages_touched_are_told_where_they_are_many(
    run: Facts, loader: dict[str, Any], told: list[str]
) -> None:
    full = FULL | {"tree_cpus": 1.95}
    quiet = {"read_chars_bytes_per_sample": None, "minor_faults_per_batch": None, "mean_batch_bytes": 1e6}
    facts = dataclasses.replace(run, batch_size=32)
    found = only(judge(facts, COMPUTING | quiet | loader, full, pieces(run), machine_cpus=2))
    assert found.cause == "input.cpu_exhausted"
    shown = [e.what for e in found.evidence]
    assert [what for what in ("bytes read for a sample", "page faults in making a batch") if what in shown] == told
    assert ("bytes of a sample in its batch" in shown) == ("bytes read for a sample" in shown)
