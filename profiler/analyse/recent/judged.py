"""The last steps of one training process, judged as a whole run is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...record.reader import Records
from ...record.run import AGAIN
from ...record.schema import BATCH, DEVICE, EVENT, HOST, PAUSE, Kind
from ..causes.diagnosis import LEAST_STEPS, verdict_of
from ..causes.finding import Finding
from ..run.facts import Facts, device_kind_of, judge
from ..run.stall_breakdown import DividedTime, divided_time
from ..run.window import Window, begin_of, resolved, warmup_steps
from ..where.located import LEAST_LOOKS, found_with
from ..where.looks import Looks, ProcessLooks, process_looks
from .gathered import LOOKS_NS, TOLD, ProcessRecords, RunRecords
from .series import RECENT_NS, STEPS_BEFORE
from .tail import moments


@dataclass(frozen=True)
class Judged:
    facts: Facts
    findings: tuple[Finding, ...]
    verdict: Finding


def judged(process: ProcessRecords, run: RunRecords, looks: ProcessLooks | None) -> Judged | None:
    """`None` as long as no step is known to its end. `looks`: the recent ones at the process."""
    facts = facts_of_last(process, run.device, run.host, run.info)
    if facts is None:
        return None
    facts, findings = found_with(looks, facts, process.events, process.pauses)
    return Judged(facts, findings, verdict_of(facts, findings))


def recent_looks(run: RunRecords) -> ProcessLooks | None:
    """The looks of the last seconds at the process that is shown; `None` of too few."""
    writer = run.mine.writer if run.mine is not None else min(((p.rank, p.pid) for p in run.told), default=None)
    recent = run.looks[run.looks["t_ns"] > run.now_ns - LOOKS_NS]
    if writer is None or len(recent) < LEAST_LOOKS:
        return None
    pid = writer[1] % AGAIN
    thread = next((p.thread for p in run.told if (p.rank, p.pid) == writer), None)
    return process_looks(Looks(recent, run.stacks), pid, thread or pid)


def facts_of_last(process: ProcessRecords, device: Records, host: Records, info: dict[str, Any]) -> Facts | None:
    """The facts of the last steps."""
    found = _last(process, info)
    if found is None:
        return None
    window, events, since = found
    parts = ((PAUSE, process.pauses), (BATCH, process.batches), (DEVICE, device), (HOST, host))
    pauses, batches, device, host = (_since(kind, rows, since) for kind, rows in parts)
    return judge(window, events, pauses, batches, device, host, info)


def time_of_last(process: ProcessRecords, info: dict[str, Any]) -> DividedTime | None:
    """The time of the last steps alone."""
    found = _last(process, info)
    if found is None:
        return None
    window, events, since = found
    pauses = _since(PAUSE, process.pauses, since)
    return divided_time(window, events, pauses, np.empty(0, dtype=HOST.dtype), device_kind_of(info))[0]


def _last(process: ProcessRecords, info: dict[str, Any]) -> tuple[Window, Records, int] | None:
    """(the window of the last steps, its events, when the first of them began)"""
    steps = process.last_steps
    if len(steps) == 0:
        return None
    since = int(steps["fetch_begin_ns"][0])
    if device_kind_of(info) != "cpu":
        steps = resolved(steps)
    if len(steps) == 0:
        return None
    window = _window(steps, planned_steps(info) or int(steps["step"][-1]) + 1)
    if window.wall_ns <= 0:
        return None
    return window, _since(EVENT, process.events, since), since


def _window(steps: Records, in_all: int) -> Window:
    """The last seconds, and of what is before them as much as reaches into them."""
    counted = int(np.searchsorted(steps["step"], warmup_steps(in_all)))
    counted = min(counted, len(steps) - 1)
    late = int((steps["fetch_begin_ns"][counted:] >= steps["step_end_ns"][-1] - RECENT_NS).sum())
    first = max(counted, len(steps) - max(late, LEAST_STEPS))
    before = max(0, first - STEPS_BEFORE)
    end = max(int(steps["step_end_ns"][-1]), int(steps["device_end_ns"][first:].max()))
    return Window(begin_of(steps, first), end, steps[first:], 0, steps[before:])


def _since(kind: Kind, records: Records, since_ns: int) -> Records:
    """What happened since then, and of events what was told before and still counts."""
    late = moments(kind, records) >= since_ns
    if kind is EVENT:
        late |= np.isin(records["what"], TOLD)
    kept: Records = records[late]
    return kept


def planned_steps(info: dict[str, Any]) -> int | None:
    """Steps that a training means to run; `None` where it told no plan."""
    return _number(info, "steps")


def planned_epoch(info: dict[str, Any]) -> int | None:
    """Steps that a training means an epoch to have; `None` where it told no plan."""
    return _number(info, "steps_per_epoch")


def _number(info: dict[str, Any], name: str) -> int | None:
    value = (info.get("plan") or {}).get(name)
    return value if isinstance(value, int) and value > 0 else None


HOLD_NS = 5_000_000_000
"""How long another cause has to come first before it takes the place of the one shown."""
ABOUT_AS_GOOD = 0.8
"""Share of the first cause's gain that lets the one shown stay."""


class Steady:
    """Told of every judgement in the order of time."""

    def __init__(self) -> None:
        self._shown: Finding | None = None
        self._since_ns = 0
        self._other: tuple[str | None, int] | None = None
        """Another cause that comes first, and since when."""

    def told(self, judgement: Judged, at_ns: int) -> tuple[Finding, int]:
        """(the verdict to show, since when it has named this cause)."""
        verdict = judgement.verdict
        if self._shown is None or verdict.cause == self._shown.cause or self._gives_way(judgement, at_ns):
            if self._shown is None or verdict.cause != self._shown.cause:
                self._since_ns = self._other[1] if self._other is not None else at_ns
            self._shown, self._other = verdict, None
            return verdict, self._since_ns
        still = next((f for f in judgement.findings if f.cause == self._shown.cause), None)
        self._shown = still or self._shown
        return self._shown, self._since_ns

    def _gives_way(self, judgement: Judged, at_ns: int) -> bool:
        verdict, shown = judgement.verdict, self._shown
        assert shown is not None
        if shown.cause is None:
            return True
        if self._other is None or self._other[0] != verdict.cause:
            self._other = verdict.cause, at_ns
        still = next((f for f in judgement.findings if f.cause == shown.cause), None)
        if still is not None and still.gain >= ABOUT_AS_GOOD * verdict.gain:
            return False
        return at_ns - self._other[1] >= HOLD_NS
