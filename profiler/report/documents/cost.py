"""Costs in words: the bills of logged trainings, and what a recorded run cost and waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.cells.cell_costs import SETTING, CellCost, cell_costs, is_tried
from ...analyse.cells.comparison import Cell
from ...analyse.cells.cost import Bill, Spent
from ...analyse.cells.evidence_strength import foreign_cpus, single
from ...analyse.cells.prices import Price
from ...analyse.statistics import ONE_RUN_REACH
from ..render.fitted import Column, Fitted
from .cells_table import head, place_columns

NOT_KNOWN = "n/a"
PREEMPTIBLE = "preemptible"
"""In what a price's provider is said to be."""
NOTABLE = 0.01
"""Share of the time from which on validation and checkpoints are worth naming."""


LEAST_USD = 0.0001
"""Costs below are told of more epochs than one."""
EPOCHS_SHOWN = (1, 1_000, 1_000_000)


def usd(amount: float | None) -> str:
    """`$97`, `$1.23`, `$0.00042`: two decimals, or two digits that say something."""
    if amount is None:
        return NOT_KNOWN
    if amount == 0 or amount >= 1000:
        return f"${amount:,.0f}"
    if amount >= 0.1:
        return f"${amount:.2f}"
    # Fixed notation: the first two digits that are not 0.
    digits = next((n for n in range(2, 12) if amount >= 10 ** (1 - n)), 12)
    return f"${amount:.{digits}f}"


def spent(of: Spent) -> str:
    """One line on a recorded run."""
    line = f"At {of.price.title} this run cost {usd(of.usd)}"
    if of.waited_usd is None or of.waited_share is None:
        return f"{line}; how long the {of.waiter} waited was not measured."
    share = f"{100 * of.waited_share:.0f} % of the time that was judged"
    said = f"{line}, of which the {of.waiter} waited for {usd(of.waited_usd)} ({share})"
    if of.boundary_share is not None and of.boundary_share >= NOTABLE:
        outside = f"{100 * of.boundary_share:.0f} %"
        return f"{said}; {usd(of.boundary_usd)} ({outside}) more went outside the steps: validation, checkpoints."
    return f"{said}."


def of_cells(cells: Sequence[Cell], setting: Mapping[str, Any]) -> Iterator[RenderableType]:
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
        Column("$/h", [NOT_KNOWN if each.price is None else f"{each.price.usd_per_hour:.4g}" for each in costs], True),
        Column(head(passes, emulated), [_of(epochs, each.usd_per_epoch) for each in costs], True),
        Column("ratio", [_ratio(each.ratio) for each in costs], True),
        Column(head("waiting", emulated), [_of(epochs, each.waited_usd) for each in costs], True),
    ]
    if target is not None and any(is_tried(cell) for cell in cells):
        columns.append(Column(f"to {target:g}", [_until(each) for each in costs], True))
    yield Text()
    yield Text("What it costs", style="bold")
    yield Padding(Fitted(columns), (0, 0, 0, 2))
    if (doubts := _doubts([each.cell for each in costs if each.usd_per_epoch is not None])) is not None:
        yield Padding(Text(doubts, style="yellow"), (0, 0, 0, 2))
    prices = {each.price.title: each.price for each in costs if each.price is not None}
    for title, price in prices.items():
        yield Padding(Text(f"{title}: {_origin(price)}", style="dim"), (0, 0, 0, 2))
    yield Padding(
        Text(
            "An epoch is one pass over the data at the rate of the table, without the time outside the steps "
            "(validation, checkpoints). Waiting is what of it paid for time in which nothing was computed. "
            f"Ratios are to {beside}, of the same net.{_unpriced(costs, setting)}",
            style="dim",
        ),
        (0, 0, 0, 2),
    )


def _doubts(cells: Sequence[Cell]) -> str | None:
    """Why the costs, and so their ratios, may be others in the next run; `None` where nothing says so."""
    said = []
    if (others := foreign_cpus(facts for cell in cells for facts in cell.facts)) is not None:
        said.append(
            f"Other programs used {others:.1f} CPUs of a machine that had none to spare: run it again without them."
        )
    if single(cells):
        said.append(f"Costs of one run each may differ by {100 * ONE_RUN_REACH:.0f} % for no reason.")
    return " ".join(said) or None


def _epochs_shown(of_one: Iterable[float | None]) -> int:
    """How many epochs to tell the price of, so that the cheapest is no long row of zeros."""
    cheapest = min((usd for usd in of_one if usd), default=LEAST_USD)
    return next((many for many in EPOCHS_SHOWN if cheapest * many >= LEAST_USD), EPOCHS_SHOWN[-1])


def _of(epochs: int, one: float | None) -> str:
    return usd(None if one is None else epochs * one)


def _unpriced(costs: Sequence[CellCost], setting: Mapping[str, Any]) -> str:
    """What prices by thread or accelerator leave out."""
    if setting[SETTING].get("whole_machine") or not any(each.cell.axes.get("workers") for each in costs):
        return ""
    return " Worker processes of loaders are not priced."


def _until(of: CellCost) -> str:
    if not is_tried(of.cell):
        return NOT_KNOWN
    return "never" if of.target_epochs is None else f"{usd(of.target_usd)} ({of.target_epochs})"


def _origin(price: Price) -> str:
    """Where a price is from."""
    if price.source is None:
        return "as asked for"
    return f"{price.provider}. {price.source}" + (f" ({price.doubt})" if price.doubt else "")


def render(
    bills: Sequence[Bill],
    relative_to: str,
    target: float | None,
    problems: Sequence[str],
    folder: str,
    console: Console,
) -> None:
    """Print one table for each training."""
    machines = len({each.machine for each in bills})
    tests = list(dict.fromkeys(each.test for each in bills))
    console.print(
        Text(
            f"{_count(len(bills), 'log')} in {folder}: {_count(len(tests), 'training')}, {_count(machines, 'machine')}",
            style="bold",
        ),
        soft_wrap=True,
    )
    for problem in problems:
        console.print(Text(problem, style="yellow"), soft_wrap=True)
    for test in tests:
        own = [each for each in bills if each.test == test]
        console.print()
        console.print(Text(f"{test}, {own[0].epochs} epochs", style="bold"))
        console.print(_table(own, relative_to, target))
    console.print()
    console.print(Text(_ratios(bills, relative_to), style="dim"))
    head, *lines = _prices(bills) or [""]
    console.print(Text(head))
    for line in lines:
        console.print(Padding(Text(line), (0, 0, 0, 2)))


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'s' * (number != 1)}"


def _ratios(bills: Sequence[Bill], relative_to: str) -> str:
    """What the ratios are of, and that prices of two kinds stand beside each other, where they do."""
    base = relative_to.rpartition("/")[2]
    said = f"time/{base} and cost/{base}: totals over those of the same training on {relative_to} (--relative-to)."
    kinds = {PREEMPTIBLE in (each.price.provider or "") for each in bills if each.price is not None}
    gpu = any(each.price is not None and each.price.accelerator for each in bills)
    if len(kinds) == 2 and gpu:
        said += " As the study did, this sets the price of preemptible CPUs beside that of an on-demand GPU."
    return said


def _table(bills: Sequence[Bill], relative_to: str, target: float | None) -> Table:
    """One row a machine."""
    base = relative_to.rpartition("/")[2]
    has_accuracy = any(each.accuracy is not None for each in bills)
    rows = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    rows.add_column("machine", no_wrap=True)
    for name in ("s/epoch", "total s", "cost", f"time/{base}", f"cost/{base}", "accuracy" if has_accuracy else "loss"):
        rows.add_column(name, justify="right", no_wrap=True)
    if target is not None:
        rows.add_column(f"to {target:g}", justify="right")
    for each in bills:
        end = each.accuracy if has_accuracy else each.loss
        row = [
            each.machine,
            f"{each.median_s:.2f}",
            f"{each.total_s:.1f}",
            usd(each.usd),
            _ratio(each.time_ratio),
            _ratio(each.cost_ratio),
            NOT_KNOWN if end is None else f"{end:.4f}" if has_accuracy else f"{end:.3f}",
        ]
        if target is not None:
            row.append(
                NOT_KNOWN
                if each.accuracy is None
                else "never"
                if each.target_epoch is None
                else f"{usd(each.target_usd)} ({each.target_epoch})"
            )
        rows.add_row(*row)
    return rows


def _ratio(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.2f}"


def _prices(bills: Sequence[Bill]) -> list[str]:
    """Where the prices are from, and which are missing."""
    known = {each.price.title: each.price for each in bills if each.price is not None}
    lines = [f"{title}: {_origin(price)}" for title, price in known.items()]
    without = sorted({each.machine for each in bills if each.price is None})
    if without:
        lines.append(f"No price is known of {', '.join(without)}: --prices FILE adds them, under [logs].")
    return ["Prices", *lines] if lines else []
