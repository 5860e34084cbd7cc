"""From facts to a verdict: the causes that explain idle time, ranked by what fixing them would gain.

For each piece of the time the first rule that holds explains it, so what is specific comes before what is general. All
that lists causes (the diagnosis, what `check` can forbid, the pages of docs/causes, the benchmark of diagnosis) is held
to the codes of these rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ...record.reader import Records
from ...record.schema import EventKind
from ..run.facts import Facts, evaluation_facts
from ..run.stall_breakdown import UNTOLD
from ..shares import MOSTLY
from ..where.own_loop import COMPUTING
from . import host_and_device as host
from . import input_batches as batches
from . import input_supply as supply
from . import run
from .claim import Claim, Piece, Rule
from .finding import LEAST_GAIN, MOST_UNNAMED, Evidence, Finding, Next, no_verdict, without_name
from .pieces import counts, grown_ns, held_ns, pieces_of, waits_of
from .wait import Wait

LEAST_STEPS = 30
"""Steps after the warm-up that a verdict or a comparison needs: fewer support none, of a run, of ranks or of sizes."""

LEAST_ADVISING = 10
"""Steps after the warm-up from which it is said what they show, without a verdict."""
MOST_UNRESOLVED = 0.05
"""Share of the steps that may lack the device's stamps: with more, idling cannot be told from computing."""
LEAST_TOLD = 0.005
"""Share of the wall time below which a part has no line in the evidence of `none`."""

_MADE_FOR_NOTHING = batches.memory, batches.wasted
_BY_WHEN_IT_HAPPENS = (
    *(batches.sampler, supply.serial, batches.worker_restart, supply.exclusive, batches.pipeline_fill),
    *(supply.storage, batches.straggler),
)
_CONFINED = supply.quota, supply.affinity, supply.held_back, supply.worker_threads, supply.sharding
_HANDED_OVER = batches.overkill, supply.delayed_by_others, supply.delayed, batches.handoff
_CPUS = supply.mostly_reads, supply.foreign_load, supply.oversubscribed, supply.cpu_exhausted, supply.in_its_own_thread
_HANDS = batches.uneven, supply.latency, supply.too_few_workers, supply.general, run.made_by_hand
_COPIES = host.link, host.pageable, host.serial_copy, host.sync
_COMPUTING = host.shape_churn, host.memory_pressure, host.contended, host.throttled, host.launch
_LOOP = host.garbage, host.gil, host.main_process, host.step_gap
_RUN = run.boundary, run.evaluated_by_hand, run.starting_up, run.slowing
_RANKS = (
    Rule("rank.straggler", (Piece.RANKS,), None, "The other ranks wait for one rank in their collectives."),
    Rule(
        "rank.exchange",
        (Piece.RANKS,),
        None,
        "The ranks spend their time exchanging gradients: the interconnect is slow for so many bytes.",
    ),
)

ORDER: tuple[Rule, ...] = (
    *(_MADE_FOR_NOTHING + _BY_WHEN_IT_HAPPENS + _CONFINED + _HANDED_OVER + _CPUS + _HANDS),
    *(_COPIES + _COMPUTING + _LOOP + _RUN + _RANKS),
)
"""A cause that is told in several ways has several rules."""

CODES = tuple(dict.fromkeys(rule.code for rule in ORDER))
FAMILIES = tuple(dict.fromkeys(code.split(".")[0] for code in CODES))
LINES = {rule.code: rule.lines for rule in ORDER if rule.lines is not None}
"""By code, how lines show the cause; without one no line is to blame."""

_TELL_APART = Next(
    "Put `whyidle.watch(iterable)` around what the training iterates over, or "
    '`with whyidle.phase("data"):` around where it gets a batch'
)
_STEPS = Next("Call `whyidle.step()` in the training loop, where a step begins")


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """Return the causes of idle time that are worth a word, the one whose removal gains most first."""
    evaluation, validation, pieces = None if facts.outside is None else facts.outside.evaluation, None, pieces_of(facts)
    if evaluation is not None and evaluation.workers is not None and not evaluation.started_once:
        validation = cause_of_wait(evaluation_facts(facts, evaluation))
    explains = (explained(piece, Claim(facts, ns, validation=validation)) for piece, ns in pieces.items())
    found = [*waits_explained(facts), *(each for each in explains if each is not None)]
    soon = batches.memory(Claim(facts, 0.0))
    if soon is not None and all(each.cause != soon.cause for each in found):
        found.append(soon)
    # Where other Python threads hold the GIL, fetches wait for it too: symptoms are given to their cause.
    held = held_ns(facts)
    both = host.gil(Claim(facts, pieces[Piece.GIL] + held)) if held > 0 else None
    if both is not None:
        symptoms = (both.cause, *(() if facts.made_in_training else (batches.handoff.code, batches.overkill.code)))
        found = [both, *(each for each in found if each.cause not in symptoms)]
    found = [replace(each, next=_worth_saying(each.next)) for each in found if each.severity != "none"]

    def took_ns(found: Finding) -> float:
        # Shares are of the window, but for that of what lies before it.
        if found.cause == run.starting_up.code and facts.startup is not None:
            return found.share * facts.startup.run_ns
        return (found.gain / (1 + found.gain) if found.gain != float("inf") else 1.0) * facts.parts.wall_ns

    found.sort(key=took_ns, reverse=True)
    kin, codes = run.before_growth(facts), [each.cause or "" for each in found]
    same = next((at for at, code in enumerate(codes) if kin and code.startswith(kin)), 0)
    if run.slowing.code in codes[:same]:
        found.insert(same, found.pop(codes.index(run.slowing.code)))
    if found and not facts.told_apart and facts.own_loop is None:
        found[0] = replace(found[0], next=(*found[0].next, _TELL_APART))
    return tuple(found)


def cause_of_wait(window: Facts) -> Finding | None:
    """Return the largest cause of a window's wait for data; `None` where most of the wait is not explained."""
    found = waits_explained(window)
    told = sum(each.share for each in found) >= MOSTLY * window.parts.share("input")
    return max(found, key=lambda each: each.share) if found and told else None


def waits_explained(facts: Facts) -> list[Finding]:
    """Return what explains the exposed wait for data, one finding a cause; together they explain
    all of it but what grew as the run went on."""
    if facts.parts.input_ns - round(grown_ns(facts, "input")) <= 0:
        return []
    # A piece that is too small to be told by itself is told with the largest, as are all where none is large.
    every = waits_of(facts)
    largest = max(every, key=lambda each: each[1])[0]
    others = [(piece, ns) for piece, ns in every if piece is not largest and counts(facts, ns)]
    rest = sum(ns for _, ns in every) - sum(ns for _, ns in others)
    pieces = [(largest, rest), *sorted(others, key=lambda each: -each[1])]
    # Where reads are a piece of their own, of all others what is known of the batches that are not read.
    unread, loader = facts.loader_unread, facts.loader
    of_unread = facts
    if unread is not None and any(piece is Piece.READING for piece, _ in pieces):
        unread = replace(unread, slowest=loader.slowest, worker_busy_pct=loader.worker_busy_pct)
        of_unread = replace(facts, loader=unread)
    waits: dict[Piece, Wait] = {}
    told: dict[Piece, Finding] = {}
    by_cause: dict[str | None, Piece] = {}
    for piece, ns in pieces:
        wait = Wait(of_unread if piece is Piece.MAKING else facts, ns, whole=len(pieces) == 1)
        found = explained(piece, wait)
        if found is None:
            continue
        larger = by_cause.setdefault(found.cause, piece)
        if larger is not piece:
            # The cause of a larger piece is that of this one too.
            wait = Wait(waits[larger].facts, waits[larger].ns + ns, whole=len(pieces) == 2)
            found = explained(larger, wait)
        if found is not None:
            waits[larger], told[larger] = wait, found
    return list(told.values())


def explained(piece: Piece, claim: Claim) -> Finding | None:
    """Return what the first rule says of a piece that may claim it and holds; `None` where none
    does, or the claim is empty."""
    if claim.ns <= 0:
        return None
    claim = replace(claim, piece=piece)
    asked = (rule(claim) for rule in ORDER if piece in rule.claims)
    return next((found for found in asked if found is not None), None)


def _worth_saying(changes: Sequence[Next]) -> tuple[Next, ...]:
    """Leave out what would gain next to nothing, unless that is all there is. What is to be tried
    may gain its best, and fewer workers spare memory; workers that live on cost nothing."""

    def most(change: Next) -> float:
        if change.speedup is None or change.settings == batches.PERSISTENT:
            return math.inf
        return change.speedup.high if change.speedup.to_try or change.kind == "fewer_workers" else change.speedup.value

    return tuple(each for each in changes if most(each) >= 1 + LEAST_GAIN) or tuple(changes[:1])


def verdict_of(facts: Facts, findings: Sequence[Finding], ended: bool = False) -> Finding:
    """Return the finding to act on first; `none` when nothing is worth changing; no cause on too
    few steps, and where more of the time than `MOST_UNNAMED` has no name: its share is that time's.

    `ended`: the run has no further steps.
    """
    steps, unresolved = len(facts.window.steps), facts.parts.unresolved_steps
    if unresolved > MOST_UNRESOLVED * steps:
        return no_verdict(f"{unresolved} of {steps} steps lack device timestamps")
    if steps < LEAST_STEPS:
        return _too_few(steps, findings if steps >= LEAST_ADVISING else (), ended)
    # What costs no time yet may still have to be acted on first: memory that will run out.
    first = next((each for each in findings if each.gain >= LEAST_GAIN or each.severity in ("major", "critical")), None)
    if first is not None:
        return first
    if facts.own_loop is None and not facts.input_known:
        unknown = "computing, waiting for data and evaluating cannot be told apart"
        if facts.told_apart:
            unknown = "the time that the training waits for data is unknown"
        return no_verdict(f"{unknown}, because no fetch of a batch was seen", _TELL_APART)
    loop, shares = facts.own_loop, facts.shares
    computing = shares.get("compute", 0.0) if loop is None else facts.untold_share * loop.shares[COMPUTING].value
    unnamed = 1 - computing - sum(each.share for each in findings)
    if unnamed > MOST_UNNAMED:
        evidence, changes = (_divided(facts), ()) if loop is None else (run.shares_seen(loop), (_TELL_APART,))
        return without_name(unnamed, facts.unnamed, evidence, changes)
    if loop is None:
        return _nothing(facts)
    by_share = sorted(loop.shares.items(), key=lambda each: -each[1].value)
    told = ", ".join(f"{name} {100 * share.value:.0f} %" for name, share in by_share if share.value > LEAST_TOLD)
    return Finding("none", f"Nothing worth changing. Shares of the time, by stack samples: {told}.", 0.0, 0.6)


def _too_few(steps: int, findings: Sequence[Finding], ended: bool) -> Finding:
    """Return no verdict, but what so few steps advise, without saying what it would gain."""
    longer = "Record a longer run, for example with more epochs" if ended else "Train longer"
    were = "step was" if steps == 1 else "steps were"
    none = no_verdict(f"{steps} {were} recorded after the warm-up, but at least {LEAST_STEPS} are needed. {longer}")
    if not findings:
        return none
    changes = tuple(Next(each.change, kind=each.kind) for each in findings[0].next)
    return replace(none, title=f"{none.title} What these few steps show: {findings[0].title}", next=changes)


def without_steps(recorded: int, events: Records) -> Finding:
    """Return the verdict where no step can be looked at. `recorded`: steps that there are all the same."""
    passes = int(events["value"][events["what"] == EventKind.PASSES_WITHOUT_STEPS].sum())
    if recorded:
        return no_verdict(
            f"{recorded} {'step was' if recorded == 1 else 'steps were'} recorded, but none has device timestamps"
        )
    if not passes:
        return no_verdict("no training step was recorded")
    seen = "1 backward pass was" if passes == 1 else f"{passes} backward passes were"
    apart = "its steps cannot be told apart. Its batches come from no loader"
    optimizer = "no `torch.optim` optimizer updates its weights"
    return no_verdict(f"the program trains ({seen} seen), but {apart}, and {optimizer}", _STEPS)


def _nothing(facts: Facts) -> Finding:
    """Return that no cause is worth changing, and what the run is bound by."""
    shares = {part: 100 * share for part, share in facts.shares.items()}
    computing = shares.pop("compute")
    part, largest = max(shares.items(), key=lambda each: (each[1], each[0]), default=("input", 0.0))
    title = f"Nothing worth changing: the run is bound by its computation, which takes {computing:.0f} % of the time"
    if 100 - computing > 100 * LEAST_GAIN:
        spread = f"The other {100 - computing:.0f} % are spread (the largest part is {_PARTS[part]}, {largest:.0f} %)"
        title += f". {spread}, and no single cause would gain {100 * LEAST_GAIN:.0f} %"
    return Finding("none", f"{title}.", 0.0, 0.9, _divided(facts))


def _divided(facts: Facts) -> tuple[Evidence, ...]:
    shares = facts.shares
    idle = sorted(((share, part) for part, share in shares.items() if part != "compute"), reverse=True)
    below = f"below {100 * LEAST_GAIN:.0f} %"
    return (
        Evidence(f"{facts.waiter.capitalize()} computing", 100 * shares["compute"], "%"),
        *(Evidence(_PARTS[part].capitalize(), 100 * share, "%", below) for share, part in idle if share >= LEAST_TOLD),
    )


_PARTS = {
    "input": "waiting for data",
    "copy": "waiting for copies",
    "sync": "in synchronising calls",
    "host": "in other work of the loop",
    "boundary": "outside the steps",
    UNTOLD: "not told apart",
}
