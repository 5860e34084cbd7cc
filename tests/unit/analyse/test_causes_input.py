"""Rules of the wait for data, by what speaks for them: workers, CPUs, storage, pieces of the wait."""

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
    rates,
    waiting_for_data,
)
from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.causes.input import pieces as waits_for_data
from whyidle.analyse.run.exposed_data_wait import Sampling, Shape, Slow, Spread
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.loader_stats import Exclusion, HandedOver, LoaderStats, SeenWaiting, TimeGrowth
from whyidle.analyse.run.stall_breakdown import Gil
from whyidle.analyse.speedup import SCATTER_SD
from whyidle.analyse.statistics import Estimate, wilson
from whyidle.analyse.where.stage_shares import Stages, StageShare
from whyidle.record.schema import ThreadState
from whyidle.scenarios.planted import MS


def stages(stage: str, share: float) -> Stages:
    """As 100 looks tell them."""
    parts = (stage, "", share), ("sample", "Shards.__getitem__", 1 - share)
    each = (StageShare(kind, name, wilson(part, 100), round(100 * part)) for kind, name, part in parts)
    return Stages("the time in which workers prepare batches", 100, tuple(each))


def shown(finding: Finding) -> dict[str, Any]:
    return {each.what: each.value for each in finding.evidence}


SOME = HandedOver(114, 114 * 48, 0, 0)
TINY = {"make_ms_per_sample": 0.01, "work_ms_per_batch": 2.5, "mean_batch_bytes": 4e3, "worker_busy_pct": 30.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


@pytest.mark.parametrize(
    ("cause", "loader", "sampled", "facts", "change"),
    [
        ("input.too_few_workers", {}, CPUS, {}, "num_workers="),
        ("input.too_few_workers", {"cpu_pct": 3.0, "unsplit_pct": 97.0}, FULL | {"tree_cpus": 0.5}, {}, "num_workers="),
        ("input.cpu_exhausted", {}, FULL | {"tree_cpus": 1.95}, {"machine_cpus": 2}, "less CPU per sample"),
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
    noise = math.exp(1.645 * SCATTER_SD)
    for low, rate, high in map(rates, found.next):
        assert run.samples_per_s / noise <= low < rate <= headroom * 1.0001
        assert rate <= high <= headroom * noise * 1.0001


@pytest.mark.parametrize(
    ("loader", "sampled", "shares", "facts", "cause"),
    [
        ({"cpus": 1, "workers": 1}, {}, {}, {}, "too_few_workers"),  # one CPU for one worker, which never waits for it
        ({"process_cpu_pct": 190.0}, {}, {}, {}, "too_few_workers"),  # a pool of threads with CPUs of its own
        ({"even_workers": 1.0}, {}, {}, {"iterable": False}, "too_few_workers"),  # it made all that the window holds
        ({}, {"throttled_s": 0.001}, {}, {}, "too_few_workers"),
        # Six hundredths of the time of 48 CPUs: somebody else of the group, or a moment.
        ({}, {"throttled_s": 0.2, "cpu_budget": 48.0, "tree_cpus": 30.0}, {}, {}, "too_few_workers"),
        # Workers that wait for the network do not wait for the quota.
        ({"cpu_pct": 3.0}, {"throttled_s": 1.0, "cpu_budget": 2.0, "tree_cpus": 0.3}, {}, {}, "too_few_workers"),
        ({}, {"throttled_s": 1.0, "cpu_budget": 2.0, "tree_cpus": 1.9}, {}, {}, "cpu_quota"),
        # Cheap samples on a machine that others fill.
        (
            {"make_ms_per_sample": 0.1, "work_ms_per_batch": 0.5, "mean_batch_bytes": 1e3, **QUEUING},
            FULL | {"tree_cpus": 0.5},
            {},
            {"machine_cpus": 2},
            "foreign_load",
        ),
        # Tiny samples that are worth a worker are to be handed over in fewer pieces.
        (TINY, {}, {"handed": 0.99}, {"handed": HandedOver(3, 3e3, 0, 0)}, "overkill"),
        (TINY, {}, {"handed": 0.99}, {"handed": SOME}, "handoff"),
        (TINY, {}, {"handed": 0.99}, {"handed": HandedOver(1, 8, 5000, 0)}, "handoff"),
        (TINY | {"work_ms_per_batch": 0.3}, {}, {"handed": 0.99}, {"handed": SOME}, "overkill"),
        # Large batches are handed over however busy the workers look, unless they are seen to make them meanwhile.
        ({"mean_batch_bytes": 4e7, "sent_bytes_per_batch": 500.0}, {}, {"handed": 0.95}, {}, "handoff"),
        ({"mean_batch_bytes": 4e3, "sent_bytes_per_batch": 500.0}, {}, {"handed": 0.95}, {}, "too_few_workers"),
        ({"mean_batch_bytes": 50e6}, {}, {"handed": 0.95}, {"making_seen": 0.9}, "too_few_workers"),
        ({"mean_batch_bytes": 50e6}, {}, {"handed": 0.95}, {"making_seen": 0.3}, "handoff"),
        # What sends the batches of workers that queue for CPUs queues too.
        (
            QUEUING | {"worker_busy_pct": 75.0, "process_cpu_pct": 100.0, "mean_batch_bytes": 300.0},
            FULL,
            {"handed": 0.9},
            {"machine_cpus": 2},
            "worker_threads",
        ),
        # A small piece is told with the largest.
        ({}, {}, {"filling": 0.02, "reading": 0.03}, {}, "too_few_workers"),
    ],
)
def test_a_cause_is_named_only_where_its_figures_bear_it(
    run: Facts, loader: dict[str, Any], sampled: dict[str, Any], shares: dict[str, float], facts: Any, cause: str
) -> None:
    found = only(judge(run, COMPUTING | loader, CPUS | sampled, pieces(run, **shares), **facts))
    assert found.cause == f"input.{cause}"
    assert found.share == pytest.approx(run.parts.share("input"))


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


def test_what_a_serial_fetch_waits_for_other_threads_is_the_lock_and_not_the_loader(run: Facts) -> None:
    quick = LoaderStats(**NOTHING | COMPUTING | {"workers": 1, "work_ms_per_batch": 0.5, "queue_capacity": None})
    waits = dataclasses.replace(run.waits, told=1.0)
    facts = dataclasses.replace(run, set_workers=0, loader=quick, waits=waits)
    assert [each.cause for each in findings_of(facts)] == ["input.serial"]
    held = findings_of(dataclasses.replace(facts, gil=HELD))
    assert held[0].cause == "host.gil"
    made = 0.5e6 * run.window.count
    assert held[0].share == pytest.approx((run.parts.input_ns - made) / run.parts.wall_ns, rel=0.01)
    slow = dataclasses.replace(quick, work_ms_per_batch=run.parts.input_ns / run.window.count / 1e6)
    assert findings_of(dataclasses.replace(facts, gil=HELD, loader=slow))[0].cause == "input.serial"


def test_a_batch_that_is_quickly_made_is_not_given_to_workers(run: Facts) -> None:
    quick = COMPUTING | {"workers": 1, "work_ms_per_batch": 0.4}
    found = only(judge(run, quick, CPUS, pieces(run), set_workers=0))
    assert "num_workers" not in found.next[0].change
    assert "Index a whole batch" in found.next[0].change


def test_cpu_that_is_used_up_only_while_batches_are_not_read_is_used_up(run: Facts) -> None:
    """The first epoch reads and leaves the CPUs idle: the mean over the run is no measure of the others."""
    loader = LoaderStats(**NOTHING | COMPUTING)
    mean = FULL | {"tree_cpus": 1.4, "machine_busy_pct": 72.0}
    found = judge(run, COMPUTING | {"read_pct": 45.0}, mean, pieces(run, reading=0.5), loader_unread=loader)
    assert {each.cause for each in found} == {"input.storage", "input.cpu_exhausted"}


HELD = Gil(others_busy=0.6, off_cpu_share=0.2, queue_known=True, waited=np.zeros(1), others=np.zeros(1))
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


CROWDED = {"set_workers": 0, "machine_cpus": 2}
QUEUED = "Waiting for a CPU, share of preparing batches"


@pytest.mark.parametrize("queued", [None, 78.0])
def test_where_others_use_the_cpus_no_more_workers_than_cpus_are_advised(run: Facts, queued: float | None) -> None:
    """Samples that are not on a CPU may be waiting for one: that is no reason to have more workers than CPUs."""
    found = only(judge(run, DECODING | {"run_queue_pct": queued}, CROWD, **CROWDED))
    assert found.cause == "input.serial"
    assert found.title.endswith(
        "one after the other, while other programs use the machine's CPUs (input.foreign_load)."
    )
    workers = next(each for each in found.next if each.change.startswith("Set `num_workers"))
    assert workers.change == "Set `num_workers=2` to prepare batches while the device computes"
    assert shown(found)["CPUs other programs use"] == pytest.approx(1.7)
    assert shown(found)[QUEUED] == queued
    # Each gets of the CPUs what the training gets now: 2 workers at 20 ms a sample.
    assert workers.predicted_samples_per_s == pytest.approx(max(100.0, run.samples_per_s), rel=0.01)
    first = found.next[0].change
    assert first.startswith("Run it where nothing else runs" if queued else "Set `num_workers=2`")


def test_the_trainings_thread_tells_how_long_samples_made_in_it_wait_for_a_cpu(run: Facts) -> None:
    """Its loader does not count that, the host's records of the thread do."""

    def queued(share: float) -> Finding:
        return only(judge(run, DECODING, CROWD, main_queued_ns=share * 160e6 * run.window.count, **CROWDED))

    assert shown(queued(0.6))[QUEUED] == pytest.approx(60)
    # No more of it than the thread was on no CPU and did not read.
    assert shown(queued(0.9))[QUEUED] == pytest.approx(78)
    # A thread that hardly waits for a CPU is not held up by others.
    assert "other programs" not in queued(0.05).title


def test_workers_that_idle_are_not_called_busy(run: Facts) -> None:
    found = only(judge(run, COMPUTING | {"worker_busy_pct": 40.0}, CPUS, pieces(run)))
    assert found.cause == "input.too_few_workers"
    assert found.title.endswith("while CPU is left over and its workers are idle part of the time.")


@pytest.mark.parametrize(
    ("loader", "stage", "share", "words", "change"),
    [
        ({}, "decompress", 0.61, "decompressing", "Decompress less"),
        # The loader's own clocks know better where they tell decoding from transforming.
        ({"unsplit_pct": None, "decode_pct": 20.0, "transform_pct": 70.0}, "decompress", 0.61, "transforming", ""),
        # What is the program's own code for the most part is no stage to make cheaper.
        ({}, "decode", 0.3, "preparing samples", "less CPU per sample"),
    ],
)
def test_the_loader_is_said_to_use_the_cpu_for_the_stage_that_looks_saw_most(
    run: Facts, loader: dict[str, Any], stage: str, share: float, words: str, change: str
) -> None:
    facts = {"machine_cpus": 2, "stages": stages(stage, share)}
    seen = only(judge(run, COMPUTING | loader, FULL | {"tree_cpus": 1.95}, pieces(run), **facts))
    assert seen.cause == "input.cpu_exhausted"
    assert f"mostly on {words}" in seen.title
    assert change in seen.next[0].change
    if words == "decompressing":
        assert shown(seen)["Decompressing, share of preparing batches"] == 61


@pytest.mark.parametrize(
    ("loader", "told"),
    [
        ({"read_chars_bytes_per_sample": 4_100_000.0, "mean_batch_bytes": 32 * 300_000.0}, ["Bytes read for a sample"]),
        ({"read_chars_bytes_per_sample": 2_900_000.0, "mean_batch_bytes": 32 * 300_000.0}, []),
        ({"read_chars_bytes_per_sample": 9_000.0, "mean_batch_bytes": 32 * 8.0}, []),
        ({"read_chars_bytes_per_sample": None, "mean_batch_bytes": 1.0}, []),
        ({"minor_faults_per_batch": 21_000.0, "work_ms_per_batch": 100.0}, ["Page faults while preparing a batch"]),
        ({"minor_faults_per_batch": 2_100.0, "work_ms_per_batch": 100.0}, []),
    ],
)
def test_bytes_read_and_pages_touched_are_told_where_they_are_many(
    run: Facts, loader: dict[str, Any], told: list[str]
) -> None:
    quiet = {"read_chars_bytes_per_sample": None, "minor_faults_per_batch": None, "mean_batch_bytes": 1e6}
    facts = dataclasses.replace(run, batch_size=32)
    found = only(judge(facts, COMPUTING | quiet | loader, FULL, pieces(run), machine_cpus=2))
    assert found.cause == "input.cpu_exhausted"
    seen = shown(found)
    assert [what for what in ("Bytes read for a sample", "Page faults while preparing a batch") if what in seen] == told
    assert ("Bytes of a sample in its batch" in seen) == ("Bytes read for a sample" in seen)


def test_beginnings_of_epochs_are_told_from_supply(run: Facts) -> None:
    waits = pieces(run, starting=0.5, filling=0.2) | {"epochs": 5, "batches_per_epoch": 20.0}
    found = judge(run, COMPUTING, CPUS, waits, persistent_workers=False, starts_python=True)
    shares = {each.cause: each.share / run.parts.share("input") for each in found}
    expected = {"input.worker_restart": 0.5, "input.pipeline_fill": 0.2, "input.too_few_workers": 0.3}
    assert shares == pytest.approx(expected, abs=0.001)
    assert "persistent_workers=True" in found[0].next[0].change
    # What starts workers anew is offered wherever it is in the evidence, before longer epochs.
    by_cause = {each.cause: each for each in found}
    for each in (by_cause["input.worker_restart"], by_cause["input.pipeline_fill"]):
        assert "off" in {one.value for one in each.evidence if one.what.startswith("persistent")}
        assert each.next[0].change.startswith("Set `persistent_workers=True`")
        assert each.next[0].settings == {"persistent_workers": True}
        assert each.next[0].speedup is not None
    assert "longer epochs" in by_cause["input.pipeline_fill"].next[1].change
    # Workers that persist are started once: what their first batches cost is all filling.
    kept = judge(run, COMPUTING, CPUS, waits, persistent_workers=True)
    assert [each.cause for each in kept] == ["input.pipeline_fill", "input.too_few_workers"]
    assert kept[0].share == pytest.approx(0.7 * run.parts.share("input"), rel=0.01)


def test_epochs_of_fewer_batches_than_workers_say_so(run: Facts) -> None:
    waits = pieces(run, filling=0.9) | {"epochs": 20, "batches_per_epoch": 4.0}
    found = judge(run, COMPUTING, CPUS, waits, set_workers=8)
    assert found[0].cause == "input.pipeline_fill"
    assert "fewer batches than there are workers" in found[0].title
    assert "smaller batches" in found[0].next[0].change


def test_single_slow_samples_are_stragglers_unless_order_does_not_matter(run: Facts) -> None:
    idle = COMPUTING | {"worker_busy_pct": 40.0, "queue_ready_mean": 3.5}
    single = {"shape": Shape(Spread.SINGLE, 5, 100, None, 300 * MS), "slow": Slow(9.0)}
    waits = pieces(run, slow=0.98, blocked=0.9) | single
    found = only(judge(run, idle, CPUS, waits))
    assert found.cause == "input.straggler"
    assert "at 5 of 100 steps, the longest 300 ms" in found.title
    assert "in_order=False" in found.next[0].change
    assert only(judge(run, idle, CPUS, waits, out_of_order=True)).cause != "input.straggler"


def test_uneven_batches_of_a_loader_that_keeps_up_want_a_deeper_queue(run: Facts) -> None:
    uneven = COMPUTING | {"worker_busy_pct": 60.0, "queue_ready_mean": 1.2, "samples_per_s_limit": 1e6}
    waits = pieces(run) | {"shape": Shape(Spread.IRREGULAR, 30, 100, None, 80 * MS), "slow": Slow(2.0)}
    found = only(judge(run, uneven, CPUS, waits))
    assert found.cause == "input.prefetch_depth"
    assert "prefetch_factor=4` instead of 2" in found.next[0].change
    # One that could not supply what is taken has too few workers.
    slow = uneven | {"samples_per_s_limit": 1.0, "worker_busy_pct": 95.0}
    assert only(judge(run, slow, CPUS, waits)).cause == "input.too_few_workers"


@pytest.mark.parametrize(
    ("loader", "held", "title", "changes"),
    [
        ({}, HandedOver(1203, 1203 * 48, 0, 0), "as 1,203 tensors of 48 bytes", ["fewer, larger tensors"]),
        ({}, HandedOver(64, 64 * 1e6, 0, 0), "as 64 tensors of 1,000,000 bytes", ["fewer, larger", "fewer bytes"]),
        ({}, HandedOver(2, 2e7, 5, 100), "takes long.", ["fewer bytes"]),
        (
            {"mean_batch_bytes": 8192.0, "work_ms_per_batch": 3.0},
            HandedOver(2, 8192, 0, 0),
            "for only 8,192 bytes",
            ["Index whole batches at once in the training process"],
        ),
        ({}, HandedOver(1, 8, 12_034, 0), "as 12,034 Python objects", ["a few tensors instead of many Python objects"]),
        (
            {"sent_bytes_per_batch": 2e7},
            HandedOver(0, 0, 3, 2e7),
            "pickled through a pipe",
            ["torch tensors instead of NumPy", "fewer bytes"],
        ),
        ({}, None, "takes long.", ["fewer bytes", "fewer, larger tensors"]),
    ],
)
def test_what_a_batch_consists_of_tells_what_is_to_change_about_it(
    run: Facts, loader: dict[str, Any], held: HandedOver | None, title: str, changes: list[str]
) -> None:
    idle = COMPUTING | {"worker_busy_pct": 30.0, "sent_bytes_per_batch": 300.0, "mean_batch_bytes": 2e7} | loader
    found = only(judge(run, idle, CPUS, pieces(run, handed=0.99), handed=held))
    assert found.cause == "input.handoff"
    assert title in found.title
    assert len(found.next) == len(changes)
    assert all(said in each.change for said, each in zip(changes, found.next, strict=True))
    assert shown(found).get("Tensors in a batch") == (held and held.tensors)
    assert shown(found).get("Other Python objects in a batch") == (held and held.objects)


def test_workers_of_a_loader_that_is_made_anew_are_restarted_whatever_its_flag(run: Facts) -> None:
    waits = pieces(run, starting=0.9) | {"epochs": 5, "iterators": 5}
    found = judge(run, COMPUTING, CPUS, waits, persistent_workers=True)
    assert found[0].cause == "input.worker_restart"
    assert "Create the DataLoader once" in found[0].next[0].change
    kept = judge(run, COMPUTING, CPUS, waits | {"iterators": 1}, persistent_workers=True)
    assert kept[0].cause == "input.pipeline_fill"


@pytest.mark.parametrize(("piece", "cause"), [("starting", "input.worker_restart"), ("filling", "input.pipeline_fill")])
def test_a_loop_that_leaves_its_iterators_after_a_batch_is_told_to_keep_one(run: Facts, piece: str, cause: str) -> None:
    few = {"epochs": 90, "iterators": 90, "batches_per_epoch": 1.0, "left_early": 0.97}
    found = judge(run, COMPUTING, CPUS, pieces(run, **{piece: 0.9}) | few, persistent_workers=False)[0]
    assert (found.cause, found.next[0].kind) == (cause, "once")
    assert "the loop takes only 1 batch of each and starts over" in found.title
    assert "next(batches)" in found.next[0].change
    for whole in (few | {"left_early": 0.1}, few | {"left_early": None}, few | {"batches_per_epoch": 40.0}):
        other = judge(run, COMPUTING, CPUS, pieces(run, **{piece: 0.9}) | whole, persistent_workers=False)[0]
        assert (other.cause, other.next[0].kind) == (cause, "settings")


@pytest.mark.parametrize(
    ("sampled", "cause"),
    [(FULL | {"tree_cpus": 0.5}, "foreign_load"), (FULL, "cpu_exhausted"), (CPUS, "handoff")],
)
def test_finished_batches_that_nobody_has_a_cpu_to_take_are_no_hand_over(
    run: Facts, sampled: dict[str, Any], cause: str
) -> None:
    idle = COMPUTING | {"worker_busy_pct": 20.0, "mean_batch_bytes": 4e3, "sent_bytes_per_batch": 400.0}
    queued = {"main_queued_ns": 0.9 * run.parts.input_ns, "machine_cpus": 2}
    found = only(judge(run, idle, sampled, pieces(run, handed=1.0), **queued))
    assert found.cause == f"input.{cause}"
    assert ("fewer workers" in found.next[0].change) == (cause == "cpu_exhausted")


def test_a_wait_is_no_hand_over_where_moving_so_few_bytes_takes_a_part_of_it(run: Facts) -> None:
    """By the bytes of a batch and how long each step waits."""
    queued = {"main_queued_ns": 0.9 * run.parts.input_ns, "machine_cpus": 2}
    waits, waited_s = pieces(run, handed=1.0), run.parts.input_ns / run.window.count / 1e9
    idle = COMPUTING | {"worker_busy_pct": 20.0, "sent_bytes_per_batch": 400.0}
    for share, cause in ((0.4, "input.cpu_exhausted"), (0.6, "input.handoff")):
        moved = idle | {"mean_batch_bytes": share * waited_s * 1e9}
        assert only(judge(run, moved, FULL, waits, **queued)).cause == cause


@pytest.mark.parametrize(("size", "sent", "cause"), [(2e7, 2e7, "input.handoff"), (2e3, 4e2, "host.gil")])
def test_collected_and_pickled_batches_stay_a_hand_over_beside_busy_threads(
    run: Facts, size: float, sent: float, cause: str
) -> None:
    idle = COMPUTING | {"worker_busy_pct": 20.0, "mean_batch_bytes": size, "sent_bytes_per_batch": sent}
    handed = dataclasses.replace(run.waits, told=1.0, **pieces(run, handed=1.0))
    facts = dataclasses.replace(run, gil=HELD, waits=handed, loader=LoaderStats(**NOTHING | idle))
    assert [each.cause for each in findings_of(facts)] == [cause]


def test_starting_workers_costs_cpu_that_is_saved_with_it(run: Facts) -> None:
    """On the processor: the CPUs are full only because each epoch starts new Pythons."""
    waits = pieces(run, starting=1.0) | {"epochs": 5, "iterators": 5}
    full = {"tree_cpus": 1.95, "cpu_budget": 2.0}
    found = only(judge(run, COMPUTING, full, waits, device_kind="cpu", starts_python=True))
    assert rates(found.next[0])[1] > 1.3 * run.samples_per_s


def test_what_overkill_gains_leaves_out_that_batches_still_have_to_be_made(run: Facts) -> None:
    waited_ms = run.parts.input_ns / run.window.count / 1e6
    tiny = COMPUTING | {"make_ms_per_sample": 0.1, "work_ms_per_batch": 0.6 * waited_ms, "mean_batch_bytes": 4e3}
    found = only(judge(run, tiny | {"worker_busy_pct": 30.0}, CPUS, pieces(run, handed=1.0)))
    assert found.cause == "input.overkill"
    assert found.share == pytest.approx(run.parts.share("input"))
    saved = run.parts.share("input") * (1 - 0.6 * 0.97)
    assert found.gain == pytest.approx(saved / (1 - saved), rel=0.02)


def sampling(run: Facts, share: float, **loader: float) -> list[Finding]:
    """The sampler took such a share of the exposed wait, for each batch."""
    drawn = Sampling(round(share * run.parts.input_ns), 0, 20.0, 8.0, 0)
    return judge(run, COMPUTING | loader, CPUS, pieces(run, sampling=share), sampling=drawn)


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_where_the_workers_are_busy_all_the_time_a_quick_sampler_would_not_help(run: Facts, share: float) -> None:
    idle = sampling(run, share, worker_busy_pct=30.0, samples_per_s_limit=1e6)
    causes = {each.cause: each.share for each in idle}
    assert causes["input.sampler"] == pytest.approx(share * run.parts.share("input"), rel=0.02)
    busy = only(sampling(run, share))
    assert busy.cause == "input.too_few_workers"
    assert busy.share == pytest.approx(run.parts.share("input"))


@pytest.mark.parametrize(("limit", "times"), [(1e6, 2.0), (1.2, 1.2), (0.5, 1.0)])
def test_no_more_is_promised_than_the_workers_can_make(run: Facts, limit: float, times: float) -> None:
    now = run.samples_per_s
    sampled = only(sampling(run, 1.0, worker_busy_pct=30.0, samples_per_s_limit=limit * now))
    for low, rate, high in map(rates, sampled.next):
        assert low <= rate <= times * now * 1.01
        assert high <= times * now * (math.exp(1.645 * SCATTER_SD) if limit > 2 else 1) * 1.01


def test_a_sampler_that_takes_a_little_is_no_finding_of_its_own(run: Facts) -> None:
    assert only(sampling(run, 0.04, worker_busy_pct=30.0)).cause == "input.too_few_workers"


WAITS = COMPUTING | {"workers": 4, "cpu_pct": 4.0, "make_ms_per_sample": 10.0}
QUEUE = SeenWaiting(100, Estimate(0.7, 0.6, 0.78), False, "data.py:27", ThreadState.SOCKET)
PROPORTIONAL = TimeGrowth(Estimate(0.95, 0.85, 1.05), 50.0, 100.0)
INDEPENDENT = TimeGrowth(Estimate(0.02, -0.1, 0.1), 100.0, 100.0)


def excluding(
    run: Facts, waiting: SeenWaiting | None, growth: TimeGrowth | None, sampled: dict[str, Any] = CPUS, **waits: float
) -> list[Finding]:
    return judge(run, WAITS, sampled, pieces(run, **waits), set_workers=4, exclusion=Exclusion(3.6, waiting, growth))


def at(state: int) -> SeenWaiting:
    return SeenWaiting(100, Estimate(0.0, 0.0, 0.04), False, "", state)


@pytest.mark.parametrize(
    ("waiting", "growth", "cause", "words"),
    [
        (QUEUE, None, "exclusive", "wait for a lock that they share (data.py:27), while one waits at a socket"),
        (None, PROPORTIONAL, "exclusive", "A batch takes 100 ms, but 50 ms when fewer workers are active"),
        (at(ThreadState.SOCKET), PROPORTIONAL, "exclusive", "the bandwidth of a remote store"),
        # Remote latency wants more requests under way.
        (at(ThreadState.SOCKET), INDEPENDENT, "too_few_workers", ""),
    ],
)
def test_what_workers_share_is_told_by_locks_and_by_what_fewer_workers_take(
    run: Facts, waiting: SeenWaiting | None, growth: TimeGrowth | None, cause: str, words: str
) -> None:
    said = only(excluding(run, waiting, growth))
    assert said.cause == f"input.{cause}"
    assert words in said.title
    assert any("num_workers" in each.change for each in said.next) == (cause == "too_few_workers")
    if waiting is QUEUE:
        assert "2.5 of" in said.title
        assert said.next[0].kind == "own_handle"
    elif waiting is None:
        # Whoever limits the rate may limit it beyond these workers, too.
        assert said.next[0].low == run.samples_per_s


def test_both_signs_are_surer_than_one(run: Facts) -> None:
    signs = ((None, PROPORTIONAL), (QUEUE, None), (QUEUE, PROPORTIONAL))
    by_growth, by_looks, both = (only(excluding(run, *each)).confidence for each in signs)
    assert by_growth < by_looks < both


def test_reads_and_first_batches_that_wait_for_the_lock_are_its_too(run: Facts) -> None:
    epochs = {"reading": 0.5, "filling": 0.3}
    assert {each.cause for each in excluding(run, QUEUE, None, **epochs)} == {"input.exclusive"}
    assert {each.cause for each in excluding(run, None, None, **epochs)} > {"input.storage", "input.pipeline_fill"}


@pytest.mark.parametrize(
    ("state", "cause"), [(ThreadState.SOCKET, "input.exclusive"), (ThreadState.FILE, "input.storage")]
)
def test_what_comes_through_a_socket_is_no_read_of_a_file(run: Facts, state: int, cause: str) -> None:
    exclusion = Exclusion(3.6, at(state), PROPORTIONAL)
    assert only(judge(run, WAITS | {"read_pct": 95.0}, CPUS, pieces(run), exclusion=exclusion)).cause == cause


def test_workers_that_use_up_the_cpus_are_not_in_each_others_way_but_in_the_cpus(run: Facts) -> None:
    assert only(excluding(run, QUEUE, PROPORTIONAL, FULL)).cause != "input.exclusive"


def test_no_more_is_promised_than_all_workers_make_when_each_is_as_fast_as_alone(run: Facts) -> None:
    said = only(excluding(run, QUEUE, None))
    _, rate, high = rates(said.next[0])
    # 10 ms a sample, of which at most 78 % are spent waiting for the others, by each of four workers.
    assert run.samples_per_s < rate <= high <= 4 * 1e3 / (10.0 * (1 - 0.78))
    two_cpus = CPUS | {"tree_cpus": 0.1, "cpu_budget": 2.0}
    assert rates(only(excluding(run, QUEUE, None, two_cpus)).next[0])[2] <= 2 * 1e3 / (10.0 * 0.04)
