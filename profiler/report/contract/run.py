"""The JSON of a recording from within (`report --format json`) or outside (`attach --json`), and of how two differ.

Of a job, figures are those of all ranks; what only one rank can tell is of the one that leads it. Figures that are
registered metrics are taken by their names. The meaning of each key: docs/commands/report.md and attach.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...analyse.attached.attached import UNKNOWN, Attached
from ...analyse.attached.trainers import Trainer
from ...analyse.causes.finding import Finding
from ...analyse.cells.cost import Spent
from ...analyse.diff.difference import Difference
from ...analyse.diff.sides import Side
from ...analyse.ranks import figures as ranks_figures
from ...analyse.ranks.job import Job
from ...analyse.run import startup
from ...analyse.run.analysis import Analysis, RankAnalysis
from ...analyse.run.facts import Facts
from ...analyse.run.stall_breakdown import PARTS, TOTAL
from ...analyse.run.startup import Startup
from ...analyse.run.trends import Trend
from ...analyse.run.window import or_none
from ...record.run import ImageDecoding
from .encode import Json, cause, finding, next_of, picked, present

STAGES = {
    "imports_s": startup.IMPORTS,
    "set_up_s": startup.SET_UP,
    "evaluating_s": startup.EVALUATING,
    "skipping_s": startup.SKIPPING,
    "first_fetch_s": startup.FIRST_FETCH,
    "compiling_s": startup.COMPILING,
    "first_step_s": startup.FIRST_STEP,
}
"""Key of the time before the first step is over → the stage it is of."""


def report(analysis: Analysis, spent: Spent | None = None) -> Json:
    """Tell one run, as `whyidle-report` version 1. `spent`: what it cost, where that is asked for."""
    facts = analysis.facts
    return {
        "format": "whyidle-report",
        "version": 1,
        "run": _run(analysis),
        "window": _window(analysis),
        "device": _metrics(analysis, "busy_pct", "au_pct", "utilisation_pct", "sm_active_pct", "memory_peak_bytes")
        | {"gaps": _gaps(analysis)},
        "breakdown": breakdown(ranks_figures.shares(analysis)),
        "input": _input(analysis),
        "verdict": finding(analysis.verdict),
        "findings": [finding(each) for each in analysis.findings],
        "headroom": _headroom(analysis),
        "quality": _quality(analysis),
        "startup": None if facts is None or facts.startup is None else _startup(facts.startup),
        "trends": [] if facts is None else [_trend(each) for each in facts.trends],
    } | present(
        {
            "ranks_detail": [_of_rank(part, analysis.job) for part in analysis.ranks],
            "cost": None if spent is None else _spent(spent),
            "worker_deaths": [
                picked(each, "pid", "worker", "exit_code", "signal", "at_s", "likely", "way_out")
                for each in analysis.deaths
            ],
            "image_decoding": ImageDecoding.of(analysis.info),
        }
    )


def _spent(of: Spent) -> Json:
    """The cost; `null` where the run's length, or what its time was spent on, is unknown."""
    waited, outside = (None if share is None else 100 * share for share in (of.waited_share, of.boundary_share))
    # Of it for time in which nothing was computed, and for time outside steps: validation, checkpoints.
    shares = {"waited_pct": waited, "boundary_usd": of.boundary_usd, "boundary_pct": outside}
    return picked(of, "price", "usd", "waited_usd") | shares


def breakdown(shares: Mapping[str, float]) -> Json:
    """Tell the parts of the wall time in percent; `null`: not known. Where all are known they sum to 100."""
    return {f"{part}_pct": 100 * shares[part] if part in shares else None for part in PARTS}


def _metrics(analysis: Analysis, *names: str) -> Json:
    return {name: ranks_figures.figure(analysis, name) for name in names}


def _of_rank(part: RankAnalysis, job: Job | None) -> Json:
    """A rank by itself, its mean delay behind the first rank where ranks wait for each other, and
    its mean wait for the last one there."""
    late, waits = (None, None) if job is None else (job.late_ns.get(part.rank), job.waits_ns.get(part.rank))
    return {
        "rank": part.rank,
        "host": part.host or None,
        "late_ms": None if late is None else late / 1e6,
        "waits_ms": None if waits is None else waits / 1e6,
        **report(part.analysis),
    }


def _run(analysis: Analysis) -> Json:
    info = analysis.info
    # Each rank has its own devices, unless it trains on the processor.
    every = [process.info.get("device") or {} for process in ranks_figures.processes(analysis)]
    device, counts = info.get("device") or {}, [each.get("count") for each in every]
    several = None not in counts and all(each.get("kind") != "cpu" for each in every)
    return {
        **{name: info.get(name) for name in ("id", "command", "started_at")},
        "duration_s": analysis.duration_s,
        "exit_code": (info.get("ended") or {}).get("exit_code"),
        **{name: info.get(name) for name in ("host", "python", "torch")},
        "ranks": len(every),
        "device": {
            "kind": device.get("kind"),
            "name": device.get("title") or device.get("name"),
            "count": sum(counts) if several else counts[0],
        },
        "dataset": info.get("dataset"),
    }


def _window(analysis: Analysis) -> Json:
    """The steps after the warm-up: steps and batch size of one rank, the rest of all."""
    facts, job = analysis.facts, analysis.job
    known = facts is not None and facts.samples_known
    return {
        "steps": 0 if facts is None else facts.window.count,
        "warmup_steps": 0 if facts is None else facts.window.warmup_steps,
        "samples": 0 if job is None else job.samples if known else None,
        "wall_s": None if job is None else job.wall_ns / 1e9,
        "samples_per_s": job.samples_per_s if job is not None and known else None,
        "batch_size": None if facts is None else facts.batch_size,
        "step_ms": {name: analysis.step_ms.get(name) for name in ("mean", "p50", "p95", "p99")},
    }


def _gaps(analysis: Analysis) -> Json:
    """Stretches of at least 0.1 ms in which the device idled within steps: percentiles of one rank, the rest of all."""
    each = [gaps for process in ranks_figures.processes(analysis) if (gaps := process.gaps_ms)]
    told_apart = [facts for facts in ranks_figures.all_facts(analysis) if facts.told_apart]
    return {
        "count": sum(len(facts.parts.gaps_ns) for facts in told_apart) if told_apart else None,
        "total_ms": sum(gaps["total"] for gaps in each) if each else None,
        "p50_ms": analysis.gaps_ms.get("p50"),
        "p95_ms": analysis.gaps_ms.get("p95"),
        "max_ms": max((gaps["max"] for gaps in each), default=None),
    }


def _input(analysis: Analysis) -> Json:
    workers = [known for facts in ranks_figures.all_facts(analysis) if (known := _workers(facts)) is not None]
    return {
        "workers": sum(workers) if workers else None,
        **_metrics(
            *(analysis, "read_pct", "prep_pct", "collate_pct", "handoff_pct", "worker_busy_pct", "queue_ready_mean"),
            *("first_fetch_pct", "hidden_wait_ms", "samples_per_s_limit"),
        ),
    }


def _workers(facts: Facts) -> int | None:
    """0 where the training process prepares batches; `None` where the loader does not say."""
    if facts.set_workers is not None:
        return facts.set_workers
    if facts.loader.workers == 0:
        return None
    return 0 if facts.made_in_training else facts.loader.workers


def _headroom(analysis: Analysis) -> Json:
    """Tell the rate with an infinitely fast loader, and how it was found or why not. No rank may go
    on before the others: what the rank that leads would gain is what the job would."""
    facts, job = analysis.facts, analysis.job
    rate, speedup, method = None, None, None
    if facts is not None and not (facts.samples_known and facts.input_known):
        method = "unknown: no fetch of its batches was recorded"
    elif facts is not None:
        rate = None if facts.device_kind == "cpu" else or_none(facts.samples_per_s_without(facts.parts.input_ns))
        if rate is None:
            method = "unknown: loader and training share the CPU"
        else:
            method, speedup = "partition: wall time without the exposed waits for data", rate / facts.samples_per_s
    if job is not None and analysis.ranks and speedup is not None:
        rate, method = job.samples_per_s * speedup, f"{method}, on rank {job.lead}"
    # The last four are for readers of older reports, which may hold a measured rate.
    measured = {"low": None, "high": None, "stretches": 0, "reason": None}
    return {"samples_per_s": rate, "speedup": speedup, "method": method, **measured}


def _quality(analysis: Analysis) -> Json:
    """What the figures rest on; overhead and late samples of the rank with the most."""
    return {
        **_metrics(analysis, "overhead_pct", "overhead_us_per_step"),
        "dropped_records": analysis.dropped_records,
        **_metrics(analysis, "late_samples_pct", "cpu_steal_pct"),
        **picked(analysis, "notes", "left_out"),
    }


def _startup(of: Startup) -> Json:
    """The time until the end of the first step: outside the window, and in no breakdown. Imports
    are `null` where it counts from the start of the recording."""
    return {
        "total_s": of.total_ns / 1e9,
        "share_pct": 100 * of.total_ns / of.run_ns if of.run_ns > 0 else None,
        "from_process_begin": of.whole,
        **{key: of.ns(stage) / 1e9 if of.whole or key != "imports_s" else None for key, stage in STAGES.items()},
        "skipped_batches": of.skipped,
    }


def _trend(of: Trend) -> Json:
    """A part of a step over the run; `grown_s` is `null` where it does not grow by itself."""
    return {
        "part": of.part,
        "first_fifth_ms": of.first_ms,
        "last_fifth_ms": of.last_ms,
        "ms_per_1000_steps": of.slope.value,
        "low": of.slope.low,
        "high": of.slope.high,
        "shape": of.shape,
        "since_step": of.since,
        "grown_s": None if of.grown is None else of.grown.value / 1e9,
        "why": of.why or None,
    }


def attached_report(seen: Attached, verdict: Finding, findings: Iterable[Finding]) -> Json:
    """Tell a recording from outside, as `whyidle-attach` version 1; shares are 0 to 1. Keys mean
    what the structures of `analyse/attached/` say."""
    info, facts, sampled = seen.info, seen.info["attach"], seen.sampled
    return {
        "format": "whyidle-attach",
        "version": 1,
        "run": {
            "id": info.get("id"),
            "pid": facts.get("pid"),
            "command": info.get("command"),
            "started_at": info.get("started_at"),
            "seconds": seen.seconds,
            "ended_by": facts.get("why"),
            "host": info.get("host"),
            "device": {"kind": seen.device_kind, "name": (info.get("device") or {}).get("title")},
        },
        "trainers": [_trainer(each) for each in seen.trainers],
        "others": [{"pid": each.pid, "command": each.command or each.name} for each in seen.others],
        "device": picked(sampled, "utilisation_pct", "sm_active_pct", "memory_peak_bytes"),
        "host": picked(sampled, "tree_cpus", "cpu_budget")
        | {"foreign_cpus": seen.foreign_cpus, "cpu_steal_pct": None if sampled is None else sampled.steal_pct},
        "verdict": finding(verdict, of_none=0.0),
        "findings": [finding(each) for each in findings],
        "unknown": UNKNOWN,
        "quality": picked(seen, "stacks_read", "training_seen", "notes"),
    }


def _trainer(trainer: Trainer) -> Json:
    workers, cpu = trainer.workers, ("running", "queued", "io", "main", "idle")
    return picked(trainer, "pid", "rank", "thread", "main_thread", "looks") | {
        "missed_looks": trainer.by.missed,
        "shares": {name: {"share": e.value, "low": e.low, "high": e.high} for name, e in trainer.shares.items()},
        "data_wait": trainer.waits,
        "data_making": trainer.stages,
        "top": {name: _places(places) for name, places in trainer.top.items()},
        "cpu": picked(trainer.cpu, *cpu),
        "workers": workers
        and picked(workers, "count", "seen", "busy")
        | {"cpu": picked(workers.cpu, *cpu), "stages": workers.stages, "top": _places(workers.top)}
        | picked(workers, "read_bytes_per_s", "read_chars_per_s"),
    }


def _places(top: Iterable[tuple[str, float]]) -> list[Json]:
    return [{"where": where, "share": share} for where, share in top]


def difference(found: Difference) -> Json:
    """Tell a difference, as `whyidle-diff` version 1; without `lines` where a run has no stack samples.

    Intervals are of 95 %; changes are B less A, µs per `unit`. Keys mean what structures of
    `analyse/diff/` say; for the rest see docs/commands/diff.md.
    """
    terms, changed, promise = found.times.terms, found.findings, found.promise
    return {
        "format": "whyidle-diff",
        "version": 1,
        "a": _side(found.a),
        "b": _side(found.b),
        "emulated": found.emulated,
        "unit": found.times.unit,
        "speedup": vars(found.times.speedup) | {"significant": found.times.significant},
        "total": terms[TOTAL],
        "parts": [{"part": part} | vars(terms[part]) for part in PARTS if part in terms],
        "settings": found.settings,
        "environment": found.environment,
        "figures": found.figures,
        "findings": {
            "appeared": [cause(each) for each in changed.appeared],
            "vanished": [cause(each) for each in changed.vanished],
            "stayed": [{"cause": b.cause, "a": cause(a), "b": cause(b)} for a, b in changed.stayed],
        },
        "because": found.because,
        "notes": found.notes,
        "promise": None if promise is None else vars(promise) | {"advice": next_of(promise.advice)},
        **({} if found.lines is None else {"lines": found.lines}),
    }


def _side(side: Side) -> Json:
    """Runs of one setting; but for `runs`, `steps` and `samples_per_s` keys describe the typical run."""
    info, device, rates = side.info, side.info.get("device") or {}, side.rates
    return {
        "runs": side.folders,
        **{name: info.get(name) for name in ("id", "command", "started_at")},
        "device": {"kind": side.facts.device_kind, "name": device.get("title") or device.get("name")},
        "stand_in": (info.get("dataset") or {}).get("stand_in"),
        "batch_size": side.facts.batch_size,
        "ranks": side.typical.ranks,
        "steps": side.steps,
        "samples_per_s": sum(rates) / len(rates) if rates else None,
        "verdict": side.typical.analysis.verdict.cause,
    }
