"""Checks in words, a line each; and for a pull request's page, as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console, Group
from rich.text import Text

from ...analyse.diff.limits import LimitCheck
from ...record.files import plain
from .summary import escaped

_STYLES = {"PASS": "green", "FAIL": "bold red", "UNCLEAR": "bold red", "N/A": "bold red", "SKIP": "yellow"}


def render(run: str, emulated: str | None, found: Sequence[LimitCheck], console: Console) -> None:
    """Print them. `emulated`: the name of an emulated device."""
    lines = [Text(one_line(summary(run, found)), style="bold")]
    if emulated is not None:
        lines.append(Text(f"EMULATED: it ran on {one_line(emulated)}, no GPU was measured.", style="bold yellow"))
    width = max(len(each.what) for each in found)
    wide = max(5, *(len(verdict(each)) for each in found))
    for each in found:
        word = verdict(each)
        line = Text(f"{word:{wide}}", style=_STYLES[word])
        line.append(f" {one_line(each.what):{width}}  {measured(each)}, {wanted(each)}", style="default not bold")
        if each.note:
            line.append(f"  ({one_line(each.note)})", style="default not bold")
        lines.append(line)
    console.print(Group(*lines), soft_wrap=True)


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


def verdict(check: LimitCheck) -> str:
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


def markdown(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> str:
    """A table; everything in it is text, whatever it holds."""
    lines = [f"### {_escaped(summary(run, found))}", ""]
    if emulated is not None:
        lines += [f"**Emulated**: it ran on {_escaped(emulated)}, no GPU was measured.", ""]
    lines += ["| | check | measured | wanted | |", "|---|---|---:|---:|---|"]
    for each in found:
        cells = (verdict(each), each.what, measured(each), wanted(each), each.note)
        lines.append("| " + " | ".join(_escaped(cell) for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    """The whole of it: what there is to do stands at the end of a note."""
    return escaped(text, longest=None)
