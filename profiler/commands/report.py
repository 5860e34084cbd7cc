"""`whyidle report RUN`: what lies in a folder, in words, as a page, or for other programs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ..record.files import plain
from ..record.reader import reuse_memory
from ..results.opening import open_result
from ..terminal.console import doing
from . import cost_options, formats, options, plot


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="folder of a run, a comparison or a tuning; of a job on several hosts each host's run folder, or the one "
        "around them",
    )
    formats.add_arguments(parser)
    plot.add_arguments(parser)
    cost_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    reuse_memory()
    form = formats.chosen(arguments)
    plot.check(arguments)
    price = cost_options.price_of(arguments)
    result = open_result(arguments.run_folders or [options.newest()], price)
    plot.check_of(arguments, result)
    if arguments.table is None:
        with doing():
            result.read()
    form.write(arguments, result)
    plot.draw(arguments, result)
    if arguments.output not in (None, "-") and not form.says_where and not Path(arguments.output).is_dir():
        # A command that says nothing may have done nothing.
        print(plain(f"written: {arguments.output}"), file=sys.stderr)
    return 0
