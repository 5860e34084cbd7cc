"""`whyidle roofline SCENARIO|FOLDER|RUN`: how many samples per second this machine could prepare, part by part."""

from __future__ import annotations

import argparse
import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells.studies import ROOFLINE, rooflines
from ..capture.limits import cpu_budget
from ..errors import WhyidleError
from ..matrix.ceilings import PLACE, measure, unmeasured
from ..matrix.experiment import Sources, described
from ..record.run import RUN_JSON, read_image_files
from ..report.contract.comparison import roofline
from ..report.documents.roofline import roofline_document
from ..terminal.console import console, show_result
from . import options

if TYPE_CHECKING:
    from whyidle.pipelines.protocol import Dataset

SIZE = 224


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add, count = parser.add_argument, options.count
    kinds = "a scenario, a folder with JPEG files, or the folder of a run"
    add("what", metavar="SCENARIO|FOLDER|RUN", help=kinds)
    add("--data", type=Path, metavar="DIR", help="for a scenario: folder of its data")
    add("--net", help="for a scenario: net that the samples are for (default: its first)")
    add("--store", help="for a scenario: how samples are stored, where there is a choice")
    add("--limit", type=count, metavar="N", help="for a scenario: use only N samples")
    add("--size", type=count, default=SIZE, metavar="N", help=f"for files: pixels of the net's input ({SIZE})")
    add("--no-augment", action="store_true", help="only decode, resize and normalise")
    add("--batch-size", type=count, default=32, metavar="N", help="samples (default: 32)")
    add("--device", default="auto", help="where batches are copied to (default: auto)")
    add("--rounds", type=count, default=3, metavar="N", help="of measuring (default: 3)")
    add("--json", metavar="FILE", help="write the result as JSON (- is stdout)")


def run(arguments: argparse.Namespace) -> int:
    from whyidle.pipelines.protocol import Settings
    from whyidle.scenarios.registry import require_installed

    require_installed("roofline")
    files = _files(arguments)
    if files is None:
        options.refuse_given(arguments, ("size",), "folders, and this is a scenario")
    else:
        options.refuse_given(arguments, ("data", "net", "store", "limit"), "scenarios, and this is a folder")
    [device] = described([arguments.device])
    data, place, facts = _of_scenario(arguments) if files is None else _of_files(arguments, files)
    at = dict(zip(PLACE, (*place, not arguments.no_augment), strict=True))
    told = unmeasured(at, max(1, int(cpu_budget().budget)))
    with console(stderr=True).status("measuring", spinner="line") as status:
        for number in range(arguments.rounds):
            status.update(f"measuring: round {number + 1} of {arguments.rounds}")
            measure(told, data, Settings(arguments.batch_size), device["name"])
    [found] = rooflines({ROOFLINE: [told]})
    setting = {"what": arguments.what, "batch_size": arguments.batch_size, "rounds": arguments.rounds, **facts}
    show_result(partial(roofline_document, found, setting), partial(roofline, found, setting), arguments.json)
    return 0


def _files(arguments: argparse.Namespace) -> list[Path] | None:
    """List the JPEG files of a folder or a run; `None` of a scenario."""
    from whyidle.scenarios.datasets.loose_photos import jpeg_files

    folder = Path(arguments.what)
    if not folder.is_dir():
        if os.sep in arguments.what and not folder.exists():
            raise WhyidleError(f"{folder} does not exist. Name a folder, a recorded run or a scenario.")
        return None
    if not (folder / RUN_JSON).is_file():
        return jpeg_files(folder)
    files = read_image_files(folder)
    if not files:
        raise WhyidleError(
            f"{folder}: this run recorded no JPEG files. Its dataset lists none in an attribute, or whyidle did not "
            "see it. Name the folder of the files instead."
        )
    return [Path(name) for name in files]


Data = tuple["Dataset", tuple[str | None, str], dict[str, Any]]
"""(what is measured, its net and store, what the JSON says of it)."""


def _of_scenario(arguments: argparse.Namespace) -> Data:
    from whyidle.scenarios.registry import scenario

    chosen = scenario(arguments.what)
    store = None if arguments.store is None else (arguments.store,)
    say = partial(console(stderr=True).print, markup=False)
    sources = Sources(chosen, arguments.data, store, arguments.limit, say)
    [net] = chosen.nets_for("cuda", [arguments.net] if arguments.net else None)
    at = arguments.store or chosen.stores[0]
    if why := sources.missing(net, at):
        raise WhyidleError(f"{why}.")
    data = sources.loading(net, at, augment=not arguments.no_augment)
    return data, (net, at), {"dataset": data.describe(), "size": None, "notices": list(data.notices())}


def _of_files(arguments: argparse.Namespace, files: list[Path]) -> Data:
    from whyidle.scenarios.datasets.loose_photos import LoosePhotos

    data = LoosePhotos(files, arguments.size, not arguments.no_augment)
    told = {"samples": len(files), "unit": "image", "stand_in": None, "mean_bytes": data.mean_bytes}
    return data, (None, "files"), {"dataset": told, "size": arguments.size, "notices": data.faults}
