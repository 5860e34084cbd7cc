"""`stallscope compare faults`: trainings with planted faults, and what the diagnosis made of them."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..analyse.analysis import Analysis, analyse
from ..analyse.compare import Cell, Comparison, cell_of
from ..analyse.confusion import Confusion, Judged, Named, confusion
from ..analyse.diagnosis import LEAST_STEPS
from ..capture.cpu_budget import cpu_budget
from ..capture.sampler.procfs import MachineCpu, parse_machine_cpu, read
from ..errors import RecordError, StallscopeError
from ..record.comparison import CellRecord, is_comparison, read_comparison, write_comparison
from ..record.run import is_run, open_run
from ..report import contract, faults_json, faults_text
from ..tune.rounds import rounds
from ..tune.trial import Outcome, Target, TrialServer
from .console import console, show, write_json

if TYPE_CHECKING:
    from stallscope.scenarios.faults.case import Case

SCENARIO = "faults"
TARGET = Target("stallscope.scenarios.faults.trial", "run_fault")
REPEATS = 1
"""Runs a case, by default."""
RUN_SECONDS = 4
"""What most runs take, their start included."""
ELSEWHERE = (
    *("data", "device", "net", "pipelines", "batch_sizes", "epochs", "iterations", "workers", "prefetch", "limit"),
    *("no_augment", "activity_windows"),
)
"""Options of other scenarios. Here each case says itself what it trains, on what, and for how long."""
STOPPED = "stopped by Ctrl-C"
SEVERITIES = ("mild", "middle", "severe")
NO_SEVERITY = ("control", "both")
"""What stands in its place in controls and compounds."""
KINDS = {"faults": "fault", "compounds": "compound", "controls": "control"}
"""Option → what such cases are called."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What only this scenario takes."""
    group = parser.add_argument_group("of the scenario faults")
    group.add_argument("--cases", metavar="A,B", help="names of cases, or causes (default: all)")
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--faults", action="store_true", help="only trainings with one planted fault")
    kind.add_argument("--compounds", action="store_true", help="only those with two")
    kind.add_argument("--controls", action="store_true", help="only healthy ones")
    group.add_argument("--severity", choices=SEVERITIES, help="of single faults, only those (default: all three)")
    group.add_argument("--foreign-load", action="store_true", help="each run beside a busy process of others")


def refuse(arguments: argparse.Namespace) -> None:
    """What only this scenario takes was asked of another one.

    Raises:
        StallscopeError: it was.
    """
    given = _given(arguments, ("cases", *KINDS, "severity", "foreign_load"))
    if given:
        raise StallscopeError(
            f"{given} {_is(given)} of the scenario faults, not of {arguments.scenario}: `stallscope compare faults`."
        )


def run(arguments: argparse.Namespace) -> int:
    """Run the cases and print the matrix: 0 when at least one was judged, 1 when none was, 130 after Ctrl-C."""
    trials = Trials(arguments)
    interrupted = trials.run(console(stderr=True))
    table = load(trials.folder)
    if arguments.json != "-":
        target = console()
        show(table.render, target)
        target.print(
            f"\nruns and figures: {trials.folder}   (stallscope report {trials.folder})", soft_wrap=True, markup=False
        )
    if arguments.json:
        write_json(table.json(), arguments.json)
    return 130 if interrupted else int(not table.confusion.cases)


@dataclass(frozen=True)
class FaultTable:
    """The cases, their runs, and what the diagnosis made of them."""

    setting: dict[str, Any]
    cells: tuple[Cell, ...]
    """One a case."""
    confusion: Confusion

    def render(self, target: Console) -> None:
        judged = {case.case for case in self.confusion.cases}
        failed = [
            (case["case"], cell.status, cell.error or "")
            for case, cell in zip(self.setting["cases"], self.cells, strict=True)
            if cell.status != "ok" and not (cell.status == "stopped" and case["case"] in judged)
        ]
        faults_text.render(self.confusion, self.setting, failed, target)

    def json(self) -> dict[str, Any]:
        """The contract's `stallscope-compare`, with a cell a case and the matrix."""
        setting = {name: value for name, value in self.setting.items() if name != "cases"}
        content = contract.comparison(Comparison(self.cells, None, {}, ()), setting)
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
    judged: list[Judged] = []
    for case, record, cell in zip(setting["cases"], records, cells, strict=True):
        runs = [folder / name for name in record.runs if is_run(folder / name)]
        for place, analysis in zip(runs, cell.analyses, strict=True):
            if (
                one := judge(case["case"], tuple(case["planted"]), place, analysis, setting["foreign_load"])
            ) is not None:
                judged.append(one)
    return FaultTable(setting, cells, confusion(judged))


def judge(case: str, planted: tuple[str, ...], folder: Path, analysis: Analysis, foreign: bool) -> Judged | None:
    """What was said of a run, beside the truth; `None` of one that failed, or was stopped early."""
    facts = analysis.facts
    ended = (analysis.info.get("ended") or {}).get("status")
    if ended not in ("ok", "stopped") or (ended == "stopped" and (facts is None or facts.window.count < LEAST_STEPS)):
        return None
    return Judged(
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
    from stallscope.scenarios.faults.registry import CASES
    from stallscope.scenarios.faults.truth import read_spans, read_stamps, true_share

    case = CASES.get(name)
    if case is None or case.causes != planted:
        return {}
    try:
        stamps = read_stamps(folder)
    except (OSError, ValueError):
        return {}
    return dict(true_share(stamps, read_spans(open_run(folder)), window, case))


class Trials:
    """The runs of one matrix."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from stallscope.scenarios.faults.machine import unmet
        from stallscope.scenarios.faults.registry import cases

        given = _given(arguments, ELSEWHERE)
        if given:
            raise StallscopeError(
                f"{given} {_is(given)} of other scenarios: each case of {SCENARIO} says itself what it trains. "
                "Choose among them with --cases, --faults, --compounds or --controls."
            )
        named = tuple(filter(None, (each.strip() for each in (arguments.cases or "").split(","))))
        if arguments.cases is not None and not named:
            raise StallscopeError(
                f"--cases {arguments.cases!r} names no case. `stallscope scenarios --json` names them all; "
                "without --cases all of them run."
            )
        self.cases: list[Case] = cases(
            named,
            tuple(kind for option, kind in KINDS.items() if getattr(arguments, option)),
        )
        if arguments.severity:
            self.cases = [case for case in self.cases if case.severity in (arguments.severity, *NO_SEVERITY)]
        if not self.cases:
            raise StallscopeError(
                f"none of --cases {arguments.cases} is of the kind asked for. Leave one of the two out."
            )
        self.folder: Path = arguments.out or Path("runs") / f"{SCENARIO}-{time.strftime('%Y%m%d-%H%M%S')}"
        if is_comparison(self.folder) or (self.folder.is_dir() and any(self.folder.iterdir())):
            raise StallscopeError(f"{self.folder} is not empty. Choose another folder with --out.")
        self._seed = arguments.seed
        self.setting: dict[str, Any] = {
            "scenario": SCENARIO,
            "device": {"kind": "emulated", "name": "as each case says", "title": "as each case says", "count": 1},
            "cpu_budget": cpu_budget().budget,
            "dataset": {},
            "repeats": arguments.repeats or REPEATS,
            "foreign_load": arguments.foreign_load,
            "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()[0], "steal_pct": None},
            "cases": [{"case": case.name, "planted": list(case.causes)} for case in self.cases],
        }
        missing = [unmet(case.needs) for case in self.cases]
        self._status: list[tuple[str, str | None]] = [("skipped", why) if why else ("pending", None) for why in missing]
        self._runs: list[list[str]] = [[] for _ in self.cases]

    def run(self, target: Console) -> bool:
        """Run every case, round by round. True when Ctrl-C cut it short; what was recorded is kept."""
        self._save()
        todo = [place for place, (status, _) in enumerate(self._status) if status == "pending"]
        before = _machine()
        done, total = 0, len(todo) * self.setting["repeats"]
        target.print(faults_text.ahead(total, RUN_SECONDS), markup=False, soft_wrap=True)
        try:
            server = TrialServer(TARGET)
            for number, place in rounds(todo, self.setting["repeats"], self._seed):
                if self._status[place][0] not in ("pending", "ok"):
                    continue
                said = self._one(server, number, place)
                done += 1
                target.print(f"[{done}/{total}] {self.cases[place].name}: {said}", markup=False, soft_wrap=True)
        except KeyboardInterrupt:
            self._stopped()
            return True
        finally:
            after = _machine()
            shares = after.shares_since(before) if after and before else None
            self.setting["machine"]["steal_pct"] = shares[2] if shares else None
            with suppress(RecordError):
                self._save()
        return False

    def _one(self, server: TrialServer, number: int, place: int) -> str:
        """One run; what is to be said of it."""
        from stallscope.scenarios.faults.trial import FaultSpec

        case = self.cases[place]
        folder = self.folder / f"{case.name}-r{number}"
        self._runs[place].append(folder.name)
        with suppress(RecordError):
            self._save()  # so that a report finds this run even if this command is killed
        spec = FaultSpec(case.name, str(folder.resolve()), self._seed, number, int(self.setting["foreign_load"]))
        description = {
            "trial": {
                "scenario": SCENARIO,
                "case": case.name,
                "planted": list(case.causes),
                "repetition": number,
            }
        }
        try:
            outcome = server.run(folder, spec, description, lambda: None)
        except RecordError as error:
            # A full disk: what was recorded before is still worth its matrix.
            outcome = Outcome("failed", str(error))
        self._status[place] = (outcome.status, outcome.error)
        with suppress(RecordError):
            self._save()
        if outcome.status != "ok":
            return f"{outcome.status}: {outcome.error}"
        analysis = analyse(open_run(folder))
        judged = judge(case.name, case.causes, folder, analysis, self.setting["foreign_load"])
        return faults_text.outcome(judged) if judged is not None else outcome.status

    def _stopped(self) -> None:
        """A run that was cut short counts where it recorded enough steps; cases that never ran are skipped."""
        for place, (status, _) in enumerate(self._status):
            if status == "pending":
                ran = bool(self._runs[place])
                self._status[place] = ("stopped", STOPPED) if ran else ("skipped", f"not run: {STOPPED}")

    def _save(self) -> None:
        records = [
            CellRecord("workers" if case.plan.loader.workers else "naive", case.plan.loader.batch, *status, tuple(runs))
            for case, status, runs in zip(self.cases, self._status, self._runs, strict=True)
        ]
        write_comparison(self.folder, self.setting, records)


def _machine() -> MachineCpu | None:
    return parse_machine_cpu(read("/proc/stat"))


def _given(arguments: argparse.Namespace, names: Sequence[str]) -> str:
    """Those of the options that were asked for, as they are written; empty for none."""
    default = arguments.parser.get_default
    return ", ".join(f"--{name.replace('_', '-')}" for name in names if getattr(arguments, name) != default(name))


def _is(listed: str) -> str:
    return "are options" if "," in listed else "is an option"
