"""The checks of a machine in words: a line for each that is well, what is lost and how to fix it for the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ...record.check import Check, Status
from ..document import Block, Document, Heading, Space, TableBlock, TableColumn, Title, table
from ..phrase import Phrase, Words, line, toned

_SIGNS: dict[Status, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "limited": ("!", "yellow"),
    "missing": ("✗", "red"),
    "not applicable": ("-", "dim"),
}
"""Status → its sign and tone."""
NAME_WIDTH = 24
_OF_GPU = re.compile(r"GPU (\d+)(.*)")


def doctor_document(found: Sequence[Check]) -> Document:
    """All checks, by group."""
    return Document(tuple(_blocks(found)))


def _blocks(found: Sequence[Check]) -> Iterator[Block]:
    yield Title(_summary(found))
    for group, checks in groupby(found, key=lambda check: check.group):
        yield Space()
        yield Heading(group)
        for check in _alike(list(checks)):
            yield from _lines(check)


def _summary(found: Sequence[Check]) -> Phrase:
    counts = {status: sum(check.status == status for check in found) for status in _SIGNS}
    told = [
        (f"{_SIGNS[status][0]} {count} {status}", f"bold {_SIGNS[status][1]}")
        for status, count in counts.items()
        if count
    ]
    apart = [piece for each in told for piece in ((", ", "bold"), each)][1:]
    return line(("What can be measured here: ", "bold"), *apart)


def _alike(checks: Sequence[Check]) -> list[Check]:
    """Let GPUs with the same words share a line."""
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


def _lines(check: Check) -> Iterator[TableBlock]:
    sign, tone = _SIGNS[check.status]
    quiet = "dim" if check.status == "not applicable" else ""
    yield _row(
        toned(sign, tone),
        toned(check.name, quiet),
        toned(check.says, quiet),
        widths=(1, NAME_WIDTH),
    )
    if check.status in ("ok", "not applicable"):
        return
    for word, what in (("lost", check.lost), ("fix", check.fix)):
        if what:
            yield _row("", toned(word, tone if word == "lost" else "bold"), what, widths=(3, 4))


def _row(*cells: Words, widths: tuple[int, int]) -> TableBlock:
    first, second = widths
    return table(
        [cells], TableColumn(width=first), TableColumn(width=second), TableColumn(grows=True, folds=True), gap=1
    )
