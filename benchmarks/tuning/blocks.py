"""Blocks of a training with given loader settings, one after another in one process: how fast each trained; and grids.

Plain PyTorch, and nothing of whyidle. Each block makes its loader anew: workers start, what they made ahead
meanwhile is dropped, the queue comes to where it stays, and only then is measured. What that takes is told apart.
`measure` starts the process, and this file is also its program: the plan comes in by stdin, a line of JSON goes out
for each block.

The file of an exhaustive grid, which `grid.py` writes, is JSON: what was asked for and where, for each workload the
samples of its batch, what the whole grid took in one process (`wall_s`) and what start-ups of `train.py` took that
trained one batch (`script_s`), and all blocks with the fields of `Block`; `prefetch_factor` is null without workers.

The best of many noisy figures is too good to be true. So a setting is chosen by some rounds and judged by another one,
in turn, wherever something is compared with the best of the grid.
"""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, median
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
FORMAT, VERSION = "whyidle-tuning-grid", 1
WORKERS = tuple(range(9))
PREFETCH = (1, 2, 4, 8)
SMALL = ((0, None), (1, 2), (2, 1), (2, 2), (4, 2), (4, 4))
"""Some points for a quick look."""
NEAR = 0.03
"""So far below the best are settings that are as good."""
PICKS = 6

Point = tuple[int, int | None]
"""Workers, prefetch factor."""
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


def points(small: bool) -> list[Point]:
    """What the grid consists of."""
    return list(SMALL) if small else [(0, None), *((w, p) for w in WORKERS[1:] for p in PREFETCH)]


def settings_of(point: Point) -> dict[str, int | None]:
    return {"num_workers": point[0], "prefetch_factor": point[1]}


def point_of(settings: dict[str, Any]) -> Point:
    workers = settings["num_workers"]
    return workers, settings.get("prefetch_factor") if workers else None


class Grid:
    """One workload's grid."""

    def __init__(self, workload: str, blocks: Iterable[Block], wall_s: float, script_s: Sequence[float]) -> None:
        self.workload = workload
        self.blocks = list(blocks)
        self.wall_s, self.script_s = wall_s, list(script_s)
        self.rounds = sorted({block.round for block in self.blocks})
        self._rates = {(point_of(block.settings), block.round): block.samples_per_s for block in self.blocks}
        self.points = [
            point
            for point in dict.fromkeys(point_of(block.settings) for block in self.blocks)
            if all((point, number) in self._rates for number in self.rounds)
        ]

    def rate(self, point: Point, rounds: Sequence[int] | None = None) -> float:
        """Samples a second: the mean of the rounds'."""
        return fmean(self._rates[point, number] for number in rounds or self.rounds)

    @property
    def best(self) -> Point:
        """By all rounds."""
        return max(self.points, key=self.rate)

    def best_rate(self) -> float:
        """What the best is worth, without luck: chosen by the other rounds, judged by one."""
        return fmean(self.rate(order[0], [judge]) for judge, order in self._turns())

    def regret(self, point: Point) -> float:
        """The part of the best's rate that is missing with these settings."""
        return self._missing(self.rate(point, [judge]) / self.rate(order[0], [judge]) for judge, order in self._turns())

    def random_regret(self, picks: int = PICKS) -> float:
        """The same of the best of so many settings drawn at random, expected over all draws."""
        share = _share_best(len(self.points), picks)
        turns = (
            sum(weight * self.rate(point, [judge]) for weight, point in zip(share, order, strict=True))
            / self.rate(order[0], [judge])
            for judge, order in self._turns()
        )
        return self._missing(turns)

    def fewest_workers(self) -> int:
        """Of all settings that are as good as the best."""
        enough = (1 - NEAR) * self.best_rate()
        return min((point[0] for point in self.points if self.rate(point) >= enough), default=self.best[0])

    def as_reruns_s(self) -> float:
        """What the grid costs with a run of the script for each block: start-up, loader and queue, block."""
        return sum(median(self.script_s) + block.settle_s + block.seconds for block in self.blocks)

    def _turns(self) -> list[tuple[int, list[Point]]]:
        """(the round that judges, all settings in the order that the other rounds put them in)."""
        turns = []
        for judge in self.rounds:
            others = [number for number in self.rounds if number != judge] or [judge]
            turns.append((judge, sorted(self.points, key=lambda point: self.rate(point, others), reverse=True)))
        return turns

    @staticmethod
    def _missing(shares: Iterable[float]) -> float:
        return 1 - math.exp(fmean(map(math.log, shares)))


def _share_best(among: int, picks: int) -> list[float]:
    """How likely the k-th best is the best of so many picked at random, for each k."""
    picks = min(picks, among)
    return [math.comb(among - place - 1, picks - 1) / math.comb(among, picks) for place in range(among)]


def as_json(about: dict[str, Any], workloads: dict[str, dict[str, Any]], blocks: Sequence[dict[str, Any]]) -> str:
    told = {"format": FORMAT, "version": VERSION, **about, "workloads": workloads}
    head = json.dumps(told, indent=1)[:-2]
    return f'{head},\n "blocks": [\n  ' + ",\n  ".join(map(json.dumps, blocks)) + "\n ]\n}\n"


def read(path: Path) -> tuple[dict[str, Any], dict[str, Grid]]:
    """(the file, its grids by workload).

    Raises:
        SystemExit: it is none.
    """
    try:
        told = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} cannot be read: {error}") from None
    if not isinstance(told, dict) or told.get("format") != FORMAT or told.get("version") != VERSION:
        raise SystemExit(f"{path} is no grid of benchmarks.tuning.grid, version {VERSION}")
    blocks = [Block(**each) for each in told["blocks"]]
    return told, {
        name: Grid(name, (block for block in blocks if block.workload == name), cost["wall_s"], cost["script_s"])
        for name, cost in told["workloads"].items()
    }


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
