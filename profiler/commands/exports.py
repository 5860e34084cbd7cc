"""`report --format trace|csv|parquet`: for other programs."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..analyse.attached.attached import is_attached
from ..analyse.run.analysis import analyse
from ..analyse.timeline.timeline import timelines
from ..errors import WhyidleError
from ..record.files import plain
from ..record.run import Run, is_run, open_run
from ..record.schema import STEP
from ..report.export import parquet_file
from ..report.export.cells import cells_table
from ..report.export.csv_file import write_csv
from ..report.export.files import STDOUT, in_place, opened, together
from ..report.export.raw import KINDS_OF_TABLES, about_of, raw_table
from ..report.export.steps import steps_table
from ..report.export.table import Table
from . import options

if TYPE_CHECKING:
    from ..report.export.trace.compose import Trace
    from ..report.export.trace.stretch import Stretch

TRACE = "trace"
CSV = "csv"
PARQUET = "parquet"
FORMATS = (TRACE, CSV, PARQUET)
OPTIONS = {"table": "--table", "from_s": "--from", "to_s": "--to", "steps": "--steps", "most_mb": "--most-mb"}
"""Those of these formats alone: attribute, and as it is written."""

STEPS = "steps"
CELLS = "cells"
TABLES = (STEPS, *KINDS_OF_TABLES, CELLS)
MOST_MB = 50.0
LEAST_MB = 0.1
LATEST_S = 1e9
"""No run is as long (30 years): its ns are whole numbers of 64 bits."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of these formats."""
    group = parser.add_argument_group("--format trace, csv, parquet")
    group.add_argument(
        "--table",
        choices=TABLES,
        metavar="NAME",
        help=f"csv, parquet: one table of {', '.join(TABLES)} (default: {STEPS}, of a comparison {CELLS}); "
        "with -o FOLDER/ all of them",
    )
    group.add_argument("--from", dest="from_s", type=_second, metavar="S", help="trace: from this second of the run")
    group.add_argument("--to", dest="to_s", type=_second, metavar="S", help="trace: to this second of the run")
    group.add_argument("--steps", type=_steps, metavar="A:B", help="trace: of these steps, the last one included")
    group.add_argument(
        "--most-mb",
        type=_size,
        default=MOST_MB,
        metavar="N",
        help=f"trace: at most so large, before compression (default: {MOST_MB:g})",
    )


def write(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    """Write what was asked for; `folder` and `others` as `report` resolved them."""
    if arguments.format == TRACE:
        _refuse(arguments.table, "--table", f"{CSV} and {PARQUET}")
        _write_trace(arguments, folder, others)
        return
    for value, option in ((arguments.from_s, "--from"), (arguments.to_s, "--to"), (arguments.steps, "--steps")):
        _refuse(value, option, TRACE)
    if arguments.format == PARQUET:
        parquet_file.check()
        if arguments.output in (None, STDOUT):
            raise WhyidleError("--format parquet needs a file: -o FILE for one table, -o FOLDER/ for all.")
    if arguments.output is not None and _is_folder(arguments.output):
        _write_all(arguments, folder, others)
    else:
        _write_one(arguments, folder, others)


def _refuse(value: object, option: str, formats: str) -> None:
    if value is not None:
        raise WhyidleError(f"{option} belongs to --format {formats}. Leave it out.")


def _write_trace(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    from ..report.export.trace.compose import about, trace_of, tracks_of
    from ..report.export.trace.write import write_trace

    if arguments.steps is not None and (arguments.from_s, arguments.to_s) != (None, None):
        raise WhyidleError("--steps and --from or --to name a stretch twice. Give one of them.")
    if options.is_comparison_alone(folder, others):
        raise WhyidleError(f"{folder} is a comparison, and a trace is of one run. {_name_one(folder)}")
    if arguments.output in (None, STDOUT) and sys.stdout.isatty():
        raise WhyidleError("a trace is not for reading on a terminal: name a file with -o trace.json.gz")
    runs = [open_run(each) for each in (folder, *others)]
    _has_steps(runs)
    trace = trace_of(analyse(*runs), runs)
    most_bytes = int(arguments.most_mb * 1e6)
    stretch = _stretch(arguments, trace, most_bytes)
    tracks = tracks_of(trace, stretch)
    with opened(arguments.output) as file:
        written = write_trace(tracks, stretch, about(trace, stretch), most_bytes, file)
    _say_stand_in(about_of(trace.analysis.info))
    size = f"{written.bytes / 1e6:.1f} MB" if written.bytes >= 1e6 else f"{written.bytes / 1e3:.0f} kB"
    _say(f"trace of {stretch.why}: {written.events} events, {size}.")
    if written.cut_ns is not None:
        _say(
            f"cut at {written.cut_ns / 1e9:.3f} s, where it would have become larger than asked for: name a shorter "
            "stretch, or a larger --most-mb."
        )


def _stretch(arguments: argparse.Namespace, trace: Trace, most_bytes: int) -> Stretch:
    from ..report.export.trace.stretch import asked_for, of_steps, telling

    shown = [rank.timeline for rank in trace.ranks]
    if arguments.steps is not None:
        return of_steps(shown, trace.axis, *arguments.steps)
    if arguments.from_s is not None or arguments.to_s is not None:
        return asked_for(trace.extent, arguments.from_s, arguments.to_s)
    return telling(shown, trace.axis, trace.extent, most_bytes)


def _write_one(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    table = _table(arguments.table, folder, others)
    if arguments.format == PARQUET:
        rows = in_place(Path(arguments.output), lambda file: parquet_file.write_parquet(table, file))
    else:
        with opened(arguments.output) as file:
            rows = write_csv(table, file)
    _say_stand_in(table.about)
    if rows == 0:
        _say(f"{folder} holds no {table.name}: the table has no rows.")


def _write_all(arguments: argparse.Namespace, folder: Path, others: list[Path]) -> None:
    if arguments.table is not None:
        raise WhyidleError(f"--table {arguments.table} is one table, and {arguments.output} is a folder: name a file.")
    target = Path(arguments.output)
    written: dict[str, int] = {}
    about: Mapping[str, str] = {}
    with together(target) as drafts:
        for table in _tables(folder, others):
            about = table.about or about
            draft = drafts / _file(table.name, arguments.format)
            if rows := _put(table, arguments.format, draft):
                written[table.name] = rows
            else:
                draft.unlink()
        if not written:
            raise WhyidleError(f"{folder} holds no records: there is nothing to write.")
    _say_stand_in(about)
    _say(f"in {target}, with their rows: {', '.join(f'{name} ({rows})' for name, rows in written.items())}.")
    files = (_file(name, arguments.format) for name in TABLES if name not in written)
    if others_there := [file for file in files if (target / file).exists()]:
        _say(f"also in {target}, and not of this export: {', '.join(others_there)}.")


def _file(table: str, format_: str) -> str:
    return f"{table}.{format_}"


def _tables(folder: Path, others: list[Path]) -> Iterator[Table]:
    if options.is_comparison_alone(folder, others):
        yield cells_table(folder)
        return
    runs = [open_run(each) for each in (folder, *others)]
    if any(_counted(run) for run in runs):
        try:
            steps = _steps_of(runs)
        except WhyidleError as error:
            _say(f"{STEPS} is left out: {error}")
        else:
            yield steps
    for name in KINDS_OF_TABLES:
        yield raw_table(name, runs)


def _table(name: str | None, folder: Path, others: list[Path]) -> Table:
    if options.is_comparison_alone(folder, others):
        if name not in (None, CELLS):
            raise WhyidleError(
                f"{folder} is a comparison, whose only table is {CELLS}; {name} is of one run. {_name_one(folder)}"
            )
        return cells_table(folder)
    if name == CELLS:
        raise WhyidleError(f"--table {CELLS} is of a comparison, and {folder} is a run.")
    runs = [open_run(each) for each in (folder, *others)]
    if name not in (None, STEPS):
        assert name is not None
        return raw_table(name, runs)
    _has_steps(runs)
    return _steps_of(runs)


def _steps_of(runs: list[Run]) -> Table:
    analysis = analyse(*runs)
    shown = timelines(analysis, runs)
    if not shown:
        raise WhyidleError(
            f"of {runs[0].folder} no step can be looked at: the device had finished none of them. "
            "`--table step_records` writes them as they were recorded."
        )
    return steps_table(shown, about_of(analysis.info))


def _has_steps(runs: list[Run]) -> None:
    """That a trace or a table of steps can be made.

    Raises:
        WhyidleError: of a run that was watched from outside, or that trained nothing.
    """
    where = runs[0].folder
    way_out = "`--format csv --table host` and `--table device` write what the sampler saw."
    if any(is_attached(run) for run in runs):
        raise WhyidleError(f"{where} was watched from outside, which sees no steps. {way_out}")
    if not any(_counted(run) for run in runs):
        raise WhyidleError(f"{where} holds no step: nothing was trained, or not so that it was seen. {way_out}")


def _counted(run: Run) -> int:
    return sum(file.count() for file in run.files(STEP))


def _name_one(folder: Path) -> str:
    runs = sorted(path.name for path in folder.iterdir() if is_run(path))
    return f"Name a run, such as {plain(str(folder / runs[0]))}." if runs else "It holds no runs."


def _is_folder(output: str) -> bool:
    return output.endswith("/") or Path(output).is_dir()


def _put(table: Table, format_: str, path: Path) -> int:
    """Write a table into a file of its own; returns its rows."""
    if format_ == PARQUET:
        with path.open("wb") as file:
            return parquet_file.write_parquet(table, file)
    with path.open("w", encoding="utf-8", newline="") as text:
        return write_csv(table, text)


def _say_stand_in(about: Mapping[str, str]) -> None:
    if stand_in := about.get("stand_in_data"):
        _say(f"STAND-IN DATA: the data of this run were generated, in place of {stand_in}.")


def _say(sentence: str) -> None:
    """On stderr: stdout may be the file."""
    print(plain(sentence), file=sys.stderr)


def _steps(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"(\d+):(\d+)", text, re.ASCII)
    if found is None or int(found[1]) > int(found[2]):
        raise argparse.ArgumentTypeError(f"{text!r} is no range of steps: give the first and the last, such as 100:120")
    return int(found[1]), int(found[2])


def _second(text: str) -> float:
    try:
        second = float(text)
    except ValueError:
        second = math.nan
    if not abs(second) <= LATEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no second of a run: give a number such as 12.5")
    return second


def _size(text: str) -> float:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not LEAST_MB <= size <= 2000:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: give megabytes from {LEAST_MB:g} to 2000")
    return size
