"""`whyidle compare RUN RUN …`: recorded runs grouped by what was recorded of them, and mistakes told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.jobs import Rank, record
from support.page_content import Element, parsed
from whyidle.analyse.cells.recorded_runs import cells_of_runs, differences
from whyidle.commands.main import main
from whyidle.record.run import open_run, update_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.scenarios.planted import MS, Step, train


def starved(folder: Path, batch: int, per_sample_ms: float = 3.0, epochs: int = 1, **info: Any) -> Path:
    steps = [Step(round(batch * per_sample_ms * MS), batch * MS)] * (800 // batch)
    train(folder, [steps] * epochs, samples=batch)
    command = ["python", "train.py", "--batch-size", str(batch)]
    update_run(folder, {"trial": None, "command": command} | info)
    return folder


def on_cpu(folder: Path, batch: int, workers: int, fetch_ms: float) -> Path:
    record(folder, [Rank(fetch_ns=round(fetch_ms * MS), workers=workers)], samples=batch, world_size=None)
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    """Two runs of batch 8, and one of 16 that loads twice as long."""
    return [
        starved(tmp_path / "a", 8),
        starved(tmp_path / "b", 16, per_sample_ms=6),
        starved(tmp_path / "c", 8),
    ]


def test_runs_of_one_batch_size_are_repeats_of_one_cell(sweep: list[Path]) -> None:
    cells = cells_of_runs([open_run(folder) for folder in sweep])
    assert [(c.pipeline, c.batch_size, len(c.analyses)) for c in cells] == [("training", 8, 2), ("training", 16, 1)]
    assert cells[0].runs == (str(sweep[0]), str(sweep[2]))
    assert differences(cells) == []


@pytest.mark.parametrize(
    ("order", "rounds"),
    [
        ((8, 16, 8, 16), [(0, 1), (0, 1)]),
        ((16, 8, 8, 16), [(0, 1), (0, 1)]),
        ((8, 8, 16, 16), [(), ()]),
    ],
)
def test_runs_in_turn_are_rounds(tmp_path: Path, order: tuple[int, ...], rounds: list[tuple[int, ...]]) -> None:
    runs = []
    for number, batch in enumerate(order):
        clock = {"time_ns": 10**18 + number * 10**9, "monotonic_ns": 0}
        runs.append(starved(tmp_path / f"{number}", batch, clock=clock))
    cells = cells_of_runs([open_run(run) for run in runs])
    assert [cell.rounds for cell in cells] == rounds
    assert [cell.batch_size for cell in cells] == [8, 16]


def test_its_json_has_the_verdict(sweep: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--json", "-", *map(str, sweep)]) == 0
    result = json.loads(capsys.readouterr().out)
    found = result["batch_verdicts"]["training"]
    assert (found["grew"], found["compared"], found["runs"]) == ("input", [8, 16], {"8": 2, "16": 1})
    assert result["cells"][0]["runs"] == [str(sweep[0]), str(sweep[2])]


def links(page: Element) -> list[str]:
    return [a.attributes["href"] for a in page.all("a") if not a.attributes["href"].startswith("#")]


def test_its_page_leads_to_its_runs(sweep: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = [*map(str, sweep)]
    (tmp_path / "pages").mkdir()
    made = tmp_path / "pages" / "compare.html"
    assert main(["compare", *named, "--html", str(made), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    page = parsed(made.read_text())
    assert page.all("h1")[0].words == "3 recorded runs on emulated Test"
    head, *rows = page.all("table", "sortable")[0].rows()
    rate = [each.words for each in head].index("emulated samples/s")
    shown = [float(row[rate].attributes["data-value"]) for row in rows]
    assert shown == [cell["samples_per_s"]["median"] for cell in result["cells"]]
    assert links(page) == []
    # A run that has a page is linked, from wherever the table's page lies.
    assert main(["report", named[1], "--format", "html"]) == 0
    assert main(["compare", *named, "--html", str(made)]) == 0
    assert links(parsed(made.read_text())) == ["../b/report.html"]
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["compare.html"]


def test_what_runs_say_of_themselves_stays_words_in_the_page(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"
    device = {"kind": "emulated", "title": hostile}
    runs = [
        starved(tmp_path / f"<i>{batch}", batch, command=["python", hostile], device=device, ended={"status": hostile})
        for batch in (8, 16)
    ]
    harmless = [starved(tmp_path / f"{batch}", batch) for batch in (8, 16)]
    made, other = tmp_path / "compare.html", tmp_path / "other.html"
    assert main(["compare", *map(str, runs), "--html", str(made)]) == 0
    assert main(["compare", *map(str, harmless), "--html", str(other)]) == 0
    page = parsed(made.read_text())
    assert page.words.count("<script>alert(1)</script>") >= 4
    assert not page.all("img")
    assert not page.all("i")
    assert len(page.all("script")) == len(parsed(other.read_text()).all("script"))
    assert "\x1b" not in made.read_text()


def test_runs_are_apart_by_workers_and_by_loader_where_both_were_recorded(tmp_path: Path) -> None:
    named = [starved(tmp_path / name, 8, trial={"pipeline": name}) for name in ("naive", "caffe")]
    counted = [(batch, on_cpu(tmp_path / f"{n}", batch, n, 1)) for n, batch in ((4, 8), (1, 16))]
    runs = [*named, *(run for _, run in counted)]
    found = [(c.pipeline, c.batch_size) for c in cells_of_runs([open_run(run) for run in runs])]
    assert found == [("naive", 8), ("caffe", 8), ("4 workers", 8), ("1 worker", 16)]


def test_jobs_of_another_number_of_ranks_are_apart_and_figures_are_said_to_be_of_one_rank(tmp_path: Path) -> None:
    for name, batch, ranks in (("a", 8, 2), ("b", 16, 2), ("c", 16, 3)):
        record(tmp_path / name, [Rank(fetch_ns=batch * MS)] * ranks, samples=batch)
    cells = cells_of_runs([open_run(tmp_path / name) for name in "abc"])
    assert [(c.pipeline, c.batch_size) for c in cells] == [("2 ranks", 8), ("2 ranks", 16), ("3 ranks", 16)]
    assert any("what the batch size did is told of one rank" in notice for notice in differences(cells))


def test_a_setting_that_was_not_recorded_is_no_difference(tmp_path: Path) -> None:
    cells = cells_of_runs([open_run(starved(tmp_path / "a", 8)), open_run(on_cpu(tmp_path / "b", 16, 2, 1))])
    assert [c.pipeline for c in cells] == ["training", "training"]


def test_what_else_differs_is_said(tmp_path: Path) -> None:
    other = {"command": ["python", "other.py"], "device": {"kind": "emulated", "title": "emulated Other"}}
    runs = [
        starved(tmp_path / "a", 8),
        starved(tmp_path / "b", 16, ended={"status": "stopped"}, **other),
        starved(tmp_path / "c", 32, ended=None),
    ]
    notices = differences(cells_of_runs([open_run(run) for run in runs]))
    assert notices[0] == (
        "These runs differ in more than the batch size: the program (train.py, other.py); the device (emulated Test, "
        "emulated Other)."
    )
    assert notices[1:] == [
        f"{runs[1]}: it did not end well (stopped). It counts as far as it went.",
        f"{runs[2]}: no end is recorded: it still runs, or it was killed. It counts as far as it went.",
    ]


def test_of_one_batch_size_there_is_a_table_and_no_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(starved(tmp_path / name, 8)) for name in "ab"]
    assert main(["compare", *runs]) == 0
    shown = capsys.readouterr().out
    assert "these runs say nothing about the batch size" in shown
    assert "What the batch size did" not in shown
    for option, code in (("--plot", 2), ("--html", 0)):
        assert main(["compare", *runs, option, str(tmp_path / "x.svg")]) == code
    assert "nothing to draw" in capsys.readouterr().err
    assert "these runs say nothing about the batch size" in parsed((tmp_path / "x.svg").read_text()).words


def test_a_mistake_is_one_message(sweep: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attached = starved(tmp_path / "attached", 8, attach={"pid": 1})
    empty = tmp_path / "empty"
    train(empty, [])
    uncounted = tmp_path / "uncounted"
    train(uncounted, [[Step()] * 40], samples=NOT_MEASURED)
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "comparison.json").write_text("{}")
    one = str(sweep[0])
    for words, said in (
        (["ssd", one], "ssd is not a run folder"),
        ([one, str(tmp_path)], "is not a run folder"),
        ([str(tmp_path / "table")], "is a comparison already"),
        ([one, str(attached)], "recorded from outside"),
        ([one, str(empty)], "holds no step"),
        ([one, str(uncounted)], "samples its batches hold"),
        ([*map(str, sweep), "--repeats", "3", "--limit", "9"], "--repeats, --limit are options"),
        ([*map(str, sweep), "--plot", "x.bmp"], "ends in .svg, .png or .pdf"),
        (["ssd", "--plot", str(tmp_path / "no" / "x.svg")], "there is no folder"),
        ([*map(str, sweep), "--html", str(tmp_path)], "is a folder. Name a file."),
        ([*map(str, sweep), "--html", str(tmp_path / "no" / "x.html")], "there is no folder"),
    ):
        assert main(["compare", *words]) == 2, words
        printed = capsys.readouterr()
        assert said in printed.err
        assert len(printed.err.splitlines()) == 1
        assert printed.out == ""
    assert not list(tmp_path.glob("x.*"))


def test_without_matplotlib_a_plot_is_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["compare", "ssd", "--device", "cpu", "--plot", "x.svg"]) == 2
    assert "pip install 'whyidle[plot]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
