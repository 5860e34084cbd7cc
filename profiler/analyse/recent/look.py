"""A run at one moment, from the windows of records that were there then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from .devices import devices_of
from .gathered import ProcessRecords, RunRecords
from .host import host_of
from .judged import Judged, judged, planned_steps
from .makers import makers_of
from .progress import moved, rates_of, steps_of, trend_of
from .ranks import rank_view, ranks_of
from .series import LAG_NS, SECOND_NS, Stamps, grid
from .snapshot import RankView, Snapshot
from .steady import Steady


def snapshot_of(run: RunRecords, steady: Steady, ranks: Mapping[int, RankView] | None = None) -> Snapshot:
    """Everything that the live view shows.

    Args:
        steady: told of the verdict.
        ranks: views of ranks that need not be made anew.
    """
    # Records whose bytes were overwritten may hold any number: no warning is to be printed onto the view.
    with np.errstate(all="ignore"):
        return _snapshot(run, steady, ranks or {})


def _snapshot(run: RunRecords, steady: Steady, ranks: Mapping[int, RankView]) -> Snapshot:
    edges = grid(run.now_ns, LAG_NS if run.over is None else 0)
    mine = run.mine
    judgement = judged(mine, run.device, run.host, run.info) if mine is not None else None
    waits = "watching" if run.info.get("watching") or run.info.get("attach") else "starting"
    state = run.over or (waits if judgement is None else "running")
    view = Snapshot(
        title_of(run.info),
        device_of(run.info),
        state,
        devices=devices_of(run, edges),
        host=host_of(run, edges),
        planned_steps=planned_steps(run.info),
        stand_in=(run.info.get("dataset") or {}).get("stand_in"),
    )
    if mine is None or judgement is None:
        return view
    view = _trained(view, run, mine, judgement, edges)
    verdict, since_ns = steady.told(judgement, run.now_ns)
    since_s = max(0, run.now_ns - since_ns) / SECOND_NS
    if run.over is not None and view.elapsed_s is not None:
        # The sampler goes on for a moment after the last step, of which no verdict is.
        since_s = min(since_s, view.elapsed_s)
    return replace(
        view,
        verdict=verdict,
        verdict_since_s=None if verdict.cause is None else since_s,
        verdict_samples_per_s=view.samples_per_s,
        ranks=max(1, len({process.rank for process in run.processes})),
        rank_views=tuple(
            rank_view(each, run, judgement.facts if each is mine else None)
            if each is mine or each.rank not in ranks
            else ranks[each.rank]
            for each in ranks_of(run)
        ),
    )


def title_of(info: dict[str, Any]) -> str:
    """Of a scenario's run its settings, else the command."""
    trial = info.get("trial") or {}
    named = [str(trial[k]) for k in ("scenario", "net", "pipeline") if trial.get(k)]
    if trial.get("batch_size"):
        named.append(f"batch {trial['batch_size']}")
    return " · ".join(named) or " ".join(str(c) for c in info.get("command") or ["run"])


def device_of(info: dict[str, Any]) -> str:
    device = info.get("device") or {}
    return str(device.get("title") or device.get("name") or "")


def _trained(view: Snapshot, run: RunRecords, mine: ProcessRecords, judgement: Judged, edges: Stamps) -> Snapshot:
    facts = judgement.facts
    window, loader = facts.window, facts.loader
    rates = rates_of(mine.steps) if facts.samples_known else ()
    apart = not facts.made_in_training
    last_end_ns = int(mine.steps["step_end_ns"][-1])
    view = replace(
        view,
        rank=mine.rank,
        batch_size=facts.batch_size,
        samples_per_s=facts.samples_per_s if facts.samples_known else None,
        steps_per_s=window.count * SECOND_NS / window.wall_ns,
        recent_s=window.wall_ns / SECOND_NS,
        rates=rates,
        trend_pct=trend_of(rates),
        shares=facts.shares,
        queue_ready=loader.queue_ready_mean,
        queue_capacity=loader.queue_capacity,
        workers=(loader.workers or None) if apart else 0,
        worker_busy_pct=loader.worker_busy_pct if apart else None,
        makers=makers_of(mine, last_end_ns - window.wall_ns, run.now_ns, edges) if apart else (),
        made_in_training=not apart,
    )
    first_ns = last_end_ns if run.first_ns is None else run.first_ns
    return moved(view, run.info, steps_of(mine), last_end_ns, mine.epoch, first_ns, run.now_ns)
