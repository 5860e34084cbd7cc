"""A planted sweep over the batch size, trained for real: what the command and the benchmark make of it.

Whether its reason is found, the benchmark of diagnosis measures.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from whyidle_bench import batch_sizes as sweep_planted

NAME = "accounting.fast"
SIZES = ("4", "16")
BENCHMARK = [sys.executable, "-m", "whyidle_bench", "batch-sizes"]


@pytest.mark.slow
def test_a_sweep_is_trained_at_each_size_and_told_beside_its_truth_again_and_again(tmp_path: Path) -> None:
    out = tmp_path / "made"
    command = [*BENCHMARK, "--cases", NAME, "--repeats", "2"]
    options = ["--batch-sizes", ",".join(SIZES), "--no-live", "--out", str(out), "--json", "-"]
    shown = subprocess.run([*command, *options], capture_output=True, text=True, timeout=280)
    assert shown.returncode == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert [cell["status"] for cell in told["cells"]] == ["ok", "ok"]
    sweep, verdict = told["sweeps"][NAME], told["batch_verdicts"][NAME]
    assert sweep["planted"]["cause"] is not None
    assert set(sweep["true_terms"]) == set(verdict["terms"]) == set(SIZES)
    # It is a larger batch that processes more samples.
    assert verdict["work"]["16"]["samples"] == 4 * verdict["work"]["4"]["samples"]
    assert sweep_planted.load(out).json()["sweeps"] == told["sweeps"]

    rows = subprocess.run([*BENCHMARK, "--from", str(out)], capture_output=True, text=True)
    assert rows.returncode == 0, rows.stderr
    # What was planted and named, and the terms at either size.
    assert len([line for line in rows.stdout.splitlines() if line.startswith(f"| {NAME} |")]) == 3
