"""What every kind of result has in common: tables of what can be made of it, and the message for what cannot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from ..analyse.cells.cost import Price
from ..errors import WhyidleError
from ..record.run import runs_within
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.export.table import KINDS_OF_TABLES, Table

STEPS = "steps"
CELLS = "cells"
TABLES = (STEPS, *KINDS_OF_TABLES, CELLS)
"""Names of all tables that any result has."""


@dataclass(frozen=True)
class Picture:
    """A picture that some results can be drawn as."""

    name: str
    shows: str

    @property
    def option(self) -> str:
        """The option of commands that asks for it."""
        return f"--{self.name.replace('_', '-')}"

    def refused(self, why: str) -> WhyidleError:
        """Make the error that there is nothing to draw it from."""
        return WhyidleError(f"{self.option} draws {self.shows}; {why}. Leave it out.")


SIZES = Picture("plot", "time per sample by batch size")
TRACES = Picture("trace_plot", "the device's utilisation over time")
RANKS = Picture("scaling_plot", "speed-up by number of ranks")
CONFUSION = Picture("confusion_plot", "which class was taken for which on held-out data")
ROOFLINE = Picture("roofline_plot", "how near loaders come to the machine's limits")
PICTURES = (SIZES, TRACES, RANKS, CONFUSION, ROOFLINE)


class Result:
    """One kind of result: its words, JSON and page, and by tables what else can be made of it. What a kind lacks is
    absent from its tables."""

    what: ClassVar[str]
    """The kind, in words."""
    exports: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    """Format of files for other programs → what makes its content: text, or the `RunTrace` of a trace."""
    pictures: ClassVar[Mapping[Picture, Callable[[Any, Path], None]]] = {}
    """Picture → what draws it into a file."""
    instead: ClassVar[str] = ""
    """What to do for a picture that it lacks."""
    price: Price | None = None
    """Of an hour of the machine, where what was trained is to be priced."""
    document: Callable[[], Document]
    """Gives the result in words."""
    contract: Callable[[], Content]
    """Gives the result as JSON."""
    page: Callable[[Path | None], str]
    """Gives the result as a page for a folder, from which links lead; `None`: there are no links."""
    open: Callable[[Path], Self | None]
    """Gives the result in a folder; `None` where it holds none of this kind. Raises RecordError: it cannot be read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self) -> None:
        """Read and analyse all of it, which may take seconds; what is made of it then takes no time."""

    def tables(self) -> Mapping[str, Callable[[], Table]]:
        """Give its tables by name, the one that people want first at first, each made when it is called (WhyidleError:
        there is nothing to make it of)."""
        return {}

    def table(self, name: str | None) -> Table:
        """Make one of its tables; `None`: the first."""
        tables = self.tables()
        if not tables or name not in (None, *tables):
            raise self._lacks(f"table {name}", tables) if tables else self._lacks("tables", self._formats())
        return tables[name or next(iter(tables))]()

    def export(self, form: str) -> Any:
        """Make the content of a file for other programs."""
        if form not in self.exports:
            raise self._lacks(f"--format {form}", self._formats())
        return self.exports[form](self)

    def draw(self, picture: Picture, file: Path) -> None:
        """Draw one of its `pictures`.

        Raises:
            WhyidleError: there is nothing to draw, or it cannot be written.
        """
        self.pictures[picture](self, file)

    def undrawn(self, picture: Picture) -> str:
        """Tell why there is no such picture of it."""
        drawn = f"only {', '.join(each.option for each in self.pictures)}" if self.pictures else "no picture"
        return f"{self.folder} is {self.what}, of which there is {drawn}{self.instead}"

    def members(self) -> Iterator[Result] | None:
        """Give the runs that it is made of and that are still there; `None` if it is not a comparison."""
        return None

    def _formats(self) -> Iterable[str]:
        return ("text", "json", "html", "markdown", *(("csv", "parquet") if self.tables() else ()), *self.exports)

    def _lacks(self, asked: str, has: Iterable[str]) -> WhyidleError:
        runs = runs_within(self.folder)
        one = f"; or name a run in it, such as {runs[0]}" if runs else ""
        return WhyidleError(f"{self.folder} is {self.what}, which has no {asked}. It has {', '.join(has)}{one}.")
