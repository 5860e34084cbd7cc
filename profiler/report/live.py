"""The live view: a moment of a run for rich to draw, in a line, and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ..analyse.recent import UNDER_WAY, DeviceView, Series, Snapshot
from ..analyse.run.resource_usage import BUDGET_USED, SHM_FULL, said_of
from ..record.files import plain
from . import bars
from .document import LEAST_SAID
from .render import written
from .words.code import short_file
from .words.figures import (
    NOT_MEASURED,
    PART_COLOURS,
    evidence_value,
    expected,
    part_name,
    prediction,
    share,
    size,
    three,
)
from .words.figures import percent as of_percent

VERSION = 2
"""Of the JSON."""
VIEWS = ("", "ranks", "devices", "workers")
"""What Tab goes through: all together, then each list by itself."""
LABEL = 10
"""Columns of the names on the left, with the blanks around them."""
FEW = 8
"""Ranks, devices or workers up to which each has a row of its own."""
BAR = 16
"""Columns of the small bars, at most."""
EVIDENCE = 4
"""Lines of evidence, at most."""
MUCH_PCT = 5.0
"""Steal, quota or I/O wait from which it is marked."""
QUIET_SECONDS = 5.0
"""Seconds without a step, or without a batch of a worker that needs less, from which that is said."""
NO_STEPS = "no training step was recorded"
NO_GPU = "no NVIDIA GPU found (`whyidle doctor` says why)"
"""Shown once the sampler has reported the machine: by then it has looked for GPUs."""
STATES = {
    "ok": "ended well",
    "oom": "out of memory",
    "lost": "lost: its process is gone",
    "watching": "no training: accelerators and machine only",
}
"""States in words; the others are words already."""
STATE_STYLES = {"running": "green", "watching": "green", "ok": "green", "starting": "yellow"}
SEVERITY_STYLES = {"none": "green", "minor": "yellow", "major": "yellow", "critical": "red"}
Named = Iterator[tuple[str, RenderableType]]
"""Rows: the name on the left, and what stands beside it."""


@dataclass(frozen=True)
class Options:
    """How to draw, as far as the run does not say."""

    ascii_only: bool = False
    view: str = ""
    """One of `VIEWS`."""
    paused: bool = False
    note: str = ""
    """Words beside the state: that the run ended and the next is awaited."""


def as_json(view: Snapshot) -> dict[str, Any]:
    """Keys as in `analyse/recent.py`; what was not measured is `null`."""
    return {"format": "whyidle-live", "version": VERSION, **asdict(view)}


def views(view: Snapshot) -> tuple[str, ...]:
    """Those of `VIEWS` that have something to show."""
    lists = zip(VIEWS[1:], (view.rank_views, view.devices, view.makers), strict=True)
    return ("", *(name for name, shown in lists if shown))


def line(view: Snapshot) -> str:
    """The run in one plain line, for an output that is not a terminal."""
    if view.state == "watching":
        each = (f"{_safe(d.name)} busy {_percent(_last(d.busy_pct))}, memory {_memory(d)}" for d in view.devices)
        none = NO_GPU if view.host.machine_busy_pct is not None else "no accelerator seen yet"
        return f"{_safe(view.title)}: {'; '.join(each) or none}"
    said = [STATES.get(view.state, _safe(view.state)), *_progress(view)]
    if view.samples_per_s is not None:
        said.append(f"{_number(view.samples_per_s)} samples/s{_on_ranks(view)}")
    if view.shares:
        said.append(f"device busy {share(view.shares.get('compute'), 0)}")
    return f"{_safe(view.title)}: {', '.join(said)}{', stand-in data' if view.stand_in else ''}"


def screen(view: Snapshot, width: int, options: Options) -> RenderableType:
    """The view on so many columns, what matters most first: a terminal that is too low cuts the rest."""
    return Group(*_Screen(view, width, options).parts())


class _Screen:
    """One moment on one width."""

    def __init__(self, view: Snapshot, width: int, options: Options) -> None:
        self.view, self.width, self.options, self.ascii = view, width, options, options.ascii_only
        self.room = max(8, width - LABEL - 1)
        """Columns beside the names."""
        self.bar = min(BAR, self.room // 3)
        """Columns of the small bars."""

    def text(self, words: str, style: str = "", wraps: bool = True) -> Text:
        """Words, also recorded ones, in the signs that the output has; wrapped, or cut at the end of a row."""
        said = written(_safe(words), self.ascii)
        cut = "crop" if self.ascii else "ellipsis"
        return Text(said, style, no_wrap=not wraps, overflow="fold" if wraps else cut)  # type: ignore[arg-type]

    def facts(self, said: Iterable[str | Text]) -> Text:
        """Facts side by side, no row ending within one; what begins with ⚠ is set off."""
        rows: list[Text] = []
        for fact in said:
            shown = fact if isinstance(fact, Text) else self.text(fact, "bold yellow" * fact.startswith("⚠"))
            if rows and rows[-1].cell_len + 2 + shown.cell_len <= self.room:
                rows[-1] = Text("  ").join((rows[-1], shown))
            else:
                rows.append(shown)
        return Text("\n").join(rows)

    def parts(self) -> Iterator[RenderableType]:
        """Everything, from the top."""
        yield from self.header()
        lists = {"ranks": self.ranks, "devices": self.devices, "workers": self.workers}
        machine = (self.host(), self.code(), self.evidence())
        sections = [self.verdict(), self.step(), *(each() for each in lists.values()), *machine]
        if self.options.view in views(self.view)[1:]:
            sections = [lists[self.options.view](), self.verdict()]
        rows = Table.grid(padding=(0, 1, 0, 0))
        rows.add_column(width=LABEL, no_wrap=True)
        rows.add_column(width=self.room, overflow="fold")
        for section in sections:
            for name, said in section:
                rows.add_row(self.text(f" {name}", wraps=False), said)
        yield rows

    def header(self) -> Iterator[RenderableType]:
        """What it is, what became of it, how far it is."""
        view = self.view
        state, style = STATES.get(view.state, view.state), STATE_STYLES.get(view.state, "red")
        if self.options.paused:
            state, style = "paused", "yellow"
        state += f"; {self.options.note}" if self.options.note else ""
        top = Table.grid(expand=True, padding=(0, 1))
        top.add_column(ratio=1)
        top.add_column(justify="right", no_wrap=True)
        top.add_row(self.text(f" {view.title}", "bold", wraps=False), self.text(state, f"bold {style}"))
        yield top
        if view.state != "watching":
            far, named = Text(" "), [device.name for device in view.devices]
            if view.planned_steps:
                full, empty = bars.gauge(min(1.0, view.steps / view.planned_steps), self.width // 4, self.ascii)
                far.append(full, "green").append(empty, "dim").append("  ")
            batch = f"batch {view.batch_size}"
            beside = [batch] if view.batch_size is not None and batch not in view.title else []
            beside += [view.device] if view.device and named != [view.device] else []
            yield far.append_text(self.text(", ".join([*_progress(view), *beside])))
        if view.deaths:
            yield self.text(f" A WORKER DIED: {said_of(view.deaths)}", "bold red")
        if view.stand_in:
            yield self.text(f" STAND-IN DATA: generated, in place of {view.stand_in}", "bold yellow")
        yield Text()

    def verdict(self) -> Named:
        """What the run waits for, since when, what to try first, and why that is believed."""
        view, found = self.view, self.view.verdict
        if view.state == "watching" and found is None:
            return
        if found is None:
            yield "verdict", self.text("waiting for the first steps" if view.state in UNDER_WAY else NO_STEPS, "dim")
            return
        style = f"bold {SEVERITY_STYLES[found.severity]}" if found.cause is not None else ""
        yield "verdict", self.text(f"{found.title}{_stretch(view)}", style)
        if found.next:
            yield "try", self.text(found.next[0].change + prediction(found.next[0], view.samples_per_s or None))

    def evidence(self) -> Named:
        """Why the verdict is believed."""
        found = self.view.verdict
        known = [item for item in found.evidence if item.value is not None] if found is not None else []
        for name, item in zip(("evidence", *[""] * (EVIDENCE - 1)), known, strict=False):
            yield name, self.text(f"{item.what}: {evidence_value(item.value, item.unit)} {expected(item.expected)}")

    def step(self) -> Named:
        """Where a step's time goes, the throughput, and how full the queue is."""
        view = self.view
        if view.state == "watching":
            return
        ms = 1e3 / view.steps_per_s if view.steps_per_s else None
        took = "" if ms is None else f"  {_milliseconds(ms)}"
        if view.shares:
            yield "step", bars.stacked(view.shares, max(1, self.room - len(took)), self.ascii).append(took, "bold")
            parts = sorted(((of, part) for part, of in view.shares.items() if of >= LEAST_SAID), reverse=True)
            yield "", self.facts(self.part(part, of, ms) for of, part in parts)
        else:
            yield "step", self.text(NOT_MEASURED, "dim")
        rate = NOT_MEASURED if view.samples_per_s is None else _number(view.samples_per_s)
        rate += _on_ranks(view)
        drawn = bars.spark(_to_top(view.rates), max(1, self.room - len(rate) - 2), self.ascii)
        yield "samples/s", Text(drawn, "green").append(f"  {rate}", "bold")
        if view.queue_ready is None or not view.queue_capacity:
            said = "n/a: this loader has no visible queue" if view.steps else NOT_MEASURED
            yield "queue", self.text(said, "dim")
            return
        full = view.queue_ready / view.queue_capacity
        style = "red" if view.queue_ready < 0.5 else "yellow" if full < 0.25 else "green"
        said = f"  {view.queue_ready:.1f} of {view.queue_capacity} batches ready"
        yield "queue", self.gauge(full, style).append(said, "")

    def part(self, part: str, of: float, ms: float | None) -> Text:
        """A part of a step with its sign and its time."""
        spent = "" if ms is None else f" {_milliseconds(of * ms)}"
        sign = Text(bars.sign(part, self.ascii), PART_COLOURS[part])
        return sign.append(f" {part_name(part)} {100 * of:.0f} %", "").append(spent, "dim")

    def gauge(self, full: float, style: str) -> Text:
        """A share as a bar."""
        filled, empty = bars.gauge(min(1.0, full), self.bar, self.ascii)
        return Text(filled, style).append(empty, "dim")

    def table(self, heads: str, rows: Sequence[Sequence[str | Text]]) -> RenderableType:
        """Rows under their heads, with the columns that have room and are not empty; many rows side by side."""
        cells = [[self.text(cell, wraps=False) if isinstance(cell, str) else cell for cell in row] for row in rows]
        if len(rows) > FEW:
            return Columns((Text("  ").join(row[:3]) for row in cells), padding=(0, 3))
        most = 3 if self.room < 40 else 5 if self.room < 60 else len(cells[0])
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        told = [place for place in range(most) if any(row[place] for row in cells)]
        for head in (heads.split(",")[place] for place in told):
            table.add_column(head, justify="left" if head in ("", "host") else "right", no_wrap=True)
        for row in cells:
            table.add_row(*(row[place] for place in told))
        return table

    def ranks(self) -> Named:
        """Where each rank's time goes."""
        each = self.view.rank_views
        rows = [
            (
                str(rank.rank),
                bars.stacked(rank.shares, self.bar, self.ascii) if rank.shares else Text(),
                share(rank.shares.get("compute"), 0),
                share(rank.shares.get("input"), 0),
                NOT_MEASURED if rank.samples_per_s is None else _number(rank.samples_per_s),
                str(rank.steps),
                rank.host,
            )
            for rank in each
        ]
        if rows:
            yield "ranks", self.table("rank,,busy,input,samples/s,steps,host", rows)

    def devices(self) -> Named:
        """How busy each accelerator is, and how it is."""
        view, large = self.view, self.options.view == "devices"
        if not view.devices:
            looked = view.state == "watching" and view.host.machine_busy_pct is not None
            yield "device", self.text(NO_GPU if looked else "no accelerator recorded", "dim")
        for device in view.devices:
            name = f"{'device' if device.emulated else 'GPU'} {device.number}"
            if not large and len(view.devices) > FEW // 2:
                yield name, self.facts([f"busy {_percent(_last(device.busy_pct))}", f"memory {_memory(device)}"])
                continue
            for label, values, style in (
                ("busy", device.busy_pct, "cyan"),
                ("SM active", device.sm_active_pct, "green"),
            ):
                if values or label == "busy":
                    said = f"  {label} {_percent(_last(values))}"
                    drawn = bars.spark(values, max(1, self.room - len(said)), self.ascii)
                    yield name, Text(drawn, style).append(said, "bold")
                    name = ""
            yield name, self.facts(_condition(device))

    def workers(self) -> Named:
        """How busy each worker is, and with what."""
        view = self.view
        rows = [
            (
                str(worker.number),
                self.gauge((worker.busy_pct or 0) / 100, "green"),
                _percent(worker.busy_pct),
                _percent(worker.reading_pct),
                _percent(worker.queued_pct),
                NOT_MEASURED if worker.batch_ms is None else _milliseconds(worker.batch_ms),
                f"⚠ {duration(quiet)}"
                if (quiet := worker.quiet_s or 0) > max(QUIET_SECONDS, 3e-3 * (worker.batch_ms or 0))
                else "",
            )
            for worker in view.makers
        ]
        if rows:
            yield "workers", self.table("worker,,busy,reading,queued,a batch,quiet", rows)
        elif view.made_in_training:
            yield "workers", self.text("none: the training process prepares batches", "dim")
        elif view.state != "watching":
            known = f"{view.workers}, busy {_percent(view.worker_busy_pct)}" if view.workers else NOT_MEASURED
            yield "workers", self.text(known)

    def host(self) -> Named:
        """CPUs, what holds the job back, reads and memory."""
        host, said = self.view.host, list[str | Text]()
        if host.tree_cpus is not None:
            budget, used = host.cpu_budget, Text()
            if budget:
                style = "red" if host.tree_cpus >= BUDGET_USED * budget else "blue"
                used = self.gauge(host.tree_cpus / budget, style).append(" ")
            said.append(used.append(f"{host.tree_cpus:.1f}{f' of {budget:g}' if budget else ''} CPUs", "bold"))
        said += [f"machine {_percent(host.machine_busy_pct)} busy"] if host.machine_busy_pct is not None else []
        pressed = (("throttled by quota", host.throttled_pct), ("steal", host.steal_pct), ("I/O wait", host.iowait_pct))
        said += [f"{'⚠ ' * (v >= MUCH_PCT)}{name} {v:.0f} %" for name, v in pressed if v is not None]
        # Two counters: with read-ahead and mapped files the disk's may be the larger one.
        read = (("reads", host.read_bytes_s), ("disk", host.storage_bytes_s))
        said += [f"{name} {size(value)}/s" for name, value in read if value is not None]
        kept = (("memory", host.memory_used_bytes), ("free", host.memory_available_bytes))
        said += [f"{name} {size(value)}" for name, value in kept if value is not None]
        if host.shm_used_bytes is not None and host.shm_total_bytes:
            full = "⚠ " * (host.shm_used_bytes > SHM_FULL * host.shm_total_bytes)
            said.append(f"{full}shm {size(host.shm_used_bytes)} of {size(host.shm_total_bytes)}")
        yield "host", self.facts(said) if said else self.text(NOT_MEASURED, "dim")

    def code(self) -> Named:
        """The verdict's line, and the lines of workers and training that are not the same."""
        where = self.view.verdict.where[:1] if self.view.verdict is not None else ()
        named = {(at.file, at.line) for at in where}
        lines = [("verdict", f"  ({at.time})", at) for at in where]
        lines += [(at.time, "", at) for at in self.view.code if (at.file, at.line) not in named]
        for name, (whose, time, at) in zip(("code", *[""] * len(lines)), lines, strict=False):
            spent = "" if at.share is None else f" {share(at.share, 0)}"
            place = f"{short_file(at.file).rpartition('/')[2]}:{at.line} {at.code or at.function}"
            yield name, self.text(f"{whose}{spent} {place}{time}", wraps=False)


def _progress(view: Snapshot) -> list[str]:
    """How far a run is: steps, what is left, the epoch, the time so far."""
    if not view.steps:
        return [NO_STEPS if view.state not in UNDER_WAY else "waiting for the first training step"]
    said = [f"{view.steps}/{view.planned_steps} steps" if view.planned_steps else f"{view.steps} steps"]
    if view.quiet_s is not None and view.quiet_s >= QUIET_SECONDS:
        said.append(f"no step for {duration(view.quiet_s)}")
    said += [f"{duration(view.left_s)} left"] if view.left_s is not None else []
    said += [f"epoch {view.epoch + 1}"] if view.epoch is not None else []
    if view.elapsed_s is not None:
        said.append(f"{duration(view.elapsed_s)}{' so far' * (view.state == 'running')}")
    return said


def _on_ranks(view: Snapshot) -> str:
    """Whose throughput it is."""
    shown = len(view.rank_views)
    return "" if shown < 2 else f" on {shown if shown == view.ranks else f'{shown} of {view.ranks}'} ranks"


def _stretch(view: Snapshot) -> str:
    """What a verdict is about: the end of a run, or how long its cause has been the same."""
    if view.state not in UNDER_WAY:
        return " (last seconds only; `whyidle report` covers the whole run)"
    since = view.verdict_since_s
    return f" (for {duration(since)})" if since is not None and since >= 1 else ""


def _condition(device: DeviceView) -> Iterator[str]:
    """Name, memory, power, heat, clocks and what crosses the link, if known; what holds it down with ⚠."""
    if device.name != f"GPU {device.number}":
        yield device.name
    if device.held_down is not None:
        yield f"⚠ throttled by {device.held_down}"
    yield f"memory {_memory(device)}"
    if device.power_w is not None:
        yield f"{device.power_w:.0f}{f'/{device.power_limit_w:.0f}' if device.power_limit_w else ''} W"
    if device.temperature_c is not None:
        yield f"{device.temperature_c} °C"
    if device.sm_clock_mhz is not None:
        yield f"{device.sm_clock_mhz}{f'/{device.sm_clock_max_mhz}' if device.sm_clock_max_mhz else ''} MHz"
    for way, rate in (("to device", device.pcie_rx_bytes_s), ("to host", device.pcie_tx_bytes_s)):
        if rate is not None:
            yield f"{way} {size(rate)}/s"


def _memory(device: DeviceView) -> str:
    used, total = device.memory_used_bytes, device.memory_total_bytes
    if used is None:
        return NOT_MEASURED
    return f"{size(used)} of {size(total)}, {100 * used / total:.0f} %" if total else size(used)


def _safe(words: str) -> str:
    """What a run says of itself, in one row and without control characters."""
    return str(plain(" ".join(words.split()))) if not words.isprintable() else words


def _to_top(values: Series) -> list[float]:
    most = max(values, default=0.0)
    return [100 * value / most for value in values] if most else []


def _last(series: Series) -> float | None:
    return series[-1] if series and series[-1] == series[-1] else None


def _percent(value: float | None) -> str:
    return of_percent(value, 0)


def duration(seconds: float) -> str:
    """`42 s`, `3:07 min`, `2:05 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def _number(value: float) -> str:
    """Samples/s with three figures or more: `3.42`, `34.2`, `342`, `12 342`."""
    return f"{value:,.0f}".replace(",", " ") if value >= 10_000 else three(value)


def _milliseconds(value: float) -> str:
    """`0.42 ms`, `38.1 ms`, `1.20 s`."""
    return f"{three(value / 1e3)} s" if value >= 999.5 else f"{three(value)} ms"
