"""Two sides in words: how much faster and why, the time by part, what was changed, what moved with it."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ...analyse.causes.diagnosis import LEAST_STEPS
from ...analyse.diff import because as why
from ...analyse.diff.because import Because
from ...analyse.diff.blocks import TOTAL
from ...analyse.diff.code import changed_code
from ...analyse.diff.difference import Difference
from ...analyse.diff.moved import MovedFigure
from ...analyse.diff.settings import Setting, Value
from ...analyse.diff.sides import Side
from ...analyse.run.stall_breakdown import PARTS
from ...analyse.statistics import Estimate
from ...record.files import plain
from ..render import bars
from ..words.command import command_line

NOT_RECORDED = "n/a"
LEAST_SHOWN = 0.0005
"""Share of the whole below which a part of both sides is not worth a line."""
PART_NAMES = {
    "input": "input stall",
    "copy": "copy stall",
    "sync": "sync stall",
    "host": "host stall",
    "boundary": "time outside the steps",
}


def render(found: Difference, console: Console) -> None:
    """Print it."""
    console.print(Group(*_sections(found, bars.is_ascii(console))))


MOVED = {
    "compute": "computing",
    "input": "waiting for data",
    "copy": "waiting for copies",
    "sync": "waiting in synchronising calls",
    "host": "other work of the loop",
    "boundary": "time outside the steps",
}
"""Parts as time that is spent."""


def headline(found: Difference, arrow: str = "→") -> str:
    """How much faster or slower B is, by what part, and because of what."""
    speedup = found.times.speedup
    runs = len(found.a.runs) + len(found.b.runs)
    these = "these two runs" if runs == 2 else f"these {runs} runs"
    if not found.times.enough:
        least = min(run.looked_at for side in (found.a, found.b) for run in side.runs)
        return (
            f"Nothing can be told: B was {_percent(speedup.value)} in {these}, of which one has {least} "
            f"step{'s' * (least != 1)} after the warm-up. At least {LEAST_STEPS} are needed: record longer."
        )
    if not found.times.significant and found.crowded:
        return (
            f"Not proven: B was {_percent(speedup.value)} in {these} ({_range(speedup)}, 95 % interval), but other "
            f"programs filled the machine. Repeat on a quiet machine, repeat runs on each side, or give --noise."
            f"{_though(found, arrow)}"
        )
    if not found.times.significant:
        return (
            f"No difference in speed shown: B was {_percent(speedup.value)}, which is within noise "
            f"({_range(speedup)}, 95 % interval).{_though(found, arrow)}"
        )
    said = f"B is {_percent(speedup.value)} ({_range(speedup)}, 95 % interval)"
    part = found.because.part
    if part is None:
        return f"{said}; {_reason(found.because, arrow)}."
    return f"{said}: {moved(found, part, arrow)} {_reason(found.because, arrow)}."


def _though(found: Difference, arrow: str) -> str:
    """The part that changed most, though the whole did not show it."""
    terms = found.times.terms
    changed = [part for part in PARTS if part in terms and terms[part].significant]
    if not changed:
        return ""
    most = max(changed, key=lambda part: abs(terms[part].change.value))
    return f" What did change: {moved(found, most, arrow)}."


def _percent(speedup: float) -> str:
    """In words, of throughput."""
    if speedup >= 2:
        return f"{speedup:.3g} times as fast"
    return f"{'faster' if speedup >= 1 else 'slower'} by {abs(100 * (speedup - 1)):.3g} %"


def _range(speedup: Estimate) -> str:
    if speedup.value >= 2:
        return f"{speedup.low:.3g} to {speedup.high:.3g}"
    return f"{100 * (speedup.low - 1):+.3g} to {100 * (speedup.high - 1):+.3g} %"


def moved(found: Difference, part: str, arrow: str) -> str:
    """The part as time per unit on each side; and as a share of the side's time, where that moved the same way."""
    terms = found.times.terms
    times = terms[part]
    a, b = times.a.value, times.b.value
    scale, unit = (1e3, "ms") if max(a, b) >= 1e3 else (1.0, _micro(arrow))
    said = f"{MOVED[part]} {_digits(a / scale)} {arrow} {_digits(b / scale)} {unit} a {found.times.unit}"
    of_a, of_b = (100 * getattr(times, s).value / getattr(terms[TOTAL], s).value for s in ("a", "b"))
    if part == "compute" or (of_b - of_a) * (b - a) <= 0:
        return said
    return f"{said} ({PART_NAMES[part]} {_digits(of_a)} % {arrow} {_digits(of_b)} %)"


def _reason(because: Because, arrow: str) -> str:
    """Claimed only of settings; the rest is said to be possible."""
    said = " and ".join(_changed(each, arrow) for each in because.by)
    if because.kind == why.SETTING:
        return f"because {said}" if len(because.by) == 1 else f"because of one or more of: {said}"
    if because.kind == why.ENVIRONMENT:
        return f"which {said} may explain; no setting does"
    if because.kind == why.COMMAND:
        what = "the command or the code" if changed_code(because.by) else "the command"
        return f"which {what} may explain ({said}); no recorded setting does"
    if because.kind == why.CODE:
        return f"which the changed {said} may explain; no recorded setting does"
    return "which no recorded setting explains" if because.part else "no recorded setting explains it"


def _sections(found: Difference, ascii_only: bool) -> Iterator[RenderableType]:
    arrow = "->" if ascii_only else "→"
    yield Text(str(plain(headline(found, arrow))), style="bold")
    if found.emulated:
        yield Text("EMULATED: both ran on emulated devices; none of this was measured on a GPU.", style="bold yellow")
    of_a, of_b = _stand_in(found.a), _stand_in(found.b)
    both = [("both sides", of_a)] if of_a == of_b else [("side A", of_a), ("side B", of_b)]
    for where, stand_in in both:
        if stand_in is not None:
            yield Text(f"STAND-IN DATA on {where}: generated, in place of {plain(stand_in)}.", style="bold yellow")
    yield Text()
    for side in (found.a, found.b):
        yield _indent(Text(_named(side)))
    yield Text()
    yield Text(f"Time a {found.times.unit}, {_micro(arrow)} (95 % intervals)", style="bold")
    yield _indent(_times(found, ascii_only))
    yield Text()
    for title, settings in (("Settings", found.settings), ("Environment", found.environment)):
        told = [each for each in settings if each.told]
        yield Text(title if told else f"{title}: what was recorded is the same on both sides", style="bold")
        if told:
            yield _indent(_settings(told))
        yield Text()
    figures = [figure for figure in found.figures if figure.moved]
    if figures:
        yield Text("What moved with it", style="bold")
        yield _indent(_figures(figures))
        yield Text()
    yield from _findings(found, arrow)
    if found.because.look_at:
        yield Text("Look at", style="bold")
        yield from (_indent(Text(f"- {plain(look)}")) for look in found.because.look_at)
        yield Text()
    if found.notes:
        yield Text("What these runs cannot tell", style="bold")
        yield from (_indent(Text(str(plain(note)))) for note in found.notes)


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
    return str(plain(f"{side.name}  {folders[0]}{more}\n   {said} on {device}, {steps}"))


def _times(found: Difference, ascii_only: bool) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    for _ in range(3):
        table.add_column(justify="right")
    table.add_column()
    table.add_row(Text(""), Text("A"), Text("B"), Text("B - A"), Text(""))
    whole = max(found.times.terms[TOTAL].a.value, found.times.terms[TOTAL].b.value)
    for term in (*PARTS, TOTAL):
        times = found.times.terms.get(term)
        if times is None:
            table.add_row(term, NOT_RECORDED, NOT_RECORDED, NOT_RECORDED, "not told apart")
        elif term == TOTAL or max(times.a.value, times.b.value) >= LEAST_SHOWN * whole:
            colour = "" if not times.significant else "red" if times.change.value > 0 else "green"
            table.add_row(
                Text(term, style="bold" if term == TOTAL else ""),
                _with_range(times.a, ascii_only),
                _with_range(times.b, ascii_only),
                Text(_with_range(times.change, ascii_only, sign=True), style=colour),
                "significant" if times.significant else "",
            )
    return table


def _with_range(value: Estimate, ascii_only: bool, sign: bool = False) -> str:
    reach = (value.high - value.value) if value.high > value.value else 0.0
    plus = "+-" if ascii_only else "±"
    return f"{'+' if sign and value.value > 0 else ''}{_digits(value.value)} {plus} {_digits(reach)}"


def _digits(value: float) -> str:
    """Three digits, without an exponent."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def _micro(arrow: str) -> str:
    """Microseconds, in ASCII where the arrow is."""
    return "us" if arrow.isascii() else "µs"


def _settings(settings: list[Setting]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_row("", "A", "B")
    for each in settings:
        table.add_row(*(Text(str(plain(word))) for word in (each.name, _value(each.a), _value(each.b))))
    return table


def _changed(each: Setting, arrow: str) -> str:
    return str(plain(f"{each.name} {_value(each.a)} {arrow} {_value(each.b)}"))


def _value(value: Value) -> str:
    if value is None:
        return NOT_RECORDED
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _figures(figures: list[MovedFigure]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_row("", "A", "B")
    for each in figures:
        values = (NOT_RECORDED if v is None else _digits(v) for v in (each.a, each.b))
        table.add_row(each.name, *values, each.unit)
    return table


def _findings(found: Difference, arrow: str) -> Iterator[RenderableType]:
    findings = found.findings
    if not (findings.appeared or findings.vanished or findings.stayed):
        return
    yield Text("Findings", style="bold")
    for how, some in (("gone", findings.vanished), ("new", findings.appeared)):
        for each in some:
            yield _indent(Text(str(plain(f"{how}: {each.cause} ({each.severity}, {100 * each.share:.0f} %)"))))
    for a, b in findings.stayed:
        yield _indent(Text(str(plain(f"both: {b.cause} ({100 * a.share:.0f} % {arrow} {100 * b.share:.0f} %)"))))
    yield Text()


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
