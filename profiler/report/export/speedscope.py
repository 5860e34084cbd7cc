"""All stack samples with their times, for https://www.speedscope.app: a sampled profile per thread, in seconds.

A sample stands for the time until the next one of the same thread; the last for their usual distance. One
that failed is an empty stack, so its time has no name instead of its neighbour's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
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
    threads = [(name, looks, process) for process in processes for name, looks in _threads(process)]
    if not threads:
        return None
    begins: dict[tuple[Path, str], int] = {}
    for _, looks, process in threads:
        first, clock = int(looks.records["t_ns"][0]), (process.folder, process.host)
        begins[clock] = min(first, begins.get(clock, first))
    frames: dict[Call, int] = {}
    profiles = [_profile(name, looks, begins[each.folder, each.host], frames) for name, looks, each in threads]
    named = ({"name": call.function or "?", "file": call.file, "line": max(0, call.line)} for call in frames)
    content = {
        "$schema": SCHEMA,
        "exporter": f"whyidle {__version__}",
        "name": processes[0].folder.resolve().name,
        "activeProfileIndex": 0,
        "profiles": profiles,
        "shared": {"frames": [{key: value for key, value in told.items() if value} for told in named]},
    }
    return json.dumps(content, allow_nan=False, separators=(",", ":")) + "\n"


def _threads(process: ProfiledProcess) -> Iterator[tuple[str, Looks]]:
    """Name each sampled thread by what it is for; the training thread first, others as they were first seen."""
    if (seen := process.looks) is None:
        return
    roles = {
        "training": seen.training,
        "worker": seen.workers,
        "thread that sends or pins batches": seen.sending,
        "other thread of the training": seen.threads,
        "other process": seen.others,
    }
    for role, whole in roles.items():
        # Of threads that send and threads that pin, the looks come one kind after the other.
        looks = Looks(np.sort(whole.records, order="t_ns", kind="stable"), whole.table)
        threads = np.stack((looks.records["process"], looks.records["thread"]), axis=1)
        several = list(dict.fromkeys(map(tuple, threads.tolist())))
        for number, thread in enumerate(several, 1):
            mine = looks.kept((threads == thread).all(axis=1))
            yield f"{process.prefix}{role}{f' {number}' if len(several) > 1 else ''}", mine


def _profile(name: str, looks: Looks, begin_ns: int, frames: dict[Call, int]) -> dict[str, Any]:
    at, stacks = looks.records["t_ns"], looks.records["stack"].tolist()
    gaps = np.diff(at)
    usual = int(np.median(gaps)) if len(gaps) else 0
    samples: dict[int, list[int]] = {NOT_MEASURED: []}
    for number in dict.fromkeys(stacks):
        if number != NOT_MEASURED:
            samples[number] = [frames.setdefault(call, len(frames)) for call in looks.table.stack(number)]
    return {
        "type": "sampled",
        "name": name,
        "unit": "seconds",
        "startValue": int(at[0] - begin_ns) / NS_PER_S,
        "endValue": int(at[-1] + usual - begin_ns) / NS_PER_S,
        "samples": [samples[number] for number in stacks],
        "weights": (np.append(gaps, usual) / NS_PER_S).tolist(),
    }
