"""Checks in words, a line each; and for a pull request's page, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...analyse.diff.limits import LimitCheck
from ...record.files import plain
from ..document import Document, Paragraph
from ..phrase import line, toned

_TONES = {"PASS": "green", "FAIL": "bold red", "UNCLEAR": "bold red", "N/A": "bold red", "SKIP": "yellow"}


def check_document(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> Document:
    """A line a check. `emulated`: the name of an emulated device."""
    return Document(summary(run, found), tuple(_blocks(run, emulated, found)))


def _blocks(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> Iterator[Paragraph]:
    yield Paragraph(toned(one_line(summary(run, found)), "bold"), one_line=True)
    if emulated is not None:
        said = f"EMULATED: it ran on {one_line(emulated)}, no GPU was measured."
        yield Paragraph(toned(said, "bold yellow"), one_line=True)
    width = max(len(each.what) for each in found)
    wide = max(5, *(len(outcome(each)) for each in found))
    for each in found:
        word = outcome(each)
        said = f" {one_line(each.what):{width}}  {measured(each)}, {wanted(each)}"
        note = f"  ({one_line(each.note)})" if each.note else ""
        yield Paragraph(line((f"{word:{wide}}", _TONES[word]), f"{said}{note}"), one_line=True)


def one_line(text: str) -> str:
    """In a CI's log a line of its own, begun with `::`, would be a command to GitHub."""
    return " ".join(str(plain(text)).split())


def summary(run: str, found: Sequence[LimitCheck]) -> str:
    """How many hold."""
    failed = [each for each in found if not each.holds]
    if not failed:
        return f"{run}: all {len(found)} checks hold."
    return f"{run}: {len(failed)} of {len(found)} checks fail: {', '.join(_named(each) for each in failed)}."


def _named(check: LimitCheck) -> str:
    return f"{check.name} (unclear)" if check.unclear else check.name


def outcome(check: LimitCheck) -> str:
    """PASS, FAIL; UNCLEAR or N/A for what noise hides or was not measured, which fails; SKIP for what is let pass."""
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
        return "needed"
    return f"{'at most' if check.at_most else 'at least'} {_value(check.limit, check.unit)}"


def _value(value: float | str, unit: str) -> str:
    return value if isinstance(value, str) else f"{value:.4g} {unit}".rstrip()
