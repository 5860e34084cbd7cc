"""Blocks of a training with given loader settings, one after another in one process: how fast each trained.

Plain PyTorch, and nothing of whyidle. Each block makes its loader anew: workers start, what they made ahead
meanwhile is dropped, the queue comes to where it stays, and only then is measured. What that takes is told apart.
`measure` starts the process, and this file is also its program: the plan comes in by stdin, a line of JSON goes out
for each block.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from .programs.workloads import WORKLOADS

SETTLE_S = 0.3
"""At least so long a block's loader feeds the training before it is measured."""
ROOT = Path(__file__).parents[2]
EPOCH = 4000
"""Batches, as in `programs/train.py`: no block reaches an epoch's end."""

Settings = Mapping[str, Any]
"""Arguments of torch's DataLoader."""


@dataclass(frozen=True)
class Block:
    """Steps measured in a row with one setting."""

    workload: str
    settings: dict[str, Any]
    round: int
    batches: int
    samples: int
    seconds: float
    """From the end of one step to the end of another."""
    wait_s: float
    """Within those: in fetches."""
    start_s: float
    """From asking for the loader's iterator to its first batch."""
    settle_s: float
    """After that, until the queue was where it stays."""
    stop_s: float
    """To end the workers."""

    @property
    def samples_per_s(self) -> float:
        return self.samples / self.seconds

    @property
    def all_s(self) -> float:
        """What the block cost."""
        return self.start_s + self.settle_s + self.seconds + self.stop_s


def shuffled(points: Sequence[Settings], rounds: int, seed: int = 0) -> list[tuple[int, Settings]]:
    """(round, settings): round by round, so that the machine's drift hits all alike, each in an order of its own."""
    draw = random.Random(seed)
    return [(number, point) for number in range(rounds) for point in draw.sample(list(points), len(points))]


def measure(workload: str, plan: Sequence[tuple[int, Settings]], seconds: float) -> Iterator[Block]:
    """Each of the plan's blocks, of at least so many seconds, when it is done.

    Raises:
        SystemExit: the training failed; what it said is on stderr.
    """
    job = {"workload": workload, "plan": [[number, dict(point)] for number, point in plan], "seconds": seconds}
    command = [sys.executable, "-m", "benchmarks.tuning.blocks"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            with child.stdin as told:
                json.dump(job, told)
            for line in child.stdout:
                yield Block(**json.loads(line))
            if child.wait():
                raise SystemExit(f"the training of {workload} ended with exit code {child.returncode}")
        finally:
            child.kill()


class Training:
    """One net, one data set, and a loader for each block."""

    def __init__(self, workload: str) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)
        self._workload = WORKLOADS[workload]
        self._data = self._workload.data(EPOCH * self._workload.batch)
        self._net = self._workload.net()
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=1e-3)

    def block(self, number: int, settings: dict[str, Any], seconds: float) -> Block:
        now = time.perf_counter
        workers, ahead = settings["num_workers"], settings.get("prefetch_factor") or 0
        arguments = {"batch_size": self._workload.batch, **settings}
        loader = DataLoader(self._data, shuffle=True, drop_last=True, **arguments)
        asked = now()
        fetches = iter(loader)
        next(fetches)
        came = now()
        # What the first workers made while the last were started would feed a training that is faster than its loader
        # for longer than a block: it is taken away. Then the queue fills as it does in a long training.
        for _ in range(workers * ahead):
            next(fetches)
        settling, drained = workers * (ahead + 1), now()
        while settling > 0 or now() - drained < SETTLE_S:
            self._step(next(fetches))
            settling -= 1
        begin = end = now()
        batches = samples = 0
        wait_s = 0.0
        # Whole turns of the workers, which deliver one after another: the slow of them and the quick alike.
        while end - begin < seconds or batches < 3 * workers or batches % max(1, workers):
            batch = next(fetches)
            wait_s += now() - end
            samples += self._step(batch)
            batches += 1
            end = now()
        del fetches, batch
        around = {"start_s": came - asked, "settle_s": begin - came, "stop_s": now() - end}
        spent_s = end - begin
        return Block(self._workload.name, settings, number, batches, samples, spent_s, wait_s, **around)

    def _step(self, batch: list[torch.Tensor]) -> int:
        samples, labels = batch
        loss = nn.functional.cross_entropy(self._net(samples), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return len(samples)


def main() -> None:
    """Measure the plan that stdin has."""
    # Torch's, about more workers than CPUs: that is part of the plan.
    warnings.simplefilter("ignore", UserWarning)
    job = json.load(sys.stdin)
    training = Training(job["workload"])
    for number, settings in job["plan"]:
        print(json.dumps(asdict(training.block(number, settings, job["seconds"]))), flush=True)


if __name__ == "__main__":
    main()
