"""What every kind of result has in common: the forms it can take, and the message for a form that it cannot."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from ..analyse.cells.cost import Price
from ..errors import WhyidleError
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.export.raw import KINDS_OF_TABLES
from ..report.export.table import Table

if TYPE_CHECKING:
    from ..report.export.trace.compose import RunTrace

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


class Result(ABC):
    """One kind of result. A form that a kind does not have is refused by `without`, which each kind words itself."""

    what: ClassVar[str]
    """The kind, in words."""
    pictures: ClassVar[tuple[Picture, ...]] = ()
    """Those it can be drawn as."""
    price: Price | None = None
    """Of an hour of the machine, where what was trained is to be priced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    @abstractmethod
    def open(cls, folder: Path) -> Self | None:
        """The result in this folder; `None` where it holds none of this kind.

        Raises:
            RecordError: there is one, and it cannot be read.
        """

    @abstractmethod
    def document(self) -> Document:
        """Give the result as a document."""

    @abstractmethod
    def contract(self) -> Content:
        """Give the result as JSON."""

    @abstractmethod
    def page(self, place: Path | None) -> str:
        """Give the result as a page. `place`: the page's folder, from which links lead; `None`: there are no links."""

    def speedscope(self) -> str:
        """Give all stack samples with their times.

        Raises:
            WhyidleError: there are none.
        """
        raise self.without("speedscope")

    def trace(self) -> RunTrace:
        """Give what viewers of traces show."""
        raise self.without("trace")

    def table(self, name: str | None) -> Table:
        """Give one of its tables; `None`: the one that people want first."""
        raise self.without("csv or parquet")

    def tables(self) -> Mapping[str, Callable[[], Table]]:
        """Give all of its tables by name, each made when it is called.

        Raises (so do those of the tables):
            WhyidleError: there is nothing to make it of.
        """
        raise self.without("csv or parquet")

    def draw(self, picture: Picture, file: Path) -> None:
        """Draw one of its `pictures`.

        Raises:
            WhyidleError: there is nothing to draw, or it cannot be written.
        """
        raise picture.refused(self.undrawn(picture))

    def members(self) -> Iterator[Result] | None:
        """Give the runs that it is made of and that are still there; `None` if it is not a comparison."""
        return None

    def without(self, form: str) -> WhyidleError:
        """Make the error that it has no such form, with what to ask for instead."""
        return WhyidleError(f"{self.folder} is {self.what}; --format {form} does not apply to it.")

    def undrawn(self, picture: Picture) -> str:
        """Tell why there is no such picture of it."""
        return f"{self.folder} is {self.what}"
