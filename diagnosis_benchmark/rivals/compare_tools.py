"""The planted faults given to whyidle and four rivals: who names what, who alarms on healthy runs, what each costs.

Every tool gets the same training (`programs/`), with the changes to its code that the tool's documentation asks
for, in an environment that has the rivals at pinned versions. The training computes on an accelerator that all can see
without a GPU (`programs/parts.py`); faults that need a real one are shown to nobody. What a tool's words mean
was decided before any run (`tools/`). What a fault really cost is measured by the training itself, and a run
in which it cost less than a tenth is not judged.

With `--user-code` the programs with a fault in their own code instead, under whyidle, py-spy, Scalene, TraceML and
gpu-idle: who names the cause, who the line (`program_tools.py`; half a minute a program and tool). The same command
with the same `--out` goes on where an earlier one was stopped.

By default each cause is planted once, at middle severity, with some controls: about 25 minutes on two idle CPUs.
All that the tools wrote stays in the folder that `--out` names: `--from FOLDER` makes the tables anew from there.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

from whyidle.commands import options
from whyidle.errors import WhyidleError

from ..tables.matrix_runs import machine
from ..user_code.cases import HALVES, UserProgram
from ..user_code.cases import chosen as chosen_programs
from . import cost, tables, user_programs
from .cases import QUICK_CASES, Selection, chosen
from .environment import default_place, environment
from .program_tools import PROGRAM_TOOLS, ProgramTool
from .registry import TOOLS, adapter, requirements
from .result import CaseResult, place, results
from .run import fit
from .run import run as train
from .tool import Tool

T = TypeVar("T")

HELP = "the planted faults given to other tools too, in an environment of their own (half an hour)"
QUICK = "two cases and one round"
EXAMPLE = "--cases input.serial --tools whyidle,TraceML --out runs/rivals"
ROUNDS = 3
QUICK_PROGRAMS = 2
ABOUT = "about.json"
PLACES = ("--venv", "--out", "--json", "--from", "--adapter")
"""Options whose value is a place on this machine."""


def measure(arguments: argparse.Namespace, selected: Selection, tools: Sequence[Tool], folder: Path) -> None:
    """Run what was asked for; what is being done goes to stderr."""
    tell = _teller()
    every = [*TOOLS.values(), *(tool for tool in tools if tool.name not in TOOLS)]
    python = _interpreter(arguments.venv, requirements(every), requirements(tools), tell)
    source = random.Random(arguments.seed)
    about = _about(selected.skipped)
    (folder / ABOUT).write_text(json.dumps(about))
    for repeat in range(arguments.repeats):
        for case in selected.cases:
            plan = fit(case, folder / "cases" / case.name)
            able = [tool for tool in tools if not tool.cannot(case)]
            for tool in source.sample(able, len(able)):
                record = train(tool, case, repeat, place(folder, case.name, tool.name, repeat), python, plan)
                tell(f"{case.name}: {tool.name}, {record.seconds[0]:.1f} s{', failed' if record.failed else ''}")
    if arguments.rounds:
        observing = [tool for tool in tools if tool.own_loop is None]
        for line in cost.measure(observing, arguments.rounds, folder, python, source):
            tell(line)
    (folder / ABOUT).write_text(json.dumps(about | {"load": [*about["load"], os.getloadavg()[0]]}))


def measure_programs(
    arguments: argparse.Namespace, programs: Sequence[UserProgram], tools: Sequence[ProgramTool], folder: Path
) -> None:
    """Run each program under each tool; what is being done goes to stderr."""
    tell = _teller()
    python = _interpreter(arguments.venv, requirements(PROGRAM_TOOLS.values()), requirements(tools), tell)
    missing = {each.name: f"needs {', '.join(each.missing)}" for each in programs if each.missing}
    about = _about(missing)
    (folder / ABOUT).write_text(json.dumps(about))
    able = [each for each in programs if each.name not in missing]
    user_programs.measure(able, tools, arguments.repeats, folder, python, random.Random(arguments.seed), tell)
    (folder / ABOUT).write_text(json.dumps(about | {"load": [*about["load"], os.getloadavg()[0]]}))


def _teller() -> Callable[[str], None]:
    begin = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {what}", file=sys.stderr, flush=True)

    return tell


def _interpreter(venv: Path | None, every: Sequence[str], needed: Sequence[str], tell: Callable[[str], None]) -> Path:
    """Of an environment that has what is needed, by default one in the cache that is for all of `every`."""
    if not needed:
        return Path(sys.executable)
    place = venv or default_place(every)
    tell(f"the rivals' environment: {place}")
    return environment(place, needed)


def markdown(folder: Path, tools: Sequence[Tool], found: Sequence[CaseResult]) -> Iterator[str]:
    """Markdown, a line each."""
    about = _read_about(folder)
    yield from _head(about)
    yield from tables.faults(found, tools, about["skipped"])
    yield from tables.controls(found, tools)
    added, bare, rounds = cost.costs(folder, tools)
    yield from tables.costs(added, bare, rounds)
    yield from tables.code(tools)
    yield from tables.words(tools)
    yield from tables.sentences(found, tools)


def _read_about(folder: Path) -> dict[str, Any]:
    """
    Raises:
        SystemExit: the folder has no runs.
    """
    if not (folder / ABOUT).is_file():
        raise SystemExit(f"{folder} holds no runs of this benchmark. Name the folder that --out named.")
    return dict(json.loads((folder / ABOUT).read_text()))


def _head(about: dict[str, Any]) -> Iterator[str]:
    load = " and ".join(f"{each:.1f}" for each in about["load"])
    yield f"{about['machine']}, {about['date']}, load over a minute before and after {load}: `{about['command']}`"
    yield ""


def _choice(arguments: Sequence[str]) -> list[str]:
    """Options without those that only say where things lie."""
    kept: list[str] = []
    where = False
    for each in arguments:
        if not where and each not in PLACES and each.partition("=")[0] not in PLACES:
            kept.append(each)
        where = not where and each in PLACES
    return kept


def _about(skipped: Mapping[str, str]) -> dict[str, Any]:
    return {
        "machine": machine(),
        "load": [os.getloadavg()[0]],
        "date": date.today().isoformat(),
        "command": " ".join(["python -m whyidle_bench", *_choice(sys.argv[1:])]),
        "skipped": dict(skipped),
    }


def _as_json(folder: Path, tools: Sequence[Tool], found: Sequence[CaseResult]) -> dict[str, Any]:
    added, bare, _ = cost.costs(folder, tools)
    return {
        **json.loads((folder / ABOUT).read_text()),
        "cases": [
            {
                "case": each.case.name,
                "planted": each.case.causes,
                "cannot": each.cannot,
                "runs": [dataclasses.asdict(judgement) for judgement in each.judgements],
            }
            for each in found
        ],
        "bare_step_us": bare,
        "costs": [dataclasses.asdict(each) for each in added],
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    def several(text: str) -> list[str]:
        return [name for name in text.split(",") if name]

    parser.add_argument("--cases", type=several, default=[], help="or causes, with commas between them")
    parser.add_argument("--user-code", action="store_true", help="programs with a fault in their own code instead")
    parser.add_argument(
        "--half", choices=list(HALVES), help="with --user-code: written before the rules, after, or later"
    )
    parser.add_argument("--all", action="store_true", help="also other ways to plant a cause, and all controls (1 h)")
    parser.add_argument("--tools", type=several, help=f"default: {','.join(TOOLS)}, and --adapter's")
    parser.add_argument(
        "--adapter", type=Path, metavar="FILE", help="a Python file whose TOOL is compared too (README.md)"
    )
    parser.add_argument("--repeats", type=options.count, default=1, help="of each case (default: 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"for what each costs (default: {ROUNDS}; 0: none)")
    parser.add_argument("--venv", type=Path, help="the rivals' environment (default: a cache)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")


def run(arguments: argparse.Namespace) -> None:
    """Every case under every tool, or what was recorded of that; then the tables.

    Raises:
        WhyidleError: a tool, a case or the folder named does not fit.
    """
    if arguments.user_code:
        _run_programs(arguments)
        return
    if arguments.half:
        raise WhyidleError("--half is of the programs that --user-code gives to every tool.")
    known = dict(TOOLS)
    if arguments.adapter is not None:
        added = adapter(arguments.adapter)
        known[added.name] = added
    tools = _named(arguments.tools, known)
    if arguments.out is not None and arguments.out.exists() and any(arguments.out.iterdir()):
        raise WhyidleError(f"{arguments.out} is not empty")
    if arguments.quick:
        arguments.cases, arguments.rounds = list(QUICK_CASES), 1
    selected = chosen(arguments.cases, arguments.all)
    with _runs(arguments, lambda folder: measure(arguments, selected, tools, folder)) as folder:
        found = list(results(folder, tools))
        print("\n".join(markdown(folder, tools, found)))
        if arguments.json is not None:
            arguments.json.write_text(json.dumps(_as_json(folder, tools, found), indent=1))


def _named(names: Sequence[str] | None, known: Mapping[str, T]) -> list[T]:
    """The tools of these names, or all.

    Raises:
        WhyidleError: one is not known.
    """
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise WhyidleError(f"unknown tool {unknown[0]!r}: they are {', '.join(known)}")
    return [known[name] for name in names or known]


@contextlib.contextmanager
def _runs(arguments: argparse.Namespace, make: Callable[[Path], None]) -> Iterator[Path]:
    """The folder with the runs that the tables are of: `make` fills it, unless it was recorded before."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.recorded or arguments.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if arguments.recorded is None:
            try:
                make(folder)
            except KeyboardInterrupt:
                print("stopped: the tables show what was run until then", file=sys.stderr)
        yield folder


def _run_programs(arguments: argparse.Namespace) -> None:
    """The programs with a fault in their own code under every tool, then the tables.

    Raises:
        WhyidleError: a tool or a program named is not known, or an option is of planted faults alone.
    """
    if arguments.adapter is not None or arguments.all:
        raise WhyidleError("--adapter and --all are of planted faults: leave out --user-code, or them.")
    tools = _named(arguments.tools, PROGRAM_TOOLS)
    most = QUICK_PROGRAMS if arguments.quick else None
    programs = chosen_programs(",".join(arguments.cases), arguments.half, most)
    with _runs(arguments, lambda folder: measure_programs(arguments, programs, tools, folder)) as folder:
        about = _read_about(folder)
        found = [
            user_programs.ProgramRuns(program, judgements)
            for program in programs
            if (judgements := user_programs.judgements(folder, program, tools))
        ]
        print("\n".join([*_head(about), *user_programs.markdown(found, tools)]))
        if arguments.json is not None:
            told = about | {"halves": user_programs.as_json(found, tools)}
            arguments.json.write_text(json.dumps(told, indent=1))
