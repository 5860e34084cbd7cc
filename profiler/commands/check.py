"""`whyidle check RUN`: whether a run keeps its limits, for CI: exit code 0, or 1."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..analyse.causes.diagnosis import LEAST_STEPS
from ..analyse.diff import regression
from ..analyse.diff.difference import EMULATED, difference, refuse_mixed
from ..analyse.diff.limits import LimitCheck, checks_of, ended_of, short, subject_of
from ..analyse.diff.sides import Measured, Side, analysed, compared, folders_of, in_both, side_of
from ..analyse.run.analysis import lacking_of
from ..errors import WhyidleError
from ..record.files import plain, read_json
from ..report.contract import checks as check_json
from ..report.documents.check import check_document
from ..report.export.ci import JUNITS, junit_xml, workflow_commands
from ..report.render.markdown import markdown
from ..terminal.console import console, json_text, show_document, write_file
from . import check_config
from .verbs import example_of

FAILED = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="folder of a run. With several repeats of it, limits apply to the "
        "one of median throughput, and a regression counts all of them",
    )
    check_config.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (whyidle-check version 1)")
    parser.add_argument("--junit", metavar="FILE", type=Path, help="also write JUnit XML")
    parser.add_argument(
        "--github",
        action="store_true",
        default=os.environ.get("GITHUB_ACTIONS") == "true",
        help="print annotations for GitHub, and append a table to $GITHUB_STEP_SUMMARY (default: if GITHUB_ACTIONS "
        "is true)",
    )


def run(arguments: argparse.Namespace) -> int:
    if not arguments.run_folders:
        raise WhyidleError(
            f"name the run to check: `{example_of('check')}`. The newest recording of this machine may be another "
            "job's, so it is not taken by itself."
        )
    asked = check_config.asked(arguments)
    # Any of them may hold no step: it keeps no limit then, which is not the user's mistake.
    with console(stderr=True).status("reading the runs", spinner="line"):
        runs = {folder: analysed(folder) for folder in folders_of(arguments.run_folders)}
    with_steps = tuple(compared(folder, each.facts, each) for folder, each in runs.items() if each.facts is not None)
    side = Side("B", with_steps) if with_steps else None
    folder = next(iter(runs)) if side is None else side.typical.folder
    analysis = runs[folder]
    repeats = {str(each): of for each, of in runs.items()} if len(runs) > 1 else None
    found = [
        ended_of({str(each): lacking_of(each, of) for each, of in runs.items()}, asked.allow_unfinished),
        *checks_of(
            subject_of(analysis, repeats),
            asked.limits,
            allow_missing=asked.allow_missing,
            allow_short=asked.allow_short,
        ),
    ]
    if asked.limits.max_regression is not None:
        if side is None:
            found.append(
                regression.not_comparable(asked.limits.max_regression, analysis.verdict.title, asked.allow_missing)
            )
        else:
            found.append(_regression(side, asked))
    device = analysis.info.get("device") or {}
    emulated = str(device.get("title") or EMULATED) if device.get("kind") == EMULATED else None
    _tell(arguments, str(folder), emulated, found, _properties(analysis.info))
    return 0 if all(each.holds for each in found) else FAILED


def _regression(side: Side, asked: check_config.Asked) -> LimitCheck:
    limit = asked.limits.max_regression
    if limit is None:
        raise ValueError("no limit")
    others = len(asked.against) - 1
    name = f"{asked.against[0]} and {others} more" if others else str(asked.against[0])
    if len(asked.against) == 1 and asked.against[0].is_file():
        report = read_json(asked.against[0].resolve())
        if not isinstance(report, dict) or report.get("format") != "whyidle-report":
            raise WhyidleError(
                f"{name} is not a report of whyidle. Save one with `whyidle report RUN --json -o FILE`, or name a run."
            )
        if few := _few(side.runs, asked) or _few_in(report, name, asked):
            return regression.not_comparable(limit, few, False)
        found = regression.against_report(
            side, report, limit, name, asked.noise, allow_missing=asked.allow_missing, allow_noisy=asked.allow_noisy
        )
        return _noted(found, _unended_in(report, name))
    other = side_of("A", asked.against)
    if (itself := in_both(side, other)) is not None:
        raise WhyidleError(f"--against names the checked run itself, {itself}. Name another run.")
    refuse_mixed(other, side)
    if few := _few((*other.runs, *side.runs), asked):
        return regression.not_comparable(limit, few, False)
    held = regression.against_runs(
        difference(other, side, asked.noise),
        limit,
        name,
        asked.noise,
        allow_missing=asked.allow_missing,
        allow_noisy=asked.allow_noisy,
    )
    return _noted(held, *(f"{run.folder}: {'; '.join(run.lacking)}" for run in other.runs if run.lacking))


def _noted(check: LimitCheck, *notes: str) -> LimitCheck:
    """Add notes on the other side, which has no limits to keep."""
    return replace(check, note=". ".join(str(plain(note)) for note in (check.note, *notes) if note))


def _unended_in(report: dict[str, Any], name: str) -> str:
    """Tell that the run of a saved report failed; empty if it did not."""
    run = report.get("run")
    code = run.get("exit_code") if isinstance(run, dict) else None
    failed = isinstance(code, int) and not isinstance(code, bool) and code != 0
    return f"{name}: it did not end well (exit code {code})" if failed else ""


def _few(runs: Sequence[Measured], asked: check_config.Asked) -> str | None:
    """Tell why these runs prove neither a loss nor that there is none: one of them has too few steps."""
    found = [run for run in runs if short(run.analysis, asked.limits.min_steps)]
    return _too_few(str(found[0].folder), found[0].facts.window.count) if found and not asked.allow_short else None


def _few_in(report: dict[str, Any], name: str, asked: check_config.Asked) -> str | None:
    """Tell the same of a saved report."""
    window = report.get("window")
    steps = window.get("steps") if isinstance(window, dict) else None
    least = LEAST_STEPS if asked.limits.min_steps is None else asked.limits.min_steps
    if not isinstance(steps, int) or isinstance(steps, bool) or steps >= least or asked.allow_short:
        return None
    return _too_few(name, steps)


def _too_few(name: str, steps: int) -> str:
    return f"{name} has {steps} step{'s' * (steps != 1)} after the warm-up, too few to compare"


def _properties(info: dict[str, Any]) -> dict[str, str]:
    device = info.get("device") or {}
    said = {
        "device": device.get("title") or device.get("name"),
        "device kind": device.get("kind"),
        "host": (info.get("host") or {}).get("name"),
        "torch": info.get("torch"),
        "python": info.get("python"),
        "started": info.get("started_at"),
        "whyidle": info.get("whyidle"),
    }
    return {name: str(value) for name, value in said.items() if value is not None}


def _tell(
    arguments: argparse.Namespace, run: str, emulated: str | None, found: list[LimitCheck], properties: dict[str, str]
) -> None:
    """Write everything that was asked for, files first."""
    if arguments.junit is not None:
        text = junit_xml(run, found, properties | ({"emulated": emulated} if emulated else {}))
        write_file(text, arguments.junit, only=JUNITS)
    document = check_document(run, emulated, found)
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    if arguments.github and summary:
        _append(Path(summary), markdown(document) + "\n")
    if arguments.json:
        print(json_text(check_json.of_run(run, found, emulated is not None)))
    else:
        show_document(document, console())
    if arguments.github:
        # GitHub reads both streams; what a program reads as JSON stays JSON.
        for line in workflow_commands(run, found):
            print(line, file=sys.stderr if arguments.json else sys.stdout)


def _append(file: Path, text: str) -> None:
    try:
        with file.open("a", encoding="utf-8") as target:
            target.write(text)
    except OSError as error:
        raise WhyidleError(f"cannot write {file}: {error.strerror}. Name another file.") from error
