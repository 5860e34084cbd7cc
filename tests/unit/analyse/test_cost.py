"""Prices, and what trainings and their waiting cost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyse.analysis import analyse
from stallscope.analyse.cell_costs import cell_costs, setting_of
from stallscope.analyse.compare import Cell
from stallscope.analyse.cost import spent, waiting
from stallscope.analyse.prices import Price, load
from stallscope.commands.main import main
from stallscope.errors import StallscopeError
from stallscope.record.run import open_run, update_run
from stallscope.report.cost_text import usd
from stallscope.scenarios.planted import MS, Step, train

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
        (MINE + "usd = 1\n", "instances.mine.usd", "unknown key"),
        (MINE.replace('source = "my bill"\n', ""), "instances.mine.source", "missing"),
        (MINE.replace("2.5", "-2.5"), "instances.mine.usd_per_hour", "expected a price from 0 on, found -2.5"),
        (MINE.replace("2.5", "nan"), "instances.mine.usd_per_hour", "expected a price"),
        (MINE.replace("2.5", '"2.5"'), "instances.mine.usd_per_hour", "expected a price"),
        (MINE + "vcpus = 0\n", "instances.mine.vcpus", "expected a whole number above 0"),
        (MINE.replace('"me"', "1"), "instances.mine.provider", "expected one line of text"),
        (MINE + "[extra]\n", "extra", "unknown key"),
        (MINE + '[logs]\nfast = "none"\n', "logs.fast", "there is no instance 'none'"),
        ("[instances]\nmine = 3\n", "instances.mine", "expected a table"),
    ],
)
def test_a_wrong_price_file_is_one_message_with_file_and_key(tmp_path: Path, text: str, key: str, fact: str) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(text)
    with pytest.raises(StallscopeError) as found:
        load(file)
    assert f"{file}: {key}: {fact}" in str(found.value)


def test_a_price_file_that_is_none_is_one_message(tmp_path: Path) -> None:
    with pytest.raises(StallscopeError, match="cannot read the prices"):
        load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("[[")
    with pytest.raises(StallscopeError, match=r"bad.toml is not TOML"):
        load(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("amount", "said"),
    [
        (None, "n/a"),
        (0, "$0"),
        (97, "$97.00"),
        (1234.5, "$1,234"),
        (0.5, "$0.50"),
        (0.0471, "$0.047"),
        (4e-4, "$0.00040"),
    ],
)
def test_money_has_two_decimals_or_two_digits_that_say_something(amount: float | None, said: str) -> None:
    assert usd(amount) == said


def test_waiting_is_whatever_is_not_compute_and_unknown_where_that_is() -> None:
    assert waiting({"compute": 0.59, "input": 0.4, "host": 0.01}) == pytest.approx(0.41)
    assert waiting({"input": 0.4, "untold": 0.6}) is None


@pytest.fixture
def starved(tmp_path: Path) -> Path:
    """Batches that take 20 ms, the first half of them while the device still computes: it waits half of the time."""
    train(tmp_path / "starved", [[Step(fetch_ns=20 * MS, compute_ns=10 * MS)] * 100])
    return tmp_path / "starved"


def test_a_runs_waiting_is_priced_by_the_time_that_was_judged(starved: Path) -> None:
    analysis = analyse(open_run(starved))
    assert analysis.facts is not None
    found = spent(Price(usd_per_hour=3600.0), 10.0, [analysis.facts])
    assert found.usd == 10.0
    assert found.waited_share == pytest.approx(0.5, abs=0.03)
    assert found.waited_usd == pytest.approx(found.waited_share * analysis.facts.parts.wall_ns / 1e9)
    assert spent(Price(usd_per_hour=3600.0), None, []).usd is None
    assert spent(Price(usd_per_hour=3600.0), 10.0, []).waited_usd is None


def test_report_says_in_one_line_what_the_run_and_its_waiting_cost(
    starved: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(starved), "--instance", "p3.2xlarge"]) == 0
    [line] = [each for each in capsys.readouterr().out.splitlines() if each.startswith("At $")]
    assert line.startswith("At $3.06/h (p3.2xlarge, 2018) this run cost $0.00")
    assert "of which the device waited for $0.00" in line
    assert main(["report", str(starved), "--json", "--price", "3600"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert 0 < cost["waited_usd"] < cost["usd"]
    assert cost["waited_pct"] == pytest.approx(50, abs=3)
    assert main(["report", str(starved), "--json"]) == 0
    assert "cost" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--price", "-1"], "is not a price in USD"),
        (["--price", "cheap"], "is not a price in USD"),
        (["--price", "1", "--instance", "p2.xlarge"], "not allowed with"),
    ],
)
def test_a_price_that_is_none_is_a_usage_error(options: list[str], said: str, capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["report", "x", *options])
    assert said in capsys.readouterr().err


def test_an_unknown_instance_is_one_message_with_those_there_are(starved: Path, capsys: Any) -> None:
    assert main(["report", str(starved), "--instance", "p9"]) == 2
    said = capsys.readouterr().err
    assert "'p9'" in said
    assert "p3.2xlarge" in said


EPOCHS = [
    {"epoch": 0, "seconds": 10.0, "evaluation": {"accuracy": 0.8}},
    {"epoch": 1, "seconds": 20.0, "evaluation": {"accuracy": 0.95}},
    {"epoch": 2, "seconds": 10.0, "evaluation": {"accuracy": 0.96}},
]


def cell(folder: Path, device: str, threads: int | None, **axes: Any) -> Cell:
    update_run(folder, {"results": {"epochs": EPOCHS}})
    places = {"net": "mlp", "device": device, "threads": threads} | axes
    return Cell("naive", 8, "ok", None, (), (analyse(open_run(folder)),), (), places)


def tariff(device: str, threads: int | None) -> Price | None:
    return None if device == "cuda" else Price(usd_per_hour=3600.0 * (threads or 10))


def test_cells_cost_an_epoch_of_their_data_at_their_rate_and_price(starved: Path) -> None:
    one, four = cell(starved, "cpu", 1), cell(starved, "cpu", 4)
    said = setting_of(tariff, [("cpu", 1), ("cpu", 4)], 0.95)
    rate = one.samples_per_s
    assert rate is not None
    first, second = cell_costs([one, four], {"cost": said, "dataset": {"samples": 1000}})
    assert first.usd_per_epoch == pytest.approx(1000 / rate[0])
    assert second.usd_per_epoch == pytest.approx(4000 / rate[0])
    assert (first.ratio, second.ratio) == pytest.approx((1.0, 4.0))
    assert first.waited_usd == pytest.approx(first.usd_per_epoch / 2, rel=0.1)
    assert (first.target_epochs, first.target_usd, second.target_usd) == (2, 30.0, 120.0)


def test_costs_are_set_beside_a_chosen_device_or_number_of_threads(starved: Path) -> None:
    cells = [cell(starved, "cpu", 1), cell(starved, "cpu", 4), cell(starved, "cpu", 2, net="other")]
    places = [("cpu", count) for count in (1, 2, 4)]
    setting = {"cost": setting_of(tariff, places, None, "4"), "dataset": {"samples": 1000}}
    assert [each.ratio for each in cell_costs(cells, setting)] == [pytest.approx(0.25), 1.0, None]
    devices = [cell(starved, "emulated:k80", None), cell(starved, "emulated:p100", None)]
    setting["cost"] = setting_of(tariff, [("emulated:k80", None), ("emulated:p100", None)], None, "p100")
    assert [each.ratio for each in cell_costs(devices, setting)] == [1.0, 1.0]


def test_a_cell_without_a_price_or_a_training_costs_nothing_known_rather_than_nothing(starved: Path) -> None:
    places = [("cuda", None), ("cpu", 1)]
    cells = [cell(starved, "cuda", None), cell(starved, "cpu", 1, feed="loader-only")]
    unpriced, loader = cell_costs(cells, {"cost": setting_of(tariff, places, None), "dataset": {"samples": 1000}})
    assert (unpriced.price, unpriced.usd_per_epoch, unpriced.waited_usd) == (None, None, None)
    assert loader.usd_per_epoch is None
    assert cell_costs(cells, {"dataset": {"samples": 1000}}) == []
    assert setting_of(tariff, [("cuda", None)], 0.9) is None


def test_each_net_is_priced_by_its_own_data(starved: Path) -> None:
    setting = {"cost": setting_of(tariff, [("cpu", 1)], None), "datasets": {"mlp": {"samples": 500}}}
    [found] = cell_costs([cell(starved, "cpu", 1)], setting)
    rate = found.cell.samples_per_s
    assert rate is not None
    assert found.usd_per_epoch == pytest.approx(500 / rate[0])
