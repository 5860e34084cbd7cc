"""Checks in words, a row each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analyse.diff.limits import LimitCheck
from ...record.files import one_line
from ..document import Block, Caution, Document, LimitRow, LimitTable, Title

_TONES = {"PASS": "green", "FAIL": "bold red", "UNCLEAR": "bold red", "N/A": "bold red", "SKIP": "yellow"}


def check_document(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> Document:
    """Make a row for each check. `emulated`: the name of an emulated device."""
    return Document(tuple(_blocks(run, emulated, found)))


def _blocks(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> Iterator[Block]:
    yield Title(one_line(summary(run, found)), one_line=True)
    if emulated is not None:
        yield Caution("Emulated", f"it ran on {one_line(emulated)}, no GPU was measured.", one_line=True)
    yield LimitTable(tuple(map(_row, found)))


def _row(check: LimitCheck) -> LimitRow:
    word = outcome(check)
    return LimitRow(word, _TONES[word], one_line(check.what), measured(check), wanted(check), one_line(check.note))


def summary(run: str, found: Sequence[LimitCheck]) -> str:
    """Say how many hold."""
    failed = [each for each in found if not each.holds]
    if not failed:
        return f"{run}: all {len(found)} checks hold."
    return f"{run}: {len(failed)} of {len(found)} checks fail: {', '.join(_named(each) for each in failed)}."


def _named(check: LimitCheck) -> str:
    return f"{check.name} (unclear)" if check.unclear else check.name


def outcome(check: LimitCheck) -> str:
    """PASS or FAIL; UNCLEAR where noise hides it and N/A where not measured, which fail; SKIP where that is allowed."""
    if check.passed:
        return "PASS"
    if check.allowed:
        return "SKIP"
    return "N/A" if check.passed is None else "UNCLEAR" if check.unclear else "FAIL"


def measured(check: LimitCheck) -> str:
    if check.measured is None:
        return "not measured"
    if check.name == "max-regression" and isinstance(check.measured, float) and check.measured < 0:
        return f"none ({_value(-check.measured, check.unit)} more throughput)"
    return _value(check.measured, check.unit)


def wanted(check: LimitCheck) -> str:
    if check.name.startswith("forbid "):
        return "forbidden"
    if check.name == "ended":
        return "required"
    return f"{'at most' if check.at_most else 'at least'} {_value(check.limit, check.unit)}"


def _value(value: float | str, unit: str) -> str:
    return value if isinstance(value, str) else f"{value:.4g} {unit}".rstrip()
