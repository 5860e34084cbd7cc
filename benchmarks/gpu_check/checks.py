"""A check: what is expected, what was seen, and whether that was so. Stages have several, in their order.

What was seen lies in a folder: `results.json`, `results.md` made of it, and `log.gz`, all three written after each
check, so that whoever is killed has lost no more than the check it was at.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .rig import Rig

REPORTS = "GPU_TEST_REPORTS"
"""Environment: the file into which `tests/gpu/conftest.py` writes what became of each test, as it comes."""
PASS, FAIL, NOT_MEASURED, RUNNING = "pass", "fail", "not measured", "running"
JSON, TABLE, LOG = "results.json", "results.md", "log.gz"
LOG_BYTES = 400_000
"""Of one check: the log's last part counts."""


class NotMeasured(Exception):
    """What a check needs is not here; the message says what."""


@dataclass(frozen=True)
class Seen:
    """What a check saw."""

    right: bool | None
    """Whether that is what was expected; `None`: it could not be measured."""
    text: str
    figures: dict[str, Any] = field(default_factory=dict)
    check: str = ""
    """Where a check has several rows: which one this is."""

    @property
    def outcome(self) -> str:
        return NOT_MEASURED if self.right is None else PASS if self.right else FAIL


Run = Callable[["Rig"], "Seen | Iterable[Seen]"]


@dataclass(frozen=True)
class Check:
    name: str
    expected: str
    run: Run


class Stage:
    """Checks that are run together.

    Args:
        limit_s: seconds after which it is stopped, whatever it is at.
    """

    def __init__(self, name: str, title: str, limit_s: float) -> None:
        self.name = name
        self.title = title
        self.limit_s = limit_s
        self.checks: list[Check] = []

    def check(self, expected: str) -> Callable[[Run], Run]:
        """Makes a check of a function whose name says what it is about."""

        def add(run: Run) -> Run:
            self.checks.append(Check(run.__name__.replace("_", " "), expected, run))
            return run

        return add


class Results:
    """The results in a folder; those of earlier stages that lie there are kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.document: dict[str, Any] = {"format": "whyidle-gpu-check", "version": 1, "machine": {}, "checks": []}
        self.load()

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.document["checks"]
        return rows

    def load(self) -> None:
        """Read what another process has written meanwhile."""
        if (self.folder / JSON).exists():
            self.document = json.loads((self.folder / JSON).read_text())

    def describe(self, machine: dict[str, Any]) -> None:
        self.document["machine"] = {"date": time.strftime("%Y-%m-%d", time.gmtime())} | machine
        self._write()

    def forget(self, stage: str) -> None:
        """What a stage saw an earlier time."""
        self.rows[:] = [row for row in self.rows if row["stage"] != stage]
        self._write()

    def begin(self, stage: str, check: str, expected: str) -> None:
        """A check runs from here on; what it saw an earlier time is gone."""
        self.rows[:] = [row for row in self.rows if (row["stage"], row["of"]) != (stage, check)]
        self._add(stage, check, expected, Seen(None, ""), RUNNING, 0.0)
        self._write()

    def end(self, stage: str, check: Check, seen: Sequence[Seen], seconds: float, log: str) -> None:
        self.rows[:] = [row for row in self.rows if row["outcome"] != RUNNING]
        for row in seen:
            self._add(stage, check.name, check.expected, row, row.outcome, seconds)
            print(f"{row.outcome:13} {row.check or check.name}: {row.text}", flush=True)
        self._write()
        head = f"== {stage}: {check.name} ({seconds:.1f} s)\n"
        words = "".join(f"{row.outcome}: {row.check} {row.text}\n" for row in seen)
        with open(self.folder / LOG, "ab") as file:  # a gzip file may be several, one behind the other
            file.write(gzip.compress((head + words + log[-LOG_BYTES:] + "\n").encode(errors="replace")))

    def stopped(self, why: str) -> None:
        """The process that ran checks has ended: whichever it was at has failed."""
        for row in self.rows:
            if row["outcome"] == RUNNING:
                row.update(outcome=FAIL, seen=why)
        self._write()

    def leave_out(self, stage: str, checks: Sequence[Check], why: str) -> None:
        for check in checks:
            self._add(stage, check.name, check.expected, Seen(None, why), NOT_MEASURED, 0.0)
        self._write()

    def done(self, stage: str) -> set[str]:
        """Checks of a stage that have a result."""
        return {row["of"] for row in self.rows if row["stage"] == stage and row["outcome"] != RUNNING}

    def count(self, outcome: str) -> int:
        return sum(row["outcome"] == outcome for row in self.rows)

    def summary(self) -> str:
        return f"{self.count(PASS)} passed, {self.count(FAIL)} failed, {self.count(NOT_MEASURED)} not measured"

    def _add(self, stage: str, check: str, expected: str, seen: Seen, outcome: str, seconds: float) -> None:
        row = {"stage": stage, "of": check, "check": seen.check or check, "expected": expected, "outcome": outcome}
        self.rows.append(row | {"seen": seen.text, "figures": seen.figures, "seconds": round(seconds, 1)})

    def _write(self) -> None:
        _replace(self.folder / JSON, json.dumps(self.document, indent=1, default=str) + "\n")
        _replace(self.folder / TABLE, self._table())

    def _table(self) -> str:
        machine = self.document["machine"]
        lines = ["# GPU check", "", ", ".join(f"{name} {value}" for name, value in machine.items()) + ".", ""]
        lines += [f"{self.summary()}.", "", "| stage | check | expected | seen | |", "|---|---|---|---|---|"]
        for row in self.rows:
            cells = (row["stage"], row["check"], row["expected"], row["seen"], row["outcome"])
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
        return "\n".join(lines) + "\n"


def _replace(path: Path, text: str) -> None:
    beside = path.with_name(f".{path.name}.new")
    beside.write_text(text)
    beside.replace(path)


def machine_facts() -> dict[str, Any]:
    """What the checks ran on, by torch."""
    import torch

    import whyidle

    gpus = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return {
        "GPU": " and ".join(f"{gpu.name} ({gpu.total_memory / 1e9:.0f} GB)" for gpu in gpus) or "none",
        "whyidle": whyidle.__version__,
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "CUDA": torch.version.cuda,
        "CPUs": os.cpu_count(),
    }


def run_checks(
    stage: Stage, rig: Rig, results: Results, names: Sequence[str] | None = None, stop_at_failure: bool = False
) -> None:
    """Run checks of a stage, all or those named, and write each result as it comes."""
    for check in stage.checks:
        if names is not None and check.name not in names:
            continue
        results.begin(stage.name, check.name, check.expected)
        began = time.perf_counter()
        rig.log = io.StringIO()
        rows = _rows(check, rig)
        results.end(stage.name, check, rows, time.perf_counter() - began, rig.log.getvalue())
        if stop_at_failure and any(row.right is False for row in rows):
            return


def _rows(check: Check, rig: Rig) -> list[Seen]:
    try:
        seen = check.run(rig)
        return [seen] if isinstance(seen, Seen) else list(seen)
    except (NotMeasured, rig.unplayed) as missing:
        return [Seen(None, str(missing))]
    except Exception as error:
        rig.log.write(traceback.format_exc())
        return [Seen(False, f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}")]
