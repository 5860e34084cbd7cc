"""A job of several ranks in the JSON of the contract: the ranks' own figures, summed or averaged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any

from ...analyse.ranks import figures as ranks_figures
from ...analyse.ranks.job import Job
from ...analyse.run.analysis import Analysis, RankAnalysis
from ...analyse.run.stall_breakdown import PARTS

Combine = Callable[[list[float]], float]

_INPUT: dict[str, Combine] = {"workers": sum, "samples_per_s_limit": sum}
"""Of the loaders everything else is averaged."""
_QUALITY: dict[str, Combine] = {
    "overhead_us_per_step": max,
    "late_samples_pct": max,
}

DEVICE = ("busy_pct", "au_pct", "utilisation_pct", "sm_active_pct", "memory_peak_bytes")
"""Metrics of the device."""


def labelled(report: dict[str, Any], part: RankAnalysis, job: Job | None) -> dict[str, Any]:
    """The report of one rank, with whose it is and how late it was; `null`: not known."""
    late = job.late_ns.get(part.rank) if job is not None else None
    waits = job.waits_ns.get(part.rank) if job is not None else None
    return {
        "rank": part.rank,
        "host": part.host or None,
        "late_ms": None if late is None else late / 1e6,
        "waits_ms": None if waits is None else waits / 1e6,
        **report,
    }


def of_job(lead: dict[str, Any], detail: list[dict[str, Any]], analysis: Analysis) -> dict[str, Any]:
    """The report of the job.

    Args:
        lead: that of the rank whose verdict it is, with the job's own verdict and notes.
        detail: that of each rank.
    """
    job = analysis.job
    return lead | {
        "run": lead["run"] | {"ranks": len(detail), "device": lead["run"]["device"] | {"count": _devices(detail)}},
        "window": lead["window"] | _window(job),
        "device": lead["device"] | _metrics(analysis, *DEVICE) | {"gaps": _gaps(detail, lead)},
        "breakdown": _breakdown(analysis),
        "input": _combined(detail, "input", dict.fromkeys(lead["input"], fmean) | _INPUT)
        | _metrics(analysis, "worker_busy_pct", "queue_ready_mean"),
        "headroom": _headroom(lead["headroom"], job),
        "quality": lead["quality"]
        | _combined(detail, "quality", _QUALITY)
        | _metrics(analysis, "overhead_pct", "cpu_steal_pct"),
        "ranks_detail": detail,
    }


def _metrics(analysis: Analysis, *names: str) -> dict[str, float | None]:
    return {name: ranks_figures.figure(analysis, name) for name in names}


def _breakdown(analysis: Analysis) -> dict[str, float | None]:
    shares = ranks_figures.shares(analysis)
    return {f"{part}_pct": 100 * shares[part] if part in shares else None for part in PARTS}


def _window(job: Job | None) -> dict[str, Any]:
    if job is None:
        return {}
    return {"samples": job.samples, "wall_s": job.wall_ns / 1e9, "samples_per_s": job.samples_per_s}


def _devices(detail: list[dict[str, Any]]) -> int | None:
    """Each rank has its own, unless it trains on the processor."""
    devices = [entry["run"]["device"] for entry in detail]
    if any(device["count"] is None or device["kind"] == "cpu" for device in devices):
        return None if devices[0]["count"] is None else int(devices[0]["count"])
    return sum(int(device["count"]) for device in devices)


def _gaps(detail: list[dict[str, Any]], lead: dict[str, Any]) -> dict[str, Any]:
    gaps = [entry["device"]["gaps"] for entry in detail]
    return dict(lead["device"]["gaps"]) | _all(gaps, {"count": sum, "total_ms": sum, "max_ms": max})


def _headroom(lead: dict[str, Any], job: Job | None) -> dict[str, Any]:
    """No rank may go on before the others: what the rank that leads would gain is what the job would."""
    if job is None or lead["speedup"] is None:
        return lead
    method = f"{lead['method']}, on rank {job.lead}"
    rate = job.samples_per_s * lead["speedup"]
    range_ = {end: lead[end] and rate * lead[end] / lead["samples_per_s"] for end in ("low", "high")}
    return lead | range_ | {"samples_per_s": rate, "method": method}


def _combined(detail: list[dict[str, Any]], section: str, how: dict[str, Combine]) -> dict[str, Any]:
    return _all([entry[section] for entry in detail], how)


def _all(entries: Iterable[dict[str, Any]], how: dict[str, Combine]) -> dict[str, Any]:
    """Each figure over the ranks that have it; `None` where none has."""
    entries = list(entries)
    combined = {}
    for key, combine in how.items():
        values = [entry[key] for entry in entries if isinstance(entry.get(key), int | float)]
        combined[key] = combine(values) if values else None
    return combined
