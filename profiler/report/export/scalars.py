"""Flat figures by name, for loggers: of a moment of a run, of a run as it went, and of a whole run.
And what keeps them current while a run is recorded: for `whyidle.log_to`, and as a Prometheus file.

Names are those of the JSON of the contract. What was not measured is left out.

The command that records keeps them, about every ten seconds, so that the training computes nothing. Nothing is read
unless somebody asked for it. The file is in Prometheus' text format, for node_exporter's textfile collector: gauges in
base units. Figures of an emulated device carry the label `device_kind="emulated"`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...analyse.attached.attached import is_attached
from ...analyse.ranks import figures as ranks_figures
from ...analyse.recent import RecentReader, Snapshot
from ...analyse.run.analysis import Analysis, analyse
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from ...analyse.timeline.timeline import stretches, timelines
from ...errors import WhyidleError
from ...record.files import plain, write_text
from ...record.run import open_run, refuse_recorded
from ...record.scalars import PREFIX, Told, Values, tell, wanted

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
    for last, shares, figures in stretches(lines[0], every_s):
        values = measured(of_shares(shares) | figures)
        yield {prefix + name: value for name, value in values.items()}, last
    yield {f"{prefix}{WHOLE}{name}": value for name, value in of_run(analysis).items()}, last


BUSY = "device_busy_pct"
"""Share of the time in which the steps' computation ran: the part `compute`."""


def _of_part(part: str) -> str:
    return BUSY if part == "compute" else f"{part}_pct"


def of_shares(shares: Mapping[str, float]) -> dict[str, float | None]:
    """Of wall time, in percent."""
    return {_of_part(part): 100 * shares[part] for part in PARTS if part in shares}


def told_of(step: int, analysis: Analysis) -> Told:
    """Tell the last stretch of a run that is being recorded, which has come to this step."""
    return Told(step, of_run(analysis), {part.rank: of_run(part.analysis) for part in analysis.ranks})


def of_run(analysis: Analysis) -> Values:
    """A run, or a stretch of one, without its warm-up; of several ranks the job."""
    facts = analysis.facts
    if facts is None:
        return {}
    verdict = analysis.verdict
    logged = {
        metric.logged: ranks_figures.figure(analysis, metric.name) for metric in METRICS.values() if metric.logged
    }
    values = of_shares(ranks_figures.shares(analysis)) | {
        "samples_per_s": ranks_figures.rate_of(analysis) if facts.samples_known else None,
        "step_ms_p50": analysis.step_ms.get("p50"),
        "step_ms_p95": analysis.step_ms.get("p95"),
        "verdict_share_pct": 100 * verdict.share if verdict.cause else None,
    }
    return measured(values | logged)


def measured(values: Mapping[str, float | None]) -> Values:
    """Those that are numbers."""
    return {name: float(v) for name, v in values.items() if v is not None and math.isfinite(v)}


Gauge = tuple[str, str, float]
"""Name without the leading `whyidle_`, help, and the factor from the flat figure's unit to Prometheus' base unit."""
_BASE_UNITS = {"%": 1e-2, "ms": 1e-3}
"""Factors to them."""
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
STEPS: Gauge = ("steps", "Steps recorded.", 1.0)
SHARE: Gauge = (
    *("time_share_ratio", "Share of wall time by what the device did or waited for; the parts of a run sum to 1."),
    1e-2,
)
VERDICT: Gauge = ("verdict_info", "Always 1; labels name the cause and its severity.", 1.0)
GAUGES: dict[str, Gauge] = {
    "samples_per_s": ("samples_per_second", "Samples trained per second.", 1.0),
    **{
        metric.logged: (metric.gauge, metric.meaning, _BASE_UNITS.get(metric.unit, 1.0))
        for metric in METRICS.values()
        if metric.gauge
    },
    "verdict_share_pct": ("verdict_share_ratio", "Share of wall time that the verdict's cause explains.", 1e-2),
}


def prometheus_of(view: Snapshot, analysis: Analysis | None, name: str) -> str:
    """Write the last seconds of a run that is being recorded.

    Args:
        analysis: what `view` is made of; `None` before the first step.
        name: what the run is called in the labels.
    """
    values = {} if analysis is None else of_run(analysis)
    emulated = any(device.emulated for device in view.devices)
    known = {"run": name, "device": view.device, "device_kind": "emulated" if emulated else "", "of": "recent"}
    labels = {label: value for label, value in known.items() if value}
    samples: list[tuple[Gauge, dict[str, str], float | None]] = [(STEPS, {}, view.steps or None)]
    samples += [(SHARE, {"part": part}, values.get(_of_part(part))) for part in PARTS]
    samples += [(gauge, {}, values.get(figure)) for figure, gauge in GAUGES.items()]
    if (verdict := view.verdict) is not None and verdict.cause is not None:
        samples.append((VERDICT, {"cause": str(verdict.cause), "severity": verdict.severity}, 1))
    text, begun = "", set[Gauge]()
    for gauge, further, value in samples:
        if value is not None:
            of, about, factor = gauge
            text += "" if gauge in begun else f"# HELP whyidle_{of} {about}\n# TYPE whyidle_{of} gauge\n"
            begun.add(gauge)
            pairs = (f'{label}="{plain(given).translate(_ESCAPED)}"' for label, given in (labels | further).items())
            text += f"whyidle_{of}{{{','.join(pairs)}}} {float(value * factor)!r}\n"
    return text


FIGURES = ("file of figures that whyidle wrote", rb"# HELP whyidle_")
"""The Prometheus file, in words, and how every such file begins, as a pattern."""
PROMETHEUS_SECONDS = 10.0
LEAST_SECONDS = 1.0
"""Between two looks, however often figures are asked for."""


class Figures:
    """Call `tick` about once a second, `finish` at the end. Neither ever raises."""

    def __init__(self, folder: Path, textfile: Path | None = None) -> None:
        """`folder`: of the run, which may be made later. `textfile`: the Prometheus file to keep.

        Raises:
            WhyidleError: there is no folder for it, or something is there that is no file, or that we did not write.
        """
        if textfile is not None:
            if not textfile.parent.is_dir():
                raise WhyidleError(
                    f"cannot write {textfile}: {textfile.parent} is no folder. Name another with --prometheus."
                )
            _require_file(textfile)
        self._folder = folder
        self._textfile = textfile
        self._reader: RecentReader | None = None
        self._due = 0.0

    def tick(self) -> None:
        if time.monotonic() < self._due:
            return
        every = wanted(self._folder)
        if every is None and self._textfile is None:
            return
        begun = time.process_time()
        with suppress(Exception):
            self._reader = self._reader or RecentReader(self._folder)
            view = self._reader.snapshot()
            # What one of the two cannot have, the other still gets.
            if self._reader.analysis is not None and every is not None:
                with suppress(Exception):
                    tell(self._folder, told_of(view.steps, self._reader.analysis))
            self._keep(self._reader)
        asked = [seconds for seconds in (every, PROMETHEUS_SECONDS if self._textfile else None) if seconds]
        # A look at a very busy recording takes longer: never more than a tenth of a CPU.
        self._due = time.monotonic() + max(LEAST_SECONDS, min(asked), 10 * (time.process_time() - begun))

    def _keep(self, reader: RecentReader) -> None:
        """Write the Prometheus file, where one is kept. Raises OSError or WhyidleError: it cannot be written."""
        if self._textfile is not None:
            _require_file(self._textfile)
            view = reader.snapshot()
            write_text(self._textfile, prometheus_of(view, reader.analysis, self._folder.name), named=True)

    def finish(self) -> None:
        """Leave the last seconds in the Prometheus file; say so where that is impossible."""
        if self._textfile is None:
            return
        try:
            self._keep(self._reader or RecentReader(self._folder))
        except Exception as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            with suppress(OSError):
                print(plain(f"whyidle: {self._textfile} holds no figures of this run: {why}."), file=sys.stderr)


def _require_file(path: Path) -> None:
    """Refuse what is there and no file: a pipe that nobody reads would hold up who writes to it,
    and with that the training's output; and a file that we did not write."""
    if path.exists() and not path.is_file():
        raise WhyidleError(f"cannot write {path}: it is no file. Name a file with --prometheus.")
    refuse_recorded(path, FIGURES, " with --prometheus")
