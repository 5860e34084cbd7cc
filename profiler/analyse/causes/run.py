"""What is not of single steps: the time before the first, outside them, a part that grows, a loop without a loader."""

from __future__ import annotations

from dataclasses import dataclass

from ..run.facts import Facts
from ..run.host_gaps import Outside
from ..run.loader_stats import BUSY
from ..run.stall_breakdown import TOTAL, UNTOLD
from ..run.startup import COMPILING, FIRST_FETCH, IMPORTS, SET_UP, SKIPPING
from ..run.trends import JUMPS, Trend, growing
from ..shares import MOSTLY, NEARLY_ALL
from ..statistics import Estimate
from ..where import selection
from ..where.own_loop import EVALUATING, MAKING, OwnLoop
from ..where.remedies import STARTING
from ..where.selection import WORTH_A_LINE, Lines, grows_most
from .claim import Claim, Piece, cause, of_validation
from .finding import Evidence, Next
from .input_batches import KEEP_WORKERS, PERSISTENCE, PERSISTENT
from .input_supply import serial
from .pieces import own_ns, restarts


@dataclass(frozen=True)
class RunThresholds:
    """Thresholds of what is about the run as a whole: shares, 0..1."""

    memory_grows: float = 1.1
    """Memory at the end over that at the beginning, from which it is said to grow."""
    told: float = 0.01
    """Share of the time before the first step from which a stage of it is told."""
    named: float = 0.2
    """Share of a claim that something has to take for a change to it to be named."""
    large: float = 0.15
    """Share of the run from which the time before its first step is large."""
    large_ns: float = 3e9
    """How long that takes then, at least: short programs have set-ups of seconds."""
    long_ns: float = 30e9
    """How long it takes to be worth a word in a run of any length."""
    ending: float = 0.01
    """Share of the wall time from which stopping workers is told: keeping them is free."""
    longest_ending_ns: float = 1e9
    """Mean length of an epoch's end up to which stopping its workers explains it: that takes tenths of a second."""


RUN = RunThresholds()

# The time before the first step.

_STAGES = {
    SET_UP: (
        "set-up before the first batch is requested",
        "Look at what the program does before its loop: write an index, file sizes or a vocabulary to a file once "
        "and read it from there, or compute it lazily; copy and unpack data beforehand",
        "once",
    ),
    SKIPPING: (
        "fetching batches that are not trained on",
        "Skip indices instead of batches when resuming: use a sampler that begins later, "
        "`torch.utils.data.Subset`, or torchdata's `StatefulDataLoader` for iterable datasets",
        "slice",
    ),
    FIRST_FETCH: (
        "preparing the first batch, beyond the time of others",
        "Look at what the dataset does for its first sample (an index, a file that is read up to a position, "
        "a cache): write the result to a file once, or do it before the workers are forked",
        "once",
    ),
    COMPILING: (
        "torch's compiler",
        "Keep compiled code: set a `TORCHINDUCTOR_CACHE_DIR` that outlives the run, set `dynamic=True` where "
        "shapes vary, or compile only the repeated blocks",
        "settings",
    ),
}
"""Stages before the first step: in words, what to change, and the kind of change."""


_STARTING = Lines(selection.starting_up, STARTING, worth=WORTH_A_LINE, spared=selection.time_only)


@cause("run.startup", Piece.BEFORE, lines=_STARTING)
def starting_up(claim: Claim) -> None:
    """The program takes long before its first step: indexing a data set, skipping by loading, compiling.

    It is told where that is a large part of the run, or long. Its share is of the whole run; imports are no fault.
    """
    startup = claim.facts.startup
    if startup is None or startup.run_ns <= 0:
        return
    if claim.ns < min(RUN.long_ns, max(RUN.large_ns, RUN.large * startup.run_ns)):
        return
    share, run_ns = min(0.99, claim.ns / startup.run_ns), startup.run_ns
    own = sorted(((ns, stage) for stage, ns in startup.own_ns.items()), reverse=True)
    most, stage = own[0]
    skipped = "" if startup.skipped is None or stage != SKIPPING else f" ({startup.skipped} of them)"
    how_much = "All" if most >= NEARLY_ALL * claim.ns else "Most"
    claim.says(
        f"The program spends {claim.ns / 1e9:.1f} s before its first step ({100 * share:.0f} % of the run, imports "
        f"left out). {how_much} of it is {_STAGES[stage][0]}{skipped}.",
        0.85 if startup.whole else 0.7,
        share=share,
        least_severity="minor",
    )
    claim.shows(Evidence("Start of the program to the end of its first step", startup.total_ns / 1e9, "s"))
    for ns, stage in own:
        words, change, kind = _STAGES[stage]
        if ns >= RUN.told * claim.ns:
            claim.shows(Evidence(words.capitalize(), ns / 1e9, "s", "near 0 s"))
        if ns >= RUN.named * claim.ns:
            at_most = f"at most {ns / 1e9:.1f} of the run's {run_ns / 1e9:.1f} s"
            claim.advise(f"{change} ({at_most})", kind, ns / run_ns * claim.facts.parts.wall_ns)
    claim.shows(
        Evidence("Imports (no fault)", startup.ns(IMPORTS) / 1e9 if startup.whole else None, "s"),
        Evidence("Whole run", run_ns / 1e9, "s"),
    )


# A part that grows.

_GROWING = {
    "compute": (
        "computing",
        "Look for what each step adds to the graph: a loss or hidden state summed without `.detach()` or "
        "`.item()`, hooks or modules that are registered again, `retain_graph=True`",
        "",
    ),
    "input": (
        "waiting for data",
        "Look for what grows with the steps in dataset, sampler and `collate_fn`: a list or cache that is searched "
        "or copied, a file that is read from its start for each sample, a sampler that filters all earlier draws",
        "input.",
    ),
    "copy": (
        "waiting for copies",
        "Look for what each step adds to the batch, and for host memory that runs short",
        "copy.",
    ),
    "sync": (
        "waiting in synchronising calls",
        "Look for what the loop reads from the device in growing amounts: histories that are stacked and moved, "
        "metrics over all earlier steps",
        "host.sync",
    ),
    "host": (
        "the loop's own work",
        "Look for what the loop keeps of every step (a history that is averaged, plotted or copied, a log or CSV "
        "that is rewritten, a list that is searched); append instead, and keep running sums",
        "host.",
    ),
    "boundary": (
        "time outside the steps",
        "Look for what validation, checkpoints or epoch hooks do with everything gathered so far; write and "
        "compute only what is new, and keep running sums",
        "host.boundary",
    ),
    UNTOLD: (
        "the whole step",
        "Look for what the loop keeps of every step: a history, a log that is rewritten, a graph that is not "
        "detached, a list that is searched",
        "",
    ),
}
"""Parts that grow: in words, what to change, and how codes of other causes begin that explain the part."""


@cause("run.slowing", Piece.GROWING, lines=Lines(selection.growing_part))
def slowing(claim: Claim) -> None:
    """A part of the steps grows, or jumps, as the run goes on, at constant shapes.

    Time beyond the part's level at the beginning of the run is claimed; where that is less than
    most of the part, the part's own cause leads.
    """
    facts, memory = claim.facts, claim.facts.memory_grew
    # Parts that grow by themselves, the largest growth first.
    grown = [(each, each.grown) for each in facts.trends if each.part != TOTAL and each.grown is not None]
    grown = sorted((each for each in grown if each[1].value > 0), key=lambda each: -each[1].value)
    if not grown:
        return
    first = grown[0][0]
    jumps, where = first.shape == JUMPS, "per stretch" if first.part == "boundary" else "per step"
    others = "".join(f", and {_GROWING[each.part][0]} from {_levels(each)}" for each, _ in grown[1:])
    since = "" if first.since is None else f" {'at' if jumps else 'from'} step {first.since}{'' if jumps else ' on'}"
    loop = _loop_told_apart(facts, first.part)
    claim.says(
        f"The training slows down as it runs: {_GROWING[first.part][0]} {'jumps' if jumps else 'grows'} from "
        f"{_levels(first)} {where}{since}{others}. The growth costs {claim.percent()} of the time.",
        0.6 if jumps else 0.85,
        where=() if loop is None else loop.lines.get(loop.grows, ()),
    )
    for trend, by in grown:
        name, whole, loop = _GROWING[trend.part][0], _whole_ns(facts, trend.part), _loop_told_apart(facts, trend.part)
        growth = f"Growth of {name} in 1,000 steps"
        claim.shows(
            Evidence(f"{name.capitalize()}, first fifth", trend.first_ms, f"ms {where}"),
            Evidence(f"{name.capitalize()}, last fifth", trend.last_ms, f"ms {where}", f"{trend.first_ms:.1f} ms"),
            Evidence(growth, trend.slope.value, "ms", "near 0 ms"),
            Evidence(f"{growth}, lower bound", trend.slope.low, "ms", "below 0 ms"),
        )
        share, of = 100 * by.value / whole if whole else None, name if loop is None else loop.grows
        claim.shows(Evidence(f"Growth as a share of {of}", share, "%", "near 0 %"))
        change = _GROWING[trend.part][1]
        if memory is not None and memory[1] > RUN.memory_grows * memory[0]:
            first_mb, last_mb = memory[0] / 1e6, memory[1] / 1e6
            change += f" (memory grows too, from {first_mb:.0f} to {last_mb:.0f} MB: something is kept)"
        # If it grows no further, half to all of what grew is gone: it stays at its bound.
        least, likely = 0.5 * by.low / by.high, 0.9 * by.value / by.high
        claim.advise(change, "bound", min(by.high, 0.99 * facts.parts.wall_ns), least=least, likely=likely)
    if memory is not None:
        what = "Memory of the training's processes"
        claim.shows(
            Evidence(f"{what}, first fifth", memory[0], "bytes"),
            Evidence(f"{what}, last fifth", memory[1], "bytes", "about the same"),
        )


def before_growth(facts: Facts) -> str:
    """Return how codes of causes begin that come before growth, as they explain the part that grows most; nothing where
    growth is most of that part's time, so that it says more."""
    part = grows_most(facts)
    if part is None or growing(facts.trends)[part].value > MOSTLY * _whole_ns(facts, part):
        return ""
    return _GROWING[part][2]


def _whole_ns(facts: Facts, part: str) -> float:
    """Return what the part takes of which something grows: where clocks tell no parts apart, what
    the stack tells of it."""
    if part != UNTOLD:
        return float(getattr(facts.parts, f"{part}_ns"))
    loop = _loop_told_apart(facts, part)
    return float(facts.parts.wall_ns) if loop is None else own_ns(facts, loop, loop.grows)


def _loop_told_apart(facts: Facts, part: str) -> OwnLoop | None:
    """Return, where clocks tell no parts apart, the loop whose stack tells which of its work grows."""
    loop = facts.own_loop
    return loop if part == UNTOLD and loop is not None and loop.grows else None


def _levels(trend: Trend) -> str:
    return f"{trend.first_ms:.1f} to {trend.last_ms:.1f} ms"


# Time outside the steps.

_OUTSIDE_PARTS = {
    "evaluating": (
        "on validation that computes",
        "Validate less often, or on a part of the data",
        "less_often",
        0.8,
    ),
    "saving": (
        "on saving checkpoints",
        "Save less often, or beside the training: use `torch.distributed.checkpoint.async_save`, or copy the state to "
        "host memory and write it in another process",
        "less_often",
        0.8,
    ),
    "ending": (
        "at the ends of epochs, where workers that live for one epoch are stopped",
        f"{KEEP_WORKERS}; what remains of this time is the program's own",
        "settings",
        0.7,
    ),
    "rest": (
        "",
        "Look at what runs between the steps and at the end of an epoch; "
        '`with whyidle.phase("name"):` around a part of it measures that part',
        "less_often",
        0.95,
    ),
}
"""Parts of the time outside the steps: in words, what to change, the kind of change, and the share that it takes away,
as expected. What a validation waits for has advice of its own."""


_OUTSIDE = Lines(selection.outside, worth=WORTH_A_LINE, spared=selection.time_only, part="boundary")


@cause("host.boundary", Piece.BOUNDARY, lines=_OUTSIDE)
def boundary(claim: Claim) -> None:
    """Validation, checkpoints or epoch hooks take time outside the steps, in which nothing is trained.

    Where most of it is a validation that waits for data, the evidence has the code of what its loader lacks.
    """
    outside = claim.facts.outside
    if outside is None:
        return
    parts, evaluation, mostly = _outside_parts(claim.facts, outside), outside.evaluation, ""
    largest = max(parts, key=lambda name: parts[name])
    most = largest if parts[largest] >= MOSTLY * claim.ns else "rest"
    if most == "waiting" and evaluation is not None:
        why = "" if claim.validation is None else claim.validation.title.partition(": ")[2].rstrip(".")
        why = "mostly for the one start of its workers" if evaluation.started_once else why
        mostly = f", most of it on validation that waits for data{f': {why}' if why else ''}"
    elif most != "rest":
        mostly = f", most of it {_OUTSIDE_PARTS[most][0]}"
    elif outside.named and evaluation is None and not outside.saves:
        mostly = f", part of it in {outside.named[0][0]}"
    claim.says(
        f"{claim.percent()} of the time is spent outside the steps{mostly or ': validation, checkpoints, hooks'}.", 0.9
    )
    claim.shows(
        Evidence("Time outside the steps", claim.pct(), "%"),
        Evidence("Stretches outside the steps", outside.stretches),
        Evidence("Longest of these stretches", outside.longest_ns / 1e9, "s"),
    )
    if evaluation is not None:
        claim.shows(
            Evidence("Validation that waits for data", claim.pct(parts["waiting"]), "%", "near 0 %"),
            Evidence("Validation that computes", claim.pct(parts["evaluating"]), "%"),
            Evidence("Validation passes", evaluation.passes),
            Evidence("Workers of the validation loader", evaluation.workers, "", "as many as the training's"),
        )
        if evaluation.waits and claim.validation is not None:
            claim.shows(Evidence("Cause of the validation's wait", claim.validation.cause))
        if evaluation.loader is not None:
            busy = evaluation.loader.worker_busy_pct
            claim.shows(Evidence("Validation workers busy", busy, "%", f"below {100 * BUSY:.0f} %"))
    if outside.saves:
        claim.shows(
            Evidence("Saving checkpoints", claim.pct(parts["saving"]), "%"),
            Evidence("Checkpoints saved", outside.saves),
        )
    if parts["ending"]:
        share = claim.pct(parts["ending"])
        claim.shows(
            Evidence("Ends of epochs explained by stopping workers", share, "%", "near 0 %"),
            Evidence("Ends of epochs", outside.epochs_ended),
            Evidence("Workers stopped at each end", claim.facts.set_workers),
            Evidence("persistent_workers", PERSISTENCE[claim.facts.persistent_workers], "", "on"),
        )
    named = [(what, share) for what, share in outside.named if not outside.saves or "phase" in what]
    claim.shows(*(Evidence(f"Part of it: {what}", 100 * share, "%") for what, share in named))
    _advise_outside(claim, outside, parts, largest)


def _outside_parts(facts: Facts, outside: Outside) -> dict[str, float]:
    """Divide the time outside the steps, ns."""
    whole, evaluation = float(facts.parts.boundary_ns), outside.evaluation
    waiting = 0.0 if evaluation is None else min(whole, evaluation.waited_ns)
    evaluating = 0.0 if evaluation is None else min(whole - waiting, evaluation.ns - evaluation.waited_ns)
    saving = min(whole - waiting - evaluating, float(outside.saving_ns))
    left, ending = whole - waiting - evaluating - saving, 0.0
    # What nothing else explains at the ends of epochs is the joining of workers that live for one epoch, in the fetch
    # that finds the epoch at its end; what takes longer is something of the program's own.
    ends = outside.epochs_ended and outside.epochs_ending_ns <= RUN.longest_ending_ns * outside.epochs_ended
    if ends and restarts(facts) and facts.persistent_workers is False:
        ending = min(left, float(outside.epochs_ending_ns))
        ending *= ending >= RUN.ending * facts.parts.wall_ns
    return {"waiting": waiting, "evaluating": evaluating, "saving": saving, "ending": ending, "rest": left - ending}


def _advise_outside(claim: Claim, outside: Outside, parts: dict[str, float], largest: str) -> None:
    least = {"ending": 1.0, largest: 0.0}
    named = (name for name in parts if parts[name] >= least.get(name, RUN.named * claim.ns))
    names = sorted(named, key=lambda name: -parts[name])
    if parts["ending"] and "waiting" in names:
        # Smaller batches, say, are worth less than workers that are there.
        names.sort(key=lambda name: name == "waiting")
    if largest == "waiting" and "evaluating" not in names:
        names.append("evaluating")
    evaluation, lacking, training = outside.evaluation, claim.validation, claim.facts.set_workers
    for name in names:
        if name != "waiting":
            _, change, kind, likely = _OUTSIDE_PARTS[name]
            ns = parts["waiting"] + parts["evaluating"] if name == "evaluating" else parts[name]
            claim.advise(change, kind, ns, likely=likely, settings=PERSISTENT if name == "ending" else None)
        elif evaluation is not None and evaluation.started_once:
            more = "Record more passes of validation: the one start of its workers then weighs less"
            claim.advice.append(Next(more))
        elif evaluation is not None and lacking is not None:
            best, ns = lacking.next[0], parts[name]
            known = best.speedup is not None and not best.speedup.to_try
            if best.speedup is not None and known:
                ns = min(ns, evaluation.ns * (1 - 1 / best.speedup.value))
            claim.advise(of_validation(lacking), best.kind, ns, likely=0.9 if known else 0.6)
        elif not (evaluation and evaluation.workers and training is not None and evaluation.workers >= training):
            # Where it has all that the training's has, nobody can say.
            change = "Give the validation loader what the training's has: workers, prefetching, pinned memory"
            claim.advise(change, "workers", parts[name], likely=0.6)


# A loop without a loader, by its stack samples.


@serial.also(Piece.OWN_MAKING)
def made_by_hand(claim: Claim) -> None:
    """A loop without a loader prepares its batches itself."""
    thread = "or a thread that draws the next one"
    loader = f"use a DataLoader with workers around what draws them, {thread}"
    change = f"Prepare batches ahead, while the model computes: {loader}"
    _by_stacks(claim, MAKING, "on preparing batches in a function of its own", change, "workers")


@boundary.also(Piece.OWN_EVALUATING)
def evaluated_by_hand(claim: Claim) -> None:
    """A loop without a loader evaluates the model."""
    _by_stacks(claim, EVALUATING, "on evaluating the model", "Evaluate less often, or on fewer batches", "less_often")


def _by_stacks(claim: Claim, share_of: str, what: str, change: str, kind: str) -> None:
    if (loop := claim.facts.own_loop) is None:
        return
    claim.says(
        f"The training spends about {claim.percent()} of the time ({_range(loop.shares[share_of])}) {what}. Stack "
        "samples show this, since no fetch of a batch was seen.",
        0.6,
        where=loop.lines.get(share_of, ()),
        stages=loop.stages if share_of == MAKING else None,
    )
    claim.evidence += shares_seen(loop)
    claim.advise(change, kind, likely=0.8)


def shares_seen(loop: OwnLoop) -> tuple[Evidence, ...]:
    """Return how stack samples divide the loop's time."""
    shares = {f"Stack samples of the training in {name}": share for name, share in loop.shares.items()}
    told = (Evidence(what, f"{100 * share.value:.0f} % ({_range(share)})") for what, share in shares.items())
    return (*told, Evidence("Stack samples", loop.looks))


def _range(share: Estimate) -> str:
    return f"{100 * share.low:.0f} to {100 * share.high:.0f}"
