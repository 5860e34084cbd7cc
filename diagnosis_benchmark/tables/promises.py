"""Promises held against what came: prints the calibration tables of docs/measurements, in markdown.

Each program runs under `whyidle run` in its broken form and its others, in rounds. The first advice of the report, and
that of each further finding where it can be, is followed: settings of the loader by `whyidle tune --prove`, in blocks
that take turns within one run; code by the program's fixed form. Where a program has a form in which the line takes no
time, the what-if of that line is held against it. Of planted faults (a round of all) the
promise is held against what the planted work held the training up by its own stamps.

Runs go to a folder that is kept when `--out` names it. The same command goes on where an earlier one was stopped;
`--from FOLDER` judges such runs anew, by today's rules.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from datetime import date
from functools import partial
from pathlib import Path

from whyidle.commands import options
from whyidle.errors import WhyidleError
from whyidle.report.plot import check_picture

from .. import faults
from ..promises import audit
from ..promises.judge import Followed, Removed
from ..promises.picture import write_calibration
from ..promises.planted import planted
from ..promises.table import as_json, tables
from ..user_code import trials
from ..user_code.cases import HALVES, UserProgram, chosen
from .matrix_runs import machine, make

HELP = "first advice followed: is as much gained as was promised? (90 minutes)"
QUICK = "three of the programs (4 minutes)"
EXAMPLE = "--half promises --out runs/promises"
QUICK_PROGRAMS = 3
FAULTS = "planted-faults"
"""The folder of their runs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", metavar="NAMES", help="these programs alone, with commas between them")
    parser.add_argument("--half", choices=list(HALVES), help="those written at that time (default: all)")
    parser.add_argument("--no-faults", action="store_true", help="leave the planted faults out")
    parser.add_argument("--repeats", type=options.count, default=2, help="rounds of all forms (default: 2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw promised against measured (.png, .svg)")


def run(arguments: argparse.Namespace) -> None:
    """
    Raises:
        WhyidleError: a program is not known, or the picture cannot be drawn.
    """
    if arguments.picture is not None:
        check_picture(arguments.picture, option="--picture")
    programs = chosen(arguments.cases, arguments.half, QUICK_PROGRAMS if arguments.quick else None)
    missing = {program.name: program.missing for program in programs if program.missing}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.recorded or arguments.out or Path(scratch)
        if arguments.recorded is None:
            for name, packages in missing.items():
                print(f"{name} is left out: {', '.join(packages)} not installed", file=sys.stderr)
            able = [program for program in programs if program.name not in missing]
            try:
                _make(able, folder, arguments.repeats, random.Random(arguments.seed))
                if not (arguments.quick or arguments.cases or arguments.no_faults or (folder / FAULTS).exists()):
                    _make_faults(folder / FAULTS, arguments.seed)
            except KeyboardInterrupt:
                print("stopped: the tables show what was run until then", file=sys.stderr)
        else:
            for program in programs:
                audit.refresh(program, folder)
        print(f"{date.today()}, {machine()}.")
        followed: list[Followed] = []
        removed: list[Removed] = []
        for half, written in HALVES.items():
            mine = [each for each in programs if each.half == half]
            advised = [found for each in mine for found in audit.followed(each, folder)]
            lines = [line for each in mine if (line := audit.removed(each, folder)) is not None]
            if advised:
                print("\n".join(("", f"## Programs written {written}", "", *tables(advised, lines, "programs"))))
            followed, removed = followed + advised, removed + lines
        if (folder / FAULTS).is_dir():
            found = list(planted(folder / FAULTS))
            print("\n".join(("", "## Planted faults", "", *tables(found, [], "runs", every=False))))
            followed += found
        if not followed:
            raise WhyidleError(f"{folder} holds no run of these programs that advises anything.")
        if arguments.json is not None:
            told = {"machine": machine(), "date": str(date.today()), "left_out": missing, **as_json(followed, removed)}
            arguments.json.write_text(json.dumps(told, indent=1))
        if arguments.picture is not None:
            write_calibration(followed, removed, arguments.picture)


def _make_faults(folder: Path, seed: int) -> None:
    matrix = faults.plan(faults.FaultRequest(kinds=("fault",), seed=seed, out=folder))
    make(matrix, partial(faults.measure, matrix), faults.RUN_SECONDS, partial(faults.said, matrix.setting))


def _make(programs: list[UserProgram], folder: Path, repeats: int, order: random.Random) -> None:
    """Round after round, so that whatever the machine does meanwhile befalls all programs."""
    for number in range(repeats):
        for program in order.sample(programs, len(programs)):
            for form in order.sample(program.forms, len(program.forms)):
                print(f"{program.name}, {form}", file=sys.stderr)
                trials.run(program, form, trials.place(folder, program, form, number))
            report = audit.look(program, folder)
            if number == 0 and report is not None and audit.advises_settings(report):
                print(f"{program.name}, advised settings", file=sys.stderr)
                audit.prove(program, folder)
