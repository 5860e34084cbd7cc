"""Where a step's time goes, how many samples a second come of it, and how full the queue is."""

from __future__ import annotations

from ...analyse.recent.snapshot import Snapshot
from ..render import bars
from ..words.figures import part_name
from . import words
from .devices import LABEL
from .lines import Row, flow
from .options import Options

LEAST_TREND = 2.0
"""Percent; a change of the rate by less is none."""


def step(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Bar and legend (detail 1: a legend of as many rows as it takes), rate, queue."""
    rows = []
    if view.shares:
        rows.append(bar(view, width, options))
        rows += [Row(" " * LABEL).join(each) for each in legend(view, width - LABEL, None if detail else 1, options)]
    else:
        rows.append(Row(" step".ljust(LABEL)).add(words.NOT_MEASURED, "dim"))
    return [*rows, rate(view, width, options), queue(view, width, options)]


def bar(view: Snapshot, width: int, options: Options) -> Row:
    """The parts of a step side by side, and how long it takes."""
    ms = step_ms(view)
    said = words.milliseconds(ms) if ms is not None else ""
    row = Row(" step".ljust(LABEL))
    for text, style in bars.pieces(view.shares, width - LABEL - len(said) - 2 * bool(said), options.ascii_only):
        row.add(text, style)
    return row.add("  ").add(said, "bold") if said else row


def legend(view: Snapshot, width: int, rows: int | None, options: Options) -> list[Row]:
    """The parts that have a share, by size, each with its sign, percentage, and where there is room its time."""
    long = flow(entries(view, options), width, "   ")
    if rows is None or len(long) <= rows:
        return long
    return flow(entries(view, options, told=False), width, rows=rows)


def entries(view: Snapshot, options: Options, told: bool = True) -> list[Row]:
    """The same one by one; with its time if `told`."""
    ms = step_ms(view)
    shown = sorted(((s, p) for p, s in view.shares.items() if s is not None and s >= 0.005), reverse=True)

    def entry(share: float, part: str) -> Row:
        said = f" {part_name(part)} {100 * share:.0f} %"
        spent = f" {words.milliseconds(share * ms)}" if told and ms is not None else ""
        return Row(bars.sign(part, options.ascii_only), bars.colour(part)).add(said).add(spent, "dim")

    return [entry(share, part) for share, part in shown]


def step_ms(view: Snapshot) -> float | None:
    """How long a step takes, on average."""
    return 1e3 / view.steps_per_s if view.steps_per_s else None


def rate(view: Snapshot, width: int, options: Options) -> Row:
    row = Row(" samples/s".ljust(LABEL))
    if view.samples_per_s is None:
        return row.add(words.NOT_MEASURED, "dim")
    said = Row(words.number(view.samples_per_s), "bold")
    if view.trend_pct is not None:
        said.add("  ").join(change_words(view.trend_pct, options))
    if view.ranks > 1:
        said.add(f"  (rank {view.rank} of {view.ranks})", "dim")
    room = width - LABEL - said.cells - 2
    top = max((r for r in view.rates if r == r), default=0.0)
    drawn = bars.spark([100 * r / top for r in view.rates] if top else [], max(0, room), options.ascii_only)
    return row.add(drawn, "green").add("  ").join(said)


def change_words(change: float, options: Options) -> Row:
    """A trend in percent, as sign and words."""
    if abs(change) < LEAST_TREND:
        return Row(f"{options.sign('→', '=')} steady", "dim")
    sign, style = (options.sign("↑", "^"), "green") if change > 0 else (options.sign("↓", "v"), "yellow")
    return Row(f"{sign} {abs(change):.0f} %", style)


def queue(view: Snapshot, width: int, options: Options) -> Row:
    """How many finished batches wait for the training."""
    row = Row(" queue".ljust(LABEL))
    if view.queue_ready is None or view.queue_capacity is None:
        said = "none: the loader shows no finished batches" if view.steps else words.NOT_MEASURED
        return row.add(said, "dim")
    said = f"{view.queue_ready:.1f} of {view.queue_capacity} batches ready"
    room = min(view.queue_capacity, width - LABEL - len(said) - 2)
    ready = min(room, round(view.queue_ready * room / view.queue_capacity)) if view.queue_capacity else 0
    full, empty = ("#", ".") if options.ascii_only else ("●", "○")
    style = "red" if view.queue_ready < 0.5 else "yellow" if view.queue_ready < 0.25 * view.queue_capacity else "green"
    return row.add(full * ready, style).add(empty * (room - ready), "dim").add("  " if room else "").add(said)
