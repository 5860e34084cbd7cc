"""Whether the reason why a larger batch is slower is found: prints the tables of docs/measurements, in markdown.

`whyidle compare batch-sizes` runs every planted sweep, all sizes in each round (five rounds unless told otherwise:
some eight minutes). Runs go to a folder that is kept when `--out` names it; `--from FOLDER` judges such runs anew.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

REPEATS = 5
QUICK_CASES = "accounting.fast,pipeline_fill,handoff_growth,memory,padding,saturated"


def measure(folder: Path, repeats: int, seed: int, quick: bool) -> None:
    """Run the sweeps into the folder."""
    command = [sys.executable, "-m", "whyidle", "compare", "batch-sizes", "--out", str(folder), "--seed", str(seed)]
    command += ["--repeats", str(repeats), *(("--cases", QUICK_CASES) if quick else ())]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 130):
        raise SystemExit(f"{' '.join(command)} ended with exit code {done.returncode}")


def judged(folder: Path) -> dict[str, Any]:
    """The JSON of a folder of runs."""
    command = [sys.executable, "-m", "whyidle", "report", str(folder), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    told = dict(json.loads(done.stdout)) if done.returncode == 0 else {}
    if "sweeps" not in told:
        raise SystemExit(done.stderr.strip() or f"{folder} holds no planted sweeps. Name the folder that --out named.")
    return told


def tables(told: dict[str, Any]) -> Iterator[str]:
    """Markdown, a line each."""
    sweeps, verdicts = told["sweeps"], told["batch_verdicts"]
    right = sum(sweep["right"] for sweep in sweeps.values())
    yield (
        f"`whyidle compare batch-sizes --repeats {told['repeats']}`: {told['cpu_budget']:g} CPUs, load "
        f"{told['load']:.1f} before. Cause and term as planted: {right} of {len(sweeps)}."
    )
    yield ""
    yield "| planted | term | named | term | growth of the term, true % | reported % ± | runs of a size differ by % |"
    yield "|---|---|---|---|---|---|---|"
    for name, sweep in sweeps.items():
        yield _row(name, sweep, verdicts.get(name))
    yield ""
    yield "Growth is that of the planted term, or of the whole where none is planted, in percent of the time per sample"
    yield "at the smaller size."
    yield ""
    yield "| sweep | batch | compute | input | host | total: true, reported µs a sample |"
    yield "|---|---|---|---|---|---|"
    for name, sweep in sweeps.items():
        for size, true in sweep["true_terms"].items():
            said = verdicts[name]["terms"][size] if name in verdicts else {}
            cells = (_both(true[term], said.get(term)) for term in ("compute", "input", "host", "total"))
            yield f"| {name} | {size} | {' | '.join(cells)} |"


def _row(name: str, sweep: dict[str, Any], verdict: dict[str, Any] | None) -> str:
    planted, named, growth = sweep["planted"], sweep["named"], sweep["growth_pct"]
    if verdict is None or named is None or growth is None:
        return f"| {name} | {planted['grew'] or ''} | not judged | | | | |"
    cause = named["cause"] if named["cause"] == planted["cause"] else f"**{named['cause']}**"
    term = named["grew"] or ""
    if named["grew"] != planted["grew"]:
        term = f"**{term or 'none'}**"
    change = verdict["changes"][planted["grew"] or "total"]
    before = verdict["terms"][str(verdict["compared"][0])]["total"]["mean"]
    half = 50 * (change["high"] - change["low"]) / before
    figures = f"{growth['true']:+.1f} | {growth['reported']:+.1f} ± {half:.1f} | {verdict['noise_pct']:.1f}"
    return f"| {name} | {planted['grew'] or ''} | {cause} | {term} | {figures} |"


def _both(true: float, said: dict[str, float] | None) -> str:
    return f"{true:.0f}, {'n/a' if said is None else format(said['mean'], '.0f')}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="some of the sweeps only")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"rounds (default: {REPEATS})")
    parser.add_argument("--seed", type=int, default=0)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--out", type=Path, help="keep the runs here (default: they are removed)")
    where.add_argument("--from", dest="runs", type=Path, metavar="FOLDER", help="judge these runs, and run nothing")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.runs or arguments.out or Path(name) / "runs"
        if arguments.runs is None:
            measure(folder, arguments.repeats, arguments.seed, arguments.quick)
        print(
            f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}, "
            f"torch {torch.__version__}, {datetime.date.today().isoformat()}\n"
        )
        print("\n".join(tables(judged(folder))), flush=True)


if __name__ == "__main__":
    main()
