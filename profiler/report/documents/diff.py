"""Two sides in words: how much faster and why, the time by part, what was changed, what moved with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.diff.difference import COMMAND, ENVIRONMENT, SETTING, WORKERS, Because, Difference, MovedLine
from ...analyse.diff.settings import Setting, Value
from ...analyse.diff.sides import Side
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ...analyse.statistics import Estimate
from ...analyse.where.places import is_users
from ...record.code import CODE
from ..document import (
    LEFT,
    MOST_BRIEF,
    Block,
    Caution,
    Document,
    Heading,
    Paragraph,
    Space,
    TableBlock,
    TableColumn,
    Title,
    Words,
    brief_quality,
    section,
    table,
    toned,
)
from ..words.code import command_line, line_of
from ..words.figures import KEPT, LEAST_SHARE, NOT_MEASURED, counted, factor

MOVED = {
    "compute": ("computing", ""),
    "input": ("waiting for data", "input stall"),
    "copy": ("waiting for copies", "copy stall"),
    "sync": ("waiting for results", "sync stall"),
    "host": ("other work of the loop", "host stall"),
    "boundary": ("time outside the steps", "time outside the steps"),
}
"""Part → as time that is spent, as a share of the time; the share of computing is not shown."""


def diff_document(found: Difference) -> Document:
    """Say all of it."""
    return Document(tuple(_blocks(found)), tuple(_brief(found)))


def headline(found: Difference) -> str:
    """Say how much faster or slower B is, by what part, and because of what."""
    speedup, terms = found.times.speedup, found.times.terms
    everyone = (*found.a.runs, *found.b.runs)
    these = "these two runs" if len(everyone) == 2 else f"these {len(everyone)} runs"
    much = f"{speedup.low:.3g} to {speedup.high:.3g}"
    if speedup.value < 2:
        much = f"{100 * (speedup.low - 1):+.3g} to {100 * (speedup.high - 1):+.3g} %"
        percent = f"{'faster' if speedup.value >= 1 else 'slower'} by {abs(100 * (speedup.value - 1)):.3g} %"
    else:
        percent = f"{speedup.value:.3g}× as fast"
    if not found.times.enough:
        least = min(run.looked_at for run in everyone)
        return (
            f"Too short to judge: B was {percent} in {these}, but one has only {least} "
            f"step{'s' * (least != 1)} after the warm-up. At least {LEAST_STEPS} are needed: record longer."
        )
    if not found.times.significant:
        # The part that changed most, though the whole did not show it.
        changed = [part for part in PARTS if part in terms and terms[part].significant]
        most = max(changed, key=lambda part: abs(terms[part].change.value), default=None)
        though = "" if most is None else f" One part did change: {moved(found, most)}."
        if found.crowded:
            return (
                f"Not proven: B was {percent} in {these} ({much}, 95 % interval), but other programs loaded the "
                "machine. Repeat on a quiet one, or record several runs a side (--a A1 A2 --b B1 B2)."
                f"{though}"
            )
        return f"No proven difference in speed: B was {percent}, which is within noise ({much}, 95 % interval).{though}"
    said, part = f"B is {percent} ({much}, 95 % interval)", found.because.part
    named = [] if found.because.by else _users(found)[:1]
    line = "".join(f" The line that changed most: {line_of(each.call)}." for each in named)
    return f"{said}{'; ' if part is None else f': {moved(found, part)}'}{_reason(found.because)}.{line}"


def moved(found: Difference, part: str) -> str:
    """Say a part as time per unit on each side; and as a share of the side's time, where that moved the same way."""
    times, whole = found.times.terms[part], found.times.terms[TOTAL]
    a, b = times.a.value, times.b.value
    scale, unit = (1e3, "ms") if max(a, b) >= 1e3 else (1.0, "µs")
    spent, stall = MOVED[part]
    said = f"{spent} {_digits(a / scale)} → {_digits(b / scale)} {unit} a {found.times.unit}"
    of_a, of_b = 100 * a / whole.a.value, 100 * b / whole.b.value
    if not stall or (of_b - of_a) * (b - a) <= 0:
        return said
    return f"{said} ({stall} {_digits(of_a)} % → {_digits(of_b)} %)"


def _reason(because: Because) -> str:
    """Claimed only of settings; the rest is said to be possible."""
    said = " and ".join(f"{each.name} {_value(each.a)} → {_value(each.b)}" for each in because.by)
    if because.kind == SETTING:
        return f" because {said}" if len(because.by) == 1 else f" because one or more of these changed: {said}"
    if because.kind == ENVIRONMENT:
        return f", which {said} may explain (no loader setting changed)"
    if because.kind == COMMAND:
        what = "the command or the code" if any(each.name == CODE for each in because.by) else "the command"
        return f", which {what} may explain ({said}; no recorded setting changed)"
    if because.kind == CODE:
        return f", which the changed {said} may explain (no recorded setting changed)"
    return "; no recorded setting changed" if because.part else "no recorded setting changed"


def _head(found: Difference) -> Iterator[Block]:
    yield Title(headline(found))
    if found.emulated:
        yield Caution("Emulated", "both ran on emulated devices; none of this was measured on a GPU.")
    of_a, of_b = ((side.info.get("dataset") or {}).get("stand_in") for side in (found.a, found.b))
    for where, stand_in in [("both sides", of_a)] if of_a == of_b else [("side A", of_a), ("side B", of_b)]:
        if stand_in is not None:
            yield Caution("Stand-in data", f"generated, in place of {stand_in}.", f"on {where}")
    yield Space()
    for side in (found.a, found.b):
        yield Paragraph(_named(side), 1)
    yield Space()
    if (followed := found.promise) is not None and followed.advice.speedup is not None:
        seen = "" if followed.is_set else f", apparently: {followed.cause} is gone"
        ranges = (followed.advice.speedup, followed.measured)
        said, came = (f"{factor(of.value)}× ({factor(of.low)}–{factor(of.high)})" for of in ranges)
        yield from section(
            "Advice that was followed",
            Paragraph(f"{followed.advice.change} (for {followed.cause}{seen})", 1),
            Paragraph(f"Speed: promised {said}, measured {came}: {KEPT[followed.kept]}.", 1),
        )
    yield from section(f"Time a {found.times.unit}, µs (95 % intervals)", _times(found))


def _brief(found: Difference) -> Iterator[Block]:
    """One screen."""
    yield from _head(found)
    if changed := (*found.settings, *found.environment):
        yield from section("Changed", _settings(changed[: 2 * MOST_BRIEF]))
    if lines := _users(found):
        yield from _lines(found, lines[:MOST_BRIEF])
    if found.because.look_at:
        yield Paragraph(f"To check: {'; '.join(found.because.look_at)}.")
    runs = (f"{counted(len(side.runs), 'run')} of {side.name}" for side in (found.a, found.b))
    yield from brief_quality([f"Compared: {', '.join(runs)}"], found.notes)


def _blocks(found: Difference) -> Iterator[Block]:
    yield from _head(found)
    for title, settings in (("Settings", found.settings), ("Environment", found.environment)):
        yield from section(title, _settings(settings)) if settings else section(f"{title}: no recorded difference")
    if found.lines:
        yield from _lines(found, found.lines)
    if figures := [figure for figure in found.figures if figure.moved]:
        rows = (
            (each.name, *(NOT_MEASURED if v is None else _digits(v) for v in (each.a, each.b)), each.unit)
            for each in figures
        )
        yield from section("Other figures that changed", _table(rows, "A", "B"))
    changed = [
        *(f"gone: {each.cause} ({each.severity}, {100 * each.share:.0f} %)" for each in found.findings.vanished),
        *(f"new: {each.cause} ({each.severity}, {100 * each.share:.0f} %)" for each in found.findings.appeared),
        *(f"both: {b.cause} ({100 * a.share:.0f} % → {100 * b.share:.0f} %)" for a, b in found.findings.stayed),
    ]
    if changed:
        yield from section("Findings", *(Paragraph(said, 1) for said in changed))
    if looks := found.because.look_at:
        yield from section("To check", *(Paragraph(f"- {look}", 1) for look in looks))
    if found.notes:
        yield Heading("Limits of this comparison")
        yield from (Paragraph(note, 1) for note in found.notes)


def _users(found: Difference) -> list[MovedLine]:
    """The lines that are not a library's."""
    return [each for each in found.lines or () if is_users(each.call)]


def _named(side: Side) -> str:
    folders = side.folders
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    trial = side.info.get("trial") or {}
    what = " · ".join(str(trial[k]) for k in ("scenario", "net", "case", "pipeline") if trial.get(k))
    device = (side.info.get("device") or {}).get("title") or "unknown device"
    said = what or command_line(side.info.get("command"))
    return f"{side.name}  {folders[0]}{more}\n   {said} on {device}, {counted(side.steps, 'step')}"


def _times(found: Difference) -> TableBlock:
    rows: list[tuple[Words, ...]] = []
    whole = found.times.terms[TOTAL]
    for term in (*PARTS, TOTAL):
        times = found.times.terms.get(term)
        if times is None:
            rows.append((term, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, "not told apart"))
        elif term == TOTAL or max(times.a.value, times.b.value) >= LEAST_SHARE * max(whole.a.value, whole.b.value):
            mark = "significant" if times.significant else ""
            name = toned(term, "bold" if term == TOTAL else "")
            change = _change(times.change, coloured=times.significant)
            rows.append((name, _with_range(times.a), _with_range(times.b), change, mark))
    return _table(rows, "A", "B", "B - A")


def _lines(found: Difference, lines: Iterable[MovedLine]) -> Iterator[Block]:
    """Each line with its text in a row of its own."""
    rows: list[tuple[Words, ...]] = []
    for each in lines:
        whose = "of all workers" if each.whose == WORKERS else "of the training"
        rows.append((line_of(each.call), _with_range(each.a), _with_range(each.b), _change(each.change), whose))
        if each.code:
            rows.append((f"  {each.code}", "", "", "", ""))
    title = f"Lines of code, µs a {found.times.unit} (95 % intervals)"
    return section(title, _table(rows, "A", "B", "B - A"))


def _change(change: Estimate, *, coloured: bool = True) -> Words:
    said = f"{'+' if change.value > 0 else ''}{_with_range(change)}"
    return toned(said, ("red" if change.value > 0 else "green") if coloured else "")


def _with_range(value: Estimate) -> str:
    reach = (value.high - value.value) if value.high > value.value else 0.0
    return f"{_digits(value.value)} ± {_digits(reach)}"


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _settings(settings: Sequence[Setting]) -> TableBlock:
    rows = ((each.name, _value(each.a), _value(each.b)) for each in settings)
    return table(rows, LEFT, TableColumn("A"), TableColumn("B"), head_tone="", indent=1)


def _value(value: Value) -> str:
    if value is None or isinstance(value, bool):
        return {None: NOT_MEASURED, True: "yes", False: "no"}[value]
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _table(rows: Iterable[Sequence[Words]], *heads: str) -> TableBlock:
    """Figures between what they are of and a remark."""
    figures = (TableColumn(head, right=True) for head in heads)
    return table(rows, LEFT, *figures, LEFT, head_tone="", indent=1)
