"""Somebody's own script, recorded at two batch sizes and compared. Which verdicts come of it, `test_compare_runs` of
the commands tests on runs whose time is known."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from support.page_content import parsed
from support.runs import WITHOUT_COMPILER
from support.warm import run
from whyidle.commands.main import main

TRAIN = (
    WITHOUT_COMPILER
    + """
import sys, time, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

size = int(sys.argv[1])

class Slow(Dataset):
    def __len__(self):
        return 40 * size
    def __getitem__(self, index):
        time.sleep(0.0015 * size)  # a sample of a larger batch takes longer
        return torch.rand(16), index % 4

torch.set_num_threads(1)
model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for images, labels in DataLoader(Slow(), batch_size=size):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
"""
)


def test_two_recordings_of_a_plain_script_are_compared_in_all_forms(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    for size in ("2", "8"):
        done = run(tmp_path / size, sys.executable, tmp_path / "train.py", size)
        assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    asked = ["--json", "result.json", "--plot", "batch.svg", "--html", "compare.html"]
    assert main(["compare", "2", "8", *asked]) == 0
    shown = capsys.readouterr()
    assert shown.err == "written: compare.html\n"
    result = json.loads((tmp_path / "result.json").read_text())
    found = result["batch_verdicts"]["training"]
    assert (found["compared"], found["runs"]) == ([2, 8], {"2": 1, "8": 1})
    # µs: each sample sleeps as long at least.
    assert found["terms"]["2"]["input"]["mean"] > 3000
    assert found["terms"]["8"]["input"]["mean"] > 12000
    assert result["notices"] == []
    assert f"[{found['cause']}]" in shown.out
    assert "training: ms a sample" in shown.out
    assert f">{found['cause']}<" in (tmp_path / "batch.svg").read_text()
    page = parsed((tmp_path / "compare.html").read_text())
    assert found["text"].rstrip(".")[1:] in page.words
    assert len(page.all("a", "square")) == 2
