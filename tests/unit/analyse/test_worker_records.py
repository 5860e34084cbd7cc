"""Batches that workers recorded, joined to the steps that consumed them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.crafted import records_of
from whyidle.analyse.run.loader_stats import WAITING, WAITING_FOR_CPU, LoaderStats, loader_of
from whyidle.analyse.run.window import Window
from whyidle.analyse.run.worker_records import (
    HandedOver,
    first_later_end,
    handed_over_of,
    joined,
    of_training,
    places_of,
    slowest_of,
    transforms_of,
)
from whyidle.record.reader import Records
from whyidle.record.schema import BATCH, CONTENT, NOT_MEASURED, STEP, TRANSFORM, Kind

MS = 1_000_000
PASS = 1 << 32


def steps(*fetches: tuple[int, int, int, int]) -> Records:
    """(loader, batch, fetch begin, fetch end in ms)"""
    return records_of(
        STEP,
        [
            {"skipped": 0, "step": number, "loader": loader, "batch": batch, "step_end_ns": (end + 1) * MS}
            | {"fetch_begin_ns": begin * MS, "fetch_end_ns": end * MS}
            for number, (loader, batch, begin, end) in enumerate(fetches)
        ],
    )


def batch(loader: int, number: int, begin: float, end: float, worker: int = 0, **more: int) -> dict[str, Any]:
    times = {"begin_ns": int(begin * MS), "end_ns": int(end * MS)}
    return {"loader": loader, "batch": number, "worker": worker, "threads": 1, "samples": 4} | times | more


def loader(recorded: Records, end_ms: int, *batches: dict[str, Any]) -> LoaderStats:
    return loader_of(window(recorded, end_ms), of_training(rows(BATCH, *batches), recorded))


def rows(kind: Kind, *told: dict[str, Any]) -> Records:
    return records_of(kind, told)


def window(recorded: Records, end_ms: int) -> Window:
    return Window(int(recorded["fetch_begin_ns"][0]), end_ms * MS, recorded, 0, recorded)


def test_batches_find_their_step_by_loader_pass_and_number() -> None:
    recorded = steps((1, 0, 0, 1), (1, 1, 2, 3), (1, PASS, 4, 5), (2, 0, 6, 7))
    made = rows(BATCH, batch(2, 0, 0, 1), batch(1, PASS, 0, 1), batch(1, 0, 0, 1), batch(1, 1, 0, 1))
    assert of_training(made, recorded)["step"].tolist() == [3, 2, 0, 1]


def test_loaders_of_a_validation_are_left_out_and_batches_for_nobody_kept_without_a_step() -> None:
    recorded = steps((1, 0, 0, 1))
    made = rows(BATCH, batch(7, 0, 0, 1), batch(1, 0, 0, 1), batch(1, 5, 0, 1), {"step": 0, "worker": 0})
    found = of_training(made, recorded)
    assert found["loader"].tolist() == [1, 1, NOT_MEASURED]
    assert found["step"].tolist() == [0, NOT_MEASURED, 0]


def test_no_step_of_a_loader_leaves_none_of_its_batches() -> None:
    recorded = steps((NOT_MEASURED, NOT_MEASURED, 0, 1))
    assert len(of_training(rows(BATCH, batch(1, 0, 0, 1)), recorded)) == 0


def test_of_later_batches_of_a_pass_the_first_that_was_finished_counts() -> None:
    far = np.iinfo(np.int64).max
    made = rows(BATCH, batch(1, 0, 0, 10), batch(1, 2, 10, 12), batch(1, 1, 5, 30, 1), batch(1, 3, 12, 40))
    assert first_later_end(made).tolist() == [12 * MS, 40 * MS, 12 * MS, far]
    assert first_later_end(rows(BATCH, {"step": 0, "worker": 0, "end_ns": 5})).tolist() == [far]


def test_what_nobody_recorded_of_short_batches_counts_as_work() -> None:
    recorded = steps((1, 0, 0, 10), (1, 9, 90, 100))
    left_out = {"skipped": 8, "skipped_samples": 32, "skipped_ns": 72 * MS}
    found = loader(recorded, 100, batch(1, 0, 0, 10), batch(1, 9, 90, 100, **left_out))
    assert found.worker_busy_pct == pytest.approx(92)
    assert found.samples_per_s_limit == pytest.approx(40 / 0.092)
    assert found.make_ms_per_sample == pytest.approx(92 / 40)


def test_shares_are_of_the_batches_for_which_they_were_measured() -> None:
    told = {"read_ns": 5 * MS, "collate_ns": 1 * MS, "cpu_ns": 4 * MS, "run_queue_ns": 1 * MS, "transform_ns": 3 * MS}
    batches = batch(1, 0, 0, 10, **told), batch(1, 1, 10, 30, cpu_ns=20 * MS)
    found = loader(steps((1, 0, 0, 10), (1, 1, 10, 30)), 31, *batches)
    shares = (found.read_pct, found.transform_pct, found.cpu_pct, found.prep_pct)
    assert shares == pytest.approx((50, 30, 80, 40))
    assert found.costliest == "reading"


def test_waiting_is_a_stage_of_its_own_and_the_stages_sum_to_all() -> None:
    recorded = steps((1, 0, 0, 10), (1, 1, 10, 20))
    told = {"read_ns": 0, "collate_ns": 1 * MS, "cpu_ns": 2 * MS, "run_queue_ns": 1 * MS}
    found = loader(recorded, 21, batch(1, 0, 0, 10, **told), batch(1, 1, 10, 20, **told))
    stages = {WAITING: 70, WAITING_FOR_CPU: 10, "preparing samples": 10}
    assert {name: found.stages[name] for name in stages} == pytest.approx(stages)
    # Nothing is made while waiting.
    assert found.costliest in ("preparing samples", "collating")
    # More waiting than the samples took: it happened in collating.
    slow = loader(recorded, 21, batch(1, 0, 0, 10, **told | {"collate_ns": 9 * MS}))
    assert slow.stages["collating"] == pytest.approx(20)
    for each in (found, slow):
        assert sum(share or 0 for share in each.stages.values()) == pytest.approx(100)


def test_transforms_are_compared_with_the_batches_in_which_they_were_timed() -> None:
    recorded = steps((1, 0, 0, 10), (1, 1, 10, 30))
    timed, untimed = batch(1, 0, 0, 8, transform_ns=2 * MS), batch(1, 1, 10, 30)
    found = loader(recorded, 31, timed, untimed).timed
    assert found is not None
    assert (found.samples, found.ms_per_sample, found.transforms_ms_per_sample) == (4, 2.0, 0.5)
    assert loader(recorded, 31, untimed).timed is None


def test_slow_samples_are_listed_once_with_their_file() -> None:
    made = rows(
        BATCH,
        {"slowest_index": 3, "slowest_ns": 5 * MS},
        {"slowest_index": 3, "slowest_ns": 9 * MS, "slowest_name": 77},
        {"slowest_index": 4, "slowest_ns": 7 * MS},
        {},
    )
    slow = slowest_of(made, {77: "three.jpg"})
    assert [(s.index, s.ms, s.file) for s in slow] == [(3, 9.0, "three.jpg"), (4, 7.0, None)]


numbers = st.lists(st.integers(0, 12), max_size=12)


@given(numbers, numbers, st.booleans())
def test_places_are_the_first_of_each_number(wanted: list[int], among: list[int], in_order: bool) -> None:
    among = sorted(set(among)) if in_order else among
    asked = np.array([*wanted, NOT_MEASURED], dtype=np.int64)
    expected = [*(among.index(each) if each in among else -1 for each in wanted), -1]
    assert places_of(asked, np.array(among, dtype=np.int64)).tolist() == expected
    ours, theirs = (np.array(each, dtype=[("step", "i8")]) for each in (sorted(set(among)), wanted))
    _, place, batch = np.intersect1d(ours["step"], theirs["step"], return_indices=True)
    assert [each.tolist() for each in joined(ours, theirs)] == [place.tolist(), batch.tolist()]


def test_a_transform_costs_the_same_whoever_measured_it() -> None:
    told = {"name": 5, "position": 0, "samples": 4, "worker": 0}
    measured = rows(
        TRANSFORM,
        told | {"total_ns": 8 * MS},
        told | {"total_ns": 16 * MS, "worker": 1},
        told | {"name": 6, "position": 1, "total_ns": 4 * MS},
    )
    costs = transforms_of(measured, {5: "Resize", 6: "Flip"})
    assert [(c.name, c.calls, c.ms_per_call) for c in costs] == [("Resize", 8, 3.0), ("Flip", 4, 1.0)]


def told_by_workers(field: str, *values: dict[str, int]) -> Any:
    batch = {"step": 0, "begin_ns": 0, "end_ns": MS, "samples": 8, "threads": 1, "skipped": 0, "skipped_ns": 0}
    made = rows(BATCH, *(batch | {"worker": number} | each for number, each in enumerate(values)))
    return getattr(loader_of(window(steps((1, PASS, 0, 1)), 1), made), field)


@pytest.mark.parametrize(
    ("sets", "cpus"),
    [
        ([(0, 2), (2, 2), (4, 2), (6, 2)], 8),
        ([(0, 32), (32, 32), (0, 32), (32, 32)], 64),
        ([(0, 1), (3, 1), (0, 1)], 2),
        ([(0, 4), (2, 4)], 6),
        ([(0, 8), (0, 2)], 8),
        ([(5, 1)] * 4, 1),
    ],
)
def test_the_cpus_of_the_workers_are_counted_once_however_they_are_divided(
    sets: list[tuple[int, int]], cpus: int
) -> None:
    assert told_by_workers("cpus", *({"first_cpu": first, "cpus": count} for first, count in sets)) == cpus


def test_batches_that_workers_did_not_record_count_for_how_evenly_they_are_divided() -> None:
    """One worker recorded each of its 20 batches, the others one of ten."""
    one = [{"worker": 0}] * 20
    others = [{"worker": worker, "skipped": 9} for worker in (1, 2, 3) for _ in range(2)]
    assert told_by_workers("even_workers", *one, *others) == pytest.approx(4)
    assert told_by_workers("even_workers", *one) == pytest.approx(1)
    assert told_by_workers("even_workers", *one, {"worker": 1, "skipped": NOT_MEASURED}) == pytest.approx(1.1, abs=0.01)


def test_what_batches_consist_of_is_the_mean_of_those_of_the_loaders_that_train() -> None:
    held = {"tensors": 1200, "tensor_bytes": 57_600, "objects": 4, "object_bytes": 100}
    contents = rows(
        CONTENT,
        {"loader": 1} | held,
        {"loader": 1} | held | {"tensors": 1206},
        {"loader": 2} | held | {"tensors": 1},  # a validation's
        {"loader": 1},  # recorded before that was counted, or too large
    )
    told = handed_over_of(contents, steps((1, 0, 0, 1)))
    assert told == HandedOver(1203, 57_600, 4, 100)
    assert told.bytes_of_tensor == pytest.approx(57_600 / 1203)
    assert handed_over_of(contents[2:], steps((1, 0, 0, 1))) is None
    assert HandedOver(0, 0, 3, 30).bytes_of_tensor == 0
