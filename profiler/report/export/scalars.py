"""Flat figures by name, for loggers: of a moment of a run, of a run as it went, and of a whole run.

Names are those of the JSON of the contract. What was not measured is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ...analyse.attached.attached import is_attached
from ...analyse.cells.comparison import rate_of
from ...analyse.ranks import figures as ranks_figures
from ...analyse.recent.snapshot import RankView, Series, Snapshot
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
    """The last stretch of a run that is being recorded."""
    values = of_shares(view.shares) | {
        "samples_per_s": view.samples_per_s,
        "utilisation_pct": _mean(_last(device.busy_pct) for device in view.devices),
        "sm_active_pct": _mean(_last(device.sm_active_pct) for device in view.devices),
        "queue_ready": view.queue_ready,
        "worker_busy_pct": view.worker_busy_pct,
        "cpus_used": view.host.tree_cpus,
        "cpu_steal_pct": view.host.steal_pct,
        "device_memory_bytes": max(_known(device.memory_used_bytes for device in view.devices), default=None),
        "verdict_share_pct": 100 * view.verdict.share if view.verdict and view.verdict.cause else None,
    }
    ranks = {rank.rank: _of_rank(rank) for rank in view.rank_views} if view.ranks > 1 else {}
    return Told(view.steps, measured(values), ranks)


def _of_rank(rank: RankView) -> Values:
    return measured(of_shares(rank.shares) | {"samples_per_s": rank.samples_per_s})


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


def _last(series: Series) -> float | None:
    return series[-1] if series and not math.isnan(series[-1]) else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = _known(values)
    return sum(known) / len(known) if known else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
