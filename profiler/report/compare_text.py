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
from ..analyse.partition import PARTS, busy_strip
from . import bars, batch_text
from .command import command_line

BAR_WIDTH = 14
LEAST_RATIO = 1.05
"""The slowest cell is set beside the winner from this ratio on."""
_DEVICE = {"emulated": "the emulated device", "cpu": "the processor"}
STRIP = 40
"""Signs in a stretch of the device's time."""


def render(result: Comparison, setting: dict[str, Any], console: Console) -> None:
    """Print the comparison."""
    console.print(Group(*_sections(result, setting, bars.is_ascii(console))))


def _sections(result: Comparison, setting: dict[str, Any], ascii_only: bool) -> Iterator[RenderableType]:
    device = setting["device"]
    recorded = setting["scenario"] is None
    yield Text(title(result, setting), style="bold")
    yield _runs(result.cells) if recorded else Text(_conditions(setting))
    yield Text()
    for notice in setting.get("notices", ()):
        yield Text(notice, style="yellow")
        yield Text()
    yield table(result.cells, ascii_only, device["kind"] == "emulated")
    yield bars.legend(dict.fromkeys(PARTS, 1.0), ascii_only)
    yield Text()
    yield from _errors(result)
    yield Text("Which is fastest, and why" if recorded else "Which loader wins, and why", style="bold")
    yield _indent(Text(_winner(result, _DEVICE.get(device["kind"], "the device"))))
    yield from _losses(result)
    yield Text()
    yield Text("What they wait for" if recorded else "What each loader waits for", style="bold")
    yield from _verdicts(result)
    if result.batch_verdicts:
        yield Text()
        yield Text("What the batch size did", style="bold")
        yield from batch_text.render(result.batch_verdicts)
    elif recorded:
        yield Text()
        yield Text("No loader ran with two batch sizes: these runs say nothing about the batch size.")
    yield from _stretches(result, ascii_only)


def title(result: Comparison, setting: dict[str, Any]) -> str:
    """What was compared, on what."""
    device = setting["device"]["title"]
    if setting["scenario"] is None:
        return f"{_plural(sum(len(cell.runs) for cell in result.cells), 'recorded run')} on {device}"
    return f"{setting['scenario']} · {setting['net']} on {device}"


def _runs(cells: tuple[Cell, ...]) -> Table:
    """The recorded runs, each with its command."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(overflow="fold", ratio=1)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold", ratio=1)
    for cell in cells:
        for folder, analysis in zip(cell.runs, cell.analyses, strict=True):
            rows.add_row(Text(folder), f"batch {cell.batch_size}", Text(command_line(analysis.info.get("command"))))
    return rows


def table(cells: tuple[Cell, ...], ascii_only: bool, emulated: bool) -> Table:
    """One row a cell; fits 80 columns. Figures of an emulated device say so in their column's head."""
    rows = Table(box=None, padding=(0, 1), pad_edge=False, header_style="bold")
    rows.add_column("loader", no_wrap=True)
    rows.add_column("batch", justify="right")
    rows.add_column("emulated samples/s" if emulated else "samples/s (range)", no_wrap=True)
    rows.add_column("busy", justify="right", no_wrap=True)
    rows.add_column("a step's time", no_wrap=True, min_width=BAR_WIDTH)
    rows.add_column("waits for", overflow="fold")
    for cell in cells:
        rows.add_row(*_row(cell, ascii_only))
    return rows


def _row(cell: Cell, ascii_only: bool) -> tuple[RenderableType, ...]:
    rate, typical = cell.samples_per_s, cell.typical
    head = (Text(cell.pipeline), str(cell.batch_size))
    if cell.status != "ok" or rate is None or typical is None or typical.facts is None:
        return (*head, cell.status, "", "", "")
    parts = typical.facts.parts
    shares = {part: parts.share(part) for part in PARTS}
    return (
        *head,
        f"{rate[0]:5.1f}" + (f" ({rate[1]:.0f}-{rate[2]:.0f})" if len(cell.facts) > 1 else ""),
        f"{100 * shares['compute']:.0f} %",
        bars.stacked(shares, BAR_WIDTH, ascii_only),
        typical.verdict.cause or "too few steps",
    )


def _conditions(setting: dict[str, Any]) -> str:
    """What was run, on one or two lines."""
    unit, number = next(iter(setting["stop"].items()))
    interleaved = " in interleaved rounds" if setting["repeats"] > 1 else ""
    return ", ".join(
        (
            _plural(setting["dataset"]["images"], "image"),
            f"{_plural(number, unit[:-1])} a run",
            f"{_plural(setting['repeats'], 'run')} a cell{interleaved}",
            _plural(setting["cpu_budget"], "CPU"),
            _plural(setting["workers"], "worker"),
            f"augmentation {'on' if setting['augment'] else 'off'}",
        )
    )


def _plural(number: float, thing: str) -> str:
    return f"{number:g} {thing}{'s' * (number != 1)}"


def _errors(result: Comparison) -> Iterator[RenderableType]:
    """One line for each thing that went wrong, with the batch sizes it hit."""
    sizes: dict[tuple[str, str, str], list[str]] = {}
    for cell in result.cells:
        if cell.error:
            sizes.setdefault((cell.pipeline, cell.status, cell.error), []).append(str(cell.batch_size))
    for (pipeline, status, error), hit in sizes.items():
        yield Text(f"{pipeline}, batch {', '.join(hit)}: {status}: {error}", style="yellow")
    if sizes:
        yield Text()


def _winner(result: Comparison, device: str) -> str:
    best = result.best
    if best is None or best.samples_per_s is None or best.typical is None or best.typical.facts is None:
        return "No run finished, so there is no winner."
    rate = best.samples_per_s[0]
    facts = best.typical.facts
    said = f"{best.pipeline} at batch {best.batch_size}: {rate:.1f} samples/s, {device} busy {_busy(facts)}."
    if result.ties:
        names = ", ".join(f"{c.pipeline} at batch {c.batch_size}" for c in result.ties)
        said += f" Not told apart from it by these runs: {names}."
    slowest = min(
        (c for c in result.cells if c.samples_per_s is not None and c.status == "ok"),
        key=lambda c: c.samples_per_s[0] if c.samples_per_s else 0.0,
    )
    ratio = rate / slowest.samples_per_s[0] if slowest.samples_per_s else 1.0
    if ratio >= LEAST_RATIO and slowest not in result.ties and slowest.typical and slowest.typical.facts:
        said += (
            f" It is {ratio:.1f} times as fast as {slowest.pipeline} at batch {slowest.batch_size}, which "
            f"keeps it busy {_busy(slowest.typical.facts)}{_limits(facts, slowest.typical.facts)}."
        )
    if best.typical.verdict.cause is None:
        said += " Start-up still weighs in so short a run: this is no ranking yet."
    return said + f" {best.typical.verdict.title}"


def _losses(result: Comparison) -> Iterator[RenderableType]:
    """That the net really learnt, where it was really trained."""
    losses = [(c, c.typical.info.get("loss")) for c in result.cells if c.status == "ok" and c.typical]
    said = [f"{c.pipeline} {c.batch_size}: {loss['first']:.2f} to {loss['last']:.2f}" for c, loss in losses if loss]
    if said:
        yield _indent(Text(f"Loss, first read to last: {'; '.join(said)}."))


def _limits(best: Facts, other: Facts) -> str:
    """What the two loaders could deliver, where both say so."""
    mine, theirs = best.loader.samples_per_s_limit, other.loader.samples_per_s_limit
    if mine is None or theirs is None:
        return ""
    return f" (working all the time that loader makes {theirs:.0f} samples/s, this one {mine:.0f})"


def _verdicts(result: Comparison) -> Iterator[RenderableType]:
    """The verdict of each loader at its largest batch that has one, with what to do about it."""
    for name in dict.fromkeys(c.pipeline for c in result.cells):
        ran = [(c, c.typical.verdict) for c in result.cells if c.pipeline == name and c.typical and c.status == "ok"]
        if not ran:
            continue
        cell, verdict = max(ran, key=lambda pair: (pair[1].cause is not None, pair[0].batch_size))
        line = Text.assemble((name, "bold"), f" (batch {cell.batch_size}): {verdict.title}")
        if verdict.next:
            line.append(f" Next: {verdict.next[0].change}.")
        yield _indent(line)


def _stretches(result: Comparison, ascii_only: bool) -> Iterator[RenderableType]:
    """The study's picture: how the device works and stands still."""
    cells = [(c, c.typical, c.typical.facts) for c in result.cells if c.typical and c.typical.facts]
    if not cells:
        return
    bin_ms = _bin_ms(max(typical.step_ms["p50"] for _, typical, _ in cells))
    yield Text()
    yield Text("The device at work, and standing still", style="bold")
    rows = Table.grid(padding=(0, 2))
    rows.add_row(
        "loader, batch", f"{STRIP * bin_ms / 1e3:g} s, {bin_ms} ms a sign, high: busy", "gaps, p50 / p95", style="dim"
    )
    for cell, typical, facts in cells:
        strip = busy_strip(facts.window, facts.parts.computing, bin_ms * 1_000_000, STRIP)
        spark = bars.spark(strip, STRIP, ascii_only)
        rows.add_row(Text(f"{cell.pipeline} {cell.batch_size}"), spark, _gaps(typical.gaps_ms))
    yield _indent(rows)


def _gaps(gaps: dict[str, float]) -> str:
    return f"{gaps['p50']:.0f} / {gaps['p95']:.0f} ms" if gaps else "none"


def _bin_ms(step_ms: float) -> int:
    """A round number of ms with which a strip holds six of the longest steps."""
    return next((n for n in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500) if n * STRIP >= 6 * step_ms), 1000)


def _busy(facts: Facts) -> str:
    return f"{100 * facts.parts.share('compute'):.0f} %"


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2))
