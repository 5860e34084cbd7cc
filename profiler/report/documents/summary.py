"""A run or a comparison in a few lines of Markdown, for a pull request: below 60 lines, as GitHub renders it.

What was recorded (commands, paths, titles) is text here, never markup: no link, no mention, no HTML comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...analyse.attached.attached import Attached
from ...analyse.causes.finding import Evidence, Finding, Next
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.differential import verdict_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.run.analysis import Analysis
from ...analyse.run.stall_breakdown import PARTS, UNTOLD
from ...record.files import plain
from ..words.command import command_line
from . import cells_table
from . import comparison as compare_text
from . import run as text

NOT_MEASURED = text.NOT_MEASURED
LEAST_SHOWN = 0.0005
MOST_FINDINGS = 5
MOST_EVIDENCE = 8
MOST_NOTES = 5
MOST_CELLS = 40
LONGEST = 400
"""Characters of one text."""
_MARKUP = re.compile(r"[\\`*_{}\[\]|~$]|^[-+](?=\s|$)|(?<=^\d)[.)](?=\s)|(?<=^\d\d)[.)](?=\s)")
_LINKED = re.compile(r"#|@|\bGH-(?=\d)|:(?=//)", re.IGNORECASE)
"""Signs after which GitHub makes a link of an issue, a person or an address, also where they are escaped."""


def of_run(analysis: Analysis) -> str:
    """A whole run."""
    return "\n".join(_run(analysis)) + "\n"


def of_attached(seen: Attached, verdict: Finding, findings: Sequence[Finding]) -> str:
    """A process that was watched from outside."""
    command = code(command_line(seen.info.get("command")))
    lines = [*_head(verdict), "", f"Watched from outside for {seen.seconds:.0f} s: {command}."]
    lines += [*_next(verdict.next, None), *_evidence(verdict.evidence), *_also(findings, verdict), *_notes(seen.notes)]
    return "\n".join(lines) + "\n"


def of_comparison(result: Comparison, setting: dict[str, Any]) -> str:
    """The table of a comparison."""
    return "\n".join(_comparison(result, setting)) + "\n"


def escaped(value: object, longest: int | None = LONGEST) -> str:
    """A text as text: one line, with nothing in it that Markdown, HTML or GitHub acts on; cut where it is longer."""
    line = _line(value, longest).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = _MARKUP.sub(r"\\\g<0>", line)
    # The last, since the reference of a character has such a sign.
    return _LINKED.sub(r"\g<0>&#8203;", line).replace("www.", "www&#46;")


def code(value: object) -> str:
    """A text as code, outside of tables."""
    line = _line(value) or " "
    ticks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def _in_cell(written: str) -> str:
    """Code in a cell of a table: what would end the cell is escaped there, and only there."""
    return written.replace("|", "\\|")


def _line(value: object, longest: int | None = LONGEST) -> str:
    line = " ".join(plain(str(value)).split())
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


def _run(analysis: Analysis) -> Iterator[str]:
    facts, job = analysis.facts, analysis.job
    yield from _head(analysis.verdict)
    yield ""
    yield f"{escaped(text.headline(analysis))}."
    if stand_in := text.stand_in_of(analysis):
        yield f"**Stand-in data:** generated, in place of {escaped(stand_in)}."
    if (analysis.info.get("device") or {}).get("kind") == "emulated":
        yield "**Emulated device:** no figure of it was measured on a real one."
    if facts is not None:
        shares = ranks_figures.shares(analysis)
        step_ms = facts.parts.wall_ns / facts.window.count / 1e6
        shown = [part for part in (*PARTS, UNTOLD) if shares.get(part, 0.0) >= LEAST_SHOWN]
        yield from _table(
            ("where the time went", "share", "a step"),
            [(escaped(part), f"{100 * shares[part]:.1f} %", f"{shares[part] * step_ms:.2f} ms") for part in shown],
        )
    rate = None if facts is None or not facts.samples_known else facts.samples_per_s
    if job is not None and rate is not None:
        rate = job.samples_per_s
    yield from _next(analysis.verdict.next, rate)
    yield from _evidence(analysis.verdict.evidence)
    yield from _also(analysis.findings, analysis.verdict)
    yield from _quality(analysis)


def _head(verdict: Finding) -> Iterator[str]:
    severity = f" ({verdict.severity})" if verdict.severity != "none" else ""
    yield f"### whyidle: {code(verdict.cause or 'no verdict')}{severity}"
    yield ""
    yield escaped(verdict.title)


def _next(changes: Iterable[Next], now: float | None) -> Iterator[str]:
    lines = []
    for change in changes:
        predicted = ""
        if change.high is not None and now is not None:
            about = change.predicted_samples_per_s
            if about is None:
                predicted = f": at most {change.high:.0f} samples/s, now {now:.0f}"
            else:
                predicted = (
                    f": about {about:.0f} samples/s ({change.low or now:.0f} to {change.high:.0f}), now {now:.0f}"
                )
        lines.append(f"- {escaped(change.change)}{predicted}")
    if lines:
        yield from ("", "**Next**", "", *lines)


def _evidence(items: Iterable[Evidence]) -> Iterator[str]:
    rows = [
        (escaped(item.what), escaped(text.evidence_value(item.value, item.unit)), escaped(item.expected))
        for item in items
        if item.value is not None
    ]
    if rows:
        yield from _table(("evidence", "value", "should be"), rows[:MOST_EVIDENCE])


def _also(findings: Sequence[Finding], verdict: Finding) -> Iterator[str]:
    others = [found for found in findings if found is not verdict]
    if others:
        yield ""
        for found in others[:MOST_FINDINGS]:
            yield f"- also {code(found.cause)} ({found.severity}): {escaped(found.title)}"
        if len(others) > MOST_FINDINGS:
            yield f"- and {len(others) - MOST_FINDINGS} more"


def _quality(analysis: Analysis) -> Iterator[str]:
    facts = analysis.facts
    told = []
    if facts is not None:
        told += [f"{facts.window.count} steps after {facts.window.warmup_steps} of warm-up"]
        told += [f"overhead {ranks_figures.figure(analysis, 'overhead_pct') or 0.0:.2f} %"]
        steal = ranks_figures.figure(analysis, "cpu_steal_pct")
        told += [f"CPU steal {NOT_MEASURED if steal is None else f'{steal:.1f} %'}"]
    if analysis.dropped_records:
        told.append(f"{analysis.dropped_records} records dropped")
    yield ""
    if told:
        yield f"<sub>{' · '.join(told)}</sub>"
    yield from _notes(analysis.notes)


def _notes(notes: Sequence[str]) -> Iterator[str]:
    if notes:
        count = f"{len(notes)} note{'' if len(notes) == 1 else 's'} on this recording"
        yield from ("", f"<details><summary>{count}</summary>", "")
        yield from (f"- {escaped(note)}" for note in notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield f"- and {len(notes) - MOST_NOTES} more"
        yield from ("", "</details>")


def _comparison(result: Comparison, setting: dict[str, Any]) -> Iterator[str]:
    emulated = setting["device"]["kind"] == "emulated"
    yield f"### whyidle: {escaped(compare_text.title(result, setting))}"
    if question := setting.get("question"):
        yield from ("", escaped(question))
    cells = result.cells[:MOST_CELLS]
    places = cells_table.place_columns(cells, whole=True)
    mark = "emulated " if emulated else ""
    heads = (
        *(escaped(column.head) for column in places),
        f"{mark}samples/s",
        f"{mark}busy",
        f"{mark}input",
        "waits for",
    )
    rows = [
        (*(escaped(column.cells[number]) for column in places), *_figures(cell)) for number, cell in enumerate(cells)
    ]
    yield from _table(heads, rows, left=len(places))
    if len(result.cells) > MOST_CELLS:
        yield from ("", f"And {len(result.cells) - MOST_CELLS} more cells.")
    if (best := result.best) is not None:
        named = cells_table.namer(result.cells)(best)
        ties = f"; {len(result.ties)} more cannot be told from it" if result.ties else ""
        yield from ("", f"**Fastest:** {escaped(named or best.pipeline)}{ties}.")


def _figures(cell: Cell) -> Iterator[str]:
    rate, typical = cell.samples_per_s, cell.typical
    if cell.status != "ok" or rate is None or typical is None or typical.facts is None:
        yield from (escaped(cell.status), NOT_MEASURED, NOT_MEASURED, escaped(cell.error or ""))
        return
    median, low, high = rate
    yield f"{median:.0f}" if len(cell.analyses) < 2 else f"{median:.0f} ({low:.0f} to {high:.0f})"
    shares = ranks_figures.shares(typical)
    for part in ("compute", "input"):
        yield f"{100 * shares[part]:.0f} %" if part in shares else NOT_MEASURED
    verdict = verdict_of(cell)
    yield _in_cell(code(verdict.cause)) if verdict is not None and verdict.cause else NOT_MEASURED


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> Iterator[str]:
    """`left`: so many columns are aligned to the left, those after them to the right."""
    yield ""
    yield f"| {' | '.join(heads)} |"
    yield f"|{'|'.join(' :-- ' if place < left else ' --: ' for place in range(len(heads)))}|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
