"""Differences that were planted, in trainings recorded for real; and a gate as a CI runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from pairs import compare
from runs import WHYIDLE, WITHOUT_COMPILER
from whyidle.commands.faults import TARGET
from whyidle.commands.main import main
from whyidle.scenarios.faults.registry import CASES
from whyidle.scenarios.faults.trial import FaultSpec
from whyidle.tune.trial import TrialServer
from warm import run

TRAINING = """
import sys, time, torch
from torch.utils.data import DataLoader, Dataset

class Samples(Dataset):
    def __len__(self):
        return 400
    def __getitem__(self, index):
        time.sleep(0.012)
        return torch.ones(8), 0

if __name__ == "__main__":
    net = torch.nn.Linear(8, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in DataLoader(Samples(), 8, num_workers=int(sys.argv[1])):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The same training without a worker and with three: it waits for data for 96 ms a step, or a third of that."""
    folder = tmp_path_factory.mktemp("runs")
    script = folder / "train.py"
    script.write_text(WITHOUT_COMPILER + TRAINING)
    for workers in (0, 3):
        ended = run(folder / str(workers), sys.executable, script, str(workers))
        assert ended.returncode == 0, ended.stderr
    return {workers: folder / str(workers) for workers in (0, 3)}


def test_a_planted_fault_that_was_cured_is_the_part_that_moved(tmp_path: Path) -> None:
    server = TrialServer(TARGET)
    for name in ("severe", "mild"):
        spec = FaultSpec(f"host.sync-{name}", str(tmp_path / name), 0, 0)
        case = {"trial": {"scenario": "faults", "case": spec.case, "planted": list(CASES[spec.case].causes)}}
        outcome = server.run(tmp_path / name, spec, case, lambda: None)
        assert outcome.status == "ok", outcome.error
    found = compare(tmp_path / "severe", tmp_path / "mild")
    assert found.times.speedup.mean > 1.3
    changes = {name: term.change.mean for name, term in found.times.terms.items() if name != "total"}
    assert min(changes, key=lambda name: changes[name]) == "sync"
    assert found.emulated


def test_more_workers_are_named_in_trainings_that_were_recorded(recorded: dict[int, Path]) -> None:
    found = compare(recorded[0], recorded[3], noise=0.05)
    fell = found.times.terms["input"]
    assert fell.significant
    assert fell.change.mean < 0
    assert [(each.a, each.b) for each in found.settings if each.name == "num_workers"] == [(0, 3)]
    assert found.times.speedup.mean > 1
    if found.times.significant:
        # Beside programs that fill the CPUs the whole may not show it.
        assert (found.because.kind, found.because.part) == ("setting", "input")
        assert [each.name for each in found.because.by] == ["num_workers"]


def test_a_gate_as_in_ci(
    recorded: dict[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    command = [*WHYIDLE, "check", recorded[0], "--forbid", "input.serial", "--junit", file, "--json"]
    slow = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert slow.returncode == 1
    assert json.loads(slow.stdout)["passed"] is False
    assert [case.get("name") for case in ElementTree.parse(file).iter("testcase") if case.find("failure") is not None]
    assert check(recorded[3], "--forbid", "input.serial")[0] == 0
    ask = ("--max-regression", "10", "--noise", "5", "--json", "--against")
    found = compare(recorded[3], recorded[0], noise=0.05)
    checks = json.loads(check(recorded[0], *ask, recorded[3])[1])["checks"]
    (lost,) = [each for each in checks if each["name"] == "max-regression"]
    assert lost["measured"] == pytest.approx(100 * (1 - found.times.speedup.mean))
    assert lost["status"] == ("failed" if found.times.speedup.high < 0.9 else "unclear")
    assert check(recorded[3], *ask, recorded[0])[0] == 0
    assert check(recorded[3], "--against", recorded[0])[0] == 2
