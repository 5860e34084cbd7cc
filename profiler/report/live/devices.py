"""Accelerators: how busy they were, and how they are."""

from __future__ import annotations

from ...analyse.recent.snapshot import DeviceView, Series, Snapshot
from ..render import bars
from . import words
from .words import Options, Row, cut, flow, safe

LABEL = 12
"""Columns of the labels on the left, the blank before them included."""
VALUE = 6
"""Of a percentage on the right."""
FEW = 10
"""Values of a history that is not worth a graph of several rows."""


def devices(view: Snapshot, width: int, detail: int, options: Options, rows: int | None = None) -> list[Row]:
    """Detail 0: a row each. 1: the chosen one with history, memory and state; the others a row each.

    2: each with history; 3 and more: graphs of two rows and higher.
    """
    shown = view.devices
    if not shown:
        looked = view.state == "watching" and view.host.machine_busy_pct is not None
        return [Row(" device".ljust(LABEL)).add(words.NO_GPU if looked else "no accelerator recorded", "dim")]
    chosen = options.chosen % len(shown) if options.focus == "devices" else 0
    found: list[list[Row]] = []
    for index, device in enumerate(shown):
        large = len(shown) == 1 or detail >= 2 or (detail == 1 and index == chosen)
        marked = options.focus == "devices" and index == chosen and len(shown) > 1
        if detail and large:
            found.append(_large(device, width, max(1, detail - 1), options, marked))
        else:
            found.append([row_of(device, width, options, marked)])
    return window(found, chosen, rows, "devices", options)


def window(entries: list[list[Row]], chosen: int, rows: int | None, what: str, options: Options) -> list[Row]:
    """The entries around the chosen one that fit, and a row that says how many do not."""
    if rows is None or sum(map(len, entries)) <= rows:
        return [line for entry in entries for line in entry]
    first = end = min(chosen, len(entries) - 1)
    end += 1
    used = len(entries[first]) + 1
    while end < len(entries) and used + len(entries[end]) <= rows:
        used += len(entries[end])
        end += 1
    while first > 0 and used + len(entries[first - 1]) <= rows:
        first -= 1
        used += len(entries[first])
    hidden = [f"{first} before"] * (first > 0) + [f"{len(entries) - end} after"] * (end < len(entries))
    arrows = f" ({options.sign('↑↓', 'arrows')})" if options.keys else ""
    note = Row(" " * LABEL).add(f"more {what}: {', '.join(hidden)}{arrows}", "dim")
    return [*(line for entry in entries[first:end] for line in entry), note]


def row_of(device: DeviceView, width: int, options: Options, marked: bool = False) -> Row:
    """A device in one row."""
    row = _label(device, options, marked)
    facts = [Row(f"busy {words.percent(words.last(device.busy_pct))}", "bold")]
    if device.sm_active_pct:
        facts.append(Row(f"SM {words.percent(words.last(device.sm_active_pct))}"))
    facts += [_memory_words(device), *_condition(device, options)]
    said = flow(facts, width - LABEL - 14, rows=1)[0]
    room = min(40, max(12, width - LABEL - said.cells - 2))
    return row.add(bars.spark(device.busy_pct[-room:], room, options.ascii_only), "cyan").add("  ").join(said)


def _large(device: DeviceView, width: int, height: int, options: Options, marked: bool) -> list[Row]:
    head = _label(device, options, marked)
    condition = flow(_condition(device, options, True), width - LABEL - min(len(device.name), 12) - 3, rows=1)
    beside = condition[0] if condition else Row()
    head.add(cut(safe(device.name), max(8, width - LABEL - beside.cells - 2), options.ascii_only), "bold")
    rows = [head.to(width - beside.cells).join(beside)]
    if sum(v == v for v in device.busy_pct) < FEW:
        height = 1
    rows += graph("busy", device.busy_pct, width, height, "cyan", options)
    if any(v == v for v in device.sm_active_pct):
        rows += graph("SM active", device.sm_active_pct, width, height, "green", options)
    rows += [_memory(device, width, options)]
    if link := _link(device):
        rows += [Row("  PCIe".ljust(LABEL)).join(each) for each in flow(link, width - LABEL, rows=1)]
    return rows


def graph(label: str, values: Series, width: int, height: int, style: str, options: Options) -> list[Row]:
    """A history of percentages with its newest value, `height` rows high."""
    room = width - LABEL - VALUE - 1
    drawn = bars.graph(values, room, height, options.ascii_only)
    rows = [Row(" " * LABEL if i < height - 1 else f"  {label}".ljust(LABEL)) for i in range(height)]
    for row, band in zip(rows, drawn, strict=True):
        row.add(band, style)
    rows[-1].add(words.percent(words.last(values)).rjust(VALUE + 1), "bold")
    return rows


def _label(device: DeviceView, options: Options, marked: bool) -> Row:
    sign = options.sign("▸", ">") if marked else " "
    return Row(f"{sign}{'device' if device.emulated else 'GPU'} {device.number}".ljust(LABEL))


def _memory(device: DeviceView, width: int, options: Options) -> Row:
    share = _memory_share(device)
    said = _memory_words(device, long=True)
    row = Row("  memory".ljust(LABEL))
    if share is None:
        return row.join(said)
    full, empty = bars.gauge(share, width - LABEL - said.cells - 2, options.ascii_only)
    style = "red" if share > 0.95 else "magenta"
    return row.add(full, style).add(empty, "dim").add("  ").join(said)


def _memory_share(device: DeviceView) -> float | None:
    if device.memory_used_bytes is not None and device.memory_total_bytes:
        return device.memory_used_bytes / device.memory_total_bytes
    share = words.last(device.memory_pct)
    return None if share is None else share / 100


def _memory_words(device: DeviceView, long: bool = False) -> Row:
    used, total = device.memory_used_bytes, device.memory_total_bytes
    share = _memory_share(device)
    text = f"memory {words.NOT_MEASURED}" if not long else words.NOT_MEASURED
    if used is not None and total:
        text = words.of(used, total)
    elif used is not None:
        text = words.size(used)
    if share is not None and long:
        text += f"{f'{100 * share:.0f} %'.rjust(VALUE)}"
    return Row(text, "" if used is not None or share is not None else "dim")


def _condition(device: DeviceView, options: Options, long: bool = False) -> list[Row]:
    """List power, clocks and heat where known; with a mark and the reason where clocks are throttled."""
    said = []
    if device.held_down:
        why = f"{'throttled by ' if long else ''}{safe(device.held_down)}"
        said.append(Row(f"{options.sign('⚠', '!')} {why}", "bold yellow"))
    power = words.last(device.power_w)
    if power is not None:
        most = f"/{device.power_limit_w:.0f}" if device.power_limit_w else ""
        said.append(Row(f"{power:.0f}{most} W"))
    if device.temperature_c is not None:
        said.append(Row(f"{device.temperature_c} {options.sign('°', '')}C"))
    if device.sm_clock_mhz is not None:
        most = f"/{device.sm_clock_max_mhz}" if device.sm_clock_max_mhz else ""
        said.append(Row(f"{device.sm_clock_mhz}{most} MHz"))
    return said


def _link(device: DeviceView) -> list[Row]:
    said = []
    to, back = words.last(device.pcie_rx_bytes_s), words.last(device.pcie_tx_bytes_s)
    if to is not None or back is not None:
        said.append(Row(f"to device {words.rate(to)}"))
        said.append(Row(f"to host {words.rate(back)}"))
    if device.pcie_generation and device.pcie_width:
        most = (device.pcie_max_generation or 0, device.pcie_max_width or 0)
        slow = device.pcie_generation < most[0] or device.pcie_width < most[1]
        able = f" (can do {most[0]} x{most[1]})" if slow else ""
        link = f"link {device.pcie_generation} x{device.pcie_width}{able}"
        said.append(Row(link, "bold yellow" if slow else "dim"))
    if device.processes is not None and device.processes > 1:
        said.append(Row(f"{device.processes} processes use it"))
    return said
