"""The causes, each a row: which piece of the wall time it may explain, and the rule that says whether it does.

Rows stand in the order in which they are asked: for each piece the first row whose rule holds explains it, so what is
specific comes before what is general. All that lists causes (the diagnosis, what `check` can forbid, the pages of
docs/causes, the benchmark of diagnosis) is held to these codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from .boundary import boundary
from .claim import Claim, Piece
from .copy import link, pageable, serial_copy
from .device import contended, memory_pressure, shape_churn, throttled
from .finding import Finding
from .host import garbage, gil, step_gap, sync
from .input.cpus import (
    affinity,
    cpu_exhausted,
    delayed,
    delayed_by_others,
    foreign_load,
    held_back,
    oversubscribed,
    quota,
    worker_threads,
)
from .input.epochs import pipeline_fill, worker_restart
from .input.exclusive import exclusive
from .input.handoff import handoff, overkill
from .input.memory import memory
from .input.order import straggler, uneven
from .input.sampler import sampler
from .input.storage import mostly_reads, storage
from .input.wasted import crowding, wasted
from .input.workers import general, in_its_own_thread, latency, serial, sharding, starved, too_few_workers
from .launch import launch
from .main_process import main_process
from .own_loop import evaluated_by_hand, made_by_hand
from .run import slowing, starting_up

Rule = Callable[[Any], Finding | None]
"""From a `Claim`, of the wait for data a `Wait`, to the finding that explains all of it; `None` where it does not
hold."""


@dataclass(frozen=True)
class Cause:
    """One way in which a cause is told."""

    code: str
    """Of the contract; the page is `docs/causes/`, code with dashes, `.md`."""
    claims: tuple[Piece, ...]
    rule: Rule | None
    """`None`: judged where several ranks are known (`analyse/ranks`)."""
    unplanted: str = ""
    """Why no training of `scenarios/faults` shows it; empty where one does."""


SUPPLY = (Piece.SLOW, Piece.MAKING)
"""Waits for a batch that is being made, by a loader that reads little."""

CAUSES: tuple[Cause, ...] = (
    Cause("input.memory", (Piece.FILLING, Piece.READING, *SUPPLY, Piece.HANDED), memory),
    Cause("input.wasted", (Piece.IN_TRAINING, Piece.FILLING, Piece.READING, *SUPPLY), wasted),
    Cause("input.wasted", (Piece.HANDED,), crowding),
    Cause("input.sampler", (Piece.SAMPLING,), sampler),
    Cause("input.serial", (Piece.IN_TRAINING,), serial),
    Cause("input.worker_restart", (Piece.STARTING,), worker_restart),
    Cause("input.exclusive", (Piece.FILLING, Piece.READING, *SUPPLY), exclusive),
    Cause("input.pipeline_fill", (Piece.FILLING,), pipeline_fill),
    Cause("input.storage", (Piece.READING,), storage),
    Cause("input.straggler", (Piece.SLOW,), straggler),
    Cause("input.cpu_quota", SUPPLY, quota),
    Cause("input.affinity", SUPPLY, affinity),
    Cause("input.cpu_quota", SUPPLY, held_back),
    Cause("input.worker_threads", SUPPLY, worker_threads),
    Cause("input.sharding", SUPPLY, sharding),
    Cause("input.overkill", (*SUPPLY, Piece.HANDED), overkill),
    Cause("input.foreign_load", (Piece.HANDED,), delayed_by_others),
    Cause("input.cpu_exhausted", (Piece.HANDED,), delayed),
    Cause("input.handoff", (Piece.HANDED,), handoff),
    Cause("input.storage", SUPPLY, mostly_reads),
    Cause("input.foreign_load", SUPPLY, foreign_load),
    Cause("input.oversubscribed", SUPPLY, oversubscribed),
    Cause("input.cpu_exhausted", SUPPLY, cpu_exhausted),
    Cause("input.serial", SUPPLY, in_its_own_thread),
    Cause("input.prefetch_depth", SUPPLY, uneven),
    Cause("input.too_few_workers", SUPPLY, latency),
    Cause("input.too_few_workers", SUPPLY, too_few_workers),
    Cause("input.cpu_exhausted", SUPPLY, starved),
    Cause("input.too_few_workers", SUPPLY, general),
    Cause("input.serial", (Piece.OWN_MAKING,), made_by_hand),
    Cause("copy.link", (Piece.LINK,), link),
    Cause("copy.pageable", (Piece.COPYING,), pageable),
    Cause("copy.serial", (Piece.COPYING,), serial_copy),
    Cause("host.sync", (Piece.SYNC,), sync),
    Cause("device.shape_churn", (Piece.SHAPES,), shape_churn),
    Cause("device.memory_pressure", (Piece.MEMORY,), memory_pressure),
    Cause("device.contended", (Piece.CONTENDED,), contended),
    Cause("device.throttled", (Piece.THROTTLED,), throttled),
    Cause("host.launch", (Piece.LAUNCHES,), launch),
    Cause("host.gc", (Piece.GARBAGE,), garbage),
    Cause("host.gil", (Piece.GIL,), gil),
    Cause("input.main_process", (Piece.STAGE,), main_process),
    Cause("host.step_gap", (Piece.LOOP,), step_gap),
    Cause("host.boundary", (Piece.BOUNDARY,), boundary),
    Cause("host.boundary", (Piece.OWN_EVALUATING,), evaluated_by_hand),
    Cause("run.startup", (Piece.BEFORE,), starting_up),
    Cause("run.slowing", (Piece.GROWING,), slowing),
    Cause("rank.straggler", (Piece.RANKS,), None),
    Cause("rank.exchange", (Piece.RANKS,), None, "known of emulated ranks alone, which say it themselves"),
)
"""A cause that is told in several ways has a row for each."""

CODES = tuple(dict.fromkeys(cause.code for cause in CAUSES))
FAMILIES = tuple(dict.fromkeys(code.split(".")[0] for code in CODES))


def explained(piece: Piece, claim: Claim) -> Finding | None:
    """What the first cause says of a piece that may claim it and holds; `None` where none does, or the claim is
    empty."""
    if claim.ns <= 0:
        return None
    asked = (cause.rule(replace(claim, code=cause.code)) for cause in CAUSES if piece in cause.claims and cause.rule)
    return next((found for found in asked if found is not None), None)
