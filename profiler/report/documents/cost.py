"""Costs in words: the bills of logged trainings, and what a recorded run cost and waited for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any

from ...analyse.cells.comparison import Cell, foreign_cpus
from ...analyse.cells.cost import SETTING, Bill, CellCost, Price, Spent, cell_costs
from ...analyse.statistics import ONE_RUN_REACH
from ..document import Block, Document, Heading, Paragraph, Space, TableBlock, TableColumn, Title, toned
from ..words.figures import NOT_MEASURED, counted
from .cells_table import column, head, new_section, place_columns

PREEMPTIBLE = "preemptible"
"""Word in the provider of a price."""
NOTABLE = 0.01
"""Least share of the time from which validation and checkpoints are named."""


def usd(amount: float | None) -> str:
    """Write `$97`, `$1.23`, `$0.00042`: two decimals, or two digits that say something."""
    if amount is None or isnan(amount):
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
    if isnan(of.waited_share):
        return f"{line}; how long the {of.waiter} waited was not measured."
    share = f"{100 * of.waited_share:.0f} % of the measured time"
    said = f"{line}, {usd(of.waited_usd)} of it while the {of.waiter} waited ({share})"
    if of.boundary_share < NOTABLE:
        return f"{said}."
    outside = f"{100 * of.boundary_share:.0f} %"
    return f"{said}, and {usd(of.boundary_usd)} ({outside}) outside the steps: validation, checkpoints."


def cost_blocks(cells: Sequence[Cell], setting: Mapping[str, Any]) -> Iterator[Block]:
    """Say what a comparison's trainings cost; nothing where no prices are known."""
    costs = cell_costs(cells, setting)
    if not costs:
        return
    said, emulated = setting[SETTING], setting["device"]["kind"] == "emulated"
    target = said.get("target_accuracy")
    tried = costs if target is not None and any(each.is_tried for each in costs) else ()
    columns = (
        *place_columns(cells),
        column("$/h", costs, lambda each: NOT_MEASURED if each.price is None else f"{each.price.usd_per_hour:.4g}"),
        column(head("an epoch", emulated), costs, lambda each: usd(each.usd_per_epoch)),
        column("ratio", costs, lambda each: _number(each.ratio)),
        column(head("waiting", emulated), costs, lambda each: usd(each.waited_usd_per_epoch)),
        column(
            f"to {target or 0:g}", tried, lambda each: _until(each.target_epochs, each.target_cost_usd, each.is_tried)
        ),
    )
    yield from new_section("What it costs", columns)
    # Why costs, and so their ratios, may differ in the next run.
    doubts, priced = [], [each.cell for each in costs if not isnan(each.usd_per_epoch)]
    if (others := foreign_cpus(facts for cell in priced for facts in cell.facts)) is not None:
        doubts.append(f"Other programs used {others:.1f} CPUs while all CPUs were in use: run it again without them.")
    if any(len(cell.facts) == 1 for cell in priced):
        doubts.append(f"Each cost is of one run, which may differ by {100 * ONE_RUN_REACH:.0f} % by chance.")
    if doubts:
        yield Paragraph(toned(" ".join(doubts), "yellow"), 1)
    for words in _origins(costs):
        yield Paragraph(toned(words, "dim"), 1)
    beside = said.get("relative_to") or "the first row of real data that has a cost"
    # Prices by thread or accelerator leave out the workers.
    workers = not said.get("whole_machine") and any(each.cell.axes.get("workers") for each in costs)
    words = (
        "An epoch is one pass over the data at the rate of the table, without time outside the steps (validation, "
        "checkpoints). Waiting is the part that paid for time in which nothing was computed. "
        f"Ratios compare with {beside}, same net.{' Loader workers are not priced.' if workers else ''}"
    )
    yield Paragraph(toned(words, "dim"), 1)


def _until(epochs: int | None, cost: float, tried: bool) -> str:
    return NOT_MEASURED if not tried else "never" if epochs is None else f"{usd(cost)} ({epochs})"


def _number(value: float, digits: int = 2) -> str:
    return NOT_MEASURED if isnan(value) else f"{value:.{digits}f}"


def _origins(priced: Iterable[CellCost | Bill]) -> list[str]:
    """Say where each price is from."""
    prices: dict[str, Price] = {each.price.title: each.price for each in priced if each.price is not None}
    lines = []
    for title, price in prices.items():
        doubt = f" ({price.doubt})" if price.doubt else ""
        origin = "as given" if price.source is None else f"{price.provider}. {price.source}{doubt}"
        lines.append(f"{title}: {origin}")
    return lines


def logs_document(
    bills: Sequence[Bill], relative_to: str, target: float | None, problems: Sequence[str], folder: str
) -> Document:
    """Show the logs of a folder: a table for each training."""
    tests, machines = list(dict.fromkeys(each.test for each in bills)), {each.machine for each in bills}
    found = ", ".join((counted(len(tests), "training"), counted(len(machines), "machine")))
    blocks: list[Block] = [Title(f"{counted(len(bills), 'log')} in {folder}: {found}", one_line=True)]
    blocks += [Paragraph(toned(problem, "yellow"), one_line=True) for problem in problems]
    base = relative_to.rpartition("/")[2]
    for test in tests:
        own = [each for each in bills if each.test == test]
        accuracy = not all(isnan(each.accuracy) for each in own)
        reached = [] if target is None else own
        columns = (
            TableColumn("machine", [each.machine for each in own], wraps=False),
            column("s/epoch", own, lambda each: f"{each.median_s_per_epoch:.2f}", wraps=False),
            column("total s", own, lambda each: f"{each.total_s:.1f}", wraps=False),
            column("cost", own, lambda each: usd(each.cost_usd), wraps=False),
            column(f"time/{base}", own, lambda each: _number(each.time_ratio), wraps=False),
            column(f"cost/{base}", own, lambda each: _number(each.cost_ratio), wraps=False),
            column("accuracy", own if accuracy else (), lambda each: _number(each.accuracy, 4), wraps=False),
            column("loss", () if accuracy else own, lambda each: _number(each.loss, 3), wraps=False),
            column(
                f"to {target or 0:g}",
                reached,
                lambda each: _until(each.target_epoch, each.target_cost_usd, not isnan(each.accuracy)),
            ),
        )
        blocks += [Space(), Heading(f"{test}, {own[0].epochs} epochs")]
        blocks.append(TableBlock(tuple(each for each in columns if each.cells)))
    said = f"time/{base} and cost/{base}: totals relative to the same training on {relative_to} (--relative-to)."
    kinds = {PREEMPTIBLE in (each.price.provider or "") for each in bills if each.price is not None}
    if len(kinds) == 2 and any(each.price is not None and each.price.accelerator for each in bills):
        said += " As in the study, CPU prices are preemptible ones and the GPU price is on demand."
    lines = _origins(bills)
    if without := sorted({each.machine for each in bills if each.price is None}):
        lines.append(f"No price is known for {', '.join(without)}. Add it with `--prices FILE`, under [logs].")
    blocks += [Space(), Paragraph(toned(said, "dim"))]
    blocks += [Paragraph("Prices"), *(Paragraph(words, 1) for words in lines)] if lines else []
    return Document(tuple(blocks))
