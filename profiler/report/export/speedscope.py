"""All stack samples with their times, for https://www.speedscope.app: a sampled profile per thread, in seconds.

A sample stands for the time until the next one of the same thread; the last for their usual distance. One
that failed is an empty stack, so its time has no name instead of its neighbour's.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...analyse.where.looks import Looks, ProcessLooks
from ...record.schema import NOT_MEASURED
from ...record.stacks import Call

SCHEMA = "https://www.speedscope.app/file-format-schema.json"
NS_PER_S = 1e9


@dataclass(frozen=True)
class ProfiledProcess:
    """One that trains."""

    folder: Path
    """Of its recording."""
    looks: ProcessLooks | None
    host: str = ""
    """Times of one host begin at its first look: hosts have clocks of their own."""
    prefix: str = ""
    """Before the names of its threads, where several processes train."""


def speedscope_of(processes: Sequence[ProfiledProcess]) -> str | None:
    """Make the file's content; `None` without stack samples."""
    threads = [
        (told, looks, (process.folder, process.host))
        for process in processes
        for told, looks in _threads(process.prefix, process.looks)
    ]
    if not threads:
        return None
    begins: dict[tuple[Path, str], int] = {}
    for _, looks, clock in threads:
        first = int(looks.records["t_ns"][0])
        begins[clock] = min(first, begins.get(clock, first))
    frames: dict[Call, int] = {}
    content: dict[str, Any] = {
        "$schema": SCHEMA,
        "exporter": f"whyidle {__version__}",
        "name": processes[0].folder.resolve().name,
        "activeProfileIndex": 0,
        "profiles": [_profile(name, looks, begins[clock], frames) for name, looks, clock in threads],
    }
    content["shared"] = {"frames": [_frame(call) for call in frames]}
    return json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"


def _threads(prefix: str, looks: ProcessLooks | None) -> Iterator[tuple[str, Looks]]:
    """Name each sampled thread by what it is for; the training thread first."""
    if looks is None:
        return
    roles = (
        ("training", looks.training),
        ("worker", looks.workers),
        ("thread that sends or pins batches", looks.sending),
        ("other thread of the training", looks.threads),
        ("other process", looks.others),
    )
    for role, whole in roles:
        several = list(_each(whole))
        for number, each in enumerate(several, 1):
            yield f"{prefix}{role}{f' {number}' if len(several) > 1 else ''}", each


def _each(looks: Looks) -> Iterable[Looks]:
    """By thread, in the order in which they were first seen."""
    # Of threads that send and threads that pin, the looks come one kind after the other.
    looks = Looks(np.sort(looks.records, order="t_ns", kind="stable"), looks.table)
    threads = np.stack((looks.records["process"], looks.records["thread"]), axis=1)
    for process, thread in dict.fromkeys(map(tuple, threads.tolist())):
        mine = looks.kept((threads[:, 0] == process) & (threads[:, 1] == thread))
        yield mine


def _profile(name: str, looks: Looks, begin_ns: int, frames: dict[Call, int]) -> dict[str, Any]:
    at = looks.records["t_ns"]
    gaps = np.diff(at)
    usual = int(np.median(gaps)) if len(gaps) else 0
    samples = {
        number: []
        if number == NOT_MEASURED
        else [frames.setdefault(call, len(frames)) for call in looks.table.stack(number)]
        for number in dict.fromkeys(looks.records["stack"].tolist())
    }
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": int(at[0] - begin_ns) / NS_PER_S,
        "endValue": int(at[-1] + usual - begin_ns) / NS_PER_S,
        "samples": [samples[number] for number in looks.records["stack"].tolist()],
        "weights": (np.append(gaps, usual) / NS_PER_S).tolist(),
    }


def _frame(call: Call) -> dict[str, Any]:
    told: dict[str, Any] = {"name": call.function or "?"}
    if call.file:
        told["file"] = call.file
    if call.line > 0:
        told["line"] = call.line
    return told
