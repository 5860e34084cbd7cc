"""A data set with worker processes of its own, through `whyidle run`."""

from __future__ import annotations

import sys
from pathlib import Path

import support.warm as warm
from support.runs import WITHOUT_COMPILER, report

FED_BY_ITS_OWN = """
import time, torch
from torch.utils.data import DataLoader, Dataset

class Volumes(Dataset):
    def __len__(self): return 400
    def __getitem__(self, index):
        time.sleep(0.004)
        return torch.ones(8)

class Queue(Dataset):
    # As torchio's: samples come from a loader within it, made when the first one is asked for.
    def __init__(self): self.samples = iter(())
    def __len__(self): return 160
    def __getitem__(self, index):
        sample = next(self.samples, None)
        if sample is None:
            self.samples = iter(DataLoader(Volumes(), batch_size=None, num_workers=1))
            sample = next(self.samples)
        return sample

net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for epoch in range(2):
    for batch in DataLoader(Queue(), batch_size=4):
        optimizer.zero_grad()
        net(batch).mean().backward()
        optimizer.step()
"""


def test_no_workers_are_advised_where_a_data_set_has_its_own(tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(WITHOUT_COMPILER + FED_BY_ITS_OWN)
    done = warm.run(tmp_path / "run", sys.executable, program)
    assert done.returncode == 0, done.stderr
    verdict = report(tmp_path / "run")["verdict"]
    assert verdict["cause"] == "input.serial"
    assert "batches come from workers of the data set's own" in verdict["title"]
    shown = {each["what"]: each for each in verdict["evidence"]}
    assert (shown["num_workers"]["value"], shown["num_workers"]["expected"]) == (0, "")
    assert shown["workers of the data set's own"]["value"] == 1
    assert "num_workers above 1" in verdict["next"][0]["change"]
    assert not any("settings" in each for each in verdict["next"])
