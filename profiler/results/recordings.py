"""Recorded runs: of a training from within, on one host or several, and of a process from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..analyse.attached.attached import Attached, attached, is_attached
from ..analyse.attached.causes import findings_of, verdict_of
from ..analyse.causes.finding import Finding
from ..analyse.cells import cost
from ..analyse.ranks.figures import all_facts, processes
from ..analyse.run.analysis import Analysis, analyse
from ..analyse.timeline.timeline import Timeline, timelines
from ..errors import WhyidleError
from ..record.run import Run, is_run, open_run
from ..record.schema import STEP
from ..report.contract import run as run_json
from ..report.contract.encode import Content
from ..report.document import Document
from ..report.documents.attached import attached_document
from ..report.documents.cost import spent_line
from ..report.documents.run import run_document, stand_in_of
from ..report.export.steps import steps_table
from ..report.export.table import KINDS_OF_TABLES, Table, about_of, raw_table
from ..report.plot import TRACES, Picture, trace_of, utilisation
from .result import STEPS, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..report.export.trace import RunTrace


class RecordedResult(Result):
    """What run folders hold, however they were recorded."""

    formats = (*Result.formats, "csv", "parquet")

    def __init__(self, runs: Sequence[Run]) -> None:
        """`runs`: of a job on several hosts each host's."""
        super().__init__(runs[0].folder)
        self.runs = runs

    @cached_property
    def analysis(self) -> Analysis:
        return analyse(*self.runs)

    def tables(self) -> Mapping[str, Callable[[], Table]]:
        raw = {name: partial(raw_table, name, self.runs) for name in KINDS_OF_TABLES}
        return {STEPS: lambda: steps_table(self.timelines(), about_of(self.analysis.info)), **raw}

    def timelines(self) -> list[Timeline]:
        """Lay the steps out over time, as a trace or a table of steps has them: of each rank that has some.

        Raises:
            WhyidleError: the run was watched from outside, or trained nothing.
        """
        way_out = "`--format csv --table host` and `--table device` write what the sampler recorded."
        if any(is_attached(run) for run in self.runs):
            raise WhyidleError(f"{self.folder} was watched from outside, which records no steps. {way_out}")
        if not any(file.count() for run in self.runs for file in run.files(STEP)):
            raise WhyidleError(
                f"{self.folder} holds no step: nothing was trained, or whyidle did not see it. {way_out}"
            )
        if not (shown := timelines(self.analysis, self.runs)):
            raise WhyidleError(
                f"{self.folder} has no step to show: the device had finished none. "
                "`--format csv --table step_records` writes them as they were recorded."
            )
        return shown


class RunResult(RecordedResult):
    """A training that was recorded from within; its ranks may be in several folders."""

    what = "a run"
    formats = (*RecordedResult.formats, "trace")
    pictures = (TRACES,)
    instead = ". `whyidle compare RUN RUN` makes a comparison of runs"

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        return cls([open_run(folder)]) if is_run(folder) else None

    @property
    def loaded(self) -> Analysis:
        return self.analysis

    def document(self) -> Document:
        return run_document(self.analysis, self._cost_line())

    def contract(self) -> Content:
        return run_json.report(self.analysis, self._spent())

    def page(self, place: Path | None) -> str:
        from ..report.page import run_page

        return run_page.page(self.analysis, self.runs, self._cost_line())

    def trace(self) -> RunTrace:
        from ..report.export.trace import trace_of

        return trace_of(self.timelines(), self.analysis, self.runs)

    def figure(self, picture: Picture) -> Figure:
        """Draw the device's utilisation; of several ranks, of the one whose figures are shown."""
        title = (self.analysis.info.get("device") or {}).get("title") or "device"
        generated = ", stand-in data" if stand_in_of(self.analysis) else ""
        traces = [trace_of(self.folder.name, self.analysis, self.folder)]
        return utilisation(traces, f"{title}{generated}")

    def _cost_line(self) -> str | None:
        spent = self._spent()
        return None if spent is None else spent_line(spent)

    def _spent(self) -> cost.Spent | None:
        """Give what the run, or a job of several ranks, cost; nothing without a price."""
        if self.price is None:
            return None
        facts = all_facts(self.analysis)
        known = len(facts) == len(processes(self.analysis))
        return cost.spent(self.price, self.analysis.duration_s, facts if known else [])


class AttachedResult(RecordedResult):
    """A process that was watched from outside."""

    what = "a recording from outside"

    @classmethod
    def open(cls, folder: Path) -> Self | None:
        run = open_run(folder) if is_run(folder) else None
        return cls([run]) if run is not None and is_attached(run) else None

    @cached_property
    def loaded(self) -> tuple[Attached, Finding, tuple[Finding, ...]]:
        """What was seen, its verdict, and all findings."""
        seen = attached(self.runs[0])
        findings = findings_of(seen)
        return seen, verdict_of(seen, findings), findings

    def document(self) -> Document:
        return attached_document(*self.loaded)

    def contract(self) -> Content:
        return run_json.attached_report(*self.loaded)

    def page(self, place: Path | None) -> str:
        from ..report.page import attach_page

        return attach_page.page(self.runs[0], *self.loaded)


def recording_in(folder: Path) -> RecordedResult:
    """Open the recording in a run folder.

    Raises:
        RecordError: there is none, or it cannot be read.
    """
    return AttachedResult.open(folder) or RunResult([open_run(folder)])
