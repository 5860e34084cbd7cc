"""Two sides in words: how much faster and why, the time by part, what was changed, what moved with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.diff.because import CODE, COMMAND, ENVIRONMENT, SETTING, Because, MovedFigure
from ...analyse.diff.code import changed_code
from ...analyse.diff.difference import Difference, FollowedAdvice
from ...analyse.diff.lines import WORKERS, MovedLine
from ...analyse.diff.settings import Setting, Value
from ...analyse.diff.sides import Side
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ...analyse.statistics import Estimate
from ...analyse.where.places import is_users
from ..document import LEFT, Block, Caution, Document, Heading, Paragraph, Space, TableBlock, TableColumn, Title, table
from ..phrase import Words, toned
from ..words.code import command_line, line_of
from ..words.figures import KEPT, LEAST_SHARE, NOT_MEASURED, counted, factor
from . import brief

PART_NAMES = {
    "input": "input stall",
    "copy": "copy stall",
    "sync": "sync stall",
    "host": "host stall",
    "boundary": "time outside the steps",
}


def diff_document(found: Difference) -> Document:
    """All of it."""
    return Document(tuple(_blocks(found)), tuple(_brief(found)))


MOVED = {
    "compute": "computing",
    "input": "waiting for data",
    "copy": "waiting for copies",
    "sync": "waiting for results",
    "host": "other work of the loop",
    "boundary": "time outside the steps",
}
"""Parts as time that is spent."""


def headline(found: Difference) -> str:
    """How much faster or slower B is, by what part, and because of what."""
    speedup = found.times.speedup
    runs = len(found.a.runs) + len(found.b.runs)
    these = "these two runs" if runs == 2 else f"these {runs} runs"
    if not found.times.enough:
        least = min(run.looked_at for side in (found.a, found.b) for run in side.runs)
        return (
            f"Too short to judge: B was {_percent(speedup.value)} in {these}, but one has only {least} "
            f"step{'s' * (least != 1)} after the warm-up. At least {LEAST_STEPS} are needed: record longer."
        )
    if not found.times.significant and found.crowded:
        return (
            f"Not proven: B was {_percent(speedup.value)} in {these} ({_range(speedup)}, 95 % interval), but other "
            "programs loaded the machine. Repeat on a quiet one, or record several runs a side (--a A1 A2 --b B1 B2)."
            f"{_though(found)}"
        )
    if not found.times.significant:
        return (
            f"No proven difference in speed: B was {_percent(speedup.value)}, which is within noise "
            f"({_range(speedup)}, 95 % interval).{_though(found)}"
        )
    said = f"B is {_percent(speedup.value)} ({_range(speedup)}, 95 % interval)"
    part = found.because.part
    named = [] if found.because.by else _users(found)[:1]
    most = "".join(f" The line that changed most: {line_of(each.call)}." for each in named)
    if part is None:
        return f"{said}; {_reason(found.because)}.{most}"
    return f"{said}: {moved(found, part)}{_reason(found.because)}.{most}"


def _though(found: Difference) -> str:
    """The part that changed most, though the whole did not show it."""
    terms = found.times.terms
    changed = [part for part in PARTS if part in terms and terms[part].significant]
    if not changed:
        return ""
    most = max(changed, key=lambda part: abs(terms[part].change.value))
    return f" One part did change: {moved(found, most)}."


def _percent(speedup: float) -> str:
    """In words, of throughput."""
    if speedup >= 2:
        return f"{speedup:.3g}× as fast"
    return f"{'faster' if speedup >= 1 else 'slower'} by {abs(100 * (speedup - 1)):.3g} %"


def _range(speedup: Estimate) -> str:
    if speedup.value >= 2:
        return f"{speedup.low:.3g} to {speedup.high:.3g}"
    return f"{100 * (speedup.low - 1):+.3g} to {100 * (speedup.high - 1):+.3g} %"


def moved(found: Difference, part: str) -> str:
    """The part as time per unit on each side; and as a share of the side's time, where that moved the same way."""
    terms = found.times.terms
    times = terms[part]
    a, b = times.a.value, times.b.value
    scale, unit = (1e3, "ms") if max(a, b) >= 1e3 else (1.0, "µs")
    said = f"{MOVED[part]} {_digits(a / scale)} → {_digits(b / scale)} {unit} a {found.times.unit}"
    of_a, of_b = (100 * getattr(times, s).value / getattr(terms[TOTAL], s).value for s in ("a", "b"))
    if part == "compute" or (of_b - of_a) * (b - a) <= 0:
        return said
    return f"{said} ({PART_NAMES[part]} {_digits(of_a)} % → {_digits(of_b)} %)"


def _reason(because: Because) -> str:
    """Claimed only of settings; the rest is said to be possible."""
    said = " and ".join(_changed(each) for each in because.by)
    if because.kind == SETTING:
        return f" because {said}" if len(because.by) == 1 else f" because one or more of these changed: {said}"
    if because.kind == ENVIRONMENT:
        return f", which {said} may explain (no loader setting changed)"
    if because.kind == COMMAND:
        what = "the command or the code" if changed_code(because.by) else "the command"
        return f", which {what} may explain ({said}; no recorded setting changed)"
    if because.kind == CODE:
        return f", which the changed {said} may explain (no recorded setting changed)"
    return "; no recorded setting changed" if because.part else "no recorded setting changed"


def _head(found: Difference) -> Iterator[Block]:
    yield Title(headline(found))
    if found.emulated:
        yield Caution("Emulated", "both ran on emulated devices; none of this was measured on a GPU.")
    of_a, of_b = _stand_in(found.a), _stand_in(found.b)
    both = [("both sides", of_a)] if of_a == of_b else [("side A", of_a), ("side B", of_b)]
    for where, stand_in in both:
        if stand_in is not None:
            yield Caution("Stand-in data", f"generated, in place of {stand_in}.", f"on {where}")
    yield Space()
    for side in (found.a, found.b):
        yield Paragraph(_named(side), 1)
    yield Space()
    if found.promise is not None:
        yield Heading("Advice that was followed")
        yield from (Paragraph(said, 1) for said in _promise(found.promise))
        yield Space()


def _brief(found: Difference) -> Iterator[Block]:
    """One screen."""
    yield from _head(found)
    yield Heading(f"Time a {found.times.unit}, µs (95 % intervals)")
    yield _times(found)
    yield Space()
    if changed := [each for each in (*found.settings, *found.environment) if each.told]:
        yield Heading("Changed")
        yield _settings(changed[: 2 * brief.MOST])
        yield Space()
    if lines := _users(found):
        yield Heading(f"Lines of code, µs a {found.times.unit} (95 % intervals)")
        yield _lines(lines[: brief.MOST])
        yield Space()
    if found.because.look_at:
        yield Paragraph(f"To check: {'; '.join(found.because.look_at)}.")
    runs = (f"{counted(len(side.runs), 'run')} of {side.name}" for side in (found.a, found.b))
    yield from brief.quality([f"Compared: {', '.join(runs)}"], found.notes)


def _users(found: Difference) -> list[MovedLine]:
    """The lines that are not a library's."""
    return [each for each in found.lines or () if is_users(each.call)]


def _blocks(found: Difference) -> Iterator[Block]:
    yield from _head(found)
    yield Heading(f"Time a {found.times.unit}, µs (95 % intervals)")
    yield _times(found)
    yield Space()
    for title, settings in (("Settings", found.settings), ("Environment", found.environment)):
        told = [each for each in settings if each.told]
        yield Heading(title if told else f"{title}: no recorded difference")
        if told:
            yield _settings(told)
        yield Space()
    if found.lines:
        yield Heading(f"Lines of code, µs a {found.times.unit} (95 % intervals)")
        yield _lines(found.lines)
        yield Space()
    figures = [figure for figure in found.figures if figure.moved]
    if figures:
        yield Heading("Other figures that changed")
        yield _figures(figures)
        yield Space()
    yield from _findings(found)
    if found.because.look_at:
        yield Heading("To check")
        yield from (Paragraph(f"- {look}", 1) for look in found.because.look_at)
        yield Space()
    if found.notes:
        yield Heading("Limits of this comparison")
        yield from (Paragraph(note, 1) for note in found.notes)


def _promise(followed: FollowedAdvice) -> Iterator[str]:
    seen = "" if followed.is_set else f", apparently: {followed.cause} is gone"
    yield f"{followed.change.change} (for {followed.cause}{seen})"
    promised, measured = followed.change.speedup, followed.measured
    assert promised is not None
    said, came = (f"{factor(of.value)}× ({factor(of.low)}–{factor(of.high)})" for of in (promised, measured))
    yield f"Speed: promised {said}, measured {came}: {KEPT[followed.kept]}."


def _stand_in(side: Side) -> str | None:
    stand_in = (side.info.get("dataset") or {}).get("stand_in")
    return None if stand_in is None else str(stand_in)


def _named(side: Side) -> str:
    folders = side.folders
    more = f" and {len(folders) - 1} more" if len(folders) > 1 else ""
    trial = side.info.get("trial") or {}
    what = " · ".join(str(trial[k]) for k in ("scenario", "net", "case", "pipeline") if trial.get(k))
    device = (side.info.get("device") or {}).get("title") or "unknown device"
    said = what or command_line(side.info.get("command"))
    steps = f"{side.steps} step{'s' * (side.steps != 1)}"
    return f"{side.name}  {folders[0]}{more}\n   {said} on {device}, {steps}"


def _times(found: Difference) -> TableBlock:
    rows: list[tuple[Words, ...]] = []
    whole = max(found.times.terms[TOTAL].a.value, found.times.terms[TOTAL].b.value)
    for term in (*PARTS, TOTAL):
        times = found.times.terms.get(term)
        if times is None:
            rows.append((term, NOT_MEASURED, NOT_MEASURED, NOT_MEASURED, "not told apart"))
        elif term == TOTAL or max(times.a.value, times.b.value) >= LEAST_SHARE * whole:
            colour = "" if not times.significant else "red" if times.change.value > 0 else "green"
            change = toned(_with_range(times.change, sign=True), colour)
            mark = "significant" if times.significant else ""
            name = toned(term, "bold" if term == TOTAL else "")
            rows.append((name, _with_range(times.a), _with_range(times.b), change, mark))
    return _table(rows, "A", "B", "B - A")


def _lines(lines: Iterable[MovedLine]) -> TableBlock:
    """Each with its text in a row of its own."""
    rows: list[tuple[Words, ...]] = []
    for each in lines:
        change = toned(_with_range(each.change, sign=True), "red" if each.change.value > 0 else "green")
        whose = "of all workers" if each.whose == WORKERS else "of the training"
        rows.append((line_of(each.call), _with_range(each.a), _with_range(each.b), change, whose))
        if each.call.text:
            rows.append((f"  {each.call.text}", "", "", "", ""))
    return _table(rows, "A", "B", "B - A")


def _with_range(value: Estimate, sign: bool = False) -> str:
    reach = (value.high - value.value) if value.high > value.value else 0.0
    return f"{'+' if sign and value.value > 0 else ''}{_digits(value.value)} ± {_digits(reach)}"


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _settings(settings: list[Setting]) -> TableBlock:
    rows = ((each.name, _value(each.a), _value(each.b)) for each in settings)
    return table(rows, LEFT, TableColumn("A"), TableColumn("B"), head_tone="", indent=1)


def _changed(each: Setting) -> str:
    return f"{each.name} {_value(each.a)} → {_value(each.b)}"


def _value(value: Value) -> str:
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figures(figures: list[MovedFigure]) -> TableBlock:
    rows = [
        (each.name, *(NOT_MEASURED if v is None else _digits(v) for v in (each.a, each.b)), each.unit)
        for each in figures
    ]
    return _table(rows, "A", "B")


def _table(rows: Iterable[Sequence[Words]], *heads: str) -> TableBlock:
    """Of figures between what they are of and a remark."""
    figures = (TableColumn(head, right=True) for head in heads)
    return table(rows, LEFT, *figures, LEFT, head_tone="", indent=1)


def _findings(found: Difference) -> Iterator[Block]:
    findings = found.findings
    if not (findings.appeared or findings.vanished or findings.stayed):
        return
    yield Heading("Findings")
    for how, some in (("gone", findings.vanished), ("new", findings.appeared)):
        for each in some:
            yield Paragraph(f"{how}: {each.cause} ({each.severity}, {100 * each.share:.0f} %)", 1)
    for a, b in findings.stayed:
        yield Paragraph(f"both: {b.cause} ({100 * a.share:.0f} % → {100 * b.share:.0f} %)", 1)
    yield Space()
