"""A recording from outside as JSON: `whyidle-attach`, version 1. Shares are 0 to 1; `null` means not measured."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...analyse.attached.attached import UNKNOWN, Attached
from ...analyse.attached.trainers import Cpu, Trainer, Workers
from ...analyse.causes.finding import Finding

VERSION = 1


def report(seen: Attached, verdict: Finding, findings: tuple[Finding, ...]) -> dict[str, Any]:
    host, facts = seen.sampled, seen.info["attach"]
    return {
        "format": "whyidle-attach",
        "version": VERSION,
        "run": {
            "id": seen.info.get("id"),
            "pid": facts.get("pid"),
            "command": seen.info.get("command"),
            "started_at": seen.info.get("started_at"),
            "seconds": seen.seconds,
            "ended_by": facts.get("why"),
            "host": seen.info.get("host"),
            "device": {"kind": seen.device_kind, "name": (seen.info.get("device") or {}).get("title")},
        },
        "trainers": [_trainer(t) for t in seen.trainers],
        "others": [{"pid": p.pid, "command": p.command or p.name} for p in seen.others],
        "device": {
            "utilisation_pct": host and host.utilisation_pct,
            "sm_active_pct": host and host.sm_active_pct,
            "memory_peak_bytes": host and host.memory_peak_bytes,
        },
        "host": {
            "tree_cpus": host and host.tree_cpus,
            "cpu_budget": host and host.cpu_budget,
            "foreign_cpus": seen.foreign_cpus,
            "cpu_steal_pct": host and host.steal_pct,
        },
        "verdict": _finding(verdict),
        "findings": [_finding(f) for f in findings],
        "unknown": list(UNKNOWN),
        "quality": {"stacks_read": seen.stacks_read, "training_seen": seen.training_seen, "notes": list(seen.notes)},
    }


def _trainer(trainer: Trainer) -> dict[str, Any]:
    return {
        "pid": trainer.pid,
        "rank": trainer.rank,
        "thread": trainer.thread,
        "main_thread": trainer.main_thread,
        "looks": trainer.looks,
        "missed_looks": trainer.missed,
        "shares": {name: {"share": s.value, "low": s.low, "high": s.high} for name, s in trainer.shares.items()},
        "data_wait": dict(trainer.waits),
        "data_making": dict(trainer.stages),
        "top": {name: [{"where": w, "share": s} for w, s in places] for name, places in trainer.top.items()},
        "cpu": _cpu(trainer.cpu),
        "workers": None if trainer.workers is None else _workers(trainer.workers),
    }


def _workers(workers: Workers) -> dict[str, Any]:
    return {
        "count": workers.count,
        "seen": workers.seen,
        "busy": workers.busy,
        "cpu": _cpu(workers.cpu),
        "stages": dict(workers.stages),
        "top": [{"where": where, "share": share} for where, share in workers.top],
        "read_bytes_per_s": workers.read_bytes_per_s,
        "read_chars_per_s": workers.read_chars_per_s,
    }


def _cpu(cpu: Cpu) -> dict[str, float | None]:
    return asdict(cpu) | {"idle": cpu.idle}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "title": finding.title,
        "share_pct": 100 * finding.share,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "evidence": [asdict(item) for item in finding.evidence],
        "next": [asdict(change) for change in finding.next],
    }
