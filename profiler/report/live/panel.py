"""The live view in a few rows, below a program's own output."""

from __future__ import annotations

from ...analyse.recent.snapshot import UNDER_WAY, Snapshot
from . import words
from .code import code, lines
from .devices import LABEL, row_of
from .header import far
from .host import host
from .lines import Row, cut, flow, safe, wrapped
from .makers import summary
from .options import Options
from .step import bar, change_words, entries, legend
from .verdict import stretch

FULL, SHORT, ONE = 6, 3, 1


def rows_for(height: int) -> int:
    """How many rows of a terminal the panel takes."""
    return FULL if height >= 24 else SHORT if height >= 16 else ONE


def panel(view: Snapshot, width: int, rows: int, options: Options) -> list[Row]:
    """Exactly `rows` rows (`FULL`, `SHORT` or `ONE`) of at most `width` cells; the first sets them apart."""
    if rows < SHORT:
        return [Row(cut(f" whyidle: {words.state(view)}", width, options.ascii_only).ljust(width), "reverse")]
    died = [Row("A WORKER DIED")] if view.deaths else []
    items = [Row(" whyidle"), *died, *(Row(said) for said in far(view))]
    found = [Row("  ".join(line.plain for line in flow(items, width, rows=1)).ljust(width), "reverse")]
    found += (_full(view, width, options) if rows >= FULL else _short(view, width, options))[: rows - 2]
    found += [Row() for _ in range(rows - 1 - len(found))]
    return [row.within(width, options.ascii_only) for row in (*found, _verdict(view, width, options))]


def _full(view: Snapshot, width: int, options: Options) -> list[Row]:
    found = [row_of(device, width, options) for device in view.devices[:1]]
    if not view.shares:
        return [*found, *host(view, width, 0, options)]
    if not lines(view):
        # The legend has its figures.
        found += [bar(view, width, options)]
    found += [Row(" " * LABEL).join(each) for each in legend(view, width - LABEL, 1, options)]
    found += _pace(view, width, options)
    found += code(view, width, 0, options)
    return found if view.devices else [*found, *host(view, width, 0, options)]


def _short(view: Snapshot, width: int, options: Options) -> list[Row]:
    if not view.shares:
        return host(view, width, 0, options)
    return [Row(" ").join(each) for each in flow([*_rates(view, options), *_legend(view, options)], width - 1, rows=1)]


def _legend(view: Snapshot, options: Options) -> list[Row]:
    return entries(view, options, told=False)


def _rates(view: Snapshot, options: Options) -> list[Row]:
    said = []
    if view.samples_per_s is not None:
        rate = Row(words.number(view.samples_per_s), "bold").add(" samples/s")
        said.append(rate)
        if view.trend_pct is not None:
            rate.add(" ").join(change_words(view.trend_pct, options))
    if view.queue_ready is not None and view.queue_capacity is not None:
        said.append(Row(f"queue {view.queue_ready:.1f} of {view.queue_capacity}"))
    return said


def _pace(view: Snapshot, width: int, options: Options) -> list[Row]:
    said = _rates(view, options)
    if view.makers:
        count, *rest = summary(view)
        workers = Row("workers ").join(count)
        said += [workers.add(" ").join(rest[0]), *rest[1:]] if rest else [workers]
    elif view.made_in_training:
        said.append(Row("no workers"))
    return [Row(" ").join(each) for each in flow(said, width - 1, "   ", rows=1)]


def _verdict(view: Snapshot, width: int, options: Options) -> Row:
    """In one row: what goes beyond is cut between words."""
    if view.verdict is None:
        waits = not view.shares and view.state in UNDER_WAY
        return Row(" waiting for the first steps of a training" if waits else "", "dim")
    after = stretch(view)
    text = safe(view.verdict.title)
    room = width - 1 - len(after)
    rows = wrapped(text, room)
    if len(rows) > 1:
        text = wrapped(text, room - 4)[0] + options.sign(" …", " ...")
    return Row(" ").add(text + after, "bold" if view.verdict.cause is not None else "")
