"""The benchmark of what observing costs: that it runs, and what it finds roughly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "overhead.py"
TARGET_US = 15
"""CPU time a step that whyidle's hooks may add."""


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    """What a quick run prints, and its figures."""
    figures = tmp_path_factory.mktemp("overhead") / "figures.json"
    command = [sys.executable, str(SCRIPT), "--quick", "--json", str(figures)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text())


@pytest.mark.slow
def test_every_observer_has_a_row_at_every_length(quick: tuple[str, dict[str, Any]]) -> None:
    text, figures = quick
    assert [table["target_ms"] for table in figures["tables"]] == [0.2, 10.0]
    for table in figures["tables"]:
        assert [row["observer"] for row in table["rows"]] == [
            "none",
            "whyidle",
            "whyidle, every step",
            "whyidle, and its sampler",
            "torch.profiler, schedule",
            "torch.profiler, always on",
        ]
        for row in table["rows"]:
            assert row["observer"] in text
            for added in row["added"].values():
                assert added["low"] <= added["median"] <= added["high"]


@pytest.mark.slow
def test_the_steps_have_about_the_length_that_was_asked_for(quick: tuple[str, dict[str, Any]]) -> None:
    _, figures = quick
    short, long = figures["tables"]
    assert short["products"] == 0
    assert long["products"] > 0
    assert long["step_us"] > 5 * short["step_us"]


@pytest.mark.slow
def test_the_hooks_do_not_cost_several_times_their_target(quick: tuple[str, dict[str, Any]]) -> None:
    # Where steps are short the difference is many times the noise; the lower end, since the machine may be busy.
    _, figures = quick
    added = {row["observer"]: row["added"] for row in figures["tables"][0]["rows"]}
    assert added["whyidle"]["cpu"]["low"] < 4 * TARGET_US
    assert added["whyidle, every step"]["cpu"]["low"] < 4 * TARGET_US
    assert added["whyidle"]["cpu"]["median"] < added["torch.profiler, schedule"]["cpu"]["median"]


@pytest.mark.slow
def test_every_target_has_a_verdict(quick: tuple[str, dict[str, Any]]) -> None:
    text, figures = quick
    targets = [verdict["target"] for verdict in figures["targets"]]
    assert any("µs a step looked at" in target for target in targets)
    assert any("thins itself out and says so" in target for target in targets)
    assert "under 0.5 s added at the start" in targets
    for verdict in figures["targets"]:
        assert f"{'met   ' if verdict['met'] else 'MISSED'}  {verdict['target']}" in text
