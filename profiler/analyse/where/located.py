"""Findings with the lines of code that they claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...record.reader import Records
from ...record.schema import EventKind
from ...record.stacks import Call, StackTable
from ..causes.diagnosis import findings_of
from ..causes.finding import Finding, Next
from ..causes.speedup import ALL, DONE_NO_MORE, OF_KIND, Vanishing, as_next, by_parts, by_replay
from ..intervals import union
from ..predict.advice import VanishedWork
from ..run.facts import Facts
from ..shares import MOSTLY
from ..speedup import Speedup
from ..statistics import Estimate, wilson
from .looks import Looks, ProcessLooks, making_seen
from .own_loop import OTHER, own_loop_of
from .places import FETCHER, Where, is_file, is_users, place_of, places, within
from .remedies import LOOP, MAKING, STARTING, Stands, remedy_of, stands_at
from .selection import MAKING_TIMES, Evidenced, Selected, making_stages_of, selected
from .source import left_out, returned
from .stage_shares import Stages, handing_stages
from .stages import CHEAPER, kind_of

LEAST_LOOKS = 5
"""Looks that a line needs to be told of, or its function: fewer are chance."""
LEAST_SHARE = 0.05
"""Of the time in question."""
LOADER_MADE = "where the loader is created"
HANDED_OVER = "creates what workers hand over"
LEFT_OUT = "leaves samples out"
STREAMED = "prepares samples of which only some are kept"
COLLATED = 1_000_000
"""Weight of a look within the program's own collate function: what that returns is what is handed over."""
OF_95 = 1.645 / 1.96
"""Reach of a 90 % interval over that of one of 95 %."""
LEAST_ADVISED = 0.3
"""Of the time in question that has to go where a change mends it, for it to be proposed."""

OF_THE_MACHINE = (
    *("input.foreign_load", "input.affinity", "input.cpu_quota", "input.worker_threads", "input.oversubscribed"),
)
"""Causes that lie elsewhere, beside which cheaper code is a help at best."""
NO_LINE_MENDS = (
    *("input.sharding", "input.overkill", "input.worker_restart", "input.pipeline_fill", "host.launch"),
    *("input.exclusive", "input.wasted", "input.memory"),
)
"""Causes for which what their time is spent on is not why it is lost."""
MORE_WORKERS = ("input.serial", "input.too_few_workers")
"""Causes that more workers mend, and cheaper batches as well."""
ROWS_OF = {"run.startup": STARTING, "input.sampler": MAKING, "input.main_process": MAKING}
"""Causes outside the making of batches whose lines are no work of the loop's own."""
TOLD_BY_LINE = ("host.step_gap", "host.boundary", "run.startup", "input.cpu_exhausted")
"""Causes of which the finding itself can only say when they happen, or of what kind the work is."""
WORTH_A_LINE = 0.6
"""What mending a line brings over what it brings if all of the time goes, from which the line comes first."""
WITHIN_STEPS = ("host.step_gap", "input.main_process")
"""Causes that are about the training's own part of a step."""
WHAT_IF = (*WITHIN_STEPS, "host.boundary", "input.sampler", "run.startup")
"""Causes beside the making of batches whose time goes if its lines take none."""
OF_STAGES = ("input.cpu_exhausted", *MORE_WORKERS)
"""Causes that are about what preparing a batch takes."""


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
        idle = (facts.parts.hosting, facts.parts.loading, facts.parts.outside, facts.parts.syncing)
        stood = looks.training.during(union(*np.concatenate(idle).T)).stacks()
        facts = replace(facts, unnamed=places(stood, "the time in which nothing is computed"))
    stages = making_stages_of(Evidenced(facts, looks, events, pauses))
    facts = replace(facts, making_seen=making_seen(looks, facts.parts.loading), stages=stages)
    return facts, located(looks, facts, events, pauses, findings_of(facts))


def located(
    looks: ProcessLooks, facts: Facts, events: Records, pauses: Records, findings: Sequence[Finding]
) -> tuple[Finding, ...]:
    """The findings, each with up to three lines in which its time was spent; those that name lines stay as they are.

    `events`, `pauses`: records of the training process.
    """
    evidence = Evidenced(facts, looks, events, pauses)
    where_made = _loader_made(events, looks.training.table)
    found = []
    for finding in findings:
        if finding.where:
            found.append(finding)
            continue
        shown = None if finding.cause is None else selected(finding.cause, evidence)
        lines = () if shown is None else _with_speedups(finding, shown, _often_seen(shown), evidence)
        made = where_made if (finding.cause or "").startswith("input.") else ()
        if finding.cause == "input.handoff":
            lines = (*_handed_over(looks.making), *lines)
        if finding.cause == "input.wasted" and shown is not None:
            lines = (*_left_out(shown.looks), *lines)
        advised = finding if shown is None else _with_advice(finding, lines, shown, evidence)
        if advised is finding:
            advised = _with_stage_advice(finding, facts)
        found.append(replace(advised, where=(*lines, *made), stages=_stages(finding, shown, facts)))
    return tuple(found)


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


def _with_speedups(
    finding: Finding, shown: Selected, lines: tuple[Where, ...], evidence: Evidenced
) -> tuple[Where, ...]:
    """The lines with what the training would gain if they took no time, where the run tells."""
    if finding.cause not in WHAT_IF and shown.time not in MAKING_TIMES:
        return lines
    return tuple(replace(line, without=_without(finding, shown, stands_at(line), ALL, evidence)) for line in lines)


def _stages(finding: Finding, shown: Selected | None, facts: Facts) -> Stages | None:
    """What the time that a finding is about consists of, where it is that of making batches or of handing them over."""
    if finding.cause == "input.handoff" and shown is not None:
        return handing_stages(shown.looks, shown.time)
    return facts.stages if finding.cause in OF_STAGES else None


def _with_stage_advice(finding: Finding, facts: Facts) -> Finding:
    """Beside more workers, where no change of a line is known: what makes the costliest stage cheaper."""
    stage, share = (None if facts.stages is None else facts.stages.costliest) or ("", 0.0)
    if finding.cause not in MORE_WORKERS or share < LEAST_ADVISED or stage not in CHEAPER:
        return finding
    return replace(finding, next=(*finding.next, Next(CHEAPER[stage], kind=kind_of(stage))))


def _handed_over(making: Looks) -> tuple[Where, ...]:
    """The line that gives back what workers hand over: the end of the program's collate function, else of the function
    that prepares a sample."""
    counts: Counter[Call] = Counter()
    for stack, count in making.stacks():
        begin = max((at for at, call in enumerate(stack) if is_file(FETCHER, call.file)), default=None)
        inner = None if begin is None else next((call for call in stack[begin + 1 :] if is_users(call)), None)
        if begin is not None and inner is not None:
            counts[returned(inner)] += count * (COLLATED if "collate_fn" in stack[begin].text else 1)
    if not counts:
        return ()
    ((call, _),) = counts.most_common(1)
    return (_place(call, HANDED_OVER),)


def _left_out(making: Looks) -> tuple[Where, ...]:
    """The line at which the program's function that torch's fetcher calls leaves samples out, or else goes through the
    stream of which only some are kept."""
    counts: Counter[Where] = Counter()
    for stack, count in making.stacks():
        outermost = next((call for call in within(stack, FETCHER) or () if is_users(call)), None)
        if outermost is None:
            continue
        if (found := left_out(outermost)) is not None:
            counts[_place(found, LEFT_OUT)] += count
        elif not outermost.function.endswith(("__getitem__", "__getitems__")):
            counts[_place(outermost, STREAMED)] += count
    return tuple(where for where, _ in counts.most_common(1))


def _place(call: Call, what: str) -> Where:
    """A line that no looks were counted at."""
    return Where(call.file, call.line, call.function, call.text, None, 0, time=what)


def _loader_made(events: Records, table: StackTable) -> tuple[Where, ...]:
    """The line on which the program made the loader that trains; none where that was not seen."""
    told = events["value"][events["what"] == EventKind.LOADER_MADE]
    found = place_of(table.stack(int(told[-1]))) if len(told) else None
    if found is None:
        return ()
    call, _ = found
    return (_place(call, LOADER_MADE),)


def _with_advice(finding: Finding, lines: tuple[Where, ...], shown: Selected, evidence: Evidenced) -> Finding:
    """The finding, with what mends its first line put where its gain belongs."""
    if not lines or finding.cause in NO_LINE_MENDS:
        return finding
    making = shown.time in MAKING_TIMES
    rows = MAKING if making else ROWS_OF.get(finding.cause or "", LOOP)
    elsewhere = Looks(shown.looks.records[:0], shown.looks.table)
    if not making:
        parts = evidence.facts.parts
        elsewhere = evidence.looks.training.during(union(*np.concatenate((parts.computing, parts.loading)).T))
    found = remedy_of(shown.looks, lines[0], rows, making, elsewhere)
    if found is None or (share := _share(shown.looks, found[1])).value < LEAST_ADVISED:
        return finding
    remedy, mended = found
    file = lines[0].file.rpartition("/")[2]
    vanishing = OF_KIND.get(remedy.kind, DONE_NO_MORE)
    gained = _without(finding, shown, mended, vanishing, evidence)
    change = as_next(evidence.facts, f"{remedy.change} (`{file}:{lines[0].line}`)", gained, remedy.kind)
    best = finding.next[0] if finding.next else None
    # What is done again and again for nothing is not to be done by more workers; and that something takes the time is
    # less than what it does.
    idle = share.value >= MOSTLY and remedy.kind == "once"
    worth = WORTH_A_LINE if finding.cause in TOLD_BY_LINE else 1.0
    before = best is None or best.speedup is None or gained.value >= worth * best.speedup.value
    first = finding.cause not in OF_THE_MACHINE and (idle or before)
    return replace(finding, next=(change, *finding.next) if first else (*finding.next, change))


def _share(looks: Looks, mended: Stands) -> Estimate:
    """Of looks that saw something, which saw what is mended."""
    seen = len(looks) - looks.failed
    return wilson(len(looks.where(mended)) / seen, seen) if seen else Estimate(0.0, 0.0, 0.0)


def _of_epochs(facts: Facts, ns: float) -> bool:
    """Whether so much of the sampler's work is mostly where epochs begin, which a replay of their middle has not."""
    return facts.sampling is not None and facts.sampling.of_epochs(ns)


def _without(finding: Finding, shown: Selected, mended: Stands, vanishing: Vanishing, evidence: Evidenced) -> Speedup:
    """What is gained if the work that such looks saw goes, or as much of it: of the training's own thread no more than
    takes their share of the part that they fall into, garbage collections there with it."""
    facts, parts = evidence.facts, evidence.facts.parts
    share = _share(shown.looks, mended)
    if not share.value:
        return Speedup(1.0, 1.0, 1.0)
    below, above = (1 + OF_95 * (bound / share.value - 1) for bound in (share.low, share.high))
    vanishing = Vanishing(vanishing.least * below, vanishing.expected, min(vanishing.most * above, 1 / share.value))
    part_ns = {"host.step_gap": parts.host_ns, "host.boundary": parts.boundary_ns}.get(finding.cause or "")
    took_ns = share.value * (finding.share * parts.wall_ns if part_ns is None else part_ns)
    each_ns = took_ns / facts.window.count
    if shown.time in MAKING_TIMES:
        gone = VanishedWork(making=share.value)
        took_ns = took_ns if facts.made_in_training else min(finding.share, share.value) * parts.wall_ns
    elif finding.cause == "input.sampler" and not _of_epochs(facts, took_ns):
        gone = VanishedWork(drawing_ns=each_ns)
    elif finding.cause in WITHIN_STEPS:
        gone = VanishedWork(loop_ns=each_ns)
    else:
        return by_parts(facts, took_ns, vanishing)
    most, said = by_parts(facts, took_ns, vanishing), by_replay(facts, gone, vanishing)
    if said is None or (shown.time in MAKING_TIMES and not facts.made_in_training):
        return said or most
    value, low = min(said.value, most.value), min(said.low, most.value)
    return replace(said, value=value, low=low, high=min(said.high, most.high))
