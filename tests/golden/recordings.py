"""All recordings whose outputs are kept, and the commands that make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from golden import singles
from golden.output import (
    Output,
    all_tables,
    as_columns,
    as_json,
    as_short_json,
    as_text,
    as_trace,
    page_data,
    page_words,
)


@dataclass(frozen=True)
class Recording:
    build: Callable[[Path], None]
    """Makes what the commands read, in a folder."""
    outputs: Sequence[Output]


def _report(*folders: str) -> list[Output]:
    """A recorded run in every form, by its folder or those of its hosts."""
    report = ("report", *folders)
    page = (*report, "--format", "html", "-o", "page.html")
    return [
        Output("report.txt", report, as_text),
        Output("report.json", (*report, "--json"), as_json),
        Output("report.md", (*report, "--format", "markdown"), as_text),
        Output("prometheus.prom", (*report, "--format", "prometheus"), as_text),
        Output("steps.json", (*report, "--format", "csv"), as_columns),
        Output("page.txt", page, page_words()),
        Output("page-data.json", page, page_data()),
    ]


def _trace(*folders: str) -> Output:
    return Output("trace.json", ("report", *folders, "--format", "trace"), as_trace)


LIVE = Output("live.txt", ("live", "run", "--once"), as_text)
RUN = [*_report("run"), LIVE]
TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color"}
IN_DETAIL = [
    *RUN,
    Output("report-80-colours.txt", ("report", "run"), as_text, TERMINAL | {"COLUMNS": "80"}),
    Output("report-80-no-colour.txt", ("report", "run"), as_text, TERMINAL | {"COLUMNS": "80", "NO_COLOR": "1"}),
    Output("report-price.txt", ("report", "run", "--price", "2.5"), as_text),
    Output("report-price.json", ("report", "run", "--price", "2.5", "--json"), as_json),
    Output("steps.csv", ("report", "run", "--format", "csv"), as_text),
    Output("tables.json", ("report", "run", "--format", "csv", "-o", "tables/"), all_tables("tables")),
    Output("trace-4-steps.json", ("report", "run", "--format", "trace", "--steps", "20:23"), as_json),
    Output("live.json", ("live", "run", "--once", "--json"), as_short_json),
    Output("live-at-2-s.txt", ("live", "run", "--once", "--at", "2"), as_text),
    Output("live-at-2-s.json", ("live", "run", "--once", "--json", "--at", "2"), as_short_json),
    Output("live-80-colours.txt", ("live", "run", "--once"), as_text, TERMINAL | {"COLUMNS": "80", "LINES": "24"}),
    Output("live-ascii.txt", ("live", "run", "--once", "--ascii"), as_text),
]
DETAILED = ("several-causes", "too-few-workers", "on-cpu")
TRACED = (
    *("several-causes", "too-few-workers", "on-cpu", "no-training", "straggler", "worker-restart", "validation"),
    *("launch", "step-gap", "headroom", "torn", "on-cpu-no-fetch", "older-version", "odd-words", "throttled", "long"),
)


def _of_run(name: str) -> list[Output]:
    return [*(IN_DETAIL if name in DETAILED else RUN), *([_trace("run")] if name in TRACED else [])]


RECORDINGS: dict[str, Recording] = {name: Recording(build, _of_run(name)) for name, build in singles.BUILDERS.items()}
