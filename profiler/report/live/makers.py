"""The workers that make batches: how busy each is, and with what."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...analyse.recent.snapshot import Snapshot, WorkerView
from . import words
from .devices import LABEL, window
from .lines import Row, flow
from .options import WORKER_ORDERS, Options

QUIET_SECONDS = 5.0
"""A worker whose last batch is longer ago is pointed out, unless its batches take as long."""
BAR = 20
CELL_BAR = 8

_SIGNS = (("█", "#", "green", "making"), ("▒", "r", "red", "reading"), ("░", "q", "yellow", "queued for a CPU"))
_IDLE = ("·", ".")


def makers(view: Snapshot, width: int, detail: int, options: Options, rows: int | None = None) -> list[Row]:
    """Detail 0: all in a row. 1: a short bar each, side by side. 2: a row each."""
    head = Row(" workers".ljust(LABEL))
    if not view.makers:
        if view.state == "watching":
            return []
        if view.made_in_training:
            return [head.add("none: samples are made in the training process", "dim")]
        if view.workers and view.worker_busy_pct is not None:
            return [head.add(f"{view.workers}, busy {view.worker_busy_pct:.0f} %")]
        return [head.add(words.NOT_MEASURED, "dim")]
    each = ordered(view.makers, options)
    if not detail:
        return [head.join(line) for line in flow(summary(view), width - LABEL, rows=1)]
    said = summary(view) if detail == 1 else [*summary(view)[:2], *_legend(view, options)]
    if options.focus == "workers" and (options.order_of(WORKER_ORDERS) or options.reverse):
        arrow = options.sign("↓", "down") if options.reverse else options.sign("↑", "up")
        said.insert(1, Row(f"by {WORKER_ORDERS[options.order_of(WORKER_ORDERS)]} {arrow}", "bold"))
    found = [head.join(line) for line in flow(said, width - LABEL, rows=1)]
    if detail == 1:
        cells = [_cell(worker, options) for worker in each]
        return found + [Row("  ").join(line) for line in flow(cells, width - 2, " ")]
    marked = options.chosen % len(each) if options.focus == "workers" else -1
    entries = [[_row(worker, width, options, index == marked)] for index, worker in enumerate(each)]
    left = None if rows is None else rows - len(found)
    return found + window(entries, max(0, marked), left, "workers", options)


def ordered(workers: tuple[WorkerView, ...], options: Options) -> list[WorkerView]:
    """By what was asked for; whatever was not measured comes last."""
    key: Callable[[WorkerView], float | None] = (
        lambda w: float(w.number),
        lambda w: w.busy_pct,
        lambda w: w.batch_ms,
        lambda w: w.quiet_s,
    )[options.order_of(WORKER_ORDERS)]
    known = sorted((w for w in workers if key(w) is not None), key=lambda w: key(w) or 0.0, reverse=options.reverse)
    return known + [w for w in workers if key(w) is None]


def summary(view: Snapshot) -> list[Row]:
    """All makers together: how many, then what is known of them."""
    busy = [w.busy_pct for w in view.makers if w.busy_pct is not None]
    said = [Row(f"{len(view.makers)}", "bold")]
    if busy:
        span = f" ({min(busy):.0f} to {max(busy):.0f})" if max(busy) - min(busy) >= 10 else ""
        said.append(Row(f"busy {sum(busy) / len(busy):.0f} %{span}"))
    for name, values in (
        ("reading", [w.reading_pct for w in view.makers]),
        ("queued for a CPU", [w.queued_pct for w in view.makers]),
    ):
        known = [v for v in values if v is not None]
        if known:
            said.append(Row(f"{name} {sum(known) / len(known):.0f} %"))
    spent = sorted(w.batch_ms for w in view.makers if w.batch_ms is not None)
    if spent:
        said.append(Row(f"{words.milliseconds(spent[len(spent) // 2])} a batch"))
    return said


def _legend(view: Snapshot, options: Options) -> list[Row]:
    parts = [(w.busy_pct, w.reading_pct, w.queued_pct) for w in view.makers]
    shown = [any(part[i] is not None for part in parts) for i in range(3)]
    signs = [(s if not options.ascii_only else a, style, name) for s, a, style, name in _SIGNS]
    return [
        Row(sign, style).add(f" {name}", "dim")
        for (sign, style, name), known in zip(signs, shown, strict=True)
        if known
    ]


def _bar(worker: WorkerView, room: int, options: Options) -> Row:
    bar = Row()
    if worker.busy_pct is None or math.isnan(worker.busy_pct):
        return bar.add(" " * room)
    busy = min(room, round(room * worker.busy_pct / 100))
    reading = min(busy, round(busy * (worker.reading_pct or 0.0) / 100))
    queued = min(busy - reading, round(busy * (worker.queued_pct or 0.0) / 100))
    for (sign, ascii_sign, style, _), cells in zip(_SIGNS, (busy - reading - queued, reading, queued), strict=True):
        if cells:
            bar.add(options.sign(sign, ascii_sign) * cells, style)
    return bar.add(options.sign(*_IDLE) * (room - busy), "dim") if busy < room else bar


def _cell(worker: WorkerView, options: Options) -> Row:
    cell = Row(f"{worker.number:>2} ")
    cell.join(_bar(worker, CELL_BAR, options)).add(f" {words.percent(worker.busy_pct):>5}")
    if _is_quiet(worker):
        return cell.add(options.sign("⚠", "!"), "bold yellow")
    return cell.add(" ")


def _row(worker: WorkerView, width: int, options: Options, marked: bool) -> Row:
    room = BAR if width >= 90 else max(6, width - 64)
    row = Row(f"{options.sign('▸', '>') if marked else ' '} {worker.number:>4}  ").to(LABEL)
    row.join(_bar(worker, room, options)).add(f" {words.percent(worker.busy_pct):>5}", "bold")
    facts = []
    if worker.reading_pct is not None:
        facts.append(Row(f"reading {words.percent(worker.reading_pct):>5}"))
    if worker.queued_pct is not None:
        facts.append(Row(f"queued {words.percent(worker.queued_pct):>5}"))
    if worker.batch_ms is not None:
        facts.append(Row(f"{words.milliseconds(worker.batch_ms):>7}/batch"))
    if _is_quiet(worker):
        facts.insert(0, Row(f"{options.sign('⚠', '!')} quiet {words.duration(worker.quiet_s or 0.0)}", "bold yellow"))
    said = flow(facts, width - row.cells - 2, rows=1)
    return row.add("  ").join(said[0]) if said else row


def _is_quiet(worker: WorkerView) -> bool:
    if worker.quiet_s is None:
        return False
    return worker.quiet_s > max(QUIET_SECONDS, 3e-3 * (worker.batch_ms or 0.0))
