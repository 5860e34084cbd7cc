"""All recordings whose outputs are kept, and the commands that make them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from golden import comparisons, others, ranks, singles
from golden.output import (
    Output,
    Ran,
    all_parquet,
    all_tables,
    as_columns,
    as_json,
    as_short_json,
    as_text,
    as_trace,
    page_data,
    page_words,
    ran,
    without_usage,
    written,
)
from golden.planted_tables import PLANTED_TABLES
from whyidle.commands.verbs import VERBS


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


PROFILES = ("report", "run", "--format", "speedscope")


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
    Output("parquet.json", ("report", "run", "--format", "parquet", "-o", "parquet/"), all_parquet("parquet")),
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


OF_SOME = {
    "with-stacks": [
        Output("speedscope.json", PROFILES, as_short_json),
        Output("live-at-2-s.txt", ("live", "run", "--once", "--at", "2"), as_text),
        Output("live-at-2-s.json", ("live", "run", "--once", "--json", "--at", "2"), as_short_json),
    ],
    "healthy": [Output("speedscope.txt", PROFILES, as_text)],
}


def _of_run(name: str) -> list[Output]:
    more = [*([_trace("run")] if name in TRACED else []), *OF_SOME.get(name, [])]
    return [*(IN_DETAIL if name in DETAILED else RUN), *more]


COMPARED = [
    Output("report.txt", ("report", "table"), as_text),
    Output("report.json", ("report", "table", "--json"), as_json),
    Output("report.md", ("report", "table", "--format", "markdown"), as_text),
    Output("prometheus.prom", ("report", "table", "--format", "prometheus"), as_text),
    Output("cells.csv", ("report", "table", "--format", "csv"), as_text),
    Output("page.txt", ("report", "table", "--format", "html", "-o", "page.html"), page_words()),
]
COMPARED_IN_DETAIL = [
    *COMPARED,
    Output("report-80-colours.txt", ("report", "table"), as_text, TERMINAL | {"COLUMNS": "80"}),
    Output("report-price.txt", ("report", "table", "--price", "1.5"), as_text),
    Output("live.txt", ("live", "table", "--once"), as_text),
    Output("diff-of-cells.txt", ("diff", "table/0-workers-b8", "table/1-naive-b8"), as_text),
    Output("diff-of-cells.json", ("diff", "table/0-workers-b8", "table/1-naive-b8", "--json"), as_json),
]
_WITH_RUNS = ("report", "table", "--format", "html", "--with-runs")
PAGES = [
    Output("page.txt", _WITH_RUNS, page_words("table/report.html")),
    Output("page-of-a-run.txt", _WITH_RUNS, page_words("table/1-workers-b8-r0/report.html")),
]
"""A recording of their own: other commands would lead to these pages."""
TUNED = [
    Output("report.txt", ("report", "tuned"), as_text),
    Output("report.json", ("report", "tuned", "--json"), as_json),
    Output("report.md", ("report", "tuned", "--format", "markdown"), as_text),
    Output("page.txt", ("report", "tuned", "--format", "html", "-o", "page.html"), page_words()),
]
ATTACHED = [
    Output("report.txt", ("report", "run"), as_text),
    Output("report.json", ("report", "run", "--json"), as_json),
    Output("report.md", ("report", "run", "--format", "markdown"), as_text),
    Output("prometheus.prom", ("report", "run", "--format", "prometheus"), as_text),
    Output("host.json", ("report", "run", "--format", "csv", "--table", "host"), as_columns),
    Output("trace.json", ("report", "run", "--format", "trace"), as_trace),
    Output("speedscope.txt", PROFILES, as_text),
    Output("page.txt", ("report", "run", "--format", "html", "-o", "page.html"), page_words()),
]


def _compared(*runs: str) -> list[Output]:
    return [
        Output("compare.txt", ("compare", *runs), as_text),
        Output("compare.json", ("compare", *runs, "--json", "-"), as_json),
        Output("page.txt", ("compare", *runs, "--html", "page.html"), page_words()),
    ]


def _told_apart(*sides: str) -> list[Output]:
    return [
        Output("diff.txt", ("diff", *sides), as_text),
        Output("diff.json", ("diff", *sides, "--json"), as_json),
        Output("diff-noise.txt", ("diff", *sides, "--noise", "1.5"), as_text),
    ]


ALL_LIMITS = (
    *("--max-stall", "60", "--max-input", "5", "--max-copy", "30", "--max-sync", "20", "--max-host", "1"),
    *("--max-boundary", "10", "--min-samples-per-s", "200", "--min-utilisation", "70", "--min-busy", "20"),
    *("--min-au", "20", "--min-steps", "30", "--max-overhead", "1", "--max-dropped", "0", "--max-severity", "minor"),
    *("--forbid", "copy,host.sync", "--max-regression", "5", "--against", "slower"),
)
_SAVE = ("report", "slower", "--json", "-o", "saved.json")
ON_GITHUB = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": "summary.md"}


def _checked(name: str, *words: str) -> list[Output]:
    return [
        Output(f"{name}.txt", ("check", *words), as_text),
        Output(f"{name}.json", ("check", *words, "--json"), as_json),
    ]


def _against_saved(of: Ran) -> str:
    """Of a run that is held against the report of another."""
    return as_text(of) + as_text(
        ran(("check", "run", "--max-regression", "5", "--against", "saved.json"), of.folder, {})
    )


CHECKED = [
    *_checked("passes", "run", "--max-stall", "90", "--min-busy", "10"),
    *_checked("all-limits", "run", *ALL_LIMITS),
    Output("junit.xml", ("check", "run", *ALL_LIMITS, "--junit", "junit.xml"), written("junit.xml")),
    Output("github.txt", ("check", "run", *ALL_LIMITS), as_text, ON_GITHUB),
    Output("github-summary.md", ("check", "run", *ALL_LIMITS), written("summary.md"), ON_GITHUB),
    *_checked("several", "run", "slower", "--max-stall", "60"),
    *_checked("slower", "slower", "--max-regression", "5", "--against", "run"),
    *_checked("noisy", "noisier", "--max-regression", "3", "--against", "noisy"),
    *_checked("noisy-allowed", "noisier", "--max-regression", "3", "--against", "noisy", "--allow-noisy"),
    *_checked("short", "short", "--max-stall", "60"),
    *_checked("short-allowed", "short", "--max-stall", "60", "--allow-short"),
    *_checked("killed", "killed", "--max-stall", "90"),
    *_checked("killed-allowed", "killed", "--max-stall", "90", "--allow-unfinished"),
    *_checked("nothing", "nothing", "--max-stall", "60", "--max-regression", "5", "--against", "run"),
    *_checked("missing", "killed", "--min-utilisation", "50", "--allow-unfinished"),
    *_checked("missing-allowed", "killed", "--min-utilisation", "50", "--allow-unfinished", "--allow-missing"),
    Output("against-saved.txt", _SAVE, _against_saved),
]
CONFIGURED = _checked("configured", "run")


def _nothing(at: Path) -> None:
    """Commands that read no recording."""


HELPS = [
    Output("whyidle.help", ("--help",), as_text),
    *(Output(f"{verb.name}.help", (verb.name, "--help"), as_text) for verb in VERBS),
    Output("scenarios.txt", ("scenarios",), as_text),
    Output("scenarios.json", ("scenarios", "--json"), as_json),
    Output("version.txt", ("--version",), as_text),
]


def _mistaken(at: Path) -> None:
    singles.made_in_training(at)
    singles.too_few_steps(at / "other")
    (at / "empty").mkdir()
    (at / "a-file").write_text("no recording")
    (at / "broken").mkdir()
    (at / "broken" / "run.json").write_text('{"format": "whyidle-run", "version": 99}')


MISTAKES = (
    "report nowhere",
    "report empty",
    "report a-file",
    "report broken",
    "report .",
    "report",
    "report run --format csv --json",
    "report run --format csv --table cells",
    "report run --format csv --steps 1:2",
    "report run --format trace --steps 1:2 --from 3",
    "report run --format trace --steps 90:2",
    "report run --format trace --from 900",
    "report run --format parquet",
    "report run --with-runs",
    "report run --plot x.svg",
    "report run -o nowhere/report.txt",
    "report run --formt json",
    "diff run",
    "diff run run",
    "diff run nowhere",
    "diff run other/run --noise 200",
    "check",
    "check run",
    "check nowhere --max-stall 5",
    "check run --max-stall 500",
    "check run --forbid input.seriel",
    "check run --max-regression 5",
    "check run --max-regression 5 --against run",
    "compare run",
    "compare run run",
    "compare run nowhere",
    "compare run other/run --epochs 2",
    "compare nothing",
    "compare faults --cases input.seriel",
    "compare ssd --cases input.serial",
    "compare run other/run --html -",
    "live",
    "live run --json",
    "live nowhere --once",
    "live run --once --at 1000",
    "live run --gpus",
    "repot run",
    "tune",
    "data ssd",
    "run",
)


def _every_mistake(of: Ran) -> str:
    """Each with its exit code and what was said."""
    said = []
    for words in MISTAKES:
        each = ran(tuple(words.split()), of.folder, {})
        said.append(f"$ whyidle {words}\n{without_usage(as_text(each))}")
    return "\n".join(said)


LOGS = ("compare", "cost", "--logs", "logs")
OF_LOGS = [
    Output("compare.txt", LOGS, as_text),
    Output("compare.json", (*LOGS, "--json", "-"), as_json),
    Output("compare-target.txt", (*LOGS, "--target", "0.8", "--relative-to", "gpu"), as_text),
]


OF_HOSTS = [
    *_report("job"),
    _trace("job"),
    Output("report-of-each.txt", ("report", "job/beta", "job/alpha"), as_text),
    Output("report-of-one.txt", ("report", "job/beta"), as_text),
]
ON_GPUS = [
    *RUN,
    _trace("run"),
    Output("live-at-4-s.txt", ("live", "run", "--once", "--at", "4"), as_text),
    Output("live-at-4-s.json", ("live", "run", "--once", "--json", "--at", "4"), as_short_json),
    Output("live-80.txt", ("live", "run", "--once"), as_text, {"COLUMNS": "80", "LINES": "24"}),
]
OF_JOBS = {"ranks-two-hosts": OF_HOSTS, "ranks-on-gpus": ON_GPUS}


def _limited(at: Path) -> None:
    others.limits(at)
    (at / "pyproject.toml").unlink()


RECORDINGS: dict[str, Recording] = {
    **{name: Recording(build, _of_run(name)) for name, build in singles.BUILDERS.items()},
    **{name: Recording(build, OF_JOBS.get(name, RUN)) for name, build in ranks.BUILDERS.items()},
    **{
        name: Recording(build, COMPARED_IN_DETAIL if name == "compare-loaders" else COMPARED)
        for name, build in (comparisons.COMPARISONS | PLANTED_TABLES).items()
    },
    **{name: Recording(build, _compared(*runs)) for name, (build, runs) in comparisons.RECORDED.items()},
    "compare-pages-of-runs": Recording(comparisons.nets, PAGES),
    "published-logs": Recording(comparisons.published_logs, OF_LOGS),
    **{name: Recording(build, TUNED) for name, build in others.TUNINGS.items()},
    **{name: Recording(build, ATTACHED) for name, build in others.ATTACHED.items()},
    **{name: Recording(build, _told_apart(*sides)) for name, (build, sides) in others.PAIRS.items()},
    "check": Recording(_limited, CHECKED),
    "check-configured": Recording(others.limits, CONFIGURED),
    "help": Recording(_nothing, HELPS),
    "mistakes": Recording(_mistaken, [Output("mistakes.txt", ("--version",), _every_mistake)]),
}
