"""What every kind of result has in common: tables of what can be made of it, and the message for what cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from ..analyse.cells.cost import Price
from ..errors import WhyidleError
from ..record.run import runs_within
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.export.table import KINDS_OF_TABLES, Table
from ..report.plot import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..report.export.trace import RunTrace

STEPS = "steps"
CELLS = "cells"
TABLES = (STEPS, *KINDS_OF_TABLES, CELLS)
"""Names of all tables that any result has."""


class Result:
    """One kind of result: its words, JSON and page, and what else can be made of it."""

    what: ClassVar[str]
    """The kind, in words."""
    formats: ClassVar[tuple[str, ...]] = ("text", "json", "html", "markdown")
    """Names of the formats of `report` that it has."""
    pictures: ClassVar[tuple[Picture, ...]] = ()
    """Those that can be drawn of it."""
    instead: ClassVar[str] = ""
    """What to do for a picture that it lacks."""
    price: Price | None = None
    """Of an hour of the machine, where what was trained is to be priced."""
    loaded: Any
    """All of it, read and analysed when it is first asked for, which may take seconds."""
    document: Callable[[], Document]
    """Gives the result in words."""
    contract: Callable[[], Content]
    """Gives the result as JSON."""
    page: Callable[[Path | None], str]
    """Gives the result as a page for a folder, from which links lead; `None`: there are no links."""
    figure: Callable[[Picture], Figure]
    """Draws one of its `pictures`. Raises WhyidleError: there is nothing to draw."""
    open: Callable[[Path], Self | None]
    """Gives the result in a folder; `None` where it holds none of this kind. Raises RecordError: it cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def tables(self) -> Mapping[str, Callable[[], Table]]:
        """Give its tables by name, the one that people want first at first, each made when it is
        called (WhyidleError: there is nothing to make it of)."""
        return {}

    def table(self, name: str | None) -> Table:
        """Make one of its tables; `None`: the first."""
        tables = self.tables()
        if not tables or name not in (None, *tables):
            raise self._lacks(f"table {name}", tables) if tables else self._lacks("tables", self.formats)
        return tables[name or next(iter(tables))]()

    def trace(self) -> RunTrace:
        """Give what viewers of traces show.

        Raises:
            WhyidleError: it has no steps to show.
        """
        raise self._lacks("--format trace", self.formats)

    def require_picture(self, picture: Picture) -> None:
        """
        Raises:
            WhyidleError: there is no such picture of it.
        """
        if picture not in self.pictures:
            drawn = f"only {', '.join(each.option for each in self.pictures)}" if self.pictures else "no picture"
            why = f"{self.folder} is {self.what}, of which there is {drawn}{self.instead}"
            raise WhyidleError(f"{picture.option} draws {picture.shows}; {why}. Leave it out.")

    def members(self) -> Iterator[Result] | None:
        """Give the runs that it is made of and that are still there; `None` if it is not a comparison."""
        return None

    def _lacks(self, asked: str, has: Iterable[str]) -> WhyidleError:
        runs = runs_within(self.folder)
        one = f"; or name a run in it, such as {runs[0]}" if runs else ""
        return WhyidleError(f"{self.folder} is {self.what}, which has no {asked}. It has {', '.join(has)}{one}.")
