"""Planted sweeps over batch sizes in words: what was planted, what was named, and how far the growth was off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from whyidle.report.document import (
    Block,
    Document,
    Heading,
    Paragraph,
    Space,
    TableBlock,
    TableColumn,
    Title,
    emulated_device,
    table,
)
from whyidle.report.documents.batch_size import batch_size_blocks
from whyidle.report.phrase import toned
from whyidle.report.words.figures import NOT_MEASURED, counted

from ..judged_sweeps import Growth, JudgedSweep

GROWTH = (
    "Truth and reported: the growth of the planted term, or of the whole where none was planted, in percent of the "
    "time per sample at the smaller size."
)
NOTHING = "-"
"""No term grew."""


def document(sweeps: Sequence[JudgedSweep], setting: Mapping[str, Any], failed: Sequence[tuple[str, str]]) -> Document:
    """All of it. `failed`: (cell, why) of the cells that did not run to their end."""
    return Document(tuple(_blocks(sweeps, setting, failed)))


def _blocks(
    sweeps: Sequence[JudgedSweep], setting: Mapping[str, Any], failed: Sequence[tuple[str, str]]
) -> Iterator[Block]:
    yield Title(head(setting))
    if setting["device"]["kind"] == "emulated":
        yield emulated_device("no figure of it was measured on a real one.")
    yield Space()
    yield from judged(sweeps, failed)
    yield from map(Paragraph, summary(sweeps))
    verdicts = {sweep.name: sweep.verdict for sweep in sweeps if sweep.verdict is not None}
    if verdicts:
        yield Space()
        yield Heading("What the batch size did")
        yield from batch_size_blocks(verdicts)


def judged(sweeps: Sequence[JudgedSweep], failed: Sequence[tuple[str, str]]) -> Iterator[Block]:
    """What was planted beside what was named, and what did not run."""
    yield Heading("What was planted, and what was named")
    yield _table(sweeps)
    yield Paragraph(toned(GROWTH, "dim"), 1)
    yield Space()
    if failed:
        yield Heading("Not run to their end")
        yield from (Paragraph(toned(f"{cell}: {why}", "yellow"), 1) for cell, why in failed)
        yield Space()


def head(setting: Mapping[str, Any]) -> str:
    """What was run, and on what."""
    return (
        f"{setting['scenario']} · {setting['cpu_budget']:g} CPUs, load {setting['load']:.1f} before, "
        f"{counted(setting['repeats'], 'round')} on {setting['device']['title']}"
    )


def summary(sweeps: Sequence[JudgedSweep]) -> list[str]:
    """How many are right, and how far the growth was off."""
    judged = [sweep for sweep in sweeps if sweep.verdict is not None]
    if not judged:
        return ["Nothing was judged: a verdict takes two batch sizes."]
    lines = [f"Cause and term as planted: {sum(sweep.right for sweep in judged)} of {len(judged)}."]
    errors = [growth.error for sweep in judged if (growth := sweep.growth) is not None]
    if errors:
        lines.append(
            f"Its growth, distance from the truth: median {median(errors):.1f} points, worst {max(errors):.1f}."
        )
    return lines


def _table(sweeps: Sequence[JudgedSweep]) -> TableBlock:
    rows = []
    for sweep in sweeps:
        wrong = sweep.verdict is not None and not sweep.right
        cells = ("✗" if wrong else "", planted(sweep), _named(sweep), _term(sweep), *figures(sweep.growth))
        rows.append([toned(cell, "bold" if wrong else "") for cell in cells])
    words = (TableColumn(name, wraps=False) for name in ("", "planted", "named", "term that grew"))
    numbers = (TableColumn(name, right=True, wraps=False, least=8) for name in ("truth", "reported"))
    return table(rows, *words, *numbers, indent=1)


def _named(sweep: JudgedSweep) -> str:
    """Short where it is right, so that the table is no wider than it must be."""
    if sweep.verdict is None:
        return "too few sizes"
    return "as planted" if sweep.verdict.cause == sweep.cause else sweep.verdict.cause


def _term(sweep: JudgedSweep) -> str:
    """The planted one, and the named one where that is another."""
    term = sweep.grew or NOTHING
    if sweep.verdict is None or sweep.verdict.grew == sweep.grew:
        return term
    return f"{term}, named {sweep.verdict.grew or 'none'}"


def planted(sweep: JudgedSweep) -> str:
    """The sweep's name, which begins with its cause."""
    return sweep.name if sweep.name.startswith(sweep.cause) else f"{sweep.cause} ({sweep.name})"


def figures(growth: Growth | None) -> tuple[str, str]:
    """True and reported, in percent."""
    if growth is None:
        return NOT_MEASURED, NOT_MEASURED
    return f"{100 * growth.true:+.1f}", f"{100 * growth.reported:+.1f}"
