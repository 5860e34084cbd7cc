"""Recorded runs with something added that their recording did not see, or something changed in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from whyidle.analyse.causes.finding import Finding
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.analyse.run.facts import Facts
from whyidle.record.reader import Records
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, HEADER_BYTES, NOT_MEASURED, STEP, Kind
from whyidle.record.segment import RecordWriter
from whyidle.scenarios.planted import MS, START

Rows = Iterable[Mapping[str, float]]
ON_CPU = {"device": {"kind": "cpu", "title": "a processor"}, "ended": {"status": "ok"}}


def rows_of(kind: Kind, rows: Rows) -> list[list[float]]:
    """Bodies of records of which only the given fields were measured."""
    names = [f.name for f in kind.fields[1:]]
    missing = kind.missing()
    return [[row.get(name, nothing) for name, nothing in zip(names, missing, strict=True)] for row in rows]


def records_of(kind: Kind, rows: Rows, first: int = 1) -> Records:
    """Records of which only the given fields were measured, numbered from the first."""
    spare = [0] * (len(kind.dtype) - len(kind.fields))
    made = [(number, *body, *spare) for number, body in enumerate(rows_of(kind, rows), first)]
    return np.array(made, dtype=kind.dtype)


def store(folder: Path, kind: Kind, rows: Rows, rank: int = 0, pid: int | None = None, closed: bool = True) -> Path:
    """A file of records of which only the given fields were measured; not `closed`: its writer was killed."""
    writer = RecordWriter(folder, kind, rank, pid)
    for body in rows_of(kind, rows):
        writer.append(*body)
    writer.close() if closed else writer.flush()
    return writer.path


def add(folder: Path, kind: Kind, rows: Rows) -> None:
    """Further records, after those of the training's own process if there are any."""
    paths = list(folder.glob(f"{kind.name}-*.rec"))
    if not paths:
        store(folder, kind, rows)
        return
    told = len(open_run(folder).records(kind))
    with paths[0].open("ab") as file:
        file.write(records_of(kind, rows, told + 1).tobytes())


def events_of(rows: Iterable[tuple[int, int, int, int]]) -> list[dict[str, float]]:
    """Rows of events: (when, what, value, end)."""
    return [dict(zip(("t_ns", "what", "value", "end_ns"), row, strict=True)) for row in rows]


def add_events(folder: Path, rows: Iterable[tuple[int, int, int, int]]) -> None:
    """Further events of the training: (when, what, value, end)."""
    add(folder, EVENT, events_of(rows))


def amend(folder: Path, change: Callable[[Records], object], kind: Kind = STEP) -> None:
    """Change what was recorded of the steps, or in other records."""
    (path,) = folder.glob(f"{kind.name}-*.rec")
    count = len(open_run(folder).records(kind))
    records = np.memmap(path, dtype=kind.dtype, mode="r+", offset=HEADER_BYTES, shape=(count,))
    change(records)
    records.flush()


def steps_of(folder: Path) -> Records:
    return open_run(folder).records(STEP)


def train_on_cpu(folder: Path, steps: Rows) -> Path:
    """A training on the processor; stamps in ms from the step's begin, `end` tells when it ended, `cpu_ms` what it ran.

    A step fetches for 10 ms, and computes until 5 ms before its end, unless said otherwise.
    """
    create_run(folder, ON_CPU)
    rows, begin = [], START
    for number, step in enumerate(steps):
        end = step.get("end", 100)
        stamps = {
            "fetch_begin_ns": 0,
            "fetch_end_ns": step.get("fetch", 10),
            "forward_begin_ns": step.get("fetch", 10),
            "optimizer_end_ns": end - step.get("gap", 5),
            "step_end_ns": end,
        }
        row: dict[str, float] = {name: begin + round(ms * MS) for name, ms in stamps.items()}
        row |= {"step": number, "epoch": 0, "flags": int(step.get("flags", 0)), "samples": 8, "overhead_ns": 0}
        row |= {"skipped": 0, "skipped_samples": 0}
        if "cpu_ms" in step:
            row["cpu_ns"] = round(step["cpu_ms"] * MS)
        rows.append(row)
        begin += round(end * MS)
    store(folder, STEP, rows)
    store(folder, EVENT, events_of([(START, 1, 0, NOT_MEASURED)]))
    return folder


def analysis_of_run(folder: Path) -> Analysis:
    return analyse(open_run(folder))


def facts_of_run(folder: Path) -> Facts:
    facts = analysis_of_run(folder).facts
    assert facts is not None
    return facts


def verdict_of_run(folder: Path) -> Finding:
    return analysis_of_run(folder).verdict


def found(folder: Path) -> dict[str | None, Finding]:
    """The findings by their cause."""
    return {finding.cause: finding for finding in analysis_of_run(folder).findings}


def evidence(finding: Finding) -> dict[str, Any]:
    return {each.what: each.value for each in finding.evidence}
