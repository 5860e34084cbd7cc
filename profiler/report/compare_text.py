"""A comparison in words: the table, why the winner wins, what the batch size did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..analyse.compare import Cell, Comparison
from ..analyse.facts import Facts
from ..analyse.partition import PARTS
from . import bars

BAR_WIDTH = 20


def render(result: Comparison, setting: dict[str, Any], console: Console) -> None:
    """Print the comparison."""
    ascii_only = console.encoding.lower() not in ("utf-8", "utf8")
    console.print(Group(*_sections(result, setting, ascii_only)))


def _sections(result: Comparison, setting: dict[str, Any], ascii_only: bool) -> Iterator[RenderableType]:
    device = setting["device"]
    yield Text(f"{setting['scenario']} · {setting['net']} on {device['title']}", style="bold")
    yield Text(_conditions(setting))
    yield Text()
    yield table(result.cells, ascii_only)
    yield bars.legend({part: 1.0 for part in PARTS}, ascii_only)
    yield Text()
    yield from _errors(result)
    yield Text("Which loader wins, and why", style="bold")
    yield _indent(Text(_winner(result)))
    yield Text()
    yield Text("What each loader waits for", style="bold")
    yield from _verdicts(result)
    yield Text()
    if result.batch_verdicts:
        yield Text("What the batch size did", style="bold")
        for name, verdict in result.batch_verdicts.items():
            yield _indent(Text.assemble((name, "bold"), f": {verdict.text}. [{verdict.cause}]"))
        yield from _gaps(result)


def table(cells: tuple[Cell, ...], ascii_only: bool) -> Table:
    """One row a cell; fits 80 columns."""
    rows = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    rows.add_column("loader", no_wrap=True)
    rows.add_column("batch", justify="right")
    rows.add_column("samples/s", justify="right", no_wrap=True)
    rows.add_column("range", no_wrap=True)
    rows.add_column("busy %", justify="right", no_wrap=True)
    rows.add_column("a step's time", no_wrap=True, min_width=BAR_WIDTH)
    rows.add_column("waits for", overflow="fold")
    for cell in cells:
        rows.add_row(*_row(cell, ascii_only))
    return rows


def _row(cell: Cell, ascii_only: bool) -> tuple[RenderableType, ...]:
    rate, typical = cell.samples_per_s, cell.typical
    head = (cell.pipeline, str(cell.batch_size))
    if cell.status != "ok" or rate is None or typical is None or typical.facts is None:
        return (*head, cell.status, "", "", "", "")
    parts = typical.facts.parts
    shares = {part: parts.share(part) for part in PARTS}
    return (
        *head,
        f"{rate[0]:.1f}",
        f"{rate[1]:.0f}-{rate[2]:.0f}" if len(cell.facts) > 1 else "",
        f"{100 * shares['compute']:.0f}",
        bars.stacked(shares, BAR_WIDTH, ascii_only),
        typical.verdict.cause or "too few steps",
    )


def _conditions(setting: dict[str, Any]) -> str:
    data, stop = setting["dataset"], setting["stop"]
    unit, number = next(iter(stop.items()))
    return (
        f"{data['images']} images, {number} {unit[:-1] if number == 1 else unit} a run, "
        f"{setting['repeats']} runs a cell in interleaved rounds, {setting['cpu_budget']:g} CPUs, "
        f"{setting['workers']} workers, augmentation {'on' if setting['augment'] else 'off'}"
    )


def _errors(result: Comparison) -> Iterator[RenderableType]:
    troubled = [c for c in result.cells if c.error]
    said: set[str] = set()
    for cell in troubled:
        line = f"{cell.pipeline}, batch {cell.batch_size}: {cell.status}: {cell.error}"
        if cell.status == "skipped":
            line = f"{cell.pipeline}: skipped: {cell.error}"
        if line not in said:
            said.add(line)
            yield Text(line, style="yellow")
    if troubled:
        yield Text()


def _winner(result: Comparison) -> str:
    best = result.best
    if best is None or best.samples_per_s is None or best.typical is None or best.typical.facts is None:
        return "No run finished, so there is no winner."
    rate = best.samples_per_s[0]
    facts = best.typical.facts
    said = f"{best.pipeline} at batch {best.batch_size}: {rate:.1f} samples/s, the device busy {_busy(facts)}."
    if result.ties:
        names = ", ".join(f"{c.pipeline} at batch {c.batch_size}" for c in result.ties)
        said += f" Not told apart from it by these runs: {names}."
    slowest = min(
        (c for c in result.cells if c.samples_per_s is not None and c.status == "ok"),
        key=lambda c: c.samples_per_s[0] if c.samples_per_s else 0.0,
    )
    if slowest is not best and slowest.samples_per_s and slowest.typical and slowest.typical.facts:
        ratio = rate / slowest.samples_per_s[0]
        said += (
            f" It is {ratio:.1f} times as fast as {slowest.pipeline} at batch {slowest.batch_size}, which "
            f"keeps the device busy {_busy(slowest.typical.facts)}{_cost_apart(facts, slowest.typical.facts)}."
        )
    return said + f" {best.typical.verdict.title}"


def _cost_apart(best: Facts, other: Facts) -> str:
    """What making a sample costs the one and the other, where both say so."""
    mine, theirs = best.loader.make_ms_per_sample, other.loader.make_ms_per_sample
    if mine is None or theirs is None:
        return ""
    return (
        f" (a sample takes {other.loader.workers} worker{'s' * (other.loader.workers > 1)} {theirs:.1f} ms there, "
        f"{best.loader.workers} worker{'s' * (best.loader.workers > 1)} {mine:.1f} ms here)"
    )


def _verdicts(result: Comparison) -> Iterator[RenderableType]:
    """The verdict of each loader at its largest batch that ran, with what to do about it."""
    for name in dict.fromkeys(c.pipeline for c in result.cells):
        ran = [c for c in result.cells if c.pipeline == name and c.typical is not None and c.status == "ok"]
        if not ran:
            continue
        cell = max(ran, key=lambda c: c.batch_size)
        assert cell.typical is not None
        verdict = cell.typical.verdict
        line = Text.assemble((name, "bold"), f" (batch {cell.batch_size}): {verdict.title}")
        if verdict.next:
            line.append(f" Next: {verdict.next[0].change}.")
        yield _indent(line)


def _gaps(result: Comparison) -> Iterator[RenderableType]:
    """The study's picture: how long the device stands still at a time."""
    yield Text()
    yield Text("How long the device stands still at a time (gap length, median / 95 %)", style="bold")
    for name in dict.fromkeys(c.pipeline for c in result.cells):
        said = []
        for cell in (c for c in result.cells if c.pipeline == name and c.status == "ok" and c.typical):
            assert cell.typical is not None
            gaps, facts = cell.typical.gaps_ms, cell.typical.facts
            zero = "" if facts is None or facts.zero_windows_pct is None else f", {facts.zero_windows_pct:.0f} % at 0"
            if gaps:
                said.append(f"batch {cell.batch_size}: {gaps['p50']:.0f} / {gaps['p95']:.0f} ms{zero}")
        if said:
            yield _indent(Text.assemble((name, "bold"), f": {'; '.join(said)}"))
    yield _indent(Text("“% at 0”: share of the utilisation windows (1/6 s) that read 0 %", style="dim"))


def _busy(facts: Facts) -> str:
    return f"{100 * facts.parts.share('compute'):.0f} %"


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
