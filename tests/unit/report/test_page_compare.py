"""The page of a comparison: its figures are those of the JSON, and it says all that the text does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.cells import SETTING, Planned, on_processor
from support.page_content import Element, parsed
from support.rendered import rendered
from whyidle.analyse.cells.cell_costs import place_of, setting_of
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.cells.prices import Price
from whyidle.commands.main import main
from whyidle.record.comparison import CellRecord, write_comparison
from whyidle.record.run import create_run
from whyidle.report.contract import comparison as compare_json
from whyidle.report.documents.comparison import comparison_document, comparison_title
from whyidle.report.page import compare_page
from whyidle.scenarios.planted import MS, Step, train

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&\x1b[31m"


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Planned:
    return Planned(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="module")
def study(planned: Planned) -> list[Cell]:
    """Two loaders at two batch sizes; the slow one's larger batches cost more a sample."""
    twice = (None, None)
    fast = [planned.cell(1, 2.0 * size, pipeline="workers", batch_size=size, results=twice) for size in (8, 16)]
    slow = [
        planned.cell(3.0 * size * size / 8, 2.0 * size, pipeline="naive", batch_size=size, results=twice)
        for size in (8, 16)
    ]
    return [*fast, *slow]


def shown(cells: Sequence[Cell], pages: dict[str, str] | None = None, **more: Any) -> Element:
    return parsed(compare_page.page(compare(cells), SETTING | more, pages))


def content(cells: Sequence[Cell], **more: Any) -> dict[str, Any]:
    return compare_json.comparison(compare(cells), SETTING | more)


def cell_rows(page: Element) -> tuple[list[str], list[list[Element]]]:
    head, *rows = page.all("table", "sortable")[0].rows()
    return [each.words for each in head], rows


def square(page: Element, number: int) -> Element:
    """Of a cell in the heat map, by its place from 1."""
    (found,) = [a for a in page.all("a", "square") if a.attributes["href"] == f"#cell-{number}"]
    return found


def heat(of: Element, metric: str) -> int | None:
    found = re.search(rf"--{metric}:(\d+)%", of.attributes["style"])
    return None if found is None else int(found[1])


def failed(cell: Cell, status: str = "oom", error: str = "needs 26.3 GB of 17.2 GB") -> Cell:
    return replace(cell, status=status, error=error, analyses=(), runs=())


def test_every_figure_of_a_cell_is_the_jsons(study: list[Cell]) -> None:
    page = shown(study)
    head, rows = cell_rows(page)
    told = content(study)["cells"]
    assert len(rows) == len(told) == 4
    for number, (row, cell) in enumerate(zip(rows, told, strict=True), start=1):
        by_head = dict(zip(head, row, strict=True))
        rate = cell["samples_per_s"]
        assert float(by_head["emulated samples/s"].attributes["data-value"]) == rate["median"]
        assert by_head["emulated samples/s"].words == f"{rate['median']:.1f}"
        assert by_head["range"].words == f"{rate['low']:.1f} to {rate['high']:.1f}"
        assert float(by_head["device busy"].attributes["data-value"]) == cell["busy_pct"]
        assert by_head["waits for"].words == cell["verdict"]["cause"]
        at = square(page, number).all("span", "of-rate")[0]
        assert at.words == f"{rate['median']:.1f} {rate['low']:.1f} to {rate['high']:.1f}"


def test_the_best_cell_is_the_strongest_and_the_only_one_called_best(study: list[Cell]) -> None:
    page = shown(study)
    rates = [cell["samples_per_s"]["median"] for cell in content(study)["cells"]]
    heats = [heat(square(page, number), "rate") for number in range(1, 5)]
    assert sorted(range(4), key=lambda n: rates[n]) == sorted(range(4), key=lambda n: heats[n] or 0)
    assert min(h for h in heats if h is not None) == 0
    (best,) = [n for n in range(4) if "best" in square(page, n + 1).words]
    assert rates[best] == max(rates)


def test_a_cell_opens_to_what_it_waited_for_and_its_repeats(study: list[Cell]) -> None:
    result = compare(study)
    page = parsed(compare_page.page(result, SETTING, {study[2].runs[1]: "naive/report.html"}))
    naive = page.by_id("cell-3")
    verdict = study[2].typical.verdict if study[2].typical else None
    assert verdict is not None
    assert verdict.title in naive.words
    bar = naive.all("div", "stacked")[0].attributes["aria-label"]
    assert "input" in bar
    (repeats,) = naive.all("table", "repeats")
    assert [row[0].words for row in repeats.rows()[1:]] == [Path(run).name for run in study[2].runs]
    assert [link.attributes["href"] for link in repeats.all("a")] == ["naive/report.html"]


def test_a_strip_is_high_where_the_device_computes(study: list[Cell]) -> None:
    def mean_busy(number: int) -> float:
        path = shown(study).by_id(f"cell-{number}").all("path")[0].attributes["d"]
        tops = [float(top) for top in re.findall(r"M\d+ 100V(\d+)h1", path)]
        return 100 - sum(tops) / len(tops)

    busy = [cell["busy_pct"] for cell in content(study)["cells"]]
    for number in range(4):
        assert mean_busy(number + 1) == pytest.approx(busy[number], abs=12)


def test_what_went_wrong_stands_in_its_place_and_is_no_figure(study: list[Cell]) -> None:
    page = shown([*study[:3], failed(study[3])])
    head, rows = cell_rows(page)
    oom = dict(zip(head, rows[3], strict=True))
    assert oom["emulated samples/s"].words == "oom"
    assert all("data-value" not in cell.attributes for cell in rows[3])
    assert square(page, 4).words == "oom oom"  # of each metric
    assert heat(square(page, 4), "rate") is None
    assert "needs 26.3 GB" in page.by_id("cell-4").words
    assert "naive, batch 16: oom: needs 26.3 GB of 17.2 GB" in page.by_id("table").words


def test_of_a_comparison_in_which_nothing_ran_the_page_shows_no_figure(study: list[Cell]) -> None:
    page = shown([failed(cell, "skipped", "stopped by Ctrl-C") for cell in study])
    assert "best" not in page.by_id("table").all("table")[0].words
    assert {row[1].words for row in cell_rows(page)[1]} == {"skipped"}
    assert not re.search(r"\d+\.\d", page.by_id("cells").words)


def test_measured_and_emulated_figures_never_share_a_column_or_a_scale(study: list[Cell]) -> None:
    measured = [on_processor(replace(cell, axes=cell.axes | {"device": "cpu"})) for cell in study[2:]]
    measured = [
        replace(cell, analyses=tuple(replace(a, info=a.info | {"device": {"kind": "cpu"}}) for a in cell.analyses))
        for cell in measured
    ]
    page = shown([*study[:2], *measured])
    head, rows = cell_rows(page)
    columns = [head.index("samples/s"), head.index("emulated samples/s")]
    assert [["data-value" in row[column].attributes for column in columns] for row in rows] == [
        [False, True],
        [False, True],
        [True, False],
        [True, False],
    ]
    tables = page.all("div", "heat-table")
    assert ["emulated device" in table.words for table in tables] == [True, False]
    assert [len(table.all("a", "square")) for table in tables] == [2, 2]


def test_cells_that_train_another_thing_have_a_table_and_a_scale_of_their_own(planned: Planned) -> None:
    cells = [
        planned.cell(fetch, compute, net=net, pipeline=loader)
        for net, compute in (("vgg", 40.0), ("alexnet", 4.0))
        for loader, fetch in (("naive", 90), ("workers", 1))
    ]
    page = shown(cells, net="vgg, alexnet")
    assert [table.all("h3")[0].words.split()[0] for table in page.all("div", "heat-table")] == ["vgg", "alexnet"]
    # The slower net's best cell is as strong as the faster one's.
    assert heat(square(page, 2), "rate") == heat(square(page, 4), "rate") != 0
    assert heat(square(page, 1), "rate") == heat(square(page, 3), "rate") == 0


def test_the_page_says_all_that_the_text_does(study: list[Cell]) -> None:
    result = compare(study)
    text = rendered(comparison_document(result, SETTING), 200)
    page = parsed(compare_page.page(result, SETTING))
    words = page.words
    assert comparison_title(result, SETTING) == page.all("h1")[0].words
    # Sentences; tables and bars are told otherwise.
    lines = [" ".join(line.split()) for line in text.splitlines()]
    sentences = [line for line in lines if line.endswith(".") and len(line) > 60]
    assert len(sentences) >= 4
    for sentence in sentences:
        assert re.sub(r" \[\w+\]\.?$", "", sentence) in words, sentence


def test_the_time_per_sample_is_drawn_to_one_scale(study: list[Cell]) -> None:
    page = shown(study)
    verdicts = content(study)["batch_verdicts"]
    drawn: dict[tuple[str, str], float] = {}
    for sweep in page.all("div", "sweep"):
        name = sweep.all("h3")[0].words.split()[0]
        for row in sweep.all("table", "bars")[0].rows()[1:]:
            widths = [float(rect.attributes["width"].rstrip("%")) for rect in row[2].all("rect")]
            drawn[name, row[0].words] = sum(widths)
    told = {(name, size): terms["total"]["mean"] for name, v in verdicts.items() for size, terms in v["terms"].items()}
    assert drawn.keys() == told.keys()
    assert len(told) == 4
    scale = {key: drawn[key] / told[key] for key in told}
    assert max(scale.values()) == pytest.approx(min(scale.values()), rel=1e-3)
    (naive,) = [sweep for sweep in page.all("div", "sweep") if sweep.words.startswith("naive")]
    assert verdicts["naive"]["grew"] == "input"
    (grown,) = [row for row in naive.all("tr") if row.all("span", "badge")]
    assert grown.all("th")[0].words == "input"


def test_costs_are_better_the_lower_they_are_and_accuracy_is_shown(planned: Planned) -> None:
    results = {"train_s": 4.0, "evaluation": {"accuracy": 0.91}, "epochs": []}
    cells = [planned.cell(fetch, 5, pipeline=name, results=(results,)) for name, fetch in (("a", 20), ("b", 1))]
    cost = setting_of(lambda *_: Price(usd_per_hour=3.6), [place_of(cell) for cell in cells], None)
    more = {"cost": cost, "dataset": {"samples": 800, "unit": "image"}}
    page = shown(cells, **more)
    dear, cheap = (square(page, number) for number in (1, 2))
    told = content(cells, **more)["cells"]
    assert told[0]["cost_usd"] > told[1]["cost_usd"] > 0
    assert (heat(dear, "cost"), heat(cheap, "cost")) == (0, heat(cheap, "rate"))
    assert dear.all("span", "of-accuracy")[0].words == "0.910"
    assert [each.attributes["class"] for each in page.all("input")] == [
        "choose-rate",
        "choose-busy",
        "choose-cost",
        "choose-accuracy",
    ]


def test_whatever_a_recording_holds_stays_words(study: list[Cell]) -> None:
    named = [replace(cell, pipeline=HOSTILE) for cell in study[:2]]
    broken = replace(failed(study[2], "failed", HOSTILE), pipeline=HOSTILE)
    setting = {"question": HOSTILE, "notices": [HOSTILE], "net": HOSTILE, "dataset": {"stand_in": HOSTILE}}
    harmless = shown(study[:3])
    page = shown([*named, broken], {named[0].runs[0]: "a%22b.html"}, **setting)
    assert len(page.all("script")) == len(harmless.all("script"))
    assert not page.all("img")
    assert page.words.count("<script>alert(1)</script>") > 5
    assert "\x1b" not in page.words
    assert "STAND-IN DATA" in page.all("p", "warning")[0].words


def test_nothing_is_loaded_from_elsewhere(study: list[Cell]) -> None:
    page = compare_page.page(compare(study), SETTING)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    assert "url(" not in page
    assert len(page) < 300_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A recorded comparison: a cell that ran twice, one that failed before its first step, and one that did not run."""
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


def links(page: Element) -> list[str]:
    return [a.attributes["href"] for a in page.all("a") if a.attributes["href"].endswith(".html")]


def test_report_writes_the_page_into_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(folder), "--format", "html"]) == 0
    assert capsys.readouterr().out.strip() == str(folder / "report.html")
    page = parsed((folder / "report.html").read_text())
    assert [row[1].words.split()[0] for row in cell_rows(page)[1]][1:] == ["failed", "skipped"]
    assert "the comparison was cut short" in page.words
    assert links(page) == []


def test_with_runs_each_run_gets_its_page_and_its_cell_leads_to_it(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(folder), "--format", "html", "--with-runs"]) == 0
    capsys.readouterr()
    page = parsed((folder / "report.html").read_text())
    assert links(page) == [f"{name}/report.html" for name in ("naive-b8-r0", "naive-b8-r1", "workers-b8-r0")]
    assert all("whyidle" in (folder / link).read_text() for link in links(page))
    # From elsewhere the way is another; from nowhere there is none.
    assert main(["report", str(folder), "--format", "html", "-o", str(tmp_path / "elsewhere.html")]) == 0
    assert links(parsed((tmp_path / "elsewhere.html").read_text()))[0] == "made/naive-b8-r0/report.html"
    capsys.readouterr()
    assert main(["report", str(folder), "--format", "html", "-o", "-"]) == 0
    assert links(parsed(capsys.readouterr().out)) == []


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
