"""What cells of a comparison say together: places, results and limits; net and loader alone and both; augmentation;
ranks."""

from __future__ import annotations

import re
from dataclasses import replace
from math import nan
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.cells import NOTHING, Planned, cell_of_analyses, on_processor, training_result, with_facts, with_info
from support.jobs import Rank, analysed, record
from whyidle.analyse.cells.comparison import Cell, cell_of, compare, round_of
from whyidle.analyse.cells.studies import (
    Curve,
    Roofline,
    augmentations,
    differentials,
    free_on_one_device,
    metrics_by_batch_size,
    of_limit,
    results,
    rooflines,
    scaling,
)
from whyidle.analyse.ranks.figures import rate_of
from whyidle.analyse.statistics import Range
from whyidle.matrix.ceilings import add_round
from whyidle.record.comparison import CellRecord
from whyidle.report.contract import comparison as compare_json
from whyidle.report.documents.comparison import curve_names
from whyidle.report.plot import RANKS, save_picture
from whyidle.scenarios.planted import Step, train

# Places, results, limits.


PAGES = Path(__file__).parents[3] / "docs" / "commands"


def cell(batch_size: int = 8, pipeline: str = "torch", **axes: Any) -> Cell:
    return Cell(pipeline, batch_size, "ok", None, axes=axes)


def test_places_are_told_apart_by_what_they_are_and_need_not_be_hashable() -> None:
    cells = [cell(plan=["a"]), cell(plan=["b"]), cell(16, plan=["a"]), cell(net=1), cell(net=True), cell(net=None)]
    assert [len(group.cells) for group in compare(cells).groups] == [2, 1, 1, 1, 1]


def test_runs_that_are_gone_are_told_and_the_others_count_in_their_rounds(tmp_path: Path) -> None:
    for number in (0, 2):
        train(tmp_path / f"naive-b8-r{number}", [[Step()] * 40])
    cell = cell_of(tmp_path, CellRecord("naive", 8, "ok", None, tuple(f"naive-b8-r{number}" for number in range(3))))
    assert cell.error == "1 of its runs is no longer there"
    assert [row.round for row, _ in cell.counted] == [0, 2]
    assert [row.round for row in cell.rows] == [0, 1, 2]
    # A folder that was named by hand tells none.
    assert (round_of("caffe-b16-r12"), round_of("kept"), round_of("my-run")) == (12, None, None)


@pytest.mark.parametrize(
    ("small", "large", "says"),
    [
        ((0.700, 0.720), (0.705, 0.700), True),  # as much as repeats differ
        ((0.700, 0.702), (0.690, 0.691), False),
        ((0.700, 0.700), (0.695, 0.695), True),  # less than anybody would call a fall
        ((0.650,), (0.700,), True),
        ((0.700,), (0.650,), None),  # nothing was repeated
    ],
)
def test_accuracy_held_where_it_fell_by_no_more_than_repeats_differ(
    planned: Planned, small: tuple[float, ...], large: tuple[float, ...], says: bool | None
) -> None:
    cells = [
        planned.cell(1, 2, batch_size=size, results=tuple(map(training_result, of_runs)))
        for size, of_runs in ((64, large), (8, small))
    ]
    [found] = metrics_by_batch_size(results(cells))
    assert found.metric == "accuracy"  # a loss is no merit
    assert [cell.batch_size for cell in found.cells] == [8, 64]
    assert found.held is says


@pytest.mark.parametrize(
    ("accuracies", "more", "learnt"),
    [
        ((0.15, 0.12), {"classes": [str(n) for n in range(10)]}, False),
        ((0.85, 0.12), {"classes": [str(n) for n in range(10)]}, True),
        ((0.55, 0.52), {"confusion": [[5, 5], [4, 6]]}, False),
        ((0.80, 0.52), {"confusion": [[8, 2], [2, 8]]}, True),
        ((0.04, 0.042), {"average_precision": 0.04, "recall": 0.6}, False),
    ],
)
def test_whether_nets_learnt_is_judged_by_what_chance_gives(
    planned: Planned, accuracies: tuple[float, float], more: dict[str, Any], learnt: bool
) -> None:
    cells = [
        planned.cell(1, 2, batch_size=size, results=(training_result(accuracy, **more),))
        for size, accuracy in zip((8, 16), accuracies, strict=True)
    ]
    assert {each.learnt for each in metrics_by_batch_size(results(cells))} == {learnt}


def part(name: str, kind: str, one: float, every: float) -> dict[str, Any]:
    return {"name": name, "kind": kind, "one": [one], "all": [every]}


READ, DECODE = part("read", "making", 1000, 2000), part("decode", "making", 250, 500)


def told(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"place": {}, "decoder": "d", "transformer": "t", "cores": 2, "parts": list(parts)}


def limit(*parts: dict[str, Any]) -> Roofline:
    [found] = rooflines({"roofline": [told(*parts)]})
    return found


@pytest.mark.parametrize(
    ("more", "every", "bound_by"),
    [
        ([], 400, "making"),  # of 0.5 ms and 2 ms
        ([part("copy", "beside", 900, 900)], 400, "making"),
        ([part("copy", "beside", 300, 300)], 300, "copy"),
        ([part("collate", "aside", 1, 1)], 400, "making"),
        ([part("collate", "stored", 1, 1)], 400, "making"),
    ],
)
def test_times_of_what_a_core_does_add_up_what_goes_on_beside_only_bounds_them_and_the_rest_does_not_count(
    more: list[dict[str, Any]], every: float, bound_by: str
) -> None:
    found = limit(READ, DECODE, *more)
    assert (found.one_core, found.limit, found.bound_by) == (pytest.approx(200), pytest.approx(every), bound_by)
    assert [each.name for each in found.parts] == ["read", "decode", *(each["name"] for each in more)]


def test_rounds_are_taken_together_by_their_medians() -> None:
    parts: list[dict[str, Any]] = []
    for rate in (100.0, 900.0, 200.0):
        add_round(parts, [{"name": "read", "kind": "making", "one": rate, "all": 2 * rate}])
    found = limit(*parts)
    [read] = found.parts
    assert (read.one_core.value, read.one_core.low, read.one_core.high, found.limit) == (200, 100, 900, 400)


def test_what_was_done_not_once_is_no_part() -> None:
    """Longer than the time it was given, or refused."""
    assert rooflines({"roofline": [told(part("read", "making", 0, 0)), told()]}) == rooflines({}) == []


def test_a_cell_is_held_against_the_limit_of_its_own_samples(tmp_path: Path) -> None:
    [found] = rooflines({"roofline": [told(READ, DECODE) | {"place": {"augment": False}}]})
    planned = Planned(tmp_path)
    of_these = planned.cell(40, NOTHING, augment=False)  # 8 samples in 40 ms
    others = planned.cell(40, NOTHING, augment=True)
    synthetic = planned.cell(40, NOTHING, augment=False, feed="synthetic")
    assert found.share(of_these) == of_limit(of_these, [found]) == pytest.approx(200 / 400, rel=0.01)
    assert [found.share(each) for each in (others, synthetic)] == [None, None]
    assert [cell for _, cell in found.reached([synthetic, others, of_these])] == [of_these]
    assert found.share(replace(of_these, status="failed")) is None


def test_the_page_of_the_command_names_the_keys_of_its_json() -> None:
    told_beside = dict.fromkeys(("what", "dataset", "size", "batch_size", "rounds", "notices"))
    made = compare_json.roofline(limit(READ, DECODE), told_beside)
    keys = {*made, *made["parts"][0], *made["parts"][0]["one_core"]}
    [shape] = re.findall(r'```\n(\{"format".*?)```', (PAGES / "roofline.md").read_text(), re.DOTALL)
    values = {"whyidle-roofline", "making", "beside", "stored", "aside"}
    assert set(re.findall(r'"([\w-]+)"', shape)) - values == keys


def test_runs_of_one_round_on_two_machines_are_no_block(planned: Planned) -> None:
    """A drift of one machine hits the sizes that ran on it alone, so it cannot be told from what the size does."""
    small, large = (planned.cell(1, 1.0 * size, batch_size=size, results=(None,) * 3) for size in (8, 16))
    [together] = compare([small, large]).batch_verdicts.values()
    [apart] = compare(
        [with_info(small, host={"name": "alpha"}), with_info(large, host={"name": "beta"})]
    ).batch_verdicts.values()
    nameless = [replace(c, rows=tuple(replace(row, round=None) for row in c.rows)) for c in (small, large)]
    [unknown] = compare(nameless).batch_verdicts.values()
    assert apart.changes == unknown.changes != together.changes


# Net alone, loader alone, both together; and what augmentation costs.


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


# Speed-up and efficiency over the number of ranks.


def of_ranks(ranks: int, size: int, *rates: float, status: str = "ok", pipeline: str = "workers", **axes: Any) -> Cell:
    job = [SimpleNamespace(samples_per_s=rate, waiting_share=0.125) for rate in rates]
    analyses = tuple(cast(Any, SimpleNamespace(job=each, facts=None, info={})) for each in job)
    known = {"pipeline": pipeline, "batch_size": size, "status": status, "error": "no room" if status != "ok" else None}
    return cell_of_analyses(analyses, {"device": "cuda", "ranks": ranks} | axes, **known)


def curves(*cells: Cell) -> list[Curve]:
    return scaling(cells)


def values(curve: Curve) -> list[float | None]:
    return [None if point.speedup is None else point.speedup.value for point in curve.points]


def test_cells_of_one_number_of_ranks_do_not_scale() -> None:
    assert scaling([of_ranks(2, 8, 10.0), of_ranks(2, 16, 10.0)]) == scaling([Cell("workers", 8, "ok", None)]) == []


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([of_ranks(4, 8, 320.0), of_ranks(1, 8, 100.0), of_ranks(2, 8, 190.0)], [("per rank", 8, [1.0, 1.9, 3.2])]),
        (
            [of_ranks(1, 16, 100.0), of_ranks(1, 8, 80.0), of_ranks(2, 8, 150.0)],
            [("per rank", 8, [1.0, 150 / 80]), ("total", 16, [1.0, 1.5])],
        ),
        ([of_ranks(1, 16, 10.0), of_ranks(2, 8, 18.0), of_ranks(4, 4, 30.0)], [("total", 16, [1.0, 1.8, 3.0])]),
        (
            [of_ranks(ranks, size, 10.0 * ranks) for ranks in (1, 2, 4) for size in (4, 8)],
            [("per rank", 4, [1.0, 2.0, 4.0]), ("per rank", 8, [1.0, 2.0, 4.0]), ("total", 8, [1.0, 2.0])],
        ),
        (
            [of_ranks(1, 64, 10.0), of_ranks(2, 64, status="oom"), of_ranks(4, 64, 30.0)],
            [("per rank", 64, [1.0, None, 3.0])],
        ),
        ([of_ranks(1, 8, 100.0, workers=4), of_ranks(2, 8, 150.0, workers=2)], [("per rank", 8, [1.0, 1.5])]),
    ],
    ids=["per rank", "both", "total alone", "no total of one rank", "out of memory", "workers divided"],
)
def test_throughputs_at_the_same_batch_of_each_rank_and_of_all_are_divided(
    cells: list[Cell], expected: list[tuple[str, int, list[float | None]]]
) -> None:
    found = curves(*cells)
    assert [(curve.held, curve.batch_size, values(curve)) for curve in found] == expected
    for curve in found:
        for point in curve.points:
            assert (point.speedup is None) == (point.why == "out of memory")
            if point.speedup is not None and point.efficiency is not None:
                assert point.efficiency.value == pytest.approx(point.speedup.value / point.ranks)
    assert [point.ranks for point in found[0].points] == sorted(point.ranks for point in found[0].points)


def test_the_range_is_what_the_repeats_of_both_sides_allow() -> None:
    (curve,) = curves(of_ranks(1, 8, 90.0, 100.0, 110.0), of_ranks(2, 8, 180.0, 200.0, 210.0))
    assert curve.points[1].speedup == Range(2.0, 180 / 110, 210 / 90, 3)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([of_ranks(2, 8, 10.0), of_ranks(4, 8, 20.0)], "one rank was not run at batch 8"),
        ([of_ranks(1, 8, status="oom"), of_ranks(2, 8, 20.0)], "one rank at batch 8: out of memory"),
    ],
)
def test_without_the_single_rank_there_is_no_speed_up_but_a_reason(cells: list[Cell], why: str) -> None:
    (curve,) = curves(*cells)
    assert values(curve) == [None, None]
    assert curve.points[1].why == why


def test_interconnects_workers_loaders_and_feeds_are_not_set_against_each_other() -> None:
    found = curves(
        of_ranks(1, 8, 100.0, interconnect=None),
        of_ranks(2, 8, 190.0, interconnect="pcie3"),
        of_ranks(2, 8, 40.0, interconnect="ethernet-1g"),
    )
    assert {curve.interconnect: values(curve) for curve in found} == {"pcie3": [1.0, 1.9], "ethernet-1g": [1.0, 0.4]}
    chosen = curves(*(of_ranks(ranks, 8, 100.0 * ranks, workers=workers) for ranks in (1, 2) for workers in (2, 4)))
    assert [(curve.place, values(curve)) for curve in chosen] == [("2 workers", [1.0, 2.0]), ("4 workers", [1.0, 2.0])]
    fed = (("naive", "real", "lmdb", 10.0), ("synthetic", "synthetic", "files", 50.0))
    known = scaling(
        [of_ranks(n, 8, rate * n, pipeline=of, feed=feed, store=store) for of, feed, store, rate in fed for n in (1, 2)]
    )
    assert [(curve.pipeline, values(curve)) for curve in known] == [(of, [1.0, 2.0]) for of, *_ in fed]
    assert curve_names(known) == ["real naive", "synthetic"]


def test_the_picture_has_a_line_a_curve_beside_the_ideal_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = compare(
        [
            of_ranks(ranks, 64, 1e3 * ranks, 990.0 * ranks, device="emulated:v100", interconnect=link)
            for ranks, link in ((1, None), (2, "pcie3"), (2, "ethernet-1g"), (4, "pcie3"))
        ]
        + [of_ranks(2, 192, status="oom", device="emulated:v100", interconnect="pcie3")]
    )
    for name in ("a.svg", "b.svg"):
        save_picture(lambda: RANKS.draw(found, {}, "SSD300 on emulated V100"), tmp_path / name)
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == (tmp_path / "b.svg").read_text()
    for words in ("ideal", "OOM", "pcie3 batch 64", "emulated speed-up"):
        assert words in drawn


def test_a_job_has_the_throughput_of_all_its_ranks(tmp_path: Path) -> None:
    analysis = analysed(record(tmp_path / "run", [Rank(), Rank()], device="emulated"))
    alone = [part.analysis.facts.samples_per_s for part in analysis.ranks if part.analysis.facts is not None]
    rate = rate_of(analysis)
    assert rate == pytest.approx(sum(alone), rel=0.02)
    assert cell_of_analyses([analysis, analysis], {}).samples_per_s == Range(rate, rate, rate, 2)
