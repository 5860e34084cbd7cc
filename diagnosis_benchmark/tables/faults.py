"""How often the diagnosis is right about planted faults: prints the tables of docs/measurements, in Markdown.

Four sets of runs: single faults, compounds, healthy controls (20 repetitions unless told otherwise), and a round of the
middle severity, compounds and controls beside one busy process of others; or one set, of what --cases and the like
choose. Where this machine cannot show a cause (no control group, say), its row says so.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from whyidle.commands import options
from whyidle.matrix.matrix import Matrix
from whyidle.report.words.figures import counted

from .. import faults
from ..faults import FaultRequest, figure
from . import matrix_runs

HELP = "planted faults, and healthy trainings: what whyidle makes of each (an hour)"
QUICK = "some faults and the controls, one round (4 minutes)"
EXAMPLE = "--repeats 1 --out runs/faults"
CONTROL_REPEATS = 20
FAULT_REPEATS = 3
QUICK_CASES = ("input.serial", "input.too_few_workers", "copy.pageable", "host.step_gap", "host.boundary")
KINDS = {"faults": "fault", "compounds": "compound", "controls": "control"}
"""Option → kind of cases."""


@dataclass(frozen=True)
class FaultRuns:
    """One set of runs."""

    name: str
    title: str
    request: FaultRequest


def plan(arguments: argparse.Namespace) -> list[FaultRuns]:
    kinds = tuple(kind for option, kind in KINDS.items() if getattr(arguments, option))
    if arguments.cases or kinds or arguments.severity or arguments.foreign_load:
        request = FaultRequest(
            cases=arguments.cases,
            kinds=kinds,
            severity=arguments.severity,
            foreign_load=arguments.foreign_load,
            repeats=arguments.repeats,
        )
        return [FaultRuns("chosen", "Chosen cases", request)]
    if arguments.quick:
        return [
            FaultRuns("faults", "Single faults (some)", FaultRequest(kinds=("fault",), cases=QUICK_CASES)),
            FaultRuns("controls", "Healthy trainings", FaultRequest(kinds=("control",))),
        ]
    repeats = arguments.repeats or FAULT_REPEATS
    return [
        FaultRuns("faults", "Single faults", FaultRequest(kinds=("fault",), repeats=repeats)),
        FaultRuns("compounds", "Two faults at once", FaultRequest(kinds=("compound",), repeats=repeats)),
        FaultRuns("controls", "Healthy trainings", FaultRequest(kinds=("control",), repeats=arguments.control_repeats)),
        FaultRuns("foreign", "Beside a busy process of others", FaultRequest(foreign_load=True, severity="middle")),
    ]


def tables(runs: FaultRuns, result: dict[str, Any]) -> Iterator[str]:
    """Markdown, a line each."""
    machine, matrix = result["machine"], result["matrix"]
    steal = machine["steal_pct"]
    yield f"### {runs.title}"
    yield ""
    yield (
        f"{counted(result['repeats'], 'round')}, {result['cpu_budget']:g} CPUs, load {machine['load']:.1f} before"
        + (f", {steal:.1f} % stolen." if steal is not None else ".")
    )
    yield ""
    for what, rate in (
        ("faults named first", matrix["faults_named_first"]),
        ("both causes in the first three findings", matrix["compounds_found"]),
        ("healthy runs without a finding above minor", matrix["controls_quiet"]),
    ):
        if rate["of"]:
            yield (
                f"- {what}: {rate['hits']} of {rate['of']} ({100 * rate['rate']:.1f} %, 95 % interval "
                f"{100 * rate['low']:.1f} to {100 * rate['high']:.1f})"
            )
    errors = matrix["share_errors"]
    if errors["median"] is not None:
        yield (
            f"- share within 5 points of the truth: {errors['within_5']} of {errors['of']}; "
            f"median {errors['median']:.1f}, worst {errors['worst']:.1f} points, {errors['unnamed']} not named"
        )
    yield ""
    yield from _matrix(result)
    yield from _cases(result)


def _matrix(result: dict[str, Any]) -> Iterator[str]:
    named_for = result["matrix"]["named_for"]
    if not named_for:
        return
    yield "| planted | runs | named first |"
    yield "|---|---|---|"
    for planted, named in named_for.items():
        said = ", ".join(f"{_strong(name, planted)} {count}" for name, count in named.items())
        yield f"| {planted} | {sum(named.values())} | {said} |"
    yield ""


def _strong(name: str, planted: str) -> str:
    """What is not as planted stands out."""
    return name if name == planted else f"**{name}**"


def _cases(result: dict[str, Any]) -> Iterator[str]:
    yield "| case | right | planted | truth % | reported % | median, worst error |"
    yield "|---|---|---|---|---|---|"
    for cell in result["cells"]:
        if cell["status"] != "ok":
            yield f"| {cell['case']} | {cell['status']}: {cell['error']} | | | | |"
            continue
        several = len(cell["planted"]) > 1
        right = f"{cell['all_found' if several else 'right']} of {cell['repeats']}"
        if not cell["planted"]:
            yield f"| {cell['case']} | {right} | nothing | | | |"
        for number, (cause, share) in enumerate(cell["shares_pct"].items()):
            errors = share["errors"]
            figures = f"{figure(share['true'])} | {figure(share['reported'])}"
            off = f"{figure(errors['median'])}, {figure(errors['worst'])}"
            head = (cell["case"], right) if number == 0 else ("", "")
            yield f"| {head[0]} | {head[1]} | {cause} | {figures} | {off} |"
    yield ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    matrix_runs.add_arguments(parser, FAULT_REPEATS)
    parser.add_argument(
        "--control-repeats",
        type=options.count,
        default=CONTROL_REPEATS,
        metavar="N",
        help=f"rounds of the healthy ones, where all four sets run (default: {CONTROL_REPEATS})",
    )
    kind = parser.add_mutually_exclusive_group()
    for option, title in zip(
        KINDS, ("trainings with one planted fault", "those with two", "healthy ones"), strict=True
    ):
        kind.add_argument(f"--{option}", action="store_true", help=f"only {title}")
    parser.add_argument("--severity", choices=faults.SEVERITIES, help="of single faults, only those (default: all)")
    parser.add_argument("--foreign-load", action="store_true", help="each run beside a busy process of others")


def run(arguments: argparse.Namespace) -> int:
    """Each set of runs, and its tables as soon as they are there; 130 after Ctrl-C, 1 where nothing was judged.

    Raises:
        WhyidleError: there are no such cases, or the folder is in use or holds no such runs.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.recorded or arguments.out or Path(name)
        results, interrupted = {}, False
        if arguments.recorded is None:
            sets = plan(arguments)
            planned = [faults.plan(replace(each.request, seed=arguments.seed, out=folder / each.name)) for each in sets]
            order: list[tuple[FaultRuns, Matrix | None]] = list(zip(sets, planned, strict=True))
        else:
            order = [(each, None) for each in _recorded_sets(arguments, folder)]
        print(f"{matrix_runs.machine()}, {date.today().isoformat()}\n")
        for each, matrix in order:
            if matrix is not None:
                measure, said = partial(faults.measure, matrix), partial(faults.said, matrix.setting)
                interrupted = matrix_runs.make(matrix, measure, faults.RUN_SECONDS, said)
            results[each.name] = result = faults.load(folder / each.name).json()
            print("\n".join(tables(each, result)), flush=True)
            if interrupted:
                break
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(results, indent=1))
    judged = any(cell["named_first"] for result in results.values() for cell in result["cells"])
    return 130 if interrupted else int(not judged)


def _recorded_sets(arguments: argparse.Namespace, folder: Path) -> list[FaultRuns]:
    """
    Raises:
        WhyidleError: the folder holds no such runs.
    """
    sets = [*plan(arguments), FaultRuns("chosen", "Chosen cases", FaultRequest())]
    found = {each.name: each for each in sets if (folder / each.name).is_dir()}
    for name in found or ("",):
        matrix_runs.require_runs(folder / name)
    return list(found.values())
