"""The checks of a machine in words: a line for each that is well, what is lost and how to fix it for the others."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ...record.check import Check, Status
from ..document import Block, Document, Heading, Space, TableBlock, TableColumn, Title, table
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
    """Lay out all checks, by group."""
    return Document(tuple(_blocks(found)))


def _blocks(found: Sequence[Check]) -> Iterator[Block]:
    summary = [("What can be measured here: ", "bold")]
    for status, (sign, tone) in _SIGNS.items():
        if count := sum(check.status == status for check in found):
            summary += [(", ", "bold")] * (len(summary) > 1) + [(f"{sign} {count} {status}", f"bold {tone}")]
    yield Title(line(*summary))
    for group, checks in groupby(found, key=lambda check: check.group):
        yield Space()
        yield Heading(group)
        for check in _alike(checks):
            sign, tone = _SIGNS[check.status]
            quiet = "dim" if check.status == "not applicable" else ""
            yield _row(toned(sign, tone), toned(check.name, quiet), toned(check.says, quiet), widths=(1, NAME_WIDTH))
            for word, what, of_word in (("lost", check.lost, tone), ("fix", check.fix, "bold")):
                if what and check.status in ("limited", "missing"):
                    yield _row("", toned(word, of_word), what, widths=(3, 4))


def _alike(checks: Iterable[Check]) -> list[Check]:
    """Let GPUs with the same words share a line."""
    merged: dict[tuple[str, ...], tuple[Check, list[str]]] = {}
    for check in checks:
        of_gpu = _OF_GPU.fullmatch(check.name)
        number, what = of_gpu.groups() if of_gpu else ("", check.name)
        merged.setdefault((what, check.status, check.says, check.lost, check.fix), (check, []))[1].append(number)
    return [
        replace(check, name=f"GPU {','.join(numbers)}{key[0]}" if numbers[0] else check.name)
        for key, (check, numbers) in merged.items()
    ]


def _row(*cells: Words, widths: tuple[int, int]) -> TableBlock:
    columns = [*(TableColumn(width=width) for width in widths), TableColumn(grows=True, folds=True)]
    return table([cells], *columns, gap=1)
