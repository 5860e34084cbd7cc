"""Speed-up and efficiency over the number of ranks, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.jobs import Rank, record
from support.rendered import rendered
from whyidle.analyse.cells.comparison import Cell, rate_of
from whyidle.analyse.cells.scaling import Curve, Scaling, scaling
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.statistics import Range
from whyidle.record.run import open_run, update_run
from whyidle.report.document import Document
from whyidle.report.documents.scaling import names, scaling_blocks


def cell(
    ranks: int,
    batch_size: int,
    rates: Iterable[float] = (),
    status: str = "ok",
    pipeline: str = "workers",
    exchange_ms: float | None = None,
    **axes: Any,
) -> Cell:
    info = {} if exchange_ms is None else {"exchange": {"ms": exchange_ms}}
    job = [SimpleNamespace(samples_per_s=rate, waiting_share=0.125) for rate in rates]
    analyses = tuple(cast(Any, SimpleNamespace(job=each, facts=None, info=info)) for each in job)
    error = None if status == "ok" else "no room"
    return Cell(pipeline, batch_size, status, error, (), analyses, axes={"device": "cuda", "ranks": ranks} | axes)


def curves(*cells: Cell) -> tuple[Curve, ...]:
    found = scaling(cells)
    assert found is not None
    return found.curves


def test_a_net_fed_from_memory_is_named_without_store_and_loader() -> None:
    known = scaling(
        [
            cell(ranks, 8, [100.0 * ranks], pipeline=pipeline, feed=feed, store=store)
            for feed, pipeline, store in (("real", "workers", "lmdb"), ("synthetic", "synthetic", "files"))
            for ranks in (1, 2)
        ]
    )
    assert known is not None
    assert names(known.of("per rank")) == ["real lmdb workers", "synthetic"]


def values(curve: Curve) -> list[float | None]:
    return [None if point.speedup is None else point.speedup.value for point in curve.points]


def shown(found: Scaling, width: int = 80) -> str:
    return rendered(Document(tuple(scaling_blocks(found))), width)


def test_cells_of_one_number_of_ranks_do_not_scale() -> None:
    assert scaling([cell(2, 8, [10.0]), cell(2, 16, [10.0])]) is None
    assert scaling([Cell("workers", 8, "ok", None, (), ())]) is None


def test_at_the_same_batch_of_each_rank_throughputs_are_divided() -> None:
    (curve,) = curves(cell(4, 8, [320.0]), cell(1, 8, [100.0]), cell(2, 8, [190.0]))
    assert (curve.held, curve.batch_size) == ("per rank", 8)
    assert [point.ranks for point in curve.points] == [1, 2, 4]
    assert values(curve) == [1.0, 1.9, 3.2]
    efficiency = curve.points[2].efficiency
    assert efficiency is not None
    assert efficiency.value == 0.8


def test_at_the_same_batch_of_all_ranks_the_single_one_has_all_of_it() -> None:
    weak, strong = curves(cell(1, 16, [100.0]), cell(1, 8, [80.0]), cell(2, 8, [150.0]))
    assert (weak.held, weak.batch_size, values(weak)) == ("per rank", 8, [1.0, 150 / 80])
    assert (strong.held, strong.batch_size, values(strong)) == ("total", 16, [1.0, 1.5])


def test_a_fixed_total_alone_gives_no_curve_of_the_other_kind() -> None:
    (curve,) = curves(cell(1, 16, [10.0]), cell(2, 8, [18.0]), cell(4, 4, [30.0]))
    assert [point.batch_size for point in curve.points] == [16, 8, 4]
    assert (curve.held, values(curve)) == ("total", [1.0, 1.8, 3.0])


def test_a_total_that_no_single_rank_had_gives_no_curve_where_the_other_kind_tells() -> None:
    found = curves(*(cell(ranks, size, [10.0 * ranks]) for ranks in (1, 2, 4) for size in (4, 8)))
    assert [(curve.held, curve.batch_size) for curve in found] == [("per rank", 4), ("per rank", 8), ("total", 8)]


def test_the_range_is_what_the_repeats_of_both_sides_allow() -> None:
    (curve,) = curves(cell(1, 8, [90.0, 100.0, 110.0]), cell(2, 8, [180.0, 200.0, 210.0]))
    ratio = curve.points[1].speedup
    assert ratio == Range(2.0, 180 / 110, 210 / 90, 3)
    (single,) = curves(cell(1, 8, [100.0]), cell(2, 8, [200.0]))
    assert single.points[1].speedup == Range(2.0, 2.0, 2.0, 1)


def test_a_cell_without_memory_stays_in_the_table_as_that() -> None:
    found = scaling([cell(1, 64, [10.0]), cell(2, 64, status="oom"), cell(4, 64, [30.0])])
    assert found is not None
    (curve,) = found.curves
    assert values(curve) == [1.0, None, 3.0]
    assert curve.points[1].why == "out of memory"
    assert "OOM" in shown(found)


def test_without_the_single_rank_there_is_no_speed_up_but_a_reason() -> None:
    (curve,) = curves(cell(2, 8, [10.0]), cell(4, 8, [20.0]))
    assert values(curve) == [None, None]
    assert {point.why for point in curve.points} == {"one rank was not run at batch 8"}
    (lost,) = curves(cell(1, 8, status="oom"), cell(2, 8, [20.0]))
    assert lost.points[1].why == "one rank at batch 8: out of memory"
    (unlike, *_) = curves(cell(1, 16, [10.0]), cell(2, 64, [20.0]))
    assert values(unlike) == [None]


def test_the_ranks_of_each_interconnect_are_set_against_the_same_single_rank() -> None:
    found = curves(
        cell(1, 8, [100.0], interconnect=None),
        cell(2, 8, [190.0], interconnect="pcie3"),
        cell(2, 8, [40.0], interconnect="ethernet-1g"),
    )
    assert {curve.interconnect: values(curve) for curve in found} == {"pcie3": [1.0, 1.9], "ethernet-1g": [1.0, 0.4]}


def test_workers_that_are_divided_among_the_ranks_do_not_part_them() -> None:
    (curve,) = curves(cell(1, 8, [100.0], workers=4), cell(2, 8, [150.0], workers=2))
    assert values(curve) == [1.0, 1.5]
    chosen = curves(
        *(cell(ranks, 8, [100.0 * ranks * workers], workers=workers) for ranks in (1, 2) for workers in (2, 4))
    )
    assert [(curve.place, values(curve)) for curve in chosen] == [("2 workers", [1.0, 2.0]), ("4 workers", [1.0, 2.0])]


def test_loaders_feeds_and_nets_are_not_set_against_each_other() -> None:
    found = curves(
        *(
            cell(ranks, 8, [rate * ranks], pipeline=pipeline, feed=feed)
            for pipeline, feed, rate in (("naive", "real", 10.0), ("synthetic", "synthetic", 50.0))
            for ranks in (1, 2)
        )
    )
    assert [(curve.pipeline, curve.place, values(curve)) for curve in found] == [
        ("naive", "real", [1.0, 2.0]),
        ("synthetic", "synthetic", [1.0, 2.0]),
    ]


def job(folder: Path, exchange: dict[str, Any] | None) -> Analysis:
    """Two emulated ranks that wait for nobody and nothing."""
    recorded = record(folder, [Rank(), Rank()], device="emulated")
    if exchange is not None:
        update_run(folder, {"exchange": exchange})
    return analyse(*(open_run(each) for each in recorded.folders))


def test_a_job_has_the_throughput_of_all_its_ranks(tmp_path: Path) -> None:
    analysis = job(tmp_path / "run", None)
    each = [part.analysis.facts for part in analysis.ranks]
    alone = [facts.samples_per_s for facts in each if facts is not None]
    assert rate_of(analysis) == pytest.approx(sum(alone), rel=0.02)
    run = Cell("workers", 8, "ok", None, (), (analysis, analysis))
    rate = rate_of(analysis)
    assert rate is not None
    assert run.samples_per_s == Range(rate, rate, rate, 2)
