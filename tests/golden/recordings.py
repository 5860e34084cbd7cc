"""All recordings whose outputs are kept, and the commands that make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from golden import comparisons, others, singles
from golden.output import (
    PAGE,
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
from whyidle.commands.verbs import VERBS


@dataclass(frozen=True)
class Recording:
    build: Callable[[Path], None]
    """Makes what the commands read, in a folder."""
    outputs: Sequence[Output]


def _two_forms(*words: str) -> list[Output]:
    """What every recording has: the report as people read it and as programs do."""
    return [
        Output("report.txt", ("report", *words), as_text),
        Output("report.json", ("report", *words, "--json"), as_json),
    ]


def _full(folder: str) -> Output:
    return Output("full.txt", ("report", folder, "--full"), as_text)


FULL = {
    *("starting", "slowing", "storage", "straggler", "transforms", "wasted", "validation", "on-cpu", "on-cpu-no-fetch"),
    *("waiting-workers", "thinned", "with-stacks", "several-causes", "odd-words", "handoff", "torn", "sampler"),
}
"""Those that together have every section of the long report of a single run."""


def _markdown_and_page(folder: str) -> list[Output]:
    return [
        Output("report.md", ("report", folder, "--format", "markdown"), as_text),
        Output("page.txt", ("report", folder, "--format", "html", "-o", PAGE), page_words),
    ]


RUN = _two_forms("run")
TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "24"}
MOST_FORMS = [
    *RUN,
    *_markdown_and_page("run"),
    Output("page-data.json", ("report", "run", "--format", "html", "-o", PAGE), page_data),
    Output("steps.json", ("report", "run", "--format", "csv"), as_columns),
    Output("trace.json", ("report", "run", "--format", "trace"), as_trace),
    Output("live.txt", ("live", "run", "--once"), as_text),
]
ALL_FORMS = [
    *MOST_FORMS,
    Output("report-80-colours.txt", ("report", "run", "--full"), as_text, TERMINAL),
    Output("report-price.txt", ("report", "run", "--price", "2.5"), as_text),
    Output("steps.csv", ("report", "run", "--format", "csv"), as_text),
    Output("tables.json", ("report", "run", "--format", "csv", "-o", "tables/"), all_tables),
    Output("parquet.json", ("report", "run", "--format", "parquet", "-o", "parquet/"), all_parquet),
    Output("trace-4-steps.json", ("report", "run", "--format", "trace", "--steps", "20:23"), as_json),
    Output("live.json", ("live", "run", "--once", "--json"), as_short_json),
    Output("live-80-colours.txt", ("live", "run", "--once"), as_text, TERMINAL),
    Output("live-ascii.txt", ("live", "run", "--once", "--ascii"), as_text),
]
ATTACHED = [
    *RUN,
    *_markdown_and_page("run"),
    Output("host.json", ("report", "run", "--format", "csv", "--table", "host"), as_columns),
    Output("trace.json", ("report", "run", "--format", "trace"), as_trace),
]
COMPARED = [
    *_two_forms("table"),
    *_markdown_and_page("table"),
    Output("cells.csv", ("report", "table", "--format", "csv"), as_text),
    Output("report-80-colours.txt", ("report", "table", "--full"), as_text, TERMINAL),
    Output("report-price.txt", ("report", "table", "--price", "1.5"), as_text),
    Output("live.txt", ("live", "table", "--once"), as_text),
    Output("diff-of-cells.txt", ("diff", "table/0-workers-b8", "table/1-naive-b8"), as_text),
    Output("diff-of-cells.json", ("diff", "table/0-workers-b8", "table/1-naive-b8", "--json"), as_json),
]
IN_MORE_FORMS: dict[str, list[Output]] = {
    "with-stacks": ALL_FORMS,
    "several-causes": MOST_FORMS,
    "ranks-on-gpus": [*MOST_FORMS, Output("live.json", ("live", "run", "--once", "--json"), as_short_json)],
    "odd-words": [*RUN, *_markdown_and_page("run")],
    "attached-workers": ATTACHED,
    "compare-loaders": COMPARED,
    "tuned-script": [*_two_forms("tuned"), *_markdown_and_page("tuned")],
}
"""Six recordings that together have every part that an output can have, and the one with what has to be escaped."""
OF_HOSTS = [
    *_two_forms("job"),
    Output("report-of-each.txt", ("report", "job/beta", "job/alpha"), as_text),
    Output("report-of-one.txt", ("report", "job/beta"), as_text),
]


def _three_forms(verb: str, *words: str) -> list[Output]:
    json_words = ("--json", "-") if verb == "compare" else ("--json",)
    return [
        Output(f"{verb}.txt", (verb, *words), as_text),
        Output("full.txt", (verb, *words, "--full"), as_text),
        Output(f"{verb}.json", (verb, *words, *json_words), as_json),
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


HELPS = [
    Output("whyidle.help", ("--help",), as_text),
    *(Output(f"{verb}.help", (verb, "--help"), as_text) for verb in VERBS),
    Output("scenarios.txt", ("scenarios",), as_text),
    Output("scenarios.json", ("scenarios", "--json"), as_json),
    Output("version.txt", ("--version",), as_text),
]


def _mistaken(at: Path) -> None:
    singles.BUILDERS["serial"](at)
    singles.BUILDERS["too-few-steps"](at / "other")
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
    "compare run other/run --html -",
    "live",
    "live run --json",
    "live nowhere --once",
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


def _recordings(builders: Mapping[str, Callable[[Path], None]], folder: str) -> dict[str, Recording]:
    made = {}
    for name, build in builders.items():
        full = [_full(folder)] if folder != "run" or name in FULL or name.startswith(("ranks", "attached")) else []
        made[name] = Recording(build, [*(IN_MORE_FORMS.get(name) or _two_forms(folder)), *full])
    return made


RECORDINGS: dict[str, Recording] = {
    **_recordings(singles.BUILDERS | others.RANKS | others.ATTACHED, "run"),
    **_recordings(comparisons.COMPARISONS, "table"),
    **_recordings(others.TUNINGS, "tuned"),
    "ranks-two-hosts": Recording(others.two_hosts, OF_HOSTS),
    **{name: Recording(build, _three_forms("compare", *runs)) for name, (build, runs) in comparisons.RECORDED.items()},
    "published-logs": Recording(comparisons.published_logs, OF_LOGS),
    **{name: Recording(build, _three_forms("diff", *sides)) for name, (build, sides) in others.PAIRS.items()},
    "check": Recording(others.limited_runs, CHECKED),
    "check-configured": Recording(others.limits, CONFIGURED),
    "help": Recording(lambda at: None, HELPS),
    "mistakes": Recording(_mistaken, [Output("mistakes.txt", ("--version",), _every_mistake)]),
}
