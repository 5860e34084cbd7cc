"""The machine: CPUs, what others take, reads, memory."""

from __future__ import annotations

from dataclasses import replace

from ...analyse.recent.snapshot import HostView, Snapshot
from ...analyse.run.resource_usage import BUDGET_USED
from ..render import bars
from . import words
from .devices import LABEL
from .lines import Row, flow
from .options import Options

GAUGE = 10
MUCH = 5.0
"""Percent of steal, quota or waiting for reads from which on it is pointed out."""
SHM_FULL = 0.9
"""Share of shared memory in use from which on it is pointed out."""


def host(view: Snapshot, width: int, detail: int, options: Options) -> list[Row]:
    """Detail 0: what fits a row, the telling first. 1: all, in as many rows as it takes. 2: with a history."""
    alone = view.state == "watching"
    seen = replace(view.host, memory_used_bytes=None) if alone else view.host
    facts = [*_cpu(view, options), *_pressed(seen), *_reads(seen), *_memory(seen)]
    head = Row(" host".ljust(LABEL))
    if not facts:
        return [head.add(words.NOT_MEASURED, "dim")]
    flowed = flow(facts, width - LABEL, "   ", None if detail else 1)
    rows = [(head if not i else Row(" " * LABEL)).join(line) for i, line in enumerate(flowed)]
    budget = view.host.cpu_budget
    # Not min(100, …), which makes 100 of what was not measured.
    values = tuple(100.0 if cpus > budget else 100 * cpus / budget for cpus in view.host.cpus) if budget else ()
    if alone:
        values = view.host.machine_busy
    if detail > 1 and values:
        drawn = bars.graph(values, width - LABEL - 7, 1, options.ascii_only)[0]
        rows.append(
            Row("  CPU".ljust(LABEL)).add(drawn, "blue").add(words.percent(words.last(values)).rjust(7), "bold")
        )
    return rows


def _cpu(view: Snapshot, options: Options) -> list[Row]:
    said = []
    used, budget = view.host.tree_cpus, view.host.cpu_budget
    if view.state != "watching" and used is not None:
        line = Row()
        if budget:
            full, empty = bars.gauge(min(1.0, used / budget), GAUGE, options.ascii_only)
            line.add(full, "red" if used >= BUDGET_USED * budget else "blue").add(empty, "dim").add(" ")
        said.append(line.add(f"{used:.1f} of {budget:g} CPUs" if budget else f"{used:.1f} CPUs", "bold"))
    if view.host.machine_busy_pct is not None:
        said.append(Row(f"machine {words.percent(view.host.machine_busy_pct)} busy"))
    return said


def _pressed(seen: HostView) -> list[Row]:
    """What holds the job back: marked where it is much, told where it is measured."""
    each = (
        ("quota held back", seen.throttled_pct),
        ("steal", seen.steal_pct),
        ("I/O wait", seen.iowait_pct),
    )
    known = sorted(((name, v) for name, v in each if v is not None and v == v), key=lambda e: e[1] < MUCH)
    return [Row(f"{name} {v:.0f} %", "bold yellow" if v >= MUCH else "") for name, v in known]


def _reads(seen: HostView) -> list[Row]:
    if seen.read_bytes_s is None and seen.storage_bytes_s is None:
        return []
    if seen.storage_bytes_s is None:
        return [Row(f"reads {words.rate(seen.read_bytes_s)}")]
    if seen.read_bytes_s is None:
        return [Row(f"disk {words.rate(seen.storage_bytes_s)}")]
    # Two counters, and none a part of the other: read-ahead and mapped files make the disk's the larger one.
    return [Row(f"reads {words.rate(seen.read_bytes_s)}, disk {words.rate(seen.storage_bytes_s)}")]


def _memory(seen: HostView) -> list[Row]:
    said = []
    if seen.memory_used_bytes is not None:
        free = f", {words.size(seen.memory_available_bytes)} free" if seen.memory_available_bytes is not None else ""
        said.append(Row(f"memory {words.size(seen.memory_used_bytes)}{free}"))
    elif seen.memory_available_bytes is not None:
        said.append(Row(f"memory {words.size(seen.memory_available_bytes)} free"))
    if seen.shm_used_bytes is not None and seen.shm_total_bytes:
        full = seen.shm_used_bytes > SHM_FULL * seen.shm_total_bytes
        text = f"shm {words.of(seen.shm_used_bytes, seen.shm_total_bytes)}"
        said.append(Row(text, "bold yellow" if full else ""))
    return said
