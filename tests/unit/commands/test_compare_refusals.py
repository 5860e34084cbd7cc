"""What `compare` says before it trains, and of recorded runs."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from support.jobs import Rank, record
from support.page_content import Element, parsed
from support.planted_runs import hosted
from support.runs import mistaken
from whyidle.analyse.cells.comparison import Cell, cells_of_runs, differences, place
from whyidle.analyse.cells.cost import Price
from whyidle.commands.main import main, parser
from whyidle.errors import WhyidleError
from whyidle.matrix.experiment import beyond_cpus, plan
from whyidle.matrix.trial import INTERRUPTED, _child
from whyidle.record.run import update_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.results.comparisons import put_price
from whyidle.scenarios.planted import MS, Step, train

SCENARIO = """
from whyidle.scenarios.scenario import Scenario


class Mine(Scenario):
    {name}, study, question, data = "mine", "none", "which?", "none"
    nets = cpu_nets = ("linear",)
    batch_sizes = (8,)

    def find_data(self, net, say):
        raise NotImplementedError

    def open_data(self, request):
        return {data}

    def build(self, net, data):
        raise NotImplementedError


SCENARIO = Mine()
"""
COST = ["cost", "--device", "cpu", "--net", "mnist-mlp"]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("nam", "None", "Mine has no name (a text). Every scenario defines these"),
        ("name", "request.folder + 1", "{file}:14, in open_data"),
        ("name", "request", "open_data gave a DataRequest, which has no __len__, no read"),
    ],
)
def test_a_mistake_in_a_scenario_of_ones_own_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: str, said: str
) -> None:
    file = tmp_path / f"mine_{name}_{len(data)}.py"
    file.write_text(SCENARIO.format(name=name, data=data))
    assert said.format(file=file) in mistaken(capsys, "compare", str(file), "--device", "cpu", "--data", str(tmp_path))


def test_an_error_of_several_lines_keeps_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine_of_lines.py"
    file.write_text('raise RuntimeError("Error(s):\\n\\tMissing key\\n::error::hi")\n')
    assert main(["compare", str(file)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" (")[0] for line in lines[1:]] == ["      Missing key", "  ?:error::hi"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cost", "--logs", ".", "--price", "3", "--limit", "8"], "--limit, --price are options of trainings"),
        ([*COST, "--target", "0.5"], "--target 0.5: this experiment does not evaluate after every epoch"),
        ([*COST, "--limit", "3", "--batch-sizes", "8"], "3 samples do not fill one batch of 8"),
        (
            [*COST, "--experiment", "loaders", "--ranks", "2", "--interconnect", "ethernet-10g"],
            "ethernet-10g can only be emulated",
        ),
        (["fashion-mnist", "--data", "no/where"], "no/where does not exist"),
        ([*COST, "--experiment", "threads", "--ranks", "2"], "threads of cost does not use --ranks 2"),
        (["fashion-mnist", "--data", __file__], "is not a folder"),
        *(([*COST, "--budget", each], f"'{each}' is not a number of seconds above 0") for each in ("0", "soon", "nan")),
        (
            [*COST, "--pipelines", "naive,caffe", "--first", "threads"],
            "--first threads is not among the loaders compared. Add it to --pipelines.",
        ),
    ],
)
def test_what_could_never_be_measured_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in mistaken(capsys, "compare", *words)
    assert list(tmp_path.iterdir()) == []


def test_a_size_too_large_for_the_data_is_skipped(tmp_path: Path) -> None:
    words = ["compare", *COST, "--limit", "320", "--out", str(tmp_path / "runs")]
    matrix, _ = plan(parser().parse_args([*words, "--batch-sizes", "8,512", "--threads", "1,2"]), print)
    titles = [f"{threads}, naive, batch {size}" for threads in ("1 thread", "2 threads") for size in (8, 512)]
    assert [each.title for each in matrix.planned] == titles
    assert [cell.status for cell in matrix.cells] == ["pending", "skipped"] * 2
    assert "320 samples do not fill one batch of 512" in str(matrix.cells[-1].error)


def test_more_threads_or_workers_than_cpus_are_told_of_and_places_in_words_that_agree() -> None:
    told = [place("workers", 1), place("ranks", 2), place("ranks", 1), place("augment", False)]
    assert told == ["1 worker", "2 ranks", "1 rank", "no augmentation"]
    assert beyond_cpus((1, 999), 2, 2.0) == ["--threads 999 is more than the 2 CPUs of this job, so they take turns"]
    assert beyond_cpus(None, None, 2.0) == []


def test_one_price_is_refused_for_trainings_on_two_devices() -> None:
    def cell(device: str) -> Cell:
        return Cell("naive", 8, "skipped", None, axes={"device": device, "threads": None, "ranks": 1})

    with pytest.raises(WhyidleError, match="trainings on 2 devices"):
        put_price(Price(usd_per_hour=1.0), [cell("emulated:k80"), cell("emulated:v100")], {})


def test_ctrl_c_while_a_training_is_being_imported_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(1000)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_child, args=("slow_to_import:run", None, there))
    child.start()
    here.send("go")
    while not (tmp_path / "begun").exists():
        assert child.is_alive()
        time.sleep(0.01)
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    assert child.exitcode == INTERRUPTED
    assert capfd.readouterr().err == ""


def starved(folder: Path, batch: int, per_sample_ms: float = 3.0, epochs: int = 1, **info: Any) -> Path:
    steps = [Step(round(batch * per_sample_ms * MS), batch * MS)] * (800 // batch)
    train(folder, [steps] * epochs, samples=batch)
    command = ["python", "train.py", "--batch-size", str(batch)]
    update_run(folder, {"trial": None, "command": command} | info)
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> list[Path]:
    """Two runs of batch 8, and one of 16 that loads twice as long."""
    return [starved(tmp_path / name, batch, ms) for name, batch, ms in (("a", 8, 3), ("b", 16, 6), ("c", 8, 3))]


@pytest.mark.parametrize(
    ("order", "rounds"),
    [
        ((8, 16, 8, 16), [[0, 1], [0, 1]]),
        ((16, 8, 8, 16), [[0, 1], [0, 1]]),
        ((8, 8, 16, 16), [[None, None], [None, None]]),
    ],
)
def test_runs_in_turn_are_rounds(tmp_path: Path, order: tuple[int, ...], rounds: list[list[int | None]]) -> None:
    runs = []
    for number, batch in enumerate(order):
        clock = {"time_ns": 10**18 + number * 10**9, "monotonic_ns": 0}
        runs.append(starved(tmp_path / f"{number}", batch, clock=clock))
    cells = cells_of_runs(runs)
    assert [[row.round for row in cell.rows] for cell in cells] == rounds
    assert [cell.batch_size for cell in cells] == [8, 16]


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
    rates = [f"{cell['samples_per_s']['median']:.1f}" for cell in result["cells"]]
    assert [row[rate].words.split()[0] for row in rows] == rates
    assert links(page) == []
    # A run that has a page is linked, from wherever the table's page lies.
    assert main(["report", named[1], "--format", "html"]) == 0
    assert main(["compare", *named, "--html", str(made)]) == 0
    assert links(parsed(made.read_text())) == ["../b/report.html"]
    assert sorted(path.name for path in (tmp_path / "pages").iterdir()) == ["compare.html"]


def test_what_runs_say_of_themselves_stays_words_in_the_page(tmp_path: Path) -> None:
    hostile = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"
    device = {"kind": "emulated", "title": hostile}
    hard: dict[str, Any] = {"command": ["python", hostile], "device": device, "ended": {"status": hostile}}
    runs = [starved(tmp_path / f"<i>{batch}", batch, **hard) for batch in (8, 16)]
    harmless = [starved(tmp_path / f"{batch}", batch) for batch in (8, 16)]
    made, other = tmp_path / "compare.html", tmp_path / "other.html"
    assert main(["compare", *map(str, runs), "--html", str(made)]) == 0
    assert main(["compare", *map(str, harmless), "--html", str(other)]) == 0
    page = parsed(made.read_text())
    assert page.words.count("<script>alert(1)</script>") >= 4
    assert page.all("img") + page.all("i") == []
    assert len(page.all("script")) == len(parsed(other.read_text()).all("script"))
    assert "\x1b" not in made.read_text()


def test_jobs_of_another_number_of_ranks_are_apart_and_figures_are_said_to_be_of_one_rank(tmp_path: Path) -> None:
    for name, batch, ranks in (("a", 8, 2), ("b", 16, 2), ("c", 16, 3)):
        record(tmp_path / name, [Rank(fetch_ns=batch * MS)] * ranks, samples=batch)
    cells = cells_of_runs([tmp_path / name for name in "abc"])
    assert [(c.pipeline, c.batch_size) for c in cells] == [("2 ranks", 8), ("2 ranks", 16), ("3 ranks", 16)]
    assert any("the effect of the batch size is that of one rank" in notice for notice in differences(cells))


def test_what_else_differs_is_said(tmp_path: Path) -> None:
    other = {"command": ["python", "other.py"], "device": {"kind": "emulated", "title": "emulated Other"}}
    runs = [
        starved(tmp_path / "a", 8),
        starved(tmp_path / "b", 16, ended={"status": "stopped"}, **other),
        starved(tmp_path / "c", 32, ended=None),
    ]
    for run, cpus in zip(runs, (4, 2, 4), strict=True):
        hosted(run, 1.0, cpus)
    notices = differences(cells_of_runs(runs))
    assert notices[0] == (
        "These runs differ in more than the batch size: the program (train.py, other.py); the device (emulated Test, "
        "emulated Other); the CPUs the job may use (4, 2)."
    )
    assert notices[1:] == [
        f"{runs[1]}: it did not end well (stopped). Only its recorded part counts.",
        f"{runs[2]}: no end is recorded: it still runs, or it was killed. Only its recorded part counts.",
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
        ([one, str(empty)], "holds no training step"),
        ([one, str(uncounted)], "number of samples per batch"),
        ([*map(str, sweep), "--repeats", "3", "--limit", "9"], "--repeats, --limit are options"),
        ([*map(str, sweep), "--plot", "x.bmp"], "ends in .svg, .png or .pdf"),
        (["ssd", "--plot", str(tmp_path / "no" / "x.svg")], "there is no folder"),
        ([*map(str, sweep), "--html", str(tmp_path)], "is a folder. Name a file."),
        ([*map(str, sweep), "--html", str(tmp_path / "no" / "x.html")], "there is no folder"),
    ):
        assert main(["compare", *words]) == 2, words
        printed = capsys.readouterr()
        assert (said in printed.err, len(printed.err.splitlines()), printed.out) == (True, 1, "")
    assert not list(tmp_path.glob("x.*"))


def test_without_matplotlib_a_plot_is_refused_before_anything_is_trained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["compare", "ssd", "--device", "cpu", "--plot", "x.svg"]) == 2
    assert "pip install 'whyidle[plot]'" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
