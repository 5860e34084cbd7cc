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
from whyidle.report.contract import comparison as scaling_json
from whyidle.report.document import Document
from whyidle.report.documents.scaling import names, scaling_blocks
from whyidle.report.plot.scaling import write_scaling


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


FULL = [
    cell(1, 64, [1234.5, 1200.0, 1260.0], interconnect=None, device="emulated:v100"),
    *(
        cell(n, 64, [1e3 * n, 990.0 * n], interconnect=link, device="emulated:v100", exchange_ms=12.34)
        for link in ("pcie3", "ethernet-1g+server")
        for n in (2, 4, 8)
    ),
    cell(2, 192, status="oom", interconnect="pcie3", device="emulated:v100"),
]


def test_the_table_fits_eighty_columns_and_says_what_is_emulated() -> None:
    found = scaling(FULL)
    assert found is not None
    text = shown(found)
    assert max(map(len, text.splitlines())) <= 80
    assert "emulated" in text
    assert "1.61" in text  # 1990 / 1234.5
    assert "12.3 ms" in shown(found, 120)
    assert "ethernet-1g+server" in text.replace("\n", "")


def test_measured_and_emulated_curves_share_no_column() -> None:
    measured = [cell(1, 8, [10.0], device="cpu"), cell(2, 8, [18.0], device="cpu")]
    found = scaling([*FULL, *measured])
    assert found is not None
    weak = shown(found).split("What further ranks bring, at the same batch of each")
    assert len(weak) == 3
    assert ["emulated" in part for part in weak[1:]] == [False, True]


def test_json_tells_every_point_and_null_where_nothing_is_known() -> None:
    found = scaling(FULL)
    told = scaling_json.curves(found)
    assert scaling_json.curves(None) == []
    assert told[0].held == "per rank"
    assert told[0].emulated is True
    two = told[0].points[1]
    assert two.ranks == 2
    assert two.samples_per_s is not None
    assert two.speedup is not None
    assert two.efficiency is not None
    assert two.samples_per_s.median == 1990.0
    assert two.speedup.value == pytest.approx(1990 / 1234.5)
    assert two.efficiency.value == pytest.approx(995 / 1234.5)
    assert (two.waiting_pct, two.exchange_ms) == (12.5, 12.34)
    lost = [point for curve in told for point in curve.points if point.status == "oom"]
    assert lost
    assert all(point.speedup is None and point.why == "out of memory" for point in lost)


def test_the_picture_has_a_line_a_curve_beside_the_ideal_one(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    found = scaling(FULL)
    assert found is not None
    write_scaling(found, "SSD300 on emulated V100", tmp_path / "a.svg")
    write_scaling(found, "SSD300 on emulated V100", tmp_path / "b.svg")
    drawn = (tmp_path / "a.svg").read_text()
    assert drawn == (tmp_path / "b.svg").read_text()
    for words in ("ideal", "OOM", "pcie3 batch 64", "emulated speed-up"):
        assert words in drawn


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


def test_an_exchange_of_gradients_that_takes_most_of_a_step_is_what_ranks_wait_for(tmp_path: Path) -> None:
    told = {"interconnect": "ethernet-1g", "way": "ring", "gb_per_s": 0.125, "bytes": 1_000_000, "ms": 8.0}
    analysis = job(tmp_path / "run", told)
    assert analysis.facts is not None
    step_ms = analysis.facts.parts.wall_ns / analysis.facts.window.count / 1e6
    assert analysis.verdict.cause == "rank.exchange"
    assert analysis.verdict.share == pytest.approx(8 / step_ms)
    assert "ethernet-1g, ring; emulated" in analysis.verdict.title
    assert "rank.exchange" not in {f.cause for f in job(tmp_path / "fast", told | {"ms": 0.01}).findings}
    assert "rank.exchange" not in {f.cause for f in job(tmp_path / "none", None).findings}
