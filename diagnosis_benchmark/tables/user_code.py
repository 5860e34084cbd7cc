"""Programs whose fault is a line of the user's code: prints the tables of docs/measurements, in markdown.

Each is rebuilt from a public thread in which the cause was confirmed, in a broken and a fixed form, and runs under
`whyidle run`. Half of them were written before the rules that judge them, half afterwards and without knowing these.
What a mend gains is told by the programs' own clocks, in runs without whyidle that take turns.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from datetime import date
from pathlib import Path

from ..user_code import trials
from ..user_code.cases import BROKEN, FIXED, HALVES, UserProgram, chosen
from ..user_code.judge import Answer, judged
from ..user_code.table import tables
from .matrix_runs import machine

HELP = "programs with a fault in their own code: does whyidle name the line? (25 minutes)"
QUICK = "a few programs"
EXAMPLE = "--half before --out runs/user-code"
QUICK_PROGRAMS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", metavar="NAMES", help="these programs alone, with commas between them")
    parser.add_argument("--half", choices=HALVES, help="those written before the rules, or after")
    parser.add_argument(
        "--gain-rounds", type=int, default=0, metavar="N", help="runs without whyidle that tell what a mend gains (0)"
    )


def run(arguments: argparse.Namespace) -> None:
    """
    Raises:
        WhyidleError: a program is not known.
    """
    programs = chosen(arguments.cases, arguments.half)
    if arguments.quick:
        programs = programs[:QUICK_PROGRAMS]
    missing = [program for program in programs if program.missing]
    for program in missing:
        print(f"{program.name} is left out: {', '.join(program.missing)} not installed", file=sys.stderr)
    programs = [program for program in programs if program not in missing]
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.recorded or arguments.out or Path(scratch)
        if arguments.recorded is None:
            _make(programs, folder, arguments.gain_rounds, random.Random(arguments.seed))
        print(f"{date.today()}, {machine()}.\n")
        print("\n".join(tables([(each, _judged(each, folder), _gain(each, folder)) for each in programs])))


def _make(programs: list[UserProgram], folder: Path, rounds: int, order: random.Random) -> None:
    for program in order.sample(programs, len(programs)):
        for form in order.sample((BROKEN, FIXED), 2):
            print(f"{program.name}, {form}", file=sys.stderr)
            trials.run(program, form, folder / program.name / form)
        for number in range(rounds):
            for form in order.sample((BROKEN, FIXED), 2):
                trials.run_alone(program, form, folder / program.name / form / f"alone-{number}")


def _judged(program: UserProgram, folder: Path) -> Answer:
    broken, fixed = (trials.told(folder / program.name / form).report for form in (BROKEN, FIXED))
    return judged(program, broken, fixed)


def _gain(program: UserProgram, folder: Path) -> float | None:
    """Throughput of the fixed form over that of the broken one, medians by their own clocks."""
    medians = []
    for form in (BROKEN, FIXED):
        outputs = (folder / program.name / form).glob(f"alone-*/{trials.ALONE}")
        rates = [rate for output in outputs if (rate := trials.rate(output)) is not None]
        rates = rates or [rate for rate in (program.measured.get(form),) if rate]
        if not rates:
            return None
        medians.append(statistics.median(rates))
    return medians[1] / medians[0]
