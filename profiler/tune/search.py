"""Which loader settings are fastest, measured within one training: blocks of several settings in interleaved rounds.

First the program's own settings and what the training would do without a loader. Then the few settings that the replay
of the recording singles out, in rounds: what is surely not the choice is dropped, what lies around the best joins. A
baseline that is clearly beaten pauses meanwhile, so that blocks go to what is near the best. When the intervals decide,
only the winner and the baseline run on: how much faster it is comes from those rounds alone, as a winner is picked
partly by luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import exp, inf, log
from statistics import fmean

from ..analyse.predict.predict import TIE, Prediction
from ..analyse.statistics import Estimate
from ..record.tuning import DEFAULT_PREFETCH, Block, LoaderSettings
from .result import SearchEnd, Trial, Tuning, WorkersCost, describe
from .standing import LEAST_PROOFS, WORTH_TUNING, Entry, SearchPlan, Standing, cost, shuffled, toll
from .training import BenchEnded, NothingToTune, ScriptBench, TrialFailed

SAME = 0.015
"""Log rates that differ by no more are the same."""
DROPPED = 0.1
"""Share of cases in which the interval that settings are dropped by misses the truth: those near the best run on."""
MOST_LOST = 0.1
"""Log rate by which a cheaper setting than the baseline may be slower at most, by its interval's low end."""
CLEAR = log(1.10)
"""Log gain by its interval's low end from which a setting is believed on such a machine."""
START_MATTERS = 0.01
"""Share of an epoch that goes into its beginning, from which on persistent workers are tried."""
HOPELESS = 0.5
"""Share of the best prediction that no workers must be expected to reach to be tried."""
AT_CEILING = 0.95
"""Share of the rate without a loader from which the training itself sets the pace."""
MOST_HELD = 3
"""Blocks without a loader, to be sure whether there is anything to gain."""
MOST_ADDED = 3
"""Settings that join the race, around the best so far."""
MOST_PROOFS = 5
"""Rounds, at most, of the winner and the baseline alone."""
MARGIN = 1.25
"""Factor on what a block is expected to take; so much must be left of the budget."""
PREFETCHES = (1, 2, 4, 8)
MANY = 8
"""Workers from which on settings are tried in larger steps."""
MANY_WORKERS = (*range(1, 17), 20, 24, 28, 32, 40, 48, 56, 64)

Predict = Callable[[Sequence[LoaderSettings]], Sequence[Prediction]]
"""Predicts settings, in their order: the replay of the recorded stretch."""


class SearchPhase:
    """What a search is at, in words."""

    HEADROOM = "is there anything to gain?"
    RACE = "comparing settings"
    PIN = "comparing pinned memory"
    PROOF = "measuring the gain anew"


@dataclass(frozen=True)
class SearchProgress:
    """Told before each block, and once more when it is measured."""

    phase: str
    """A value of `SearchPhase`."""
    settings: LoaderSettings
    held: bool
    block: int
    """Number of the block, from 1."""
    left_s: float
    """Seconds left of the budget."""
    best: LoaderSettings
    """The pick so far."""
    speedup: float
    """Rate of the pick over the baseline's."""
    entry: Entry | None
    """What was measured; `None` before."""
    baseline: LoaderSettings


class _OutOfTime(Exception):
    """The next block would not fit into the budget."""


def search(
    bench: ScriptBench, predict: Predict, plan: SearchPlan, on_event: Callable[[SearchProgress], object]
) -> Tuning:
    """Search settings; Ctrl-C ends it with the best so far.

    Raises:
        NothingToTune: the program's own settings were not measured.
        KeyboardInterrupt: nor were they when Ctrl-C came.
    """
    run = _Search(bench, predict, plan, on_event)
    try:
        return run.conclude(run.run())
    except _OutOfTime:
        return run.conclude(SearchEnd.BUDGET)
    except KeyboardInterrupt:
        return run.conclude(SearchEnd.STOPPED, "stopped by Ctrl-C")
    except BenchEnded as error:
        return run.conclude(SearchEnd.FAILED, str(error))


class _Search:
    def __init__(
        self, bench: ScriptBench, predict: Predict, plan: SearchPlan, on_event: Callable[[SearchProgress], object]
    ) -> None:
        self.bench, self.plan = bench, plan
        self.own, self.held = plan.baseline, plan.baseline.without_loader()
        self._predict, self._on_event = predict, on_event
        self._began = bench.now()
        self.entries: list[Entry] = []
        self.phase, self.round = SearchPhase.HEADROOM, 0
        self.candidates: dict[LoaderSettings, str | None] = {}
        """Settings beside the baseline, and why each is not raced, or no longer; `None`: it is raced."""
        self.notes = [f"{name}: {why}" for name, why in plan.fixed.items()]
        self.winner = plan.baseline
        self.proven_from: int | None = None
        self._predicted: dict[LoaderSettings, Prediction] = {}

    @property
    def alive(self) -> list[LoaderSettings]:
        """Settings that are raced, beside the baseline."""
        return [settings for settings, out in self.candidates.items() if out is None]

    def standing(self) -> Standing:
        return Standing(self.entries, self.plan)

    # The course of a search.

    def run(self) -> str:
        """Measure until intervals decide, and tell why it ended. Raises what ends it early."""
        for settings in (self.own, self.held):
            self._measure(settings)
        if self.entries[0].block is None:
            return SearchEnd.FAILED
        stall_share = self.predicted(self.own).stall_share
        while (nothing := self.standing().nothing_to_gain(stall_share)) is None and self.round + 1 < MOST_HELD:
            self.round += 1
            # In turns: what comes second in a round is no better off in the end.
            for settings in (self.held, self.own) if self.round % 2 else (self.own, self.held):
                self._measure(settings)
        if nothing:
            self.notes.append("other workers, prefetch, order and pinning: there is nothing to gain")
            able = self._space()
            if able and cost(cheapest := self._cheapest(able), self.own) < cost(self.own, self.own):
                self.notes.append(f"{describe(cheapest)}: predicted to be as fast at less cost")
            return SearchEnd.NOTHING_TO_GAIN
        self.phase = SearchPhase.RACE
        self.candidates |= dict.fromkeys(self._first_wave())
        # The round goes on: the baseline has just had its block.
        for settings in self._shuffled(self.alive):
            takes, left = self._cost_s(settings), self._left_s()
            if takes + self._cost_of([self.own, settings]) <= left:
                self._measure(settings)
            else:
                self.candidates[settings] = (
                    f"two blocks take about {2 * takes:.0f} s, and {max(0, left):.0f} s were left"
                )
        cut_short = self._race()
        self._close_all_but()
        if self.winner != self.own:
            self._prove(self.winner)
        return SearchEnd.BUDGET if cut_short else SearchEnd.DECIDED

    def _race(self) -> bool:
        """Measure rounds until one setting is left, and tell whether the budget ended them."""
        added, rest = 0, [self.own]
        while rest:
            now = self.standing()
            self._drop(now)
            new = self._around(now)[: MOST_ADDED - added]
            added += len(new)
            self.candidates |= dict.fromkeys(new)
            self.winner, _ = now.pick(self.alive)
            rest = [each for each in self.alive if each != self.winner]
            cheaper = cost(self.winner, self.own) < cost(self.own, self.own)
            if not rest and cheaper and now.ratio(self.own, self.winner).high > WORTH_TUNING:
                rest = [self.own]  # it may yet be clearly faster than a winner that costs less
            if not rest and self.plan.cuda and "pin_memory" not in self.plan.fixed and self.phase != SearchPhase.PIN:
                # What no replay can tell.
                self.phase, rest = SearchPhase.PIN, [replace(self.winner, pin_memory=not self.winner.pin_memory)]
                self.candidates |= dict.fromkeys(rest)
            self._close_all_but(*self.alive)
            if self.round >= self.plan.most_rounds or len(self.entries) >= self.plan.most_blocks:
                break
            # A baseline that is clearly slower tells nothing more of the rest; the proof measures it again.
            beaten = self.own not in rest and now.earned(self.winner, self.own)
            orders = list(dict.fromkeys([*([] if beaten and self.round else [self.own]), self.winner, *self.alive]))
            if rest and self._cost_of(orders) + self._cost_of([self.own, self.winner]) > self._left_s():
                return True
            if rest:
                self._round_of(orders)
        return False

    def _prove(self, winner: LoaderSettings) -> None:
        """Measure the winner's gain anew, in rounds with nothing but the baseline: more workers than the program has
        must be proven to be faster."""
        self.phase, self.proven_from = SearchPhase.PROOF, self.round + 1
        dearer = cost(winner, self.own) > cost(self.own, self.own)
        for number in range(MOST_PROOFS):
            now = self.standing()
            proven = number >= LEAST_PROOFS and (not dearer or now.gain(winner, self.proven_from).low > 0)
            if proven or winner in now.failed:
                return
            if self._cost_of([self.own, winner]) > self._left_s():
                raise _OutOfTime
            self._round_of([self.own, winner])

    def _drop(self, now: Standing) -> None:
        """Give up whatever cannot be what is returned: slower than the fastest, or too dear for what it may gain."""
        winner, fastest = now.pick(self.alive)
        for each in [each for each in self.alive if each in now.settings and each != winner]:
            dearer = cost(each, self.own) > cost(winner, self.own)
            most = now.fit.ratio(each, winner, DROPPED).high - toll(each, winner, self.plan.cpus)
            if dearer and most >= WORTH_TUNING and now.fit.ratio(each, fastest, DROPPED).high >= 0:
                continue
            slower, blocks = 1 - exp(now.ratio(each, winner).value), len(now.blocks[each])
            words = f"{100 * slower:.0f} % slower than" if slower >= 0.01 else "not clearly faster than"
            cheaper = ", which costs less" if dearer else ""
            self.candidates[each] = f"{words} {describe(winner)}{cheaper}, after {blocks} block{'s' * (blocks != 1)}"

    def _around(self, now: Standing) -> list[LoaderSettings]:
        """Give what lies around the best so far and was not tried: more workers where the most are the fastest, the
        middle where fewer are too few, a deeper queue where the replay expects something of it."""
        winner, fastest = now.pick(self.alive)
        tried = {entry.settings for entry in self.entries} - {self.held}
        counts = sorted({each.num_workers for each in tried})
        wanted = []
        fewer = [count for count in counts if count < winner.num_workers]
        if fewer and (middle := (max(1, fewer[-1]) + winner.num_workers) // 2) > fewer[-1]:
            wanted.append(winner.with_workers(middle))
        slower = [each for each in now.settings if each.num_workers < fastest.num_workers]
        if fastest.num_workers == counts[-1] > 0 and all(now.ratio(fastest, each).low > 0 for each in slower):
            wanted.append(fastest.with_workers(self._more_than(fastest.num_workers)))
        depths = PREFETCHES if fastest.num_workers and "prefetch_factor" not in self.plan.fixed else ()
        deeper = [replace(fastest, prefetch_factor=depth) for depth in depths if depth > (fastest.prefetch_factor or 0)]
        wanted += [each for each in deeper if self._rate(each) > (1 + TIE) * self._rate(fastest)][:1]
        # What the replay surely knows to be slower is not worth a block.
        least = self._rate(winner)
        expected = {each: self.predicted(each) for each in dict.fromkeys(wanted) if each not in tried}
        return [each for each, told in expected.items() if told.infeasible is None and told.high >= least]

    def _more_than(self, workers: int) -> int:
        more = [count for count in MANY_WORKERS if workers * 1.2 <= count <= self.plan.most_workers]
        return more[0] if more else workers

    # What the replay proposes.

    def predicted(self, settings: LoaderSettings) -> Prediction:
        """Give what the replay says of a setting; it knows nothing of other pipelines."""
        asked = replace(settings, pipeline=self.own.pipeline)
        self._ask([asked])
        return self._predicted[asked]

    def _ask(self, settings: Sequence[LoaderSettings]) -> None:
        """Predict settings all at once, as far as they were not yet."""
        new = [each for each in dict.fromkeys(settings) if each not in self._predicted]
        self._predicted |= dict(zip(new, self._predict(new), strict=True)) if new else {}

    def _rate(self, settings: LoaderSettings) -> float:
        return float(self.predicted(settings).samples_per_s)

    def _space(self, persistent: bool = False) -> list[LoaderSettings]:
        """Give the settings that can run by prediction, in the program's own loader and order; of those that cannot and
        would be the fastest one is named."""
        own, plan = self.own, self.plan
        space = [own]
        if "num_workers" not in plan.fixed:
            most = max(plan.most_workers, own.num_workers)
            counts = sorted({count for count in (*MANY_WORKERS, own.num_workers) if 0 < count <= most})
            depths = {own.prefetch_factor} if "prefetch_factor" in plan.fixed else {*PREFETCHES, own.prefetch_factor}
            space = [own.with_workers(0)] + [
                replace(own.with_workers(count), prefetch_factor=depth, persistent_workers=persistent)
                for count in counts
                for depth in sorted({depth or DEFAULT_PREFETCH for depth in depths})
            ]
        self._ask(space)
        able = [each for each in space if self.predicted(each).infeasible is None]
        most_rate = max(map(self._rate, able), default=0.0) * (1 + TIE)
        faster = [each for each in space if each not in able and self._rate(each) > most_rate]
        for each in sorted(faster, key=lambda each: (each.num_workers, each.outstanding))[:1]:
            self.candidates[each] = str(self.predicted(each).infeasible)
        return able

    def _cheapest(self, of: Sequence[LoaderSettings], share: float = TIE) -> LoaderSettings:
        """Give the cheapest of those predicted to be so near to the best of them."""
        enough = (1 - share) * max(map(self._rate, of))
        return min((each for each in of if self._rate(each) >= enough), key=lambda each: cost(each, self.own))

    def _first_wave(self) -> list[LoaderSettings]:
        """Choose what to measure beside the baseline: the cheapest setting predicted to be within 2 % of the best, its
        neighbours, no workers unless that is hopeless, and one of each further pipeline."""
        plan, own, now = self.plan, self.own, self.standing()
        within = exp(fmean(log(block.samples_per_s) for block in now.blocks[own]))
        matters = plan.batches_per_epoch is not None and "persistent_workers" not in plan.fixed
        matters = matters and (not own.num_workers or 1 - now.with_start(own, within) / within >= START_MATTERS)
        able = self._space(matters or own.persistent_workers)
        if not able:
            self.notes.append("other settings: by prediction none can run here")
            return []
        pick = self._cheapest(able)
        keeps_order = own.in_order and pick.num_workers and "in_order" not in plan.fixed
        loose = replace(pick, in_order=False) if keeps_order else pick
        # Of many workers each takes its time to start: half of them are tried, and more only if those are too few.
        many = pick.num_workers > MANY
        more = [each for each in able if not many and each.num_workers == self._more_than(max(1, pick.num_workers))]
        few = [each.num_workers for each in able if 0 < each.num_workers <= pick.num_workers * (0.5 if many else 0.8)]
        fewer = [each for each in able if each.num_workers == max(few, default=-1)]
        deeper = [e for e in able if e.num_workers == pick.num_workers and e.outstanding > pick.outstanding]
        wanted = [pick]
        if matters and own.num_workers and not own.persistent_workers:
            wanted.insert(0, replace(own, persistent_workers=True))
        wanted += [loose] if plan.out_of_order else []
        wanted += [self._cheapest(group) for group in (more, fewer) if group]
        wanted += sorted(deeper, key=lambda each: each.outstanding)[:1]
        wanted.append(self._cheapest(able, 0.005))
        none, best = own.with_workers(0), max(map(self._rate, able))
        if none in able and none != own:
            if self.predicted(none).high >= HOPELESS * best:
                wanted.insert(2, none)
            else:
                self.candidates[none] = f"predicted to be {best / self._rate(none):.1f}× slower than the best"
        wanted = [each for each in dict.fromkeys(wanted) if each != own]
        costs = [entry.cost_s for entry in self.entries if entry.block is not None]
        room = int(self._left_s() / (2.5 * MARGIN * max(costs, default=plan.block_s)))
        most = min(plan.most_candidates, max(2, room)) - 1
        self.candidates |= dict.fromkeys(wanted[most:], "left out to limit the number of trials")
        if keeps_order and not plan.out_of_order:
            faster = self._rate(loose) / self._rate(pick)
            gain = f" (predicted: {100 * (faster - 1):+.0f} %)" if faster > 1 + TIE else ""
            self.notes.append(f"in_order=False: batches would come in another order{gain}; --out-of-order tries it")
        if not plan.cuda:
            self.notes.append("pin_memory: no CUDA device")
        if plan.batches_per_epoch is None and "persistent_workers" not in plan.fixed:
            why = "the length of an epoch is unknown, so beginnings of epochs do not count"
            self.notes.append(f"persistent_workers: {why}")
        # The replay knows nothing of other loaders. They get as many workers as the program's own would need.
        return wanted[:most] + [replace(pick, pipeline=name) for name in plan.pipelines if name != own.pipeline]

    # Blocks, and what they cost.

    def _shuffled(self, orders: Sequence[LoaderSettings]) -> list[LoaderSettings]:
        return shuffled(orders, self.plan.seed * 1000 + self.round)

    def _round_of(self, orders: Sequence[LoaderSettings]) -> None:
        self.round += 1
        for settings in self._shuffled(orders):
            self._measure(settings)

    def _measure(self, settings: LoaderSettings) -> None:
        """Have one block measured. Raises _OutOfTime where it would not fit."""
        if self._cost_s(settings) > self._left_s():
            raise _OutOfTime
        seconds, began = self._seconds(settings), self.bench.now() - self._began
        self._tell(settings, None)
        block, error, out_of_memory = None, None, False
        try:
            block = self.bench.measure(settings, seconds)
        except TrialFailed as failure:
            error, out_of_memory = str(failure), failure.out_of_memory
            if settings in self.candidates:
                self.candidates[settings] = error
        ended = self.bench.now() - self._began
        self.entries.append(Entry(settings, self.round, began, ended, block, error, out_of_memory))
        self._tell(settings, self.entries[-1])

    def _close_all_but(self, *raced: LoaderSettings) -> None:
        """End the workers of what is no longer raced: they hold memory."""
        for settings in self.bench.open - {self.own, self.winner, *raced}:
            self.bench.close(settings)

    def _tell(self, settings: LoaderSettings, entry: Entry | None) -> None:
        best, speedup = self.own, 1.0
        if self._blocks_of(self.own):
            now = self.standing()
            best, _ = now.pick(each for each in now.settings if now.eligible(each))
            speedup = 1.0 if best == self.own else exp(now.fit.ratio(best, self.own).value)
        block = len(self.entries) + (entry is None)
        shown, left_s = self.own if settings.held else settings, self._left_s()
        self._on_event(SearchProgress(self.phase, shown, settings.held, block, left_s, best, speedup, entry, self.own))

    def _left_s(self) -> float:
        return self.plan.budget_s - (self.entries[-1].ended_s if self.entries else 0.0)

    def _blocks_of(self, settings: LoaderSettings) -> list[Block]:
        return [entry.block for entry in self.entries if entry.settings == settings and entry.block is not None]

    def _seconds(self, settings: LoaderSettings) -> float:
        """Give the length of a block: enough for the plan's steps, and for each worker to have its turn three times."""
        wanted = max(self.plan.least_steps, 3 * settings.num_workers) * self._batch_s(settings)
        return min(max(self.plan.block_s, wanted), max(self.plan.block_s, self.plan.budget_s / 8))

    def _batch_s(self, settings: LoaderSettings) -> float:
        """Give the time of a batch: where it was measured that, else as predicted."""
        if blocks := self._blocks_of(settings):
            return blocks[-1].seconds / blocks[-1].batches
        rate = self._rate(self.own if settings.held else settings)
        return (settings.batch_size or self.plan.batch_size) / rate if rate > 0 else self.plan.block_s

    def _cost_of(self, orders: Iterable[LoaderSettings]) -> float:
        return sum(map(self._cost_s, orders))

    def _cost_s(self, settings: LoaderSettings) -> float:
        """Give what the next block with these settings will take, filling and starting included, and some margin."""
        seconds = self._seconds(settings)
        same = [entry.cost_s for entry in self.entries if entry.settings == settings]
        if same or not settings.num_workers:
            return MARGIN * max(same[-1] if same else 0.0, seconds)
        blocks = [(entry.settings.num_workers, entry.block) for entry in self.entries if entry.block is not None]
        starts = [(block.start_ns or 0) / 1e9 * max(1.0, settings.num_workers / max(1, n)) for n, block in blocks]
        return MARGIN * (seconds + 2 * (settings.outstanding + 2) * self._batch_s(settings) + max(starts, default=0.0))

    # What it came to.

    def conclude(self, ended: str, why: str | None = None) -> Tuning:
        """Put together what was found, whenever it ended. `why`: what ended it from outside."""
        own = self.own
        run = dict.fromkeys([own, *(entry.settings for entry in self.entries if not entry.settings.held)])
        if not self._blocks_of(own):
            if ended == SearchEnd.STOPPED:
                raise KeyboardInterrupt
            errors = [entry.error for entry in self.entries if entry.error is not None]
            because = why or next(iter(errors), "the budget is too small for a block of the program's own settings")
            raise NothingToTune(f"nothing was measured: {because}")
        now = self.standing()
        best = self._best(now, ended)
        clear = best != own and now.gain(best, self.proven_from).low > CLEAR
        if now.noisy and ended != SearchEnd.NOTHING_TO_GAIN and not clear:
            best = own
            ended = SearchEnd.TOO_NOISY if ended in (SearchEnd.DECIDED, SearchEnd.BUDGET) else ended
        gain = now.gain(best, self.proven_from)
        trials = {settings: self._trial(now, settings, best) for settings in run}
        rate, ceiling = trials[best].samples_per_s, exp(now.own_log) * (1 + (now.headroom or inf))
        at_ceiling = ended == SearchEnd.NOTHING_TO_GAIN or (rate is not None and rate >= AT_CEILING * ceiling)
        times = gain.exp()
        return Tuning(
            baseline=trials[own],
            best=trials[best],
            trials=tuple(trials.values()),
            speedup=times.value,
            speedup_low=times.low,
            speedup_high=times.high,
            headroom=now.headroom,
            ended=ended,
            because=why or self._because(now, ended, best, gain),
            binding_constraint="training" if at_ceiling else self.predicted(best).binding,
            not_tested=tuple(self._not_tested(ended, now)),
            noise=now.fit.seen_noise,
            wall_s=sum(entry.cost_s for entry in self.entries),
        )

    def _best(self, now: Standing, ended: str) -> LoaderSettings:
        """Give the winner, where it got so far; else the pick of what was run for long enough. More workers than the
        program has must be proven to be faster, fewer must be as fast."""
        own = self.own
        if ended == SearchEnd.NOTHING_TO_GAIN:
            return own
        run = [own, *(each for each in now.settings if now.eligible(each))]
        winner = self.winner if self.proven_from is not None and self.winner in run else now.pick(run)[0]
        if winner == own or now.gain(winner, self.proven_from).low > 0:
            return winner
        near = [
            each
            for each in run
            if now.fit.ratio(each, own).value >= -SAME
            and (each == own or now.gain(each, self.proven_from).low > -MOST_LOST)
        ]
        return min(near, key=lambda each: cost(each, own))

    def _trial(self, now: Standing, settings: LoaderSettings, best: LoaderSettings) -> Trial:
        entries = [entry for entry in self.entries if entry.settings == settings]
        failure = next((entry for entry in reversed(entries) if entry.block is None), None)
        predictable = settings.pipeline == self.own.pipeline and settings in self._predicted
        trial = Trial(
            replace(settings, batch_size=settings.batch_size or self.plan.batch_size),
            status="ok" if failure is None else "oom" if failure.out_of_memory else "failed",
            error=None if failure is None else failure.error,
            predicted=self._rate(settings) if predictable else None,
            seconds=sum(entry.cost_s for entry in entries),
            blocks=len(self._blocks_of(settings)),
            dropped=None if failure is not None else self.candidates.get(settings),
        )
        if settings not in now.settings:
            return trial
        # As the speedup: what the best is by the rounds that it was proven in.
        ratio = now.gain(settings, self.proven_from) if settings == best != self.own else None
        rate, blocks = now.fit.rate(settings, self.own, ratio), now.blocks[settings]
        used = [block.workers_bytes for block in blocks if block.workers_bytes is not None]
        cpus = [block.workers_cpus for block in blocks if block.workers_cpus is not None]
        start_s = now.start_ns(settings) / 1e9 if any(block.start_ns is not None for block in blocks) else None
        workers = WorkersCost(max(used, default=None), fmean(cpus) if cpus else None, start_s)
        return replace(
            trial,
            samples_per_s=rate.value,
            low=rate.low,
            high=rate.high,
            cost=workers if settings.num_workers and workers != WorkersCost() else None,
        )

    def _because(self, now: Standing, ended: str, best: LoaderSettings, gain: Estimate) -> str:
        least, headroom = 100 * WORTH_TUNING, now.headroom
        if ended == SearchEnd.NOTHING_TO_GAIN and headroom is None:
            return f"by the recording, an infinitely fast loader gains less than {least:.0f} %"
        if ended == SearchEnd.NOTHING_TO_GAIN:
            high = exp(now.fit.ratio(self.held, self.own, 0.1).high) - 1
            return (
                f"without a loader the training would be {max(0.0, 100 * (headroom or 0.0)):.1f} % faster "
                f"(at most {100 * high:.1f} %): less than {least:.0f} % is not worth a search"
            )
        if ended == SearchEnd.TOO_NOISY:
            return (
                f"blocks of one setting differ by {100 * (now.fit.seen_noise or 0):.0f} % on this machine without "
                "drift, too much to tell settings apart"
            )
        value, low, high = (100 * (exp(each) - 1) for each in (gain.value, gain.low, gain.high))
        name = describe(best, self.own)
        if best == self.own:
            words = f"no setting is proven to be faster than {name}"
        elif gain.low > 0:
            words = f"{name} is {value:.0f} % faster (95 % interval {low:.0f} to {high:.0f} %)"
        else:
            words = f"{name} is as fast as {describe(self.own)} and costs less"
        larger = ", a larger --budget may decide it" if best == self.own else ""
        return f"the budget was used up{larger}; so far {words}" if ended == SearchEnd.BUDGET else words

    def _not_tested(self, ended: str, now: Standing) -> Iterable[str]:
        run = {entry.settings for entry in self.entries} - {self.held}
        notes, plan = list(self.notes), self.plan
        both_pinned = len({settings.pin_memory for settings in run}) > 1
        if plan.cuda and ended != SearchEnd.NOTHING_TO_GAIN and not both_pinned and "pin_memory" not in plan.fixed:
            notes.append("pin_memory: the search ended before its turn")
        for settings, why in sorted(self.candidates.items(), key=lambda item: item[1] is not None):
            notes += [f"{describe(settings)}: {why or 'the search ended before its turn'}"] * (settings not in run)
        ranked = ended not in (SearchEnd.NOTHING_TO_GAIN, SearchEnd.TOO_NOISY)
        if ranked and "num_workers" not in plan.fixed:
            _, fastest = now.pick(now.settings)
            if fastest.num_workers >= plan.most_workers:
                notes.append(f"more than {fastest.num_workers} workers: --max-workers allows more")
        return dict.fromkeys(notes)
