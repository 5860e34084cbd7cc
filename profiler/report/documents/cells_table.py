"""The cells of a comparison as a table: a row each, with the axes on which they differ in front."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ...analyse.cells.axes import OF_LOADING, feed_of, label, varying
from ...analyse.cells.comparison import Cell
from ...analyse.cells.differential import verdict_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.stall_breakdown import PARTS
from ..render import bars
from ..render.fitted import Column, Fitted

BAR_WIDTH = 14
BAR = "a step's time"
HEADS = {"augment": "augm.", "interconnect": "link", "batch_size": "batch", "pipeline": "loader"}
"""Of columns whose axis has a long name."""
EMULATED = "emulated"
"""Stands in the head of every column whose figures no real device made."""
BAR_GOES, RANGE_GOES, BUSY_GOES, CAUSE_GOES = 4, 3, 2, 1
"""What gives way where there are many axes: the highest first. The cause is told below the table as well."""


def table(cells: Sequence[Cell], ascii_only: bool, emulated: bool, runs: bool = False) -> Fitted:
    """One row a cell. Fits 80 columns: with many axes it has no bar, with more no range.

    Args:
        runs: say of each cell how many of its runs count, where they are not equally many.
    """
    known = [_shares(cell) for cell in cells]
    counts = [len(cell.facts) for cell in cells]
    return Fitted(
        [
            *place_columns(cells),
            Column(
                "emulated samples/s" if emulated else "samples/s (range)",
                [_rate(cell, ranged=True) for cell in cells],
                goes=RANGE_GOES,
                instead=Column(head("samples/s", emulated), [_rate(cell) for cell in cells], right=True),
            ),
            *([Column("runs", [str(n or "") for n in counts], right=True)] if runs and len(set(counts)) > 1 else []),
            Column(
                "busy",
                ["" if shares is None else _busy(shares) for shares in known],
                right=True,
                goes=BUSY_GOES,
            ),
            Column(
                BAR,
                ["" if shares is None else bars.stacked(shares, BAR_WIDTH, ascii_only) for shares in known],
                goes=BAR_GOES,
            ),
            Column("waits for", [_waits_for(cell) for cell in cells], folds_to=10, goes=CAUSE_GOES),
        ]
    )


class Legend:
    """Of the bars in a table, where it shows any."""

    def __init__(self, below: Fitted) -> None:
        self._below = below

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._below.shows(BAR, options.max_width):
            yield bars.legend(dict.fromkeys(PARTS, 1.0), bars.is_ascii(console))


def axes_shown(cells: Sequence[Cell]) -> list[str]:
    """The axes on which cells differ. Where a batch is served from memory nothing is loaded: on the axes of loading
    such cells stand nowhere."""
    loading = varying([cell for cell in cells if feed_of(cell) != "synthetic"])
    return [name for name in varying(cells) if name in loading or name not in OF_LOADING]


def place_columns(cells: Sequence[Cell], names: Sequence[str] | None = None, whole: bool = False) -> list[Column]:
    """The axes on which the cells differ, or the named ones; then loader and batch size, unless they are the same
    beside an axis that is not. `whole`: even then."""
    names = axes_shown(cells) if names is None else names
    shown = [name for name in ("pipeline", "batch_size") if whole or not names or len(_all(cells, name)) > 1]
    found = [
        *(
            Column(
                HEADS.get(name, name),
                [_value(cell.axes.get(name)) if _stands(cell, name) else "" for cell in cells],
                right=_are_numbers(cells, name),
                words=[in_words(cell, [name]) for cell in cells],
            )
            for name in names
        ),
        Column("loader", loaders := [_loader(cell) for cell in cells], folds_to=10, words=loaders),
        Column("batch", sizes := [str(cell.batch_size) for cell in cells], right=True, words=sizes),
    ]
    hidden = [HEADS[name] for name in ("pipeline", "batch_size") if name not in shown]
    return [column for column in found if column.head not in hidden]


def _all(cells: Sequence[Cell], name: str) -> set[Any]:
    """Loaders or batch sizes of these cells; what is fed from memory has no loader."""
    return {getattr(cell, name) for cell in cells if name != "pipeline" or _loader(cell)}


def _loader(cell: Cell) -> str:
    return "" if feed_of(cell) == "synthetic" else cell.pipeline


def _stands(cell: Cell, name: str) -> bool:
    return name not in OF_LOADING or feed_of(cell) != "synthetic"


def in_words(cell: Cell, names: Sequence[str]) -> str:
    """Where a cell stands on some axes."""
    return label(cell, [name for name in names if _stands(cell, name)])


def namer(cells: Sequence[Cell]) -> Callable[[Cell], str]:
    """Names of cells in sentences: what tells them apart from the others, and no more."""
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


def figures(heading: str, cells: Sequence[Any], said: Callable[[Any], str], goes: int = 0) -> Column:
    """A column of figures."""
    return Column(heading, [said(each) for each in cells], right=True, goes=goes)


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


def _busy(shares: Mapping[str, float]) -> str:
    return f"{100 * shares['compute']:.0f} %" if "compute" in shares else "n/a"


def _waits_for(cell: Cell) -> str | Text:
    if cell.status != "ok" or cell.typical is None:
        return ""
    if feed_of(cell) == "loader-only":
        return Text("(no net)", style="dim")
    verdict = verdict_of(cell)
    return Text("(no loader)", style="dim") if verdict is None else verdict.cause or "too few steps"
