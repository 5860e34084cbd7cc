"""The planted faults given to whyidle and four rivals: who names what, who alarms on healthy runs, what each costs.

Every tool gets the same training (`rivals_programs/`), with the changes to its code that the tool's documentation asks
for, in an environment that has the rivals at pinned versions. The training computes on an accelerator that all can see
without a GPU (`rivals_programs/parts.py`); faults that need a real one are shown to nobody. What a tool's words mean
was decided before any run (`rivals_words.py`). What a fault really cost is measured by the training itself, and a run
in which it cost less than a tenth is not judged.

By default each cause is planted once, at middle severity, with some controls: about 25 minutes on two idle CPUs.
All that the tools wrote stays in the folder that `--out` names: `--from FOLDER` makes the tables anew from there.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import rivals_cost
import rivals_tables
import torch
from rivals_cases import QUICK, Chosen, chosen
from rivals_environment import default_place, environment
from rivals_result import CaseResult, place, results
from rivals_run import fit, run
from rivals_tools import TOOLS, Tool

from whyidle.commands.options import count
from whyidle.devices.choose import choose
from whyidle.errors import WhyidleError

ROUNDS = 3
ABOUT = "about.json"
PLACES = ("--venv", "--out", "--json", "--from")
"""Options whose value is a place on this machine."""


def measure(options: argparse.Namespace, tools: Sequence[Tool], folder: Path) -> None:
    """Run what was asked for; what is being done goes to stderr."""
    begin = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {what}", file=sys.stderr, flush=True)

    tell(f"the rivals' environment: {options.venv}")
    python = environment(options.venv, [tool.package for tool in tools if tool.package])
    source = random.Random(options.seed)
    selected: Chosen = options.selected
    about = _about(selected)
    (folder / ABOUT).write_text(json.dumps(about))
    for repeat in range(options.repeats):
        for case in selected.cases:
            plan = fit(case, folder / "cases" / case.name)
            able = [tool for tool in tools if not tool.cannot(case)]
            for tool in source.sample(able, len(able)):
                record = run(tool, case, repeat, place(folder, case.name, tool.name, repeat), python, plan)
                tell(f"{case.name}: {tool.name}, {record.seconds[0]:.1f} s{', failed' if record.failed else ''}")
    if options.rounds:
        observing = [tool for tool in tools if tool.observes]
        for line in rivals_cost.measure(observing, options.rounds, folder, python, source):
            tell(line)
    (folder / ABOUT).write_text(json.dumps(about | {"load": [*about["load"], os.getloadavg()[0]]}))


def tables(folder: Path, tools: Sequence[Tool], found: Sequence[CaseResult]) -> Iterator[str]:
    """Markdown, a line each."""
    if not (folder / ABOUT).is_file():
        raise SystemExit(f"{folder} holds no runs of this benchmark. Name the folder that --out named.")
    about = json.loads((folder / ABOUT).read_text())
    load = " and ".join(f"{each:.1f}" for each in about["load"])
    yield f"{about['machine']}, {about['date']}, load over a minute before and after {load}: `{about['command']}`"
    yield ""
    yield from rivals_tables.faults(found, tools, about["skipped"])
    yield from rivals_tables.controls(found, tools)
    cost, bare, rounds = rivals_cost.costs(folder, tools)
    yield from rivals_tables.costs(cost, bare, rounds)
    yield from rivals_tables.code(tools)
    yield from rivals_tables.words(tools)
    yield from rivals_tables.sentences(found, tools)


def _choice(arguments: Sequence[str]) -> list[str]:
    """Options without those that only say where things lie."""
    kept: list[str] = []
    where = False
    for each in arguments:
        if not where and each not in PLACES and each.partition("=")[0] not in PLACES:
            kept.append(each)
        where = not where and each in PLACES
    return kept


def _about(selected: Chosen) -> dict[str, Any]:
    cpu, cpus = choose("cpu").describe()["title"], len(os.sched_getaffinity(0))
    return {
        "machine": f"{cpu}, {cpus} CPUs, Python {platform.python_version()}, torch {torch.__version__}",
        "load": [os.getloadavg()[0]],
        "date": date.today().isoformat(),
        "command": " ".join(["python benchmarks/rivals.py", *_choice(sys.argv[1:])]),
        "skipped": dict(selected.skipped),
    }


def _as_json(folder: Path, tools: Sequence[Tool], found: Sequence[CaseResult]) -> dict[str, Any]:
    cost, bare, _ = rivals_cost.costs(folder, tools)
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
        "costs": [dataclasses.asdict(each) for each in cost],
    }


def _options() -> argparse.Namespace:
    def several(text: str) -> list[str]:
        return [name for name in text.split(",") if name]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=several, default=[], help="or causes, with commas between them")
    parser.add_argument("--all", action="store_true", help="also other ways to plant a cause, and all controls (1 h)")
    parser.add_argument("--tools", type=several, default=list(TOOLS), help=f"default: {','.join(TOOLS)}")
    parser.add_argument("--repeats", type=count, default=1, help="of each case (default: 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"for what each costs (default: {ROUNDS}; 0: none)")
    parser.add_argument("--seed", type=int, default=0, help="of the order in which tools take turns")
    parser.add_argument("--quick", action="store_true", help="two cases and one round")
    parser.add_argument("--venv", type=Path, default=default_place(), help="the rivals' environment (default: a cache)")
    parser.add_argument("--out", type=Path, help="keep all that the tools wrote here (default: it is removed)")
    parser.add_argument(
        "--from", type=Path, dest="recorded", metavar="FOLDER", help="run nothing: tables of this folder"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    unknown = [name for name in options.tools if name not in TOOLS]
    if unknown:
        parser.error(f"unknown tool {unknown[0]!r}: they are {', '.join(TOOLS)}")
    if options.out is not None and options.out.exists() and any(options.out.iterdir()):
        parser.error(f"{options.out} is not empty")
    if options.quick:
        options.cases, options.rounds = list(QUICK), 1
    try:
        options.selected = chosen(options.cases, options.all)
    except WhyidleError as error:
        parser.error(str(error))
    return options


def main() -> None:
    options = _options()
    tools = [TOOLS[name] for name in options.tools]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.recorded or options.out or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.recorded is None:
            try:
                measure(options, tools, folder)
            except KeyboardInterrupt:
                print("stopped: the tables show what was run until then", file=sys.stderr)
        found = list(results(folder, tools))
        print("\n".join(tables(folder, tools, found)))
        if options.json is not None:
            options.json.write_text(json.dumps(_as_json(folder, tools, found), indent=1))


if __name__ == "__main__":
    main()
