"""`whyidle diff RUN_A RUN_B`: what differs between two recorded runs, and why."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from ..analyse.diff.difference import Difference
from ..analyse.diff.sides import in_both, side_of
from ..errors import WhyidleError
from ..record.reader import reuse_memory
from ..report.contract import run as run_json
from ..report.documents.diff import diff_document
from ..terminal.console import doing, show_in, write_json
from . import options
from .verbs import VERBS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="RUN_A and RUN_B: B is compared with A. COMPARISON/CELL stands for all rounds of a cell of a comparison",
    )
    for side in ("a", "b"):
        parser.add_argument(
            f"--{side}", metavar="RUN", type=Path, nargs="+", action="extend", default=[],
            help=f"instead: runs of side {side.upper()}, which repeat the same thing",
        )  # fmt: skip
    parser.add_argument(
        "--noise",
        metavar="PCT",
        type=float,
        help="what runs of one setting differ by on this machine (standard deviation in percent), where you know it; "
        "default: seen, where sides have several runs, and taken to be about 3",
    )
    options.add_full(parser)
    parser.add_argument("--json", action="store_true", help="print JSON (whyidle-diff version 1)")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead of the terminal")


def run(arguments: argparse.Namespace) -> int:
    reuse_memory()
    percent, folders, a, b = arguments.noise, arguments.run_folders, arguments.a, arguments.b
    if percent is not None and not (math.isfinite(percent) and 0 < percent < 100):
        raise WhyidleError(f"--noise {percent:g}: a percentage above 0 and below 100 is needed, such as 1.5.")
    if folders and (a or b):
        raise WhyidleError("name either two runs, or the runs of each side with --a and --b.")
    if not folders and not (a and b):
        raise WhyidleError(
            f"two runs are needed: `{VERBS['diff'].example}`, or several a side: `--a RUN RUN --b RUN RUN`."
        )
    if folders:
        if len(folders) != 2:
            raise WhyidleError(
                f"{len(folders)} run{'s' * (len(folders) != 1)} named, two are needed: `{VERBS['diff'].example}`. "
                "Several a side: `--a RUN RUN --b RUN RUN`."
            )
        a, b = folders[:1], folders[1:]
    with doing():
        sides = side_of("A", a), side_of("B", b)
        if (both := in_both(*sides)) is not None:
            raise WhyidleError(f"{both} is on both sides. Name two different runs.")
        found = Difference(*sides, None if percent is None else percent / 100)
    if arguments.json:
        write_json(run_json.difference(found), arguments.output or "-")
    else:
        show_in(arguments.output, diff_document(found), arguments.full)
    return 0
