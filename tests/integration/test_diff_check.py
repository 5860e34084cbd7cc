"""Differences that were planted, trainings recorded for real, and a gate as a CI runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from support.pairs import compare, noisy
from support.runs import WHYIDLE, WITHOUT_COMPILER
from support.warm import run
from whyidle.commands.main import main

TRAINING = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.ones(8), 0

if __name__ == "__main__":
    net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in DataLoader(Samples(), 8, num_workers=int(sys.argv[1])):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        time.sleep(0.002)
"""


@pytest.fixture
def planted(tmp_path: Path) -> dict[int, Path]:
    """The same training without a worker and with three: it waits for data for 96 ms a step, or a third of that."""
    rng = np.random.default_rng(0)
    return {
        workers: noisy(tmp_path / f"workers-{workers}", rng, fetch_ms=ms, compute_ms=10, workers=workers)
        for workers, ms in ((0, 96.0), (3, 32.0))
    }


def test_trainings_that_were_recorded_are_compared_with_their_settings(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WITHOUT_COMPILER + TRAINING)
    for workers in (0, 2):
        ended = run(tmp_path / str(workers), sys.executable, script, str(workers))
        assert ended.returncode == 0, ended.stderr
    found = compare(tmp_path / "0", tmp_path / "2", noise=0.05)
    assert [(each.a, each.b) for each in found.settings if each.name == "num_workers"] == [(0, 2)]
    terms = [term.change.value for name, term in found.times.terms.items() if name != "total"]
    assert sum(terms) == pytest.approx(found.times.terms["total"].change.value)


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
