"""Checks in words, a row each."""

from __future__ import annotations

from collections.abc import Sequence

from ...analyse.diff.check import FAILED, NOT_MEASURED, PASSED, REGRESSION, UNCLEAR, LimitCheck
from ...record.files import one_line
from ..document import Block, Caution, Document, LimitRow, Title, limits_section

_TONES = {"PASS": "green", "FAIL": "bold red", "UNCLEAR": "bold red", "N/A": "bold red", "SKIP": "yellow"}
_OUTCOMES = {PASSED: "PASS", FAILED: "FAIL", UNCLEAR: "UNCLEAR", NOT_MEASURED: "N/A"}


def check_document(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> Document:
    """Make a row for each check. `emulated`: the name of an emulated device."""
    failed = [f"{each.name}{' (unclear)' * (each.status == UNCLEAR)}" for each in found if not each.holds]
    said = f"{len(failed)} of {len(found)} checks fail: {', '.join(failed)}." if failed else ""
    blocks: list[Block] = [Title(one_line(f"{run}: {said or f'all {len(found)} checks hold.'}"), one_line=True)]
    if emulated is not None:
        blocks.append(Caution("Emulated", f"it ran on {one_line(emulated)}, no GPU was measured.", one_line=True))
    return Document((*blocks, limits_section(tuple(limit_row(each, safe=True) for each in found))))


def limit_row(check: LimitCheck, *, safe: bool = False) -> LimitRow:
    """Put a check in words; `outcome` is PASS or FAIL; UNCLEAR where noise hides it and N/A where not measured, which
    fail; SKIP where that is allowed. `safe`: without what acts on a terminal, and in one line."""
    outcome = "SKIP" if check.allowed and check.status != PASSED else _OUTCOMES[check.status]
    measured = "not measured" if check.measured is None else _value(check.measured, check.unit)
    if check.name == REGRESSION and isinstance(check.measured, float) and check.measured < 0:
        measured = f"none ({_value(-check.measured, check.unit)} more throughput)"
    wanted = f"{'at most' if check.at_most else 'at least'} {_value(check.limit, check.unit)}"
    if check.name == "ended" or check.name.startswith("forbid "):
        wanted = "required" if check.name == "ended" else "forbidden"
    what, note = (one_line(text) if safe else text for text in (check.what, check.note))
    return LimitRow(outcome, _TONES[outcome], what, measured, wanted, note)


def _value(value: float | str, unit: str) -> str:
    return value if isinstance(value, str) else f"{value:.4g} {unit}".rstrip()
