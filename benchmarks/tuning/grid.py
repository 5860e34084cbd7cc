"""How fast seven trainings are with every setting of their loader: the truth that a tuner's choice is held against.

Workers 0 to 8, prefetch factors 1, 2, 4 and 8: 33 settings, three rounds of blocks in shuffled order, in plain PyTorch
(`blocks.py`). Some 20 minutes on two idle CPUs. What the file has in it is said there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Any

import torch

from whyidle.commands.options import count
from whyidle.devices.choose import choose

from .blocks import as_json, measure, points, settings_of, shuffled
from .programs.workloads import WORKLOADS

TRAIN = Path(__file__).parent / "programs" / "train.py"
ROUNDS, SECONDS = 3, 1.0
STARTS = 3
"""Start-ups of the script that are timed."""


def script_s(workload: str) -> float:
    """What a run of the script takes that trains one batch."""
    begin = time.monotonic()
    command = [sys.executable, str(TRAIN), "--workload", workload, "--batches", "1"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin


def about(command: str) -> dict[str, Any]:
    """The machine, and what was asked for."""
    cpus = len(os.sched_getaffinity(0))
    machine = f"{choose('cpu').describe()['title']}, {cpus} CPUs, Python {platform.python_version()}"
    told = {"machine": f"{machine}, torch {torch.__version__}", "cpus": cpus}
    return told | {"date": date.today().isoformat(), "command": command}


def names(text: str) -> list[str]:
    """Workloads, as an option's value."""
    chosen = [name for name in text.split(",") if name]
    unknown = [name for name in chosen if name not in WORKLOADS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown workload {unknown[0]!r}: they are {', '.join(WORKLOADS)}")
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", type=names, default=list(WORKLOADS), help=f"default: {','.join(WORKLOADS)}")
    parser.add_argument("--points", choices=("all", "small"), default="all", help="small: a few, for a quick look")
    parser.add_argument("--rounds", type=count, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument("--seconds", type=float, default=SECONDS, help=f"of a block (default: {SECONDS:g})")
    parser.add_argument("--seed", type=int, default=0, help="of the order of blocks")
    parser.add_argument("--json", type=Path, metavar="FILE", required=True, help="written after each workload")
    options = parser.parse_args()
    small = options.points == "small"
    words = f"--points {options.points} --rounds {options.rounds} --seconds {options.seconds:g} --seed {options.seed}"
    told = about(f"python -m benchmarks.tuning.grid --workloads {','.join(options.workloads)} {words}")
    told |= {"load": [os.getloadavg()[0]] * 2, "seconds": options.seconds}
    plan = shuffled([settings_of(point) for point in points(small)], options.rounds, options.seed)
    costs: dict[str, dict[str, Any]] = {}
    blocks: list[dict[str, Any]] = []
    for name in options.workloads:
        starts = [script_s(name) for _ in range(STARTS)]
        begin = time.monotonic()
        blocks += [asdict(block) for block in measure(name, plan, options.seconds)]
        wall_s = time.monotonic() - begin
        workload = WORKLOADS[name]
        costs[name] = {"batch_size": workload.batch, "step_s": workload.step_s, "wall_s": wall_s, "script_s": starts}
        told["load"][1] = os.getloadavg()[0]
        options.json.write_text(as_json(told, costs, blocks))
        print(json.dumps({"workload": name, **costs[name]}), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
