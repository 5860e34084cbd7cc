"""The checks of a machine in words: what is well in a line each, what is not with its price and the way out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ...record.check import Check, Status
from ...record.files import plain
from ..render import bars

_SIGNS: dict[Status, tuple[str, str, str]] = {
    "ok": ("✓", "+", "green"),
    "limited": ("!", "!", "yellow"),
    "missing": ("✗", "x", "red"),
    "not applicable": ("-", "-", "dim"),
}
NAME_WIDTH = 24
_OF_GPU = re.compile(r"GPU (\d+)(.*)")


def render(found: Sequence[Check], console: Console) -> None:
    """Print the checks."""
    ascii_only = bars.is_ascii(console)
    for part in _parts(found, ascii_only):
        console.print(part)


def _parts(found: Sequence[Check], ascii_only: bool) -> Iterator[RenderableType]:
    yield _summary(found, ascii_only)
    for group, checks in groupby(found, key=lambda check: check.group):
        yield Text()
        yield Text(group, style="bold")
        for check in _alike(list(checks)):
            yield from _lines(check, ascii_only)


def _summary(found: Sequence[Check], ascii_only: bool) -> Text:
    line = Text("What can be measured here: ", style="bold")
    told = [(status, sum(check.status == status for check in found)) for status in _SIGNS]
    for place, (status, count) in enumerate((s, c) for s, c in told if c):
        line.append(", " if place else "")
        line.append(f"{_sign(status, ascii_only)} {count} {status}", style=_SIGNS[status][2])
    return line


def _alike(checks: Sequence[Check]) -> list[Check]:
    """GPUs of which the same is said share a line."""
    merged: dict[tuple[str, ...], tuple[Check, list[str]]] = {}
    for check in checks:
        of_gpu = _OF_GPU.fullmatch(check.name)
        number, what = of_gpu.groups() if of_gpu else ("", check.name)
        key = (what, check.status, check.says, check.lost, check.fix)
        merged.setdefault(key, (check, []))[1].append(number)
    return [
        replace(check, name=f"GPU {','.join(numbers)}{key[0]}" if numbers[0] else check.name)
        for key, (check, numbers) in merged.items()
    ]


def _lines(check: Check, ascii_only: bool) -> Iterator[RenderableType]:
    colour = _SIGNS[check.status][2]
    quiet = "dim" if check.status == "not applicable" else ""
    head = _columns(1, NAME_WIDTH)
    sign = Text(_sign(check.status, ascii_only), style=colour)
    head.add_row(sign, Text(plain(check.name), style=quiet), Text(plain(check.says), style=quiet))
    yield head
    if check.status in ("ok", "not applicable"):
        return
    for word, what in (("lost", check.lost), ("fix", check.fix)):
        if what:
            line = _columns(3, 4)
            line.add_row("", Text(word, style=colour if word == "lost" else "bold"), Text(plain(what)))
            yield line


def _columns(*widths: int) -> Table:
    table = Table.grid(padding=(0, 1))
    for width in widths:
        table.add_column(width=width)
    table.add_column(ratio=1, overflow="fold")
    return table


def _sign(status: Status, ascii_only: bool) -> str:
    sign, plain_sign, _ = _SIGNS[status]
    return plain_sign if ascii_only else sign
