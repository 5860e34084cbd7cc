"""Findings with the lines of code that they claim."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...record.reader import Records
from ...record.run import Run, Writer
from ...record.schema import EVENT, PAUSE, EventKind
from ...record.stacks import StackTable
from ..causes.finding import Finding, Next
from ..run.facts import Facts
from ..statistics import wilson
from .looks import looks_at
from .places import Where, place_of, places
from .remedies import LOOP, MAKING, Remedy, remedy_of
from .selection import MAKING_TIMES, Evidenced, Selected, selected

LEAST_LOOKS = 5
"""Looks that a line needs to be told of: fewer are chance."""
LEAST_SHARE = 0.05
"""Of the time in question."""
LOADER_MADE = "where the loader is made"
LEAST_ADVISED = 0.3
"""Of the time in question that a line has to take for a change of it to be proposed."""
LIKELY = 0.8
"""Of a line's time that goes where it is mended."""


OF_THE_MACHINE = (
    *("input.foreign_load", "input.affinity", "input.cpu_quota", "input.worker_threads", "input.oversubscribed"),
    *("input.sharding", "input.wasted", "input.memory", "input.overkill", "input.worker_restart", "host.launch"),
)
"""Causes that no change of a line mends: what their time is spent on is not why it is lost."""


def located(run: Run, writer: Writer, facts: Facts, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each with up to three lines in which its time was spent; as they were where that was not seen."""
    looks = looks_at(run, writer)
    if looks is None:
        return tuple(findings)
    events = run.records(EVENT, writer)
    evidence = Evidenced(facts, looks, events, run.records(PAUSE, writer))
    where_made = _loader_made(events, looks.training.table)
    found = []
    for finding in findings:
        shown = None if finding.cause is None else selected(finding.cause, evidence)
        lines = () if shown is None else places(shown.looks.stacks(), shown.time)
        lines = tuple(line for line in lines if line.samples >= LEAST_LOOKS and (line.share or 0.0) >= LEAST_SHARE)
        made = where_made if (finding.cause or "").startswith("input.") else ()
        advised = finding if shown is None else _with_advice(finding, lines, shown, facts)
        found.append(replace(advised, where=(*lines, *made)))
    return tuple(found)


def _loader_made(events: Records, table: StackTable) -> tuple[Where, ...]:
    """The line on which the program made the loader that trains; none where that was not seen."""
    told = events["value"][events["what"] == EventKind.LOADER_MADE]
    found = place_of(table.stack(int(told[-1]))) if len(told) else None
    if found is None:
        return ()
    call, _ = found
    return (Where(call.file, call.line, call.function, call.text, None, 0, time=LOADER_MADE),)


def _with_advice(finding: Finding, lines: tuple[Where, ...], shown: Selected, facts: Facts) -> Finding:
    """The finding, with what mends its first line put where its gain belongs."""
    if not lines or (lines[0].share or 0.0) < LEAST_ADVISED or finding.cause in OF_THE_MACHINE:
        return finding
    making = shown.time in MAKING_TIMES
    remedy = remedy_of(shown.looks, lines[0], MAKING if making else LOOP, making)
    if remedy is None:
        return finding
    change = _predicted(remedy, finding, lines[0], making, facts, len(shown.looks))
    best = finding.next[0].predicted_samples_per_s if finding.next else None
    mine = change.predicted_samples_per_s
    first = best is None or mine is None or mine >= best
    return replace(finding, next=(change, *finding.next) if first else (*finding.next, change))


def _predicted(remedy: Remedy, finding: Finding, line: Where, making: bool, facts: Facts, looks: int) -> Next:
    """What is gained if the line takes no time any longer: of what makes batches, until the device sets the pace."""
    said = f"{line.file.rpartition('/')[2]}:{line.line}: {remedy.change}"
    whole_ns = finding.share * facts.parts.wall_ns
    share = wilson(line.share or 0.0, looks)

    def gained(part: float) -> float | None:
        if not making or facts.made_in_training:
            return facts.samples_per_s_without(part * whole_ns)
        # Workers that take so much less time are no longer waited for so long.
        return facts.samples_per_s_without(min(whole_ns, part * facts.parts.wall_ns))

    low, high = gained(LIKELY * share.low), gained(share.high)
    return Next(said, gained(LIKELY * share.value), low, high, remedy.kind)
