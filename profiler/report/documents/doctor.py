"""The checks of a machine in words: a line for each that is well, what is lost and how to fix it for the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ...record.check import Check, Status
from ..document import Block, Document, Heading, Space, TableColumn, Title, table
from ..phrase import Words, line, toned

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
    counts = Counter(check.status for check in found)
    told = [
        (f"{sign} {counts[status]} {status}", f"bold {tone}")
        for status, (sign, tone) in _SIGNS.items()
        if counts[status]
    ]
    apart = [piece for each in told for piece in ((", ", "bold"), each)][1:]
    yield Title(line(("What can be measured here: ", "bold"), *apart))
    for group, checks in groupby(found, key=lambda check: check.group):
        yield from (Space(), Heading(group))
        for check in _alike(checks):
            yield from _lines(check)


def _alike(checks: Iterable[Check]) -> list[Check]:
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


def _lines(check: Check) -> Iterator[Block]:
    sign, tone = _SIGNS[check.status]
    quiet = "dim" if check.status == "not applicable" else ""
    rows: list[tuple[tuple[Words, Words, Words], tuple[int, int]]] = [
        ((toned(sign, tone), toned(check.name, quiet), toned(check.says, quiet)), (1, NAME_WIDTH))
    ]
    if check.status not in ("ok", "not applicable"):
        further = (("lost", tone, check.lost), ("fix", "bold", check.fix))
        rows += [(("", toned(word, of_word), what), (3, 4)) for word, of_word, what in further if what]
    for cells, widths in rows:
        columns = (*(TableColumn(width=width) for width in widths), TableColumn(grows=True, folds=True))
        yield table([cells], *columns, gap=1)
