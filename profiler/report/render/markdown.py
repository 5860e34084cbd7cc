"""Documents in a few lines of Markdown, for a pull request: below 60 lines, as GitHub renders it.

What was recorded (commands, paths, titles) is text here, never markup: no link, no mention, no HTML comes of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from ...analyse.causes.finding import Finding
from ...analyse.cells.comparison import Cell, Comparison
from ...analyse.cells.differential import verdict_of
from ...analyse.diff.limits import LimitCheck
from ...analyse.ranks import figures as ranks_figures
from ...record.files import plain
from ..document import (
    Caution,
    Changes,
    Document,
    EvidenceTable,
    OtherFindings,
    Quality,
    SharesOfTime,
    Verdict,
    blocks_of_kind,
)
from ..documents import cells_table
from ..documents.check import measured, outcome, summary, wanted
from ..documents.comparison import comparison_title
from ..words.figures import NOT_MEASURED, prediction, share

MOST_FINDINGS = 5
MOST_EVIDENCE = 8
MOST_NOTES = 5
MOST_CELLS = 40
LONGEST = 400
"""Characters of one text."""
_MARKUP = re.compile(r"[\\`*_{}\[\]|~$]|^[-+](?=\s|$)|(?<=^\d)[.)](?=\s)|(?<=^\d\d)[.)](?=\s)")
_LINKED = re.compile(r"#|@|\bGH-(?=\d)|:(?=//)", re.IGNORECASE)
"""Signs after which GitHub makes a link of an issue, a person or an address, also where they are escaped."""


def markdown(document: Document) -> str:
    """Of a run, or of a process that was watched from outside."""
    return "\n".join(_lines(document)) + "\n"


def of_checks(run: str, emulated: str | None, found: Sequence[LimitCheck]) -> str:
    """A table of checks. `emulated`: the name of an emulated device."""
    lines = [f"### {_whole(summary(run, found))}", ""]
    if emulated is not None:
        lines += [f"**Emulated**: it ran on {_whole(emulated)}, no GPU was measured.", ""]
    lines += ["| | check | measured | wanted | |", "|---|---|---:|---:|---|"]
    for each in found:
        cells = (outcome(each), each.what, measured(each), wanted(each), each.note)
        lines.append("| " + " | ".join(map(_whole, cells)) + " |")
    return "\n".join(lines) + "\n"


def _whole(words: str) -> str:
    """Uncut: what there is to do stands at the end of a note."""
    return escaped(words, longest=None)


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


def _lines(document: Document) -> Iterator[str]:
    for verdict in blocks_of_kind(document, Verdict):
        yield from _head(verdict.finding)
    yield ""
    yield f"{escaped(document.title)}."
    for caution in blocks_of_kind(document, Caution):
        yield f"**{caution.what}:** {escaped(caution.words)}"
    for time in blocks_of_kind(document, SharesOfTime):
        rows = [(escaped(row.part), share(row.share), f"{row.ms:.2f} ms") for row in time.rows if row.ms is not None]
        yield from _table(("where the time went", "share", "a step"), rows)
    for block in blocks_of_kind(document, Changes):
        yield from ("", "**Next**", "")
        yield from (f"- {escaped(one.change)}{prediction(one, block.now)}" for one in block.changes)
    for evidence in blocks_of_kind(document, EvidenceTable):
        yield from _evidence(evidence)
    for others in blocks_of_kind(document, OtherFindings):
        yield from _also(others.findings)
    for quality in blocks_of_kind(document, Quality):
        yield from _quality(quality)


def _head(verdict: Finding) -> Iterator[str]:
    severity = f" ({verdict.severity})" if verdict.severity != "none" else ""
    yield f"### whyidle: {code(verdict.cause or 'no verdict')}{severity}"
    yield ""
    yield escaped(verdict.title)


def _evidence(block: EvidenceTable) -> Iterator[str]:
    if rows := [tuple(map(escaped, row)) for row in block.rows]:
        yield from _table(("evidence", "value", "should be"), rows[:MOST_EVIDENCE])


def _also(others: Sequence[Finding]) -> Iterator[str]:
    yield ""
    for found in others[:MOST_FINDINGS]:
        yield f"- also {code(found.cause)} ({found.severity}): {escaped(found.title)}"
    if len(others) > MOST_FINDINGS:
        yield f"- and {len(others) - MOST_FINDINGS} more"


def _quality(quality: Quality) -> Iterator[str]:
    if quality.brief:
        yield ""
        yield f"<sub>{' · '.join(quality.brief)}</sub>"
    notes = quality.notes
    if notes:
        count = f"{len(notes)} note{'' if len(notes) == 1 else 's'} on this recording"
        yield from ("", f"<details><summary>{count}</summary>", "")
        yield from (f"- {escaped(note)}" for note in notes[:MOST_NOTES])
        if len(notes) > MOST_NOTES:
            yield f"- and {len(notes) - MOST_NOTES} more"
        yield from ("", "</details>")


def _comparison(result: Comparison, setting: dict[str, Any]) -> Iterator[str]:
    emulated = setting["device"]["kind"] == "emulated"
    yield f"### whyidle: {escaped(comparison_title(result, setting))}"
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
    yield f"{rate.value:.0f}" + (f" ({rate.low:.0f} to {rate.high:.0f})" if len(cell.analyses) > 1 else "")
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
