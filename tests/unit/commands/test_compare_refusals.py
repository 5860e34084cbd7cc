"""What `compare` can know before it trains, it says before: one message, nothing measured."""

from __future__ import annotations

import io
import multiprocessing
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from whyidle.analyse.cells.axes import place
from whyidle.analyse.cells.cell_costs import setting_of
from whyidle.analyse.cells.comparison import Cell
from whyidle.analyse.cells.prices import Price
from whyidle.commands.compare_options import TAKEN
from whyidle.commands.main import main, parser
from whyidle.errors import WhyidleError
from whyidle.matrix.experiment import Request, plan
from whyidle.matrix.trial import INTERRUPTED, TrialTarget, _child
from whyidle.matrix.used import beyond_cpus
from whyidle.report.documents.cost import _epochs_shown, cost_blocks
from whyidle.results.comparisons import put_price
from whyidle.terminal.comparison_progress import MatrixProgress

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


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["compare", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Traceback" not in said.err
    return " ".join(said.err.split())


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("nam", "None", "Mine has no name (a text). Every scenario says these"),
        ("name", "request.folder + 1", "{file}:14, in open_data"),
        ("name", "request", "open_data gave a DataRequest, which has no __len__, no read"),
    ],
)
def test_a_mistake_in_a_scenario_of_ones_own_is_one_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, data: str, said: str
) -> None:
    file = tmp_path / f"mine_{name}_{len(data)}.py"
    file.write_text(SCENARIO.format(name=name, data=data))
    assert said.format(file=file) in refused(capsys, str(file), "--device", "cpu", "--data", str(tmp_path))


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
            "ethernet-10g can be emulated only",
        ),
        (["fashion-mnist", "--data", "no/where"], "no/where does not exist"),
        ([*COST, "--experiment", "threads", "--ranks", "2"], "threads of cost takes no --ranks 2"),
        (["fashion-mnist", "--data", __file__], "is not a folder"),
    ],
)
def test_what_could_never_be_measured_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert said in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def test_every_option_is_taken_by_some_kind_of_comparison_and_every_one_taken_is_there() -> None:
    there = vars(parser().parse_args(["compare", "ssd"])).keys() - {"verb", "run", "parser", "what"}
    assert set().union(*(taken.names for taken in TAKEN.values())) == there


def test_a_size_too_large_for_the_data_is_skipped(tmp_path: Path) -> None:
    given: dict[str, Any] = {"device": ("cpu",), "net": ("mnist-mlp",), "limit": 320, "out": tmp_path / "runs"}
    matrix, _ = plan(Request(scenario="cost", **given, batch_sizes=(8, 512), threads=(1, 2)), print)
    titles = [f"{threads}, naive, batch {size}" for threads in ("1 thread", "2 threads") for size in (8, 512)]
    assert [each.title for each in matrix.planned] == titles
    assert [cell.status for cell in matrix.cells] == ["pending", "skipped"] * 2
    assert "320 samples do not fill one batch of 512" in str(matrix.cells[-1].error)


def test_each_line_of_progress_is_of_its_own_cell() -> None:
    said = io.StringIO()
    runs = [SimpleNamespace(job=None, facts=SimpleNamespace(samples_per_s=rate)) for rate in (9.0, 5.0)]
    setting = {"device": {"name": "emulated:k80, emulated:v100", "kind": "emulated"}}
    shown = MatrixProgress(Console(file=said), cast("Any", SimpleNamespace(setting=setting, runs_ahead=2)), plain=True)
    for device in ("emulated:k80", "emulated:v100"):
        shown.end("a cell", Cell("naive", 8, "ok", None, (), cast("Any", tuple(runs)), axes={"device": device}))
    assert said.getvalue().splitlines() == [
        "[1/2] a cell: ok 5.0 samples/s on emulated:k80",
        "[2/2] a cell: ok 5.0 samples/s on emulated:v100",
    ]


def test_more_threads_or_workers_than_cpus_are_told_of() -> None:
    assert beyond_cpus(Request(scenario="cost", threads=(1, 999), workers=2), 2.0) == [
        "--threads 999 is more than the 2 CPUs that this job may use: they take turns"
    ]
    assert beyond_cpus(Request(scenario="cost"), 2.0) == []


@pytest.mark.parametrize(("usd", "epochs"), [(0.0, 1), (0.02, 1), (4e-6, 1_000), (9.2e-9, 1_000_000)])
def test_so_many_epochs_are_priced_that_the_price_can_be_read(usd: float, epochs: int) -> None:
    assert _epochs_shown([None, 5.0, usd]) == epochs


def cell(device: str) -> Cell:
    return Cell("naive", 8, "skipped", None, (), (), axes={"device": device, "threads": None, "ranks": 1})


def test_one_price_is_refused_for_trainings_on_two_devices() -> None:
    with pytest.raises(WhyidleError, match="trainings on 2 devices"):
        put_price(Price(usd_per_hour=1.0), [cell("emulated:k80"), cell("emulated:v100")], {})
    setting: dict[str, object] = {}
    put_price(Price(usd_per_hour=1.0), [cell("cpu"), cell("cpu")], setting)
    assert setting["cost"] == setting_of(lambda *_: Price(usd_per_hour=1.0), [("cpu", None, 1)], None, None, True)
    assert list(cost_blocks([cell("cpu")], setting | {"device": {"kind": "cpu"}}))


def test_places_are_told_in_words_that_agree_with_their_number() -> None:
    told = [place("workers", 1), place("ranks", 2), place("ranks", 1), place("augment", False)]
    assert told == ["1 worker", "2 ranks", "1 rank", "no augmentation"]


def test_ctrl_c_while_a_training_is_being_imported_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow_to_import.py").write_text(
        f"import pathlib, time\npathlib.Path({str(tmp_path / 'begun')!r}).touch()\ntime.sleep(1000)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_child, args=(TrialTarget("slow_to_import", "run"), None, there))
    child.start()
    here.send("go")
    while not (tmp_path / "begun").exists():
        assert child.is_alive()
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGINT)
    child.join(60)
    assert child.exitcode == INTERRUPTED
    assert capfd.readouterr().err == ""
