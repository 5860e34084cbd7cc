"""The scenario of costs from its command: trained, priced, and priced anew by a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whyidle.commands.main import main

PER_VCPU = 0.063642 / 8


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLP for two short epochs, tried on held-out images after each, on one thread."""
    folder = tmp_path_factory.mktemp("cost")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        options = ["--experiment", "accuracy", "--net", "mnist-mlp", "--threads", "1", "--epochs", "2"]
        sizes = ["--limit", "640", "--batch-sizes", "16", "--target", "0.05", "--no-live"]
        out = ["--out", str(folder / "runs"), "--json", str(folder / "cost.json")]
        assert main(["compare", "cost", *options, *sizes, *out]) == 0
    return folder


def shown(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "cost.json").read_text())
    return content


def test_an_epoch_costs_its_time_at_the_studys_price_of_a_vcpu(compared: Path) -> None:
    content = shown(compared)
    [cell] = content["cells"]
    assert content["dataset"]["stand_in"].startswith("MNIST")
    assert cell["status"] == "ok"
    assert cell["cost"]["usd_per_hour"] == pytest.approx(PER_VCPU)
    compute, outside = (cell["breakdown"][f"{part}_pct"] / 100 for part in ("compute", "boundary"))
    assert outside > 0  # the evaluation after the first epoch
    usd_per_s = PER_VCPU / 3600
    assert cell["cost_usd"] == pytest.approx(640 / cell["samples_per_s"]["median"] * (1 - outside) * usd_per_s)
    waited = (1 - compute - outside) / (1 - outside)
    assert cell["cost"]["waited_usd_per_epoch"] == pytest.approx(cell["cost_usd"] * waited)


def test_the_first_epoch_reached_so_low_a_target_and_is_priced_with_its_evaluation(compared: Path) -> None:
    [cell] = shown(compared)["cells"]
    assert cell["cost"]["target_epochs"] == 1
    epochs = json.loads((Path(cell["runs"][0]) / "run.json").read_text())["results"]["epochs"]
    assert cell["cost"]["target_cost_usd"] == pytest.approx(epochs[0]["seconds"] * PER_VCPU / 3600)


def test_a_report_prices_the_same_runs_anew(compared: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(compared / "runs"), "--json", "--price", "3.06"]) == 0
    [cell] = json.loads(capsys.readouterr().out)["cells"]
    [before] = shown(compared)["cells"]
    assert cell["cost_usd"] == pytest.approx(before["cost_usd"] * 3.06 / PER_VCPU)
    assert main(["report", str(compared / "runs")]) == 0
    text = capsys.readouterr().out
    assert "What it costs" in text
    assert "STAND-IN DATA" in text
