"""The scenario of costs from its command: trained, priced, and priced anew by a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from whyidle.commands.main import main

PER_VCPU = 0.063642 / 8


@pytest.mark.slow
def test_a_training_is_priced_by_its_own_times_and_priced_anew_by_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An MLP for two short epochs, tried on held-out images after each, on one thread."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    options = ["--experiment", "accuracy", "--net", "mnist-mlp", "--threads", "1", "--epochs", "2"]
    sizes = ["--limit", "640", "--batch-sizes", "16", "--target", "0.05", "--no-live"]
    out = ["--out", str(tmp_path / "runs"), "--json", str(tmp_path / "cost.json")]
    assert main(["compare", "cost", *options, *sizes, *out]) == 0
    content: dict[str, Any] = json.loads((tmp_path / "cost.json").read_text())
    [cell] = content["cells"]
    assert content["dataset"]["stand_in"].startswith("MNIST")
    assert cell["status"] == "ok"

    # An epoch costs its time at the study's price of a vCPU.
    assert cell["cost"]["usd_per_hour"] == pytest.approx(PER_VCPU)
    compute, outside = (cell["breakdown"][f"{part}_pct"] / 100 for part in ("compute", "boundary"))
    assert outside > 0  # the evaluation after the first epoch
    usd_per_s = PER_VCPU / 3600
    assert cell["cost_usd"] == pytest.approx(640 / cell["samples_per_s"]["median"] * (1 - outside) * usd_per_s)
    waited = (1 - compute - outside) / (1 - outside)
    assert cell["cost"]["waited_usd_per_epoch"] == pytest.approx(cell["cost_usd"] * waited)

    # The first epoch reached so low a target, and is priced with its evaluation.
    assert cell["cost"]["target_epochs"] == 1
    epochs = json.loads((Path(cell["runs"][0]) / "run.json").read_text())["results"]["epochs"]
    assert cell["cost"]["target_cost_usd"] == pytest.approx(epochs[0]["seconds"] * PER_VCPU / 3600)

    capsys.readouterr()
    assert main(["report", str(tmp_path / "runs"), "--json", "--price", "3.06"]) == 0
    [anew] = json.loads(capsys.readouterr().out)["cells"]
    assert anew["cost_usd"] == pytest.approx(cell["cost_usd"] * 3.06 / PER_VCPU)
    assert main(["report", str(tmp_path / "runs")]) == 0
    text = capsys.readouterr().out
    assert "What it costs" in text
    assert "STAND-IN DATA" in text
