"""Rules of the wait for data that a piece of it speaks for: first batches, slow samples, batches handed over."""

from __future__ import annotations

import dataclasses
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
from whyidle.analyse.run.divided_time import Gil
from whyidle.analyse.run.exposed_data_wait import Shape, Slow, Spread, Waits
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.loader_stats import LoaderStats
from whyidle.analyse.run.worker_records import HandedOver
from whyidle.scenarios.planted import MS


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    return waiting_for_data(tmp_path_factory.mktemp("run") / "run")


def test_beginnings_of_epochs_are_told_from_supply(run: Facts) -> None:
    waits = pieces(run, starting=0.5, filling=0.2) | {"epochs": 5, "batches_per_epoch": 20.0}
    found = judge(run, COMPUTING, CPUS, waits, persistent_workers=False, starts_python=True)
    shares = {each.cause: each.share / run.parts.share("input") for each in found}
    expected = {"input.worker_restart": 0.5, "input.pipeline_fill": 0.2, "input.too_few_workers": 0.3}
    assert shares == pytest.approx(expected, abs=0.001)
    assert "persistent_workers=True" in found[0].next[0].change
    # What starts workers anew is offered wherever it is in the evidence, before longer epochs.
    restart, fill = (
        {each.cause: each for each in found}[f"input.{name}"] for name in ("worker_restart", "pipeline_fill")
    )
    for each in (restart, fill):
        assert "off" in {one.value for one in each.evidence if one.what.startswith("persistent")}
        assert each.next[0].change.startswith("persistent_workers=True")
        assert each.next[0].settings == {"persistent_workers": True}
        assert each.next[0].speedup is not None
    assert "longer epochs" in fill.next[1].change
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
    ("loader", "held", "title", "changes"),
    [
        ({}, HandedOver(1203, 1203 * 48, 0, 0), "as 1,203 tensors of 48 bytes", ["fewer, larger tensors"]),
        ({}, HandedOver(64, 64 * 1e6, 0, 0), "as 64 tensors of 1,000,000 bytes", ["fewer, larger", "fewer bytes"]),
        ({}, HandedOver(2, 2e7, 5, 100), "to training.", ["fewer bytes"]),
        (
            {"mean_batch_bytes": 8192.0, "work_ms_per_batch": 3.0},
            HandedOver(2, 8192, 0, 0),
            "all of 8,192 bytes",
            ["index whole batches at once in the training process"],
        ),
        ({}, HandedOver(1, 8, 12_034, 0), "as 12,034 Python objects", ["a few tensors instead of many Python objects"]),
        (
            {"sent_bytes_per_batch": 2e7},
            HandedOver(0, 0, 3, 2e7),
            "pickled, through a pipe",
            ["torch tensors instead of numpy", "fewer bytes"],
        ),
        ({}, None, "to training.", ["fewer bytes", "fewer, larger tensors"]),
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
    shown = {each.what: each.value for each in found.evidence}
    assert shown.get("tensors in a batch") == (None if held is None else held.tensors)
    assert shown.get("other Python objects in a batch") == (None if held is None else held.objects)


@pytest.mark.parametrize(
    ("held", "batch_ms", "cause"),
    [
        (HandedOver(3, 3e3, 0, 0), 2.5, "input.overkill"),
        (HandedOver(114, 114 * 48, 0, 0), 2.5, "input.handoff"),
        (HandedOver(1, 8, 5000, 0), 2.5, "input.handoff"),
        (HandedOver(114, 114 * 48, 0, 0), 0.3, "input.overkill"),
    ],
)
def test_tiny_samples_that_are_worth_a_worker_are_to_be_handed_over_in_fewer_pieces(
    run: Facts, held: HandedOver, batch_ms: float, cause: str
) -> None:
    tiny = {"make_ms_per_sample": 0.01, "work_ms_per_batch": batch_ms, "mean_batch_bytes": 4e3}
    loader = COMPUTING | tiny | {"worker_busy_pct": 30.0}
    assert only(judge(run, loader, CPUS, pieces(run, handed=0.99), handed=held)).cause == cause


def test_a_small_piece_is_told_with_the_largest(run: Facts) -> None:
    found = only(judge(run, COMPUTING, CPUS, pieces(run, filling=0.02, reading=0.03)))
    assert found.cause == "input.too_few_workers"
    assert found.share == pytest.approx(run.parts.share("input"))


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


@pytest.mark.parametrize(("piece", "cause"), [("starting", "input.worker_restart"), ("filling", "input.pipeline_fill")])
def test_a_loop_that_leaves_its_iterators_after_a_batch_is_told_to_keep_one(run: Facts, piece: str, cause: str) -> None:
    few = {"epochs": 90, "iterators": 90, "batches_per_epoch": 1.0, "left_early": 0.97}
    found = judge(run, COMPUTING, CPUS, pieces(run, **{piece: 0.9}) | few, persistent_workers=False)[0]
    assert (found.cause, found.next[0].kind) == (cause, "once")
    assert "the loop takes 1 batch of each and begins anew" in found.title
    assert "next(batches)" in found.next[0].change
    for whole in (few | {"left_early": 0.1}, few | {"left_early": None}, few | {"batches_per_epoch": 40.0}):
        other = judge(run, COMPUTING, CPUS, pieces(run, **{piece: 0.9}) | whole, persistent_workers=False)[0]
        assert (other.cause, other.next[0].kind) == (cause, "settings")


def test_large_batches_are_handed_over_however_busy_the_workers_look(run: Facts) -> None:
    large = COMPUTING | {"mean_batch_bytes": 4e7, "sent_bytes_per_batch": 500.0}
    assert only(judge(run, large, CPUS, pieces(run, handed=0.95))).cause == "input.handoff"
    small = COMPUTING | {"mean_batch_bytes": 4e3, "sent_bytes_per_batch": 500.0}
    assert only(judge(run, small, CPUS, pieces(run, handed=0.95))).cause == "input.too_few_workers"


@pytest.mark.parametrize(("seen", "cause"), [(0.9, "input.too_few_workers"), (0.3, "input.handoff")])
def test_workers_that_are_seen_to_make_batches_meanwhile_are_what_is_waited_for(
    run: Facts, seen: float, cause: str
) -> None:
    large = COMPUTING | {"mean_batch_bytes": 50e6}
    waits = pieces(run, handed=0.95)
    assert only(judge(run, large, CPUS, waits, making_seen=seen)).cause == cause


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


def test_a_wait_is_no_hand_over_where_moving_so_few_bytes_takes_a_part_of_it(run: Facts) -> None:
    """By the bytes of a batch and how long each step waits."""
    queued = {"main_queued_ns": 0.9 * run.parts.input_ns, "machine_cpus": 2}
    waits, waited_s = pieces(run, handed=1.0), run.parts.input_ns / run.window.count / 1e9
    idle = COMPUTING | {"worker_busy_pct": 20.0, "sent_bytes_per_batch": 400.0}
    for share, cause in ((0.4, "input.cpu_exhausted"), (0.6, "input.handoff")):
        moved = idle | {"mean_batch_bytes": share * waited_s * 1e9}
        assert only(judge(run, moved, FULL, waits, **queued)).cause == cause


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


def test_finished_batches_of_workers_that_queue_for_cpus_are_no_hand_over(run: Facts) -> None:
    """What sends them queues too."""
    queuing = COMPUTING | QUEUING | {"worker_busy_pct": 75.0, "process_cpu_pct": 100.0, "mean_batch_bytes": 300.0}
    assert only(judge(run, queuing, FULL, pieces(run, handed=0.9), machine_cpus=2)).cause == "input.worker_threads"
