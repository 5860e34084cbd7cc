"""`report --format markdown|prometheus`: a few lines for people or machines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from whyidle.diagnosis_benchmark import batch_sizes as sweep_planted
from whyidle.diagnosis_benchmark import faults

from ..analyse.attached.attached import attached, is_attached
from ..analyse.attached.causes import findings_of, verdict_of
from ..analyse.cells.comparison import load
from ..analyse.run.analysis import Analysis, analyse
from ..errors import WhyidleError
from ..record.comparison import read_comparison
from ..record.files import write_text
from ..record.run import is_run, open_run
from ..report.documents import attached as attach_text
from ..report.documents import run as text
from ..report.export import prometheus
from ..report.render import markdown
from . import options

MARKDOWN, PROMETHEUS = FORMATS = ("markdown", "prometheus")
OPTIONS: dict[str, str] = {}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """These formats have no options."""


def write(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    """Write what was asked for; `folder` and `others` as `report` resolved them."""
    written = _markdown(folder, others) if arguments.format == MARKDOWN else _prometheus(folder, others)
    if not written:
        raise WhyidleError(
            f"{folder} has no figures to give gauges of: no training step was recorded. `--format json` gives what is "
            "known, `--format csv --table host` what the sampler saw."
        )
    if arguments.output in (None, "-"):
        sys.stdout.write(written)
        return
    try:
        write_text(Path(arguments.output), written)
    except OSError as error:
        raise WhyidleError(f"cannot write {arguments.output}: {error.strerror}. Name another file.") from error


def _markdown(folder: Path, others: list[Path]) -> str:
    if options.is_comparison_alone(folder, others):
        if read_comparison(folder)[0].get("scenario") in (faults.SCENARIO, sweep_planted.SCENARIO):
            raise WhyidleError(f"{folder} tests verdicts on planted causes: take --format text or json.")
        return markdown.of_comparison(*load(folder))
    run = open_run(folder)
    if not others and is_attached(run):
        seen = attached(run)
        findings = findings_of(seen)
        return markdown.markdown(attach_text.document(seen, verdict_of(seen, findings), findings))
    return markdown.markdown(text.document(analyse(run, *map(open_run, others))))


def _prometheus(folder: Path, others: list[Path]) -> str:
    if options.is_comparison_alone(folder, others):
        cells = read_comparison(folder)[1]
        names = [name for cell in cells for name in cell.runs if is_run(folder / name)]
        return prometheus.of_runs([(name, _analysed(folder / name, [])) for name in names])
    return prometheus.of_runs([(folder.resolve().name, _analysed(folder, others))])


def _analysed(folder: Path, others: list[Path]) -> Analysis:
    run = open_run(folder)
    if is_attached(run):
        raise WhyidleError(
            f"{folder} was watched from outside: it has no steps to give gauges of. Take --format json or markdown."
        )
    return analyse(run, *map(open_run, others))
