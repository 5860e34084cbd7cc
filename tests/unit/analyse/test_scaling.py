"""Speed-up and efficiency over the number of ranks."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from support.cells import cell_of_analyses
from support.jobs import Rank, analysed, record
from whyidle.analyse.cells.comparison import Cell, compare, rate_of
from whyidle.analyse.cells.studies import Curve, scaling
from whyidle.analyse.statistics import Range
from whyidle.report.documents.comparison import curve_names
from whyidle.report.plot import RANKS, save_picture


def cell(ranks: int, size: int, *rates: float, status: str = "ok", pipeline: str = "workers", **axes: Any) -> Cell:
    job = [SimpleNamespace(samples_per_s=rate, waiting_share=0.125) for rate in rates]
    analyses = tuple(cast(Any, SimpleNamespace(job=each, facts=None, info={})) for each in job)
    known = {"pipeline": pipeline, "batch_size": size, "status": status, "error": "no room" if status != "ok" else None}
    return cell_of_analyses(analyses, {"device": "cuda", "ranks": ranks} | axes, **known)


def curves(*cells: Cell) -> list[Curve]:
    return scaling(cells)


def values(curve: Curve) -> list[float | None]:
    return [None if point.speedup is None else point.speedup.value for point in curve.points]


def test_cells_of_one_number_of_ranks_do_not_scale() -> None:
    assert scaling([cell(2, 8, 10.0), cell(2, 16, 10.0)]) == scaling([Cell("workers", 8, "ok", None)]) == []


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([cell(4, 8, 320.0), cell(1, 8, 100.0), cell(2, 8, 190.0)], [("per rank", 8, [1.0, 1.9, 3.2])]),
        (
            [cell(1, 16, 100.0), cell(1, 8, 80.0), cell(2, 8, 150.0)],
            [("per rank", 8, [1.0, 150 / 80]), ("total", 16, [1.0, 1.5])],
        ),
        ([cell(1, 16, 10.0), cell(2, 8, 18.0), cell(4, 4, 30.0)], [("total", 16, [1.0, 1.8, 3.0])]),
        (
            [cell(ranks, size, 10.0 * ranks) for ranks in (1, 2, 4) for size in (4, 8)],
            [("per rank", 4, [1.0, 2.0, 4.0]), ("per rank", 8, [1.0, 2.0, 4.0]), ("total", 8, [1.0, 2.0])],
        ),
        ([cell(1, 64, 10.0), cell(2, 64, status="oom"), cell(4, 64, 30.0)], [("per rank", 64, [1.0, None, 3.0])]),
        ([cell(1, 8, 100.0, workers=4), cell(2, 8, 150.0, workers=2)], [("per rank", 8, [1.0, 1.5])]),
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
    (curve,) = curves(cell(1, 8, 90.0, 100.0, 110.0), cell(2, 8, 180.0, 200.0, 210.0))
    assert curve.points[1].speedup == Range(2.0, 180 / 110, 210 / 90, 3)


@pytest.mark.parametrize(
    ("cells", "why"),
    [
        ([cell(2, 8, 10.0), cell(4, 8, 20.0)], "one rank was not run at batch 8"),
        ([cell(1, 8, status="oom"), cell(2, 8, 20.0)], "one rank at batch 8: out of memory"),
    ],
)
def test_without_the_single_rank_there_is_no_speed_up_but_a_reason(cells: list[Cell], why: str) -> None:
    (curve,) = curves(*cells)
    assert values(curve) == [None, None]
    assert curve.points[1].why == why


def test_interconnects_workers_loaders_and_feeds_are_not_set_against_each_other() -> None:
    found = curves(
        cell(1, 8, 100.0, interconnect=None),
        cell(2, 8, 190.0, interconnect="pcie3"),
        cell(2, 8, 40.0, interconnect="ethernet-1g"),
    )
    assert {curve.interconnect: values(curve) for curve in found} == {"pcie3": [1.0, 1.9], "ethernet-1g": [1.0, 0.4]}
    chosen = curves(*(cell(ranks, 8, 100.0 * ranks, workers=workers) for ranks in (1, 2) for workers in (2, 4)))
    assert [(curve.place, values(curve)) for curve in chosen] == [("2 workers", [1.0, 2.0]), ("4 workers", [1.0, 2.0])]
    fed = (("naive", "real", "lmdb", 10.0), ("synthetic", "synthetic", "files", 50.0))
    known = scaling(
        [cell(n, 8, rate * n, pipeline=of, feed=feed, store=store) for of, feed, store, rate in fed for n in (1, 2)]
    )
    assert [(curve.pipeline, values(curve)) for curve in known] == [(of, [1.0, 2.0]) for of, *_ in fed]
    assert curve_names(known) == ["real naive", "synthetic"]


def test_the_picture_has_a_line_a_curve_beside_the_ideal_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = compare(
        [
            cell(ranks, 64, 1e3 * ranks, 990.0 * ranks, device="emulated:v100", interconnect=link)
            for ranks, link in ((1, None), (2, "pcie3"), (2, "ethernet-1g"), (4, "pcie3"))
        ]
        + [cell(2, 192, status="oom", device="emulated:v100", interconnect="pcie3")]
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
