"""What is about the run as a whole: the time before its first step, and a part of the steps that grows."""

from __future__ import annotations

from dataclasses import replace

from ..run.facts import Facts
from ..run.stall_breakdown import TOTAL, UNTOLD
from ..run.startup import COMPILING, FIRST_FETCH, IMPORTS, SET_UP, SKIPPING
from ..run.trends import JUMPS, Trend, growing
from ..shares import MOSTLY, NEARLY_ALL
from ..where.own_loop import OwnLoop
from .claim import Claim
from .finding import Evidence, Finding, Next
from .own_loop import own_ns

MEMORY_GROWS = 1.1
"""Memory at the end of the run over that at its beginning, from which it is said to grow."""

_MEANS = {
    "compute": "computing",
    "input": "waiting for data",
    "copy": "waiting for copies",
    "sync": "waiting in synchronising calls",
    "host": "the loop's own work",
    "boundary": "time outside the steps",
    UNTOLD: "the whole step",
}
_CHANGES = {
    "compute": "Look for what each step adds to the graph: a loss or hidden state summed without `.detach()` or "
    "`.item()`, hooks or modules that are registered again, `retain_graph=True`",
    "input": "Look for what grows with the steps in dataset, sampler and `collate_fn`: a list or cache that is "
    "searched or copied, a file that is read from its start for each sample, a sampler that filters all earlier draws",
    "copy": "Look for what each step adds to the batch, and for host memory that runs short",
    "sync": "Look for what the loop reads from the device in growing amounts: histories that are stacked and moved, "
    "metrics over all earlier steps",
    "host": "Look for what the loop keeps of every step (a history that is averaged, plotted or copied, a log or CSV "
    "that is rewritten, a list that is searched); append instead, and keep running sums",
    "boundary": "Look for what validation, checkpoints or epoch hooks do with everything gathered so far; write and "
    "compute only what is new, and keep running sums",
    UNTOLD: "Look for what the loop keeps of every step: a history, a log that is rewritten, a graph that is not "
    "detached, a list that is searched",
}


LEAST_TOLD = 0.01
"""Share of the claim, from which a stage is told."""
LEAST_NAMED = 0.2
"""Share of the claim, from which there is a change for a stage."""
LARGE_SHARE = 0.15
"""Share of the run, from which what a program does before its first step is a large part of it."""
LARGE_NS = 3_000_000_000
"""How long that takes, at least: programs that run for seconds have set-ups of seconds."""
LONG_NS = 30_000_000_000
"""How long it takes to be worth a word in a run of any length."""
LEAST_BOUNDED, BOUNDED = 0.5, 0.9
"""Share of what grew that is gone when it grows no further, at least and as expected: it stays at its bound."""
_STAGES = {
    SET_UP: "set-up before the first batch is requested",
    SKIPPING: "fetching batches that are not trained on",
    FIRST_FETCH: "preparing the first batch, beyond the time of others",
    COMPILING: "torch's compiler",
}
_START_CHANGES = {
    SET_UP: "Look at what the program does before its loop: write an index, file sizes or a vocabulary to a file once "
    "and read it from there, or compute it lazily; copy and unpack data beforehand",
    SKIPPING: "Skip indices instead of batches when resuming: use a sampler that begins later, "
    "`torch.utils.data.Subset`, or torchdata's `StatefulDataLoader` for iterable datasets",
    FIRST_FETCH: "Look at what the dataset does for its first sample (an index, a file that is read up to a position, "
    "a cache): write the result to a file once, or do it before the workers are forked",
    COMPILING: "Keep compiled code: set a `TORCHINDUCTOR_CACHE_DIR` that outlives the run, set `dynamic=True` where "
    "shapes vary, or compile only the repeated blocks",
}


def starting_up(claim: Claim) -> Finding | None:
    """The program's own time before the first step, where it is a large part of the run, or long."""
    startup = claim.facts.startup
    if startup is None or startup.run_ns <= 0:
        return None
    large = claim.ns >= max(LARGE_NS, LARGE_SHARE * startup.run_ns)
    if not (large or claim.ns >= LONG_NS):
        return None
    share = min(0.99, claim.ns / startup.run_ns)
    own = sorted(((ns, stage) for stage, ns in startup.own_ns.items()), reverse=True)
    most, stage = own[0]
    skipped = "" if startup.skipped is None or stage != SKIPPING else f" ({startup.skipped} of them)"
    least = LEAST_TOLD * claim.ns
    return Finding(
        claim.code,
        f"The program spends {claim.ns / 1e9:.1f} s before its first step ({100 * share:.0f} % of the run, imports "
        f"left out). {'All' if most >= NEARLY_ALL * claim.ns else 'Most'} of it is {_STAGES[stage]}{skipped}.",
        share,
        0.85 if startup.whole else 0.7,
        (
            Evidence("Start of the program to the end of its first step", startup.total_ns / 1e9, "s"),
            *(Evidence(_STAGES[n].capitalize(), ns / 1e9, "s", "near 0 s") for ns, n in own if ns >= least),
            Evidence("Imports (no fault)", startup.ns(IMPORTS) / 1e9 if startup.whole else None, "s"),
            Evidence("Whole run", startup.run_ns / 1e9, "s"),
        ),
        tuple(
            claim.removing(
                f"{_START_CHANGES[name]} (at most {ns / 1e9:.1f} of the run's {startup.run_ns / 1e9:.1f} s)",
                ns / startup.run_ns * claim.facts.parts.wall_ns,
                kind="slice" if name == SKIPPING else "settings" if name == COMPILING else "once",
            )
            for ns, name in own
            if ns >= LEAST_NAMED * claim.ns
        ),
        least_severity="minor",
    )


def slowing(claim: Claim) -> Finding | None:
    """Parts of the steps that grow by themselves, the largest growth first."""
    facts = claim.facts
    grown = sorted((each for each in facts.trends if _counts(each)), key=lambda each: -_ns(each))
    if not grown:
        return None
    first = grown[0]
    jumps = first.shape == JUMPS
    where = "per stretch" if first.part == "boundary" else "per step"
    loop = _loop_told_apart(facts, first.part)
    others = "".join(f", and {_MEANS[each.part]} from {_levels(each)}" for each in grown[1:])
    since = "" if first.since is None else f" {'at' if jumps else 'from'} step {first.since}{'' if jumps else ' on'}"
    found = claim.found(
        f"The training slows down as it runs: {_MEANS[first.part]} {'jumps' if jumps else 'grows'} from "
        f"{_levels(first)} {where}{since}{others}. The growth costs {claim.percent()} of the time.",
        0.6 if jumps else 0.85,
        (*(evidence for each in grown for evidence in _evidence(facts, each, where)), *_memory(facts)),
        tuple(_change(claim, each) for each in grown),
    )
    return found if loop is None else replace(found, where=loop.lines.get(loop.grows, ()))


def leads(facts: Facts) -> bool:
    """Whether growth is most of the time of the part that grows most, so that it says more than that part's cause."""
    part = grows_most(facts)
    return part is not None and growing(facts.trends)[part].value > MOSTLY * _whole_ns(facts, part)


def kin_of_growth(facts: Facts) -> str:
    """How codes of other causes begin that explain the part that grows most; empty where none does."""
    return {"input": "input.", "copy": "copy.", "sync": "host.sync", "host": "host.", "boundary": "host.boundary"}.get(
        grows_most(facts) or "", ""
    )


def grows_most(facts: Facts) -> str | None:
    """The part whose growth takes most time; `None` where none grows."""
    grown = growing(facts.trends)
    return max(grown, key=lambda name: grown[name].value) if grown else None


def _whole_ns(facts: Facts, part: str) -> float:
    """What the part takes of which something grows: where clocks tell no parts apart, what the stack tells of it."""
    if part != UNTOLD:
        return float(getattr(facts.parts, f"{part}_ns"))
    loop = _loop_told_apart(facts, part)
    return float(facts.parts.wall_ns) if loop is None else own_ns(facts, loop, loop.grows)


def _loop_told_apart(facts: Facts, part: str) -> OwnLoop | None:
    """Where clocks tell no parts apart: the loop whose stack tells which of its work grows."""
    loop = facts.own_loop
    return loop if part == UNTOLD and loop is not None and loop.grows else None


def _counts(trend: Trend) -> bool:
    return trend.part != TOTAL and _ns(trend) > 0


def _ns(trend: Trend) -> float:
    return 0.0 if trend.grown is None else trend.grown.value


def _levels(trend: Trend) -> str:
    return f"{trend.first_ms:.1f} to {trend.last_ms:.1f} ms"


def _evidence(facts: Facts, trend: Trend, where: str) -> tuple[Evidence, ...]:
    name = _MEANS[trend.part]
    whole, loop = _whole_ns(facts, trend.part), _loop_told_apart(facts, trend.part)
    of = name if loop is None else loop.grows
    return (
        Evidence(f"{name.capitalize()}, first fifth", trend.first_ms, f"ms {where}"),
        Evidence(f"{name.capitalize()}, last fifth", trend.last_ms, f"ms {where}", f"{trend.first_ms:.1f} ms"),
        Evidence(f"Growth of {name} in 1,000 steps", trend.slope.value, "ms", "near 0 ms"),
        Evidence(f"Growth of {name} in 1,000 steps, lower bound", trend.slope.low, "ms", "below 0 ms"),
        Evidence(f"Growth as a share of {of}", 100 * _ns(trend) / whole if whole else None, "%", "near 0 %"),
    )


def _memory(facts: Facts) -> tuple[Evidence, ...]:
    if facts.memory_grew is None:
        return ()
    first, last = facts.memory_grew
    return (
        Evidence("Memory of the training's processes, first fifth", first, "bytes"),
        Evidence("Memory of the training's processes, last fifth", last, "bytes", "about the same"),
    )


def _change(claim: Claim, trend: Trend) -> Next:
    change, grown = _CHANGES[trend.part], trend.grown
    memory = claim.facts.memory_grew
    if memory is not None and memory[1] > MEMORY_GROWS * memory[0]:
        change += f" (memory grows too, from {memory[0] / 1e6:.0f} to {memory[1] / 1e6:.0f} MB: something is kept)"
    if grown is None or grown.high <= 0:
        return Next(change, kind="bound")
    most = min(grown.high, 0.99 * claim.facts.parts.wall_ns)
    least, likely = LEAST_BOUNDED * grown.low / grown.high, BOUNDED * grown.value / grown.high
    return claim.removing(change, most, least=least, likely=likely, kind="bound")
