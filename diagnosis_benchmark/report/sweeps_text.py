"""Planted sweeps over batch sizes in words: what was planted, what was named, and how far the growth was off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from whyidle.report.documents import batch_size as batch_text
from whyidle.report.render import bars

from ..judged_sweeps import Growth, JudgedSweep

GROWTH = (
    "Truth and reported: the growth of the planted term, or of the whole where none was planted, in percent of the "
    "time per sample at the smaller size."
)
FIGURES = 4
"""From this column on."""
NOTHING = "-"
"""No term grew."""


def render(
    sweeps: Sequence[JudgedSweep], setting: Mapping[str, Any], failed: Sequence[tuple[str, str]], to: Console
) -> None:
    """Print them. `failed`: (cell, why) of the cells that did not run to their end."""
    to.print(Group(*_sections(sweeps, setting, failed, bars.is_ascii(to))))


def _sections(
    sweeps: Sequence[JudgedSweep], setting: Mapping[str, Any], failed: Sequence[tuple[str, str]], ascii_only: bool
) -> Iterator[RenderableType]:
    yield Text(head(setting), style="bold")
    yield Text()
    yield from judged(sweeps, failed, ascii_only)
    yield from (Text(line) for line in summary(sweeps))
    verdicts = {sweep.name: sweep.verdict for sweep in sweeps if sweep.verdict is not None}
    if verdicts:
        yield Text()
        yield Text("What the batch size did", style="bold")
        yield from batch_text.render(verdicts)


def judged(
    sweeps: Sequence[JudgedSweep], failed: Sequence[tuple[str, str]], ascii_only: bool
) -> Iterator[RenderableType]:
    """What was planted beside what was named, and what did not run."""
    yield Text("What was planted, and what was named", style="bold")
    yield Padding(_table(sweeps, ascii_only), (0, 0, 0, 2))
    yield Padding(Text(GROWTH, style="dim"), (0, 0, 0, 2))
    yield Text()
    if failed:
        yield Text("Not run to their end", style="bold")
        yield from (Padding(Text(f"{cell}: {why}", style="yellow"), (0, 0, 0, 2)) for cell, why in failed)
        yield Text()


def head(setting: Mapping[str, Any]) -> str:
    """What was run, and on what."""
    rounds = setting["repeats"]
    return (
        f"{setting['scenario']} · {setting['cpu_budget']:g} CPUs, load {setting['load']:.1f} before, "
        f"{rounds} round{'s' * (rounds != 1)} on {setting['device']['title']}"
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


def _table(sweeps: Sequence[JudgedSweep], ascii_only: bool) -> Table:
    rows = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    heads = ("", "planted", "named", "term that grew", "truth", "reported")
    for place, name in enumerate(heads):
        figures_column = place >= FIGURES
        rows.add_column(
            name, justify="right" if figures_column else "left", no_wrap=True, min_width=8 if figures_column else None
        )
    for sweep in sweeps:
        verdict = sweep.verdict
        sign = "" if sweep.right or verdict is None else "!" if ascii_only else "✗"
        cells = (
            sign,
            planted(sweep),
            _named(sweep),
            _term(sweep),
            *figures(sweep.growth),
        )
        rows.add_row(*(Text(cell, style="" if sweep.right or verdict is None else "bold") for cell in cells))
    return rows


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
    return ("n/a", "n/a") if growth is None else (f"{100 * growth.true:+.1f}", f"{100 * growth.reported:+.1f}")
