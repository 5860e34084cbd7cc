"""`whyidle report RUN`: what lies in a folder, in words, as a page, or for other programs; some formats have options of
their own."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import WhyidleError
from ..record.files import plain
from ..record.reader import reuse_memory
from ..record.run import PAGE, PAGES
from ..report.export.files import STDOUT, in_new_folder, layered, opened
from ..report.export.table import Table, about_of, require_pyarrow, write_csv, write_parquet
from ..report.render import markdown
from ..results.opening import open_result
from ..results.result import CELLS, STEPS, TABLES, Result
from ..terminal.console import console, doing, show_in, write_file, write_json
from . import cost_options, plot
from .options import add_full, newest, number

MOST_MB = 50.0
MEGABYTES = number("is no size: give megabytes from 0.1 to 2000", 0.1, 2000)
SECOND = number("is no second of a run: give a number such as 12.5", -1e9, 1e9)
"""No run is longer (30 years): its ns are whole numbers of 64 bits."""


@dataclass(frozen=True)
class Format:
    """How a result is laid out."""

    write: Callable[[argparse.Namespace, Result], None]
    """Makes it and puts it where the arguments say."""
    options: tuple[str, ...] = ()
    """Options that mean something here alone."""
    says_where: bool = False
    """Whether it says itself where it wrote."""
    check: Callable[[argparse.Namespace], None] | None = None
    """Raises WhyidleError where it cannot be written, whatever the result is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run_folders",
        metavar="RUN",
        type=Path,
        nargs="*",
        help="folder of a run, a comparison or a tuning; of a job on several hosts each host's run folder, or the one "
        "around them",
    )
    parser.add_argument("--format", choices=tuple(FORMATS), default="text", help="default: text")
    add_full(parser)
    parser.add_argument("--json", action="store_true", help="short for --format json")
    parser.add_argument("-o", "--output", metavar="FILE", help="write to a file instead of the terminal")
    parser.add_argument(
        "--with-runs", action="store_true", help="with html, of a comparison: each run's page too, linked from its cell"
    )
    group = parser.add_argument_group("--format trace, csv, parquet")
    group.add_argument(
        "--table",
        choices=TABLES,
        metavar="NAME",
        help=f"csv, parquet: one table of {', '.join(TABLES)} (default: {STEPS}, of a comparison {CELLS}); "
        "with -o FOLDER/ all of them",
    )
    group.add_argument("--from", dest="from_s", type=SECOND, metavar="S", help="trace: from this second of the run")
    group.add_argument("--to", dest="to_s", type=SECOND, metavar="S", help="trace: to this second of the run")
    group.add_argument("--steps", type=_steps, metavar="A:B", help="trace: of these steps, the last one included")
    group.add_argument(
        "--most-mb",
        type=MEGABYTES,
        default=MOST_MB,
        metavar="N",
        help=f"trace: at most so large, before compression (default: {MOST_MB:g})",
    )
    plot.add_arguments(parser)
    cost_options.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    reuse_memory()
    form = _chosen(arguments)
    plot.check(arguments)
    price = cost_options.price_of(arguments)
    result = open_result(arguments.run_folders or [newest()], price)
    for picture in plot.asked(arguments):
        result.require_picture(picture)
    if arguments.table is None:
        with doing():
            _ = result.loaded
    form.write(arguments, result)
    plot.draw(arguments, result)
    if arguments.output not in (None, STDOUT) and not form.says_where and not Path(arguments.output).is_dir():
        # A command that says nothing may have done nothing.
        _say(f"written: {arguments.output}")
    return 0


def _chosen(arguments: argparse.Namespace) -> Format:
    """The format that the command names.

    Raises:
        WhyidleError: it names two, or an option of another; nothing that is asked for may be left out silently.
    """
    name, default = arguments.format, arguments.parser.get_default
    if arguments.json:
        if name not in ("json", default("format")):
            raise WhyidleError(
                f"--json is short for --format json, and --format {name} asks for another. Give one of them."
            )
        name = "json"
    form = FORMATS[name]
    for action in arguments.parser._actions:
        of = [each for each, other in FORMATS.items() if action.dest in other.options]
        if of and name not in of and getattr(arguments, action.dest) != default(action.dest):
            raise WhyidleError(f"{action.option_strings[0]} belongs to --format {' and '.join(of)}. Leave it out.")
    if form.check is not None:
        form.check(arguments)
    return form


def _write_page(arguments: argparse.Namespace, result: Result) -> None:
    if arguments.with_runs:
        runs = result.members()
        if runs is None:
            raise WhyidleError(f"--with-runs is of comparisons, and {result.folder} is none. Leave it out.")
        for run in runs:
            write_file(run.page(run.folder), run.folder / PAGE, " with -o", PAGES, named=False)
    if arguments.output == STDOUT:
        sys.stdout.write(result.page(None))
        return
    target = result.folder / PAGE if arguments.output is None else Path(arguments.output)
    named = arguments.output is not None
    write_file(result.page(target.absolute().parent), target, " with -o", PAGES, named)
    console().print(str(target), soft_wrap=True, markup=False, highlight=False)


def _write_markdown(arguments: argparse.Namespace, result: Result) -> None:
    text = markdown(result.document())
    with opened(arguments.output) as file:
        file.write(text)


def _check_trace(arguments: argparse.Namespace) -> None:
    if arguments.steps is not None and (arguments.from_s, arguments.to_s) != (None, None):
        raise WhyidleError("--steps and --from or --to name a stretch twice. Give one of them.")
    if arguments.output in (None, STDOUT) and sys.stdout.isatty():
        raise WhyidleError("a trace is not for reading on a terminal: name a file with -o trace.json.gz")


def _write_trace(arguments: argparse.Namespace, result: Result) -> None:
    from ..report.export.trace import about, stretch_of, tracks_of, write_trace

    trace = result.trace()
    most_bytes = int(arguments.most_mb * 1e6)
    stretch = stretch_of(trace, arguments.steps, arguments.from_s, arguments.to_s, most_bytes)
    tracks = tracks_of(trace, stretch)
    with opened(arguments.output) as file:
        written = write_trace(tracks, about(trace, stretch), most_bytes, file)
    _say_stand_in(about_of(trace.analysis.info))
    size = f"{written.bytes / 1e6:.1f} MB" if written.bytes >= 1e6 else f"{written.bytes / 1e3:.0f} kB"
    _say(f"trace of {stretch.why}: {written.events} events, {size}.")
    if written.cut_ns is not None:
        _say(
            f"cut at {written.cut_ns / 1e9:.3f} s, where it would have become larger than asked for: name a shorter "
            "stretch, or a larger --most-mb."
        )


def _check_parquet(arguments: argparse.Namespace) -> None:
    require_pyarrow()
    if arguments.output in (None, STDOUT):
        raise WhyidleError("--format parquet needs a file: -o FILE for one table, -o FOLDER/ for all.")


def _write_tables(name: str, arguments: argparse.Namespace, result: Result) -> None:
    write, binary = TABLE_FILES[name]
    if arguments.output is not None and (arguments.output.endswith("/") or Path(arguments.output).is_dir()):
        _write_all(name, arguments, result)
        return
    table = result.table(arguments.table)
    with opened(arguments.output, binary) as file:
        rows = write(table, file)
    _say_stand_in(table.about)
    if rows == 0:
        _say(f"{result.folder} holds no {table.name}: the table has no rows.")


def _write_all(name: str, arguments: argparse.Namespace, result: Result) -> None:
    if arguments.table is not None:
        raise WhyidleError(f"--table {arguments.table} is one table, and {arguments.output} is a folder: name a file.")
    target, (write, binary) = Path(arguments.output), TABLE_FILES[name]
    written: dict[str, int] = {}
    about: Mapping[str, str] = {}
    with in_new_folder(target) as drafts:
        for each, make in result.tables().items():
            try:
                table = make()
            except WhyidleError as error:
                _say(f"{each} is left out: {error}")
                continue
            about = table.about or about
            draft = drafts / f"{each}.{name}"
            with draft.open("wb") as raw, layered(raw, binary) as file:
                rows = write(table, file)
            if rows:
                written[each] = rows
            else:
                draft.unlink()
        if not written:
            raise WhyidleError(f"{result.folder} holds no records: there is nothing to write.")
    _say_stand_in(about)
    _say(f"in {target}, with their rows: {', '.join(f'{each} ({rows})' for each, rows in written.items())}.")


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


TABLE_FILES: dict[str, tuple[Callable[[Table, Any], int], bool]] = {
    "csv": (write_csv, False),
    "parquet": (write_parquet, True),
}
"""By the name of the format, which is the ending of its file: what writes all rows of a table and returns how many, and
whether it writes bytes."""

FORMATS = {
    "text": Format(lambda given, of: show_in(given.output, of.document(), given.full), ("full",)),
    "json": Format(lambda given, of: write_json(of.contract(), given.output or STDOUT)),
    "html": Format(_write_page, ("with_runs",), says_where=True),
    "trace": Format(_write_trace, ("from_s", "to_s", "steps", "most_mb"), check=_check_trace),
    "csv": Format(partial(_write_tables, "csv"), ("table",)),
    "parquet": Format(partial(_write_tables, "parquet"), ("table",), check=_check_parquet),
    "markdown": Format(_write_markdown),
}
"""All formats of `report`, by name."""
