"""What a larger batch did to the training of one loader, and why.

The largest size with enough steps is compared with the one of the others that takes least time per sample: a sweep
usually gets faster up to some size, and the question is what came after it. Time per sample decides, never the length
of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..diagnosis import LEAST_STEPS
from ..facts import Facts
from ..partition import PARTS
from . import terms
from .compared import Compared
from .fit import Fit, Measured
from .mechanism import Mechanism
from .result import TERMS, TOTAL, BatchVerdict, Work
from .rules import mechanism_of
from .words import duration, enough_runs, growth_in_words, longer_gaps, total_in_words

FLOOR_SHARE = 0.10
"""Exposed input beyond this share at the larger size: the loader sets the pace."""
SATURATED_SHARE = 0.85
"""A device that computes this much of the time has little left to give."""
MORE_SAMPLES = 1.3
"""Times as many samples in a run, from which its length says nothing."""
LONGER = 1.1
"""Times as long, from which somebody who looks at hours calls it slower."""


def batch_verdict(
    cells: Mapping[int, Sequence[Facts]], rounds: Mapping[int, Sequence[int]] | None = None
) -> BatchVerdict | None:
    """Judge one loader's runs by batch size; `None` with fewer than two sizes.

    Args:
        cells: the runs of each size.
        rounds: in which round each of these runs was; `None` where they were not interleaved.
    """
    counted = [
        (size, None if rounds is None else rounds[size][place], run)
        for size, facts in sorted(cells.items())
        for place, run in enumerate(facts)
        if run.samples_known
    ]
    runs = {size: [run for of, _, run in counted if of == size] for size, _, _ in counted}
    if len(runs) < 2:
        return None
    fit = Fit([Measured(size, number, terms.terms_of(run)) for size, number, run in counted])
    steps = {size: terms.steps_of(known) for size, known in runs.items()}
    long = [size for size in runs if steps[size] >= LEAST_STEPS]
    judged = long if len(long) > 1 else list(runs)
    larger = max(judged)
    smaller = min((size for size in judged if size != larger), key=lambda size: fit.at(size, TOTAL).mean)
    compared = Compared(fit, smaller, larger, runs[smaller], runs[larger])
    work = {size: terms.work_of(known) for size, known in runs.items()}
    mechanism = _judge(compared, work)
    return BatchVerdict(
        cause=mechanism.cause,
        grew=compared.grew,
        text=f"{mechanism.why}.{_too_short(steps, judged)}",
        smaller=smaller,
        larger=larger,
        terms={size: {term: fit.at(size, term) for term in TERMS} for size in runs},
        medians={size: terms.medians_of(known, TERMS) for size, known in runs.items()},
        changes={term: compared.change(term) for term in TERMS},
        work=work,
        runs={size: len(known) for size, known in runs.items()},
        noise=fit.noise,
        evidence=mechanism.evidence,
    )


def _too_short(steps: Mapping[int, int], judged: Sequence[int]) -> str:
    """What is to be said of sizes with few steps, in which starting weighs more than it does in a training."""
    short = [size for size in steps if steps[size] < LEAST_STEPS]
    if not short:
        return ""
    told = ", ".join(f"{steps[size]} at batch {size}" for size in short)
    left_out = not set(short) & set(judged)
    return (
        f" Runs of fewer than {LEAST_STEPS} steps ({told}) {'are left out' if left_out else 'prove little'}: starting "
        "up weighs too much in them."
    )


def _idle_in_words(compared: Compared) -> str:
    """The part that keeps the device idle most, at both sizes alike: work that no batch makes less."""
    part = max((part for part in PARTS if part != "compute"), key=lambda part: compared.times(part)[1])
    return f". The device idles most behind {part}, {duration(compared.times(part)[1])} a sample at either size"


def _judge(compared: Compared, work: Mapping[int, Work]) -> Mechanism:
    """The mechanism with all that is to be said, but for the full stop."""
    smaller, larger = compared.smaller, compared.larger
    samples = work[larger].samples / work[smaller].samples
    longer = work[larger].seconds / work[smaller].seconds
    said = total_in_words(compared)
    if not compared.slower and samples > MORE_SAMPLES and longer > LONGER and not compared.unsure:
        return Mechanism(
            "accounting",
            f"batch {larger} took {longer:.2f} times as long as batch {smaller} only because it processed "
            f"{samples:.2f} times as many samples, {work[larger].samples} against {work[smaller].samples}; {said}",
        )
    found = mechanism_of(compared)
    if compared.faster:
        but = f". What grew meanwhile is {growth_in_words(compared)}, {found.why}" if found is not None else ""
        return Mechanism("none", f"a larger batch is faster: {said}{but}")
    if compared.slower:
        if samples > MORE_SAMPLES:
            said += f", which is {longer / samples:.2f} of the {longer:.2f} times as long; the rest is more samples"
        if found is None:
            return Mechanism("none", f"{said}, and no single term accounts for it")
        return Mechanism(found.cause, f"{said}: {growth_in_words(compared)}, {found.why}", found.evidence)
    if found is not None:
        why = f"a larger batch gains nothing, {said}: {growth_in_words(compared)}, {found.why}"
        return Mechanism(found.cause, why, found.evidence)
    if compared.unsure:
        return Mechanism(
            "none", f"{said}: runs of a size differ by too much. About {enough_runs(compared)} of each would tell"
        )
    total = compared.times(TOTAL)[1]
    if compared.times("input")[1] >= FLOOR_SHARE * total:
        why = f"the loader sets the pace at batch {larger}, a larger batch gains nothing: {said}"
        return Mechanism("loader_floor", why + longer_gaps(compared))
    if compared.times("compute")[1] >= SATURATED_SHARE * total:
        return Mechanism("saturated", f"the device is saturated, a larger batch gains nothing: {said}")
    return Mechanism("none", f"no term grew beyond what runs differ by: {said}{_idle_in_words(compared)}")
