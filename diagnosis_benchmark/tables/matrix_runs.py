"""Runs of planted trainings in a folder, round by round, and where they were made."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Callable
from pathlib import Path

from whyidle.analyse.cells.comparison import Cell
from whyidle.commands import options
from whyidle.devices.choose import choose
from whyidle.errors import WhyidleError
from whyidle.interrupts import end_like_ctrl_c
from whyidle.matrix.matrix import Matrix
from whyidle.terminal.console import console
from whyidle.terminal.progress import MatrixProgress

from ..faults import ahead


def machine() -> str:
    """What the runs are made on."""
    import torch

    cpu, cpus = choose("cpu").describe()["title"], len(os.sched_getaffinity(0))
    return f"{cpu}, {cpus} CPUs, Python {platform.python_version()}, torch {torch.__version__}"


def make(
    matrix: Matrix,
    measure: Callable[[MatrixProgress], bool],
    run_s: float,
    said: Callable[[str, Cell], str] | None = None,
) -> bool:
    """Run all of a matrix, with progress on standard error; returns whether Ctrl-C ended it early.

    Args:
        measure: runs it, given what shows the progress.
        run_s: seconds that most runs take.
        said: what is printed of a run that has ended.
    """
    end_like_ctrl_c()
    target = console(stderr=True)
    target.print(ahead(matrix.runs_ahead, run_s), soft_wrap=True, markup=False)
    return measure(MatrixProgress(target, matrix, plain=True, said=said))


def add_arguments(parser: argparse.ArgumentParser, repeats: int) -> None:
    """What chooses among cases."""
    parser.add_argument("--cases", type=_names, default=(), metavar="A,B", help="names of cases, or causes")
    parser.add_argument("--repeats", type=options.count, help=f"rounds (default: {repeats})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what was found as JSON too")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(filter(None, (each.strip() for each in text.split(","))))
    if not names:
        raise argparse.ArgumentTypeError(f"{text!r} names no case")
    return names


def require_runs(folder: Path) -> None:
    """
    Raises:
        WhyidleError: it is no folder of such runs.
    """
    if not (folder / "comparison.json").is_file():
        raise WhyidleError(f"{folder} holds no such runs. Name the folder that --out named.")
