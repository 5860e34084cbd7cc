"""A job of several ranks: its throughput, the means over its ranks, and the verdict of the rank the others wait for.

The ranks that the others wait for, what they were late for, and what to do about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..causes.finding import LEAST_GAIN, Evidence, Finding, Next
from ..run.facts import Facts
from ..run.window import mean_of, measured_or, or_nan
from ..shares import MOSTLY, NEARLY_ALL
from ..statistics import median_of_known
from .arrivals import Lateness, Stamps, lateness_of
from .membership import LEAST_MORE_STEPS, RankProcess, listed, unended

if TYPE_CHECKING:
    from ..run.analysis import Analysis

SPELLS = 20
"""Stretches that a run is cut into, whose means tell how sure a difference is: lateness comes in spells."""
SIGMAS = 3.0
"""Standard errors by which a rank has to be later than the next one, of two ranks; of more ranks some more."""
WAITS = ("input", "copy", "sync", "host", "boundary")
"""Parts of the time that a rank can be late for; waiting for other ranks counts as the remaining one, computing."""

_PART_OF = {
    "input": "input",
    "input.main_process": "host",
    "copy": "copy",
    "host.sync": "sync",
    "host.boundary": "boundary",
    "host": "host",
}
"""Cause, or family of causes → part of the time that it explains."""
_LATE_FOR = {
    "input": ("data", "Give it what the other ranks have: CPUs, storage, and no more or costlier data"),
    "copy": (
        "copies to its device",
        "Copy its batches as the other ranks do: pinned, ahead, over a link of the same speed",
    ),
    "sync": ("synchronising calls", "Read losses and metrics no more often than on the other ranks"),
    "host": (
        "other work of its training loop",
        "Share out what only this rank does (logging, metrics), or do it less often",
    ),
    "boundary": (
        "work outside its steps (validation, checkpoints)",
        "Share out what only this rank does (validation, checkpoints), or do it beside the training",
    ),
    "compute": (
        "its own computing",
        "Look at its device and host (clocks, temperature, other programs), and at the size of its batches",
    ),
    "pause": (
        "code between the fetch and the backward pass that does not compute",
        "Look for sleeps, locks, file or network access between the fetch and the backward pass; while "
        "it runs, `whyidle attach PID` names the line",
    ),
}
"""Part → what a rank is late for in words, what to change."""


def waited_for(lateness: Lateness) -> tuple[int, ...]:
    """The ranks that are later than all others on average, beyond chance: one, or several that are late alike; none
    where they are late in turn."""
    order = np.argsort(-lateness.mean_ns, kind="stable")
    behind = lateness.behind_ns[order]
    # Without the first n of the order, the last of the others decides.
    last_without = np.maximum.accumulate(behind[::-1], axis=0)[::-1]
    cost = (last_without[0] - last_without).mean(axis=1)
    most = len(order) // 2
    if cost[most] <= 0:
        return ()
    # The fewest without whom nearly all is saved that any number of them would save.
    count = next(n for n in range(1, most + 1) if cost[n] >= NEARLY_ALL * cost[1 : most + 1].max())
    ahead_of_next = behind[:count].mean(axis=0) - behind[count]
    # The standard error of values that come in spells.
    means = np.array([block.mean() for block in np.array_split(ahead_of_next, min(SPELLS, len(ahead_of_next)))])
    surplus, sure = float(ahead_of_next.mean()), float(means.std(ddof=1) / math.sqrt(len(means)))
    # With many ranks some rank is always late by chance.
    sigmas = math.sqrt(SIGMAS**2 + 2 * math.log(len(order) / 2))
    # Most of what they cost comes of being late on average; what is left may come of being late in turn.
    late = surplus >= max(MOSTLY * float(cost[count]), sigmas * sure)
    return tuple(sorted(lateness.ranks[n] for n in order[:count])) if late else ()


def finding_of(
    late: Sequence[int], lateness: Lateness, members: Mapping[int, JobRank], samples_per_s: float
) -> Finding:
    """`rank.straggler`, with the cause of the diagnosis of the late ranks' first. `samples_per_s`: of the whole job."""
    facts = {rank: member.facts for rank, member in members.items() if member.facts is not None}
    behind, others = (lateness.behind_ns[np.isin(lateness.ranks, late) == of_late] for of_late in (True, False))
    last = lateness.last_ns
    # A round would be so much shorter without their lateness.
    share = min(0.99, float((last - others.max(axis=0)).mean()) / lateness.round_ns)
    late_ms = float(behind.mean() - np.median(others.mean(axis=1))) / 1e6
    others_wait_ms = float((last - others).mean()) / 1e6
    who, one = listed(late), len(late) == 1
    part, own_ms, others_ms, on_cpu_ms = _late_for(late, late_ms, lateness, facts)
    reason, change = _LATE_FOR[part]
    found = {rank: members[rank].analysis.findings for rank in facts}
    own_causes = ((f, f.cause) for f in found[late[0]] if f.cause)
    explains = (f for f, code in own_causes if part == (_PART_OF.get(code) or _PART_OF.get(code.split(".")[0])))
    cause = next(explains, None)
    where = sorted({host for rank in late if (host := members[rank].process.host)})
    most = None if any(f.device_kind == "cpu" for f in facts.values()) else samples_per_s / (1 - share)
    changes = [n.change for n in cause.next] if cause else []
    # What is wrong on the other ranks as well does not make this one late.
    alike = cause is not None and all(cause.cause in {f.cause for f in each} for each in found.values())
    changes.insert(0 if alike else len(changes), change)
    own = [Evidence("Its own cause", cause.cause), *cause.evidence] if cause else []
    if part == "pause":
        own.insert(0, Evidence("Its thread on a CPU", on_cpu_ms, "ms per step", "as long as it computes"))
    came_last, by_chance = float((behind.max(axis=0) >= last).mean()), len(late) / len(lateness.ranks)
    return Finding(
        "rank.straggler",
        f"The other ranks wait {others_wait_ms:.1f} ms per step for {who}, {100 * share:.0f} % of the "
        f"time. {'It is' if one else 'They are'} late because of {reason}{f' ({cause.cause})' if cause else ''}.",
        share,
        0.9 if part not in ("compute", "pause") else 0.7,
        (
            Evidence("Waited for", who),
            Evidence("Host", ", ".join(where) or None),
            Evidence("Later than the others", late_ms, "ms per step", "near 0 ms"),
            Evidence("Wait of the others", others_wait_ms, "ms per step", "near 0 ms"),
            Evidence(
                f"Steps in which {'it' if one else 'one of them'} came last",
                *(100 * came_last, "%", f"{100 * by_chance:.0f} %"),
            ),
            Evidence(f"Time for {reason}", own_ms, "ms per step", f"{others_ms:.1f} ms on the others"),
            *own,
        ),
        tuple(Next(f"On {who}: {change}", None, samples_per_s, most) for change in changes),
    )


def _late_for(
    late: Sequence[int], late_ms: float, lateness: Lateness, facts: Mapping[int, Facts]
) -> tuple[str, float, float, float]:
    """(the part that is larger on these ranks than on the others, ms a round there, ms a round on the others, ms a step
    that the thread that trains runs there, NaN where it was not measured). `late_ms`: how much later they arrive.

    Waiting for each other lies in the others' computing, so that part is only what nothing else explains.
    """

    def compared(read: Callable[[Facts], float]) -> tuple[float, float]:
        """(median over the late ranks, over the others); NaN where none of them was measured."""
        values = [(rank in late, read(facts[rank])) for rank in lateness.ranks]
        there, here = (median_of_known(ms for is_late, ms in values if is_late == of_late) for of_late in (True, False))
        return or_nan(there), or_nan(here)

    def waits(part: str) -> tuple[float, float]:
        there, here = compared(lambda of: of.parts.share(part) * lateness.round_ns / 1e6)
        return measured_or(there), measured_or(here)

    on_cpu_ms, _ = compared(lambda of: mean_of(of.window.steps, "cpu_ns") / 1e6)
    parts = {part: waits(part) for part in WAITS}
    part = max(parts, key=lambda name: parts[name][0] - parts[name][1])
    own, others = parts[part]
    explained = sum(max(0.0, there - here) for there, here in parts.values())
    if own - others >= MOSTLY * late_ms or late_ms - explained <= own - others:
        return part, own, others, on_cpu_ms
    of_own, of_others = compared(_computing_ms)
    if math.isnan(of_own + of_others):
        return "compute", late_ms - explained, 0.0, on_cpu_ms
    # CPU time is read off the whole step, so there was even less of it in this part.
    return "pause" if on_cpu_ms < MOSTLY * of_own else "compute", of_own, of_others, on_cpu_ms


def _computing_ms(facts: Facts) -> float:
    """The forward pass, in which no rank waits for another one; NaN where it is not known."""
    steps = facts.window.steps
    known = steps[(steps["backward_begin_ns"] > 0) & (steps["fetch_end_ns"] > 0)]
    if facts.device_kind != "cpu" or len(known) == 0:
        return math.nan
    return float(np.mean(known["backward_begin_ns"] - known["fetch_end_ns"])) / 1e6


def exchange_of(info: Mapping[str, Any], facts: Facts, samples_per_s: float) -> Finding | None:
    """`rank.exchange`; `None` where nothing was exchanged that is known of, or it is not worth a word.

    Args:
        info: run.json.
        facts: of one of the ranks; they exchange alike.
        samples_per_s: of the whole job.
    """
    told = info.get("exchange")
    if not isinstance(told, dict) or not isinstance(told.get("ms"), int | float) or facts.window.count == 0:
        return None
    step_ms = facts.parts.wall_ns / facts.window.count / 1e6
    share = min(0.99, told["ms"] / step_ms)
    most = samples_per_s / (1 - share)
    found = Finding(
        "rank.exchange",
        f"The ranks exchange gradients for {told['ms']:.1f} ms per step, {100 * share:.0f} % of the time "
        f"({told.get('interconnect')}, {told.get('way')}; emulated).",
        share,
        0.9,
        (
            Evidence("Gradients", _scaled(told.get("bytes"), 1e-6), "MB"),
            Evidence("Interconnect, one direction", _scaled(told.get("gb_per_s"), 1e3), "MB/s, nominal"),
            Evidence("Exchange", told["ms"], "ms per step, computed", "a small part of a step"),
            Evidence("Step", step_ms, "ms"),
        ),
        (
            Next("Use a larger batch per rank: as many samples with fewer exchanges", None, samples_per_s, most),
            Next("Accumulate gradients over several batches before they are exchanged", None, samples_per_s, most),
            Next("Use a faster interconnect", None, samples_per_s, most),
        ),
    )
    return None if found.severity == "none" else found


def _scaled(value: Any, factor: float) -> float | None:
    """`None` where there is no number."""
    return factor * value if isinstance(value, int | float) else None


class JobRank(NamedTuple):
    """One rank, and what was found about it by itself."""

    process: RankProcess
    analysis: Analysis

    @property
    def facts(self) -> Facts | None:
        return self.analysis.facts


@dataclass(frozen=True)
class Job:
    """A job's throughput, and what its ranks wait for each other. A single training process is a job of one rank."""

    lead: int
    """The rank whose own figures stand for the job: the one the others wait for, else the one that idles most."""
    ranks: tuple[int, ...]
    """The ranks that have steps to show."""
    samples: int
    wall_ns: int
    """Time in which all ranks ran; from the first to the last where there was none."""
    steps: int
    """Steps of the rank that leads, in the time of `wall_ns`."""
    late_ns: Mapping[int, float] = field(default_factory=dict)
    """By rank, how much later than the others it is a step; empty where the ranks could not be compared."""
    waits_ns: Mapping[int, float] = field(default_factory=dict)
    """By rank, how long it waits for the last one a step; empty where the ranks could not be compared."""
    waiting_share: float | None = None
    """Share of the time in which ranks wait for each other, averaged over them; part of what counts as computing.
    `None` where they could not be compared."""

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.wall_ns


def job_of_one(rank: int, facts: Facts) -> Job:
    """A training process by itself as a job."""
    return Job(rank, (rank,), facts.samples, facts.parts.wall_ns, facts.window.count)


def job_of(members: Sequence[JobRank]) -> tuple[Job, Finding, list[Finding], list[str]] | None:
    """(the job of several ranks, its verdict, its findings, notes); `None` where no rank has a step to show."""
    by_rank = {member.process.rank: member for member in members}
    facts = {rank: member.facts for rank, member in by_rank.items() if member.facts is not None}
    if not facts:
        return None
    late: Lateness | str = ""
    if len(facts) > 1:
        late = lateness_of(list(facts), list(facts.values()), [by_rank[rank].process.clock for rank in facts])
    lateness = None if isinstance(late, str) else late
    stragglers = () if lateness is None else waited_for(lateness)
    # Where none is waited for, the one that idles most: differences of less than a percent are none.
    idles = min(facts, key=lambda rank: (round(facts[rank].parts.share("compute"), 2), rank))
    lead = stragglers[0] if stragglers else idles
    job = _throughput(facts, by_rank, lateness, lead)
    rate, leading = job.samples_per_s, by_rank[lead].analysis
    verdict, *findings = (_of_rank(f, lead, facts[lead], rate) for f in (leading.verdict, *leading.findings))
    notes = _notes(members, facts, late, alike=not stragglers, on_time=verdict.cause == "none")
    if stragglers and lateness is not None:
        found = finding_of(stragglers, lateness, by_rank, rate)
        # That the rank is late says more than its largest cause, if that is mostly what it costs.
        first = not findings or found.share >= MOSTLY * findings[0].share
        if found.severity != "none":
            findings = [found, *findings] if first else sorted([*findings, found], key=lambda f: -f.gain)
    exchanged = exchange_of(by_rank[lead].process.info, facts[lead], rate)
    if exchanged is not None:
        findings.insert(0 if not findings or exchanged.gain > findings[0].gain else len(findings), exchanged)
    if findings and (verdict.cause is not None or verdict.share):
        verdict = findings[0]
    return job, verdict, findings if verdict.cause is not None else [], notes


def _of_rank(found: Finding, rank: int, facts: Facts, job_samples_per_s: float) -> Finding:
    """A finding about one rank as one about the job: what it predicts, for all ranks together."""
    if found.cause is None:
        return found
    times = job_samples_per_s / facts.samples_per_s if facts.samples_known else 0.0
    following = []
    for n in found.next:
        predicted, low, high = (_scaled(value, times) for value in (n.predicted_samples_per_s, n.low, n.high))
        following.append(Next(n.change, predicted, low, high, n.kind))
    return replace(found, title=f"Rank {rank}: {found.title}", next=tuple(following))


def _throughput(
    facts: Mapping[int, Facts], members: Mapping[int, JobRank], lateness: Lateness | None, lead: int
) -> Job:
    """The job while all of its ranks ran, or from the first to the last."""
    # How far the clock of each is ahead of the first one's: as paired, else as the wall clocks say.
    paired = {} if lateness is None else lateness.ahead_ns
    of_clock = {members[rank].process.clock: int(ns) for rank, ns in paired.items()}
    first, ahead = members[next(iter(facts))].process, {}
    for rank, process in ((rank, members[rank].process) for rank in facts):
        by_wall = 0 if process.wall_ns is None or first.wall_ns is None else first.wall_ns - process.wall_ns
        unpaired = 0 if process.clock == first.clock else by_wall
        of_first = of_clock.get(first.clock, 0)
        ahead[rank] = of_clock[process.clock] - of_first if process.clock in of_clock else unpaired
    begins = {rank: f.window.begin_ns - ahead[rank] for rank, f in facts.items()}
    ends = {rank: f.window.end_ns - ahead[rank] for rank, f in facts.items()}
    begin, end, window = max(begins.values()), min(ends.values()), facts[lead].window
    if end - begin < MOSTLY * max(f.window.wall_ns for f in facts.values()):
        samples, steps = sum(f.samples for f in facts.values()), window.count
        begin, end = min(begins.values()), max(ends.values())
    else:
        samples = round(sum(samples_within(f, begin + ahead[rank], end + ahead[rank]) for rank, f in facts.items()))
        done = _done_ns(window.steps) - ahead[lead]
        whole = (begin, end) == (begins[lead], ends[lead])
        steps = window.count if whole else round(window.count * float(np.mean((done > begin) & (done <= end))))
    job = Job(lead, tuple(facts), samples, end - begin, steps)
    if lateness is None:
        return job
    late_ns, waits_ns = (
        dict(zip(lateness.ranks, map(float, each), strict=True)) for each in (lateness.late_ns, lateness.waits_ns)
    )
    waiting = float(np.mean(lateness.waits_ns)) / lateness.round_ns
    return replace(job, late_ns=late_ns, waits_ns=waits_ns, waiting_share=waiting)


def samples_within(facts: Facts, begin: int, end: int) -> float:
    """Samples that a rank trained on in [begin, end] of its own clock, steps cut in proportion."""
    if (begin, end) == (facts.window.begin_ns, facts.window.end_ns):
        return facts.samples
    steps = facts.window.steps
    of_steps = np.where(steps["samples"] == NOT_MEASURED, 0, steps["samples"])
    before = np.concatenate(([0], steps["skipped_samples"][1:]))
    reached = np.concatenate(([0], np.cumsum(of_steps + before))).astype(float)
    times = np.maximum.accumulate(np.concatenate(([facts.window.begin_ns], _done_ns(steps))))
    if facts.window.skipped_samples_after:
        times = np.append(times, facts.window.end_ns)
        reached = np.append(reached, facts.samples)
    since = (times - facts.window.begin_ns).astype(float)
    low, high = np.interp([begin - facts.window.begin_ns, end - facts.window.begin_ns], since, reached)
    return float(high - low)


def _done_ns(steps: Records) -> Stamps:
    """When each step was done: a host that queues far ahead ends its steps long before the device has done them."""
    return np.where(steps["device_end_ns"] == NOT_MEASURED, steps["step_end_ns"], steps["device_end_ns"])


def _notes(
    members: Sequence[JobRank], facts: Mapping[int, Facts], late: Lateness | str, *, alike: bool, on_time: bool
) -> list[str]:
    """What a reader must know before trusting the job's figures, a sentence each.

    `late`: a sentence where the ranks could not be compared, empty of one rank; `alike`: none of them is waited for;
    `on_time`: nor is anything worth changing on the one that idles most.
    """
    notes = []
    if without := [m.process.rank for m in members if m.facts is None]:
        them = "it" if len(without) == 1 else "them"
        notes.append(f"No steps of {listed(without)} were recorded: the job's figures leave {them} out.")
    if killed := [m.process.rank for m in members if m.process.killed and m.facts is not None]:
        notes.append(f"{unended(killed).capitalize()}.")
    counts = {rank: each.window.count + each.window.warmup_steps for rank, each in facts.items()}
    most = max(counts.values())
    if fewer := [rank for rank, count in counts.items() if most - count > LEAST_MORE_STEPS]:
        least = min(counts[rank] for rank in fewer)
        notes.append(f"{listed(fewer).capitalize()} ran fewer steps than the others: {least} of {most}.")
    if isinstance(late, str):
        return [*notes, late] if late else notes
    rounds, uneven = late.behind_ns.shape[1], late.uneven_ns / late.round_ns
    if (clocks := len({m.process.clock for m in members if m.process.rank in late.ranks})) > 1:
        notes.append(
            f"The clocks of {clocks} hosts were paired by the ends of {rounds} steps' collectives, which scatter by "
            f"{late.spread_ns / 1e3:.0f} µs."
        )
    if late.seen_share < MOSTLY:
        notes.append(
            f"The ranks were compared only at the {rounds} steps that all of them measured: "
            f"{100 * late.seen_share:.0f} % of all."
        )
    if alike and uneven / (1 - min(uneven, 0.99)) >= LEAST_GAIN:
        notes.append(
            "No single rank holds up the others: the ranks are late in turn. The last arrivals of the steps cost "
            f"{100 * uneven:.0f} % of the time ({late.uneven_ns / 1e6:.1f} ms per step) more than any one rank's. On "
            f"average a rank waits {float(np.mean(late.waits_ns)) / 1e6:.1f} ms per step. Deeper prefetching helps "
            "where they wait for data."
        )
    if alike and on_time and all(each.device_kind == "cuda" for each in facts.values()):
        notes.append(
            "A rank whose device computes longer than the others' would not show: it begins its steps on time, and "
            "the others' wait for it lies within their computing. Check the devices' clocks (`nvidia-smi -q -d "
            "CLOCK,PERFORMANCE`), or run each rank by itself."
        )
    return notes
