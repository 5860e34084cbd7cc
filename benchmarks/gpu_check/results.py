"""What the checks saw, in a folder: `results.json`, `results.md` made of it, and `log.gz`.

All three are written after each check, so that whoever is killed has lost no more than the check it was at.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .checks import FAIL, NOT_MEASURED, PASS, RUNNING, Check, Seen

JSON, TABLE, LOG = "results.json", "results.md", "log.gz"
LOG_BYTES = 400_000
"""Of one check: the log's last part counts."""


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

    def take(self, other: Path) -> None:
        """Results of another folder too, where this one has none of that stage."""
        theirs = json.loads((other / JSON).read_text())
        own = {row["stage"] for row in self.rows}
        self.document["machine"] = self.document["machine"] or theirs["machine"]
        self.document["checks"] += [row for row in theirs["checks"] if row["stage"] not in own]
        with open(self.folder / LOG, "ab") as file:
            file.write((other / LOG).read_bytes() if (other / LOG).exists() else b"")
        self._write()

    def count(self, outcome: str) -> int:
        return sum(row["outcome"] == outcome for row in self.rows)

    def summary(self) -> str:
        return f"{self.count(PASS)} passed, {self.count(FAIL)} failed, {self.count(NOT_MEASURED)} not measured"

    def _add(self, stage: str, check: str, expected: str, seen: Seen, outcome: str, seconds: float) -> None:
        self.rows.append(
            {
                "stage": stage,
                "of": check,
                "check": seen.check or check,
                "expected": expected,
                "outcome": outcome,
                "seen": seen.text,
                "figures": seen.figures,
                "seconds": round(seconds, 1),
            }
        )

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
