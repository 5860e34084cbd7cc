"""Findings with the lines of code that they claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...record.reader import Records
from ...record.schema import EventKind
from ..causes.claim import ALL, DONE_NO_MORE, OF_KIND, Vanishing, as_next, by_parts, by_replay
from ..causes.diagnosis import LINES, findings_of
from ..causes.finding import Finding, Next
from ..intervals import union
from ..predict.predict import VanishedWork
from ..run.facts import Facts
from ..shares import MOSTLY
from ..statistics import Estimate, Speedup, wilson
from .looks import Looks, ProcessLooks, making_seen
from .own_loop import OTHER, own_loop_of
from .places import Where, place_of, places
from .remedies import LOOP, MAKING, Stands, remedy_of, stands_at
from .selection import MAKING_TIMES, Evidenced, Lines, Selected, making_stages_of, unseen
from .stages import CHEAPER

LEAST_LOOKS = 5
"""Looks that a line needs to be told of, or its function: fewer are chance."""
LEAST_SHARE = 0.05
"""Of the time in question."""
LOADER_MADE = "where the loader is created"
OF_95 = 1.645 / 1.96
"""Reach of a 90 % interval over that of one of 95 %."""
LEAST_ADVISED = 0.3
"""Of the time in question that has to go where a change mends it, for it to be proposed."""


def found_with(
    looks: ProcessLooks | None, facts: Facts, events: Records, pauses: Records
) -> tuple[Facts, tuple[Finding, ...]]:
    """What is found, with what stack samples tell: of a run for its report, of the last seconds for the live view.

    `looks`: `None` where stacks were not looked at; `events`, `pauses`: records of the training process.
    """
    if looks is None:
        return facts, findings_of(facts)
    window = facts.window
    if not facts.told_apart and facts.device_kind == "cpu":
        loop = own_loop_of(looks.training.between(window.begin_ns, window.end_ns), window.steps)
        facts = replace(facts, own_loop=loop, unnamed=() if loop is None else loop.lines.get(OTHER, ()))
    else:
        idle = [facts.parts.when[part] for part in ("host", "input", "boundary", "sync")]
        stood = looks.training.during(union(*np.concatenate(idle).T)).stacks()
        facts = replace(facts, unnamed=places(stood, "the time in which nothing is computed"))
    stages = making_stages_of(Evidenced(facts, looks, events, pauses))
    facts = replace(facts, making_seen=making_seen(looks, facts.parts.when["input"]), stages=stages)
    return facts, located(Evidenced(facts, looks, events, pauses), findings_of(facts))


def located(evidence: Evidenced, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The findings, each with up to three lines in which its time was spent; those that name lines stay as they are."""
    facts, looks, events = evidence.facts, evidence.looks, evidence.events
    told = events["value"][events["what"] == EventKind.LOADER_MADE]
    created = place_of(looks.training.table.stack(int(told[-1]))) if len(told) else None
    where_made = () if created is None else (unseen(created[0], LOADER_MADE),)
    stage, share = (None if facts.stages is None else facts.stages.costliest) or ("", 0.0)
    cheaper = (Next(CHEAPER[stage][0], kind=CHEAPER[stage][1]),) if share >= LEAST_ADVISED and stage in CHEAPER else ()
    located = []
    for finding in findings:
        if finding.where:
            located.append(finding)
            continue
        made = where_made if (finding.cause or "").startswith("input.") else ()
        how = LINES.get(finding.cause or "")
        if how is None:
            located.append(replace(finding, where=made))
            continue
        shown = how.select(evidence)
        seen = _often_seen(shown)
        if how.spared is not None or shown.time in MAKING_TIMES:
            # With what the training would gain if they took no time.
            seen = tuple(
                replace(line, without=_without(finding, how, shown, stands_at(line), ALL, evidence)) for line in seen
            )
        lines = (() if how.first is None else how.first(shown, looks)) + seen
        advised = _with_advice(finding, how, lines, shown, evidence)
        if advised is finding and how.stage_advised:
            # Beside more workers, where no change of a line is known: what makes the costliest stage cheaper.
            advised = replace(finding, next=(*finding.next, *cheaper))
        stages = facts.stages if how.stages else None
        located.append(replace(advised, where=(*lines, *made), stages=stages))
    return tuple(located)


def _often_seen(shown: Selected) -> tuple[Where, ...]:
    """The lines that were looked at often enough to be told of: by themselves, or with the others of their function."""
    of_function: Counter[tuple[str, str]] = Counter()
    for stack, count in shown.looks.stacks():
        if (found := place_of(stack)) is not None:
            of_function[found[0].file, found[0].function] += count
    return tuple(
        line
        for line in shown.lines()
        if max(line.samples, of_function[line.file, line.function]) >= LEAST_LOOKS
        and (line.share or 0.0) >= LEAST_SHARE
    )


def _with_advice(
    finding: Finding, how: Lines, lines: tuple[Where, ...], shown: Selected, evidence: Evidenced
) -> Finding:
    """Put what mends its first line where its gain belongs."""
    if not lines or not how.mended:
        return finding
    making = shown.time in MAKING_TIMES
    rows = MAKING if making else how.remedies or LOOP
    elsewhere = Looks(shown.looks.records[:0], shown.looks.table)
    if not making:
        when = evidence.facts.parts.when
        elsewhere = evidence.looks.training.during(union(*np.concatenate((when["compute"], when["input"])).T))
    found = remedy_of(shown.looks, lines[0], rows, making, elsewhere)
    if found is None or (share := _share(shown.looks, found[1])).value < LEAST_ADVISED:
        return finding
    remedy, mended = found
    file = lines[0].file.rpartition("/")[2]
    vanishing = OF_KIND.get(remedy.kind, DONE_NO_MORE)
    gained = _without(finding, how, shown, mended, vanishing, evidence)
    change = as_next(evidence.facts, f"{remedy.change} (`{file}:{lines[0].line}`)", gained, remedy.kind)
    best = finding.next[0] if finding.next else None
    # What is done again and again for nothing is not to be done by more workers; and that something takes the time is
    # less than what it does.
    idle = share.value >= MOSTLY and remedy.kind == "once"
    before = best is None or best.speedup is None or gained.value >= how.worth * best.speedup.value
    first = not how.elsewhere and (idle or before)
    return replace(finding, next=(change, *finding.next) if first else (*finding.next, change))


def _share(looks: Looks, mended: Stands) -> Estimate:
    """Of looks that saw something, which saw what is mended."""
    seen = len(looks) - looks.failed
    return wilson(len(looks.where(mended)) / seen, seen) if seen else Estimate(0.0, 0.0, 0.0)


def _without(
    finding: Finding, how: Lines, shown: Selected, mended: Stands, vanishing: Vanishing, evidence: Evidenced
) -> Speedup:
    """Return what is gained if the work that such looks saw goes, or as much of it: of the training's own
    thread no more than takes their share of the part that they fall into, garbage collections there with it."""
    facts, parts = evidence.facts, evidence.facts.parts
    share = _share(shown.looks, mended)
    if not share.value:
        return Speedup(1.0, 1.0, 1.0)
    below, above = (1 + OF_95 * (bound / share.value - 1) for bound in (share.low, share.high))
    vanishing = Vanishing(vanishing.least * below, vanishing.expected, min(vanishing.most * above, 1 / share.value))
    took_ns = share.value * (getattr(parts, f"{how.part}_ns") if how.part else finding.share * parts.wall_ns)
    gone = None if how.spared is None else how.spared(facts, took_ns / facts.window.count)
    if shown.time in MAKING_TIMES:
        gone = VanishedWork(making=share.value)
        took_ns = took_ns if facts.made_in_training else min(finding.share, share.value) * parts.wall_ns
    if gone is None:
        return by_parts(facts, took_ns, vanishing)
    most, said = by_parts(facts, took_ns, vanishing), by_replay(facts, gone, vanishing)
    if said is None or (shown.time in MAKING_TIMES and not facts.made_in_training):
        return said or most
    value, low = min(said.value, most.value), min(said.low, most.value)
    return replace(said, value=value, low=low, high=min(said.high, most.high))
