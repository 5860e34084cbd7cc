"""Checks in words: the limits that a run was held to, a row each; and what can be measured on a
machine, a line for what is well, what is lost and how to fix it for the others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ...analyse.diff.check import FAILED, NOT_MEASURED, PASSED, REGRESSION, UNCLEAR, LimitCheck
from ...record.check import Check, Status
from ...record.files import one_line
from ..document import (
    LEFT,
    Block,
    Caution,
    Document,
    Heading,
    LimitRow,
    Limits,
    Paragraph,
    Space,
    TableColumn,
    Title,
    line,
    table,
    toned,
)

_BAD = "bold red"
_OUTCOMES = {PASSED: ("PASS", "green"), FAILED: ("FAIL", _BAD), UNCLEAR: ("UNCLEAR", _BAD), NOT_MEASURED: ("N/A", _BAD)}


def check_document(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> Document:
    """Make a row for each check. `emulated`: the name of an emulated device."""
    failed = [f"{each.name}{' (unclear)' * (each.status == UNCLEAR)}" for each in found if not each.holds]
    said = f"{len(failed)} of {len(found)} checks fail: {', '.join(failed)}." if failed else ""
    blocks: list[Block] = [Title(one_line(f"{run}: {said or f'all {len(found)} checks hold.'}"), one_line=True)]
    if emulated is not None:
        blocks.append(Caution("Emulated", f"it ran on {one_line(emulated)}, no GPU was measured.", one_line=True))
    return Document((*blocks, Limits(tuple(limit_row(each, safe=True) for each in found))))


def limit_row(check: LimitCheck, *, safe: bool = False) -> LimitRow:
    """Put a check in words; `outcome` is PASS or FAIL; UNCLEAR where noise hides it and N/A where not measured, which
    fail; SKIP where that is allowed. `safe`: without what acts on a terminal, and in one line."""
    outcome, tone = ("SKIP", "yellow") if check.allowed and check.status != PASSED else _OUTCOMES[check.status]
    measured = "not measured" if check.measured is None else _value(check.measured, check.unit)
    if check.name == REGRESSION and isinstance(check.measured, float) and check.measured < 0:
        measured = f"none ({_value(-check.measured, check.unit)} more throughput)"
    wanted = f"{'at most' if check.at_most else 'at least'} {_value(check.limit, check.unit)}"
    if check.name == "ended" or check.name.startswith("forbid "):
        wanted = "required" if check.name == "ended" else "forbidden"
    what, note = (one_line(text) if safe else text for text in (check.what, check.note))
    return LimitRow(outcome, tone, what, measured, wanted, note)


def _value(value: float | str, unit: str) -> str:
    return value if isinstance(value, str) else f"{value:.4g} {unit}".rstrip()


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
    """Show all checks of a machine, by group."""
    counts = Counter(check.status for check in found)
    said: list[tuple[str, str]] = []
    for status, (sign, tone) in _SIGNS.items():
        if counts[status]:
            before = ", " if said else "What can be measured here: "
            said += [(before, "bold"), (f"{sign} {counts[status]} {status}", f"bold {tone}")]
    blocks: list[Block] = [Title(line(*said))]
    for group, checks in groupby(found, key=lambda check: check.group):
        blocks += (Space(), Heading(group))
        for check in _alike(checks):
            blocks += _lines(check)
    return Document(tuple(blocks))


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
    columns = (LEFT, TableColumn(least=NAME_WIDTH, most=NAME_WIDTH), TableColumn(folds=True))
    yield table([(toned(sign, tone), toned(check.name, quiet), toned(check.says, quiet))], *columns, gap=1)
    if check.status not in ("ok", "not applicable"):
        further = (("lost", tone, check.lost), ("fix", "bold", check.fix))
        yield from (Paragraph(line((word, of_word), f"  {what}"), 2) for word, of_word, what in further if what)
