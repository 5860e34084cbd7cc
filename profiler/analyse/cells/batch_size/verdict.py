"""What a larger batch did to the training of one loader, and why.

The largest size with enough steps is compared with the one of the others that takes least time per sample: a sweep
usually gets faster up to some size, and the question is what came after it. Time per sample decides, never the length
of a run.

The figures of a comparison of two batch sizes, in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...causes.diagnosis import LEAST_STEPS
from ...run.facts import MACHINE_FULL_PCT, Facts
from ...run.stall_breakdown import PARTS, TERMS, TOTAL
from . import input_rules, step_rules, terms
from .compared import CONSIDERABLE_CHANGE, MOST_RUNS, Compared, RunTerms, SweepFit
from .mechanism import Last, Mechanism, Rule
from .result import BatchVerdict, Work

HINDERING_CPUS = 0.5
"""CPUs that other programs use on a full machine, from which what was measured there is not taken for the cell's own.
More than `LEAST_FOREIGN_CPUS`, from which such programs are mentioned: here a verdict is withheld for them."""
LONGER_GAPS = 1.3
"""Median length of the device's gaps at the larger size over that at the smaller, from which it is said that a trace of
the utilisation looks worse though nothing is slower."""


def total_in_words(compared: Compared) -> str:
    """Describe what became of the time per sample, and how sure that is."""
    before, after = compared.times(TOTAL)
    change = compared.change(TOTAL)
    times = f"(±{100 * compared.reach:.1f} %; {duration(before)} → {duration(after)})"
    more = f"{abs(100 * change.value / before):.1f} % {'more' if change.value > 0 else 'less'} time per sample than"
    if compared.unsure:
        return f"batch {compared.larger} took {more} batch {compared.smaller} {times}, which proves nothing"
    if change.low <= 0 <= change.high:
        return f"batch {compared.larger} takes as long per sample as batch {compared.smaller} {times}"
    little = "" if compared.slower or compared.faster else ", too little to count"
    return f"batch {compared.larger} takes {more} batch {compared.smaller} {times}{little}"


def more_runs(compared: Compared) -> str:
    """What would tell, where these runs do not."""
    enough = compared.fit.runs_for(CONSIDERABLE_CHANGE)
    would = f"more than {MOST_RUNS} of each" if enough is None else f"about {enough} of each"
    if len(compared.before) == len(compared.after) == 1:
        return f"one run of each size cannot tell; {would} would"
    return f"runs of one size differ too much; {would} would tell"


def growth_in_words(compared: Compared) -> str:
    """The part that grew, and what else did."""
    first, *others = (_grown(compared, part) for part in compared.risen)
    return first if not others else f"{first} ({' and '.join(others)} as well)"


def _grown(compared: Compared, part: str) -> str:
    before, after = compared.times(part)
    return f"{part} grew from {duration(before)} to {duration(after)} per sample"


def idle_in_words(compared: Compared) -> str:
    """The part that keeps the device idle most: work that no batch makes less."""
    part = max((part for part in PARTS if part != "compute"), key=lambda part: compared.times(part)[1])
    before, after = compared.times(part)
    return (
        f". The {compared.waiter} waits most for {part}: {duration(before)} per sample at batch {compared.smaller}, "
        f"{duration(after)} at batch {compared.larger}"
    )


def foreign_in_words(compared: Compared) -> str:
    """That other programs may be why one size took longer: they took the CPUs of its runs more than of the others', or
    of a single run, which has no second one to tell what they did to it; else empty."""
    others = compared.values(lambda run: run.foreign_cpus)
    full = compared.values(lambda run: run.sampled.machine_busy_pct)
    sizes = (compared.smaller, compared.larger)
    longer = 1 if compared.slower else 0
    if others is None or full is None or full[longer] < MACHINE_FULL_PCT or others[longer] < HINDERING_CPUS:
        return ""
    if others[longer] - others[1 - longer] >= HINDERING_CPUS:
        return (
            f"other programs used {others[longer]:.1f} CPUs while batch {sizes[longer]} ran, and "
            f"{others[1 - longer]:.1f} while batch {sizes[1 - longer]} did"
        )
    if min(len(compared.before), len(compared.after)) > 1:
        return ""
    return f"one run of a size does not tell why while other programs use {others[longer]:.1f} CPUs"


def longer_gaps(compared: Compared) -> str:
    """That the device stands still as much, in fewer and longer stretches, which a utilisation trace shows as swings to
    0; else empty."""
    gaps = compared.values(terms.usual_gap_ms)
    if gaps is None or gaps[1] < LONGER_GAPS * gaps[0]:
        return ""
    return (
        f". The {compared.waiter} idles longer at a time (median {gaps[0]:.0f} ms at batch {compared.smaller}, "
        f"{gaps[1]:.0f} ms at batch {compared.larger}), because a larger batch takes longer to prepare: "
        "utilisation swings more, throughput stays the same"
    )


def duration(us: float) -> str:
    """A time per sample, in the unit that suits it."""
    return f"{us:.0f} µs" if abs(us) < 999.5 else f"{us / 1e3:.2f} ms"


FLOOR_SHARE = 0.10
"""Share of the time at the larger size that is exposed waiting for data, where nothing grew, from which the loader sets
the pace."""
SATURATED_SHARE = 0.85
"""Share of the time at the larger size that the device has to compute to have little left to give."""
MORE_SAMPLES = 1.3
"""Samples of a run at the larger size over those at the smaller, from which its length says nothing of its speed."""
LONGER = 1.1
"""Length of a run at the larger size over that at the smaller, from which one who looks at hours calls it slower."""


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
        if run.samples_known and run.samples
    ]
    runs = {size: [run for of, _, run in counted if of == size] for size, _, _ in counted}
    if len(runs) < 2:
        return None
    times = terms.alike_in_starts([run for _, _, run in counted])
    measured = [RunTerms(size, number, each) for (size, number, _), each in zip(counted, times, strict=True)]
    fit = SweepFit(measured)
    steps = {size: terms.steps_of(known) for size, known in runs.items()}
    long = [size for size in runs if steps[size] >= LEAST_STEPS]
    judged = long if len(long) > 1 else list(runs)
    larger = max(judged)
    smaller = min((size for size in judged if size != larger), key=lambda size: fit.at(size, TOTAL).value)
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
        medians={size: terms.medians_of([run.terms for run in measured if run.size == size], TERMS) for size in runs},
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


def _judge(compared: Compared, work: Mapping[int, Work]) -> Mechanism:
    """The mechanism with all that is to be said, but for the full stop."""
    smaller, larger = compared.smaller, compared.larger
    samples = work[larger].samples / work[smaller].samples
    longer = work[larger].seconds / work[smaller].seconds
    said = total_in_words(compared)
    # Clearly more samples than what runs differ by could account for.
    more = samples > max(MORE_SAMPLES, 1 + 2 * compared.reach) and longer > LONGER
    if more and not compared.slower:
        because = "mostly because" if compared.unsure else "only because"
        but = f". There, {growth_in_words(compared)}" if compared.risen else ""
        return Mechanism(
            "accounting",
            f"batch {larger} took {longer:.2f}× as long as batch {smaller} {because} it processed {samples:.2f}× as "
            f"many samples ({work[larger].samples} against {work[smaller].samples}); {said}{but}",
        )
    found = mechanism_of(compared)
    grown = growth_in_words(compared) if found is not None else ""
    others = foreign_in_words(compared) if compared.slower or compared.faster else ""
    if others:
        return Mechanism("none", f"{said}, but {others}. Run both sizes again, in turn")
    if compared.unsure:
        but = f". There, {grown}" if found is not None else ""
        return Mechanism("none", f"{said}: {more_runs(compared)}{but}")
    if compared.faster:
        but = f". Meanwhile {grown}, {found.why}" if found is not None else ""
        return Mechanism("none", f"a larger batch is faster: {said}{but}")
    if compared.slower:
        if more:
            slower = 1 + compared.change(TOTAL).value / compared.times(TOTAL)[0]
            said += f". Its runs took {longer:.2f}× as long: {slower:.2f}× for that, and the rest is more samples"
        if found is None:
            return Mechanism("none", f"{said}, and no single part explains it")
        return Mechanism(found.cause, f"{said}. There, {grown}, {found.why}", found.evidence)
    if found is not None:
        why = f"a larger batch gains nothing: {said}. There, {grown}, {found.why}"
        gaps = longer_gaps(compared) if found.cause == "loader_floor" else ""
        return Mechanism(found.cause, why + gaps, found.evidence)
    return _level(compared, said)


def _level(compared: Compared, said: str) -> Mechanism:
    """Nothing grew, and a sample takes as long as before: what sets the pace?"""
    total = compared.times(TOTAL)[1]
    beginning = sum(compared.fit.at(compared.larger, name).value for name in (terms.STARTING, terms.FILLING))
    waiting = compared.times("input")[1]
    if waiting - beginning >= FLOOR_SHARE * total:
        why = f"a larger batch gains nothing, because the loader sets the pace: {said}"
        return Mechanism("loader_floor", why + longer_gaps(compared))
    if waiting >= FLOOR_SHARE * total:
        return Mechanism(
            "none",
            f"no part grew: {said}. The {compared.waiter} waits most at the beginning of epochs, "
            f"{duration(beginning)} per sample at any batch size",
        )
    if compared.times("compute")[1] >= SATURATED_SHARE * total:
        return Mechanism("saturated", f"a larger batch gains nothing, as computation takes nearly all the time: {said}")
    return Mechanism("none", f"no part grew by more than runs differ: {said}{idle_in_words(compared)}")


RULES: Mapping[str, tuple[Sequence[Rule], Last]] = {
    "compute": (step_rules.COMPUTE_RULES, step_rules.kernels),
    "input": (input_rules.RULES, input_rules.loader_floor),
    "copy": (step_rules.COPY_RULES, step_rules.copying),
    "sync": ((), step_rules.waits),
    "host": (step_rules.HOST_RULES, step_rules.own_work),
    "boundary": ((), step_rules.outside),
}
"""Part → its rules, and what is said where none of them finds anything."""


def mechanism_of(compared: Compared) -> Mechanism | None:
    """Why the part that grew did so: the first rule that finds evidence; `None` where no part grew."""
    if compared.grew is None:
        return None
    rules, otherwise = RULES[compared.grew]
    return next((found for rule in rules if (found := rule(compared)) is not None), None) or otherwise(compared)
