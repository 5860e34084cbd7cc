"""Somebody's own script, recorded at two batch sizes and compared: why the larger batch is slower."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from runs import STALLSCOPE, WITHOUT_COMPILER, run

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
        time.sleep(0.001 * size)  # a sample of a larger batch takes longer
        return torch.rand(16), index % 4

model = nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for images, labels in DataLoader(Slow(), batch_size=size):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
"""
)


def test_two_recordings_of_a_plain_script_tell_why_a_larger_batch_is_slower(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    for size in ("2", "8"):
        done = run(tmp_path / size, sys.executable, tmp_path / "train.py", size)
        assert done.returncode == 0, done.stderr
    compared = subprocess.run(
        [*STALLSCOPE, "compare", "2", "8", "--json", "result.json", "--plot", "batch.svg"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert compared.returncode == 0, compared.stderr
    assert compared.stderr == ""
    result = json.loads((tmp_path / "result.json").read_text())
    found = result["batch_verdicts"]["training"]
    assert (found["grew"], found["compared"], found["runs"]) == ("input", [2, 8], {"2": 1, "8": 1})
    assert found["terms"]["8"]["input"]["mean"] > 8000  # µs: the sleep for each sample
    assert found["changes"]["input"]["low"] > 0
    assert result["notices"] == []
    assert f"[{found['cause']}]" in compared.stdout
    assert "training: ms a sample" in compared.stdout
    assert f">{found['cause']}<" in (tmp_path / "batch.svg").read_text()
