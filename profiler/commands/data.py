"""`whyidle data SCENARIO --out DIR`: makes or checks a scenario's data."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import WhyidleError
from ..report.words.figures import counted
from ..terminal.console import console, write_json
from .options import count

COUNTS = ("samples", "unit", "stand_in")
"""Facts about data that get words of their own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", help="name of a scenario, or the path of its Python file")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to put the data in")
    parser.add_argument("--images", type=count, default=400, metavar="N", help="images to compose (default: 400)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the images (default: 0)")
    parser.add_argument("--check", type=Path, metavar="DIR", help="check the data in a folder instead")
    parser.add_argument("--net", help="net that the data are for (default: the scenario's first)")
    parser.add_argument("--json", action="store_true", help="describe the data as JSON")


def run(arguments: argparse.Namespace) -> int:
    from whyidle.scenarios.registry import scenario

    chosen = scenario(arguments.scenario)
    from whyidle.scenarios.scenario import DataRequest  # after it has said what is not installed

    [net] = chosen.nets_for("cuda", [arguments.net] if arguments.net else None)
    if (arguments.out is None) == (arguments.check is None):
        raise WhyidleError("name a folder: --out DIR makes the data there, --check DIR checks the data there.")
    folder: Path = arguments.out or arguments.check
    if arguments.out is not None:
        target = console(stderr=True)
        columns = (TextColumn("making data"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=target, disable=not target.is_terminal) as bar:
            task = bar.add_task("", total=arguments.images)
            chosen.make_data(
                folder,
                arguments.images,
                arguments.seed,
                lambda done, of: bar.update(task, completed=done, total=of),
            )
    data = chosen.open_data(DataRequest(folder=folder, net=net, store=chosen.stores[0]))
    facts, problems = data.describe(), list(data.notices())
    if arguments.json:
        write_json({"format": "whyidle-data", "version": 1, "folder": str(folder), **facts, "problems": problems}, "-")
        return 0
    samples, unit, stand_in = (facts[name] for name in COUNTS)
    rest = ", ".join(
        f"{name.replace('_', ' ')} {_said(value)}"
        for name, value in facts.items()
        if name not in (*COUNTS, f"{unit}s" if samples != 1 else unit)
    )
    lines = [f"{folder}: {counted(samples, unit)}{rest and f'; {rest}'}"]
    if arguments.out is not None and stand_in and samples != arguments.images:
        lines.append(
            f"  {arguments.images} images were composed; an epoch trains on {samples}: without those held out, and "
            "with each image as often as the set lists it"
        )
    for line in (*lines, *(f"  {problem}" for problem in (stand_in, *problems) if problem)):
        console().print(line, markup=False, soft_wrap=True)
    return 0


def _said(value: object) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 10 else f"{value:g}"
