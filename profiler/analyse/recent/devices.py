"""Every accelerator of a run, as the sampler saw it over the last minutes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..run.device_state import IDLE, POWER_CAP, SLOWDOWN, THERMAL
from .gathered import RunRecords
from .series import HELD_NS, SECOND_NS, Stamps, Values, held, last_of, means, rates, told
from .snapshot import DeviceView

FRESH_NS = 30 * SECOND_NS
"""Age from which a figure of a device is not shown as that of now; the slowest are read every twenty seconds."""
REASONS = (
    (THERMAL, "heat"),
    (SLOWDOWN, "hardware slowdown"),
    (POWER_CAP, "power cap"),
)
"""Of several the one that is least usual."""


def devices_of(run: RunRecords, edges: Stamps) -> tuple[DeviceView, ...]:
    """The devices that were sampled, by number."""
    numbers = np.unique(run.device["device"])
    names = _names(run, len(numbers))
    emulated = run.device_kind == "emulated"
    limits = {} if emulated else {d.number: d.power_limit_mw for d in run.sampled if d.power_limit_mw is not None}
    return tuple(
        replace(
            _view(int(n), names.get(int(n)), emulated, run.device[run.device["device"] == n], edges, run.now_ns),
            power_limit_w=limits[n] / 1000 if n in limits else None,
        )
        for n in numbers
    )


def _view(number: int, name: str | None, emulated: bool, looks: Records, edges: Stamps, now_ns: int) -> DeviceView:
    # Windows tell utilisation only; states, which have none, are few.
    states = looks[looks["window_ns"] == NOT_MEASURED]
    times = states["t_ns"]
    fresh = states[times >= now_ns - FRESH_NS]
    return DeviceView(
        number,
        name or (f"emulated device {number}" if emulated else f"GPU {number}"),
        emulated,
        busy_pct=told(_share(looks, "utilisation_pct", edges)),
        sm_active_pct=told(_share(looks, "sm_active_pct", edges)),
        memory_pct=told(_memory_pct(states, edges)),
        power_w=told(held(times, states["power_mw"], edges) / 1000),
        pcie_rx_bytes_s=told(rates(times, states["pcie_rx_bytes"], edges)),
        pcie_tx_bytes_s=told(rates(times, states["pcie_tx_bytes"], edges)),
        memory_used_bytes=last_of(fresh["memory_used_bytes"]),
        memory_total_bytes=last_of(states["memory_total_bytes"]),
        sm_clock_mhz=last_of(fresh["sm_clock_mhz"]),
        sm_clock_max_mhz=last_of(states["sm_clock_max_mhz"]),
        memory_clock_mhz=last_of(fresh["memory_clock_mhz"]),
        temperature_c=last_of(fresh["temperature_c"]),
        pcie_generation=last_of(fresh["pcie_generation"]),
        pcie_width=last_of(fresh["pcie_width"]),
        pcie_max_generation=last_of(states["pcie_max_generation"]),
        pcie_max_width=last_of(states["pcie_max_width"]),
        processes=last_of(fresh["processes"]),
        held_down=_held_down(fresh),
    )


def _share(looks: Records, name: str, edges: Stamps) -> Values:
    """Of windows; where the driver does not say how long one is, it reaches back to the one before."""
    values = looks[name]
    known = ~np.isnan(values)
    end, length, values = looks["t_ns"][known], looks["window_ns"][known], values[known]
    before = np.maximum(end - HELD_NS, np.concatenate((end[:1] - SECOND_NS, end[:-1])))
    return means(np.where(length > 0, end - length, before), end, values, edges)


def _memory_pct(looks: Records, edges: Stamps) -> Values:
    """Its size does not change."""
    total = last_of(looks["memory_total_bytes"])
    used = held(looks["t_ns"], looks["memory_used_bytes"], edges)
    return 100 * used / total if total else np.full(len(used), np.nan)


def _held_down(looks: Records) -> str | None:
    """Why clocks are held down, by the last look that tells; `None`: they are not, or it is not known."""
    reasons = last_of(looks["throttle_reasons"])
    if reasons is None or reasons & IDLE:
        return None
    return next((why for bits, why in REASONS if reasons & bits), None)


def _names(run: RunRecords, count: int) -> dict[int, str]:
    """The devices' names by number: as the driver calls them, or else as far as the trainings tell. The sampler's
    numbers are theirs where the run named its devices, and the driver's otherwise.
    """
    named = {device.number: device.name for device in run.sampled if device.name is not None}
    # Before a run says that its device is emulated, the GPUs may have been looked at.
    if named and run.device_kind != "emulated":
        return named
    device = run.info.get("device") or {}
    # Seen from outside, a process does not tell what its devices are called.
    told = [] if run.info.get("attach") else [device, *(process.device for process in run.told)]
    titles = {str(d["title"]) for d in told if d.get("title") and d.get("kind") == device.get("kind")}
    if len(titles) == 1 and (run.device_kind == "emulated" or count <= max(1, len(run.told))):
        return dict.fromkeys(range(int(run.device["device"].max(initial=NOT_MEASURED)) + 1), titles.pop())
    return {}
