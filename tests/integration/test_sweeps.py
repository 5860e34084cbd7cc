"""Planted sweeps over the batch size, trained for real and judged: a part of `whyidle compare batch-sizes`.

Two rounds tell a growth of half the time per sample from nothing on a machine that others use too. What does not grow
takes more of them, which the benchmark runs.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from whyidle.commands import sweep_planted

GROWING = ("padding",)
STEADY = "accounting.fast"
"""Bound by the device, which is steady on any machine."""
OPTIONS = ("--batch-sizes", "4,16", "--repeats", "2", "--no-live")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """One comparison that all tests look at: folder and JSON."""
    out = tmp_path_factory.mktemp("sweeps") / "made"
    command = [sys.executable, "-m", "whyidle", "compare", "batch-sizes", "--cases", ",".join((*GROWING, STEADY))]
    shown = subprocess.run(
        [*command, *OPTIONS, "--out", str(out), "--json", "-"], capture_output=True, text=True, timeout=240
    )
    assert shown.returncode == 0, shown.stderr
    return out, json.loads(shown.stdout)


@pytest.mark.parametrize("name", [*GROWING, STEADY])
def test_the_mechanism_and_the_term_are_named_as_planted(name: str, table: tuple[Path, dict[str, Any]]) -> None:
    sweep = table[1]["sweeps"][name]
    assert sweep["named"] == sweep["planted"]


@pytest.mark.parametrize("name", GROWING)
def test_the_growth_is_the_true_one(name: str, table: tuple[Path, dict[str, Any]]) -> None:
    growth = table[1]["sweeps"][name]["growth_pct"]
    assert growth["true"] > 10
    assert 0.5 < growth["reported"] / growth["true"] < 2


@pytest.mark.parametrize("name", [*GROWING, STEADY])
def test_each_term_is_within_ten_points_of_the_truth(name: str, table: tuple[Path, dict[str, Any]]) -> None:
    told = table[1]["batch_verdicts"][name]["terms"]
    for size, true in table[1]["sweeps"][name]["true_terms"].items():
        for term, us in true.items():
            assert abs(told[size][term]["mean"] - us) < 0.1 * true["total"], f"{term} at batch {size}"


def test_a_larger_batch_that_is_faster_a_sample_still_took_longer(table: tuple[Path, dict[str, Any]]) -> None:
    verdict = table[1]["batch_verdicts"][STEADY]
    work = verdict["work"]
    assert verdict["changes"]["total"]["high"] < 0
    assert work["16"]["samples"] == 4 * work["4"]["samples"]
    assert work["16"]["seconds"] > 2 * work["4"]["seconds"]


def test_the_folder_tells_the_same_again(table: tuple[Path, dict[str, Any]]) -> None:
    folder, told = table
    again = sweep_planted.load(folder).json()
    assert again["sweeps"] == told["sweeps"]
    assert [cell["status"] for cell in again["cells"]] == ["ok"] * len(told["cells"])


def test_the_benchmark_prints_a_row_for_each_of_them(table: tuple[Path, dict[str, Any]]) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "batch_sizes.py"
    shown = subprocess.run(
        [sys.executable, str(script), "--from", str(table[0])], capture_output=True, text=True, check=True
    ).stdout
    assert f"Cause and term as planted: {len(GROWING) + 1} of {len(GROWING) + 1}." in shown
    for name in (*GROWING, STEADY):
        rows = [line for line in shown.splitlines() if line.startswith(f"| {name} |")]
        # What was planted and named, and the terms at either size.
        assert len(rows) == 3
        assert "**" not in "".join(rows)
