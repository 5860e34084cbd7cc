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


def failed(cell: Cell, status: str = "oom", error: str = "needs 26.3 GB of 17.2 GB") -> Cell:
    return replace(cell, status=status, error=error, rows=())


def test_what_went_wrong_stands_in_its_place_and_is_no_figure(study: list[Cell]) -> None:
    page = shown([*study[:3], failed(study[3])])
    oom = cell_rows(page)[3]
    assert [cell.words for cell in oom.values()] == ["naive", "16", "oom", "", ""]
    assert "naive at batch 16: oom: needs 26.3 GB of 17.2 GB" in page.by_id("table").words
    none = shown([failed(cell, "skipped", "stopped by Ctrl-C") for cell in study]).by_id("table")
    assert none.words.count("skipped") > len(study)
    assert not re.search(r"\d+\.\d", none.words)


def test_each_cell_says_what_it_waits_for_and_which_device_is_emulated(study: list[Cell]) -> None:
    measured = with_info(on_processor(study[2]), device={"kind": "cpu"})
    details = shown([*study[:2], measured, failed(study[3])]).all("details", "cell")
    assert ["emulated samples/s" in each.words for each in details] == [True, True, False, False]
    assert "input.serial" in details[2].words
    assert "needs 26.3 GB" in details[3].words


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
