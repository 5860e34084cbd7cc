"""What tuners' choices are worth: the duel's blocks against the grid's best and simpler ways to choose, in tables."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Any

import numpy as np

from whyidle.analyse.statistics import Estimate, students_t

from .blocks import Block, Grid, settings_of
from .tools import LOADTUNE, WHYIDLE, Choice

BEST, CORES, FOUR, RANDOM = "grid's best", "workers = CPUs", "4 workers", "random 6"
MEDIAN, TENTH, COST, WORKERS = 0.02, 0.06, 0.15, 1
"""Targets: regret in the middle and of nine in ten workloads, cost as a share of the grid's, workers too many."""


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
    logs = [math.log(rates[number] / best[number]) for number in rates.keys() & best.keys()]
    reach = math.inf if len(logs) < 3 else students_t(len(logs) - 1) * stdev(logs) / len(logs) ** 0.5
    return Estimate(*(-math.expm1(fmean(logs) + by) for by in (0, reach, -reach)))


def against(row: Row, who: str) -> str:
    """Whether whyidle's choice is `better`, `worse`, or neither by more than the interval."""
    if who == RANDOM:
        mine, theirs = row.regrets[WHYIDLE], row.grid.random_regret()
        return "better" if mine.high < theirs else "worse" if mine.low > theirs else "as good"
    lost = row.over[who]
    return "better" if lost.low > 0 else "worse" if lost.high < 0 else "as good"


def tables(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown, a line each."""
    yield from _worth(rows)
    yield from _chosen(rows)
    yield from _cost(rows)
    for row in rows:
        for tool, why in row.failed.items():
            yield from (f"{row.workload}: {tool} failed: {why or 'it said nothing'}", "")
    yield from summary(rows)


def summary(rows: Sequence[Row]) -> Iterator[str]:
    """Each target, met or missed."""
    done = [row for row in rows if WHYIDLE in row.regrets]
    failed = [row.workload for row in rows if WHYIDLE in row.failed]
    if not done and not failed:
        return
    yield from ("## Targets", "")
    if failed:
        yield f"- **Missed**: tuning failed on {', '.join(failed)}."
    if not done:
        return
    regrets = [row.regrets[WHYIDLE].value for row in done]
    middle, tenth = median(regrets), float(np.quantile(regrets, 0.9))
    yield _target(middle <= MEDIAN, f"median regret {middle:.1%}, at most {MEDIAN:.0%}")
    yield _target(tenth <= TENTH, f"regret of nine in ten workloads {tenth:.1%} or less, at most {TENTH:.0%}")
    for told, of in (("cost_reruns", "with a run of the script for each block"), ("cost_process", "in one process")):
        share = [getattr(row, told) for row in done]
        middle, most = median(share), max(share)
        yield _target(most <= COST, f"cost {middle:.0%} of the grid's {of}, {most:.0%} at most; at most {COST:.0%}")
    excess = {row.workload: row.excess_workers(WHYIDLE) or 0 for row in done}
    worst = max(excess.values())
    more = f"{max(0, worst)} workers more than needed at most ({', '.join(n for n, w in excess.items() if w == worst)})"
    yield _target(worst <= WORKERS, f"{more}, at most {WORKERS}")
    for who in (RANDOM, CORES, FOUR, LOADTUNE):
        outcomes = {row.workload: against(row, who) for row in done if who == RANDOM or who in row.over}
        if outcomes:
            yield _target("worse" not in outcomes.values(), f"nowhere clearly worse than {who}: {_outcomes(outcomes)}")
    yield ""


def _target(met: bool, what: str) -> str:
    return f"- {'Met' if met else '**Missed**'}: {what}."


def _outcomes(outcomes: dict[str, str]) -> str:
    counts = Counter(outcomes.values())
    said = [f"{outcome} on {counts[outcome]}" for outcome in ("better", "as good", "worse")]
    worse = [name for name, outcome in outcomes.items() if outcome == "worse"]
    return ", ".join(said) + (f" ({', '.join(worse)})" if worse else "")


def _worth(rows: Sequence[Row]) -> Iterator[str]:
    who = (WHYIDLE, LOADTUNE, CORES, FOUR)
    yield from _head("Regret: % below the grid's best", "workload", *who, f"{RANDOM}, expected")
    for row in rows:
        cells = " | ".join(_regret(row, each) for each in who)
        yield f"| {row.workload} | {cells} | {100 * row.grid.random_regret():.1f} |"
    yield from (
        "",
        "In brackets: 95 % of the paired blocks' mean. Same: the settings of the grid's best themselves.",
        "",
    )


def _regret(row: Row, who: str) -> str:
    if who not in row.regrets:
        return "failed" if who in row.failed else "not run"
    if row.settings[who] == row.settings[BEST]:
        return "same"
    told = row.regrets[who]
    return f"{100 * told.value:.1f} [{100 * told.low:.1f} {100 * told.high:.1f}]"


def _chosen(rows: Sequence[Row]) -> Iterator[str]:
    who = (BEST, WHYIDLE, LOADTUNE)
    beyond = (f"{tool}'s beyond" for tool in (WHYIDLE, LOADTUNE))
    yield from _head("Settings: workers × prefetch factor", "workload", *who, "fewest workers within 3 %", *beyond)
    for row in rows:
        cells = " | ".join(_settings(row.settings.get(each)) for each in who)
        excess = " | ".join(_or_nothing(row.excess_workers(each), "+d") for each in (WHYIDLE, LOADTUNE))
        yield f"| {row.workload} | {cells} | {row.grid.fewest_workers()} | {excess} |"
    yield ""
    yield from (f"- {row.workload}: {row.because}." for row in rows if row.because)
    yield ""


def _settings(settings: dict[str, Any] | None) -> str:
    if settings is None:
        return ""
    told = f"{settings['num_workers']}" + (f" × {settings['prefetch_factor']}" if settings["num_workers"] else "")
    told += "" if settings.get("in_order", True) else ", any order"
    return told + (f", batch {settings['batch_size']}" if "batch_size" in settings else "")


def _cost(rows: Sequence[Row]) -> Iterator[str]:
    grids = ("grid, one process", "of it, %", "grid, a run a block", "of it, %")
    yield from _head("Cost: seconds", "workload", WHYIDLE, LOADTUNE, *grids)
    for row in rows:
        tools = " | ".join(_or_nothing(row.seconds.get(tool), ".0f") for tool in (WHYIDLE, LOADTUNE))
        one = f"{row.grid.wall_s:.0f} | {_percent(row.cost_process)}"
        yield f"| {row.workload} | {tools} | {one} | {row.grid.as_reruns_s():.0f} | {_percent(row.cost_reruns)} |"
    yield ""


def _head(title: str, *columns: str) -> Iterator[str]:
    yield from (f"## {title}", "", f"| {' | '.join(columns)} |", "|---|" + "---|" * (len(columns) - 1))


def _or_nothing(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"
