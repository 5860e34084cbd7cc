"""What `whyidle tune` finds, against an exhaustive grid and simpler ways to choose a loader's settings.

First `python -m benchmarks.tuning.grid`: its file says how fast seven trainings are with every setting. Here whyidle
and loadtune each tune the same trainings, from 2 workers and a prefetch factor of 2. Then all choices meet the grid's
best, as many workers as CPUs, and four workers in a duel: blocks in shuffled rounds, compared within rounds, so that
what the best owes to luck in the grid, and the machine's drift, count for nobody. Six settings drawn at random are
judged by the grid alone. Blocks lie within epochs: what it costs to start the workers of each epoch is no part of them;
it is less than a hundredth of an epoch of these trainings. Some 25 minutes on two idle CPUs.

`--from FILE` makes the tables anew from what `--json` has kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whyidle.commands.options import count
from whyidle_bench.rivals.environment import default_place, environment
from whyidle_bench.rivals.registry import TOOLS, requirements

from .blocks import Block, measure, shuffled
from .grid import about, names
from .judge import Row, contestants, distinct, judged
from .table import tables
from .tools import LOADTUNE, WHYIDLE, Choice, loadtune, tune
from .truth import Grid, read

FORMAT, VERSION = "whyidle-tuning-benchmark", 1
ROUNDS, SECONDS, BUDGET_S = 8, 1.5, 60.0


def run(options: argparse.Namespace, grids: Mapping[str, Grid], cpus: int) -> Iterator[dict[str, Any]]:
    """Each workload: what the tuners chose, and the duel's blocks; what is being done goes to stderr."""
    begin = time.monotonic()

    def tell(what: str) -> None:
        print(f"[{time.monotonic() - begin:5.0f} s] {what}", file=sys.stderr, flush=True)

    python = environment(options.venv, [TOOLS[LOADTUNE].requirement]) if LOADTUNE in options.tools else None
    for name, grid in grids.items():
        choices = []
        if WHYIDLE in options.tools:
            choices.append(tune(name, options.budget, options.tune_options.split()))
        if python is not None:
            choices.append(loadtune(name, python))
        for choice in choices:
            said = choice.settings if choice.settings is not None else f"failed: {choice.said}"
            tell(f"{name}: {choice.tool}, {choice.seconds:.0f} s: {said}")
        plan = shuffled(distinct(contestants(grid, cpus, choices)), options.rounds, options.seed)
        duel = list(measure(name, plan, options.seconds))
        tell(f"{name}: {len(duel)} blocks of the duel")
        yield {"workload": name, "choices": list(map(asdict, choices)), "duel": list(map(asdict, duel))}


def rows(told: Mapping[str, Any], grids: Mapping[str, Grid]) -> Iterator[Row]:
    """Judge what was run."""
    for each in told["workloads"]:
        grid = grids.get(each["workload"])
        if grid is None:
            raise SystemExit(f"the grid has no {each['workload']}; name the file that these runs were made with")
        choices = [Choice(**choice) for choice in each["choices"]]
        yield judged(grid, told["cpus"], choices, [Block(**block) for block in each["duel"]])


def markdown(told: Mapping[str, Any], truth: Mapping[str, Any], grids: Mapping[str, Grid]) -> Iterator[str]:
    load = " and ".join(f"{value:.1f}" for value in told["load"])
    yield f"{told['machine']}, {told['date']}, load over a minute before and after {load}: `{told['command']}`"
    yield ""
    load = " and ".join(f"{value:.1f}" for value in truth["load"])
    yield f"The grid: {truth['date']}, load {load}: `{truth['command']}`"
    yield ""
    yield from tables(list(rows(told, grids)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grid", type=Path, required=True, metavar="FILE", help="of benchmarks.tuning.grid")
    parser.add_argument("--workloads", type=names, help="default: all that the grid has")
    parser.add_argument("--tools", default=f"{WHYIDLE},{LOADTUNE}", help="default: %(default)s")
    parser.add_argument("--budget", type=float, default=BUDGET_S, help="seconds for whyidle (default: %(default)g)")
    parser.add_argument("--tune-options", default="", metavar="TEXT", help="further options of `whyidle tune`")
    parser.add_argument("--rounds", type=count, default=ROUNDS, help="of the duel (default: %(default)d)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of a block (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks")
    parser.add_argument(
        "--venv",
        type=Path,
        default=default_place(requirements(TOOLS.values())),
        help="loadtune's environment (default: a cache)",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write what was run there, after each workload")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the tables there")
    parser.add_argument("--from", type=Path, dest="recorded", metavar="FILE", help="run nothing: tables of this JSON")
    options = parser.parse_args()
    options.tools = [tool for tool in options.tools.split(",") if tool]
    unknown = [tool for tool in options.tools if tool not in (WHYIDLE, LOADTUNE)]
    if unknown:
        parser.error(f"unknown tool {unknown[0]!r}: they are {WHYIDLE}, {LOADTUNE}")
    return options


def main() -> None:
    options = _options()
    truth, grids = read(options.grid)
    if options.recorded is not None:
        told = json.loads(options.recorded.read_text())
        if told.get("format") != FORMAT or told.get("version") != VERSION:
            raise SystemExit(f"{options.recorded} is not what --json of this benchmark writes")
    else:
        missing = [name for name in options.workloads or () if name not in grids]
        if missing:
            raise SystemExit(f"{options.grid} has no {missing[0]}: run benchmarks.tuning.grid with it")
        chosen = {name: grids[name] for name in options.workloads or grids}
        words = f"--tools {','.join(options.tools)} --budget {options.budget:g}"
        words += f" --rounds {options.rounds} --seconds {options.seconds:g}"
        words += f" --tune-options '{options.tune_options}'" if options.tune_options else ""
        told = about(f"python -m benchmarks.tuning --workloads {','.join(chosen)} {words}")
        told |= {"format": FORMAT, "version": VERSION, "load": [os.getloadavg()[0]] * 2, "workloads": []}
        told |= {"budget_s": options.budget, "loadtune": TOOLS[LOADTUNE].version}
        try:
            for each in run(options, chosen, told["cpus"]):
                told["workloads"].append(each)
                told["load"][1] = os.getloadavg()[0]
                if options.json is not None:
                    options.json.write_text(json.dumps(told, indent=1))
        except KeyboardInterrupt:
            print("stopped: the tables show what was run until then", file=sys.stderr)
    lines = "\n".join(markdown(told, truth, grids))
    print(lines)
    if options.markdown is not None:
        options.markdown.write_text(lines + "\n")


if __name__ == "__main__":
    main()
