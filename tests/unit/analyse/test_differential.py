"""Net alone, loader alone, both together; and what augmentation costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from support.cells import NOTHING, Planned, on_processor
from whyidle.analyse.cells.augmentation import augmentations, free_on_one_device
from whyidle.analyse.cells.comparison import Cell
from whyidle.analyse.cells.differential import differentials, verdict_of


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
    [found] = differentials(sides(planned, fetch_ms, compute_ms))
    assert found.limit == limit
    assert found.expected is not None
    assert found.expected.value == pytest.approx(8e3 / step_ms, rel=0.01)
    assert found.agrees
    assert abs(found.deviation or 0) < 0.02
    assert found.reasons == ()


def test_a_loader_without_overlap_takes_the_sum_of_both_on_a_processor(planned: Planned) -> None:
    # What a processor takes for both, one after the other: 30 ms.
    cells = [on_processor(cell, set_workers=0) for cell in sides(planned, 20, 10, measured_ms=30)]
    [found] = differentials(cells)
    assert not found.overlaps
    assert found.expected is not None
    assert found.expected.value == pytest.approx(8e3 / 30, rel=0.01)
    assert found.agrees


def test_cells_without_either_side_are_not_tested_and_with_one_nothing_is_expected(planned: Planned) -> None:
    real, net, _ = sides(planned, 20, 10)
    assert differentials([real]) == ()
    [found] = differentials([real, net])
    assert (found.loader, found.expected, found.deviation, found.limit) == (None, None, None, None)
    assert found.net is not None


@pytest.mark.parametrize("axis", [{"device": "emulated:v100"}, {"net": "cnn1"}, {"ranks": 2}])
def test_the_net_alone_is_that_of_the_same_net_and_device(planned: Planned, axis: dict[str, object]) -> None:
    other = planned.cell(NOTHING, 1, feed="synthetic", **axis)
    assert differentials([planned.cell(5, 10), other]) == ()


@pytest.mark.parametrize("axis", [{"augment": False}, {"store": "lmdb"}, {"workers": 4}, {"net": "inception"}])
def test_the_loader_alone_makes_the_same_batches_in_the_same_way(planned: Planned, axis: dict[str, object]) -> None:
    other = planned.cell(20, NOTHING, feed="loader-only", **axis)
    assert differentials([planned.cell(20, 10), other]) == ()


def test_a_loader_under_another_net_counts_where_batches_weigh_the_same(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 10)
    other = replace(loader, axes=loader.axes | {"net": "cnn1"})
    weighing = [weigh(real, 1000.0), net, weigh(other, 1001.0)]
    assert differentials(weighing)[0].loader is not None
    assert differentials([*weighing[:2], weigh(other, 2000.0)])[0].loader is None


def weigh(cell: Cell, nbytes: float) -> Cell:
    """The same cell with batches of so many bytes."""
    analyses = []
    for each in cell.analyses:
        assert each.facts is not None
        loader = replace(each.facts.loader, mean_batch_bytes=nbytes)
        analyses.append(replace(each, facts=replace(each.facts, loader=loader)))
    return replace(cell, analyses=tuple(analyses))


def using(cell: Cell, cpus: float, budget: float = 2.0, machine_busy_pct: float | None = None) -> Cell:
    """The same cell, as if its processes had kept so many CPUs busy, of a machine that has four."""
    analyses = []
    for each in cell.analyses:
        assert each.facts is not None
        sampled = replace(each.facts.sampled, tree_cpus=cpus, cpu_budget=budget, machine_busy_pct=machine_busy_pct)
        analyses.append(replace(each, facts=replace(each.facts, sampled=sampled, machine_cpus=4)))
    return replace(cell, analyses=tuple(analyses))


def reasons_of(cells: Sequence[Cell]) -> list[str]:
    [found] = differentials(cells)
    assert found.agrees is False
    return [reason.code for reason in found.reasons]


def test_net_and_loader_that_need_more_cpus_than_there_are_explain_a_slower_training(planned: Planned) -> None:
    cells = [on_processor(cell, set_workers=2) for cell in sides(planned, 20, 18, measured_ms=36)]
    busy = [using(cell, 2.0) for cell in cells]
    [found] = differentials(busy)
    assert found.overlaps
    assert reasons_of(busy) == ["cpu_shared"]
    # Each keeps both CPUs busy for its 18 and 20 ms: together 38 ms of them.
    assert "3.8 CPUs; there are 2, enough for 210.5 samples/s" in found.reasons[0].text


def test_a_slower_training_without_any_sign_of_why_is_said_to_be_one(planned: Planned) -> None:
    slower = sides(planned, 20, 5, measured_ms=30)
    assert reasons_of([using(cell, 0.5) for cell in slower]) == ["unknown"]


def test_other_programs_on_a_full_machine_are_named_and_those_on_an_idle_one_are_not(planned: Planned) -> None:
    slower = sides(planned, 20, 5, measured_ms=30)
    assert reasons_of([using(cell, 0.5, machine_busy_pct=99.0) for cell in slower]) == ["foreign_load"]
    assert reasons_of([using(cell, 0.5, machine_busy_pct=30.0) for cell in slower]) == ["unknown"]


def test_samples_that_took_longer_to_make_beside_the_net_are_named(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 5, measured_ms=30)
    assert reasons_of([making(real, 3.7), net, making(loader, 2.5)]) == ["making"]
    assert reasons_of([making(real, 2.6), net, making(loader, 2.5)]) == ["unknown"]


def test_a_net_that_computes_more_slowly_beside_the_loader_is_named(planned: Planned) -> None:
    _, net, loader = sides(planned, 5, 10)
    assert reasons_of([planned.cell(5, 16), net, loader]) == ["computing"]


def making(cell: Cell, ms_per_sample: float) -> Cell:
    """The same cell, as if making a sample had taken so long."""
    analyses = []
    for each in cell.analyses:
        assert each.facts is not None
        loader = replace(each.facts.loader, make_ms_per_sample=ms_per_sample)
        analyses.append(replace(each, facts=replace(each.facts, loader=loader)))
    return replace(cell, analyses=tuple(analyses))


def test_limits_that_are_close_wait_for_each_other(planned: Planned) -> None:
    assert reasons_of([using(cell, 0.5) for cell in sides(planned, 20, 18, measured_ms=24)]) == ["balanced"]


def test_a_training_of_several_phases_is_not_tested(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 10)
    assert differentials([replace(real, axes=real.axes | {"plan": "50"}), net, loader]) == ()


def test_steps_that_do_nothing_have_no_verdict_and_a_batch_from_memory_none_on_a_loader(planned: Planned) -> None:
    real, net, loader = sides(planned, 20, 10)
    starved = planned.cell(20, 10, feed="synthetic")
    assert verdict_of(real) is not None
    assert (verdict_of(loader), verdict_of(starved)) == (None, None)
    compute_bound = verdict_of(net)
    assert compute_bound is not None
    assert compute_bound.cause == "none"


def test_augmentation_is_free_behind_a_slow_device_and_costs_half_on_a_fast_one(planned: Planned) -> None:
    cells = [
        planned.cell(12 if augment else 1, compute_ms, device=device, augment=augment, results=(None, None))
        for device, compute_ms in (("emulated:k80", 44), ("emulated:v100", 8))
        for augment in (False, True)
    ]
    found = augmentations(cells, (), {"dataset": {"samples": 48_000}})
    assert [(each.cell.axes["device"], each.free) for each in found] == [
        ("emulated:k80", True),
        ("emulated:v100", False),
    ]
    assert found[1].cost == pytest.approx(0.5, abs=0.01)
    assert found[1].augmented_s == pytest.approx(48_000 / 8 * 0.012, rel=0.01)
    [(free, dear)] = free_on_one_device(found)
    assert (free.cell, dear.cell) == (cells[1], cells[3])


def test_one_short_run_of_each_makes_no_claim_of_what_augmentation_costs(planned: Planned) -> None:
    cells = [
        planned.cell(12 if augment else 1, compute_ms, device=device, augment=augment)
        for device, compute_ms in (("emulated:k80", 44), ("emulated:v100", 8))
        for augment in (False, True)
    ]
    found = augmentations(cells, (), {"dataset": {"samples": 48_000}})
    assert [(each.sure, each.doubt) for each in found] == [(False, "one run of less than 5 s")] * 2
    assert free_on_one_device(found) == []


def test_the_epochs_of_a_plan_tell_what_augmentation_costs_by_themselves(planned: Planned) -> None:
    # Published times of a V100: 8.1 s and 12.1 s; the first epoch of each kind starts something.
    seconds = [(9.5, False), *[(8.1, False)] * 5, (13.0, True), *[(12.1, True)] * 5]
    epochs = [{"epoch": n, "seconds": s, "augment": augment} for n, (s, augment) in enumerate(seconds)]
    cell = planned.cell(1, 8, results=({"train_s": 150.0, "epochs": epochs, "evaluation": None},), plan="article-50")
    [found] = augmentations([cell], (), {})
    assert (found.plain_s, found.augmented_s) == (8.1, 12.1)
    assert found.sure
    assert found.cost == pytest.approx(0.494, abs=0.001)
    assert not found.free


@pytest.mark.parametrize(
    ("plain", "augmented", "sure"),
    [
        ((9.0, 8.0, 10.0, 8.1), (13.0, 9.9, 12.0, 8.2), False),  # epochs of one kind are as long as some of the other
        ((9.0, 8.0), (13.0, 12.0), False),  # of one epoch each nothing is known of what epochs differ by
        ((9.0, 8.0, 8.2), (13.0, 12.0, 11.0), True),
    ],
)
def test_one_run_is_sure_of_what_augmentation_costs_only_if_its_epochs_are(
    planned: Planned, plain: tuple[float, ...], augmented: tuple[float, ...], sure: bool
) -> None:
    seconds = [*((s, False) for s in plain), *((s, True) for s in augmented)]
    epochs = [{"epoch": n, "seconds": s, "augment": augment} for n, (s, augment) in enumerate(seconds)]
    cell = planned.cell(1, 8, results=({"train_s": 50.0, "epochs": epochs, "evaluation": None},), plan="quick")
    [found] = augmentations([cell], (), {})
    assert found.sure is sure


def test_other_programs_are_not_made_out_of_workers_that_a_short_run_had_no_time_to_see(planned: Planned) -> None:
    short = sides(planned, 2, 0.5, measured_ms=3)
    assert reasons_of([using(cell, 0.5, machine_busy_pct=99.0) for cell in short]) == ["unknown"]
