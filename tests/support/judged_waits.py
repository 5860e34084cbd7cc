"""A wait for data with the figures that speak for its cause, and what the rules say of it."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

from support.crafted import facts_of_run
from whyidle.analyse.causes.diagnosis import waits_explained
from whyidle.analyse.causes.finding import Finding, Next
from whyidle.analyse.run.facts import Facts
from whyidle.analyse.run.loader_stats import LoaderStats
from whyidle.analyse.run.resource_usage import Sampled
from whyidle.scenarios.planted import MS, Step, train

NOTHING: dict[str, Any] = {"workers": 2, "makers": 2}
COMPUTING = {
    "workers": 2,
    "cpu_pct": 95.0,
    "run_queue_pct": 3.0,
    "read_pct": 0.0,
    "unsplit_pct": 95.0,
    "collate_pct": 5.0,
    "worker_busy_pct": 97.0,
    "queue_ready_mean": 0.1,
    "queue_capacity": 4,
    "make_ms_per_sample": 5.0,
    "work_ms_per_batch": 40.0,
    "cpus": 8,
    "even_workers": 2.0,
}
"""Workers that compute all the time."""
CPUS = {"tree_cpus": 2.1, "cpu_budget": 8.0, "machine_busy_pct": 30.0}
FULL = {"tree_cpus": 1.95, "cpu_budget": 2.0, "machine_busy_pct": 99.0}
QUEUING = {"run_queue_pct": 70.0, "cpu_pct": 25.0}


def waiting_for_data(folder: Path) -> Facts:
    """A device that waits half of the time for data, at every step, of which nothing else is known."""
    train(folder, [[Step(fetch_ns=20 * MS)] * 100])
    facts = facts_of_run(folder)
    return dataclasses.replace(facts, set_workers=2, set_prefetch=2, persistent_workers=True, machine_cpus=8)


def judge(
    run: Facts, loader: dict[str, Any], sampled: dict[str, Any], waits: dict[str, Any] | None = None, **facts: Any
) -> list[Finding]:
    return waits_explained(
        dataclasses.replace(
            run,
            loader=LoaderStats(**NOTHING | {"process_cpu_pct": loader.get("cpu_pct", math.nan)} | loader),
            sampled=Sampled(**sampled),
            waits=dataclasses.replace(run.waits, told=1.0, **waits or {}),
            **facts,
        )
    )


def only(found: list[Finding]) -> Finding:
    assert len(found) == 1
    return found[0]


def rates(change: Next) -> tuple[float, float, float]:
    assert change.low is not None
    assert change.predicted_samples_per_s is not None
    assert change.high is not None
    return change.low, change.predicted_samples_per_s, change.high


def pieces(run: Facts, **shares: float) -> dict[str, Any]:
    """The exposed wait divided so; what is left is waiting for batches in the making."""
    whole = run.parts.input_ns
    told = {name: round(share * whole) for name, share in shares.items()}
    none = dict.fromkeys(("sampling_ns", "starting_ns", "filling_ns", "handed_ns", "slow_ns", "reading_ns"), 0)
    divided = none | {f"{name}_ns": ns for name, ns in told.items() if name != "blocked"}
    return divided | {"making_ns": whole - sum(divided.values()), "blocked_ns": told.get("blocked", 0)}
