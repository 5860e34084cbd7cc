"""The live view: a pure function of a snapshot. What draws it again and again is the command."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..analyse.recent import Snapshot
from . import bars

LABEL = 12
"""Width of the label column."""


def render(view: Snapshot, width: int = 80, ascii_only: bool = False) -> RenderableType:
    """A panel of a few lines, at most `width` characters wide; usable from 60 on."""
    room = max(20, width - LABEL - 14)
    rows = Table.grid(padding=(0, 1))
    rows.add_column(min_width=LABEL, no_wrap=True, style="bold")
    rows.add_column(width=max(20, width - LABEL - 1), no_wrap=True, overflow="ellipsis")
    rows.add_row("run", Text(view.title))
    rows.add_row("device", Text(view.device) if view.device else Text("n/a", style="dim"))
    rows.add_row("progress", _progress(view, room, ascii_only))
    rows.add_row("utilisation", _utilisation(view, room, ascii_only))
    if view.shares:
        rows.add_row("step", bars.stacked(view.shares, room, ascii_only))
        rows.add_row("", bars.legend(view.shares, ascii_only))
    rows.add_row("samples/s", _rate(view, room, ascii_only))
    rows.add_row("queue", _queue(view, ascii_only))
    rows.add_row("host", _host(view))
    return Group(rows, _verdict(view))


def line(view: Snapshot) -> str:
    """The same in one plain line, for an output that is not a terminal."""
    return f"{view.title}: {state(view)}"


def state(view: Snapshot) -> str:
    """How far a recording is, in a line."""
    if view.state == "starting":
        return "no training step yet"
    parts = [view.state]
    parts.append(f"step {view.steps}" + (f"/{view.planned_steps}" if view.planned_steps else ""))
    if view.device:
        parts.append(f"on {view.device}")
    if view.samples_per_s is not None:
        of = f" on rank {view.rank} of {view.ranks}" if view.ranks > 1 else ""
        parts.append(f"{view.samples_per_s:.1f} samples/s{of}")
    if view.shares:
        busy = view.shares.get("compute")
        parts.append(f"device busy {'?' if busy is None else f'{100 * busy:.0f} %'}")
    if view.left_s is not None:
        parts.append(f"{duration(view.left_s)} left")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """`42 s`, `3:07 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def _progress(view: Snapshot, room: int, ascii_only: bool) -> Text:
    text = Text()
    if view.planned_steps:
        done = min(1.0, view.steps / view.planned_steps)
        length = max(8, room // 3)
        filled = round(done * length)
        full, empty = ("#", ".") if ascii_only else ("━", "─")
        text.append(full * filled, style="green")
        text.append(empty * (length - filled), style="dim")
        text.append(f" {view.steps}/{view.planned_steps} steps")
    else:
        text.append(f"{view.steps} steps")
    if view.epoch is not None:
        text.append(f", epoch {view.epoch + 1}")
    if view.left_s is not None:
        text.append(f", {duration(view.left_s)} left")
    elif view.state != "running":
        text.append(f", {view.state}")
    return text


def _utilisation(view: Snapshot, room: int, ascii_only: bool) -> Text:
    if not view.utilisation:
        return Text("n/a", style="dim")
    text = Text(bars.spark(list(view.utilisation), room, ascii_only), style="cyan")
    text.append(f" {view.utilisation[-1]:.0f} %", style="bold")
    return text


def _rate(view: Snapshot, room: int, ascii_only: bool) -> Text:
    if view.samples_per_s is None:
        return Text("n/a", style="dim")
    of = f" (rank {view.rank} of {view.ranks})" if view.ranks > 1 else ""
    room -= len(of)
    top = max(view.rates, default=0.0)
    history = [100 * r / top for r in view.rates] if top else []
    text = Text(bars.spark(history, room, ascii_only), style="green")
    text.append(f" {view.samples_per_s:.1f}", style="bold")
    text.append(of)
    return text


def _queue(view: Snapshot, ascii_only: bool) -> Text:
    if view.queue_ready is None or view.queue_capacity is None:
        return Text("none: the loader shows no finished batches" if view.steps else "n/a", style="dim")
    full, empty = ("#", ".") if ascii_only else ("●", "○")
    ready = min(view.queue_capacity, round(view.queue_ready))
    text = Text(full * ready + empty * (view.queue_capacity - ready))
    text.append(f" {view.queue_ready:.1f} of {view.queue_capacity} batches ready")
    if view.worker_busy_pct is not None:
        text.append(f"; {view.workers} worker{'s' if view.workers != 1 else ''} busy {view.worker_busy_pct:.0f} %")
    return text


def _host(view: Snapshot) -> Text:
    parts = []
    if view.tree_cpus is not None and view.cpu_budget is not None:
        parts.append(f"{view.tree_cpus:.1f} of {view.cpu_budget:g} CPUs")
    if view.steal_pct is not None:
        parts.append(f"steal {view.steal_pct:.0f} %")
    if view.memory_bytes is not None:
        parts.append(f"device memory {view.memory_bytes / 1e9:.1f} GB")
    return Text(", ".join(parts) or "n/a", style="" if parts else "dim")


def _verdict(view: Snapshot) -> Text:
    if view.verdict is None:
        return Text("waiting for the first step …", style="dim")
    return Text(f"so far: {view.verdict.title}")
