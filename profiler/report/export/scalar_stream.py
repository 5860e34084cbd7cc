"""Keeps flat figures of a recording current while it is made: for `whyidle.log_to`, and as a Prometheus file.

The command that records does this, about every ten seconds, so that the training computes nothing. Nothing is read
unless somebody asked for it. The file is in Prometheus' text format, for node_exporter's textfile collector: gauges in
base units. What was not measured is left out. Figures of an emulated device carry the label `device_kind="emulated"`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ...analyse.recent.reader import RecentReader
from ...analyse.recent.snapshot import Snapshot
from ...analyse.run.metrics import METRICS
from ...analyse.run.stall_breakdown import PARTS
from ...errors import WhyidleError
from ...record.files import plain, write_text
from ...record.run import refuse_recorded
from ...record.scalars import tell, wanted
from . import scalars

Gauge = tuple[str, str, float]
"""Name without the leading `whyidle_`, help, and the factor from the flat figure's unit to Prometheus' base unit."""
_BASE_UNITS = {"%": 1e-2, "ms": 1e-3}
"""Factors to them."""
GAUGES: dict[str, Gauge] = {
    "samples_per_s": ("samples_per_second", "Samples trained per second.", 1.0),
    "step_ms_p50": ("step_seconds_median", "Median length of a step.", 1e-3),
    "step_ms_p95": ("step_seconds_p95", "Length that 95 % of the steps stay below.", 1e-3),
    **{
        metric.logged: (metric.gauge, metric.meaning, _BASE_UNITS.get(metric.unit, 1.0))
        for metric in METRICS.values()
        if metric.gauge
    },
    "verdict_share_pct": ("verdict_share_ratio", "Share of wall time that the verdict's cause explains.", 1e-2),
}
SHARE: Gauge = (
    *("time_share_ratio", "Share of wall time by what the device did or waited for; the parts of a run sum to 1."),
    1e-2,
)


def prometheus_of(view: Snapshot, name: str) -> str:
    """Write the last seconds of a run that is being recorded; `name`: what it is called in the labels."""
    values = scalars.of_snapshot(view).values
    emulated = any(device.emulated for device in view.devices)
    known = {"run": name, "device": view.device, "device_kind": "emulated" if emulated else "", "of": "recent"}
    labels = {label: value for label, value in known.items() if value}

    def metric(gauge: Gauge, *samples: tuple[Mapping[str, str], float | None]) -> Iterator[str]:
        """All samples of a metric stand together, as the format wants it."""
        name, text, scale = gauge
        measured = [({**labels, **further}, value) for further, value in samples if value is not None]
        if measured:
            yield f"# HELP whyidle_{name} {text}\n# TYPE whyidle_{name} gauge\n"
        for named, value in measured:
            pairs = ",".join(f'{label}="{_escaped(given)}"' for label, given in named.items())
            yield f"whyidle_{name}{{{pairs}}} {float(value * scale)!r}\n"

    parts = {part: scalars.BUSY if part == "compute" else f"{part}_pct" for part in PARTS}
    lines = [
        *metric(("steps", "Steps recorded.", 1.0), ({}, view.steps or None)),
        *metric(SHARE, *(({"part": part}, values.get(name)) for part, name in parts.items())),
    ]
    for figure, gauge in GAUGES.items():
        lines += metric(gauge, ({}, values.get(figure)))
    if (verdict := view.verdict) is not None and verdict.cause is not None:
        told = {"cause": str(verdict.cause), "severity": verdict.severity}
        lines += metric(("verdict_info", "Always 1; labels name the cause and its severity.", 1.0), (told, 1))
    return "".join(lines)


def _escaped(value: str) -> str:
    line: str = plain(value)
    return line.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
            if _is_no_file(textfile):
                raise WhyidleError(f"cannot write {textfile}: it is no file. Name a file with --prometheus.")
            refuse_recorded(textfile, FIGURES, " with --prometheus")
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
            if view.steps and every is not None:
                with suppress(Exception):
                    tell(self._folder, scalars.of_snapshot(view))
            if self._textfile is not None:
                _keep(self._textfile, prometheus_of(view, self._folder.name))
        asked = [seconds for seconds in (every, PROMETHEUS_SECONDS if self._textfile else None) if seconds]
        # A look at a very busy recording takes longer: never more than a tenth of a CPU.
        self._due = time.monotonic() + max(LEAST_SECONDS, min(asked), 10 * (time.process_time() - begun))

    def finish(self) -> None:
        """Leave the last seconds in the Prometheus file; say so where that is impossible."""
        if self._textfile is None:
            return
        try:
            view = (self._reader or RecentReader(self._folder)).snapshot()
            _keep(self._textfile, prometheus_of(view, self._folder.name))
        except Exception as error:
            why = (isinstance(error, OSError) and error.strerror) or error
            with suppress(OSError):
                print(plain(f"whyidle: {self._textfile} holds no figures of this run: {why}."), file=sys.stderr)


def _is_no_file(path: Path) -> bool:
    """A pipe that nobody reads would hold up who writes to it, and with that the training's output."""
    return path.exists() and not path.is_file()


def _keep(textfile: Path, text: str) -> None:
    """Write it.

    Raises:
        OSError: it cannot be written.
        RecordError: another file has taken its place.
    """
    if _is_no_file(textfile):
        raise OSError(f"{textfile} is no file")
    refuse_recorded(textfile, FIGURES)
    write_text(textfile, text, named=True)
