"""How often the diagnosis is right about planted faults: prints the tables of docs/measurements, in markdown.

Four sets of runs, each `whyidle compare faults` with the options that the table's head names: single faults,
compounds, healthy controls (20 repetitions unless told otherwise), and a round of the middle severity, compounds and
controls beside one busy process of others. Where this machine cannot show a cause (no control group, say), its row
says so.

Runs go to a folder that is kept when `--out` names it: `whyidle report FOLDER/faults` shows one set again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

from .matrix_runs import machine, make, told

HELP = "planted faults, and healthy trainings: what whyidle makes of each (an hour)"
QUICK = "some faults and the controls, one round (4 minutes)"
EXAMPLE = "--repeats 1 --out runs/faults"
CONTROL_REPEATS = 20
FAULT_REPEATS = 3
QUICK_CASES = "input.serial,input.too_few_workers,copy.pageable,host.step_gap,host.boundary"


@dataclass(frozen=True)
class FaultRuns:
    """One set of runs."""

    name: str
    title: str
    options: tuple[str, ...]


def plan(quick: bool, repeats: int, controls: int) -> list[FaultRuns]:
    if quick:
        return [
            FaultRuns("faults", "Single faults (some)", ("--faults", "--cases", QUICK_CASES)),
            FaultRuns("controls", "Healthy trainings", ("--controls",)),
        ]
    several = ("--repeats", str(repeats))
    return [
        FaultRuns("faults", "Single faults", ("--faults", *several)),
        FaultRuns("compounds", "Two faults at once", ("--compounds", *several)),
        FaultRuns("controls", "Healthy trainings", ("--controls", "--repeats", str(controls))),
        FaultRuns("foreign", "Beside a busy process of others", ("--foreign-load", "--severity", "middle")),
    ]


def tables(runs: FaultRuns, result: dict[str, Any]) -> Iterator[str]:
    """Markdown, a line each."""
    machine, matrix = result["machine"], result["matrix"]
    steal = machine["steal_pct"]
    # As often as they ran: of a folder that is read back, the option was another call's.
    options = [
        str(result["repeats"]) if before == "--repeats" else word for before, word in pairwise(("", *runs.options))
    ]
    yield f"### {runs.title}"
    yield ""
    yield (
        f"`whyidle compare faults {' '.join(options)}`: {result['repeats']} "
        f"round{'s' * (result['repeats'] != 1)}, {result['cpu_budget']:g} CPUs, load {machine['load']:.1f} before"
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
            figures = f"{_figure(share['true'])} | {_figure(share['reported'])}"
            off = f"{_figure(errors['median'])}, {_figure(errors['worst'])}"
            head = (cell["case"], right) if number == 0 else ("", "")
            yield f"| {head[0]} | {head[1]} | {cause} | {figures} | {off} |"
    yield ""


def _figure(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.1f}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repeats", type=int, default=FAULT_REPEATS, help=f"of faults (default: {FAULT_REPEATS})")
    parser.add_argument("--controls", type=int, default=CONTROL_REPEATS, help=f"default: {CONTROL_REPEATS}")


def run(arguments: argparse.Namespace) -> None:
    """Each set of runs, and its tables as soon as they are there."""
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.recorded or arguments.out or Path(name)
        print(f"{machine()}, {date.today().isoformat()}\n")
        for runs in plan(arguments.quick, arguments.repeats, arguments.controls):
            if arguments.recorded is None:
                make("faults", runs.options, folder / runs.name, arguments.seed)
            elif not (folder / runs.name).is_dir():
                continue
            print("\n".join(tables(runs, told(folder / runs.name, "matrix"))), flush=True)
