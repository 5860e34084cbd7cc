"""Flat figures by name, for loggers: of a moment of a run, of a run as it went, and of a whole run.

Names are those of the JSON of the contract. What was not measured is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import fmean

from ...analyse.attached.attached import is_attached
from ...analyse.cells.comparison import rate_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.recent.snapshot import Snapshot
from ...analyse.run.analysis import Analysis, analyse
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from ...analyse.timeline.timeline import stretches, timelines
from ...errors import WhyidleError
from ...record.run import open_run
from ...record.scalars import PREFIX, Told, Values

EMULATED = "whyidle-emulated/"
"""Of a device that was emulated: its figures are never beside measured ones."""
WHOLE = "whole_run/"


def figures_of(folder: Path, every_s: float) -> Iterator[tuple[Values, int]]:
    """Figures by their full names, with the number of the step they belong to, in order.

    Of several ranks the stretches are those of the first, the last figures the job's.

    Raises:
        WhyidleError: no run there, or one without steps.
    """
    run = open_run(folder)
    if is_attached(run):
        raise WhyidleError(f"{folder} was recorded from outside (`whyidle attach`): it has no steps to log.")
    analysis = analyse(run)
    lines = timelines(analysis, [run])
    if not lines:
        raise WhyidleError(f"{folder} holds no training step, so there are no figures to log.")
    emulated = (analysis.info.get("device") or {}).get("kind") == "emulated"
    prefix = EMULATED if emulated else PREFIX
    last = 0
    for each in stretches(lines[0], every_s):
        values = of_shares(each.shares) | {
            "samples_per_s": each.samples_per_s,
            "utilisation_pct": each.utilisation_pct,
            "queue_ready": each.queue_ready,
        }
        last = each.step
        yield {prefix + name: value for name, value in measured(values).items()}, last
    yield {f"{prefix}{WHOLE}{name}": value for name, value in of_run(analysis).items()}, last


BUSY = "device_busy_pct"
"""Share of the time in which the steps' computation ran: the part `compute`."""


def of_shares(shares: Mapping[str, float]) -> dict[str, float | None]:
    """Of wall time, in percent."""
    return {BUSY if part == "compute" else f"{part}_pct": 100 * shares[part] for part in PARTS if part in shares}


def of_snapshot(view: Snapshot) -> Told:
    """Tell the last stretch of a run that is being recorded."""

    def last(name: str) -> list[float]:
        """Of each device that has any."""
        series = [getattr(device, name) for device in view.devices]
        return [each[-1] for each in series if each and not math.isnan(each[-1])]

    used = [device.memory_used_bytes for device in view.devices if device.memory_used_bytes is not None]
    values = of_shares(view.shares) | {
        "samples_per_s": view.samples_per_s,
        "utilisation_pct": fmean(busy) if (busy := last("busy_pct")) else None,
        "sm_active_pct": fmean(active) if (active := last("sm_active_pct")) else None,
        "queue_ready": view.queue_ready,
        "worker_busy_pct": view.worker_busy_pct,
        "cpus_used": view.host.tree_cpus,
        "cpu_steal_pct": view.host.steal_pct,
        "device_memory_bytes": max(used, default=None),
        "verdict_share_pct": 100 * view.verdict.share if view.verdict and view.verdict.cause else None,
    }
    each = view.rank_views if view.ranks > 1 else ()
    ranks = {rank.rank: measured(of_shares(rank.shares) | {"samples_per_s": rank.samples_per_s}) for rank in each}
    return Told(view.steps, measured(values), ranks)


def of_run(analysis: Analysis) -> Values:
    """A whole run, without its warm-up; of several ranks the job."""
    facts = analysis.facts
    if facts is None:
        return {}
    verdict = analysis.verdict
    logged = {
        metric.logged: ranks_figures.figure(analysis, metric.name) for metric in METRICS.values() if metric.logged
    }
    values = of_shares(ranks_figures.shares(analysis)) | {
        "samples_per_s": rate_of(analysis) if facts.samples_known else None,
        "step_ms_p50": analysis.step_ms.get("p50"),
        "step_ms_p95": analysis.step_ms.get("p95"),
        "verdict_share_pct": 100 * verdict.share if verdict.cause else None,
    }
    return measured(values | logged)


def measured(values: Mapping[str, float | None]) -> Values:
    """Those that are numbers."""
    return {name: float(v) for name, v in values.items() if v is not None and math.isfinite(v)}
