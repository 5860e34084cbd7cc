"""Published logs through the cost code: what the study's own notebook made of them, and what is wrong with some."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from whyidle.analyse.cells import epoch_logs, prices
from whyidle.analyse.cells.cost import Bill, bills
from whyidle.commands.main import main
from whyidle.errors import DataError, WhyidleError

WOOLF = Path(__file__).parents[2] / "data" / "woolf"


def published() -> dict[tuple[str, str], Mapping[str, str]]:
    """The notebook's tables, by training and machine as folders name it."""
    with (WOOLF / "published.csv").open() as file:
        rows = list(csv.DictReader(file))
    return {(row["test"], folder_of(row["platform"])): row for row in rows}


def folder_of(platform: str) -> str:
    """`cpu8cmp` → `cpu-compiled/cpu8`."""
    for end, folder in (("cmp", "cpu-compiled"), ("pip", "cpu-pip")):
        if platform.endswith(end):
            return f"{folder}/{platform.removesuffix(end)}"
    return platform


def assert_as_published(made: list[Bill]) -> None:
    told = published()
    for bill in made:
        row = told[bill.test, bill.machine]
        for mine, his in (
            (bill.total_s, "total_time"),
            (bill.usd, "total_cost"),
            (bill.time_ratio, "total_time_norm"),
            (bill.cost_ratio, "total_cost_norm"),
        ):
            assert mine == pytest.approx(float(row[his]), rel=1e-4), (bill.test, bill.machine, his)


def test_his_logs_cost_what_his_notebook_says() -> None:
    made = bills(epoch_logs.read(WOOLF / "logs").logs, prices.load())
    assert len(made) == 6
    assert_as_published(made)


def test_medians_and_last_figures_are_those_of_the_logs() -> None:
    by_place = {(each.test, each.machine): each for each in bills(epoch_logs.read(WOOLF / "logs").logs, prices.load())}
    lstm = by_place["imdb_bidirectional_lstm", "gpu"]
    assert (lstm.epochs, round(lstm.median_s, 2), lstm.accuracy) == (4, 308.36, 0.83352)
    text = by_place["text_generator_keras", "cpu-pip/cpu8"]
    assert text.accuracy is None
    assert text.loss == pytest.approx(1.275, abs=5e-4)
    assert lstm.price is not None
    assert lstm.usd_per_epoch == pytest.approx(308.36 * 0.745 / 3600, rel=1e-4)


def test_cost_until_an_accuracy_counts_the_epochs_up_to_the_first_that_reaches_it() -> None:
    logs = epoch_logs.read(WOOLF / "logs").logs
    made = {(each.test, each.machine): each for each in bills(logs, prices.load(), target=0.84)}
    gpu = made["imdb_bidirectional_lstm", "gpu"]
    assert gpu.target_epoch == 1
    assert gpu.target_usd == pytest.approx(323.4518 * 0.745 / 3600, rel=1e-4)
    assert made["text_generator_keras", "gpu"].target_epoch is None
    never = bills(logs, prices.load(), target=0.99)
    assert all(each.target_epoch is None and each.target_usd is None for each in never)


def test_another_machine_can_be_the_measure() -> None:
    logs = epoch_logs.read(WOOLF / "logs").logs
    made = bills(logs, prices.load(), relative_to="cpu-pip/cpu8")
    assert {each.time_ratio for each in made if each.machine == "cpu-pip/cpu8"} == {1.0}
    with pytest.raises(WhyidleError, match=r"no log is of 'tpu'. There are"):
        bills(logs, prices.load(), relative_to="tpu")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(WOOLF / "logs", tmp_path / "logs")
    return tmp_path / "logs"


LSTM = "imdb_bidirectional_lstm_tensorflow.csv"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch,elapsed,loss\n0,1.5,2.0\n1,1.", "is cut off: its last line does not end"),
        ("epoch,elapsed,loss\n0,1.5\n", "line 2: 2 values for 3 columns"),
        ("epoch,elapsed\n0,fast\n", "line 2: elapsed is 'fast', not a number"),
        ("epoch,elapsed\n0,-1\n", "line 2: elapsed is '-1', not a time"),
        ("epoch,elapsed\n0,1.5\n2,1.5\n", "line 3: epoch '2' where 1 should follow"),
        ("epoch,elapsed\n", "has no epoch"),
        ("a,b\n1,2\n", "is no log of epochs: its first line is 'a,b'"),
    ],
)
def test_a_bad_log_is_named_and_left_out(copied: Path, content: str, said: str) -> None:
    bad = copied / "gpu" / LSTM
    bad.write_text(content)
    found = epoch_logs.read(copied)
    [problem] = found.problems
    assert str(bad) in problem
    assert said in problem
    assert len(found.logs) == 5
    beside = [each for each in bills(found.logs, prices.load()) if each.test == "imdb_bidirectional_lstm"]
    assert all(each.time_ratio is None and each.cost_ratio is None for each in beside)


def test_a_log_of_fewer_epochs_and_one_that_is_missing_are_named(copied: Path) -> None:
    short = copied / "cpu-pip" / "cpu8" / LSTM
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:3]))
    (copied / "gpu" / LSTM).unlink()
    found = epoch_logs.read(copied)
    assert found.problems == (
        "imdb_bidirectional_lstm on cpu-pip/cpu8 is cut off: 2 epochs of 4.",
        "no log of imdb_bidirectional_lstm on gpu.",
    )


def test_what_holds_no_logs_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no logs"):
        epoch_logs.read(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        epoch_logs.read(tmp_path / "none")
    (tmp_path / "odd.csv").write_text("epoch,elapsed\n0," + "1" * (csv.field_size_limit() + 1) + "\n")
    with pytest.raises(DataError, match=r"odd.csv is no log of epochs: field larger"):
        epoch_logs.read(tmp_path)


def test_a_log_right_in_the_folder_is_of_the_machine_that_this_is_named_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WOOLF / "logs" / "cpu-pip" / "cpu8"
    assert {log.machine for log in epoch_logs.read(folder).logs} == {"cpu8"}
    monkeypatch.chdir(folder)
    assert {log.machine for log in epoch_logs.read(Path()).logs} == {"cpu8"}
    assert main(["compare", "cost", "--logs", "."]) == 0
    shown = capsys.readouterr().out
    assert "2 logs in .: 2 trainings, 1 machine\n" in shown
    assert "time/cpu8 and cost/cpu8: totals over those of the same training on cpu8" in " ".join(shown.split())


def test_published_logs_belong_to_the_scenario_of_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "ssd", "--logs", str(WOOLF / "logs")]) == 2
    assert "--logs is an option of `compare cost`" in capsys.readouterr().err
