"""Whether the reason why a larger batch is slower is found: prints the tables of docs/measurements, in Markdown.

Every planted sweep runs, all sizes in each round (five rounds unless told otherwise: some eight minutes). Runs go to a
folder that is kept when `--out` names it; `--from FOLDER` judges such runs anew.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from .. import batch_sizes
from ..batch_sizes import SweepRequest
from . import matrix_runs

HELP = "planted sweeps over the batch size: whether the reason why a larger one is slower is found (8 minutes)"
QUICK = "some of the sweeps only"
EXAMPLE = "--repeats 2 --out runs/batch-sizes"
REPEATS = 5
QUICK_CASES = ("accounting.fast", "pipeline_fill", "handoff_growth", "memory", "padding", "saturated")


def tables(result: dict[str, Any]) -> Iterator[str]:
    """Markdown, a line each."""
    sweeps, verdicts = result["sweeps"], result["batch_verdicts"]
    right = sum(sweep["right"] for sweep in sweeps.values())
    yield (
        f"{result['repeats']} rounds, {result['cpu_budget']:g} CPUs, load "
        f"{result['load']:.1f} before. Cause and term as planted: {right} of {len(sweeps)}."
    )
    yield ""
    yield "| planted | term | named | term | growth of the term, true % | reported % ± | runs of a size differ by % |"
    yield "|---|---|---|---|---|---|---|"
    for name, sweep in sweeps.items():
        yield _row(name, sweep, verdicts.get(name))
    yield ""
    for cell in result["cells"]:
        if cell["status"] != "ok":
            yield f"- {cell['pipeline']}, batch {cell['batch_size']}: {cell['status']}: {cell['error']}"
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    matrix_runs.add_arguments(parser, REPEATS)


def run(arguments: argparse.Namespace) -> int:
    """All sweeps, then their tables; 130 after Ctrl-C, 1 where nothing was judged.

    Raises:
        WhyidleError: there are no such sweeps, or the folder is in use or holds no such runs.
    """
    interrupted = False
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.recorded or arguments.out or Path(name) / "runs"
        if arguments.recorded is None:
            cases = arguments.cases or (QUICK_CASES if arguments.quick else ())
            repeats = arguments.repeats or REPEATS
            matrix = batch_sizes.plan(SweepRequest(cases=cases, repeats=repeats, seed=arguments.seed, out=folder))
            interrupted = matrix_runs.make(matrix, matrix.run, batch_sizes.RUN_SECONDS)
        else:
            matrix_runs.require_runs(folder)
        result = batch_sizes.load(folder).json()
    print(f"{matrix_runs.machine()}, {date.today().isoformat()}\n")
    print("\n".join(tables(result)), flush=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(result, indent=1))
    return 130 if interrupted else int(not result["batch_verdicts"])
