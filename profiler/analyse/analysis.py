"""A whole run analysed: what reports lay out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..record.notices import read_notices
from ..record.reader import Records
from ..record.run import Run
from ..record.schema import DEVICE, EVENT, HOST, STEP
from .diagnosis import findings_of, verdict_of
from .doubts import doubts_of
from .facts import Facts, facts_of
from .finding import Finding
from .quality import quality_notes
from .sampled import Sampled, sampled
from .window import Window


@dataclass(frozen=True)
class Analysis:
    """`facts` is `None` for a run without a single recorded step."""

    info: dict[str, Any]
    """run.json"""
    facts: Facts | None
    verdict: Finding
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    """What could not be seen or trusted, a sentence each."""
    dropped_records: int
    duration_s: float | None = None
    """From the first event of the training to the last."""
    machine: Sampled | None = None
    """What the sampler saw over the whole recording, of a run without steps."""
    gaps_ms: dict[str, float] = field(default_factory=dict)
    step_ms: dict[str, float] = field(default_factory=dict)


def analyse(run: Run) -> Analysis:
    """Analyse a run, finished or not.

    Raises:
        RecordError: a record file is of an unknown version.
    """
    facts = facts_of(run)
    dropped = run.dropped()
    notes = _notes(run, facts, dropped)
    if facts is None:
        recorded = len(run.records(STEP))
        verdict = Finding(
            None,
            f"No verdict: {recorded} steps were recorded, but the device has stamped none of them."
            if recorded
            else "No verdict: no training step was recorded.",
            0.0,
            0.0,
        )
        return Analysis(run.info, None, verdict, (), notes, dropped, machine=_machine(run))
    findings = findings_of(facts)
    steps = facts.window.steps
    verdict = verdict_of(facts, findings)
    return Analysis(
        info=run.info,
        facts=facts,
        verdict=verdict,
        findings=findings if verdict.cause is not None else (),
        notes=notes,
        dropped_records=dropped,
        duration_s=_duration_s(run.records(EVENT)),
        gaps_ms=_distribution(np.array(facts.parts.gaps_ns)),
        step_ms=_distribution(steps["step_end_ns"] - steps["fetch_begin_ns"]),
    )


def _machine(run: Run) -> Sampled | None:
    """All that the sampler saw; `None` where it saw nothing."""
    host, device = run.records(HOST), run.records(DEVICE)
    times = np.concatenate((host["t_ns"], device["t_ns"]))
    if len(times) == 0:
        return None
    none = np.empty(0, dtype=STEP.dtype)
    return sampled(Window(int(times.min()), int(times.max()), none, 0, none), device, host)


def _duration_s(events: Records) -> float | None:
    return float(events["t_ns"].max() - events["t_ns"].min()) / 1e9 if len(events) > 1 else None


def _distribution(lengths_ns: Any) -> dict[str, float]:
    """Mean, percentiles and maximum in ms; empty for no lengths."""
    if len(lengths_ns) == 0:
        return {}
    ms = lengths_ns / 1e6
    p50, p95, p99 = np.percentile(ms, (50, 95, 99))
    return {
        "mean": float(ms.mean()),
        "p50": float(p50),
        "p95": float(p95),
        "p99": float(p99),
        "max": float(ms.max()),
        "total": float(ms.sum()),
    }


def _notes(run: Run, facts: Facts | None, dropped: int) -> tuple[str, ...]:
    notes = list(run.damaged)
    notes += [str(n) for n in run.info.get("notices", [])]
    notes += read_notices(run.folder)
    if dropped:
        notes.append(f"{dropped} records could not be stored: the disk was full.")
    ended = run.info.get("ended") or {}
    if ended.get("status") not in (None, "ok"):
        why = f": {ended['error']}" if ended.get("error") else ""
        notes.insert(0, f"The training did not end well ({ended['status']}{why}); this is what was recorded of it.")
    if run.info.get("ended") is None:
        notes.append("The recording was not ended: it still runs, or it was killed.")
    if facts is None:
        return tuple(notes)
    notes += doubts_of(facts)
    notes += quality_notes(facts.sampled, facts.window, device_kind=facts.device_kind, foreign_cpus=facts.foreign_cpus)
    return tuple(notes)
