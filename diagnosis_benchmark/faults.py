"""`whyidle compare faults`: trainings with planted faults, and what the diagnosis made of them."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console

from whyidle.analyse.causes.diagnosis import LEAST_STEPS
from whyidle.analyse.cells.comparison import Cell, Comparison, cell_of
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.capture.cpu_budget import cpu_budget
from whyidle.capture.sampler.procfs import MachineCpu, parse_machine_cpu, read
from whyidle.commands import options
from whyidle.errors import WhyidleError
from whyidle.matrix.matrix import Rounds, Trial, new_folder
from whyidle.matrix.trial import Outcome, Target, TrialServer
from whyidle.record.comparison import CellRecord, read_comparison
from whyidle.record.run import is_run, open_run
from whyidle.report.contract import run as contract
from whyidle.terminal.console import console, show_comparison

from .confusion import Confusion, JudgedRun, Named, confusion
from .report import faults_json, faults_text

if TYPE_CHECKING:
    from whyidle.scenarios.faults.case import Case

SCENARIO = "faults"
TARGET = Target("whyidle.scenarios.faults.trial", "run_fault")
REPEATS = 1
"""Runs a case, by default."""
RUN_SECONDS = 4
"""What most runs take, their start included."""
ELSEWHERE = (
    *("budget", "first"),
    *("data", "device", "net", "pipelines", "batch_sizes", "epochs", "iterations", "workers", "prefetch", "limit"),
    *(
        "no_augment",
        "activity_windows",
        "plot",
        "experiment",
        "full",
        "feed",
        "store",
        "ranks",
        "interconnect",
        "threads",
    ),
)
"""Options of other scenarios. Here each case says itself what it trains, on what, and for how long."""
SEVERITIES = ("mild", "middle", "severe")
NO_SEVERITY = ("control", "both")
"""What stands in its place in controls and compounds."""
KINDS = {"faults": "fault", "compounds": "compound", "controls": "control"}
"""Option → what such cases are called."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What only this scenario takes."""
    group = parser.add_argument_group("of the scenario faults")
    group.add_argument("--cases", metavar="A,B", help="names of cases, or causes; of batch-sizes too (default: all)")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--faults", action="store_true", help="only trainings with one planted fault")
    kind.add_argument("--compounds", action="store_true", help="only those with two")
    kind.add_argument("--controls", action="store_true", help="only healthy ones")
    group.add_argument("--severity", choices=SEVERITIES, help="of single faults, only those (default: all three)")
    group.add_argument("--foreign-load", action="store_true", help="each run beside a busy process of others")


def refuse(arguments: argparse.Namespace) -> None:
    """What only this scenario takes was asked of another one.

    Raises:
        WhyidleError: it was.
    """
    given = options.given(arguments, ("cases", *KINDS, "severity", "foreign_load"))
    if given:
        raise WhyidleError(
            f"{given} {options.are(given)} of the scenario faults, not of {arguments.scenario}: "
            "`whyidle compare faults`."
        )


def run(arguments: argparse.Namespace) -> int:
    """Run the cases and print the matrix: 0 when at least one was judged, 1 when none was, 130 after Ctrl-C."""
    trials = Trials(arguments)
    interrupted = trials.run(console(stderr=True))
    table = load(trials.folder)
    show_comparison(table.render, table.json, trials.folder, arguments.json)
    return 130 if interrupted else int(not table.confusion.cases)


@dataclass(frozen=True)
class FaultTable:
    """The cases, their runs, and what the diagnosis made of them."""

    setting: dict[str, Any]
    cells: tuple[Cell, ...]
    """One a case."""
    confusion: Confusion

    @property
    def failed(self) -> list[tuple[str, str, str]]:
        """(case, status, why) of those that were not judged."""
        judged = {case.case for case in self.confusion.cases}
        return [
            (case["case"], cell.status, cell.error or "")
            for case, cell in zip(self.setting["cases"], self.cells, strict=True)
            if cell.status != "ok" and not (cell.status == "stopped" and case["case"] in judged)
        ]

    def render(self, target: Console) -> None:
        faults_text.render(self.confusion, self.setting, self.failed, target)

    def json(self) -> dict[str, Any]:
        """The contract's `whyidle-compare`, with a cell a case and the matrix."""
        setting = {name: value for name, value in self.setting.items() if name != "cases"}
        content = contract.comparison(Comparison(self.cells, {}, ()), setting)
        judged = {case.case: faults_json.of_case(case) for case in self.confusion.cases}
        for cell, case in zip(content["cells"], self.setting["cases"], strict=True):
            cell |= case | judged.get(case["case"], faults_json.UNJUDGED)
            if cell["status"] == "stopped":
                # As far as it went counts, as in other comparisons, if that was far enough.
                cell["status"] = "ok" if case["case"] in judged else "skipped"
        return content | {"matrix": faults_json.matrix(self.confusion)}


def load(folder: Path) -> FaultTable:
    """A folder that `compare faults` filled, finished or not, analysed anew.

    Raises:
        RecordError: there is none, or a run of it cannot be read.
    """
    setting, records = read_comparison(folder)
    cells = tuple(cell_of(folder, record) for record in records)
    judged: list[JudgedRun] = []
    for case, record, cell in zip(setting["cases"], records, cells, strict=True):
        runs = [folder / name for name in record.runs if is_run(folder / name)]
        for place, analysis in zip(runs, cell.analyses, strict=True):
            if (
                one := judge(case["case"], tuple(case["planted"]), place, analysis, setting["foreign_load"])
            ) is not None:
                judged.append(one)
    return FaultTable(setting, cells, confusion(judged))


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
        truth={} if facts is None else _truth(case, planted, folder, (facts.window.begin_ns, facts.window.end_ns)),
        steps=0 if facts is None else facts.window.count,
        foreign=foreign,
    )


def _truth(name: str, planted: tuple[str, ...], folder: Path, window: tuple[int, int]) -> dict[str, float]:
    """Cause → what it really cost. Nothing where the run was killed before it could say, or its case is no more."""
    from whyidle.scenarios.faults.registry import CASES
    from whyidle.scenarios.faults.truth import read_spans, read_stamps, true_share

    case = CASES.get(name)
    if case is None or case.causes != planted:
        return {}
    try:
        stamps = read_stamps(folder)
    except (OSError, ValueError):
        return {}
    return dict(true_share(stamps, read_spans(open_run(folder)), window, case))


class Trials(Rounds[str]):
    """The runs of one matrix; a cell is a case, told by its name."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from whyidle.scenarios.faults.machine import unmet
        from whyidle.scenarios.faults.registry import cases
        from whyidle.scenarios.registry import require_installed

        given = options.given(arguments, ELSEWHERE)
        if given:
            raise WhyidleError(
                f"{given} {options.are(given)} of other scenarios: each case of {SCENARIO} says itself what it trains. "
                "Choose among them with --cases, --faults, --compounds or --controls."
            )
        named = options.cases(arguments.cases)
        chosen = cases(named, tuple(kind for option, kind in KINDS.items() if getattr(arguments, option)))
        if arguments.severity:
            chosen = [case for case in chosen if case.severity in (arguments.severity, *NO_SEVERITY)]
        if not chosen:
            raise WhyidleError(f"none of --cases {arguments.cases} is of the kind asked for. Leave one of the two out.")
        require_installed(f"compare {SCENARIO}")
        self._cases: dict[str, Case] = {case.name: case for case in chosen}
        super().__init__(new_folder(arguments.out, SCENARIO), list(self._cases))
        self._seed = arguments.seed
        self._before = _machine()
        self.setting = {
            "scenario": SCENARIO,
            "device": {"kind": "emulated", "name": "as each case says", "title": "as each case says", "count": 1},
            "cpu_budget": cpu_budget().budget,
            "dataset": {},
            "repeats": arguments.repeats or REPEATS,
            "foreign_load": arguments.foreign_load,
            "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "steal_pct": None},
            "cases": [{"case": case.name, "planted": list(case.causes)} for case in chosen],
        }
        for case in chosen:
            if missing := unmet(case.needs):
                self.status[case.name] = ("skipped", missing)

    def run(self, target: Console) -> bool:
        """Run every case, round by round. True when Ctrl-C cut it short; what was recorded is kept."""
        repeats = self.setting["repeats"]
        total = len(self.pending) * repeats
        target.print(faults_text.ahead(total, RUN_SECONDS), markup=False, soft_wrap=True)
        return self.measure(lambda: TrialServer(TARGET), repeats, self._seed, Lines(target, self, total))

    def said(self, name: str, folder: Path) -> str:
        """Of a run that has ended, beside what was planted."""
        status, error = self.status[name]
        if status != "ok":
            return f"{status}: {error}"
        planted = self._cases[name].causes
        judged = judge(name, planted, folder, analyse(open_run(folder)), self.setting["foreign_load"])
        return faults_text.outcome(judged) if judged is not None else status

    def title(self, name: str) -> str:
        return name

    def _name(self, name: str) -> str:
        return name

    def _trial(self, name: str, number: int, folder: Path) -> Trial:
        from whyidle.scenarios.faults.trial import FaultSpec

        planted = list(self._cases[name].causes)
        return Trial(
            FaultSpec(name, str(folder.resolve()), self._seed, number, int(self.setting["foreign_load"])),
            {"trial": {"scenario": SCENARIO, "case": name, "planted": planted, "repetition": number}},
        )

    def _keep(self, name: str, folder: Path, outcome: Outcome) -> None:
        """A run that was cut short changes nothing for a case that ran before: it counts where it went far enough."""
        if outcome.status != "stopped" or self.status[name][0] == "pending":
            self.status[name] = (outcome.status, outcome.error)

    def _record(self, name: str) -> CellRecord:
        loader = self._cases[name].plan.loader
        pipeline = "workers" if loader.workers else "naive"
        return CellRecord(pipeline, loader.batch, *self.status[name], tuple(self._runs[name]))

    def _over(self) -> None:
        after = _machine()
        shares = after.shares_since(self._before) if after and self._before else None
        self.setting["machine"]["steal_pct"] = shares[2] if shares else None


class Lines:
    """Progress of these runs: a line a run."""

    def __init__(self, target: Console, trials: Trials, total: int) -> None:
        self._target = target
        self._trials = trials
        self._total = total
        self._done = 0
        self._folder = Path()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, folder: Path) -> None:
        self._folder = folder

    def tick(self) -> None:
        pass

    def end(self, name: str) -> None:
        said = self._trials.said(name, self._folder)
        self._done += 1
        self._target.print(f"[{self._done}/{self._total}] {name}: {said}", markup=False, soft_wrap=True)


def _machine() -> MachineCpu | None:
    return parse_machine_cpu(read("/proc/stat"))
