"""An advice tried: blocks of the training as it is and as it was advised, in turns, held against what was promised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp, log

from ..analyse.causes.finding import Finding, Next
from ..analyse.statistics import Estimate, Speedup
from ..record.tuning import Block, LoaderSettings
from .patch import Patch
from .standing import Entry, SearchPlan, Standing
from .training import BenchEnded, ScriptBench, TrialFailed

BLOCK_S, LEAST_BLOCK_S = 1.0, 0.1
"""Length of a block, and of the shortest ones: of trainings that end within longer ones."""
LEAST_ROUNDS, MOST_ROUNDS = 4, 20
SURE = 0.05
"""Reach of the measured interval, in log rate, from which no further round is run."""


@dataclass(frozen=True)
class Advised:
    """What a run advised to set."""

    cause: str
    change: Next
    settings: LoaderSettings
    first: bool
    """Whether it is the first advice of all."""


@dataclass(frozen=True)
class Proof:
    """What was promised, and what came."""

    advised: Advised | None
    """`None`: no advice is a setting of the loader."""
    baseline: LoaderSettings
    measured: Estimate | None
    """The rate over that of the training as it is, whole as the promise is; `None`: not measured."""
    rounds: int
    why_not: str = ""
    """Why it was not measured."""
    patch: Patch | None = None
    """The change of the program's source; `None` where it was not measured to be faster."""

    @property
    def promised(self) -> Speedup | None:
        return None if self.advised is None else self.advised.change.speedup

    @property
    def kept(self) -> bool | None:
        """See `Speedup.kept`; `None` also where nothing was promised, or nothing measured."""
        promised, measured = self.promised, self.measured
        return None if promised is None or measured is None else promised.kept(measured)


def advised_of(findings: tuple[Finding, ...], baseline: LoaderSettings) -> Advised | None:
    """Find the first advice that is a setting of the loader; `None` without one."""
    every = [(each.cause or "", change) for each in findings for change in each.next]
    for number, (cause, change) in enumerate(every):
        settings = baseline.with_arguments(change.settings) if change.settings else baseline
        if settings != baseline:
            return Advised(cause, change, settings, number == 0)
    return None


def prove(
    bench: ScriptBench, plan: SearchPlan, advised: Advised, outside: float, on_block: Callable[[Entry], None]
) -> Proof:
    """Try the advice. Never raises for what happens to the training; Ctrl-C ends it with the rounds so far.

    Args:
        outside: share of the time outside the steps, which no setting of the loader changes and no block has.
        on_block: told each block that was measured.
    """
    entries: list[Entry] = []
    began, why_not, block_s = bench.now(), "", BLOCK_S
    try:
        for number in range(MOST_ROUNDS):
            pair = [plan.baseline, advised.settings]
            for settings in pair if number % 2 == 0 else reversed(pair):
                at = bench.now() - began
                block, block_s = _block(bench, settings, block_s)
                entries.append(Entry(settings, number, at, bench.now() - began, block=block))
                on_block(entries[-1])
            told = _measured(entries, plan, advised.settings, outside)
            sure = told is not None and log(told.high / told.low) / 2 <= SURE
            if (number + 1 >= LEAST_ROUNDS and sure) or bench.now() - began >= plan.budget_s:
                break
    except KeyboardInterrupt:
        why_not = "stopped by Ctrl-C"
    except (TrialFailed, BenchEnded) as error:
        why_not = str(error)
    told = _measured(entries, plan, advised.settings, outside)
    rounds = len({entry.round for entry in entries})
    return Proof(advised, plan.baseline, told, rounds, "" if told is not None else why_not or "nothing was measured")


def _block(bench: ScriptBench, settings: LoaderSettings, seconds: float) -> tuple[Block, float]:
    """Measure a block of these settings, and give its length: half as long, and again, where the training ends within
    it.

    Raises:
        TrialFailed: it ends within the shortest ones too, or they do not work.
    """
    while True:
        try:
            return bench.measure(settings, seconds), seconds
        except TrialFailed as error:
            if not error.ended or seconds <= LEAST_BLOCK_S:
                raise
            seconds = max(LEAST_BLOCK_S, seconds / 2)


def _measured(entries: list[Entry], plan: SearchPlan, settings: LoaderSettings, outside: float) -> Estimate | None:
    """Give the rate over the baseline's, of the whole time; `None` before each has two blocks."""
    if min(sum(entry.settings == each for entry in entries) for each in (plan.baseline, settings)) < 2:
        return None
    ratio = Standing(entries, plan).fit.ratio(settings, plan.baseline)
    return Estimate(*(1 / ((1 - outside) / exp(each) + outside) for each in (ratio.value, ratio.low, ratio.high)))
