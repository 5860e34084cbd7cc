"""What to measure next: a function of what was measured so far, of the model and of the plan, and of nothing else.

The baseline first, and what the training would do without a loader; then the settings that the model singles out, in
rounds that all of them share with the baseline. After each round the model is fitted to what was measured, what is not
worth another block is dropped, and what the fitted model points to joins.

Longer than other modules: it is one decision, whose phases hand over to each other and are read in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import exp, log

from ...analyse.predict.advice import TIE
from ...analyse.predict.workload import Prediction
from ...matrix.matrix import rounds
from ...record.tuning import LoaderSettings
from .candidates import (
    Arm,
    Entry,
    Model,
    Predicted,
    SearchPlan,
    arm_of,
    as_run,
    choose,
    cost,
    describe,
    neighbours,
    space,
)
from .result import SearchEnd
from .scoreboard import HELD, LEAST_PROOFS, SAME, LogRatio, Standing

WORTH_TUNING = 0.03
"""Gain of throughput, as a share, below which nothing is tuned: neither are settings searched nor another micro-batch
proposed. Less than `causes.finding.LEAST_GAIN`, since it is measured here and not read off one recording."""
NOT_THE_LOADER = 0.05
"""By how much less than the baseline, in log rate, blocks without a loader are disturbed."""
MOST_HELD = 3
"""Blocks without a loader, to know that for sure."""
LEAST_PROMISE = 0.01
"""Expected loss below which something is not measured again."""
ONE_BLOCK = 0.2
"""Log rates that differ by no more may do so by chance, where one of them is a single block's."""
MOST_ADDED = 2
MOST_LEARNED = 3
"""Rounds after which the model is fitted anew: the training stands still for it."""
START_MATTERS = 0.01
"""Share of an epoch that goes into its beginning, from which on persistent workers are tried."""
LEAST_FREEDOM = 2
"""Degrees of freedom from which on the noise counts as measured."""
PIN_ROUNDS = 4
MARGIN = 1.25
"""Times what a block is expected to take has to be left of the budget."""


class SearchPhase:
    HEADROOM = "headroom"
    RACE = "race"
    PIN = "pin"
    PROOF = "proof"
    RESTART = "restart"


@dataclass(frozen=True)
class Measure:
    settings: LoaderSettings
    seconds: float
    round: int
    phase: str
    predicted: float | None


@dataclass(frozen=True)
class MeasureHeld:
    seconds: float
    round: int
    phase: str = SearchPhase.HEADROOM


@dataclass(frozen=True)
class Done:
    ended: str


Step = Measure | MeasureHeld | Done


class Race:
    """`next` says what to measure, `add` takes what that gave."""

    def __init__(self, model: Model, plan: SearchPlan) -> None:
        self.plan = plan
        self.own = arm_of(plan.baseline)
        self.entries: list[Entry] = []
        self.phase = SearchPhase.HEADROOM
        self.alive: list[Arm] = []
        """Still raced, beside the baseline."""
        self.dropped: dict[Arm, str] = {}
        self.failed: dict[Arm, Entry] = {}
        self.not_tested: list[str] = []
        self.left_out: dict[Arm, str] = {}
        """Settings that were not run, and why."""
        self.predicted: dict[LoaderSettings, float] = {}
        """Before they were first run."""
        self.winner: Arm | None = None
        """Of the race, to which pinning and persistence are then added."""
        self.pinned: Arm | None = None
        self.proven_from: int | None = None
        """Round from which on only the winner and the baseline ran: what tells how much faster it is."""
        self.persistent = False
        self.model = copy(model)
        self._stood: tuple[int, Predicted, Standing] | None = None
        self._said = Predicted(self.model, plan, False, [self.own])
        self._round = 0
        self._queue: list[LoaderSettings | None] = [plan.baseline, None]
        """Orders of the round under way; `None`: without a loader."""
        self._raced = 0
        self._pin_rounds = 0
        self._proofs = 0
        self._added = 0
        self._ended: str | None = None

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        self._round = entry.round
        order = None if entry.held else entry.settings
        if order in self._queue:
            self._queue.remove(order)
        if entry.block is None and not entry.held:
            arm = arm_of(entry.settings)
            if arm != self.own or entry.settings == self.plan.baseline:
                self.failed[arm] = entry
            if arm in self.alive:
                self.alive.remove(arm)
            if arm == self.own and self.standing() is None:
                self._ended = SearchEnd.FAILED
        if not entry.held and entry.predicted is not None:
            self.predicted.setdefault(entry.settings, entry.predicted)

    def next(self) -> Step:
        while self._ended is None:
            if not self._queue:
                self._plan_round()
                continue
            self._hurry()
            order = self._queue[0]
            if not self._fits(order):
                self._skip(order)
                continue
            if order is None:
                return MeasureHeld(self._seconds(None), self._round)
            return Measure(order, self._seconds(order), self._round, self.phase, self._prediction(order))
        return Done(self._ended)

    def standing(self) -> Standing | None:
        """`None` before the baseline has a block."""
        if self._stood is not None and self._stood[:2] == (len(self.entries), self._said):
            return self._stood[2]
        if not any(e.block is not None and not e.held and arm_of(e.settings) == self.own for e in self.entries):
            return None
        arms = {arm_of(e.settings) for e in self.entries if not e.held}
        rates = {arm: self._said.rate(arm) for arm in arms if arm in self._said}
        now = Standing(self.entries, self.plan, rates)
        self._stood = len(self.entries), self._said, now
        return now

    @property
    def ended(self) -> str | None:
        return self._ended

    def predicted_of(self, settings: LoaderSettings) -> Prediction | None:
        """By the model as it is fitted now."""
        arm = arm_of(settings)
        return self._said.of(arm) if arm in self._said else None

    def cheaper_as_fast(self) -> Arm | None:
        """That costs less than the baseline and is predicted to be as fast."""
        self._said.add(space(self.plan))
        if not self._said.arms:
            return None
        cheapest = self._said.cheapest(self.plan)
        return cheapest if cost(cheapest, self.plan.baseline) < cost(self.own, self.plan.baseline) else None

    def wanted(self) -> set[LoaderSettings]:
        """What may be measured again, and the baseline."""
        arms = [*self.alive, *(arm for arm in (self.winner, self.pinned) if arm is not None)]
        return {self.plan.baseline, *(self._as_run(arm) for arm in arms)}

    def blocks_left(self) -> int:
        """About how many blocks are still to come."""
        if self._ended is not None:
            return 0
        if self.phase == SearchPhase.HEADROOM:
            return len(self._queue) + self._room() + 2 * 3
        if self.phase == SearchPhase.RACE:
            return len(self._queue) + max(0, 3 - self._raced) * (1 + min(3, len(self.alive)))
        return len(self._queue) + 2 * max(0, LEAST_PROOFS - self._proofs)

    def left_s(self) -> float:
        """Seconds of the budget."""
        return self.plan.budget_s - (self.entries[-1].ended_s if self.entries else 0.0)

    # Rounds

    def _plan_round(self) -> None:
        now = self.standing()
        if now is None:
            self._ended = SearchEnd.FAILED
        elif self.phase == SearchPhase.HEADROOM:
            self._after_headroom(now)
        elif self.phase == SearchPhase.RACE:
            self._after_round(now)
        elif self.phase == SearchPhase.PIN:
            self._after_pin(now)
        elif self.phase == SearchPhase.PROOF:
            self._after_proof(now)
        else:
            self._after_restart(now)

    def _after_headroom(self, now: Standing) -> None:
        held = sum(entry.held for entry in self.entries)
        gain = nothing_to_gain(self.entries, now, self._said, self.own)
        if gain is True:
            self._ended = SearchEnd.NOTHING_TO_GAIN
            return
        if gain is None and 0 < held < MOST_HELD:
            self._round += 1
            # In turns: what comes second in a round is no better off in the end.
            self._queue = [None, self.plan.baseline] if held % 2 else [self.plan.baseline, None]
            return
        self.persistent = "persistent_workers" not in self.plan.fixed and (
            self.plan.batches_per_epoch is not None
            and (self.own.num_workers == 0 or now.start_share() >= START_MATTERS)
        )
        self._learn(now)
        chosen = choose(self._said, self.plan, self._room())
        self.not_tested = list(chosen.not_tested)
        self.left_out = dict(chosen.left_out)
        self.alive = [arm for arm in chosen.arms if arm != self.own]
        self._said.add(self.alive)
        self.phase = SearchPhase.RACE
        # The round goes on: the baseline has just had its block.
        self._queue = self._order([self._as_run(arm) for arm in self.alive])

    def _after_round(self, now: Standing) -> None:
        self._raced += 1
        if self._added < MOST_ADDED and self._raced <= MOST_LEARNED:
            self._learn(now)
            now = self.standing() or now
        self._drop(now)
        self._add(now)
        best = now.best(self._run_of(now)).winner
        rivals = [arm for arm in self.alive if arm != best]
        if not rivals and best == self.own and now.measured.freedom < LEAST_FREEDOM:
            # Nobody was run twice: how noisy the machine is was only assumed.
            rivals = [arm for arm in now.arms if arm != self.own and arm not in self.failed]
            rivals = [now.best(rivals).leader] if rivals else []
            self.alive += rivals
        if not rivals or self._raced >= self.plan.most_rounds or len(self.entries) >= self.plan.most_blocks:
            self._race_is_over(best)
        else:
            self._round += 1
            self._queue = self._order([self.plan.baseline, *(self._as_run(arm) for arm in self.alive)])

    def _run_of(self, now: Standing) -> list[Arm]:
        """Of what is still raced, and the baseline, what has a block."""
        return [self.own, *(arm for arm in self.alive if arm in now.arms)]

    def _race_is_over(self, winner: Arm) -> None:
        self.winner = winner
        self.alive = [winner] if winner != self.own else []
        kept_already = self.plan.baseline.persistent_workers or self.own.num_workers == 0
        if self.persistent and not kept_already:
            # The program's own workers, kept alive, need one block: to see how its passes begin.
            self.phase = SearchPhase.RESTART
            self._round += 1
            self._queue = [self._kept()]
        else:
            self._pin()

    def _kept(self) -> LoaderSettings:
        return replace(self.plan.baseline, persistent_workers=True)

    def _after_restart(self, now: Standing) -> None:
        """What won by its persistent workers alone is not worth more than the same change to the program's own."""
        assert self.winner is not None
        if self.winner != self.own and self.winner in now.arms and now.start_known(self._kept()):
            gain = now.weighed.ratio(self.winner, self.own).value - now.epoch_gain(self._kept(), self.plan.baseline)
            if gain < SAME and cost(self.own, self.plan.baseline) < cost(self.winner, self.plan.baseline):
                self.winner, self.alive = self.own, []
        self._pin()

    def _pin(self) -> None:
        assert self.winner is not None
        if not self.plan.cuda or "pin_memory" in self.plan.fixed:
            self._prove()
            return
        self.pinned = replace(self.winner, pin_memory=not self.winner.pin_memory)
        self.phase = SearchPhase.PIN
        self._round += 1
        self._queue = self._order(self._pin_pair())

    def _prove(self) -> None:
        assert self.winner is not None
        if self.winner == self.own:
            self._ended = SearchEnd.DECIDED
            return
        self.phase = SearchPhase.PROOF
        self._round += 1
        self.proven_from = self._round if self.proven_from is None else self.proven_from
        self._proofs += 1
        self._queue = self._order([self.plan.baseline, self._as_run(self.winner)])

    def _after_proof(self, now: Standing) -> None:
        """More workers than the program has must be proven to be faster."""
        assert self.winner is not None
        dearer = cost(self.winner, self.plan.baseline) > cost(self.own, self.plan.baseline)
        open_yet = dearer and now.gain(self.winner, self.proven_from).low <= 0 and self._proofs < self.plan.most_rounds
        if self.winner not in self.failed and (self._proofs < LEAST_PROOFS or open_yet):
            self._prove()
        else:
            self._ended = SearchEnd.DECIDED

    def _after_pin(self, now: Standing) -> None:
        assert self.winner is not None
        assert self.pinned is not None
        self._pin_rounds += 1
        known = self.pinned not in self.failed and self.pinned in now.arms
        between = now.measured.ratio(self.pinned, self.winner) if known else None
        better = between is not None and between.low > 0 and now.eligible(self.pinned)
        if between is None or better or between.high < TIE or self._pin_rounds >= PIN_ROUNDS:
            if better:
                self.winner = self.pinned
            self._prove()
            return
        self._round += 1
        self._queue = self._order(self._pin_pair())

    def _pin_pair(self) -> list[LoaderSettings]:
        """And the baseline, whose blocks tell the drift."""
        arms = [arm for arm in (self.own, self.winner, self.pinned) if arm is not None]
        return [self._as_run(arm) for arm in dict.fromkeys(arms)]

    def _learn(self, now: Standing) -> None:
        rates = now.steady_rates().items()
        self.model.learn([(arm, rate) for arm, rate in rates if arm.pipeline == self.own.pipeline], steady=True)
        arms = [self.own, *space(self.plan), *self.alive, *self.dropped]
        self._said = Predicted(self.model, self.plan, self.persistent, arms)

    def _drop(self, now: Standing) -> None:
        """Whatever is not expected to be what is returned."""
        best = now.best(self._run_of(now))
        for arm in list(self.alive):
            if arm == best.winner or arm not in now.arms:
                continue
            if cost(arm, self.plan.baseline) > cost(best.winner, self.plan.baseline):
                # As fast is not enough: it costs more.
                worth = now.promise(arm, best.winner, SAME)
            else:
                worth = now.promise(arm, best.leader, -SAME)
                if now.blocks(arm) < 2 and now.weighed.ratio(arm, best.leader).value > -ONE_BLOCK:
                    # One lucky block of what costs more is no reason.
                    continue
            if worth < LEAST_PROMISE:
                self.alive.remove(arm)
                self.dropped[arm] = _why(now, arm, best.winner, self.plan)

    def _add(self, now: Standing) -> None:
        """What the fitted model points to, or what the edge of what was tried does."""
        if self._added >= MOST_ADDED or self._raced >= self.plan.most_rounds - 1 or not self._said.arms:
            return
        tried = {arm_of(entry.settings) for entry in self.entries}
        best = now.best(self._run_of(now))
        if best.leader not in self._said:
            return
        floor = self._said.rate(best.leader)
        wanted: list[Arm] = []
        found = self._said.best()
        if self._said.rate(found) > floor * (1 + TIE):
            wanted.append(found)
        cheapest = self._said.cheapest(self.plan)
        if self._said.rate(cheapest) > floor * (1 - TIE):
            wanted.append(cheapest)
        near = neighbours(best.leader, self._said)
        more = [arm for arm in near if arm.num_workers > max(each.num_workers for each in tried)]
        fewer = [arm for arm in tried if arm.num_workers < best.leader.num_workers and arm in now.arms]
        if more and all(_clearly(now.weighed.ratio(best.leader, arm)) for arm in fewer):
            # At the edge, and still getting faster.
            wanted += more[:1]
        less = [arm for arm in neighbours(best.winner, self._said) if arm.num_workers < best.winner.num_workers]
        if less and self._said.rate(less[0]) > floor * (1 - 2 * TIE):
            wanted += less[:1]
        new = [arm for arm in wanted if arm not in tried and arm not in self.alive][:1]
        self.alive += new
        self._added += len(new)

    # Blocks and what they cost

    def _order(self, orders: Sequence[LoaderSettings]) -> list[LoaderSettings | None]:
        """Shuffled, as the plan's seed and the round have it."""
        return [each for number, each in rounds(orders, 2, self.plan.seed * 1000 + self._round) if number == 1]

    def _as_run(self, arm: Arm) -> LoaderSettings:
        return as_run(arm, self.plan, self.persistent)

    def _prediction(self, settings: LoaderSettings) -> float | None:
        if settings in self.predicted:
            return self.predicted[settings]
        arm = arm_of(settings)
        return float(self._said.rate(arm)) if arm in self._said else None

    def _seconds(self, order: LoaderSettings | None) -> float:
        """Long enough for the plan's steps, and for each worker to have its turn three times."""
        batch_s = self._batch_s(order)
        workers = order.num_workers if order else 0
        wanted = max(self.plan.block_s, self.plan.least_steps * batch_s, 3 * workers * batch_s)
        return min(wanted, max(self.plan.block_s, self.plan.budget_s / 8))

    def _batch_s(self, order: LoaderSettings | None) -> float:
        """Of the same settings where they were measured, else as predicted, else as the baseline."""
        for entry in reversed(self.entries):
            if entry.block and (entry.held if order is None else not entry.held and entry.settings == order):
                return entry.block.seconds / entry.block.batches
        settings = self.plan.baseline if order is None else order
        rate = self._prediction(settings) or self._said.rate(self.own)
        return (settings.batch_size or self.plan.batch_size) / rate if rate > 0 else self.plan.block_s

    def _fits(self, order: LoaderSettings | None) -> bool:
        return self._cost_s(order) <= self.left_s()

    def _cost_s(self, order: LoaderSettings | None) -> float:
        """Of the next block with these settings, filling and starting included."""
        same = [e for e in self.entries if e.held == (order is None) and (order is None or e.settings == order)]
        if same and same[-1].block is not None:
            first = same[-1].block.start_ns or 0
            settled = same[-1].cost_s - (first / 1e9 if len(same) == 1 else 0.0)
            return MARGIN * max(settled, self._seconds(order))
        settle = 2 * (order.outstanding + 2) * self._batch_s(order) if order else 0.0
        starts = [
            (e.block.start_ns / 1e9, max(1, e.settings.num_workers))
            for e in self.entries
            if e.block is not None and e.block.start_ns and not e.held
        ]
        workers = order.num_workers if order else 0
        start = max((taken * max(1.0, workers / count) for taken, count in starts), default=0.0)
        return MARGIN * (self._seconds(order) + settle + (start if workers else 0.0))

    def _skip(self, order: LoaderSettings | None) -> None:
        """There is no time for it. Without the baseline nothing can be compared, and the search ends."""
        self._queue.remove(order)
        arm = None if order is None else arm_of(order)
        if arm is None:
            return
        tried = {arm_of(entry.settings) for entry in self.entries if not entry.held}
        if arm == self.own or arm in tried or self.phase != SearchPhase.RACE:
            self._ended = SearchEnd.BUDGET
            return
        self.alive.remove(arm)
        takes, left = self._cost_s(order), max(0.0, self.left_s())
        self.left_out[arm] = f"one block takes about {takes:.0f} s, and {left:.0f} s were left"
        if not self.alive and not self._queue:
            self._ended = SearchEnd.BUDGET

    def _hurry(self) -> None:
        """Where the round and another block of its clear leader do not both fit: the leader first, which has only one
        block, too little to be returned. What is not run yet is left out."""
        if self.phase != SearchPhase.RACE:
            return
        leader = self._unproven()
        if leader is None:
            return
        again, own, left = self._as_run(leader), self.plan.baseline, self.left_s()
        rest = sum(self._cost_s(order) for order in self._queue)
        alone = self._cost_s(again)
        takes = alone + self._cost_s(own)
        if again in self._queue:
            if rest <= left:
                return
            if own in self._queue and alone <= left < takes:
                # Beside the baseline's last block, not in a round without one.
                self._round, self._queue = self.entries[-1].round, [again]
            else:
                first = [order for order in (own, again) if order in self._queue]
                self._queue = [*first, *(order for order in self._queue if order not in first)]
            return
        if own in self._queue or not alone <= left < rest + takes:
            return
        tried = {arm_of(entry.settings) for entry in self.entries if not entry.held}
        for arm in [arm for arm in self.alive if arm not in tried]:
            self.alive.remove(arm)
            self.left_out[arm] = f"the time left was used for a second block of {describe(leader)}"
        if takes <= left:
            self._round, self._queue = self._round + 1, [own, again]
        else:
            self._queue = [again]

    def _unproven(self) -> Arm | None:
        """The fastest so far, where it is clearly faster than the baseline and was not run long enough to be
        returned."""
        now = self.standing()
        run = [] if now is None else [arm for arm in self.alive if arm in now.arms]
        if now is None or not run:
            return None
        leader = now.best(run).leader
        return None if now.eligible(leader) or now.gain(leader).low <= 0 else leader

    def _room(self) -> int:
        """Candidates, the baseline among them, that the budget has time for: two blocks each, and the headroom."""
        costs = [entry.cost_s for entry in self.entries if entry.block is not None]
        typical = max(costs, default=self.plan.block_s)
        return min(self.plan.most_candidates, max(2, int(self.left_s() / (2.5 * MARGIN * typical))))


def nothing_to_gain(entries: Sequence[Entry], now: Standing, said: Predicted, own: Arm) -> bool | None:
    """Whether a loader that takes no time would not help; `None`: not sure yet.

    Two things tell: blocks without a loader, and the time that the baseline's blocks spent in fetches, which is known
    without noise, and which is all that a loader could save as long as it does not slow the training itself.
    """
    enough = log(1 + WORTH_TUNING)
    if HELD not in now.measured.arms:
        if own not in said:
            return False
        return -log(max(1e-9, 1 - said.of(own).stall_share)) < enough
    gain = now.measured.ratio(HELD, own, outside=0.1)
    blocks = [e.block for e in entries if e.block is not None and not e.held and arm_of(e.settings) == own]
    shares = [block.wait_ns / (block.end_ns - block.begin_ns) for block in blocks]
    waits = -log(max(1e-9, 1 - sum(shares) / len(shares)))
    # Batches that lie ready cannot slow a training: much slower blocks tell of the machine, not of the loader.
    believable = gain.value > -NOT_THE_LOADER
    if (gain.high < enough and believable) or (waits < enough and gain.value < enough):
        return True
    return None if waits < enough or gain.value < enough else False


def _clearly(between: LogRatio) -> bool:
    return between.value - between.error > TIE


def _why(now: Standing, arm: Arm, winner: Arm, plan: SearchPlan) -> str:
    between = now.weighed.ratio(arm, winner)
    blocks = now.blocks(arm)
    slower = 1 - exp(between.value)
    words = f"{100 * slower:.0f} % slower than" if slower >= 0.01 else "not faster than"
    dearer = cost(winner, plan.baseline) > cost(arm, plan.baseline)
    cheap = "" if dearer else ", which costs no more"
    return f"{words} {describe(winner)}{cheap}, after {blocks} block{'' if blocks == 1 else 's'}"
