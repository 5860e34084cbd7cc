"""Comparisons: trainings in cells, their rounds in one folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from ..analyse.cells.cell_costs import SETTING, place_of, setting_of
from ..analyse.cells.comparison import Cell, Comparison, load
from ..analyse.cells.prices import COST_SCENARIO, Price
from ..analyse.cells.roofline import rooflines
from ..analyse.cells.scaling import scaling
from ..errors import WhyidleError
from ..record.comparison import is_comparison, read_comparison
from ..record.run import PAGE, is_run, runs_within
from ..report.contract import comparison as compare_json
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.documents.comparison import comparison_document, comparison_title
from ..report.export.cells import cells_table
from ..report.export.table import Table
from ..report.plot.batch_size import write_batch_sizes
from ..report.plot.confusion import write_confusion
from ..report.plot.roofline import write_roofline
from ..report.plot.scaling import write_scaling
from ..report.plot.utilisation import traces_of, write_utilisation
from .recordings import RecordedResult, recording_in
from .result import CELLS, CONFUSION, PICTURES, RANKS, ROOFLINE, SIZES, TRACES, Picture, Result


class ComparisonResult(Result):
    """A table of loaders, batch sizes and whatever else differed."""

    what = "a comparison"
    pictures = PICTURES

    def __init__(self, folder: Path, made: tuple[Comparison, dict[str, Any]] | None = None) -> None:
        """`made`: the comparison and its setting, where they need not be read from the folder."""
        super().__init__(folder)
        self._made = made

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        return cls(folder) if is_comparison(folder) else None

    def members(self) -> Iterator[RecordedResult]:
        for cell in read_comparison(self.folder)[1]:
            for name in cell.runs:
                if is_run(self.folder / name):
                    found = recording_in(self.folder / name)
                    found.price = self.price
                    yield found

    def table(self, name: str | None) -> Table:
        if name not in (None, CELLS):
            raise WhyidleError(
                f"{self.folder} is a comparison with only the table {CELLS}; {name} needs one run. {self._name_one()}"
            )
        return cells_table(self.folder)

    def tables(self) -> Mapping[str, Callable[[], Table]]:
        return {CELLS: partial(cells_table, self.folder)}

    def without(self, form: str) -> WhyidleError:
        if form == "trace":
            return WhyidleError(f"{self.folder} is a comparison, and a trace needs one run. {self._name_one()}")
        return super().without(form)

    def _name_one(self) -> str:
        runs = runs_within(self.folder)
        return f"Name a run, such as {runs[0]}." if runs else "It holds no runs."

    @cached_property
    def _loaded(self) -> tuple[Comparison, dict[str, Any]]:
        result, setting = load(self.folder) if self._made is None else self._made
        if self.price is not None:
            put_price(self.price, result.cells, setting)
        return result, setting

    def document(self) -> Document:
        return comparison_document(*self._loaded)

    def contract(self) -> Content:
        return compare_json.comparison(*self._loaded)

    def page(self, place: Path | None) -> str:
        from ..report.page import compare_page

        result, setting = self._loaded
        return compare_page.page(result, setting, {} if place is None else _links(result.cells, place))

    def draw(self, picture: Picture, file: Path) -> None:
        result, setting = self._loaded
        title = comparison_title(result, setting)
        if picture == SIZES:
            if not result.batch_verdicts:
                raise WhyidleError("--plot: no loader ran with two batch sizes, so no picture was drawn.")
            write_batch_sizes(result.batch_verdicts, title, file)
        elif picture == TRACES:
            write_utilisation(traces_of(result), title, file)
        elif picture == RANKS:
            if (found := scaling(result.cells)) is None:
                raise WhyidleError("--scaling-plot: nothing ran on several ranks, so no picture was drawn.")
            write_scaling(found, title, file)
        elif picture == ROOFLINE:
            if not (limits := rooflines(setting)):
                raise WhyidleError(
                    "--roofline-plot: the machine's limits were not measured, so no picture was drawn. `whyidle "
                    "compare --roofline` measures them."
                )
            write_roofline(limits, result.cells, title, file)
        elif picture == CONFUSION:
            write_confusion(result, setting, title, file)


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


def _links(cells: Sequence[Cell], start: Path) -> dict[str, str]:
    """Run folder → address of its page, where it has one, from the folder in which the page of all is written."""
    pages = {run: Path(run) / PAGE for cell in cells for run in cell.runs}
    return {run: quote(os.path.relpath(page, start)) for run, page in pages.items() if page.is_file()}
