"""The page of a comparison: what went wrong, unlike scales, names that are markup, links."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.cells import SETTING, Planned, on_processor, with_info
from support.page_content import Element, parsed
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.cells.cost import Price, place_of, setting_of
from whyidle.commands.main import main
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import create_run
from whyidle.report.page import compare_page
from whyidle.scenarios.planted import MS, Step, train

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return Planned(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="module")
def study(planned: Planned) -> list[Cell]:
    """Two loaders at two batch sizes; the slow one's larger batches cost more a sample."""
    sizes, twice = (8, 16), (None, None)
    fast = [planned.cell(1, 2.0 * size, batch_size=size, results=twice) for size in sizes]
    costly = [(3.0 * size * size / 8, 2.0 * size, size) for size in sizes]
    return [*fast, *(planned.cell(f, c, pipeline="naive", batch_size=size, results=twice) for f, c, size in costly)]


def shown(cells: Sequence[Cell], pages: dict[str, str] | None = None, **more: Any) -> Element:
    return parsed(compare_page.page(compare(cells), SETTING | more, pages))


def cell_rows(page: Element) -> list[dict[str, Element]]:
    head, *rows = page.all("table", "sortable")[0].rows()
    return [dict(zip((each.words for each in head), row, strict=True)) for row in rows]


def heats(page: Element, metric: str) -> list[int | None]:
    """Of the cells in the heat map, in their order."""
    squares = sorted(page.all("a", "square"), key=lambda a: int(a.attributes["href"].removeprefix("#cell-")))
    found = [re.search(rf"--{metric}:(\d+)%", each.attributes["style"]) for each in squares]
    return [each and int(each[1]) for each in found]


def failed(cell: Cell, status: str = "oom", error: str = "needs 26.3 GB of 17.2 GB") -> Cell:
    return replace(cell, status=status, error=error, rows=())


def test_what_went_wrong_stands_in_its_place_and_is_no_figure(study: list[Cell]) -> None:
    page = shown([*study[:3], failed(study[3])])
    oom = cell_rows(page)[3]
    assert oom["emulated samples/s"].words == "oom"
    assert all("data-value" not in cell.attributes for cell in oom.values())
    assert heats(page, "rate")[3] is None
    assert "naive, batch 16: oom: needs 26.3 GB of 17.2 GB" in page.by_id("table").words
    none = shown([failed(cell, "skipped", "stopped by Ctrl-C") for cell in study])
    assert "best" not in none.by_id("table").all("table")[0].words
    assert {[*row.values()][1].words for row in cell_rows(none)} == {"skipped"}
    assert not re.search(r"\d+\.\d", none.by_id("cells").words)


def test_measured_and_emulated_figures_never_share_a_column_or_a_scale(study: list[Cell]) -> None:
    measured = [with_info(on_processor(cell), device={"kind": "cpu"}) for cell in study[2:]]
    page = shown([*study[:2], *measured])
    columns = ("samples/s", "emulated samples/s")
    values = [["data-value" in row[column].attributes for column in columns] for row in cell_rows(page)]
    assert values == [[False, True]] * 2 + [[True, False]] * 2
    tables = page.all("div", "heat-table")
    assert ["emulated device" in table.words for table in tables] == [True, False]
    assert [len(table.all("a", "square")) for table in tables] == [2, 2]


def test_cells_that_train_another_thing_have_a_scale_of_their_own(planned: Planned) -> None:
    cells = [
        planned.cell(fetch, compute, net=net, pipeline=loader)
        for net, compute in (("vgg", 40.0), ("alexnet", 4.0))
        for loader, fetch in (("naive", 90), ("workers", 1))
    ]
    page = shown(cells, net="vgg, alexnet")
    rows = [row.words for row in page.all("table", "heat")[0].all("th") if row.attributes["scope"] == "row"]
    assert rows == ["naive, vgg", "workers, vgg", "naive, alexnet", "workers, alexnet"]
    # The slower net's best cell is as strong as the faster one's.
    vgg_naive, vgg, naive, alexnet = heats(page, "rate")
    assert vgg_naive == naive == 0
    assert vgg == alexnet != 0


def test_costs_are_better_the_lower_they_are_and_accuracy_is_shown(planned: Planned) -> None:
    results = {"train_s": 4.0, "evaluation": {"accuracy": 0.91}, "epochs": []}
    cells = [planned.cell(fetch, 5, pipeline=name, results=(results,)) for name, fetch in (("a", 20), ("b", 1))]
    cost = setting_of(lambda *_: Price(usd_per_hour=3.6), [place_of(cell) for cell in cells], None)
    page = shown(cells, cost=cost, dataset={"samples": 800, "unit": "image"})
    dear, cheap = heats(page, "cost")
    assert (dear, cheap) == (0, heats(page, "rate")[1])
    assert page.all("span", "of-accuracy")[0].words == "0.910"
    chosen = [each.attributes["class"] for each in page.all("input")]
    assert chosen == ["choose-rate", "choose-busy", "choose-cost", "choose-accuracy"]


def test_what_a_recording_holds_stays_words_and_nothing_is_loaded(study: list[Cell]) -> None:
    named = [replace(cell, pipeline=HOSTILE) for cell in study[:2]]
    broken = replace(failed(study[2], "failed", HOSTILE), pipeline=HOSTILE)
    setting = {"question": HOSTILE, "notices": [HOSTILE], "net": HOSTILE, "dataset": {"stand_in": HOSTILE}}
    page = shown([*named, broken], {named[0].rows[0].run: "a%22b.html"}, **setting)
    assert len(page.all("script")) == len(shown(study[:3]).all("script"))
    assert not page.all("img")
    assert page.words.count("<script>alert(1)</script>") > 5
    assert "\x1b" not in page.words
    assert "STAND-IN DATA" in page.all("p", "warning")[0].words
    assert not re.search(r'(?:src|href)="(?!#|data:)|url\(', compare_page.page(compare(study), SETTING))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cell that ran twice, one that failed before its first step, and one that did not run."""
    made = tmp_path / "made"
    for number, ms in enumerate((10, 11)):
        train(made / f"naive-b8-r{number}", [[Step(fetch_ns=5 * MS, compute_ns=ms * MS)] * 40], samples=8)
    create_run(made / "workers-b8-r0", {"device": {"kind": "emulated", "title": "emulated K80"}})
    cells = [
        CellRecord("naive", 8, "ok", None, ("naive-b8-r0", "naive-b8-r1")),
        CellRecord("workers", 8, "failed", "RuntimeError: no room", ("workers-b8-r0",)),
        CellRecord("threads", 8, "pending", None, ()),
    ]
    write_comparison(made, SETTING, cells)
    return made


def links(page: str) -> list[str]:
    return [a.attributes["href"] for a in parsed(page).all("a") if a.attributes["href"].endswith(".html")]


def test_with_runs_each_run_gets_its_page_and_its_cell_leads_to_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = ["report", str(folder), "--format", "html"]
    assert main(report) == 0
    assert links((folder / "report.html").read_text()) == []
    assert main([*report, "--with-runs"]) == 0
    found = links((folder / "report.html").read_text())
    assert found == [f"{name}/report.html" for name in ("naive-b8-r0", "naive-b8-r1", "workers-b8-r0")]
    assert all("whyidle" in (folder / link).read_text() for link in found)
    # From elsewhere the way is another; from nowhere there is none.
    assert main([*report, "-o", str(tmp_path / "elsewhere.html")]) == 0
    assert links((tmp_path / "elsewhere.html").read_text())[0] == "made/naive-b8-r0/report.html"
    capsys.readouterr()
    assert main([*report, "-o", "-"]) == 0
    assert links(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [((), "belongs to --format html"), (("--format", "html"), "is of comparisons")],
)
def test_with_runs_is_refused_where_it_means_nothing(
    folder: Path, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder / "naive-b8-r0"), "--with-runs", *options]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (folder / "naive-b8-r0" / "report.html").exists()


def test_a_change_that_is_not_known_is_told_as_not_measured(study: list[Cell]) -> None:
    found = compare(study)
    lost = {name: replace(each, changes={}) for name, each in found.batch_verdicts.items()}
    page = parsed(compare_page.page(replace(found, batch_verdicts=lost), SETTING))
    totals = [row.all("td") for row in page.by_id("sizes").all("tr") if row.words.startswith("total")]
    assert [row[-1].words for row in totals] == ["n/a"] * len(lost) != []
