"""Moments of runs, made by hand, for what shows them."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Console

from whyidle.analyse.causes.finding import Evidence, Finding, Next
from whyidle.analyse.recent import DeviceView, HostView, RankView, Snapshot, WorkerView
from whyidle.report import live

NAN = math.nan
WAVE = tuple(50 + 50 * math.sin(i / 9) for i in range(240))
"""A history between 0 and 100 %."""

VERDICT = Finding(
    "input.storage",
    "The device waits 31 % of the time for data: the workers wait in reads, which come from a cold cache.",
    0.31,
    0.85,
    (Evidence("reading, of the time spent making batches", 45.2, "%", "below 20"),),
    (Next("keep the data set in memory, or store it in fewer, larger files", 1712.0, 1500.0, 1900.0),),
)


def device(number: int = 0, **other: Any) -> DeviceView:
    """All of an accelerator known, its clocks held down by power, its link half as wide as it could be."""
    known: dict[str, Any] = {
        "busy_pct": (*WAVE[:-1], 63.0),
        "sm_active_pct": (*(v / 2 for v in WAVE[:-1]), 31.0),
        "power_w": 312.4,
        "power_limit_w": 700.0,
        "pcie_rx_bytes_s": 3.2e9,
        "pcie_tx_bytes_s": 1e8,
        "memory_used_bytes": 12_100_000_000,
        "memory_total_bytes": 80_000_000_000,
        "sm_clock_mhz": 1755,
        "sm_clock_max_mhz": 1980,
        "temperature_c": 54,
        "held_down": "power cap",
    }
    return DeviceView(number, **{"name": "NVIDIA H200"} | known | other)


def worker(number: int = 0, **other: Any) -> WorkerView:
    known: dict[str, Any] = {"busy_pct": 90.0, "reading_pct": 45.0, "queued_pct": 2.0, "batch_ms": 38.1, "quiet_s": 0.2}
    return WorkerView(number, **known | other)


def rank(number: int, **other: Any) -> RankView:
    known: dict[str, Any] = {"samples_per_s": 1200.0 - number, "shares": {"compute": 0.6, "input": 0.4}}
    return RankView(number, f"node{number // 4}", 412, **known | other)


def running(**other: Any) -> Snapshot:
    """A run in its third epoch, of which all is known: one device, four workers, one rank."""
    known: dict[str, Any] = {
        "steps": 412,
        "planned_steps": 1000,
        "elapsed_s": 83.0,
        "left_s": 130.0,
        "epoch": 2,
        "batch_size": 32,
        "samples_per_s": 1234.5,
        "steps_per_s": 1234.5 / 32,
        "rates": tuple(1000 + v for v in WAVE[:120]),
        "shares": {"compute": 0.63, "input": 0.31, "copy": 0.04, "sync": 0.0, "host": 0.02, "boundary": 0.0},
        "queue_ready": 3.1,
        "queue_capacity": 8,
        "verdict": VERDICT,
        "devices": (device(),),
        "makers": tuple(worker(i, busy_pct=90.0 + i) for i in range(4)),
        "host": HostView(
            tree_cpus=3.2,
            cpu_budget=4.0,
            machine_busy_pct=81.0,
            steal_pct=0.0,
            iowait_pct=4.0,
            read_bytes_s=3e8,
            storage_bytes_s=1.2e8,
            memory_used_bytes=8_000_000_000,
            memory_available_bytes=20_000_000_000,
            shm_used_bytes=200_000_000,
            shm_total_bytes=2_000_000_000,
            throttled_pct=0.0,
        ),
        "verdict_since_s": 42.0,
    }
    return Snapshot("ssd · caffe", "NVIDIA H200", "running", **known | other)


def shown(moment: Snapshot, width: int = 80, **options: Any) -> list[str]:
    """The live view of a moment, row by row; `options` are those of `live.Options`."""
    rows = Console(width=width, color_system=None).render_lines(live.screen(moment, width, live.Options(**options)))
    return ["".join(segment.text for segment in row).rstrip() for row in rows]


def text(moment: Snapshot, width: int = 80, **options: Any) -> str:
    """The same in one, with single blanks."""
    return " ".join(" ".join(shown(moment, width, **options)).split())
