"""The processes of a training that has several."""

from __future__ import annotations

from collections.abc import Callable

from ...analyse.recent.snapshot import RankView, Snapshot
from ..render import bars
from . import words
from .devices import LABEL, window
from .lines import Row, cut, flow, safe
from .options import RANK_ORDERS, Options

HOST = 14
"""Columns for a machine's name."""


def ranks(view: Snapshot, width: int, detail: int, options: Options, rows: int | None = None) -> list[Row]:
    """Detail 0: all in a row. 1: a row each."""
    if len(view.rank_views) < 2:
        return []
    head = Row(" ranks".ljust(LABEL))
    if not detail:
        return [head.join(line) for line in flow(_summary(view), width - LABEL, rows=1)]
    said = [Row(f"{len(view.rank_views)}", "bold")]
    if options.focus == "ranks" and (options.order_of(RANK_ORDERS) or options.reverse):
        arrow = options.sign("↓", "down") if options.reverse else options.sign("↑", "up")
        said.append(Row(f"by {RANK_ORDERS[options.order_of(RANK_ORDERS)]} {arrow}", "bold"))
    said += _summary(view)[1:]
    each = ordered(view.rank_views, options)
    chosen = options.chosen % len(each) if options.focus == "ranks" else -1
    several_hosts = len({each.host for each in view.rank_views}) > 1
    entries = [[_row(rank, several_hosts, width, options, index == chosen)] for index, rank in enumerate(each)]
    found = [head.join(line) for line in flow(said, width - LABEL, rows=1)]
    return found + window(entries, max(0, chosen), None if rows is None else rows - 1, "ranks", options)


def ordered(each: tuple[RankView, ...], options: Options) -> list[RankView]:
    """By what was asked for; whatever was not measured comes last."""
    key: Callable[[RankView], float | None] = (
        lambda r: float(r.rank),
        lambda r: r.samples_per_s,
        lambda r: r.shares.get("input"),
    )[options.order_of(RANK_ORDERS)]
    known = sorted((r for r in each if key(r) is not None), key=lambda r: key(r) or 0.0, reverse=options.reverse)
    return known + [r for r in each if key(r) is None]


def _summary(view: Snapshot) -> list[Row]:
    said = [Row(f"{len(view.rank_views)}", "bold")]
    rates = [r.samples_per_s for r in view.rank_views if r.samples_per_s is not None]
    if len(rates) == len(view.rank_views):
        said.append(Row(f"together {words.number(sum(rates))} samples/s"))
    waits = [(r.shares["input"], r.rank) for r in view.rank_views if r.shares.get("input") is not None]
    if waits:
        most, rank = max(waits)
        said.append(Row(f"rank {rank} waits most for data: {100 * most:.0f} %"))
    return said


def _row(rank: RankView, several_hosts: bool, width: int, options: Options, marked: bool) -> Row:
    row = Row(f"{options.sign('▸', '>') if marked else ' '} {rank.rank:>4}  ").to(LABEL)
    if several_hosts and width >= 76:
        row.add(cut(safe(rank.host), HOST, options.ascii_only).ljust(HOST + 1), "dim")
    said = Row(f"step {rank.steps}  ")
    said.add(words.NOT_MEASURED if rank.samples_per_s is None else f"{words.number(rank.samples_per_s)}/s", "bold")
    busy = rank.shares.get("compute")
    said.add(f"  busy {'n/a' if busy is None else f'{100 * busy:.0f} %'}")
    room = width - row.cells - said.cells - 2
    if rank.shares and room >= 6:
        for text, style in bars.pieces(rank.shares, room, options.ascii_only):
            row.add(text, style)
    else:
        row.add(" " * max(0, room))
    return row.add("  ").join(said)
