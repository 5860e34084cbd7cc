"""A job of several ranks: its throughput, the means over its ranks, and the verdict of the rank the others wait for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED
from ..causes.finding import LEAST_GAIN, Evidence, Finding, Next
from ..run.facts import Facts
from ..run.stall_breakdown import PARTS, UNTOLD
from ..shares import MOSTLY
from .arrivals import Lateness, lateness_of
from .clock import Stamps
from .membership import LEAST_MORE_STEPS, RankProcess, listed, unended
from .straggler import Straggler, finding_of, straggler_of


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
        f"The ranks exchange gradients {told['ms']:.1f} ms a step, {100 * share:.0f} % of the time "
        f"({told.get('interconnect')}, {told.get('way')}; emulated).",
        share,
        0.9,
        (
            Evidence("gradients", _times(told.get("bytes"), 1e-6), "MB"),
            Evidence("interconnect, one direction", _times(told.get("gb_per_s"), 1e3), "MB/s, nominal"),
            Evidence("exchange", told["ms"], "ms a step, computed", "little of a step"),
            Evidence("a step", step_ms, "ms"),
        ),
        (
            Next("a larger batch of each rank: as many samples with fewer exchanges", None, samples_per_s, most),
            Next("accumulate gradients over several batches before they are exchanged", None, samples_per_s, most),
            Next("a faster interconnect", None, samples_per_s, most),
        ),
    )
    return None if found.severity == "none" else found


def _times(value: Any, factor: float) -> float | None:
    return factor * value if isinstance(value, int | float) else None


WALL_CLOCKS_APART_NS = 1_000_000_000
"""Difference between what two hosts' wall clocks say and what their ranks' collectives say, from which a note says so:
those clocks are set by hand or by NTP, which keeps them within a second."""


@dataclass(frozen=True)
class JobRank:
    """One rank and what was found about it by itself."""

    process: RankProcess
    facts: Facts | None
    findings: tuple[Finding, ...]
    verdict: Finding

    @property
    def rank(self) -> int:
        return self.process.rank


@dataclass(frozen=True)
class Job:
    """A job's throughput, and what its ranks wait for each other."""

    lead: int
    """The rank whose own figures stand for the job: the one the others wait for, else the one that idles most."""
    ranks: tuple[int, ...]
    samples: int
    wall_ns: int
    """Time in which all ranks ran; from the first to the last where there was none."""
    steps: int
    """Steps of the rank that leads, in the time of `wall_ns`."""
    shares: dict[str, float]
    """Known parts of the wall time, averaged over the ranks, and `UNTOLD`."""
    late_ns: dict[int, float]
    """By rank, how much later than the others it is a step; empty where the ranks could not be compared."""
    waits_ns: dict[int, float]
    """By rank, how long it waits for the last one a step; empty where the ranks could not be compared."""
    waiting_share: float | None
    """Share of the time in which ranks wait for each other, averaged over them; part of what counts as computing.
    `None` where they could not be compared."""
    straggler: Straggler | None
    """`None` where no rank is waited for, or it costs too little to be worth a word."""
    verdict: Finding
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def samples_per_s(self) -> float:
        return self.samples * 1e9 / self.wall_ns


def job_of(members: Sequence[JobRank]) -> Job | None:
    """The job of these ranks; `None` where none of them has a step to show."""
    with_facts = {m.rank: m.facts for m in members if m.facts is not None}
    if not with_facts:
        return None
    ranks = tuple(with_facts)
    by_rank = {m.rank: m for m in members}
    clocks = [by_rank[rank].process.clock for rank in ranks]
    late = lateness_of(ranks, list(with_facts.values()), clocks) if len(ranks) > 1 else ""
    notes = _counts(members)
    if isinstance(late, str):
        notes += [late] if late else []
        lateness = None
    else:
        lateness = late
        notes += _clock_notes(lateness, by_rank)
        if lateness.seen_share < MOSTLY:
            notes.append(
                f"The ranks were compared at {lateness.behind_ns.shape[1]} steps only, which all of them looked at: "
                f"{100 * lateness.seen_share:.0f} % of all."
            )
    straggler = straggler_of(lateness) if lateness is not None else None
    samples, wall_ns, steps = _throughput([by_rank[rank] for rank in ranks], lateness)
    rate = samples * 1e9 / wall_ns
    lead = straggler.ranks[0] if straggler is not None else _idles_most(with_facts)
    findings = [_of_rank(f, by_rank[lead], rate) for f in by_rank[lead].findings]
    verdict = _of_rank(by_rank[lead].verdict, by_rank[lead], rate)
    if straggler is not None and lateness is not None:
        hosts = {rank: by_rank[rank].process.host for rank in ranks}
        own = {rank: by_rank[rank].findings for rank in ranks}
        found = finding_of(straggler, lateness, with_facts, hosts, own, rate)
        if found.severity != "none":
            # That the rank is late says more than its largest cause, if that is mostly what it costs.
            specific = not findings or found.share >= MOSTLY * findings[0].share
            findings = [found, *findings] if specific else sorted([*findings, found], key=lambda f: -f.gain)
        else:
            straggler = None
    elif lateness is not None:
        notes += _in_turn(lateness)
        if verdict.cause == "none" and all(facts.device_kind == "cuda" for facts in with_facts.values()):
            notes.append(_SLOW_DEVICE)
    exchanged = exchange_of(by_rank[lead].process.info, with_facts[lead], rate)
    if exchanged is not None:
        first = not findings or exchanged.gain > findings[0].gain
        findings = [exchanged, *findings] if first else [*findings, exchanged]
    if findings and (verdict.cause is not None or verdict.share):
        verdict = findings[0]
    return Job(
        lead=lead,
        ranks=ranks,
        samples=samples,
        wall_ns=wall_ns,
        steps=steps[lead],
        shares=_shares([facts.shares for facts in with_facts.values()]),
        late_ns=_by_rank(lateness, lateness.late_ns) if lateness is not None else {},
        waits_ns=_by_rank(lateness, lateness.waits_ns) if lateness is not None else {},
        waiting_share=float(np.mean(lateness.waits_ns)) / lateness.round_ns if lateness is not None else None,
        straggler=straggler,
        verdict=verdict,
        findings=tuple(findings),
        notes=tuple(notes),
    )


_SLOW_DEVICE = (
    "A rank whose device computes longer than the others' would not show: it begins its steps in time, and what the "
    "others wait for it lies within their computing. The devices' clocks tell (`nvidia-smi -q -d CLOCK,PERFORMANCE`), "
    "and each rank run by itself."
)


def _shares(ranks: Sequence[dict[str, float]]) -> dict[str, float]:
    """Averaged; a part that one rank does not know, the job does not."""
    shares = {part: float(np.mean([rank[part] for rank in ranks])) for part in PARTS if all(part in r for r in ranks)}
    return shares | {UNTOLD: 1 - sum(shares.values())} if any(UNTOLD in rank for rank in ranks) else shares


def _by_rank(lateness: Lateness, values: Stamps) -> dict[int, float]:
    return dict(zip(lateness.ranks, map(float, values), strict=True))


def _idles_most(facts: dict[int, Facts]) -> int:
    """Which rank's verdict to give where none is waited for: differences of less than a percent are none."""
    return min(facts, key=lambda rank: (round(facts[rank].parts.share("compute"), 2), rank))


def _of_rank(found: Finding, member: JobRank, job_samples_per_s: float) -> Finding:
    """A finding about one rank as one about the job: what it predicts, for all ranks together."""
    if found.cause is None or member.facts is None:
        return found
    times = job_samples_per_s / member.facts.samples_per_s if member.facts.samples_known else 0.0

    def scaled(value: float | None) -> float | None:
        return None if value is None else value * times

    following = tuple(
        Next(n.change, scaled(n.predicted_samples_per_s), scaled(n.low), scaled(n.high), n.kind) for n in found.next
    )
    return replace(found, title=f"Rank {member.rank}: {found.title}", next=following)


def _throughput(members: Sequence[JobRank], lateness: Lateness | None) -> tuple[int, int, dict[int, int]]:
    """(samples of all ranks, wall time, steps of each): while all of them ran, or from the first to the last."""
    ahead = _ahead_ns(members, lateness)
    facts = [m.facts for m in members if m.facts is not None]
    begins = [f.window.begin_ns - a for f, a in zip(facts, ahead, strict=True)]
    ends = [f.window.end_ns - a for f, a in zip(facts, ahead, strict=True)]
    begin, end = max(begins), min(ends)
    if end - begin < MOSTLY * max(f.window.wall_ns for f in facts):
        whole = {m.rank: m.facts.window.count for m in members if m.facts is not None}
        return sum(f.samples for f in facts), max(ends) - min(begins), whole
    own = list(zip(facts, ahead, strict=True))
    steps = [steps_within(f, begin + a, end + a) for f, a in own]
    samples = round(sum(samples_within(f, begin + a, end + a) for f, a in own))
    return samples, end - begin, dict(zip((m.rank for m in members if m.facts is not None), steps, strict=True))


def steps_within(facts: Facts, begin: int, end: int) -> int:
    """Steps of a rank in [begin, end] of its own clock, about."""
    window = facts.window
    if (begin, end) == (window.begin_ns, window.end_ns):
        return window.count
    ends = _done_ns(window.steps)
    return round(window.count * float(np.mean((ends > begin) & (ends <= end))))


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


def _ahead_ns(members: Sequence[JobRank], lateness: Lateness | None) -> list[int]:
    """How far the clock of each rank is ahead of the first one's: as paired, else as the wall clocks say."""
    if lateness is not None:
        paired = dict(zip(lateness.ranks, np.median(lateness.pairing.ahead_ns, axis=1), strict=True))
        of_clock = {m.process.clock: int(paired[m.rank]) for m in members if m.rank in paired}
    else:
        of_clock = {}
    first = members[0].process
    ahead = []
    for member in members:
        process = member.process
        if process.clock in of_clock:
            ahead.append(of_clock[process.clock] - of_clock.get(first.clock, 0))
        elif process.clock == first.clock or process.wall_ns is None or first.wall_ns is None:
            ahead.append(0)
        else:
            ahead.append(first.wall_ns - process.wall_ns)
    return ahead


def _counts(members: Sequence[JobRank]) -> list[str]:
    notes = []
    if without := [m.rank for m in members if m.facts is None]:
        notes.append(f"No steps of {listed(without)} were recorded: the job's figures leave {_them(without)} out.")
    if killed := [m.rank for m in members if m.process.killed and m.facts is not None]:
        notes.append(f"{unended(killed).capitalize()}.")
    counts = {m.rank: m.facts.window.count + m.facts.window.warmup_steps for m in members if m.facts is not None}
    most = max(counts.values())
    fewer = [rank for rank, count in counts.items() if most - count > LEAST_MORE_STEPS]
    if fewer:
        least = min(counts[rank] for rank in fewer)
        notes.append(f"{listed(fewer).capitalize()} ran fewer steps than the others: {least} of {most}.")
    return notes


def _them(ranks: Sequence[int]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _clock_notes(lateness: Lateness, members: dict[int, JobRank]) -> list[str]:
    clocks = {members[rank].process.clock for rank in lateness.ranks}
    if len(clocks) == 1:
        return []
    notes = [
        f"The clocks of {len(clocks)} hosts were paired by the ends of {lateness.behind_ns.shape[1]} steps' "
        f"collectives, which scatter by {lateness.pairing.spread_ns / 1e3:.0f} µs."
    ]
    first = members[lateness.ranks[0]].process
    for rank, ahead in zip(lateness.ranks, np.median(lateness.pairing.ahead_ns, axis=1), strict=True):
        process = members[rank].process
        if process.clock == first.clock or process.wall_ns is None or first.wall_ns is None:
            continue
        apart = abs(float(ahead) - (first.wall_ns - process.wall_ns))
        if apart > WALL_CLOCKS_APART_NS:
            notes.append(
                f"The wall clocks of {process.host or 'a host'} and {first.host or 'the first host'} differ by "
                f"{apart / 1e9:.1f} s from that: they are not set alike, or steps are not counted alike there."
            )
            break
    return notes


def _in_turn(lateness: Lateness) -> list[str]:
    """What being late in turn costs, where it is worth a word."""
    share = lateness.uneven_ns / lateness.round_ns
    if share / (1 - min(share, 0.99)) < LEAST_GAIN:
        return []
    return [
        "No single rank is waited for: the ranks are late in turn. The last arrivals of the steps add up to "
        f"{100 * share:.0f} % of the time ({lateness.uneven_ns / 1e6:.1f} ms a step) more than any one rank's; on "
        f"average a rank waits {float(np.mean(lateness.waits_ns)) / 1e6:.1f} ms a step. Deeper prefetching evens it "
        "out where data is what they wait for."
    ]
