"""What the tuners' choices are worth: the duel's blocks against the grid's best, and against simpler ways to choose."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whyidle.analyse.statistics import Estimate, mean_estimate

from .blocks import Block
from .tools import WHYIDLE, Choice
from .truth import Grid, settings_of

BEST, CORES, FOUR, RANDOM = "grid's best", "workers = CPUs", "4 workers", "random 6"


@dataclass(frozen=True)
class Row:
    """One workload."""

    workload: str
    grid: Grid
    settings: dict[str, dict[str, Any]]
    """By who chose them."""
    seconds: dict[str, float]
    """By tuner."""
    regrets: dict[str, Estimate]
    """Against the grid's best, by who chose; a tuner that failed is missing."""
    over: dict[str, Estimate]
    """How much slower than whyidle's choice others are: paired in the same blocks."""
    failed: dict[str, str]
    because: str | None
    """Why whyidle stopped there, in its words."""

    @property
    def cost_reruns(self) -> float | None:
        """Of whyidle's tuning: the share of what the grid takes with a run of the script for each block."""
        return self.seconds[WHYIDLE] / self.grid.as_reruns_s() if WHYIDLE in self.seconds else None

    @property
    def cost_process(self) -> float | None:
        """The same of the grid as it was measured, in one process."""
        return self.seconds[WHYIDLE] / self.grid.wall_s if WHYIDLE in self.seconds else None

    def excess_workers(self, who: str) -> int | None:
        """Beyond the fewest that are as good as the best."""
        return self.settings[who]["num_workers"] - self.grid.fewest_workers() if who in self.settings else None


def contestants(grid: Grid, cpus: int, choices: Sequence[Choice]) -> dict[str, dict[str, Any]]:
    """Settings by who chose them."""
    simple = {BEST: grid.best, CORES: (cpus, 2), FOUR: (4, 2)}
    chosen = {choice.tool: choice.settings for choice in choices if choice.settings is not None}
    return {who: dict(settings_of(point)) for who, point in simple.items()} | chosen


def distinct(settings: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Those who chose alike share their blocks."""
    return list({key(each): each for each in settings.values()}.values())


def key(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True)


def judged(grid: Grid, cpus: int, choices: Sequence[Choice], duel: Sequence[Block]) -> Row:
    settings = contestants(grid, cpus, choices)
    rates: dict[str, dict[int, float]] = {}
    for block in duel:
        rates.setdefault(key(block.settings), {})[block.round] = block.samples_per_s
    fought = {who: rates[key(each)] for who, each in settings.items() if key(each) in rates}
    ours = fought.get(WHYIDLE)
    return Row(
        grid.workload,
        grid,
        settings,
        {choice.tool: choice.seconds for choice in choices if choice.settings is not None},
        {who: regret(each, fought[BEST]) for who, each in fought.items()},
        {} if ours is None else {who: regret(each, ours) for who, each in fought.items() if who != WHYIDLE},
        {choice.tool: str(choice.said.get("error", "")) for choice in choices if choice.settings is None},
        next((choice.said.get("because") for choice in choices if choice.tool == WHYIDLE), None),
    )


def regret(rates: Mapping[int, float], best: Mapping[int, float]) -> Estimate:
    """The part of the best's rate that is missing, negative where it was faster. From rates by round, in pairs: the
    geometric mean of the rounds' ratios, and its interval by Student's t."""
    logs = [math.log(rates[number] / best[number]) for number in sorted(rates.keys() & best.keys())]
    ratio = mean_estimate(logs)
    if len(logs) < 3:
        return Estimate(-math.expm1(ratio.value), -math.inf, 1.0)
    return Estimate(-math.expm1(ratio.value), -math.expm1(ratio.high), -math.expm1(ratio.low))


def against(row: Row, who: str) -> str:
    """Whether whyidle's choice is `better`, `worse`, or neither by more than the interval."""
    if who == RANDOM:
        mine, theirs = row.regrets[WHYIDLE], row.grid.random_regret()
        return "better" if mine.high < theirs else "worse" if mine.low > theirs else "as good"
    lost = row.over[who]
    return "better" if lost.low > 0 else "worse" if lost.high < 0 else "as good"
