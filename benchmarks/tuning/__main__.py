"""What `whyidle tune` finds, against an exhaustive grid and simpler ways to choose a loader's settings.

First `python -m benchmarks.tuning.grid`: its file says how fast seven trainings are with every setting. Here whyidle
and loadtune each tune the same trainings, from 2 workers and a prefetch factor of 2. Then all choices meet the grid's
best, as many workers as CPUs, and four workers in a duel: blocks in shuffled rounds, compared within rounds, so that
what the best owes to luck in the grid, and the machine's drift, count for nobody. Six settings drawn at random are
judged by the grid alone. Blocks lie within epochs: what it costs to start the workers of each epoch is no part of them;
it is less than a hundredth of an epoch of these trainings. Some 25 minutes on two idle CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from whyidle.commands.options import count
from whyidle_bench.rivals.environment import default_place, environment
from whyidle_bench.rivals.registry import TOOLS, requirements

from .blocks import Block, Grid, measure, read, shuffled
from .grid import about, names
from .judge import contestants, distinct, judged, tables
from .tools import LOADTUNE, WHYIDLE, Choice, loadtune, tune

ROUNDS, SECONDS, BUDGET_S = 8, 1.5, 60.0


def choose(options: argparse.Namespace, name: str, python: Path | None) -> list[Choice]:
    """What the tuners come to with a workload."""
    choices = [tune(name, options.budget, options.tune_options.split())] if WHYIDLE in options.tools else []
    return choices + ([loadtune(name, python)] if python is not None else [])


def duel(options: argparse.Namespace, grid: Grid, choices: list[Choice], cpus: int) -> list[Block]:
    plan = shuffled(distinct(contestants(grid, cpus, choices)), options.rounds, options.seed)
    return list(measure(grid.workload, plan, options.seconds))


def heading(told: Mapping[str, Any]) -> str:
    load = " and ".join(f"{value:.1f}" for value in told["load"])
    return f"load over a minute before and after {load}: `{told['command']}`"


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
    options = parser.parse_args()
    options.tools = [tool for tool in options.tools.split(",") if tool]
    unknown = [tool for tool in options.tools if tool not in (WHYIDLE, LOADTUNE)]
    if unknown:
        parser.error(f"unknown tool {unknown[0]!r}: they are {WHYIDLE}, {LOADTUNE}")
    return options


def main() -> None:
    options = _options()
    truth, grids = read(options.grid)
    missing = [name for name in options.workloads or () if name not in grids]
    if missing:
        raise SystemExit(f"{options.grid} has no {missing[0]}: run benchmarks.tuning.grid with it")
    chosen = {name: grids[name] for name in options.workloads or grids}
    words = f"--tools {','.join(options.tools)} --budget {options.budget:g}"
    words += f" --rounds {options.rounds} --seconds {options.seconds:g}"
    words += f" --tune-options '{options.tune_options}'" if options.tune_options else ""
    told = about(f"python -m benchmarks.tuning --workloads {','.join(chosen)} {words}")
    told |= {"load": [os.getloadavg()[0]] * 2, "budget_s": options.budget, "loadtune": TOOLS[LOADTUNE].version}
    told["workloads"] = []
    python = environment(options.venv, [TOOLS[LOADTUNE].requirement]) if LOADTUNE in options.tools else None
    rows = []
    try:
        for name, grid in chosen.items():
            choices = choose(options, name, python)
            for choice in choices:
                said = choice.settings if choice.settings is not None else f"failed: {choice.said}"
                print(f"{name}: {choice.tool}, {choice.seconds:.0f} s: {said}", file=sys.stderr, flush=True)
            blocks = duel(options, grid, choices, told["cpus"])
            rows.append(judged(grid, told["cpus"], choices, blocks))
            each = {"workload": name, "choices": list(map(asdict, choices)), "duel": list(map(asdict, blocks))}
            told["workloads"].append(each)
            told["load"][1] = os.getloadavg()[0]
            if options.json is not None:
                options.json.write_text(json.dumps(told, indent=1))
    except KeyboardInterrupt:
        print("stopped: the tables show what was run until then", file=sys.stderr)
    print(f"{told['machine']}, {told['date']}, {heading(told)}\n\nThe grid: {truth['date']}, {heading(truth)}\n")
    print("\n".join(tables(rows)))


if __name__ == "__main__":
    main()
