"""Rules of the wait for data: each on the figures that speak for it, and on those that do not."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from whyidle.analyse.causes.diagnosis import findings_of
from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.causes.input import pieces as waits_for_data
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.exposed_data_wait import Shape, Slow, Spread, Waits
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.gil import Gil
from whyidle.analyse.run.loader_stats import LoaderStats
from whyidle.analyse.run.resource_usage import Sampled
from whyidle.record.run import open_run
from whyidle.scenarios.planted import MS, Step, train


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """A device that waits half of the time for data, at every step, of which nothing else is known."""
    folder = tmp_path_factory.mktemp("run") / "run"
    train(folder, [[Step(fetch_ns=20 * MS)] * 100])
    facts = analyse(open_run(folder)).facts
    assert facts is not None
    return dataclasses.replace(facts, set_workers=2, set_prefetch=2, persistent_workers=True, machine_cpus=8)


NOTHING: dict[str, Any] = dict.fromkeys(LoaderStats.__dataclass_fields__) | {
    "workers": 2,
    "slowest": (),
    "transforms": (),
}
COMPUTING = {
    "workers": 2,
    "cpu_pct": 95.0,
    "run_queue_pct": 3.0,
    "read_pct": 0.0,
    "unsplit_pct": 95.0,
    "collate_pct": 5.0,
    "worker_busy_pct": 97.0,
    "queue_ready_mean": 0.1,
    "queue_capacity": 4,
    "make_ms_per_sample": 5.0,
    "work_ms_per_batch": 40.0,
    "cpus": 8,
    "even_workers": 2.0,
}
"""Workers that compute all the time."""
CPUS = {"tree_cpus": 2.1, "cpu_budget": 8.0, "machine_busy_pct": 30.0}
NO_SAMPLES: dict[str, Any] = dict.fromkeys(Sampled.__dataclass_fields__) | {"samples": 0, "host_samples": 0}


def judge(
    run: Facts, loader: dict[str, Any], sampled: dict[str, Any], waits: dict[str, Any] | None = None, **facts: Any
) -> list[Finding]:
    return waits_for_data.findings_of(
        dataclasses.replace(
            run,
            loader=LoaderStats(**NOTHING | {"process_cpu_pct": loader.get("cpu_pct")} | loader),
            sampled=Sampled(**NO_SAMPLES | sampled),
            waits=dataclasses.replace(run.waits, told=1.0, **waits or {}),
            **facts,
        )
    )


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1
    return found[0]


def pieces(run: Facts, **shares: float) -> dict[str, Any]:
    """The exposed wait divided so; what is left is waiting for batches in the making."""
    whole = run.parts.input_ns
    told = {name: round(share * whole) for name, share in shares.items()}
    none = dict.fromkeys(("starting_ns", "filling_ns", "handed_ns", "slow_ns", "reading_ns"), 0)
    divided = none | {f"{name}_ns": ns for name, ns in told.items() if name != "blocked"}
    return divided | {"making_ns": whole - sum(divided.values()), "blocked_ns": told.get("blocked", 0)}


FULL = {"tree_cpus": 1.95, "cpu_budget": 2.0, "machine_busy_pct": 99.0}
QUEUING = {"run_queue_pct": 70.0, "cpu_pct": 25.0}


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
        assert run.samples_per_s <= each.low <= each.predicted_samples_per_s <= each.high <= headroom * 1.0001


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


def test_beginnings_of_epochs_are_told_from_supply(run: Facts) -> None:
    waits = pieces(run, starting=0.5, filling=0.2) | {"epochs": 5, "batches_per_epoch": 20.0}
    found = judge(run, COMPUTING, CPUS, waits, persistent_workers=False, starts_python=True)
    shares = {each.cause: each.share / run.parts.share("input") for each in found}
    expected = {"input.worker_restart": 0.5, "input.pipeline_fill": 0.2, "input.too_few_workers": 0.3}
    assert shares == pytest.approx(expected, abs=0.001)
    assert "persistent_workers=True" in found[0].next[0].change
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
    single = {"shape": Shape(Spread.SINGLE, 5, 100, None, 300 * MS), "slow": Slow(9.0, 0.95)}
    waits = pieces(run, slow=0.98, blocked=0.9) | single
    found = only(judge(run, idle, CPUS, waits))
    assert found.cause == "input.straggler"
    assert "at 5 of 100 steps, the longest 300 ms" in found.title
    assert "in_order=False" in found.next[0].change
    assert only(judge(run, idle, CPUS, waits, out_of_order=True)).cause != "input.straggler"


def test_uneven_batches_of_a_loader_that_keeps_up_want_a_deeper_queue(run: Facts) -> None:
    uneven = COMPUTING | {"worker_busy_pct": 60.0, "queue_ready_mean": 1.2, "samples_per_s_limit": 1e6}
    waits = pieces(run) | {"shape": Shape(Spread.IRREGULAR, 30, 100, None, 80 * MS), "slow": Slow(2.0, 0.2)}
    found = only(judge(run, uneven, CPUS, waits))
    assert found.cause == "input.prefetch_depth"
    assert "prefetch_factor=4 instead of 2" in found.next[0].change
    # One that could not supply what is taken has too few workers.
    slow = uneven | {"samples_per_s_limit": 1.0, "worker_busy_pct": 95.0}
    assert only(judge(run, slow, CPUS, waits)).cause == "input.too_few_workers"


@pytest.mark.parametrize(
    ("loader", "cause", "advice"),
    [
        ({"sent_bytes_per_batch": 2e7, "mean_batch_bytes": 2e7}, "input.handoff", "torch tensors instead of numpy"),
        ({"sent_bytes_per_batch": 300.0, "mean_batch_bytes": 2e7}, "input.handoff", "fewer, larger tensors"),
        (
            {"make_ms_per_sample": 0.01, "work_ms_per_batch": 0.3, "mean_batch_bytes": 4e3},
            "input.overkill",
            "num_workers=0",
        ),
    ],
)
def test_finished_batches_that_are_waited_for_are_a_matter_of_the_hand_over(
    run: Facts, loader: dict[str, Any], cause: str, advice: str
) -> None:
    idle = COMPUTING | {"worker_busy_pct": 30.0}
    found = only(judge(run, idle | loader, CPUS, pieces(run, handed=0.99)))
    assert found.cause == cause
    assert advice in " ".join(each.change for each in found.next)
    # The end of each wait for workers that are too slow is no matter of its own.
    assert only(judge(run, COMPUTING | loader, CPUS, pieces(run, handed=0.2))).cause != "input.handoff"


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


def test_a_small_piece_is_told_with_the_largest(run: Facts) -> None:
    found = only(judge(run, COMPUTING, CPUS, pieces(run, filling=0.02, reading=0.03)))
    assert found.cause == "input.too_few_workers"
    assert found.share == pytest.approx(run.parts.share("input"))


def test_nothing_measured_is_a_guess_and_says_so(run: Facts) -> None:
    found = only(judge(run, {}, {}))
    assert found.confidence <= 0.4
    assert "CPU use was not measured" in found.title


def test_no_wait_has_no_cause(run: Facts) -> None:
    parts = dataclasses.replace(run.parts, input_ns=0)
    assert waits_for_data.findings_of(dataclasses.replace(run, parts=parts)) == []


def test_waits_are_a_frozen_sum_of_their_pieces(run: Facts) -> None:
    waits: Waits = dataclasses.replace(run.waits, **pieces(run, starting=0.1, handed=0.3, slow=0.2))
    assert waits.total_ns == run.parts.input_ns


def test_workers_of_a_loader_that_is_made_anew_are_restarted_whatever_its_flag(run: Facts) -> None:
    waits = pieces(run, starting=0.9) | {"epochs": 5, "iterators": 5}
    found = judge(run, COMPUTING, CPUS, waits, persistent_workers=True)
    assert found[0].cause == "input.worker_restart"
    assert "make the DataLoader once" in found[0].next[0].change
    kept = judge(run, COMPUTING, CPUS, waits | {"iterators": 1}, persistent_workers=True)
    assert kept[0].cause == "input.pipeline_fill"


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


def test_large_batches_are_handed_over_however_busy_the_workers_look(run: Facts) -> None:
    large = COMPUTING | {"mean_batch_bytes": 4e7, "sent_bytes_per_batch": 500.0}
    assert only(judge(run, large, CPUS, pieces(run, handed=0.95))).cause == "input.handoff"
    small = COMPUTING | {"mean_batch_bytes": 4e3, "sent_bytes_per_batch": 500.0}
    assert only(judge(run, small, CPUS, pieces(run, handed=0.95))).cause == "input.too_few_workers"


def test_finished_batches_that_nobody_has_a_cpu_to_take_are_no_hand_over(run: Facts) -> None:
    idle = COMPUTING | {"worker_busy_pct": 20.0, "mean_batch_bytes": 4e3, "sent_bytes_per_batch": 400.0}
    queued = {"main_queued_ns": 0.9 * run.parts.input_ns, "machine_cpus": 2}
    waits = pieces(run, handed=1.0)
    others = only(judge(run, idle, FULL | {"tree_cpus": 0.5}, waits, **queued))
    assert others.cause == "input.foreign_load"
    own = only(judge(run, idle, FULL, waits, **queued))
    assert own.cause == "input.cpu_exhausted"
    assert "fewer workers" in own.next[0].change
    assert only(judge(run, idle, CPUS, waits, **queued)).cause == "input.handoff"


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


def test_collected_and_pickled_batches_stay_a_hand_over_beside_busy_threads(run: Facts) -> None:
    gil = Gil(others_busy=0.6, off_cpu_share=0.2, queue_known=True, waited=np.zeros(1), others=np.zeros(1))
    idle = COMPUTING | {"worker_busy_pct": 20.0}
    handed = dataclasses.replace(run.waits, told=1.0, **pieces(run, handed=1.0))
    facts = dataclasses.replace(run, gil=gil, waits=handed)
    pickled = {"mean_batch_bytes": 2e7, "sent_bytes_per_batch": 2e7}
    small = {"mean_batch_bytes": 2e3, "sent_bytes_per_batch": 4e2}
    causes = [
        [each.cause for each in findings_of(dataclasses.replace(facts, loader=LoaderStats(**NOTHING | idle | bytes_)))]
        for bytes_ in (pickled, small)
    ]
    assert causes == [["input.handoff"], ["host.gil"]]


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


def test_starting_workers_costs_cpu_that_is_saved_with_it(run: Facts) -> None:
    """On the processor: the CPUs are full only because each epoch starts new Pythons."""
    waits = pieces(run, starting=1.0) | {"epochs": 5, "iterators": 5}
    full = {"tree_cpus": 1.95, "cpu_budget": 2.0}
    found = only(judge(run, COMPUTING, full, waits, device_kind="cpu", starts_python=True))
    change = found.next[0]
    assert change.predicted_samples_per_s is not None
    assert change.predicted_samples_per_s > 1.3 * run.samples_per_s


def test_what_overkill_gains_leaves_out_that_batches_still_have_to_be_made(run: Facts) -> None:
    waited_ms = run.parts.input_ns / run.window.count / 1e6
    tiny = COMPUTING | {"make_ms_per_sample": 0.1, "work_ms_per_batch": 0.6 * waited_ms, "mean_batch_bytes": 4e3}
    found = only(judge(run, tiny | {"worker_busy_pct": 30.0}, CPUS, pieces(run, handed=1.0)))
    assert found.cause == "input.overkill"
    assert found.share == pytest.approx(run.parts.share("input"))
    saved = run.parts.share("input") * (1 - 0.6 * 0.97)
    assert found.gain == pytest.approx(saved / (1 - saved), rel=0.02)


def test_cpu_that_is_used_up_only_while_batches_are_not_read_is_used_up(run: Facts) -> None:
    """The first epoch reads and leaves the CPUs idle: the mean over the run is no measure of the others."""
    loader = LoaderStats(**NOTHING | COMPUTING)
    mean = FULL | {"tree_cpus": 1.4, "machine_busy_pct": 72.0}
    found = judge(run, COMPUTING | {"read_pct": 45.0}, mean, pieces(run, reading=0.5), loader_unread=loader)
    assert {each.cause for each in found} == {"input.storage", "input.cpu_exhausted"}


def test_finished_batches_of_workers_that_queue_for_cpus_are_no_hand_over(run: Facts) -> None:
    """What sends them queues too."""
    queuing = COMPUTING | QUEUING | {"worker_busy_pct": 75.0, "process_cpu_pct": 100.0, "mean_batch_bytes": 300.0}
    assert only(judge(run, queuing, FULL, pieces(run, handed=0.9), machine_cpus=2)).cause == "input.worker_threads"


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
    assert found.next[0].change.startswith("num_workers=10 (more than CPUs, which they hardly use)")
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
