"""Prices, and what trainings and their waiting cost; published logs as the study's own notebook has them."""

from __future__ import annotations

import csv
import json
import shutil
from math import isnan, nan
from pathlib import Path
from typing import Any

import pytest

from support.cells import cell_of_analyses
from support.crafted import facts_of_run
from support.runs import mistaken
from whyidle.analyse.cells.comparison import Cell, compare
from whyidle.analyse.cells.cost import Price, bills, cell_costs, load, read_logs, setting_of, spent, waiting
from whyidle.analyse.run.analysis import analyse
from whyidle.commands.cost_options import tariff as study_tariff
from whyidle.commands.main import main
from whyidle.errors import DataError, WhyidleError
from whyidle.record.run import open_run, update_run
from whyidle.report.contract import comparison as compare_json
from whyidle.report.document import Paragraph
from whyidle.report.documents.cost import cost_blocks, usd
from whyidle.report.render import text_of
from whyidle.scenarios.planted import MS, Step, train

MINE = '[instances.mine]\nusd_per_hour = 2.5\nprovider = "me"\ndate = "2026"\nsource = "my bill"\n'


def test_every_price_says_where_it_is_from_and_a_vcpu_costs_the_same_at_every_size() -> None:
    prices = load()
    assert all(each.source and each.provider and each.date for each in prices.instances.values())
    sizes = [each for name, each in prices.instances.items() if name.startswith("gcp-highcpu") and "2017-07" in name]
    assert [each.vcpus for each in sizes] == [8, 16, 32, 64]
    for each in sizes:
        assert each.usd_per_hour / (each.vcpus or 0) == pytest.approx(0.007955, abs=1e-6)
        assert prices.of_vcpus(each.vcpus or 0).usd_per_hour == pytest.approx(each.usd_per_hour)
    assert prices.instances["p3.2xlarge"].doubt
    assert [each and each.date for each in map(prices.of_accelerator, ("k80", "p100"))] == ["2017-11", "2017-11"]
    assert prices.of_accelerator("v100") == prices.instance("p3.2xlarge")
    assert prices.of_accelerator("gtx1080") is None


def test_a_users_file_adds_prices_and_replaces_ours(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(MINE + MINE.replace("instances.mine", 'instances."p2.xlarge"') + '[logs]\nfast = "mine"\n')
    prices = load(file)
    assert prices.instance("mine").usd_per_hour == 2.5
    assert prices.instance("p2.xlarge").usd_per_hour == 2.5
    assert prices.instance("p3.2xlarge").usd_per_hour == 3.06
    assert prices.of_logs("fast") == prices.of_logs("mine") == prices.instance("mine")


@pytest.mark.parametrize(
    ("text", "key", "fact"),
    [
        (MINE + "usd = 1\n", "instances.mine", "Object contains unknown field `usd`"),
        (MINE.replace('source = "my bill"\n', ""), "instances.mine", "Object missing required field `source`"),
        (MINE.replace("2.5", "-2.5"), "instances.mine.usd_per_hour", "Expected `float` >= 0.0"),
        (MINE.replace("2.5", "nan"), "instances.mine.usd_per_hour", "Expected `float`"),
        (MINE.replace("2.5", '"2.5"'), "instances.mine.usd_per_hour", "Expected `float`, got `str`"),
        (MINE + "vcpus = 0\n", "instances.mine.vcpus", "Expected `int` >= 1"),
        (MINE.replace('"me"', "1"), "instances.mine.provider", "Expected `str`, got `int`"),
        (MINE.replace('"me"', '" "'), "instances.mine.provider", "Expected `str` matching regex"),
        (MINE + '[logs]\nfast = "none"\n', "logs.fast", "there is no instance 'none'"),
        ("[instances]\nmine = 3\n", "instances[...]", "Expected `object`, got `int`"),
        ("[[", "", ""),
    ],
)
def test_a_wrong_price_file_is_one_message_with_file_and_key(tmp_path: Path, text: str, key: str, fact: str) -> None:
    file = tmp_path / "prices.toml"
    with pytest.raises(WhyidleError, match="cannot read the prices"):
        load(file)
    file.write_text(text)
    with pytest.raises(WhyidleError) as found:
        load(file)
    assert (f"{file}: {key}: {fact}" if key else "prices.toml is not TOML") in str(found.value)


def test_money_has_two_decimals_or_two_digits_that_say_something() -> None:
    said = {None: "n/a", 0: "$0", 97: "$97.00", 1234.5: "$1,234", 0.5: "$0.50", 0.0471: "$0.047", 4e-6: "$0.0000040"}
    assert {amount: usd(amount) for amount in said} == said


def test_waiting_is_whatever_within_steps_is_not_compute_and_unknown_where_that_is() -> None:
    assert waiting({"compute": 0.59, "input": 0.4, "host": 0.01}) == pytest.approx(0.41)
    assert waiting({"compute": 0.59, "input": 0.1, "boundary": 0.31}) == pytest.approx(0.1)
    assert isnan(waiting({"input": 0.4, "untold": 0.6}))


def test_a_runs_waiting_is_priced_by_the_time_that_was_judged(starved: Path) -> None:
    analysis = analyse(open_run(starved))
    found = spent(Price(usd_per_hour=3600.0), 10.0, [analysis.facts])
    assert found.usd == 10.0
    assert found.waited_share == pytest.approx(0.5, abs=0.03)
    assert found.waited_usd == pytest.approx(found.waited_share * analysis.facts.parts.wall_ns / 1e9)
    unknown = spent(Price(usd_per_hour=3600.0), None, [])
    assert isnan(unknown.usd)
    assert isnan(unknown.waited_usd)


def test_report_says_in_one_line_what_the_run_and_its_waiting_cost(
    starved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(starved), "--instance", "p3.2xlarge"]) == 0
    [line] = [each for each in capsys.readouterr().out.splitlines() if each.startswith("At $")]
    assert line.startswith("At $3.06/h (p3.2xlarge, 2018) this run cost $0.00")
    assert " of it while the device waited (" in line
    assert main(["report", str(starved), "--json", "--price", "3600"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert 0 < cost["waited_usd"] < cost["usd"]
    assert cost["waited_pct"] == pytest.approx(50, abs=3)
    assert main(["report", str(starved), "--json"]) == 0
    assert "cost" not in json.loads(capsys.readouterr().out)


@pytest.fixture
def validating(tmp_path: Path) -> Path:
    """20 ms a step, half of it waiting, and after every tenth step as long again outside the steps."""
    steps = [Step(fetch_ns=20 * MS, compute_ns=10 * MS, boundary_ns=200 * MS * (n % 10 == 9)) for n in range(100)]
    train(tmp_path / "validating", [steps])
    return tmp_path / "validating"


def test_validation_is_no_waiting_and_in_no_epochs_cost(validating: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts = facts_of_run(validating)
    outside = facts.shares["boundary"]
    assert outside > 0.3
    found = spent(Price(usd_per_hour=3600.0), 10.0, [facts])
    assert found.waited_share == pytest.approx(1 - facts.shares["compute"] - outside)
    assert found.boundary_usd == pytest.approx(outside * facts.parts.wall_ns / 1e9)
    one = cell(validating, "cpu", 1)
    [priced] = cell_costs([one], setting(("cpu", 1, 1)))
    assert priced.usd_per_epoch == pytest.approx(1000 / one.samples_per_s.value * (1 - outside))
    waited = (1 - facts.shares["compute"] - outside) / (1 - outside)
    assert priced.waited_usd_per_epoch == pytest.approx(priced.usd_per_epoch * waited)
    assert main(["report", str(validating), "--price", "3600"]) == 0
    assert "outside the steps: validation, checkpoints." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--price", "-1"], "is not a price in USD"),
        (["--price", "cheap"], "is not a price in USD"),
        (["--price", "1", "--instance", "p2.xlarge"], "not allowed with"),
        (["--instance", "p9"], "p3.2xlarge"),
    ],
)
def test_a_price_that_is_none_is_one_message(options: list[str], said: str, starved: Path, capsys: Any) -> None:
    assert said in mistaken(capsys, "report", starved, *options)


EPOCHS = [
    {"epoch": 0, "seconds": 10.0, "evaluation": {"accuracy": 0.8}},
    {"epoch": 1, "seconds": 20.0, "evaluation": {"accuracy": 0.95}},
    {"epoch": 2, "seconds": 10.0, "evaluation": {"accuracy": 0.96}},
]


def cell(folder: Path, device: str, threads: int | None, **axes: Any) -> Cell:
    update_run(folder, {"results": {"epochs": EPOCHS}})
    places = {"net": "mlp", "device": device, "threads": threads} | axes
    return cell_of_analyses([analyse(open_run(folder))], places, pipeline="naive")


def tariff(device: str, threads: int | None, ranks: int) -> Price | None:
    return None if device == "cuda" else Price(usd_per_hour=3600.0 * ranks * (threads or 10))


def setting(*places: tuple[str, int | None, int], target: float | None = None, **more: Any) -> dict[str, Any]:
    """Of a comparison whose places have prices, of a set of 1,000 samples."""
    beside = more.pop("beside", None)
    return {"cost": setting_of(tariff, list(places), target, beside), "dataset": {"samples": 1000}} | more


def test_cells_cost_an_epoch_of_their_data_at_their_rate_and_price(starved: Path) -> None:
    cells = [cell(starved, "cpu", 1), cell(starved, "cpu", 4), cell(starved, "cpu", 1, ranks=2)]
    said = setting(("cpu", 1, 1), ("cpu", 4, 1), ("cpu", 1, 2), target=0.95)
    first, second, of_two = cell_costs(cells, said)
    rate = cells[0].samples_per_s
    assert first.usd_per_epoch == pytest.approx(1000 / rate.value)
    assert second.usd_per_epoch == pytest.approx(4000 / rate.value)
    assert of_two.usd_per_epoch == pytest.approx(2000 / rate.value)
    assert (first.ratio, second.ratio) == pytest.approx((1.0, 4.0))
    assert first.waited_usd_per_epoch == pytest.approx(first.usd_per_epoch / 2, rel=0.1)
    assert (first.target_epochs, first.target_cost_usd, second.target_cost_usd) == (2, 30.0, 120.0)
    [own] = cell_costs(cells[:1], said | {"datasets": {"mlp": {"samples": 500}}})
    assert own.usd_per_epoch == pytest.approx(500 / rate.value)


ROWS: dict[str, tuple[str, int | None, dict[str, Any]]] = {
    "one": ("cpu", 1, {}),
    "two": ("cpu", 2, {"feed": "synthetic"}),
    "four": ("cpu", 4, {}),
    "other": ("cpu", 2, {"net": "other"}),
    "k80": ("emulated:k80", None, {}),
    "p100": ("emulated:p100", None, {}),
    "unpriced": ("cuda", None, {}),
}


@pytest.mark.parametrize(
    ("rows", "beside", "ratios"),
    [
        ("one four other", "4", [0.25, 1.0, nan]),
        ("k80 p100", "p100", [1.0, 1.0]),
        ("unpriced two one", None, [nan, 2.0, 1.0]),
    ],
)
def test_ratios_are_to_what_was_chosen_or_the_first_row_of_real_data_that_has_a_cost(
    starved: Path, rows: str, beside: str | None, ratios: list[float]
) -> None:
    chosen = [ROWS[name] for name in rows.split()]
    places = [(device, threads, 1) for device, threads, _ in chosen]
    cells = [cell(starved, device, threads, **axes) for device, threads, axes in chosen]
    found = [each.ratio for each in cell_costs(cells, setting(*places, beside=beside))]
    assert found == pytest.approx(ratios, nan_ok=True)


def test_a_cell_without_a_price_or_a_training_costs_nothing_known_rather_than_nothing(starved: Path) -> None:
    places = ("cuda", None, 1), ("cpu", 1, 1)
    cells = [cell(starved, "cuda", None), cell(starved, "cpu", 1, feed="loader-only"), cell(starved, "cpu", 1)]
    unpriced, loader, _ = cell_costs(cells, setting(*places))
    assert unpriced.price is None
    assert all(map(isnan, (unpriced.usd_per_epoch, unpriced.waited_usd_per_epoch, loader.usd_per_epoch)))
    assert cell_costs(cells, {"dataset": {"samples": 1000}}) == []
    assert setting_of(tariff, [("cuda", None, 1)], 0.9) is None
    unpriced_json, _, priced = compare_json.comparison(compare(cells), setting(*places))["cells"]
    assert priced["cost_usd"] > 0
    assert (unpriced_json["cost_usd"], unpriced_json["cost"]["usd_per_hour"]) == (None, None)
    assert unpriced_json["cost"].keys() == priced["cost"].keys()


def test_several_ranks_cost_several_accelerators_or_threads_and_other_scenarios_nothing_known() -> None:
    prices = load()
    study = study_tariff(prices, "cost")
    one, two = (study("emulated:k80", None, ranks) for ranks in (1, 2))
    assert one is not None
    assert two is not None
    assert two.usd_per_hour == pytest.approx(2 * one.usd_per_hour)
    assert two.title.startswith("$0.995/h (2 x gcp-k80-2017-11")
    assert study("cpu", 2, 3) == prices.of_vcpus(6)
    assert (study("cuda", None, 1), study_tariff(prices, "ssd")("cpu", 2, 3)) == (None, None)


@pytest.mark.parametrize("whole", [False, True])
def test_worker_processes_are_said_to_have_no_price_unless_it_is_the_machines(starved: Path, whole: bool) -> None:
    said = setting_of(tariff, [("cpu", 1, 1)], None, whole=whole)
    told = {"cost": said, "dataset": {"samples": 1000}, "device": {"kind": "cpu"}}
    blocks = cost_blocks([cell(starved, "cpu", 1, workers=2)], told)
    words = [text_of(block.words).plain for block in blocks if isinstance(block, Paragraph)]
    assert any("Loader workers are not priced" in line for line in words) != whole


WOOLF = Path(__file__).parents[2] / "data" / "woolf"


MACHINES = {"cpu8pip": "cpu-pip/cpu8", "cpu64cmp": "cpu-compiled/cpu64", "gpu": "gpu"}
"""Of the notebook's tables, as folders name them."""


def test_his_logs_cost_what_his_notebook_says() -> None:
    with (WOOLF / "published.csv").open() as file:
        told = {(row["test"], MACHINES.get(row["platform"])): row for row in csv.DictReader(file)}
    _, made = bills(read_logs(WOOLF / "logs")[0], load(), target=0.84)
    assert len(made) == 6
    for bill in made:
        row = told[bill.test, bill.machine]
        his = [float(row[f"total_{name}"]) for name in ("time", "cost", "time_norm", "cost_norm")]
        assert [bill.total_s, bill.cost_usd, bill.time_ratio, bill.cost_ratio] == pytest.approx(his, rel=1e-4), row
    gpu = next(bill for bill in made if (bill.test, bill.machine) == ("imdb_bidirectional_lstm", "gpu"))
    assert (gpu.target_epoch, gpu.target_cost_usd) == (1, pytest.approx(323.4518 * 0.745 / 3600, rel=1e-4))


def test_another_machine_can_be_the_measure() -> None:
    logs = read_logs(WOOLF / "logs")[0]
    _, made = bills(logs, load(), relative_to="cpu-pip/cpu8")
    assert {each.time_ratio for each in made if each.machine == "cpu-pip/cpu8"} == {1.0}
    with pytest.raises(WhyidleError, match=r"there is no log of 'tpu'. There are"):
        bills(logs, load(), relative_to="tpu")


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    shutil.copytree(WOOLF / "logs", tmp_path / "logs")
    return tmp_path / "logs"


LSTM = "imdb_bidirectional_lstm_tensorflow.csv"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("epoch,elapsed,loss\n0,1.5,2.0\n1,1.", "it is cut off, as its last line does not end"),
        ("epoch,elapsed\n0,fast\n", "'fast'"),
        ("epoch,elapsed\n0,-1\n", "column elapsed has what is no time"),
        ("epoch,elapsed\n0,inf\n", "column elapsed has what is no time"),
        ("epoch,elapsed\n0\n", "column elapsed has what is no time"),
        ("epoch,elapsed\n0,1.5\n2,1.5\n", "column epoch does not count from 0"),
        ("epoch,elapsed\n", "column epoch does not count from 0"),
        ("a,b\n1,2\n", "column epoch does not count from 0"),
    ],
)
def test_a_bad_log_is_named_and_left_out(copied: Path, content: str, said: str) -> None:
    bad = copied / "gpu" / LSTM
    bad.write_text(content)
    logs, [problem] = read_logs(copied)
    assert str(bad) in problem
    assert said in problem
    assert len(logs) == 5
    beside = [each for each in bills(logs, load())[1] if each.test == "imdb_bidirectional_lstm"]
    assert all(isnan(each.time_ratio) and isnan(each.cost_ratio) for each in beside)


def test_a_log_of_fewer_epochs_is_named(copied: Path) -> None:
    short = copied / "cpu-pip" / "cpu8" / LSTM
    short.write_text("".join(short.read_text().splitlines(keepends=True)[:3]))
    assert read_logs(copied)[1] == ["imdb_bidirectional_lstm on cpu-pip/cpu8 is cut off: 2 epochs of 4."]


def test_what_holds_no_logs_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no logs"):
        read_logs(tmp_path)
    with pytest.raises(DataError, match="there is no folder"):
        read_logs(tmp_path / "none")
    (tmp_path / "odd.csv").write_text("epoch,elapsed\n0," + "1" * (csv.field_size_limit() + 1) + "\n")
    with pytest.raises(DataError, match=r"odd.csv is not a log of epochs: field larger"):
        read_logs(tmp_path)


def test_a_log_right_in_the_folder_is_of_the_machine_that_this_is_named_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = WOOLF / "logs" / "cpu-pip" / "cpu8"
    assert {log.machine for log in read_logs(folder)[0]} == {"cpu8"}
    monkeypatch.chdir(folder)
    assert {log.machine for log in read_logs(Path())[0]} == {"cpu8"}
    assert main(["compare", "cost", "--logs", "."]) == 0
    shown = capsys.readouterr().out
    assert "2 logs in .: 2 trainings, 1 machine\n" in shown
    assert "time/cpu8 and cost/cpu8: totals relative to the same training on cpu8" in " ".join(shown.split())


def test_published_logs_belong_to_the_scenario_of_costs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "ssd", "--logs", str(WOOLF / "logs")]) == 2
    assert "--logs is an option of `compare cost`" in capsys.readouterr().err
