"""The ranks that the others wait for, what they were late for, and what to do about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...record.schema import NOT_MEASURED
from ..causes.finding import Evidence, Finding, Next
from ..run.facts import Facts
from ..shares import MOSTLY, NEARLY_ALL
from .arrivals import Lateness
from .clock import Stamps
from .membership import listed

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
_FOR = {
    "input": "data",
    "copy": "copies to its device",
    "sync": "synchronising calls",
    "host": "other work of its training loop",
    "boundary": "work outside its steps (validation, checkpoints)",
    "compute": "its own computing",
    "pause": "code between the fetch and the backward pass that does not compute",
}
_CHANGE = {
    "input": "give it what the other ranks have: CPUs, storage, as much and as cheap data",
    "copy": "copy its batches as the other ranks do: pinned, ahead, over a link of the same speed",
    "sync": "read losses and metrics on no rank more often than on the others",
    "host": "share out what only this rank does (logging, metrics), or do it less often",
    "boundary": "share out what only this rank does (validation, checkpoints), or do it beside the training",
    "compute": "look at its device and host (clocks, temperature, other programs), and at the size of its batches",
    "pause": "look at the code between the fetch and the backward pass for sleeps, locks, files, the network; while "
    "it runs, `whyidle attach PID` names the line",
}


@dataclass(frozen=True)
class Straggler:
    """One rank, or several that are late alike."""

    ranks: tuple[int, ...]
    cost_ns: float
    """How much shorter a round would be without their lateness."""
    late_ns: float
    """How much later than the other ranks they arrive on average."""
    last_share: float
    """Share of the rounds in which one of them arrived last."""
    others_wait_ns: float
    """How long each of the others waits a round."""


def straggler_of(lateness: Lateness) -> Straggler | None:
    """The ranks that are later than all others on average, beyond chance; `None` where they are late in turn."""
    order = np.argsort(-lateness.mean_ns, kind="stable")
    behind = lateness.behind_ns[order]
    # Without the first n of the order, the last of the others decides.
    last_without = np.maximum.accumulate(behind[::-1], axis=0)[::-1]
    cost = (last_without[0] - last_without).mean(axis=1)
    most = len(order) // 2
    if cost[most] <= 0:
        return None
    # The fewest without whom nearly all is saved that any number of them would save.
    count = next(n for n in range(1, most + 1) if cost[n] >= NEARLY_ALL * cost[1 : most + 1].max())
    ahead_of_next = behind[:count].mean(axis=0) - behind[count]
    surplus, sure = float(ahead_of_next.mean()), _error(ahead_of_next)
    # With many ranks some rank is always late by chance.
    sigmas = math.sqrt(SIGMAS**2 + 2 * math.log(len(order) / 2))
    # Most of what they cost comes of being late on average; what is left may come of being late in turn.
    if surplus < max(MOSTLY * float(cost[count]), sigmas * sure):
        return None
    others = behind[count:]
    return Straggler(
        tuple(sorted(lateness.ranks[n] for n in order[:count])),
        float(cost[count]),
        float(behind[:count].mean() - np.median(others.mean(axis=1))),
        float((behind[:count].max(axis=0) >= last_without[0]).mean()),
        float((last_without[0] - others).mean()),
    )


def finding_of(
    straggler: Straggler,
    lateness: Lateness,
    facts: Mapping[int, Facts],
    hosts: Mapping[int, str],
    findings: Mapping[int, Sequence[Finding]],
    samples_per_s: float | None,
) -> Finding:
    """`rank.straggler`, with the cause of the rank's own diagnosis.

    Args:
        facts: of each rank that was compared.
        findings: of each of them by itself.
        samples_per_s: of the whole job.
    """
    share = min(0.99, straggler.cost_ns / lateness.round_ns)
    who = listed(straggler.ranks)
    one = len(straggler.ranks) == 1
    part, own_ms, others_ms = _waited_for(straggler, lateness, facts)
    cause = next((f for f in findings[straggler.ranks[0]] if part == _part(f.cause)), None)
    where = sorted({hosts[rank] for rank in straggler.ranks if hosts[rank]})
    on_cpu = any(f.device_kind == "cpu" for f in facts.values())
    most = None if samples_per_s is None or on_cpu else samples_per_s / (1 - share)
    changes = [n.change for n in cause.next] if cause else []
    # What is wrong on the other ranks as well does not make this one late.
    alike = [cause is not None and cause.cause in {f.cause for f in of} for of in findings.values()]
    changes.insert(0 if all(alike) else len(changes), _CHANGE[part])
    return Finding(
        "rank.straggler",
        f"The other ranks wait {straggler.others_wait_ns / 1e6:.1f} ms a step for {who}, {100 * share:.0f} % of the "
        f"time; {'it is' if one else 'they are'} late because of {_FOR[part]}{f' ({cause.cause})' if cause else ''}.",
        share,
        0.9 if part not in ("compute", "pause") else 0.7,
        (
            Evidence("waited for", who),
            Evidence("host", ", ".join(where) or None),
            Evidence(f"{who} later than the others", straggler.late_ns / 1e6, "ms a step", "near 0"),
            Evidence("the others wait", straggler.others_wait_ns / 1e6, "ms a step", "near 0"),
            Evidence(
                f"steps in which {'it' if one else 'one of them'} came last",
                100 * straggler.last_share,
                "%",
                f"{100 * len(straggler.ranks) / len(lateness.ranks):.0f}",
            ),
            Evidence(f"{_FOR[part]}, there", own_ms, "ms a step", f"{others_ms:.1f} as on the others"),
            *(_making(straggler, facts) if part == "input" else ()),
            *(_on_cpu(straggler, facts) if part == "pause" else ()),
            *((Evidence("cause there", cause.cause), *cause.evidence) if cause else ()),
        ),
        tuple(Next(f"{who}: {change}", None, samples_per_s, most) for change in changes),
    )


def _making(straggler: Straggler, facts: Mapping[int, Facts]) -> tuple[Evidence, ...]:
    """Whether samples are slower to make on these ranks than on the others."""
    known = {rank: ms for rank, of in facts.items() if (ms := of.loader.make_ms_per_sample) is not None}
    own = [ms for rank, ms in known.items() if rank in straggler.ranks]
    others = [ms for rank, ms in known.items() if rank not in straggler.ranks]
    if not own or not others:
        return ()
    typical = f"{np.median(others):.1f} as on the others"
    return (Evidence("making one sample there takes", float(np.median(own)), "ms", typical),)


def _on_cpu_ms(straggler: Straggler, facts: Mapping[int, Facts]) -> float | None:
    """CPU time a step of the thread that trains, the median over these ranks; `None` where it was not measured."""
    known = [cpu[cpu != NOT_MEASURED] for rank in straggler.ranks for cpu in (facts[rank].window.steps["cpu_ns"],)]
    means = [float(cpu.mean()) for cpu in known if len(cpu)]
    return float(np.median(means)) / 1e6 if means else None


def _on_cpu(straggler: Straggler, facts: Mapping[int, Facts]) -> tuple[Evidence, ...]:
    return (Evidence("its thread was on a CPU", _on_cpu_ms(straggler, facts), "ms a step", "as long as it computes"),)


def _waited_for(straggler: Straggler, lateness: Lateness, facts: Mapping[int, Facts]) -> tuple[str, float, float]:
    """(the part that is larger on these ranks than on the others, ms a round there, ms a round on the others).

    Waiting for each other lies in the others' computing, so that part is only what nothing else explains.
    """
    late = set(straggler.ranks)
    a_round = {rank: lateness.round_ns / of.parts.wall_ns for rank, of in facts.items() if rank in lateness.ranks}

    def mean_ms(part: str, own: bool) -> float:
        amounts = [getattr(facts[r].parts, f"{part}_ns") * scale for r, scale in a_round.items() if (r in late) == own]
        return float(np.median(amounts)) / 1e6

    parts = {part: (mean_ms(part, True), mean_ms(part, False)) for part in WAITS}
    part = max(parts, key=lambda name: parts[name][0] - parts[name][1])
    own, others = parts[part]
    late_ms = straggler.late_ns / 1e6
    explained = sum(max(0.0, there - here) for there, here in parts.values())
    if own - others < MOSTLY * late_ms and late_ms - explained > own - others:
        computing = {rank: _computing_ms(facts[rank]) for rank in a_round}
        known_own = [ms for rank, ms in computing.items() if rank in late and ms is not None]
        known_others = [ms for rank, ms in computing.items() if rank not in late and ms is not None]
        if known_own and known_others:
            of_own, of_others = float(np.median(known_own)), float(np.median(known_others))
            on_cpu = _on_cpu_ms(straggler, facts)
            # It is read off the whole step, so there was even less of it in this part.
            paused = on_cpu is not None and on_cpu < MOSTLY * of_own
            return "pause" if paused else "compute", of_own, of_others
        return "compute", late_ms - explained, 0.0
    return part, own, others


def _computing_ms(facts: Facts) -> float | None:
    """The forward pass, in which no rank waits for another one."""
    steps = facts.window.steps
    known = steps[(steps["backward_begin_ns"] > 0) & (steps["fetch_end_ns"] > 0)]
    if facts.device_kind != "cpu" or len(known) == 0:
        return None
    return float(np.mean(known["backward_begin_ns"] - known["fetch_end_ns"])) / 1e6


def _part(cause: str | None) -> str | None:
    """The part of the time that a cause explains."""
    return None if cause is None else _PART_OF.get(cause) or _PART_OF.get(cause.split(".")[0])


def _error(values: Stamps) -> float:
    """Standard error of a mean of values that come in spells."""
    means = np.array([block.mean() for block in np.array_split(values, min(SPELLS, len(values)))])
    return float(means.std(ddof=1) / math.sqrt(len(means)))
