"""The time before a training's first step is over, stretch by stretch; it lies outside the window.

Each instant counts once, in this order: imports, torch's compiler, passes over loaders that train nothing, the first
fetch, the first step, and what is left: the program's own set-up. Where a program began its recording itself, nothing
is known of what came before.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...record.reader import Records
from ...record.schema import NOT_MEASURED, EventKind
from ..intervals import EMPTY, Intervals, clip, complement, intersect, subtract, total, union, union_of
from .window import Window, lasting, one_of, under_way

IMPORTS, SET_UP, SKIPPING, EVALUATING = "imports", "set-up", "skipping", "evaluating"
FIRST_FETCH, COMPILING, FIRST_STEP = "first fetch", "compiling", "first step"
STAGES = (IMPORTS, SET_UP, EVALUATING, SKIPPING, FIRST_FETCH, COMPILING, FIRST_STEP)
MOSTLY_FETCHING = 0.9
"""Share of a pass spent fetching, from which its batches are fetched for nothing."""


@dataclass(frozen=True)
class Startup:
    """One training process before its first step is over. Stamps are CLOCK_MONOTONIC ns."""

    begin_ns: int
    """Its process began; where that is not known, its recording."""
    end_ns: int
    """Its first step was over."""
    run_ns: int
    """All of the run, this included."""
    stretches: dict[str, Intervals]
    """Stage → when it was under way. No instant is in two."""
    whole: bool
    """Whether it is known from the process's begin on, with its imports."""
    own_ns: dict[str, int]
    """Stage → time to do without, ns: not imports, evaluating or starting workers."""
    skipped: int | None
    """Batches of the first step's pass that were fetched before it; `None`: not known."""

    def ns(self, stage: str) -> int:
        return total(self.stretches[stage])

    @property
    def total_ns(self) -> int:
        return self.end_ns - self.begin_ns


def startup_of(window: Window, events: Records, batches: Records, imported: bool) -> Startup | None:
    """Divide the time before the first step is over; `None`: its begin is not known, or these are a run's last seconds.

    `events`: of the process, from its begin on; `batches`: those of the loader that trains; `imported`: whether the
    process had all its modules when its recording began, as trials have.
    """
    begun = events[one_of(events["what"], (EventKind.PROCESS_BEGIN, EventKind.TRAINING_BEGIN))]
    if len(begun) == 0:
        return None
    first = window.all_steps[0]
    if first["step"] != 0:
        return None
    begin, asked, end = int(begun["t_ns"].min()), int(first["fetch_begin_ns"]), int(first["step_end_ns"])
    if not begin <= asked <= end:
        return None
    come = asked if first["fetch_end_ns"] == NOT_MEASURED else int(first["fetch_end_ns"])
    importing = clip(under_way(lasting(events, EventKind.IMPORT)), begin, end)
    compiling = clip(under_way(lasting(events, EventKind.COMPILE)), begin, end)
    kinds = set(events["what"].tolist())
    whole = {EventKind.PROCESS_BEGIN, EventKind.IMPORTS_TIMED} <= kinds
    if whole and len(importing):
        # Python itself starts before the first import.
        importing = union_of(importing, np.array([[begin, importing[0, 0]]]))
    passes, boundaries = lasting(events, EventKind.EVALUATION), under_way(lasting(events, EventKind.BOUNDARY))
    for_nothing = passes["value"] >= MOSTLY_FETCHING * (passes["end_ns"] - passes["t_ns"])
    number = None if first["batch"] == NOT_MEASURED else int(first["batch"]) & 0xFFFFFFFF
    if number is not None and number <= 1:
        for_nothing[:] = False
    stretches, left = {}, complement(EMPTY, begin, end)
    for stage, spans in (
        (IMPORTS, importing),
        (COMPILING, compiling),
        (SKIPPING, clip(under_way(passes[for_nothing]), begin, asked)),
        (EVALUATING, clip(union_of(under_way(passes), boundaries), begin, asked)),
        (FIRST_FETCH, clip(np.array([[asked, come]]), begin, end)),
        (FIRST_STEP, clip(np.array([[come, end]]), begin, end)),
    ):
        stretches[stage], left = intersect(left, spans), subtract(left, spans)
    # What the first batch took to make while it was waited for, beyond what most take: where a worker made it.
    making, mine = 0, batches["step"] == first["step"]
    if mine.any() and not mine.all():
        waited = intersect(union(batches["begin_ns"][mine], batches["end_ns"][mine]), stretches[FIRST_FETCH])
        making = max(0, total(waited) - int(np.median((batches["end_ns"] - batches["begin_ns"])[~mine])))
    imports_known = imported or EventKind.IMPORTS_TIMED in kinds
    own_ns = {stage: total(stretches[stage]) for stage in (SKIPPING, COMPILING)}
    return Startup(
        begin_ns=begin,
        end_ns=end,
        run_ns=int(events["t_ns"].max()) - begin,
        stretches=stretches | {SET_UP: left},
        whole=whole,
        own_ns={SET_UP: total(left) if imports_known else 0, FIRST_FETCH: making} | own_ns,
        skipped=number if number and total(stretches[SKIPPING]) else None,
    )
