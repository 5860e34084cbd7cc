"""A training that logs what it waits for: to a function whose calls go to the file argv names, and to one that fails.

It ends once it has logged twice, or after some minutes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import whyidle

calls = []
failures = []


def log(figures: dict[str, float], step: int) -> None:
    calls.append([figures, step])


def fail(figures: dict[str, float], step: int) -> None:
    failures.append(step)
    raise ConnectionError("the server is away")


class Slow(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.002)
        return torch.ones(3)


whyidle.log_to(fail, every_s=0.2)
whyidle.log_to(log, every_s=0.2)
net = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(net.parameters(), 0.01)
steps = 0
until = time.monotonic() + 200
while len(calls) < 2 and time.monotonic() < until:
    for batch in DataLoader(Slow(), batch_size=8):
        optimizer.zero_grad()
        net(batch).sum().backward()
        optimizer.step()
        steps += 1
Path(sys.argv[1]).write_text(json.dumps({"calls": calls, "failures": failures, "steps": steps}))
