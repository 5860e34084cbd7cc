"""The JSON of a recording from outside: `attach --json`. Shares are 0 to 1.

The meaning of each key: docs/commands/attach.md, and the structures of `analyse/attached/` that bear the same names.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...analyse.attached.attached import UNKNOWN, Attached
from ...analyse.attached.trainers import Cpu, Trainer, Workers
from ...analyse.causes.finding import Finding
from .encode import Json, finding, picked


def report(seen: Attached, verdict: Finding, findings: Iterable[Finding]) -> Json:
    """Tell one recording, as `whyidle-attach` version 1."""
    info, facts, sampled = seen.info, seen.info["attach"], seen.sampled
    return {
        "format": "whyidle-attach",
        "version": 1,
        "run": {
            "id": info.get("id"),
            "pid": facts.get("pid"),
            "command": info.get("command"),
            "started_at": info.get("started_at"),
            "seconds": seen.seconds,
            "ended_by": facts.get("why"),
            "host": info.get("host"),
            "device": {"kind": seen.device_kind, "name": (info.get("device") or {}).get("title")},
        },
        "trainers": [_trainer(each) for each in seen.trainers],
        "others": [{"pid": each.pid, "command": each.command or each.name} for each in seen.others],
        "device": picked(sampled, "utilisation_pct", "sm_active_pct", "memory_peak_bytes"),
        "host": picked(sampled, "tree_cpus", "cpu_budget")
        | {"foreign_cpus": seen.foreign_cpus, "cpu_steal_pct": None if sampled is None else sampled.steal_pct},
        "verdict": finding(verdict, of_none=0.0),
        "findings": [finding(each) for each in findings],
        "unknown": UNKNOWN,
        "quality": picked(seen, "stacks_read", "training_seen", "notes"),
    }


def _trainer(trainer: Trainer) -> Json:
    return picked(trainer, "pid", "rank", "thread", "main_thread", "looks") | {
        "missed_looks": trainer.by.missed,
        "shares": {name: {"share": e.value, "low": e.low, "high": e.high} for name, e in trainer.shares.items()},
        "data_wait": trainer.waits,
        "data_making": trainer.stages,
        "top": {name: _places(places) for name, places in trainer.top.items()},
        "cpu": _cpu(trainer.cpu),
        "workers": None if trainer.workers is None else _workers(trainer.workers),
    }


def _workers(workers: Workers) -> Json:
    return (
        picked(workers, "count", "seen", "busy")
        | {"cpu": _cpu(workers.cpu), "stages": workers.stages, "top": _places(workers.top)}
        | picked(workers, "read_bytes_per_s", "read_chars_per_s")
    )


def _places(top: Iterable[tuple[str, float]]) -> list[Json]:
    return [{"where": where, "share": share} for where, share in top]


def _cpu(cpu: Cpu) -> Json:
    return picked(cpu, "running", "queued", "io", "main", "idle")
