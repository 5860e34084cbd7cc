"""The cells of a comparison as a table: a row each, with the axes on which they differ in front."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ...analyse.cells.comparison import BATCH_SIZE, OF_LOADING, PIPELINE, Cell, label, varying
from ...analyse.cells.studies import Roofline, of_limit
from ...analyse.ranks import figures as ranks_figures
from ...analyse.statistics import Range
from ..document import Bar, TableBlock, TableColumn, Words, fitting_table, line, toned
from ..words.figures import NOT_MEASURED, share

BAR_WIDTH = 14
AXIS_FOLDS_TO = 4
"""Signs to which a column of an axis may be folded."""
BAR = "a step's time"
HEADS = {"augment": "augm.", "interconnect": "link", BATCH_SIZE: "batch", PIPELINE: "loader"}
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
    """Write a figure with the range of its repeats, where asked for, in its form or one of their own: `1.92
    (1.85-1.99)`."""
    if of is None:
        return NOT_MEASURED
    said, bounds = f"{scale * of.value:{form}}{unit}", of_range or form
    return f"{said} ({scale * of.low:{bounds}}-{scale * of.high:{bounds}})" if ranged and of.repeated else said


def table_of(
    cells: Sequence[Cell],
    emulated: bool,
    runs: bool = False,
    legend: bool = False,
    limits: Sequence[Roofline] = (),
) -> TableBlock:
    """Make a row for each cell. Fits 80 columns: with many axes it has no bar, with more no range.

    Args:
        runs: whether to give the number of runs that count, where cells differ in it.
        legend: of the bars, below the table.
        limits: how fast the machine can prepare their samples.
    """

    def bar(cell: Cell) -> Words:
        return "" if (shares := shares_of(cell)) is None else line(Bar(shares, BAR_WIDTH))

    def limit(cell: Cell) -> str:
        return "" if (reached := of_limit(cell, limits)) is None else share(reached, 0)

    ranged = "emulated samples/s" if emulated else "samples/s (range)"
    narrow = column(head("samples/s", emulated), cells, rate_words)
    counted = cells if runs and len({len(cell.facts) for cell in cells}) > 1 else ()
    # Named where the rows come from several machines.
    several = cells if len(set().union(*map(hosts_of, cells))) > 1 else ()
    columns = (
        *place_columns(cells),
        column("machine", several, lambda cell: ", ".join(hosts_of(cell)), CAUSE_GOES, right=False, folds_to=10),
        column(ranged, cells, lambda cell: rate_words(cell, True), RANGE_GOES, right=False, instead=narrow),
        column("of limit", cells if limits else (), limit),
        column("runs", counted, lambda cell: str(len(cell.facts) or "")),
        column("busy", cells, busy_words, BUSY_GOES),
        column(BAR, cells, bar, BAR_GOES, right=False),
        column("waits for", cells, waits_for, CAUSE_GOES, right=False, folds_to=10),
    )
    return fitting_table(columns, legend_of=BAR if legend else None)


def by_batch_size(cells: Sequence[Cell], most: int) -> TableBlock:
    """Make a row a loader, the `most` fastest, and a column a batch size: samples/s (range) and how busy the device
    is."""
    names, rows = axes_shown(cells), dict[str, dict[int, Cell]]()
    for cell in cells:
        rows.setdefault(f"{in_words(cell, names)} {loader_of(cell)}", {})[cell.batch_size] = cell

    def fastest(row: Mapping[int, Cell]) -> float:
        return max(cell.samples_per_s.value if cell.ran and cell.samples_per_s else 0.0 for cell in row.values())

    shown = sorted(rows.values(), key=fastest, reverse=True)[:most]
    sizes = sorted({cell.batch_size for cell in cells})

    def figure(cell: Cell | None) -> str:
        busy = "" if cell is None or shares_of(cell) is None else f" {busy_words(cell):>5}"
        return "" if cell is None else f"{rate_words(cell, ranged=len(sizes) < 3)}{busy}"

    places = place_columns([next(iter(row.values())) for row in shown], names)
    columns = (
        *(each for each in places if each.head != HEADS[BATCH_SIZE]),
        *(TableColumn(f"batch {n}", [figure(row.get(n)) for row in shown], goes=at) for at, n in enumerate(sizes)),
        TableColumn("waits for", [waits_for(row[max(row)]) for row in shown], folds_to=10),
    )
    return fitting_table(columns, indent=1)


def axes_shown(cells: Sequence[Cell]) -> list[str]:
    """Name the axes on which cells differ. Cells with a cached batch load nothing, so the axes of loading do not count
    for them."""
    loading = varying([cell for cell in cells if cell.feed != "synthetic"])
    return [name for name in varying(cells) if name in loading or name not in OF_LOADING]


def place_columns(cells: Sequence[Cell], names: Sequence[str] | None = None, whole: bool = False) -> list[TableColumn]:
    """Make columns of the axes on which the cells differ, or the named ones; then loader and batch size, unless they
    are the same beside an axis that is not. `whole`: even then."""

    def value(cell: Cell, name: str) -> str:
        at = cell.axes.get(name)
        if name in OF_LOADING and cell.feed == "synthetic":
            return ""
        if isinstance(at, bool):
            return "on" if at else "off"
        return "" if at is None else str(at).removeprefix("emulated:")

    names = axes_shown(cells) if names is None else names
    found = [
        TableColumn(
            HEADS.get(name, name),
            [value(cell, name) for cell in cells],
            right=all(type(cell.axes.get(name)) is int for cell in cells),
            folds_to=AXIS_FOLDS_TO,
        )
        for name in names
    ]
    several = _several(cells)
    if whole or not names or PIPELINE in several:
        found.append(TableColumn("loader", [loader_of(cell) for cell in cells], folds_to=10))
    if whole or not names or BATCH_SIZE in several:
        found.append(TableColumn("batch", [str(cell.batch_size) for cell in cells], right=True))
    return found


def _several(cells: Sequence[Cell]) -> list[str]:
    """Name loader and batch size where cells differ in them; a cell with a cached batch has no loader."""
    differing = (len({c.pipeline for c in cells if loader_of(c)}) > 1, len({c.batch_size for c in cells}) > 1)
    return [name for name, differ in zip((PIPELINE, BATCH_SIZE), differing, strict=True) if differ]


def hosts_of(cell: Cell) -> list[str]:
    """Name the machines that the runs of a cell were made on."""
    return list(dict.fromkeys(row.host for row in cell.rows if row.host is not None))


def loader_of(cell: Cell) -> str:
    """Name the loader; empty for a cell with a cached batch."""
    return "" if cell.feed == "synthetic" else cell.pipeline


def in_words(cell: Cell, names: Iterable[str]) -> str:
    """Write the place of a cell on some axes."""
    return label(cell, [name for name in names if name not in OF_LOADING or cell.feed != "synthetic"])


def namer(cells: Sequence[Cell]) -> Callable[[Cell], str]:
    """Name cells in sentences by what tells them apart from the others, and no more."""
    names, several = axes_shown(cells), _several(cells)

    def name(cell: Cell) -> str:
        words = [in_words(cell, names)]
        words += [loader_of(cell)] if PIPELINE in several or not names else []
        words += [str(cell.batch_size)] if BATCH_SIZE in several or not names else []
        return " ".join(word for word in words if word)

    return name


def rate_words(cell: Cell, ranged: bool = False) -> str:
    """Write samples/s, or what became of the cell."""
    return value_of(cell.samples_per_s, "5.1f", ranged=ranged, of_range=".0f") if cell.ran else cell.status


def shares_of(cell: Cell) -> Mapping[str, float] | None:
    """Give the parts of the time of the typical run; `None` of a cell without one."""
    return ranks_figures.shares(cell.typical) if cell.status == "ok" and cell.typical is not None else None


def busy_words(cell: Cell) -> str:
    return "" if (shares := shares_of(cell)) is None else share(shares.get("compute"), 0)


def waits_for(cell: Cell) -> Words:
    """Write the cause of the cell's verdict, or why it has none."""
    if cell.status != "ok" or cell.typical is None:
        return ""
    if cell.feed == "loader-only":
        return toned("(no net)", "dim")
    return toned("(no loader)", "dim") if cell.verdict is None else cell.verdict.cause or "too few steps"
