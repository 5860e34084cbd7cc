"""The cells of a comparison as a table: a row each, with the axes on which they differ in front."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ...analyse.cells.comparison import OF_LOADING, Cell, varying
from ...analyse.cells.studies import of_limit, rooflines
from ...analyse.ranks import figures as ranks_figures
from ...analyse.statistics import Range
from ..document import Bar, Block, Heading, Space, TableBlock, TableColumn, Words, fitting_table, line, toned
from ..words.figures import NOT_MEASURED, share

BAR_WIDTH = 14
AXIS_FOLDS_TO = 4
"""Signs to which a column of an axis may be folded."""
BAR = "a step's time"
HEADS = {"augment": "augm.", "interconnect": "link"}
"""Heads of columns whose axis has a long name."""
BAR_GOES, RANGE_GOES, BUSY_GOES, CAUSE_GOES = 4, 3, 2, 1
"""Order in which columns go where there are many axes, the highest first. The cause stands below the table as well."""

T = TypeVar("T")


def column(heading: str, items: Iterable[T], said: Callable[[T], Words], goes: int = 0, **how: Any) -> TableColumn:
    """Make a column of figures, unless `how` says otherwise."""
    return TableColumn(heading, [said(each) for each in items], goes=goes, **{"right": True, **how})


def head(words: str, emulated: bool) -> str:
    """Write the head of a column of figures, which says of each that no real device gave it."""
    return f"emulated\n{words}" if emulated else words


def value_of(
    of: Range | None,
    form: str = ".1f",
    unit: str = "",
    ranged: bool = False,
    scale: float = 1.0,
    of_range: str | None = None,
) -> str:
    """Write a figure with the range of its repeats, where asked for, in its form or one of their
    own: `1.92 (1.85-1.99)`."""
    if of is None:
        return NOT_MEASURED
    said, bounds = f"{scale * of.value:{form}}{unit}", of_range or form
    return f"{said} ({scale * of.low:{bounds}}-{scale * of.high:{bounds}})" if ranged and of.repeated else said


def table_of(cells: Sequence[Cell], setting: Mapping[str, Any], most: int | None = None) -> TableBlock:
    """Make a row for each cell. Fits 80 columns: with many axes it has no bar, with more no range.

    Args:
        setting: the comparison's.
        most: so many of them, the fastest; `None`: all.
    """
    emulated, limits = setting["device"]["kind"] == "emulated", rooflines(setting)
    if most is not None and len(cells) > most:
        cells = sorted(cells, key=lambda cell: -(cell.samples_per_s.value if cell.samples_per_s else 0.0))
    # What all of them differ in, though some be left out.
    places = [replace(each, cells=each.cells[:most]) for each in place_columns(cells)]
    cells = cells[:most]

    def bar(cell: Cell) -> Words:
        return "" if (shares := shares_of(cell)) is None else line(Bar(shares, BAR_WIDTH))

    def busy(cell: Cell) -> str:
        return "" if (shares := shares_of(cell)) is None else share(shares.get("compute"), 0)

    def limit(cell: Cell) -> str:
        return "" if (reached := of_limit(cell, limits)) is None else share(reached, 0)

    ranged = "emulated samples/s" if emulated else "samples/s (range)"
    narrow = column(head("samples/s", emulated), cells, rate_words)
    counted = cells if "budget" in setting and len({len(cell.facts) for cell in cells}) > 1 else ()
    # Named where the rows come from several machines.
    several = cells if len(set().union(*map(hosts_of, cells))) > 1 else ()
    columns = (
        *places,
        column("machine", several, lambda cell: ", ".join(hosts_of(cell)), CAUSE_GOES, right=False, folds_to=10),
        column(ranged, cells, lambda cell: rate_words(cell, True), RANGE_GOES, right=False, instead=narrow),
        column("of limit", cells if limits else (), limit),
        column("runs", counted, lambda cell: str(len(cell.facts) or "")),
        column("busy", cells, busy, BUSY_GOES),
        column(BAR, cells, bar, BAR_GOES, right=False),
        column("waits for", cells, waits_for, CAUSE_GOES, right=False, folds_to=10),
    )
    return fitting_table(columns, legend_of=BAR)


def new_section(title: str, columns: Iterable[TableColumn] = ()) -> Iterator[Block]:
    """Begin a section after an empty line, with a table where there are columns."""
    yield from (Space(), Heading(title))
    if columns := tuple(columns):
        yield fitting_table(columns, indent=1)


def place_columns(cells: Sequence[Cell], names: Sequence[str] | None = None, whole: bool = False) -> list[TableColumn]:
    """Make columns of the axes on which the cells differ, or the named ones; then loader and batch
    size, unless they are the same beside an axis that is not. `whole`: even then."""

    def value(cell: Cell, name: str) -> str:
        at = cell.axes.get(name)
        if name in OF_LOADING and cell.feed == "synthetic":
            return ""
        if isinstance(at, bool):
            return "on" if at else "off"
        return "" if at is None else str(at).removeprefix("emulated:")

    names = varying(cells) if names is None else names
    found = [
        TableColumn(
            HEADS.get(name, name),
            [value(cell, name) for cell in cells],
            right=all(type(cell.axes.get(name)) is int for cell in cells),
            folds_to=AXIS_FOLDS_TO,
        )
        for name in names
    ]
    if whole or not names or len({cell.loader for cell in cells} - {""}) > 1:
        found.append(TableColumn("loader", [cell.loader for cell in cells], folds_to=10))
    if whole or not names or len({cell.batch_size for cell in cells}) > 1:
        found.append(TableColumn("batch", [str(cell.batch_size) for cell in cells], right=True))
    return found


def hosts_of(cell: Cell) -> list[str]:
    """Name the machines that the runs of a cell were made on."""
    return list(dict.fromkeys(row.host for row in cell.rows if row.host is not None))


def rate_words(cell: Cell, ranged: bool = False) -> str:
    """Write samples/s, or what became of the cell."""
    return value_of(cell.samples_per_s, "5.1f", ranged=ranged, of_range=".0f") if cell.ran else cell.status


def shares_of(cell: Cell) -> Mapping[str, float] | None:
    """Give the parts of the time of the typical run; `None` of a cell without one."""
    return ranks_figures.shares(cell.typical) if cell.status == "ok" and cell.typical is not None else None


def waits_for(cell: Cell) -> Words:
    """Write the cause of the cell's verdict, or why it has none."""
    if cell.status != "ok" or cell.typical is None:
        return ""
    if cell.feed == "loader-only":
        return toned("(no net)", "dim")
    return toned("(no loader)", "dim") if cell.verdict is None else cell.verdict.cause or "too few steps"
