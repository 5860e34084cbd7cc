"""Comparisons: trainings in cells, their rounds in one folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from ..analyse.cells.comparison import Cell, Comparison, load
from ..analyse.cells.cost import COST_SCENARIO, SETTING, Price, place_of, setting_of
from ..errors import WhyidleError
from ..record.comparison import is_comparison, read_comparison
from ..record.run import PAGE, is_run
from ..report.contract import comparison as compare_json
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.documents.comparison import comparison_document, comparison_title
from ..report.export.table import Table, cells_table
from ..report.plot import PICTURES, Picture
from .recordings import RecordedResult, recording_in
from .result import CELLS, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ComparisonResult(Result):
    """A table of loaders, batch sizes and whatever else differed."""

    what = "a comparison"
    formats = (*Result.formats, "csv", "parquet")
    pictures = PICTURES

    def __init__(self, folder: Path, made: tuple[Comparison, dict[str, Any]] | None = None) -> None:
        """`made`: the comparison and its setting, where they need not be read from the folder."""
        super().__init__(folder)
        self._made = made

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        return cls(folder) if is_comparison(folder) else None

    @cached_property
    def loaded(self) -> tuple[Comparison, dict[str, Any]]:
        result, setting = load(self.folder) if self._made is None else self._made
        if self.price is not None:
            put_price(self.price, result.cells, setting)
        return result, setting

    def document(self) -> Document:
        return comparison_document(*self.loaded)

    def contract(self) -> Content:
        return compare_json.comparison(*self.loaded)

    def page(self, place: Path | None) -> str:
        from ..report.page import compare_page

        rows = [] if place is None else [row for cell in self.loaded[0].cells for row in cell.rows]
        pages = {row.run: Path(row.run) / PAGE for row in rows}
        addresses = {run: quote(os.path.relpath(page, place)) for run, page in pages.items() if page.is_file()}
        return compare_page.page(*self.loaded, addresses)

    def figure(self, picture: Picture) -> Figure:
        return picture.draw(*self.loaded, comparison_title(*self.loaded))

    def members(self) -> Iterator[RecordedResult]:
        for folder in (self.folder / name for cell in read_comparison(self.folder)[1] for name in cell.runs):
            if is_run(folder):
                found = recording_in(folder)
                found.price = self.price
                yield found

    def tables(self) -> Mapping[str, Callable[[], Table]]:
        return {CELLS: lambda: cells_table(*self.loaded)}


def put_price(price: Price, cells: Collection[Cell], setting: dict[str, Any]) -> None:
    """Price a finished comparison anew.

    Raises:
        WhyidleError: its trainings ran on several devices.
    """
    before = setting.get(SETTING) or {}
    require_one_machine(price, (str(cell.axes.get("device")) for cell in cells))
    setting[SETTING] = setting_of(
        lambda *_: price, map(place_of, cells), before.get("target_accuracy"), before.get("relative_to"), True
    )


def require_one_machine(price: Price, devices: Iterable[str]) -> None:
    """
    Raises:
        WhyidleError: one price for trainings on several devices.
    """
    several = list(dict.fromkeys(devices))
    if len(several) > 1:
        raise WhyidleError(
            f"one price ({price.title}) cannot hold for trainings on {len(several)} devices ({', '.join(several)}). "
            f"Compare one device at a time, or leave out --price and --instance: scenario {COST_SCENARIO} has a price "
            "for each device."
        )
