"""The cells of a comparison as a table: a row each, with the axes on which they differ in front."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...analyse.cells.axes import OF_LOADING, feed_of, label, varying
from ...analyse.cells.comparison import Cell
from ...analyse.cells.differential import verdict_of
from ...analyse.cells.roofline import PlacedRoofline
from ...analyse.ranks import figures as ranks_figures
from ..document import FittingColumn, FittingTable
from ..phrase import Bar, Words, line, toned
from ..words.figures import share
from .roofline import of_limit

BAR_WIDTH = 14
AXIS_FOLDS_TO = 4
"""Signs to which a column of an axis may be folded."""
BAR = "a step's time"
HEADS = {"augment": "augm.", "interconnect": "link", "batch_size": "batch", "pipeline": "loader"}
"""Of columns whose axis has a long name."""
EMULATED = "emulated"
"""Word in the head of every column whose figures no real device gave."""
BAR_GOES, RANGE_GOES, BUSY_GOES, CAUSE_GOES = 4, 3, 2, 1
"""Order in which columns go where there are many axes, the highest first. The cause stands below the table as well."""


def table_of(
    cells: Sequence[Cell],
    emulated: bool,
    runs: bool = False,
    legend: bool = False,
    limits: Sequence[PlacedRoofline] = (),
) -> FittingTable:
    """Make a row for each cell. Fits 80 columns: with many axes it has no bar, with more no range.

    Args:
        runs: whether to give the number of runs that count, where cells differ in it.
        legend: of the bars, below the table.
        limits: how fast the machine can prepare their samples.
    """
    known = [_shares(cell) for cell in cells]
    counts = [len(cell.facts) for cell in cells]
    return FittingTable(
        (
            *place_columns(cells),
            FittingColumn(
                "emulated samples/s" if emulated else "samples/s (range)",
                [_rate(cell, ranged=True) for cell in cells],
                goes=RANGE_GOES,
                instead=FittingColumn(head("samples/s", emulated), [_rate(cell) for cell in cells], right=True),
            ),
            FittingColumn("of limit", [of_limit(cell, limits) for cell in cells] if limits else (), right=True),
            FittingColumn("runs", [str(n or "") for n in counts] if runs and len(set(counts)) > 1 else (), right=True),
            FittingColumn(
                "busy",
                ["" if shares is None else share(shares.get("compute"), 0) for shares in known],
                right=True,
                goes=BUSY_GOES,
            ),
            FittingColumn(
                BAR,
                ["" if shares is None else line(Bar(shares, BAR_WIDTH)) for shares in known],
                goes=BAR_GOES,
            ),
            FittingColumn("waits for", [_waits_for(cell) for cell in cells], folds_to=10, goes=CAUSE_GOES),
        ),
        legend_of=BAR if legend else None,
    )


def by_batch_size(cells: Sequence[Cell], most: int) -> FittingTable:
    """A row a loader, the `most` fastest, and a column a batch size: samples/s (range) and how busy the device is."""
    names, rows = axes_shown(cells), dict[str, dict[int, Cell]]()
    for cell in cells:
        rows.setdefault(f"{in_words(cell, names)} {_loader(cell)}", {})[cell.batch_size] = cell
    shown = sorted(rows.values(), key=lambda row: -max(_value_of(cell) for cell in row.values()))[:most]
    sizes = sorted({cell.batch_size for cell in cells})
    places = place_columns([next(iter(row.values())) for row in shown], names)

    def figure(cell: Cell | None) -> str:
        shares = None if cell is None else _shares(cell)
        busy = "" if shares is None else f" {share(shares.get('compute'), 0):>5}"
        return "" if cell is None else f"{_rate(cell, ranged=len(sizes) < 3)}{busy}"

    return FittingTable(
        (
            *(column for column in places if column.head != HEADS["batch_size"]),
            *(
                FittingColumn(f"batch {size}", [figure(row.get(size)) for row in shown], goes=place)
                for place, size in enumerate(sizes)
            ),
            FittingColumn("waits for", [_waits_for(row[max(row)]) for row in shown], folds_to=10),
        ),
        indent=1,
    )


def _value_of(cell: Cell) -> float:
    return cell.samples_per_s.value if cell.status == "ok" and cell.samples_per_s is not None else 0.0


def axes_shown(cells: Sequence[Cell]) -> list[str]:
    """Name the axes on which cells differ. Cells with a cached batch load nothing, so the axes of loading do not count
    for them."""
    loading = varying([cell for cell in cells if feed_of(cell) != "synthetic"])
    return [name for name in varying(cells) if name in loading or name not in OF_LOADING]


def place_columns(
    cells: Sequence[Cell], names: Sequence[str] | None = None, whole: bool = False
) -> list[FittingColumn]:
    """The axes on which the cells differ, or the named ones; then loader and batch size, unless they are the same
    beside an axis that is not. `whole`: even then."""
    names = axes_shown(cells) if names is None else names
    shown = [name for name in ("pipeline", "batch_size") if whole or not names or len(_all(cells, name)) > 1]
    found = [
        *(
            FittingColumn(
                HEADS.get(name, name),
                [_value(cell.axes.get(name)) if _stands(cell, name) else "" for cell in cells],
                right=_are_numbers(cells, name),
                folds_to=AXIS_FOLDS_TO,
            )
            for name in names
        ),
        FittingColumn("loader", [_loader(cell) for cell in cells], folds_to=10),
        FittingColumn("batch", [str(cell.batch_size) for cell in cells], right=True),
    ]
    hidden = [HEADS[name] for name in ("pipeline", "batch_size") if name not in shown]
    return [column for column in found if column.head not in hidden]


def _all(cells: Sequence[Cell], name: str) -> set[Any]:
    """Collect loaders or batch sizes of these cells; a cell with a cached batch has no loader."""
    return {getattr(cell, name) for cell in cells if name != "pipeline" or _loader(cell)}


def _loader(cell: Cell) -> str:
    return "" if feed_of(cell) == "synthetic" else cell.pipeline


def _stands(cell: Cell, name: str) -> bool:
    return name not in OF_LOADING or feed_of(cell) != "synthetic"


def in_words(cell: Cell, names: Sequence[str]) -> str:
    """Write the place of a cell on some axes."""
    return label(cell, [name for name in names if _stands(cell, name)])


def namer(cells: Sequence[Cell]) -> Callable[[Cell], str]:
    """Name cells in sentences by what tells them apart from the others, and no more."""
    names = axes_shown(cells)
    several = [name for name in ("pipeline", "batch_size") if len(_all(cells, name)) > 1]

    def name(cell: Cell) -> str:
        words = [in_words(cell, names)]
        if "pipeline" in several or not names:
            words.append(_loader(cell))
        if "batch_size" in several or not names:
            words.append(str(cell.batch_size))
        return " ".join(word for word in words if word)

    return name


def head(words: str, emulated: bool) -> str:
    """Of a column of figures."""
    return f"{EMULATED}\n{words}" if emulated else words


def figures(heading: str, cells: Sequence[Any], said: Callable[[Any], str], goes: int = 0) -> FittingColumn:
    """A column of figures."""
    return FittingColumn(heading, [said(each) for each in cells], right=True, goes=goes)


def _value(at: Any) -> str:
    if isinstance(at, bool):
        return "on" if at else "off"
    return "" if at is None else str(at).removeprefix("emulated:")


def _are_numbers(cells: Sequence[Cell], name: str) -> bool:
    return all(isinstance(cell.axes.get(name), int) and not isinstance(cell.axes[name], bool) for cell in cells)


def _rate(cell: Cell, ranged: bool = False) -> str:
    rate = cell.samples_per_s
    if cell.status != "ok" or rate is None:
        return cell.status
    return f"{rate.value:5.1f}" + (f" ({rate.low:.0f}-{rate.high:.0f})" if ranged and len(cell.facts) > 1 else "")


def _shares(cell: Cell) -> Mapping[str, float] | None:
    """Of the typical run; `None` of a cell without one."""
    return ranks_figures.shares(cell.typical) if cell.status == "ok" and cell.typical is not None else None


def _waits_for(cell: Cell) -> Words:
    if cell.status != "ok" or cell.typical is None:
        return ""
    if feed_of(cell) == "loader-only":
        return toned("(no net)", "dim")
    verdict = verdict_of(cell)
    return toned("(no loader)", "dim") if verdict is None else verdict.cause or "too few steps"
