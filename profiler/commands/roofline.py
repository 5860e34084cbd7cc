"""`whyidle roofline SCENARIO|FOLDER|RUN`: how many samples per second this machine could prepare, part by part."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.cells.roofline import SETTING, rooflines
from ..capture.cpu_budget import cpu_budget
from ..errors import WhyidleError
from ..matrix.ceilings import PLACE, Ceiling
from ..matrix.experiment import Request, described
from ..matrix.sources import Sources
from ..record.run import RUN_JSON, read_image_files
from ..report.contract.roofline import roofline
from ..report.documents.roofline import roofline_document
from ..terminal.console import console, json_text, show_document, write_json
from . import options

if TYPE_CHECKING:
    from whyidle.pipelines.protocol import Dataset
    from whyidle.scenarios.datasets.loose_photos import LoosePhotos

SIZE = 224
_OF_SCENARIOS = ("data", "net", "store", "limit")
_OF_FILES = ("size",)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", metavar="SCENARIO|FOLDER|RUN", help="a scenario, a folder with JPEG files, or the folder of a run"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="for a scenario: folder of its data")
    parser.add_argument("--net", help="for a scenario: net that the samples are for (default: its first)")
    parser.add_argument("--store", help="for a scenario: how samples are stored, where there is a choice")
    parser.add_argument("--limit", type=options.count, metavar="N", help="for a scenario: use only N samples")
    parser.add_argument(
        "--size", type=options.count, default=SIZE, metavar="N", help=f"for files: pixels of the net's input ({SIZE})"
    )
    parser.add_argument("--no-augment", action="store_true", help="only decode, resize and normalise")
    parser.add_argument("--batch-size", type=options.count, default=32, metavar="N", help="samples (default: 32)")
    parser.add_argument("--device", default="auto", help="where batches are copied to (default: auto)")
    parser.add_argument("--rounds", type=options.count, default=3, metavar="N", help="of measuring (default: 3)")
    parser.add_argument("--json", metavar="FILE", help="write the result as JSON (- is stdout)")


def run(arguments: argparse.Namespace) -> int:
    from whyidle.pipelines.protocol import Settings
    from whyidle.scenarios.registry import require_installed

    require_installed("roofline")
    files = _files(arguments)
    _require_taken(arguments, _OF_SCENARIOS if files is not None else _OF_FILES, files is not None)
    [device] = described([arguments.device])
    data, place, facts = _of_scenario(arguments) if files is None else _of_files(arguments, files)
    ceiling = Ceiling(data, place, device["name"], Settings(arguments.batch_size), max(1, int(cpu_budget().budget)))
    target = console(stderr=True)
    with target.status("measuring", spinner="line") as status:
        for number in range(arguments.rounds):
            status.update(f"measuring: round {number + 1} of {arguments.rounds}")
            ceiling.measure()
    [found] = rooflines({SETTING: [ceiling.told]})
    setting = {"what": arguments.what, "batch_size": arguments.batch_size, "rounds": arguments.rounds, **facts}
    made = roofline(found, setting)
    if arguments.json == "-":
        print(json_text(made))
        return 0
    show_document(roofline_document(found, arguments.what, facts), console())
    if arguments.json:
        write_json(made, arguments.json)
    return 0


def _files(arguments: argparse.Namespace) -> list[Path] | None:
    """Of a folder or a run; `None` of a scenario.

    Raises:
        WhyidleError: there are none.
    """
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


def _of_scenario(arguments: argparse.Namespace) -> tuple[Dataset, Mapping[str, Any], dict[str, Any]]:
    from whyidle.scenarios.registry import scenario

    chosen = scenario(arguments.what)
    store = None if arguments.store is None else (arguments.store,)
    request = Request(scenario=arguments.what, data=arguments.data, store=store)
    sources = Sources(chosen, request, arguments.limit, lambda text: console(stderr=True).print(text, markup=False))
    [net] = chosen.nets_for("cuda", [arguments.net] if arguments.net else None)
    at = arguments.store or chosen.stores[0]
    if why := sources.missing(net, at):
        raise WhyidleError(f"{why}.")
    data = sources.loading(net, at, not arguments.no_augment)
    place = dict(zip(PLACE, (net, at, not arguments.no_augment), strict=True))
    return data, place, {"dataset": data.describe(), "size": None, "notices": list(data.notices())}


def _of_files(
    arguments: argparse.Namespace, files: list[Path]
) -> tuple[LoosePhotos, Mapping[str, Any], dict[str, Any]]:
    from whyidle.scenarios.datasets.loose_photos import LoosePhotos

    data = LoosePhotos(files, arguments.size, not arguments.no_augment)
    place = dict(zip(PLACE, (None, "files", not arguments.no_augment), strict=True))
    described = {"samples": len(files), "unit": "image", "stand_in": None, "mean_bytes": data.mean_bytes}
    return data, place, {"dataset": described, "size": arguments.size, "notices": data.faults}


def _require_taken(arguments: argparse.Namespace, others: tuple[str, ...], of_files: bool) -> None:
    if given := options.given(arguments, others):
        kind = "scenarios, and this is a folder" if of_files else "folders, and this is a scenario"
        raise WhyidleError(f"{given} {options.are(given)} of {kind}. Leave it out.")
