"""`stallscope data SCENARIO --out DIR`: makes or checks a scenario's images."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ..errors import StallscopeError
from .console import console, write_json

NAME = "data"
HELP = "Composes a set of JPEG images in Pascal-VOC layout, or checks one that is there."
EXAMPLE = "stallscope data ssd --out data/voc --images 400"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("scenario", help="name of a scenario")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder to make the images in")
    parser.add_argument("--images", type=int, default=400, metavar="N", help="how many (default: 400)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another seed, other images (default: 0)")
    parser.add_argument("--check", type=Path, metavar="DIR", help="check a folder instead of making one")
    parser.add_argument("--json", action="store_true", help="describe the images as JSON")


def run(arguments: argparse.Namespace) -> int:
    from stallscope.scenarios.scenario import scenario

    scenario(arguments.scenario)
    if (arguments.out is None) == (arguments.check is None):
        raise StallscopeError("say where: --out DIR makes images there, --check DIR checks the ones there.")
    if arguments.images < 1:
        raise StallscopeError(f"--images {arguments.images}: at least 1 image is needed.")
    if arguments.out is not None:
        _compose(arguments)
    return _describe(arguments.out or arguments.check, arguments.json)


def _compose(arguments: argparse.Namespace) -> None:
    from stallscope.scenarios.voc.generate import compose

    target = console(stderr=True)
    columns = (TextColumn("composing images"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=target, disable=not target.is_terminal) as bar:
        task = bar.add_task("", total=arguments.images)
        compose(arguments.out, arguments.images, arguments.seed, lambda done, _all: bar.update(task, completed=done))


def _describe(folder: Path, as_json: bool) -> int:
    from stallscope.scenarios.voc.check import summary
    from stallscope.scenarios.voc.read import VocDataset

    dataset = VocDataset.open(folder, stages=())
    facts = dataset.describe()
    problems = summary(dataset.findings)
    if as_json:
        write_json(
            {"format": "stallscope-data", "version": 1, "folder": str(folder), **facts, "problems": problems}, "-"
        )
        return 0
    target = console()
    target.print(
        f"{folder}: {facts['images']} images with {facts['objects']} objects of {facts['classes']} classes, "
        f"{facts['mean_bytes'] / 1e3:.0f} kB and {facts['mean_width']:.0f} × {facts['mean_height']:.0f} on average"
    )
    for problem in problems:
        target.print(f"  {problem}", markup=False)
    return 0
