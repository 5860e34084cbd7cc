"""Put the live view together: as much detail as the height has room for, the essentials first.

Where a step's time goes, how many samples a second come of it, and how full the queue is. What the run waits for so
far, since when, and what to try first. The workers that prepare batches: how busy each is, and with what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TypeVar

from ...analyse.recent.snapshot import UNDER_WAY, CodeView, HostView, RankView, Snapshot, WorkerView
from ...analyse.run.resource_usage import BUDGET_USED, said_of
from ...analyse.where.places import Where
from ..render import bars
from ..render.phrases import written
from ..words.code import short_file
from ..words.figures import evidence_value, expected, part_name, prediction
from . import words
from .devices import LABEL, devices, window
from .words import LISTS, RANK_ORDERS, WORKER_ORDERS, Options, Row, cut, flow, safe, wrapped
from .words import line as in_words

WORKER_QUIET_SECONDS = 5.0
"""Seconds since a worker's last batch after which it is marked, unless its batches take as long."""
BAR = 20
CELL_BAR = 8

_SIGNS = (("█", "#", "green", "preparing"), ("▒", "r", "red", "reading"), ("░", "q", "yellow", "queued for a CPU"))
_IDLE = ("·", ".")
_WORKER_ORDER_KEYS: tuple[Callable[[WorkerView], float | None], ...] = (
    lambda w: float(w.number),
    lambda w: w.busy_pct,
    lambda w: w.batch_ms,
    lambda w: w.quiet_s,
)
_RANK_ORDER_KEYS: tuple[Callable[[RankView], float | None], ...] = (
    lambda r: float(r.rank),
    lambda r: r.samples_per_s,
    lambda r: r.shares.get("input"),
)
_Shown = TypeVar("_Shown", WorkerView, RankView)


def makers(view: Snapshot, width: int, detail: int, options: Options, rows: int | None = None) -> list[Row]:
    """Draw the workers. Detail 0: all in a row. 1: a short bar each, side by side. 2: a row each."""
    head = Row(" workers".ljust(LABEL))
    if not view.makers:
        if view.state == "watching":
            return []
        if view.made_in_training:
            return [head.add("none: the training process prepares batches", "dim")]
        if view.workers and view.worker_busy_pct is not None:
            return [head.add(f"{view.workers}, busy {view.worker_busy_pct:.0f} %")]
        return [head.add(words.NOT_MEASURED, "dim")]
    each = _ordered(view.makers, _WORKER_ORDER_KEYS[options.order_of(WORKER_ORDERS)], options)
    if not detail:
        return [head.join(line) for line in flow(summary(view), width - LABEL, rows=1)]
    said = summary(view) if detail == 1 else [*summary(view)[:2], *_legend(view, options)]
    if options.focus == "workers":
        said[1:1] = _by(WORKER_ORDERS, options)
    found = [head.join(line) for line in flow(said, width - LABEL, rows=1)]
    if detail == 1:
        cells = [_cell(worker, options) for worker in each]
        return found + [Row("  ").join(line) for line in flow(cells, width - 2, " ")]
    marked = options.chosen % len(each) if options.focus == "workers" else -1
    entries = [[_worker_row(worker, width, options, index == marked)] for index, worker in enumerate(each)]
    left = None if rows is None else rows - len(found)
    return found + window(entries, max(0, marked), left, "workers", options)


def _ordered(each: Sequence[_Shown], key: Callable[[_Shown], float | None], options: Options) -> list[_Shown]:
    """Sort as asked for; what was not measured comes last."""
    valued = [(one, key(one)) for one in each]
    known = [(one, value) for one, value in valued if value is not None]
    return [one for one, _ in sorted(known, key=itemgetter(1), reverse=options.reverse)] + [
        one for one, value in valued if value is None
    ]


def _by(orders: tuple[str, ...], options: Options) -> list[Row]:
    """Say what the rows are sorted by, where that was chosen."""
    if not (options.order_of(orders) or options.reverse):
        return []
    arrow = options.sign("↓", "down") if options.reverse else options.sign("↑", "up")
    return [Row(f"by {orders[options.order_of(orders)]} {arrow}", "bold")]


def summary(view: Snapshot) -> list[Row]:
    """Sum up all workers: how many, then what is known of them."""
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


def _worker_row(worker: WorkerView, width: int, options: Options, marked: bool) -> Row:
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
    return worker.quiet_s > max(WORKER_QUIET_SECONDS, 3e-3 * (worker.batch_ms or 0.0))


EVIDENCE = 4
"""Most lines of evidence."""
_STYLE = {"none": "green", "minor": "yellow", "major": "yellow", "critical": "red"}


def verdict(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Draw the verdict. Detail -1: cause and share. 0: in full. 1: and what to change first. 2: and the evidence."""
    if view.state == "watching":
        return []
    head = " verdict"
    if view.verdict is None:
        none = "waiting for the first steps" if view.state in UNDER_WAY else words.NO_STEPS
        return [Row(head.ljust(LABEL)).add(none, "dim")]
    found, room = view.verdict, width - LABEL
    severity = found.severity if found.cause is not None else "none"
    said = f"{found.title}{stretch(view)}"
    style = f"bold {_STYLE[severity]}" if found.cause is not None else ""
    if detail < 0:
        said = safe(found.title) if found.cause is None else f"{safe(found.cause)}, {100 * found.share:.0f} %"
        return [Row(head.ljust(LABEL)).add(cut(said, room, options.ascii_only), style)]
    rows = [Row((head if not i else "").ljust(LABEL)).add(text, style) for i, text in enumerate(wrapped(said, room))]
    if detail and found.next:
        first = found.next[0]
        texts = wrapped(written(first.change + prediction(first, view.verdict_samples_per_s), options.ascii_only), room)
        rows += [Row((" try" if not i else "").ljust(LABEL)).add(text) for i, text in enumerate(texts)]
    if detail > 1:
        known = [item for item in found.evidence if item.value is not None][:EVIDENCE]
        for i, item in enumerate(known):
            row = Row((" evidence" if not i else "").ljust(LABEL))
            value = evidence_value(item.value, item.unit)
            aside = f" {expected(item.expected)}" if item.expected else ""
            what = safe(f"{item.what}: ")
            whole = what + safe(value) + safe(aside)
            if len(whole) > room:
                row.add(cut(whole, room, options.ascii_only))
            else:
                row.add(what, "dim").add(safe(value)).add(safe(aside), "dim")
            rows.append(row)
    return rows


def stretch(view: Snapshot) -> str:
    """Say after the verdict what it is about: the whole run, its end, or since when its cause has been the same."""
    if view.verdict_of_whole_run:
        return " (of the whole run)" if view.verdict is not None and view.verdict.cause is not None else ""
    if view.state not in UNDER_WAY:
        return " (last seconds only; `whyidle report` covers the whole run)"
    since = view.verdict_since_s
    return f" (for {words.duration(since)})" if since is not None and since >= 1 else ""


LEAST_TREND = 2.0
"""Percent; a smaller change of the rate counts as none."""


def step(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Draw bar and legend (detail 1: a legend of as many rows as it takes), rate, queue."""
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
    """Make them one by one; with the time if `told`."""
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
    """Write a trend in percent, as sign and words."""
    if abs(change) < LEAST_TREND:
        return Row(f"{options.sign('→', '=')} steady", "dim")
    sign, style = (options.sign("↑", "^"), "green") if change > 0 else (options.sign("↓", "v"), "yellow")
    return Row(f"{sign} {abs(change):.0f} %", style)


def queue(view: Snapshot, width: int, options: Options) -> Row:
    """Draw how many finished batches wait for the training."""
    row = Row(" queue".ljust(LABEL))
    if view.queue_ready is None or view.queue_capacity is None:
        said = "n/a: this loader has no visible queue" if view.steps else words.NOT_MEASURED
        return row.add(said, "dim")
    said = f"{view.queue_ready:.1f} of {view.queue_capacity} batches ready"
    room = min(view.queue_capacity, width - LABEL - len(said) - 2)
    ready = min(room, round(view.queue_ready * room / view.queue_capacity)) if view.queue_capacity else 0
    full, empty = ("#", ".") if options.ascii_only else ("●", "○")
    style = "red" if view.queue_ready < 0.5 else "yellow" if view.queue_ready < 0.25 * view.queue_capacity else "green"
    return row.add(full * ready, style).add(empty * (room - ready), "dim").add("  " if room else "").add(said)


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
    if options.focus == "ranks":
        said += _by(RANK_ORDERS, options)
    said += _summary(view)[1:]
    each = _ordered(view.rank_views, _RANK_ORDER_KEYS[options.order_of(RANK_ORDERS)], options)
    chosen = options.chosen % len(each) if options.focus == "ranks" else -1
    several_hosts = len({each.host for each in view.rank_views}) > 1
    entries = [[_row(rank, several_hosts, width, options, index == chosen)] for index, rank in enumerate(each)]
    found = [head.join(line) for line in flow(said, width - LABEL, rows=1)]
    return found + window(entries, max(0, chosen), None if rows is None else rows - 1, "ranks", options)


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


HELP_COLUMN = 15
"""Where explanations begin."""
_KEYS = (
    ("q, Ctrl-C", "quit; the training goes on"),
    ("h, ?", "this help, and back"),
    ("p, space", "pause the picture, or go on"),
    ("Tab", "choose the list for the arrows: ranks, accelerators, workers"),
    ("up, down", "move in that list; the chosen entry is shown in detail"),
    ("s", "change what workers or ranks are sorted by"),
    ("r", "reverse the order"),
    ("a", "switch between ASCII signs and drawn ones"),
)
_MEANING = (
    (
        "step",
        "the last seconds: the accelerator computed, or waited for data (input), a copy, a result that the program "
        "asked for (sync), the training loop (host), or for what is outside steps (boundary)",
    ),
    ("queue", "finished batches waiting for the training"),
    ("busy", "share of time in which any kernel ran"),
    ("SM active", "share of its processors that had work"),
    ("workers", "queued: ready to run, but waiting for a CPU"),
    ("reads, disk", "bytes that read calls returned; bytes from disks, read-ahead included"),
    ("a blank, n/a", "not measured"),
)


def footer(width: int, options: Options) -> list[Row]:
    if not options.keys:
        return []
    entries = [("q", "quit"), ("h", "help"), ("p", "go on" if options.paused else "pause")]
    entries += [("Tab", options.focus or "lists"), ("s", "sort"), ("r", "reverse")]
    return [Row(" ").join(line) for line in flow(_entries(entries), width - 2, rows=1)]


def _entries(entries: list[tuple[str, str]]) -> list[Row]:
    return [Row(key, "bold").add(f" {what}", "dim") for key, what in entries]


def help_screen(width: int, height: int, options: Options) -> list[Row]:
    """Explain keys, then figures; what does not fit the height is left out."""
    rows = [Row(" whyidle live", "bold"), Row()]
    rows += [line for key, what in _KEYS for line in _explained(key, what, width)]
    rows.append(Row())
    rows += [line for what, meaning in _MEANING for line in _explained(what, meaning, width)]
    return [row.within(width, options.ascii_only) for row in rows[: max(1, height)]]


def _explained(what: str, meaning: str, width: int) -> list[Row]:
    """A name, and beside it what it means, in as many rows as that takes."""
    rows = wrapped(meaning, max(1, width - HELP_COLUMN))
    return [Row(f"  {what}" if not i else "", "bold").to(HELP_COLUMN).add(row) for i, row in enumerate(rows)]


GAUGE = 10
MUCH = 5.0
"""Percent of steal, quota or I/O wait from which it is marked."""
SHM_FULL = 0.9
"""Share of shared memory in use from which it is marked."""


def host(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Draw the host. Detail 0: what fits a row. 1: all, in as many rows as it takes. 2: with a history."""
    alone = view.state == "watching"
    seen = replace(view.host, memory_used_bytes=None) if alone else view.host
    facts = [*_cpu(view, options), *_pressed(seen), *_reads(seen), *_memory(seen)]
    head = Row(" host".ljust(LABEL))
    if not facts:
        return [head.add(words.NOT_MEASURED, "dim")]
    flowed = flow(facts, width - LABEL, "   ", None if detail else 1)
    rows = [(head if not i else Row(" " * LABEL)).join(line) for i, line in enumerate(flowed)]
    budget = view.host.cpu_budget
    # Not min(100, …), which makes 100 of what was not measured.
    values = tuple(100.0 if cpus > budget else 100 * cpus / budget for cpus in view.host.cpus) if budget else ()
    if alone:
        values = view.host.machine_busy
    if detail > 1 and values:
        drawn = bars.graph(values, width - LABEL - 7, 1, options.ascii_only)[0]
        rows.append(
            Row("  CPU".ljust(LABEL)).add(drawn, "blue").add(words.percent(words.last(values)).rjust(7), "bold")
        )
    return rows


def _cpu(view: Snapshot, options: Options) -> list[Row]:
    said = []
    used, budget = view.host.tree_cpus, view.host.cpu_budget
    if view.state != "watching" and used is not None:
        line = Row()
        if budget:
            full, empty = bars.gauge(min(1.0, used / budget), GAUGE, options.ascii_only)
            line.add(full, "red" if used >= BUDGET_USED * budget else "blue").add(empty, "dim").add(" ")
        said.append(line.add(f"{used:.1f} of {budget:g} CPUs" if budget else f"{used:.1f} CPUs", "bold"))
    if view.host.machine_busy_pct is not None:
        said.append(Row(f"machine {words.percent(view.host.machine_busy_pct)} busy"))
    return said


def _pressed(seen: HostView) -> list[Row]:
    """Name what holds the job back, marked where it is much."""
    each = (
        ("throttled by quota", seen.throttled_pct),
        ("steal", seen.steal_pct),
        ("I/O wait", seen.iowait_pct),
    )
    known = sorted(((name, v) for name, v in each if v is not None and v == v), key=lambda e: e[1] < MUCH)
    return [Row(f"{name} {v:.0f} %", "bold yellow" if v >= MUCH else "") for name, v in known]


def _reads(seen: HostView) -> list[Row]:
    if seen.read_bytes_s is None and seen.storage_bytes_s is None:
        return []
    if seen.storage_bytes_s is None:
        return [Row(f"reads {words.rate(seen.read_bytes_s)}")]
    if seen.read_bytes_s is None:
        return [Row(f"disk {words.rate(seen.storage_bytes_s)}")]
    # Two counters, and none a part of the other: read-ahead and mapped files make the disk's the larger one.
    return [Row(f"reads {words.rate(seen.read_bytes_s)}, disk {words.rate(seen.storage_bytes_s)}")]


def _memory(seen: HostView) -> list[Row]:
    said = []
    if seen.memory_used_bytes is not None:
        free = f", {words.size(seen.memory_available_bytes)} free" if seen.memory_available_bytes is not None else ""
        said.append(Row(f"memory {words.size(seen.memory_used_bytes)}{free}"))
    elif seen.memory_available_bytes is not None:
        said.append(Row(f"memory {words.size(seen.memory_available_bytes)} free"))
    if seen.shm_used_bytes is not None and seen.shm_total_bytes:
        full = seen.shm_used_bytes > SHM_FULL * seen.shm_total_bytes
        text = f"shm {words.of(seen.shm_used_bytes, seen.shm_total_bytes)}"
        said.append(Row(text, "bold yellow" if full else ""))
    return said


_STATE = {"running": ("●", "*", "green"), "starting": ("○", "o", "yellow"), "watching": ("●", "*", "green")}


QUIET_SECONDS = 5.0
"""Seconds without a step from which that is shown."""


def header(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Two rows; the third (detail 1) has device and time."""
    state = _state(view, options)
    title = cut(safe(view.title), max(8, width - state.cells - 3), options.ascii_only)
    rows = [Row(" ").add(title, "bold").to(width - state.cells).join(state)]
    if view.state != "watching":
        rows.append(_progress(view, width, options))
    alone = len(view.devices) == 1 and view.device == view.devices[0].name
    name, beside = "" if alone else safe(view.device), _beside(view)
    if detail and (name or beside.cells):
        name = cut(name, max(8, width - beside.cells - 4), options.ascii_only)
        rows.insert(1, Row(" ").add(name).to(width - beside.cells).join(beside))
    if view.deaths:
        texts = wrapped(f"A WORKER DIED: {said_of(view.deaths)}", max(8, width - 1))
        rows += [Row(" ").add(text, "bold red") for text in texts]
    if view.stand_in:
        said = safe(f"STAND-IN DATA: generated, in place of {view.stand_in}")
        rows.append(Row(" ").add(cut(said, width - 1, options.ascii_only), "bold yellow"))
    return rows


def _state(view: Snapshot, options: Options) -> Row:
    if options.paused:
        return Row(f"{options.sign('‖', '||')} paused", "bold yellow")
    sign, ascii_sign, style = _STATE.get(view.state, ("■", "#", "red"))
    if view.state == "ok":
        style = "green"
    said = words.ending(view)
    if view.state == "watching":
        said = "no training: accelerators and machine only"
    return Row(f"{options.sign(sign, ascii_sign)} {said}{options.note and f'; {options.note}'}", f"bold {style}")


def _beside(view: Snapshot) -> Row:
    batch = f"batch {view.batch_size}"
    said = [] if view.batch_size is None or batch in view.title else [batch]
    if view.ranks > 1:
        said.append(f"rank {view.rank} of {view.ranks}")
    return Row(", ".join(said), "dim")


def far(view: Snapshot) -> list[str]:
    """Say how far a run is: state, steps, what is left, the epoch, the time so far."""
    said = [words.ending(view), *(["stand-in data"] if view.stand_in else [])]
    if not view.steps:
        return said if view.state in UNDER_WAY else [*said, words.NO_STEPS]
    said.append(f"{view.steps}/{view.planned_steps} steps" if view.planned_steps else f"{view.steps} steps")
    said += _left(view)
    if view.elapsed_s is not None:
        said.append(f"{words.duration(view.elapsed_s)}{' so far' if view.state == 'running' else ''}")
    return said


def _left(view: Snapshot) -> list[str]:
    said = []
    running = view.state == "running"
    if running and view.quiet_s is not None and view.quiet_s >= QUIET_SECONDS:
        said.append(f"no step for {words.duration(view.quiet_s)}")
    if running and view.left_s is not None:
        said.append(f"{words.duration(view.left_s)} left")
    if view.epoch is not None:
        about = "about " if view.epoch_estimated else ""
        of = f" {view.epoch_done}/{about}{view.epoch_steps}" if view.epoch_done is not None and view.epoch_steps else ""
        # The whole run's steps say as much where there is one epoch.
        said.append(f"epoch {view.epoch + 1}{of if view.planned_steps is None else ''}")
        if running and view.left_s is None and view.epoch_left_s is not None:
            said.append(f"{words.duration(view.epoch_left_s)} left in it")
    return said


def _progress(view: Snapshot, width: int, options: Options) -> Row:
    if view.state == "starting" and not view.steps:
        return Row(" waiting for the first training step", "dim")
    done = None
    if view.planned_steps:
        done = view.steps / view.planned_steps
    elif view.epoch_steps and view.epoch_done is not None:
        done = view.epoch_done / view.epoch_steps
    text = flow([Row(said) for said in far(replace(view, stand_in=None))[1:]], width - 2, rows=1)[0].plain
    room = width - len(text) - 3
    row = Row(" ")
    if done is not None and room >= 8:
        full, empty = bars.gauge(min(1.0, done), room, options.ascii_only)
        row.add(full, "green").add(empty, "dim").add("  ")
    return row.add(text)


LEAST_ROOM = 24
"""Cells that a line of code is cut to, at least: beside another it needs as many."""


@dataclass(frozen=True)
class ToldLine:
    """A line of code as it is shown."""

    whose: str
    """`verdict`, `workers` or `training`."""
    share: str
    """Its share with the unit; empty where it has none, as the line that creates a loader."""
    of: str
    """What the share is of, where there is room to say it."""
    place: str


def code(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Detail 0: in a row, as many as have room. 1: a row each."""
    told = lines(view)
    if not told:
        return []
    head, room = Row(" code".ljust(LABEL)), width - LABEL
    if detail:
        rows = [_said(each, room, options, whole=True) for each in told]
        return [(head if not i else Row(" " * LABEL)).join(row) for i, row in enumerate(rows)]
    return [head.join(side_by_side(told, room, options))]


def lines(view: Snapshot) -> tuple[ToldLine, ...]:
    """The verdict's line, and the lines of workers and training that are not the same."""
    where = view.verdict.where[:1] if view.verdict is not None else ()
    named = {(each.file, each.line) for each in where}
    ours = [
        ToldLine("verdict", "" if each.share is None else f"{100 * each.share:.0f} %", each.time, _place(each))
        for each in where
    ]
    rest = [each for each in view.code if (each.file, each.line) not in named]
    return (*ours, *(ToldLine(each.whose, f"{each.share_pct:.0f} %", "", _place(each)) for each in rest))


def side_by_side(told: Sequence[ToldLine], room: int, options: Options) -> Row:
    """As many lines as have room, in a row."""
    gap = f" {options.sign('·', '-')} "
    kept = told[: max(1, (room + len(gap)) // (LEAST_ROOM + len(gap)))]
    each = (room - len(gap) * (len(kept) - 1)) // len(kept)
    found = Row()
    for number, line in enumerate(kept):
        # What the first leaves over is the last one's.
        last = number == len(kept) - 1
        found.add(gap if number else "").join(_said(line, room - found.cells - len(gap) if last else each, options))
    return found.within(room, options.ascii_only)


def _said(line: ToldLine, room: int, options: Options, whole: bool = False) -> Row:
    """`workers 84 % data.py:27 with zipfile.ZipFile(self.path) as archive:`; `whole`: and what the share is of, if that
    fits."""
    share = f"{line.whose} {line.share} ".replace("  ", " ")
    text, of = safe(line.place), f"  {'of ' if line.share else ''}{line.of}" if whole and line.of else ""
    row = Row(share, "bold").add(cut(text, max(0, room - len(share)), options.ascii_only))
    return row.add(of, "dim") if row.cells + len(of) <= room else row


def _place(line: CodeView | Where) -> str:
    place = short_file(line.file).rpartition("/")[2]
    return f"{place}:{line.line} {line.code or line.function}"


LEAST_WIDTH, LEAST_HEIGHT = 40, 8

_ORDER = ("header", "ranks", "devices", "step", "workers", "host", "code", "verdict")
_UPGRADES = (
    ("verdict", 1),
    ("devices", 1),
    ("ranks", 1),
    ("workers", 1),
    ("header", 1),
    ("code", 1),
    ("host", 1),
    ("workers", 2),
    ("devices", 2),
    ("step", 1),
    ("blank", 1),
    ("verdict", 2),
    ("devices", 3),
    ("host", 2),
    ("devices", 4),
    ("devices", 5),
)
"""Use of further room, in this order; a level that does not fit is skipped."""
_GIVEN_UP = ("host", "workers", "code", "devices", "ranks")
"""Sections left out first where not even the essentials fit."""
LEAST_WINDOW = 4
"""Least rows for a list of which not all fits."""

Build = Callable[[int, int | None], list[Row]]
"""The rows of a section at a level of detail, in at most so many rows where it is a list."""


def screen(view: Snapshot, width: int, height: int, options: Options) -> list[Row]:
    """At most `height` rows of at most `width` cells."""
    if options.help:
        return help_screen(width, height, options)
    if width < LEAST_WIDTH or height < LEAST_HEIGHT:
        needs = f"too small: {width}{options.sign('×', 'x')}{height}, needs {LEAST_WIDTH}{options.sign('×', 'x')}8"
        said = [Row(cut(in_words(view), width, options.ascii_only)), Row(cut(needs, width), "dim")]
        return said[: max(1, height)]
    bottom = footer(width, options)
    focused = _focused(view, options)
    rows = _fitted(_sections(view, width, focused), height - len(bottom), focused.focus)
    rows += [Row() for _ in range(height - len(bottom) - len(rows) if bottom else 0)]
    return [row.within(width, options.ascii_only) for row in rows + bottom]


def lists(view: Snapshot) -> tuple[str, ...]:
    """Those of `LISTS` that have more than one entry."""
    counts = (len(view.rank_views), len(view.devices), len(view.makers))
    return tuple(name for name, count in zip(LISTS, counts, strict=True) if count > 1)


def _focused(view: Snapshot, options: Options) -> Options:
    known = lists(view)
    return options if options.focus in known or not options.focus else replace(options, focus="", chosen=0)


def _sections(view: Snapshot, width: int, options: Options) -> dict[str, Build]:
    return {
        "header": lambda detail, _: header(view, width, detail, options),
        "ranks": lambda detail, rows: ranks(view, width, detail, options, rows),
        "devices": lambda detail, rows: devices(view, width, detail, options, rows),
        "step": lambda detail, _: [] if view.state == "watching" else step(view, width, detail, options),
        "workers": lambda detail, rows: makers(view, width, detail, options, rows),
        "host": lambda detail, _: host(view, width, detail, options),
        "code": lambda detail, _: code(view, width, detail, options),
        "verdict": lambda detail, _: verdict(view, width, detail, options),
    }


def _fitted(sections: dict[str, Build], height: int, focus: str) -> list[Row]:
    drawn = {name: build(0, None) for name, build in sections.items()}
    detail = dict.fromkeys(sections, 0)
    left = height - sum(map(len, drawn.values()))
    kept: list[Row]
    for name in _GIVEN_UP:
        if left >= 0:
            break
        kept = drawn[name][: max(0, len(drawn[name]) + left)] if name in ("devices", "ranks") else []
        left += len(drawn[name]) - len(kept)
        drawn[name] = kept
    if left < 0:
        left += len(drawn["verdict"])
        drawn["verdict"] = sections["verdict"](-1, None)
        left -= len(drawn["verdict"])
        # Its last rows tell least.
        kept = drawn["step"][: max(1, len(drawn["step"]) + left)] if left < 0 else drawn["step"]
        left += len(drawn["step"]) - len(kept)
        drawn["step"] = kept
    blank = False
    for name, level in _UPGRADES if left > 0 else ():
        if name == "blank":
            blank = left >= sum(bool(rows) for rows in drawn.values()) - 1
            left -= blank * (sum(bool(rows) for rows in drawn.values()) - 1)
            continue
        if not drawn[name]:
            continue
        more = sections[name](level, None)
        if len(more) - len(drawn[name]) <= left:
            left -= len(more) - len(drawn[name])
            drawn[name], detail[name] = more, level
        elif name in LISTS and name == focus and len(drawn[name]) + left >= LEAST_WINDOW:
            more = sections[name](level, len(drawn[name]) + left)
            if len(more) - len(drawn[name]) <= left:
                left -= len(more) - len(drawn[name])
                drawn[name], detail[name] = more, level
    for name in ("workers", "ranks"):
        # A list that is too long for the room that is left shows a part of it.
        full = {"workers": 2, "ranks": 1}[name]
        if drawn[name] and detail[name] < full and len(drawn[name]) + left >= LEAST_WINDOW and left > 1:
            more = sections[name](full, len(drawn[name]) + left)
            if 0 < len(more) - len(drawn[name]) <= left:
                left -= len(more) - len(drawn[name])
                drawn[name] = more
    rows: list[Row] = []
    for name in _ORDER:
        if blank and rows and drawn[name]:
            rows.append(Row())
        rows += drawn[name]
    return rows[:height]
