"""A search, driven: what `race` orders is measured, until there is nothing more to order.

What a search came to, whenever it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import exp, inf, log, nan

from ...analyse.predict.workload import Binding
from ...analyse.statistics import Estimate
from ...record.tuning import LoaderSettings
from ..bench.bench import Bench, BenchEnded, TrialFailed
from .candidates import Arm, Entry, Model, SearchPlan, arm_of, as_run, cost, describe
from .race import LEAST_FREEDOM, WORTH_TUNING, Done, Measure, MeasureHeld, Race
from .result import SearchEnd, Trial, Tuned
from .scoreboard import HELD, SAME, Standing

MOST_LOST = 0.1
"""Of the log rate: what costs less is taken for as fast only where its interval says that it is no slower than that."""
TOO_NOISY = 0.15
"""Standard deviation of the log rate between blocks of one setting, drift removed."""
CLEAR = log(1.10)
"""Log of how much faster something must be by its interval's low end, to be believed on a machine that is too noisy."""


def conclude(race: Race, ended: str, said: str | None = None) -> Tuned:
    """`said`: what ended it from outside."""
    now = race.standing()
    wall_s = sum(entry.cost_s for entry in race.entries)
    if now is None:
        nothing = _trial(race, None, race.plan.baseline)
        why = said or nothing.error or "the program's own settings were not measured"
        return Tuned(
            nothing,
            nothing,
            (nothing,),
            Estimate(1.0, 0.0, inf),
            None,
            ended,
            why,
            None,
            _not_tested(race, ended, None),
            None,
            wall_s,
        )
    winner = _winner(race, now)
    noise = now.measured.seen_noise
    if (
        ended in (SearchEnd.DECIDED, SearchEnd.BUDGET, SearchEnd.STOPPED)
        and _noisy(now)
        and not _clear(race, now, winner)
    ):
        ended, winner = ended if ended == SearchEnd.STOPPED else SearchEnd.TOO_NOISY, now.own
    best = race.plan.baseline if ended == SearchEnd.TOO_NOISY else _with_persistence(race, now, winner)
    promising = None
    if ended in (SearchEnd.BUDGET, SearchEnd.STOPPED) and best == race.plan.baseline:
        promising = _promising(race, now)
    trials = _trials(race, now, arm_of(best))
    by_settings = {trial.settings: trial for trial in trials}
    ratio = now.gain(arm_of(best), race.proven_from)
    shift = now.epoch_gain(best, _first_run(race, arm_of(best)))
    because = said or _because(race, now, ended, winner, shift)
    if promising is not None:
        ended_by = said or "the budget was used up"
        because = f"{ended_by}; promising, not proven: {promising}; a larger --budget decides it"
    chosen = race.predicted_of(best)
    bound = None if chosen is None else chosen.binding
    if ended == SearchEnd.NOTHING_TO_GAIN:
        bound = Binding.TRAINING
    return Tuned(
        baseline=by_settings[race.plan.baseline],
        best=by_settings[best],
        trials=trials,
        # Of what keeping the program's own workers alive gains, few beginnings of passes say how far that is off.
        speedup=Estimate(exp(ratio.value + shift), nan, nan) if shift else ratio.exp(),
        headroom=_headroom(now),
        ended=ended,
        because=because,
        binding=bound,
        not_tested=_not_tested(race, ended, now),
        noise=noise,
        wall_s=wall_s,
        promising=promising,
    )


def _noisy(now: Standing) -> bool:
    noise = now.measured.seen_noise
    return noise is not None and noise > TOO_NOISY and now.measured.freedom >= LEAST_FREEDOM


def _promising(race: Race, now: Standing) -> str | None:
    """What is clearly faster than the baseline, and was not run long enough to be returned."""
    least = CLEAR if _noisy(now) else 0.0
    few = [
        arm
        for arm in now.arms
        if arm not in race.failed and arm != race.pinned and not now.eligible(arm) and now.gain(arm).low > least
    ]
    if not few:
        return None
    arm = max(few, key=lambda arm: now.gain(arm).value)
    times, blocks = exp(now.gain(arm).value), now.blocks(arm)
    which = "one block" if blocks == 1 else f"{blocks} short blocks"
    return f"{describe(arm)} was {times:.{1 if times >= 2 else 2}f} times as fast in {which}"


def _winner(race: Race, now: Standing) -> Arm:
    """The race's, where it got so far; else the best of what was run for long enough. More workers than the program
    has must have been proven to be faster."""
    own, baseline = now.own, race.plan.baseline
    if race.ended == SearchEnd.NOTHING_TO_GAIN:
        return own
    runs = [own, *(arm for arm in now.arms if arm not in race.failed and arm != race.pinned and now.eligible(arm))]
    winner = race.winner
    if winner is None or not now.eligible(winner):
        winner = now.best(runs).winner
    if winner == own or now.gain(winner, race.proven_from).low > 0:
        return winner
    # Nothing is proven better: what is as fast as the baseline and costs less, if anything.
    floor = -SAME
    cheap = [
        arm
        for arm in runs
        if arm == own
        or (now.weighed.ratio(arm, own).value >= floor and now.gain(arm, race.proven_from).low > -MOST_LOST)
    ]
    return min(cheap, key=lambda arm: cost(arm, baseline))


def _clear(race: Race, now: Standing, winner: Arm) -> bool:
    """Whether the decision stands although the machine is noisy."""
    if winner == now.own:
        return all(now.gain(arm).high < SAME for arm in now.arms if arm != winner and now.eligible(arm))
    return now.gain(winner, race.proven_from).low > CLEAR


def _with_persistence(race: Race, now: Standing, winner: Arm) -> LoaderSettings:
    settings = _first_run(race, winner)
    kept = replace(race.plan.baseline, persistent_workers=True) if race.own.num_workers else None
    if winner == now.own and kept is not None and now.start_known(kept) and now.epoch_gain(kept, settings) > 0.01:
        return kept
    return settings


def _first_run(race: Race, arm: Arm) -> LoaderSettings:
    return race.plan.baseline if arm == race.own else as_run(arm, race.plan, race.persistent)


def _trials(race: Race, now: Standing, best: Arm) -> tuple[Trial, ...]:
    run = dict.fromkeys([race.plan.baseline, *(entry.settings for entry in race.entries if not entry.held)])
    return tuple(_trial(race, now, settings, best) for settings in run)


def _trial(race: Race, now: Standing | None, settings: LoaderSettings, best: Arm | None = None) -> Trial:
    arm = arm_of(settings)
    predicted, ceiling = race.predicted.get(settings), _ceiling(now)
    entries = [entry for entry in race.entries if not entry.held and entry.settings == settings]
    failures = [entry for entry in entries if entry.block is None]
    trial = Trial(
        settings,
        status="ok" if not failures else "oom" if failures[-1].out_of_memory else "failed",
        error=failures[-1].error if failures else None,
        predicted=predicted if predicted is None else min(predicted, ceiling),
        seconds=sum(entry.cost_s for entry in entries),
        blocks=sum(entry.block is not None for entry in entries),
        dropped=race.dropped.get(arm),
    )
    if now is None or not trial.blocks or arm not in now.arms:
        return trial
    ratio, steady = now.measured.ratio(arm, now.own), now.steady.ratio(arm, now.own)
    if arm == best:
        # As the speedup: what it is by the rounds that it was proven in.
        proven = now.gain(arm, race.proven_from)
        steady = replace(steady, value=steady.value + proven.value - ratio.value)
        ratio = proven
    shift = now.own_log + now.epoch_gain(settings, _first_run(race, arm))
    if arm == now.own:
        ratio = now.own_level()
        shift -= now.own_log
    return replace(
        trial,
        rate=ratio.shifted(shift).exp(),
        steady_samples_per_s=exp(now.own_steady_log + steady.value),
    )


def _headroom(now: Standing) -> float | None:
    if HELD not in now.measured.arms:
        return None
    return exp(now.measured.ratio(HELD, now.own).value) - 1


def _ceiling(now: Standing | None) -> float:
    """Samples/s that no loader can give, by the upper end of what batches that lay ready gave; no prediction is higher.
    Infinite where that was not measured."""
    if now is None or HELD not in now.measured.arms:
        return inf
    return exp(now.own_log + now.measured.ratio(HELD, now.own).high)


def _because(race: Race, now: Standing, ended: str, winner: Arm, kept: float) -> str:
    """`kept`: log of what keeping the winner's workers alive gains beside."""
    headroom = _headroom(now)
    if ended == SearchEnd.NOTHING_TO_GAIN:
        if headroom is None:
            return f"by the recording, an infinitely fast loader gains less than {100 * WORTH_TUNING:.0f} %"
        high = exp(now.measured.ratio(HELD, now.own, 0.1).high) - 1
        return (
            f"without a loader the training would be {max(0.0, 100 * headroom):.1f} % faster "
            f"(at most {100 * high:.1f} %): less than {100 * WORTH_TUNING:.0f} % is not worth a search"
        )
    gain = now.gain(winner, race.proven_from)
    percent = [100 * (exp(value) - 1) for value in (gain.value, gain.low, gain.high)]
    if ended == SearchEnd.TOO_NOISY:
        return (
            f"blocks of one setting differ by {100 * (now.measured.seen_noise or 0):.0f} % on this machine without "
            "drift, too much to tell settings apart"
        )
    if winner == now.own and kept > 0:
        words = f"{describe(winner)} with workers kept alive is {100 * (exp(kept) - 1):.0f} % faster over an epoch"
    elif winner == now.own:
        words = f"no setting tried is clearly faster than {describe(winner)}"
    elif gain.low > 0:
        words = (
            f"{describe(winner)} is {percent[0]:.0f} % faster (95 % interval {percent[1]:.0f} to {percent[2]:.0f} %)"
        )
    else:
        words = f"{describe(winner)} is as fast as {describe(now.own)} and costs less"
    if ended == SearchEnd.BUDGET:
        return f"the budget was used up; so far {words}"
    return words


def _not_tested(race: Race, ended: str, now: Standing | None) -> tuple[str, ...]:
    notes = list(race.not_tested)
    if ended == SearchEnd.NOTHING_TO_GAIN:
        notes.append("other workers, prefetch, order and pinning: there is nothing to gain")
        cheaper = race.cheaper_as_fast()
        if cheaper is not None:
            notes.append(f"{describe(cheaper)}: predicted to be as fast at less cost")
    elif race.plan.cuda and race.pinned is None and "pin_memory" not in race.plan.fixed:
        notes.append("pin_memory: the search ended before its turn")
    run = {arm_of(entry.settings) for entry in race.entries if not entry.held}
    left_out = {**dict.fromkeys(race.alive, "the search ended before its turn"), **race.left_out}
    notes += [f"{describe(arm)}: {why}" for arm, why in left_out.items() if arm not in run]
    most = race.plan.most_workers
    ranked = now is not None and ended not in (SearchEnd.NOTHING_TO_GAIN, SearchEnd.TOO_NOISY)
    if now is not None and ranked and "num_workers" not in race.plan.fixed:
        fastest = now.best([arm for arm in now.arms if arm not in race.failed]).winner
        if fastest.num_workers >= most:
            notes.append(f"more than {fastest.num_workers} workers: --max-workers allows more")
    return tuple(dict.fromkeys(notes))


@dataclass(frozen=True)
class SearchProgress:
    """Before each block, and once more when it is measured."""

    phase: str
    """A value of `race.Phase`."""
    settings: LoaderSettings
    held: bool
    block: int
    """Counted from 1."""
    blocks: int
    """About how many there will be."""
    left_s: float
    """Of the budget."""
    best: LoaderSettings
    """So far; blocks and model weighed."""
    speedup: float
    """Of it against the baseline, from blocks alone."""
    entry: Entry | None
    """What was measured."""
    baseline: LoaderSettings | None = None
    """As the program sets them itself."""


def search(bench: Bench, model: Model, plan: SearchPlan, on_event: Callable[[SearchProgress], None]) -> Tuned:
    """Search settings. Never raises for what happens to the training; Ctrl-C ends it with the best so far."""
    race = Race(model, plan)
    began = bench.now()
    open_yet: set[LoaderSettings] = set()
    try:
        while not isinstance(step := race.next(), Done):
            # The workers of what is no longer raced are ended: they hold memory.
            for settings in open_yet - race.wanted():
                bench.close(settings)
            open_yet &= race.wanted()
            on_event(_progress(race, step, None))
            entry = _run(bench, step, plan, began)
            if entry.block is not None and not entry.held:
                open_yet.add(entry.settings)
            race.add(entry)
            on_event(_progress(race, step, entry))
        return conclude(race, step.ended)
    except KeyboardInterrupt:
        return conclude(race, SearchEnd.STOPPED, "stopped by Ctrl-C")
    except BenchEnded as error:
        return conclude(race, SearchEnd.FAILED, str(error))


def _run(bench: Bench, step: Measure | MeasureHeld, plan: SearchPlan, began: float) -> Entry:
    settings = plan.baseline if isinstance(step, MeasureHeld) else step.settings
    predicted = None if isinstance(step, MeasureHeld) else step.predicted
    began_s = bench.now() - began
    block, error, out_of_memory = None, None, False
    try:
        block = bench.held(step.seconds) if isinstance(step, MeasureHeld) else bench.measure(settings, step.seconds)
    except TrialFailed as failure:
        error, out_of_memory = str(failure), failure.out_of_memory
    return Entry(
        settings,
        step.round,
        began_s,
        bench.now() - began,
        isinstance(step, MeasureHeld),
        block,
        error,
        out_of_memory,
        predicted,
    )


def _progress(race: Race, step: Measure | MeasureHeld, entry: Entry | None) -> SearchProgress:
    done = len(race.entries)
    now = race.standing()
    best = race.own
    if now is not None:
        best = now.best([race.own, *(arm for arm in now.arms if now.eligible(arm) and arm not in race.failed)]).winner
    return SearchProgress(
        phase=step.phase,
        settings=race.plan.baseline if isinstance(step, MeasureHeld) else step.settings,
        held=isinstance(step, MeasureHeld),
        block=done + (entry is None),
        blocks=max(done + race.blocks_left(), done + (entry is None)),
        left_s=race.left_s(),
        best=best,
        speedup=1.0 if now is None or best == race.own else exp(now.measured.ratio(best, race.own).value),
        entry=entry,
        baseline=race.plan.baseline,
    )
