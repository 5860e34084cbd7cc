"""Costs in words: the bills of logged trainings, and what a recorded run cost and waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...analyse.cells.cell_costs import SETTING, CellCost, cell_costs, is_tried
from ...analyse.cells.comparison import Cell
from ...analyse.cells.cost import Bill, Spent
from ...analyse.cells.differential import foreign_cpus, single
from ...analyse.cells.prices import Price
from ...analyse.statistics import ONE_RUN_REACH
from ..document import Block, Document, FittingTable, Heading, Paragraph, Space, TableBlock, TableColumn, Title, table
from ..phrase import toned
from ..words.figures import NOT_MEASURED, counted
from .cells_table import figures, head, place_columns

PREEMPTIBLE = "preemptible"
"""Word in the provider of a price."""
NOTABLE = 0.01
"""Least share of the time from which validation and checkpoints are named."""


LEAST_USD = 0.0001
"""Lower costs are given for more epochs than one."""
EPOCHS_SHOWN = (1, 1_000, 1_000_000)


def usd(amount: float | None) -> str:
    """`$97`, `$1.23`, `$0.00042`: two decimals, or two digits that say something."""
    if amount is None:
        return NOT_MEASURED
    if amount == 0 or amount >= 1000:
        return f"${amount:,.0f}"
    if amount >= 0.1:
        return f"${amount:.2f}"
    # Fixed notation: the first two digits that are not 0.
    digits = next((n for n in range(2, 12) if amount >= 10 ** (1 - n)), 12)
    return f"${amount:.{digits}f}"


def spent_line(of: Spent) -> str:
    """Write a line on a recorded run."""
    line = f"At {of.price.title} this run cost {usd(of.usd)}"
    if of.waited_usd is None or of.waited_share is None:
        return f"{line}; how long the {of.waiter} waited was not measured."
    share = f"{100 * of.waited_share:.0f} % of the measured time"
    said = f"{line}, {usd(of.waited_usd)} of it while the {of.waiter} waited ({share})"
    if of.boundary_share is not None and of.boundary_share >= NOTABLE:
        outside = f"{100 * of.boundary_share:.0f} %"
        return f"{said}, and {usd(of.boundary_usd)} ({outside}) outside the steps: validation, checkpoints."
    return f"{said}."


def cost_blocks(cells: Sequence[Cell], setting: Mapping[str, Any]) -> Iterator[Block]:
    """What a comparison's trainings cost; nothing where no prices are known."""
    costs = cell_costs(cells, setting)
    if not costs:
        return
    beside = setting[SETTING].get("relative_to") or "the first row of real data that has a cost"
    emulated, target = setting["device"]["kind"] == "emulated", setting[SETTING].get("target_accuracy")
    epochs = _epochs_shown(each.usd_per_epoch for each in costs)
    passes = "an epoch" if epochs == 1 else f"{epochs:,} epochs"
    columns = [
        *place_columns(cells),
        figures("$/h", costs, lambda each: NOT_MEASURED if each.price is None else f"{each.price.usd_per_hour:.4g}"),
        figures(head(passes, emulated), costs, lambda each: _of(epochs, each.usd_per_epoch)),
        figures("ratio", costs, lambda each: _ratio(each.ratio)),
        figures(head("waiting", emulated), costs, lambda each: _of(epochs, each.waited_usd)),
    ]
    if target is not None and any(is_tried(cell) for cell in cells):
        columns.append(figures(f"to {target:g}", costs, _until))
    yield Space()
    yield Heading("What it costs")
    yield FittingTable(tuple(columns), indent=1)
    if (doubts := _doubts([each.cell for each in costs if each.usd_per_epoch is not None])) is not None:
        yield Paragraph(toned(doubts, "yellow"), 1)
    prices = {each.price.title: each.price for each in costs if each.price is not None}
    for title, price in prices.items():
        yield Paragraph(toned(f"{title}: {_origin(price)}", "dim"), 1)
    said = (
        "An epoch is one pass over the data at the rate of the table, without time outside the steps (validation, "
        "checkpoints). Waiting is the part that paid for time in which nothing was computed. "
        f"Ratios compare with {beside}, same net.{_unpriced(costs, setting)}"
    )
    yield Paragraph(toned(said, "dim"), 1)


def _doubts(cells: Sequence[Cell]) -> str | None:
    """Say why the costs, and so their ratios, may differ in the next run; `None` where nothing says so."""
    said = []
    if (others := foreign_cpus(facts for cell in cells for facts in cell.facts)) is not None:
        said.append(f"Other programs used {others:.1f} CPUs while all CPUs were in use: run it again without them.")
    if single(cells):
        said.append(f"Each cost is of one run, which may differ by {100 * ONE_RUN_REACH:.0f} % by chance.")
    return " ".join(said) or None


def _epochs_shown(of_one: Iterable[float | None]) -> int:
    """Choose for how many epochs to give the price, so that the cheapest is no long row of zeros."""
    cheapest = min((usd for usd in of_one if usd), default=LEAST_USD)
    return next((many for many in EPOCHS_SHOWN if cheapest * many >= LEAST_USD), EPOCHS_SHOWN[-1])


def _of(epochs: int, one: float | None) -> str:
    return usd(None if one is None else epochs * one)


def _unpriced(costs: Sequence[CellCost], setting: Mapping[str, Any]) -> str:
    """Say what prices by thread or accelerator leave out."""
    if setting[SETTING].get("whole_machine") or not any(each.cell.axes.get("workers") for each in costs):
        return ""
    return " Loader workers are not priced."


def _until(of: CellCost) -> str:
    if not is_tried(of.cell):
        return NOT_MEASURED
    return "never" if of.target_epochs is None else f"{usd(of.target_usd)} ({of.target_epochs})"


def _origin(price: Price) -> str:
    """Say where a price is from."""
    if price.source is None:
        return "as given"
    return f"{price.provider}. {price.source}" + (f" ({price.doubt})" if price.doubt else "")


def logs_document(
    bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str], folder: str
) -> Document:
    """The logs of a folder: a table for each training."""
    tests, machines = {each.test for each in bills}, {each.machine for each in bills}
    found = ", ".join((counted(len(tests), "training"), counted(len(machines), "machine")))
    title = f"{counted(len(bills), 'log')} in {folder}: {found}"
    return Document(tuple(_blocks(title, bills, relative_to, target, problems)))


def _blocks(
    title: str, bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str]
) -> Iterator[Block]:
    yield Title(title, one_line=True)
    yield from (Paragraph(toned(problem, "yellow"), one_line=True) for problem in problems)
    for test in dict.fromkeys(each.test for each in bills):
        own = [each for each in bills if each.test == test]
        yield Space()
        yield Heading(f"{test}, {own[0].epochs} epochs")
        yield _table(own, relative_to, target)
    yield Space()
    yield Paragraph(toned(_ratios(bills, relative_to), "dim"))
    yield from (Paragraph(words, min(number, 1)) for number, words in enumerate(_prices(bills)))


def _ratios(bills: Sequence[Bill], relative_to: str) -> str:
    """Explain the ratios, and warn where prices of two kinds are compared."""
    base = relative_to.rpartition("/")[2]
    said = f"time/{base} and cost/{base}: totals relative to the same training on {relative_to} (--relative-to)."
    kinds = {PREEMPTIBLE in (each.price.provider or "") for each in bills if each.price is not None}
    gpu = any(each.price is not None and each.price.accelerator for each in bills)
    if len(kinds) == 2 and gpu:
        said += " As in the study, CPU prices are preemptible ones and the GPU price is on demand."
    return said


def _table(bills: Sequence[Bill], relative_to: str, target: float | None) -> TableBlock:
    """One row a machine."""
    base = relative_to.rpartition("/")[2]
    has_accuracy = any(each.accuracy is not None for each in bills)
    heads = ("s/epoch", "total s", "cost", f"time/{base}", f"cost/{base}", "accuracy" if has_accuracy else "loss")
    columns = [TableColumn("machine", wraps=False), *(TableColumn(name, right=True, wraps=False) for name in heads)]
    if target is not None:
        columns.append(TableColumn(f"to {target:g}", right=True))
    rows = []
    for each in bills:
        end = each.accuracy if has_accuracy else each.loss
        row = [
            each.machine,
            f"{each.median_s:.2f}",
            f"{each.total_s:.1f}",
            usd(each.usd),
            _ratio(each.time_ratio),
            _ratio(each.cost_ratio),
            NOT_MEASURED if end is None else f"{end:.4f}" if has_accuracy else f"{end:.3f}",
        ]
        if target is not None:
            row.append(
                NOT_MEASURED
                if each.accuracy is None
                else "never"
                if each.target_epoch is None
                else f"{usd(each.target_usd)} ({each.target_epoch})"
            )
        rows.append(row)
    return table(rows, *columns)


def _ratio(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.2f}"


def _prices(bills: Sequence[Bill]) -> list[str]:
    """Say where the prices are from, and which are missing."""
    known = {each.price.title: each.price for each in bills if each.price is not None}
    lines = [f"{title}: {_origin(price)}" for title, price in known.items()]
    without = sorted({each.machine for each in bills if each.price is None})
    if without:
        lines.append(f"No price is known for {', '.join(without)}. Add it with `--prices FILE`, under [logs].")
    return ["Prices", *lines] if lines else []
