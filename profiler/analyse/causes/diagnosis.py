"""From facts to a verdict: the causes that explain idle time, ranked by what fixing them would gain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..run.facts import Facts
from ..run.stall_breakdown import UNTOLD
from .claim import Claim, Piece
from .divided import pieces_of
from .finding import LEAST_GAIN, Evidence, Finding, Next
from .host import gil
from .input import pieces as data
from .input.memory import CAUSE, soon_full
from .table import explained

LEAST_STEPS = 30
"""Steps after the warm-up that a verdict or a comparison needs: fewer support none, of a run, of ranks or of sizes."""

MOST_UNRESOLVED = 0.05
"""Share of the steps that may lack the device's stamps: with more, idling cannot be told from computing."""
LEAST_TOLD = 0.005
"""Share of the wall time below which a part has no line in the evidence of `none`."""

_TELL_APART = Next(
    "put `whyidle.watch(iterable)` around what the training iterates over, or "
    '`with whyidle.phase("data"):` around where it gets a batch',
    None,
    None,
    None,
)


def findings_of(facts: Facts) -> tuple[Finding, ...]:
    """The causes of idle time that are worth a word, the one whose removal gains most first."""
    found = data.findings_of(facts)
    for piece, ns in pieces_of(facts).items():
        cause = explained(piece, Claim(facts, ns))
        found += [] if cause is None else [cause]
    if all(each.cause != CAUSE for each in found) and (soon := soon_full(facts)) is not None:
        found.append(soon)
    found = [each for each in _folded(facts, found) if each.severity != "none"]
    if facts.headroom is not None:
        # What an infinitely fast loader gave is known: less than the wait, where computing gets slower meanwhile.
        most = max(0.0, facts.headroom / facts.samples_per_s - 1) if facts.samples_known else None
        found = [replace(f, most_gain=most) if (f.cause or "").startswith("input.") else f for f in found]
        found = [f for f in found if f.severity != "none"]
    found.sort(key=lambda f: f.gain, reverse=True)
    if found and not facts.told_apart:
        found[0] = replace(found[0], next=(*found[0].next, _TELL_APART))
    return tuple(found)


def _folded(facts: Facts, found: Sequence[Finding]) -> Sequence[Finding]:
    """Symptoms given to their cause: where other Python threads hold the GIL, fetches wait for it too."""
    held_ns = data.held_ns(facts)
    gil_ns = pieces_of(facts)[Piece.GIL] + held_ns
    both = gil(Claim(facts, gil_ns, "host.gil"), held_ns) if held_ns > 0 else None
    if both is None:
        return found
    symptoms = (both.cause, *(() if facts.made_in_training else ("input.handoff", "input.overkill")))
    return [both, *(each for each in found if each.cause not in symptoms)]


def verdict_of(facts: Facts, findings: Sequence[Finding]) -> Finding:
    """The finding to act on first; `none` when nothing is worth changing; no cause on too few steps."""
    steps = len(facts.window.steps)
    if facts.parts.unresolved_steps > MOST_UNRESOLVED * steps:
        return Finding(
            None,
            f"No verdict: the device's stamps of {facts.parts.unresolved_steps} of {steps} steps are missing.",
            0.0,
            0.0,
        )
    if steps < LEAST_STEPS:
        return Finding(
            None,
            f"No verdict: {steps} {'step was' if steps == 1 else 'steps were'} recorded after the warm-up, at least "
            f"{LEAST_STEPS} are needed: "
            "train longer.",
            0.0,
            0.0,
        )
    if findings:
        return findings[0]
    if not facts.input_known:
        unknown = (
            "how much of the time the training waits for data is not known"
            if facts.told_apart
            else "computing, waiting for data and evaluating are not told apart"
        )
        return Finding(
            None, f"No verdict: {unknown}, because no fetch of a batch was seen.", 0.0, 0.0, next=(_TELL_APART,)
        )
    return _nothing(facts)


def _nothing(facts: Facts) -> Finding:
    """No cause is worth changing: what the run is bound by."""
    shares = facts.shares
    computing = shares["compute"]
    idle = sorted(((share, part) for part, share in shares.items() if part != "compute" and share > 0), reverse=True)
    largest = idle[0] if idle else (0.0, "input")
    title = (
        f"Nothing worth changing: the run is bound by its computation, which takes {100 * computing:.0f} % of the time"
    )
    if 1 - computing > LEAST_GAIN:
        title += (
            f". The other {100 * (1 - computing):.0f} % are spread, the largest part of them "
            f"{_PARTS[largest[1]]} ({100 * largest[0]:.0f} %), and no single cause would give "
            f"{100 * LEAST_GAIN:.0f} % more"
        )
    return Finding(
        "none",
        f"{title}.",
        0.0,
        0.9,
        (
            Evidence(f"{facts.waiter} computing", 100 * computing, "%"),
            *(
                Evidence(_PARTS[part], 100 * share, "%", f"below {100 * LEAST_GAIN:.0f}")
                for share, part in idle
                if share >= LEAST_TOLD
            ),
        ),
    )


_PARTS = {
    "input": "waiting for data",
    "copy": "waiting for copies",
    "sync": "in synchronising calls",
    "host": "in other work of the loop",
    "boundary": "outside the steps",
    UNTOLD: "not told apart",
}
