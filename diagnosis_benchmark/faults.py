"""Trainings with planted faults, and what the diagnosis made of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyidle.analyse.causes.diagnosis import LEAST_STEPS
from whyidle.analyse.cells.comparison import Cell, Comparison, cell_of
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.facts import Facts
from whyidle.capture.limits import cpu_budget
from whyidle.capture.sampler.procfs import MachineCpu, parse_machine_cpu, read
from whyidle.capture.sampler.start import NO_STACKS, StackOptions
from whyidle.errors import RecordError, WhyidleError
from whyidle.matrix.matrix import PENDING, Matrix, PlannedCell, Shown, free_folder, pending
from whyidle.matrix.trial import TrialOutcome
from whyidle.record.comparison import CellRecord, read_comparison
from whyidle.record.run import is_run, open_run
from whyidle.report.contract import comparison as compare_json
from whyidle.report.words.figures import NOT_MEASURED, counted

from .confusion import CaseSummary, Confusion, Errors, HitRate, JudgedRun, Named, confusion

if TYPE_CHECKING:
    from whyidle_bench.cases.case import Case
    from whyidle_bench.cases.trial import FaultSpec

SCENARIO = "faults"
TARGET = "whyidle_bench.cases.trial:run_fault"
REPEATS = 1
"""Runs a case, by default."""
RUN_SECONDS = 4
"""What most runs take, their start included."""
SEVERITIES = ("mild", "middle", "severe")
NO_SEVERITY = ("control", "both")
"""What stands in its place in controls and compounds."""


UNJUDGED: dict[str, Any] = {
    "named_first": None,
    "named": {},
    "right": 0,
    "all_found": 0,
    "share_pct": {"true": None, "reported": None},
    "shares_pct": {},
}
"""A cell without a run that could be judged."""


@dataclass(frozen=True, kw_only=True)
class FaultRequest:
    """Which planted faults are to be run, and how often."""

    cases: tuple[str, ...] = ()
    """Names of cases, or causes; none: all."""
    kinds: tuple[str, ...] = ()
    """`fault`, `compound` or `control`; none: all."""
    severity: str | None = None
    """Of single faults, only those."""
    foreign_load: bool = False
    """Each run beside a busy process of others."""
    repeats: int | None = None
    seed: int = 0
    out: Path | None = None


@dataclass(frozen=True)
class FaultTable:
    """The cases, their runs, and what the diagnosis made of them."""

    setting: dict[str, Any]
    cells: tuple[Cell, ...]
    """One a case."""
    confusion: Confusion

    def json(self) -> dict[str, Any]:
        """A comparison's, with a cell a case and the matrix."""
        setting = {name: value for name, value in self.setting.items() if name != "cases"}
        content = compare_json.comparison(Comparison(self.cells, {}, ()), setting)
        judged = {case.case: of_case(case) for case in self.confusion.cases}
        for cell, case in zip(content["cells"], self.setting["cases"], strict=True):
            cell |= case | judged.get(case["case"], UNJUDGED)
            if cell["status"] == "stopped":
                # As far as it went counts, as in other comparisons, if that was far enough.
                cell["status"] = "ok" if case["case"] in judged else "skipped"
        return content | {"matrix": matrix(self.confusion)}


def load(folder: Path) -> FaultTable:
    """A folder that such runs filled, finished or not, analysed anew.

    Raises:
        RecordError: there is none, or a run of it cannot be read.
    """
    setting, records = read_comparison(folder)
    cells = tuple(cell_of(folder, record) for record in records)
    return FaultTable(setting, cells, confusion(judged_runs(folder, setting, records, cells)))


def judged_runs(
    folder: Path, setting: Mapping[str, Any], records: Sequence[CellRecord], cells: Sequence[Cell]
) -> list[JudgedRun]:
    """What was said of each run of such a folder, beside the truth."""
    return [
        found
        for case, record, cell in zip(setting["cases"], records, cells, strict=True)
        for place, analysis in zip(
            (folder / name for name in record.runs if is_run(folder / name)), cell.analyses, strict=True
        )
        if (found := judge(case["case"], tuple(case["planted"]), place, analysis, setting["foreign_load"])) is not None
    ]


def judge(case: str, planted: tuple[str, ...], folder: Path, analysis: Analysis, foreign: bool) -> JudgedRun | None:
    """What was said of a run, beside the truth; `None` of one that failed, or was stopped early."""
    facts = analysis.facts
    ended = (analysis.info.get("ended") or {}).get("status")
    if ended not in ("ok", "stopped") or (ended == "stopped" and (facts is None or facts.window.count < LEAST_STEPS)):
        return None
    return JudgedRun(
        case=case,
        planted=planted,
        verdict=analysis.verdict.cause,
        findings=tuple(Named(str(f.cause), f.share, f.severity) for f in analysis.findings),
        truth={} if facts is None else _truth(case, planted, folder, facts),
        steps=0 if facts is None else facts.window.count,
        foreign=foreign,
        advice=analysis.verdict.next[0] if analysis.verdict.next else None,
    )


def _truth(name: str, planted: tuple[str, ...], folder: Path, facts: Facts) -> dict[str, float]:
    """Cause → what it really cost. Nothing where the run was killed before it could say, or its case is no more."""
    from whyidle_bench.cases.registry import CASES
    from whyidle_bench.cases.truth import read_spans, read_stamps, true_share

    case = CASES.get(name)
    if case is None or case.causes != planted:
        return {}
    try:
        stamps = read_stamps(folder)
    except (OSError, ValueError):
        return {}
    window = facts.window.begin_ns, facts.window.end_ns
    start = facts.startup
    run = None if start is None else (start.begin_ns, start.begin_ns + start.run_ns)
    return dict(true_share(stamps, read_spans(open_run(folder)), window, case, run))


def plan(request: FaultRequest) -> Matrix:
    """A cell for each case; nothing has run yet.

    Raises:
        WhyidleError: there are no such cases, or the folder is in use.
    """
    from whyidle.scenarios.registry import require_installed
    from whyidle_bench.cases.machine import unmet
    from whyidle_bench.cases.registry import cases

    chosen = cases(request.cases, request.kinds)
    if request.severity:
        chosen = [case for case in chosen if case.severity in (request.severity, *NO_SEVERITY)]
    if not chosen:
        named = ",".join(request.cases)
        raise WhyidleError(f"none of --cases {named} is of the kind asked for. Leave one of the two out.")
    require_installed("whyidle-bench faults")
    repeats = request.repeats or REPEATS
    setting = {
        "scenario": SCENARIO,
        "device": {"kind": "emulated", "name": "as each case says", "title": "as each case says", "count": 1},
        "cpu_budget": cpu_budget().budget,
        "dataset": {},
        "repeats": repeats,
        "foreign_load": request.foreign_load,
        "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "steal_pct": None},
        "cases": [{"case": case.name, "planted": list(case.causes)} for case in chosen],
    }
    cells = [
        PlannedCell(
            name=case.name,
            title=case.name,
            cell=pending("workers" if case.plan.loader.workers else "naive", case.plan.loader.batch, unmet(case.needs)),
            trial=partial(_trial, request, case),
            stacks=StackOptions() if case.stacks else NO_STACKS,
        )
        for case in chosen
    ]
    folder = free_folder(request.out, SCENARIO)
    return Matrix(folder, cells, TARGET, setting, repeats=repeats, seed=request.seed, keep=_kept)


def measure(matrix: Matrix, shown: Shown) -> bool:
    """Run every case, round by round; the setting says how much of the machine's time others took meanwhile.

    Returns:
        Whether Ctrl-C cut it short; what was recorded is kept.
    """
    before = _machine()
    interrupted = matrix.run(shown)
    after = _machine()
    shares = after.shares_since(before) if after and before else None
    matrix.setting["machine"]["steal_pct"] = shares[2] if shares else None
    with suppress(RecordError):
        matrix.save()
    return interrupted


def said(setting: Mapping[str, Any], name: str, cell: Cell) -> str:
    """Of a case whose run has ended, beside what was planted."""
    if cell.status != "ok":
        return f"{cell.status}: {cell.error}"
    [planted] = [tuple(case["planted"]) for case in setting["cases"] if case["case"] == name]
    folder = Path(cell.rows[-1].run)
    judged = judge(name, planted, folder, analyse(open_run(folder)), setting["foreign_load"])
    return outcome(judged) if judged is not None else cell.status


def _trial(request: FaultRequest, case: Case, number: int, folder: Path) -> tuple[FaultSpec, dict[str, Any]]:
    from whyidle_bench.cases.trial import FaultSpec

    spec = FaultSpec(case.name, str(folder.resolve()), request.seed, number, int(request.foreign_load))
    told = {"scenario": SCENARIO, "case": case.name, "planted": list(case.causes), "repetition": number}
    return spec, {"trial": told}


def _kept(cell: Cell, _: Path, outcome: TrialOutcome) -> Cell:
    """A run that was cut short changes nothing for a case that ran before: it counts where it went far enough."""
    if outcome.status == "stopped" and cell.status != PENDING:
        return cell
    return replace(cell, status=outcome.status, error=outcome.error)


def _machine() -> MachineCpu | None:
    return parse_machine_cpu(read("/proc/stat"))


def matrix(result: Confusion) -> dict[str, Any]:
    """The confusion matrix and the figures that targets are set for; `null` where nothing was judged."""
    return {
        "named_for": {planted: dict(named) for planted, named in result.matrix.items()},
        "faults_named_first": hit_rate(result.faults),
        "compounds_found": hit_rate(result.compounds),
        "compounds_named_first": hit_rate(result.compounds_first),
        "controls_quiet": hit_rate(result.controls),
        "share_errors": _errors(result.errors),
    }


def of_case(case: CaseSummary) -> dict[str, Any]:
    """One case's cell: what its runs say together, by medians. `named_first` is the commonest verdict, `right` how many
    runs named a planted cause first (a control: had no finding above minor), `share_pct` that of the first cause."""
    shares = {
        share.cause: {"true": share.true_pct, "reported": share.reported_pct, "errors": _errors(share.errors)}
        for share in case.shares
    }
    first = case.shares[0] if case.shares else None
    return {
        "named_first": next(iter(case.named), None),
        "named": dict(case.named),
        "right": case.first.hits,
        "all_found": case.every.hits,
        "share_pct": {
            "true": first.true_pct if first else None,
            "reported": first.reported_pct if first else None,
        },
        "shares_pct": shares,
    }


def hit_rate(rate: HitRate) -> dict[str, Any]:
    """So many of so many, the rate and its 95 % interval (0..1; `null` where nothing was judged)."""
    low, high = rate.interval
    return {"hits": rate.hits, "of": rate.of, "rate": rate.value, "low": low, "high": high}


def _errors(errors: Errors) -> dict[str, Any]:
    return {
        "median": errors.median,
        "worst": errors.worst,
        "within_5": errors.close.hits,
        "of": errors.close.of,
        "unnamed": errors.unnamed,
    }


def ahead(runs: int, run_s: float) -> str:
    """What is about to be run, and how long that takes."""
    if not runs:
        return "nothing to run"
    seconds = runs * run_s
    long = f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
    return f"{counted(runs, 'run')} of about {run_s:g} s: about {long}"


def outcome(run: JudgedRun) -> str:
    """One run in a line: what was named for what was planted, and how much of the time that cost."""
    planted = " and ".join(run.planted) or "nothing"
    shares = [_of_truth(run, cause) for cause in run.planted]
    if not run.planted:
        shares = [f"{each.cause} {100 * each.share:.1f} %, {each.severity}" for each in run.findings]
    named = run.verdict or "no verdict"
    right = run.named_first and run.named_all if run.planted else run.named_first
    return f"planted {planted}, named {named}{'' if right else ' (wrong)'}" + "".join(f"; {each}" for each in shares)


def _of_truth(run: JudgedRun, cause: str) -> str:
    shares = (run.reported(cause), run.truth.get(cause))
    said, true = (figure(None if share is None else 100 * share) for share in shares)
    return f"{cause} {said} %, in truth {true} %"


def figure(percent: float | None) -> str:
    """A percentage with one decimal."""
    return NOT_MEASURED if percent is None else f"{percent:.1f}"
