"""The tables of `tuning.py`, in markdown: what each choice is worth, what choosing cost, and which targets are met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any

import numpy as np

from .judge import BEST, CORES, FOUR, RANDOM, Row, against
from .tools import LOADTUNE, WHYIDLE

MEDIAN, TENTH, COST, WORKERS = 0.02, 0.06, 0.15, 1
"""Targets: regret in the middle and of nine in ten workloads, cost as a share of the grid's, workers too many."""


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
    yield "## Targets"
    yield ""
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
    yield "## Regret: % below the grid's best"
    yield ""
    yield f"| workload | {' | '.join(who)} | {RANDOM}, expected |"
    yield "|---|" + "---|" * (len(who) + 1)
    for row in rows:
        cells = " | ".join(_regret(row, each) for each in who)
        yield f"| {row.workload} | {cells} | {100 * row.grid.random_regret():.1f} |"
    yield ""
    yield "In brackets: 95 % of the paired blocks' mean. Same: the settings of the grid's best themselves."
    yield ""


def _regret(row: Row, who: str) -> str:
    if who not in row.regrets:
        return "failed" if who in row.failed else "not run"
    if row.settings[who] == row.settings[BEST]:
        return "same"
    told = row.regrets[who]
    return f"{100 * told.value:.1f} [{100 * told.low:.1f} {100 * told.high:.1f}]"


def _chosen(rows: Sequence[Row]) -> Iterator[str]:
    who = (BEST, WHYIDLE, LOADTUNE)
    yield "## Settings: workers × prefetch factor"
    yield ""
    yield f"| workload | {' | '.join(who)} | fewest workers within 3 % | {WHYIDLE}'s beyond | {LOADTUNE}'s beyond |"
    yield "|---|" + "---|" * (len(who) + 3)
    for row in rows:
        cells = " | ".join(_settings(row.settings.get(each)) for each in who)
        beyond = " | ".join(_or_nothing(row.excess_workers(each), "+d") for each in (WHYIDLE, LOADTUNE))
        yield f"| {row.workload} | {cells} | {row.grid.fewest_workers()} | {beyond} |"
    yield ""
    yield from (f"- {row.workload}: {row.because}." for row in rows if row.because)
    yield ""


def _settings(settings: dict[str, Any] | None) -> str:
    if settings is None:
        return ""
    told = f"{settings['num_workers']}"
    if settings["num_workers"]:
        told += f" × {settings['prefetch_factor']}"
    told += "" if settings.get("in_order", True) else ", any order"
    return told + (f", batch {settings['batch_size']}" if "batch_size" in settings else "")


def _cost(rows: Sequence[Row]) -> Iterator[str]:
    yield "## Cost: seconds"
    yield ""
    yield "| workload | whyidle | loadtune | grid, one process | of it, % | grid, a run a block | of it, % |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        tools = " | ".join(_or_nothing(row.seconds.get(tool), ".0f") for tool in (WHYIDLE, LOADTUNE))
        one = f"{row.grid.wall_s:.0f} | {_percent(row.cost_process)}"
        yield f"| {row.workload} | {tools} | {one} | {row.grid.as_reruns_s():.0f} | {_percent(row.cost_reruns)} |"
    yield ""


def _or_nothing(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}"
