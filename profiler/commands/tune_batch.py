"""How large a batch should be, asked after the loader was tuned."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from ..analyse.run.facts import SampleSizes
from ..record.tuning import LoaderSettings
from ..terminal.progress import TuneProgress
from ..tune.batch.advise import Question, advise, cannot
from ..tune.batch.probe import child_probe
from ..tune.bench.bench import Bench
from ..tune.bench.launch import Launch
from ..tune.bench.script_bench import Ready, ScriptBench
from ..tune.search.candidates import Model, SearchPlan
from ..tune.search.result import BatchAdvice, Tuned
from ..tune.search.search import search

AUTO = "auto"
NONE = "none"
SHARE = 0.4
"""Of the budget, kept for this."""
LEAST_S = 10.0


@dataclass(frozen=True)
class BatchSizesAsked:
    """`--batch-sizes`."""

    looked_at: bool
    most: int | None = None


def wanted(asked: str | int, ready: Ready) -> BatchSizesAsked:
    """`auto` is for accelerators: on a processor, trying what fits means to fill the machine's memory."""
    if asked == NONE or (asked == AUTO and ready.said.get("device") == "cpu"):
        return BatchSizesAsked(False)
    return BatchSizesAsked(True, None if asked == AUTO else int(asked))


def batch_advice(
    question: BatchSizesAsked,
    launch: Launch,
    bench: ScriptBench,
    model: Model,
    plan: SearchPlan,
    tuned: Tuned,
    samples: SampleSizes,
    left_s: float,
    progress: TuneProgress,
) -> BatchAdvice:
    """Spend half of the time on children that try what fits."""
    if why := plan.fixed.get("batch_size"):
        return cannot(why)
    if left_s < LEAST_S:
        return cannot(f"only {max(0.0, left_s):.0f} s of the budget were left")
    until = time.monotonic() + left_s
    settings = replace(tuned.best.settings, batch_size=plan.batch_size)
    ready = bench.ready

    @contextmanager
    def again() -> Iterator[Bench]:
        """Give the training again: it was stopped, as the children need its part of the GPU's memory."""
        yield bench

    def race(size: int) -> LoaderSettings | None:
        left = until - time.monotonic()
        own = replace(settings, batch_size=size)
        shorter = replace(plan, baseline=own, batch_size=size, budget_s=left, batches_per_epoch=None)
        return search(bench, model, shorter, progress.show).best.settings if left > LEAST_S else None

    if ready.said.get("device") == "cuda":
        bench.pause()
    notes: list[str] = []
    probe = child_probe(
        launch,
        bench.folder,
        plan.batch_size,
        first=samples.largest,
        began=bench.began,
        on_tick=progress.tick,
        notes=notes,
    )
    asked = Question(settings, plan.batch_size, ready.samples, question.most, samples.vary)
    advice = advise(again, probe, asked, left_s, say=progress.phase, race=race)
    return replace(advice, notes=(*advice.notes, *notes))
