"""`whyidle data SCENARIO --out DIR`: makes or checks a scenario's data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import WhyidleError
from ..terminal.console import console, write_json

if TYPE_CHECKING:
    from whyidle.scenarios.scenario import Scenario

COUNTS = ("samples", "unit", "stand_in")
"""Facts about data that get words of their own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", help="name of a scenario, or the path of its Python file")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to put the data in")
    parser.add_argument("--images", type=int, default=400, metavar="N", help="images to compose (default: 400)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the images (default: 0)")
    parser.add_argument("--check", type=Path, metavar="DIR", help="check the data in a folder instead")
    parser.add_argument("--net", help="net that the data are for (default: the scenario's first)")
    parser.add_argument("--json", action="store_true", help="describe the data as JSON")


def run(arguments: argparse.Namespace) -> int:
    from whyidle.scenarios.registry import scenario

    chosen = scenario(arguments.scenario)
    [net] = chosen.nets_for("cuda", [arguments.net] if arguments.net else None)
    if (arguments.out is None) == (arguments.check is None):
        raise WhyidleError("name a folder: --out DIR makes the data there, --check DIR checks the data there.")
    if arguments.images < 1:
        raise WhyidleError(f"--images {arguments.images}: at least 1 image is needed.")
    if arguments.out is not None:
        _make(chosen, arguments)
    composed = arguments.images if arguments.out is not None else None
    return _describe(chosen, net, arguments.out or arguments.check, arguments.json, composed)


def _make(chosen: Scenario, arguments: argparse.Namespace) -> None:
    target = console(stderr=True)
    columns = (TextColumn("making data"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=target, disable=not target.is_terminal) as bar:
        task = bar.add_task("", total=arguments.images)
        chosen.make_data(
            arguments.out,
            arguments.images,
            arguments.seed,
            lambda done, of: bar.update(task, completed=done, total=of),
        )


def _describe(chosen: Scenario, net: str, folder: Path, as_json: bool, composed: int | None) -> int:
    """`composed`: how many images were asked for, where they were just made."""
    from whyidle.scenarios.scenario import DataRequest

    data = chosen.open_data(DataRequest(folder=folder, net=net, store=chosen.stores[0]))
    facts, problems = data.describe(), list(data.notices())
    if as_json:
        write_json({"format": "whyidle-data", "version": 1, "folder": str(folder), **facts, "problems": problems}, "-")
        return 0
    target = console()
    unit = facts["unit"] + "s" * (facts["samples"] != 1)
    rest = ", ".join(
        f"{name.replace('_', ' ')} {_said(value)}" for name, value in facts.items() if name not in (*COUNTS, unit)
    )
    target.print(f"{folder}: {facts['samples']} {unit}" + (f"; {rest}" if rest else ""), markup=False, soft_wrap=True)
    made = None
    if composed is not None and facts["stand_in"] and facts["samples"] != composed:
        made = (
            f"{composed} images were composed; an epoch trains on {facts['samples']}: without those held out, and "
            "with each image as often as the set lists it"
        )
    for problem in [made, facts["stand_in"], *problems]:
        if problem:
            target.print(f"  {problem}", markup=False, soft_wrap=True)
    return 0


def _said(value: object) -> str:
    return (
        f"{value:.0f}"
        if isinstance(value, float) and abs(value) >= 10
        else f"{value:g}"
        if isinstance(value, float)
        else str(value)
    )
