"""Differences that were planted, and a gate as a CI runs it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from support.pairs import compare, noisy
from support.runs import WHYIDLE
from whyidle.commands.main import main


@pytest.fixture
def planted(tmp_path: Path) -> dict[int, Path]:
    """The same training without a worker and with three: it waits for data for 96 ms a step, or a third of that."""
    rng = np.random.default_rng(0)
    return {
        workers: noisy(tmp_path / f"workers-{workers}", rng, fetch_ms=ms, compute_ms=10, workers=workers)
        for workers, ms in ((0, 96.0), (3, 32.0))
    }


def test_a_gate_as_in_ci(
    planted: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)

    def check(folder: Path, *words: str | Path) -> tuple[int, str]:
        """In this process: starting one takes longer than checking."""
        code = main(["check", str(folder), *map(str, words)])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return code, shown.out

    file = tmp_path / "check.xml"
    # The exit code is what a CI goes by.
    command = [*WHYIDLE, "check", planted[0], "--forbid", "input.serial", "--junit", file, "--json"]
    slow = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert slow.returncode == 1
    assert json.loads(slow.stdout)["passed"] is False
    assert [case.get("name") for case in ElementTree.parse(file).iter("testcase") if case.find("failure") is not None]
    assert check(planted[3], "--forbid", "input.serial")[0] == 0
    ask = ("--max-regression", "10", "--noise", "5", "--json", "--against")
    found = compare(planted[3], planted[0], noise=0.05)
    checks = json.loads(check(planted[0], *ask, planted[3])[1])["checks"]
    (lost,) = [each for each in checks if each["name"] == "max-regression"]
    assert lost["measured"] == pytest.approx(100 * (1 - found.times.speedup.value))
    assert lost["status"] == ("failed" if found.times.speedup.high < 0.9 else "unclear")
    assert check(planted[3], *ask, planted[0])[0] == 0
    assert check(planted[3], "--against", planted[0])[0] == 2
