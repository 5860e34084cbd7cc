"""Net alone, loader alone, both together; and what augmentation costs."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from typing import Any

import pytest

from support.cells import NOTHING, Planned, on_processor, with_facts
from whyidle.analyse.cells.comparison import Cell
from whyidle.analyse.cells.studies import augmentations, differentials, free_on_one_device


def sides(planned: Planned, fetch_ms: float, compute_ms: float, measured_ms: float | None = None) -> list[Cell]:
    """A training, its net alone and its loader alone; `measured_ms`: what its fetches took instead."""
    return [
        planned.cell(measured_ms or fetch_ms, compute_ms),
        planned.cell(NOTHING, compute_ms, feed="synthetic", pipeline="naive", augment=False, workers=0),
        planned.cell(fetch_ms, NOTHING, feed="loader-only", device="emulated:v100", net="vgg"),
    ]


@pytest.mark.parametrize(
    ("fetch_ms", "compute_ms", "limit", "step_ms"), [(20, 10, "loader", 20), (5, 10, "net", 10), (10, 10, "both", 10)]
)
def test_on_a_device_the_slower_of_the_two_sets_the_pace(
    planned: Planned, fetch_ms: float, compute_ms: float, limit: str, step_ms: float
) -> None:
    [found] = differentials(sides(planned, fetch_ms, compute_ms), {})
    assert found.limit == limit
    assert found.expected.value == pytest.approx(8e3 / step_ms, rel=0.01)
    assert found.agrees
    assert abs(found.deviation_pct) < 2
    assert found.reasons == ()


def test_a_loader_without_overlap_takes_the_sum_of_both_on_a_processor(planned: Planned) -> None:
    # What a processor takes for both, one after the other: 30 ms.
    cells = [on_processor(cell, set_workers=0) for cell in sides(planned, 20, 10, measured_ms=30)]
    [found] = differentials(cells, {})
    assert not found.overlaps
    assert found.expected.value == pytest.approx(8e3 / 30, rel=0.01)
    assert found.agrees


def test_with_one_side_alone_nothing_is_expected(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 10)
    [found] = differentials([real, net], {})
    assert (found.loader_alone, found.expected, found.agrees, found.limit) == (None, None, None, None)
    assert found.net_alone is not None
    assert differentials([real], {}) == ()
    # A training of several phases.
    assert differentials([replace(real, axes=real.axes | {"plan": "50"}), net, loader], {}) == ()


@pytest.mark.parametrize(
    ("feed", "axis"),
    [
        *(("synthetic", axis) for axis in ({"device": "emulated:v100"}, {"net": "cnn1"}, {"ranks": 2})),
        *(("loader-only", axis) for axis in ({"augment": False}, {"store": "lmdb"}, {"workers": 4}, {"net": "cnn1"})),
    ],
)
def test_what_is_alone_is_of_the_same_training(planned: Planned, feed: str, axis: dict[str, Any]) -> None:
    fetch_ms, compute_ms = (NOTHING, 1) if feed == "synthetic" else (20, NOTHING)
    assert differentials([planned.cell(5, 10), planned.cell(fetch_ms, compute_ms, feed=feed, **axis)], {}) == ()


def test_a_loader_under_another_net_counts_where_batches_weigh_the_same(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 10)
    other = replace(loader, axes=loader.axes | {"net": "cnn1"})
    weighing = [weigh(real, 1000.0), net, weigh(other, 1001.0)]
    assert differentials(weighing, {})[0].loader_alone is not None
    assert differentials([*weighing[:2], weigh(other, 2000.0)], {})[0].loader_alone is None


def known(cell: Cell, sampled: dict[str, Any] | None = None, **of_loader: float) -> Cell:
    """The same cell, as if that had been seen of its host and of its loader; the machine has four CPUs."""
    [facts] = cell.facts
    seen, loader = replace(facts.sampled, **sampled or {}), replace(facts.loader, **of_loader)
    return with_facts(cell, sampled=seen, machine_cpus=4, loader=loader)


def weigh(cell: Cell, nbytes: float) -> Cell:
    return known(cell, mean_batch_bytes=nbytes)


def using(cell: Cell, cpus: float, machine_busy_pct: float = nan) -> Cell:
    """Its processes kept so many CPUs busy, of the two that they may use."""
    return known(cell, {"tree_cpus": cpus, "cpu_budget": 2.0, "machine_busy_pct": machine_busy_pct})


def test_net_and_loader_that_need_more_cpus_than_there_are_explain_a_slower_training(planned: Planned) -> None:
    cells = [on_processor(cell, set_workers=2) for cell in sides(planned, 20, 18, measured_ms=36)]
    [found] = differentials([using(cell, 2.0) for cell in cells], {})
    assert found.overlaps
    assert (found.agrees, [reason.code for reason in found.reasons]) == (False, ["cpu_shared"])
    # Each keeps both CPUs busy for its 18 and 20 ms: together 38 ms of them.
    assert "3.8 CPUs; there are 2, enough for 210.5 samples/s" in found.reasons[0].text


@pytest.mark.parametrize(
    ("times", "busy_pct", "making_ms", "code"),
    [
        ((20, 5, 30), nan, None, "unknown"),
        ((20, 5, 30), 99.0, None, "foreign_load"),
        ((20, 5, 30), 30.0, None, "unknown"),
        ((20, 5, 30), nan, 3.7, "making"),
        ((20, 5, 30), nan, 2.6, "unknown"),
        ((20, 18, 24), nan, None, "balanced"),
        ((2, 0.5, 3), 99.0, None, "unknown"),  # workers that a short run had no time to see are no other programs
    ],
)
def test_a_slower_training_has_a_reason_where_there_is_a_sign_of_one(
    planned: Planned, times: tuple[float, float, float], busy_pct: float | None, making_ms: float | None, code: str
) -> None:
    real, net, loader = (using(cell, 0.5, busy_pct) for cell in sides(planned, *times))
    if making_ms is not None:
        real, loader = known(real, make_ms_per_sample=making_ms), known(loader, make_ms_per_sample=2.5)
    [found] = differentials([real, net, loader], {})
    assert (found.agrees, [reason.code for reason in found.reasons]) == (False, [code])


def test_a_net_that_computes_more_slowly_beside_the_loader_is_named(planned: Planned) -> None:
    _, net, loader = sides(planned, 5, 10)
    [found] = differentials([planned.cell(5, 16), net, loader], {})
    assert (found.agrees, [reason.code for reason in found.reasons]) == (False, ["computing"])


def test_steps_that_do_nothing_have_no_verdict_and_a_batch_from_memory_none_on_a_loader(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 10)
    starved = planned.cell(20, 10, feed="synthetic")
    assert real.verdict is not None
    assert (loader.verdict, starved.verdict) == (None, None)
    assert net.verdict is not None
    assert net.verdict.cause == "none"


def test_one_short_run_of_each_makes_no_claim_of_what_augmentation_costs(planned: Planned) -> None:
    cells = [planned.cell(12 if augment else 1, 8, augment=augment) for augment in (False, True)]
    found = augmentations(cells, (), {"dataset": {"samples": 48_000}})
    assert [(each.sure, each.doubt) for each in found] == [(False, "one run of less than 5 s")]
    assert found[0].cost_pct == pytest.approx(50, abs=1)
    assert found[0].augmented_epoch_s == pytest.approx(48_000 / 8 * 0.012, rel=0.01)
    assert free_on_one_device(found) == []


@pytest.mark.parametrize(
    ("plain", "augmented", "sure"),
    [
        # Published times of a V100; the first epoch of each kind starts something.
        ((9.5, *[8.1] * 5), (13.0, *[12.1] * 5), True),
        ((9.0, 8.0, 10.0, 8.1), (13.0, 9.9, 12.0, 8.2), False),  # epochs of one kind are as long as some of the other
        ((9.0, 8.0), (13.0, 12.0), False),  # of one epoch each nothing is known of what epochs differ by
        ((9.0, 8.0, 8.2), (13.0, 12.0, 11.0), True),
    ],
)
def test_the_epochs_of_a_plan_tell_what_augmentation_costs_by_themselves(
    planned: Planned, plain: tuple[float, ...], augmented: tuple[float, ...], sure: bool
) -> None:
    seconds = [*((s, False) for s in plain), *((s, True) for s in augmented)]
    epochs = [{"epoch": n, "seconds": s, "augment": augment} for n, (s, augment) in enumerate(seconds)]
    cell = planned.cell(1, 8, results=({"train_s": 150.0, "epochs": epochs, "evaluation": None},), plan="quick")
    [found] = augmentations([cell], (), {})
    assert (found.sure, found.free) == (sure, False)
    if len(plain) == 6:
        assert (found.plain_epoch_s, found.augmented_epoch_s) == (8.1, 12.1)
        assert found.cost_pct == pytest.approx(49.4, abs=0.1)
