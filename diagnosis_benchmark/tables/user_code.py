"""Programs whose fault is a line of the user's code: prints the tables of docs/measurements, in markdown.

Each is rebuilt from a public thread in which the cause was confirmed, in a broken and a fixed form, and runs under
`whyidle run`. Half of them were written before the rules that judge them, half afterwards and without knowing these:
no figure is of both. What a mend gains is told by the programs' own clocks, in runs without whyidle that take turns.

Runs go to a folder that is kept when `--out` names it. The same command goes on where an earlier one was stopped;
`--from FOLDER` judges such runs anew.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from datetime import date
from pathlib import Path

from whyidle.commands import options

from ..user_code import trials
from ..user_code.cases import BROKEN, FIXED, HALVES, UserProgram, chosen
from ..user_code.judge import judged
from ..user_code.table import ProgramResult, as_json, tables
from .matrix_runs import machine

HELP = "programs with a fault in their own code: does whyidle name the line? (25 minutes)"
QUICK = "a few programs of the first half (4 minutes)"
EXAMPLE = "--half before --out runs/user-code"
QUICK_PROGRAMS = 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cases", metavar="NAMES", help="these programs alone, with commas between them")
    parser.add_argument("--half", choices=list(HALVES), help="those written before the rules, after, or later")
    parser.add_argument("--repeats", type=options.count, default=1, help="rounds of both forms (default: 1)")
    parser.add_argument(
        "--gain-rounds", type=int, default=0, metavar="N", help="runs without whyidle that tell what a mend gains (0)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")


def run(arguments: argparse.Namespace) -> None:
    """
    Raises:
        WhyidleError: a program is not known.
    """
    programs = chosen(arguments.cases, arguments.half, QUICK_PROGRAMS if arguments.quick else None)
    missing = {program.name: program.missing for program in programs if program.missing}
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.recorded or arguments.out or Path(scratch)
        if arguments.recorded is None:
            for name, packages in missing.items():
                print(f"{name} is left out: {', '.join(packages)} not installed", file=sys.stderr)
            able = [program for program in programs if program.name not in missing]
            try:
                _make(able, folder, arguments.repeats, arguments.gain_rounds, random.Random(arguments.seed))
            except KeyboardInterrupt:
                print("stopped: the tables show what was run until then", file=sys.stderr)
        found = [result for each in programs if (result := _result(each, folder)).answers]
        print(f"{date.today()}, {machine()}.\n")
        print("\n".join(tables(found)))
        if arguments.json is not None:
            told = {"machine": machine(), "date": str(date.today()), "left_out": missing, "halves": as_json(found)}
            arguments.json.write_text(json.dumps(told, indent=1))


def _make(programs: list[UserProgram], folder: Path, repeats: int, gain_rounds: int, order: random.Random) -> None:
    """Round after round, so that whatever the machine does meanwhile befalls all programs."""
    for number in range(repeats):
        for program in order.sample(programs, len(programs)):
            for form in order.sample((BROKEN, FIXED), 2):
                print(f"{program.name}, {form}", file=sys.stderr)
                trials.run(program, form, trials.place(folder, program, form, number))
    for number in range(gain_rounds):
        for program in order.sample(programs, len(programs)):
            for form in order.sample((BROKEN, FIXED), 2):
                trials.run_alone(program, form, trials.place(folder, program, form) / f"alone-{number}")


def _result(program: UserProgram, folder: Path) -> ProgramResult:
    answers = []
    for number in range(trials.rounds(folder, program)):
        broken, fixed = (trials.report(trials.place(folder, program, form, number)) for form in (BROKEN, FIXED))
        answers.append(judged(program, broken, fixed, trials.cost(folder, program, number)))
    return ProgramResult(program, answers, trials.gain(program, folder))
