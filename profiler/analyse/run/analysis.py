"""A whole run analysed: what reports lay out, what is in doubt, whether it is whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ...record.notices import read_notices
from ...record.reader import Records
from ...record.run import Run, Writer, is_run, open_run, runs_within
from ...record.schema import BATCH, DEVICE, EVENT, HOST, MEMORY, PAUSE, STEP, EventKind, StepFlag
from ...record.secret import left_out_note
from ...record.stacks import left_out_of, read_names
from ..causes.diagnosis import verdict_of, without_steps
from ..causes.finding import Finding
from ..intervals import clip, total
from ..predict.observed import advice_of
from ..ranks.job import Job, JobRank, job_of, job_of_one
from ..ranks.membership import RankProcess, listed, missing, ranks_of, surely_missing, unended
from ..where.located import found_with
from ..where.looks import looks_at
from .facts import Facts, facts_of
from .resource_usage import Sampled, WorkerDeath, deaths_of, kills_of, look_notes, quality_notes, sampled
from .stall_breakdown import disagreeing
from .window import Window, flagged, lasting, under_way

LEAST_DISAGREEMENT_PCT = 20
"""Points of the wall time between the driver's utilisation and the steps' span from which they are said to
disagree, whatever the reason: more than `UTILISATION_BELOW`, from which a cause is claimed."""
MOST_UNCERTAIN_NS = 100_000
"""How far the device's clock may be off the host's before that is said."""
MOST_UNMARKED = 0.1
"""Waits for the device that have no stamps of its own, a step, from which that is said."""
MOST_DISAGREEING = 0.01
"""Share of the steps whose stamps may contradict the device unsaid, by the scheduler's doing."""
LEAST_DOUBTFUL = 0.05
"""Share of the steps of which a part of the time is not known, from which that is said."""
MOST_PHASES = 8
"""Phases that have a sentence each, at most."""


def warnings_of(facts: Facts) -> Iterator[str]:
    """Yield what a reader must know before trusting the parts."""
    window, parts = facts.window, facts.parts
    if (after := window.after) is not None:
        passes = "a pass" if len(after) == 1 else f"{len(after)} passes"
        yield (
            f"After the training, {passes} over data without evaluation took "
            f"{(after['end_ns'].max() - after['t_ns'][0]) / 1e9:.2f} s, which no figure includes."
        )
    if window.looked_at < 1:
        typical = float(np.median(window.steps["step_end_ns"] - window.steps["fetch_begin_ns"]))
        yield (
            f"Steps take about {typical / 1e6:.2f} ms. To stay cheap, the hooks measured only {len(window.steps)} of "
            f"{window.count} steps; the others are counted, and assumed to be alike."
        )
    if facts.doubtful:
        yield facts.doubtful
    ahead = float(np.mean(flagged(window.steps, StepFlag.FORWARD_AFTER)))
    if ahead > LEAST_DOUBTFUL:
        yield (
            f"In {100 * ahead:.0f} % of the steps the forward pass runs between the optimizer and the next fetch. All "
            "time between the two counts as computing, even other work of the loop."
        )
    if facts.input_known and facts.unfed_share > LEAST_DOUBTFUL:
        yield (
            f"No fetch was seen in {100 * facts.unfed_share:.0f} % of the steps: their wait for data is not part of "
            "the input."
        )
    dropped = int(flagged(window.steps, StepFlag.MARKS_DROPPED).sum())
    if dropped:
        yield (
            f"{dropped} steps have no device timestamps, because the device was many steps behind: "
            "it counts as computing meanwhile."
        )
    if parts.unresolved_steps:
        yield (
            f"{parts.unresolved_steps} steps lack device timestamps; their time is divided like that of other steps."
        )
    if facts.cut_steps:
        yield (
            f"The device had not finished the last {facts.cut_steps} steps when the recording ended; they are left out."
        )
    if parts.unmarked_waits > MOST_UNMARKED * len(window.steps):
        yield (
            f"{parts.unmarked_waits} waits for the device have no device timestamps, because there were very many per "
            "step or they ran on another stream; the device's idle time in them may count as computing."
        )
    if facts.other_processes:
        yield (
            f"{facts.other_processes + 1} training processes recorded into this folder; the figures are those of "
            "the one that ran most steps."
        )
    if facts.clock_uncertainty_ns > MOST_UNCERTAIN_NS:
        yield (
            f"The offset of the device's clock is known only to {facts.clock_uncertainty_ns / 1e3:.0f} µs: the waits "
            "of each step may be off by as much."
        )
    contradicted = disagreeing(window)
    if contradicted > max(1, MOST_DISAGREEING * len(window.steps)):
        yield (
            f"In {contradicted} of {len(window.steps)} steps, the device's clock and its reports of being done "
            "differ by more than 1 ms: the idle time of each such step may be off by as much."
        )
    utilisation, span = facts.sampled.utilisation_pct, 100 * parts.stepping_share
    if facts.device_kind != "cuda" or not facts.told_apart:
        return
    if utilisation < span - LEAST_DISAGREEMENT_PCT:
        yield (
            f"The driver saw kernels {utilisation:.0f} % of the time, but the steps span {span:.0f} %: the device "
            "idles inside the steps, which timestamps at their ends cannot show."
        )
    elif utilisation > span + LEAST_DISAGREEMENT_PCT:
        yield (
            f"The driver saw kernels {utilisation:.0f} % of the time, but the steps span {span:.0f} % only: other "
            "kernels run between them, those of a loader that works on the device or of another program. They do "
            "not count as computing here."
        )


@dataclass(frozen=True)
class Analysis:
    """`facts` is `None` for a run without a single recorded step."""

    info: dict[str, Any]
    """run.json"""
    facts: Facts | None
    verdict: Finding
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    """What could not be seen or trusted, a sentence each."""
    dropped_records: int
    """Records that could not be stored."""
    left_out: int = 0
    """Values that were not recorded, because they are or look like secrets."""
    duration_s: float | None = None
    """From the begin of its process, if known, else the training's first event, to its last."""
    machine: Sampled | None = None
    """What the sampler saw over the whole recording, of a run without steps."""
    job: Job | None = None
    """What its ranks are together, one or several; other figures are the leading rank's. `None` without steps."""
    ranks: tuple[RankAnalysis, ...] = ()
    """Each of several ranks by itself; empty of a single one."""
    killed: tuple[int, ...] = ()
    """Ranks that did not end their recording, though the run has ended: killed, it seems."""
    deaths: tuple[WorkerDeath, ...] = ()
    """Workers of loaders that died, of all ranks."""
    missing: tuple[int, ...] = ()
    """Ranks of the job of which nothing was recorded, though they ran for sure."""

    @cached_property
    def gaps_ms(self) -> dict[str, float]:
        """Device's gaps, ms: `mean`, `p50`, `p95`, `p99`, `max`, `total`; empty without any."""
        facts = self.facts
        return {} if facts is None or not facts.told_apart else _distribution(facts.parts.gaps_ns)

    @cached_property
    def step_ms(self) -> dict[str, float]:
        """Lengths of the steps on the host, by the names that `gaps_ms` has."""
        if self.facts is None:
            return {}
        steps = self.facts.window.steps
        return _distribution(steps["step_end_ns"] - steps["fetch_begin_ns"])


@dataclass(frozen=True)
class RankAnalysis:
    """One of several ranks by itself."""

    rank: int
    host: str
    analysis: Analysis


def analyse(run: Run, *others: Run, briefly: bool = False) -> Analysis:
    """Analyse a run, finished or not. `others`: what the same job recorded on its other hosts; `briefly`: without
    predictions by replay, which take most of the time.

    Raises:
        RecordError: a record file is of an unknown version, or the folders are not of one job.
    """
    runs = (run, *others)
    ranks = ranks_of(runs)
    if len(ranks) > 1:
        found = _of_job(ranks)
    else:
        found = _of_process(run, run.leading_writer() if briefly else None)
        # Of several ranks the job says it.
        if killed := [rank.rank for rank in ranks if rank.killed and rank.steps]:
            found = replace(found, notes=(f"{unended(killed).capitalize()}.", *found.notes))
    commands = [*(each.info.get("command") for each in runs), *(rank.argv for rank in ranks)]
    left_out = sum(left_out_of(each.folder, commands if each is run else ()) for each in runs)
    of_runs = [note for each in runs for note in _run_notes(each)]
    return replace(
        found,
        notes=tuple(dict.fromkeys((*of_runs, *_missing_notes(ranks), *found.notes, *left_out_note(left_out)))),
        dropped_records=sum(each.dropped() for each in runs),
        left_out=left_out,
        killed=tuple(r.rank for r in ranks if r.killed),
        missing=tuple(surely_missing(ranks)),
    )


def condensed(analysis: Analysis) -> Analysis:
    """Keep its figures alone, and let go of what takes memory in proportion to the steps."""
    ranks = tuple(replace(part, analysis=condensed(part.analysis)) for part in analysis.ranks)
    facts = analysis.facts
    if facts is not None:
        facts = replace(facts, window=facts.window.condensed(), parts=facts.parts.condensed())
    return replace(analysis, facts=facts, ranks=ranks)


def _of_job(ranks: Sequence[RankProcess]) -> Analysis:
    """Several ranks, each by itself and together; the figures of one stand for all."""
    members = [JobRank(rank, _of_process(replace(rank.run, info=rank.info), rank.writer)) for rank in ranks]
    each = [member.analysis for member in members]
    found = job_of(members)
    job, verdict, findings, notes = found or (None, each[0].verdict, [], [])
    lead = next((member for member in members if job is not None and member.process.rank == job.lead), members[0])
    return replace(
        lead.analysis,
        info=ranks[0].run.info,
        verdict=verdict,
        findings=tuple(findings),
        notes=(*notes, *(f"Rank {lead.process.rank}: {note}" for note in lead.analysis.notes)),
        duration_s=max((a.duration_s for a in each if a.duration_s is not None), default=None),
        job=job,
        ranks=tuple(RankAnalysis(rank.rank, rank.host, analysis) for rank, analysis in members),
        deaths=tuple(death for analysis in each for death in analysis.deaths),
    )


def _missing_notes(ranks: Sequence[RankProcess]) -> list[str]:
    if not (absent := missing(ranks)):
        return []
    if not surely_missing(ranks):
        return [
            f"The environment announced {len(absent) + len(ranks)} ranks, but only {listed([ranks[0].rank])} was "
            "recorded. If the others trained with it, also name the run folders of their hosts to see the whole job."
        ]
    return [
        f"{len(ranks)} of the job's {len(absent) + len(ranks)} ranks were recorded; {listed(absent)} "
        f"{'is' if len(absent) == 1 else 'are'} missing. Ranks of other hosts have run folders of their own: name them "
        "all to see the whole job."
    ]


def _of_process(run: Run, writer: Writer | None) -> Analysis:
    """One training process by itself; without a writer the one that ran most steps."""
    events = run.records(EVENT, writer)
    deaths = deaths_of(events, run.records(HOST), run.records(MEMORY))
    duration_s = float(np.ptp(events["t_ns"])) / 1e9 if len(events) > 1 else None
    mine = writer or run.leading_writer()
    # Held until the facts are known, so that they are read once.
    held = [run.records(kind, mine) for kind in (STEP, BATCH, EVENT, PAUSE) if mine is not None]
    looks = None if mine is None else looks_at(run, mine)
    facts = facts_of(run, mine, looks)
    if facts is None or mine is None:
        verdict = without_steps(len(run.records(STEP, writer)), run.records(EVENT, writer))
        return Analysis(run.info, None, verdict, (), (), 0, machine=_machine(run), deaths=deaths)
    if writer is None and not run.info.get("trial"):
        # Of a job each rank would be replayed, and scenarios are compared as they run.
        facts = replace(facts, advice=advice_of(run, facts))
    del held
    events, pauses = run.records(EVENT, mine), run.records(PAUSE, mine)
    facts, findings = found_with(looks, facts, events, pauses)
    verdict = verdict_of(facts, findings, ended=run.info.get("ended") is not None)
    shown = findings if verdict.cause is not None else ()
    phases = phases_of(facts.window, run.records(EVENT, writer), read_names(run.folder))
    failed = () if looks is None else look_notes(looks, facts.window)
    named = {finding.cause for finding in shown}
    quality = quality_notes(facts.sampled, facts.window, facts.device_kind, facts.foreign_cpus, found=named)
    notes = (*warnings_of(facts), *quality, *failed, *phases)
    return Analysis(
        info=run.info,
        facts=facts,
        verdict=verdict,
        findings=shown,
        notes=notes,
        dropped_records=0,
        duration_s=duration_s,
        job=job_of_one(mine[0], facts),
        deaths=deaths,
    )


def phases_of(window: Window, events: Records, names: Mapping[int, str]) -> Iterator[str]:
    """Yield what each named phase took of the window, the longest first, a sentence each."""
    phases = window.during(lasting(events, EventKind.PHASE))
    found = []
    for number in np.unique(phases["value"]).tolist():
        mine = phases[phases["value"] == number]
        spent = total(clip(under_way(mine), window.begin_ns, window.end_ns))
        found.append((spent, len(mine), names.get(number, "without a name")))
    for spent, times, name in sorted(found, reverse=True)[:MOST_PHASES]:
        yield (
            f'The program\'s phase "{name}" took {spent / 1e6:.0f} ms, {100 * spent / window.wall_ns:.1f} % of the '
            f"time, {times} time{'s' if times != 1 else ''}."
        )


def _machine(run: Run) -> Sampled | None:
    """All that the sampler saw; `None` where it saw nothing."""
    host, device = run.records(HOST), run.records(DEVICE)
    times = np.concatenate((host["t_ns"], device["t_ns"]))
    if len(times) == 0:
        return None
    none = np.empty(0, dtype=STEP.dtype)
    return sampled(Window(int(times.min()), int(times.max()), none, 0, none), device, host)


def _distribution(lengths_ns: Any) -> dict[str, float]:
    """Mean, percentiles and maximum in ms; empty for no lengths."""
    if len(lengths_ns) == 0:
        return {}
    ms = lengths_ns / 1e6
    values = (ms.mean(), *np.percentile(ms, (50, 95, 99)), ms.max(), ms.sum())
    return dict(zip(("mean", "p50", "p95", "p99", "max", "total"), map(float, values), strict=True))


def _run_notes(run: Run) -> list[str]:
    """What a folder says as a whole; after everything in it was read."""
    dropped = run.dropped()
    notes = list(run.damaged)
    if killed := kills_of(run.records(MEMORY)):
        who = "1 process" if killed == 1 else f"{killed} processes"
        notes.append(f"The kernel killed {who} for lack of memory during the recording.")
    notes += [str(n) for n in run.info.get("notices", [])]
    # A training on the processor misses no driver; one process with steps is enough.
    stepped = any(file.count() > 0 for file in run.files(STEP))
    on_cpu = (run.info.get("device") or {}).get("kind") == "cpu"
    notes += [
        note
        for note in read_notices(run.folder)
        if not (stepped and "no step was recorded" in note)
        and not (on_cpu and note.startswith("No NVIDIA driver here"))
    ]
    if dropped:
        notes.append(f"{dropped} records could not be stored: the disk was full.")
    ended = run.info.get("ended") or {}
    if ended.get("status") not in (None, "ok"):
        why = f": {ended['error']}" if ended.get("error") else ""
        notes.insert(0, f"The training did not end well ({ended['status']}{why}); the report covers what was recorded.")
    if run.info.get("ended") is None:
        notes.append("The recording was not ended: it still runs, or it was killed.")
    return notes


def parts_of(folder: Path) -> list[Path]:
    """List the run folders of a job on several hosts, or the folder itself."""
    if is_run(folder):
        return [folder]
    parts = runs_within(folder)
    return parts if len(parts) > 1 else [folder]


def lacking_of(folder: Path, analysis: Analysis) -> tuple[str, ...]:
    """Say what did not end, or is not there, in a few words each; nothing of a whole recording."""
    lacking = []
    parts = parts_of(folder)
    for part in parts:
        ended = open_run(part).info.get("ended")
        why = "no end is recorded: it still runs, or it was killed"
        if ended is not None:
            status = ended.get("status")
            why = "" if status in (None, "ok") else f"it did not end well ({status})"
        if why:
            lacking.append(why if len(parts) == 1 else f"{part}: {why}")
    without = [part.rank for part in analysis.ranks if part.analysis.facts is None]
    if killed := [rank for rank in analysis.killed if rank not in without]:
        lacking.append(unended(killed))
    if without:
        lacking.append(f"no step of {listed(without)} was recorded")
    if analysis.missing:
        lacking.append(
            f"nothing of {listed(analysis.missing)} was recorded: if other hosts recorded them, name the folder "
            "around the hosts' run folders"
        )
    return tuple(lacking)
