"""The file of an exhaustive grid, and what follows from it: the best, how far below it others are, what it cost.

The file that `grid.py` writes is JSON:

    {"format": "whyidle-tuning-grid", "version": 1,
     "machine": …, "cpus": 2, "date": …, "command": …, "load": [before, after], "seconds": asked for in a block,
     "workloads": {NAME: {"batch_size": samples, "step_s": the accelerator's time for a step,
                          "wall_s": the whole grid in one process, "script_s": [start-ups of `train.py` that were timed,
                          one batch each]}},
     "blocks": [{"workload", "settings": {"num_workers", "prefetch_factor"}, "round", "batches", "samples", "seconds",
                 "wait_s", "start_s", "settle_s", "stop_s"}, …]}

A block's fields are those of `blocks.Block`; `prefetch_factor` is null without workers.

The best of many noisy figures is too good to be true. So a setting is chosen by some rounds and judged by another one,
in turn, wherever something is compared with the best of the grid.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from .blocks import Block

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
