"""`whyidle compare RUN RUN …`: recorded runs of somebody's own training, by batch size."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..analyse.cells.comparison import compare
from ..analyse.cells.recorded_runs import cells_of_runs, differences
from ..errors import WhyidleError
from ..record.run import open_run
from ..results.comparisons import ComparisonResult
from ..results.opening import what_is
from ..results.recordings import RunResult
from ..terminal.console import console, show_document, write_json
from . import options, plot


def are_runs(what: list[str]) -> bool:
    """Whether these words of the command are meant as recorded runs, and not as a scenario."""
    return len(what) > 1 or what_is(Path(what[0])) is not None


def run(arguments: argparse.Namespace) -> int:
    """Group, judge and print them.

    Raises:
        WhyidleError: they cannot be compared.
    """
    folders = _folders(arguments.what)
    options.require_folder(arguments.json)
    cells = cells_of_runs([open_run(folder) for folder in folders])
    compared = compare(cells)
    if arguments.plot and not compared.batch_verdicts:
        raise WhyidleError("--plot: no loader ran with two batch sizes, so there is nothing to draw. Leave it out.")
    info = cells[0].analyses[0].info
    facts = cells[0].facts[0]
    setting: dict[str, Any] = {
        "scenario": None,
        "device": {"kind": facts.device_kind, "title": facts.device_kind} | (info.get("device") or {}),
        "cpu_budget": facts.sampled.cpu_budget,
        "dataset": {},
        "notices": differences(cells),
    }
    result = ComparisonResult(folders[0], made=(compared, setting))
    if arguments.json != "-":
        show_document(result.document(), console(), arguments.full)
    if arguments.json:
        write_json(result.contract(), arguments.json)
    plot.write_page(arguments, result)
    plot.draw(arguments, result)
    return 0


def _folders(what: list[str]) -> list[Path]:
    """The run folders; whatever else was named is a mistake."""
    folders = [Path(word) for word in what]
    for folder in folders:
        kind = what_is(folder)
        if kind is ComparisonResult:
            raise WhyidleError(f"{folder} is a comparison already: `whyidle report {folder}` shows it.")
        if len(folders) > 1 and kind is not RunResult:
            raise WhyidleError(
                f"{folder} is not a run folder. Name either one scenario, or two and more folders that "
                "`whyidle run` wrote."
            )
    if len(folders) == 1:
        raise WhyidleError(
            f"{folders[0]} is one run; a comparison takes two and more. `whyidle report {folders[0]}` shows one."
        )
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise WhyidleError("the same run is named twice; repeats are runs of their own.")
    return folders
