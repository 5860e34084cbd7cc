"""The JSON of the contract of a run: `report --format json`. `null` means not measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...analyse.causes.finding import Evidence, Finding
from ...analyse.run.analysis import Analysis
from ...analyse.run.facts import Facts
from ...analyse.run.headroom import MeasuredHeadroom
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from . import (
    ranks as ranks_contract,
)

VERSION = 1


def report(analysis: Analysis) -> dict[str, Any]:
    """One run, as `whyidle-report` version 1; of a job of several ranks with each of them in `ranks_detail`."""
    alone = _report(analysis)
    if len(analysis.ranks) < 2:
        return alone
    detail = [ranks_contract.labelled(_report(part.analysis), part, analysis.job) for part in analysis.ranks]
    return ranks_contract.of_job(alone, detail, analysis)


def _report(analysis: Analysis) -> dict[str, Any]:
    """One training process."""
    facts = analysis.facts
    return {
        "format": "whyidle-report",
        "version": VERSION,
        "run": _run(analysis),
        "window": _window(analysis),
        "device": _device(analysis),
        "breakdown": breakdown(facts),
        "input": _input(facts),
        "verdict": finding(analysis.verdict),
        "findings": [finding(f) for f in analysis.findings],
        "headroom": _headroom(facts, analysis.headroom),
        "quality": _quality(analysis),
    }


def finding(found: Finding) -> dict[str, Any]:
    return {
        "cause": found.cause,
        "title": found.title,
        "share_pct": None if found.cause is None else 100 * found.share,
        "severity": found.severity,
        "confidence": None if found.cause is None else found.confidence,
        "evidence": [evidence(e) for e in found.evidence],
        "next": [
            {
                "change": n.change,
                "predicted_samples_per_s": n.predicted_samples_per_s,
                # Where nothing supports a most, today's rate alone is no range.
                "low": None if n.high is None else n.low,
                "high": n.high,
            }
            for n in found.next
        ],
    }


def breakdown(facts: Facts | None) -> dict[str, float | None]:
    """Shares of wall time in percent; where all are known they sum to 100."""
    return percentages({} if facts is None else facts.shares)


def percentages(shares: Mapping[str, float]) -> dict[str, float | None]:
    """Every part, `None` where its share is not known."""
    return {f"{part}_pct": 100 * shares[part] if part in shares else None for part in PARTS}


def _run(analysis: Analysis) -> dict[str, Any]:
    info = analysis.info
    device = info.get("device") or {}
    ended = info.get("ended") or {}
    return {
        "id": info.get("id"),
        "command": info.get("command"),
        "started_at": info.get("started_at"),
        "duration_s": analysis.duration_s,
        "exit_code": ended.get("exit_code"),
        "host": info.get("host"),
        "python": info.get("python"),
        "torch": info.get("torch"),
        "ranks": 1,
        "device": {
            "kind": device.get("kind"),
            "name": device.get("title") or device.get("name"),
            "count": device.get("count"),
        },
        "dataset": info.get("dataset"),
    }


def _window(analysis: Analysis) -> dict[str, Any]:
    facts, step = analysis.facts, analysis.step_ms
    return {
        "steps": facts.window.count if facts else 0,
        "warmup_steps": facts.window.warmup_steps if facts else 0,
        "samples": (facts.samples if facts.samples_known else None) if facts else 0,
        "wall_s": facts.parts.wall_ns / 1e9 if facts else None,
        "samples_per_s": facts.samples_per_s if facts and facts.samples_known else None,
        "batch_size": facts.batch_size if facts else None,
        "step_ms": {name: step.get(name) for name in ("mean", "p50", "p95", "p99")},
    }


def _device(analysis: Analysis) -> dict[str, Any]:
    facts, gaps = analysis.facts, analysis.gaps_ms
    return {
        **_metrics(facts, *ranks_contract.DEVICE),
        "gaps": {
            "count": len(facts.parts.gaps_ns) if facts and facts.told_apart else None,
            "total_ms": gaps.get("total"),
            "p50_ms": gaps.get("p50"),
            "p95_ms": gaps.get("p95"),
            "max_ms": gaps.get("max"),
        },
    }


def _input(facts: Facts | None) -> dict[str, Any]:
    fed = facts.parts if facts and facts.input_known else None
    return {
        "workers": _workers(facts),
        **_metrics(facts, "read_pct", "prep_pct", "collate_pct", "handoff_pct", "worker_busy_pct", "queue_ready_mean"),
        "first_fetch_pct": 100 * fed.first_fetch_ns / fed.wall_ns if fed else None,
        "hidden_wait_ms": fed.hidden_wait_ns / 1e6 if fed else None,
        **_metrics(facts, "samples_per_s_limit"),
    }


def _workers(facts: Facts | None) -> int | None:
    """0 where batches are made in the training itself; `None` where the loader does not say."""
    if facts is not None and facts.set_workers is not None:
        return facts.set_workers
    if facts is None or facts.loader.workers == 0:
        return None
    return 0 if facts.made_in_training else facts.loader.workers


def _headroom(facts: Facts | None, replayed: MeasuredHeadroom | None) -> dict[str, Any]:
    if replayed is None or replayed.rate is None:
        reason = None if replayed is None else replayed.reason
        return _computed_headroom(facts) | {"low": None, "high": None, "stretches": 0, "reason": reason}
    return {
        "samples_per_s": replayed.rate.value,
        "speedup": replayed.speedup,
        "method": "replay",
        "low": replayed.rate.low,
        "high": replayed.rate.high,
        "stretches": replayed.rate.repeats,
        "reason": None,
    }


def _computed_headroom(facts: Facts | None) -> dict[str, Any]:
    if facts is None:
        return {"samples_per_s": None, "speedup": None, "method": None}
    if not (facts.samples_known and facts.input_known):
        return {"samples_per_s": None, "speedup": None, "method": "not known: no fetch of its batches was seen"}
    rate = facts.samples_per_s_without(facts.parts.input_ns)
    if rate is None or facts.device_kind == "cpu":
        return {"samples_per_s": None, "speedup": None, "method": "not known: loader and training share the CPU"}
    return {
        "samples_per_s": rate,
        "speedup": rate / facts.samples_per_s,
        "method": "partition: wall time without the exposed waits for data",
    }


def _quality(analysis: Analysis) -> dict[str, Any]:
    facts = analysis.facts
    return {
        **_metrics(facts, "overhead_pct"),
        "overhead_us_per_step": facts.overhead_ns_per_step / 1e3 if facts else None,
        "dropped_records": analysis.dropped_records,
        "late_samples_pct": facts.sampled.late_samples_pct if facts else None,
        **_metrics(facts, "cpu_steal_pct"),
        "notes": list(analysis.notes),
    }


def _metrics(facts: Facts | None, *names: str) -> dict[str, float | None]:
    return {name: None if facts is None else METRICS[name].of(facts) for name in names}


def evidence(item: Evidence) -> dict[str, Any]:
    return {"what": item.what, "value": item.value, "unit": item.unit, "expected": item.expected}
