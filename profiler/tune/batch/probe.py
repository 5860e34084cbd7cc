"""One batch size tried in a process of its own, which takes nothing along when it runs out of memory."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...record.files import plain
from ...record.run import create_run
from ...record.tuning import WITHOUT_MEMORY
from ..bench.launch import KILLED, OUTPUT, Launch, last_lines, popen
from ..bench.watchdog import end_all, watched
from .ladder import LEAST_STEPS, Probe, ProbeOutcome, Try

STEPS = 20
"""Of the optimizer, where they do not take too long."""
STEPS_SECONDS = 10.0
"""From which three steps are enough."""
TICK_SECONDS = 0.05
LAST_LINES = 40


def child_probe(
    launch: Launch,
    folder: Path,
    was: int,
    *,
    first: Sequence[int] = (),
    began: float | None = None,
    on_tick: Callable[[], None] = lambda: None,
    notes: list[str] | None = None,
) -> Try:
    """A probe of what `launch` starts. See `capture.tuning.sized` for what happens in it.

    Args:
        folder: for what it prints; each probe has a folder of its own there, removed where all went well.
        was: the program's own batch size.
        first: samples to make the first batches of, where they differ in size.
        began: of the tuning, as `time.time()`: files that are older are not overwritten.
        notes: where to say what could not be done.
    """
    began = time.time() if began is None else began

    def probe(batch_size: int, seconds: float, /) -> Probe:
        place = folder / f"probe-{batch_size}"
        shutil.rmtree(place, ignore_errors=True)
        create_run(place, {"command": list(launch.command), "probe": batch_size})
        asked = {
            "batch_size": batch_size,
            "was": was,
            "steps": STEPS,
            "seconds": min(STEPS_SECONDS, seconds / 3),
            "first": list(first),
            "tuner": os.getpid(),
        }
        options = {"probe": asked, "tuner": os.getpid(), "began": began, "overwrite": launch.overwrite}
        begin = time.monotonic()
        with watched(launch.mark(place)):
            process = popen(list(launch.command), launch.environment(place, options), place / OUTPUT)
            try:
                while process.poll() is None and not _done(place) and time.monotonic() - begin < seconds:
                    time.sleep(TICK_SECONDS)
                    on_tick()
                ended = process.poll()
                done = _done(place)
            finally:
                # Also on Ctrl-C.
                end_all(launch.mark(place), process.pid)
                process.wait()
        spent = time.monotonic() - begin
        told = _told(place)
        found = _judge(told, done, ended, spent, place / OUTPUT)
        if notes is not None and first and told and not any(each.get("worst_first") for each in told):
            _once(notes, "The largest samples could not come first: what fits holds for samples in their usual order")
        if found.outcome == ProbeOutcome.OK:
            shutil.rmtree(place, ignore_errors=True)
        return found

    return probe


def _judge(told: list[dict[str, Any]], done: bool, ended: int | None, spent: float, output: Path) -> Probe:
    """What became of a command, by what its processes told, its exit code and what it printed."""
    steps = min((int(each["steps"]) for each in told), default=0)
    memory = _worst(told)
    refused = any(int(each["memory"].get("refused") or 0) for each in told)
    last = last_lines(output, LAST_LINES)
    said = next((line for line in reversed(last) if WITHOUT_MEMORY.search(line)), None)
    # A program that was stopped, or ended by itself, after steps enough has shown what it takes.
    finished = done or (ended in (None, 0) and steps >= LEAST_STEPS)
    if finished and not refused:
        if any(int(each["loaders"]) for each in told):
            return _probe(ProbeOutcome.OK, memory, steps, spent)
        why = "the program makes no DataLoader whose batch size could be changed"
        return _probe(ProbeOutcome.FAILED, memory, steps, spent, why)
    if refused or said is not None or ended in KILLED:
        killed = "the training was killed; the kernel does so when memory runs out"
        return _probe(
            ProbeOutcome.OOM, memory, steps, spent, plain(said.strip()) if said else killed if ended in KILLED else None
        )
    if ended is None:
        return _probe(ProbeOutcome.LATE, memory, steps, spent, f"it made {steps} optimizer steps in {spent:.0f} s")
    printed = f"; its last output: {plain(last[-1].strip())}" if last else ""
    why = f"the command ended with exit code {ended} after {steps} optimizer steps{printed}"
    return _probe(ProbeOutcome.FAILED, memory, steps, spent, why)


def _probe(outcome: str, memory: dict[str, Any], steps: int, seconds: float, why: str | None = None) -> Probe:
    return Probe(
        outcome,
        steps,
        memory.get("peak_bytes"),
        memory.get("capacity_bytes"),
        bool(memory.get("on_device")),
        int(memory.get("retries") or 0),
        why or (None if outcome == ProbeOutcome.OK else "out of memory"),
        seconds,
    )


def _told(folder: Path) -> list[dict[str, Any]]:
    """What each process that trained wrote last."""
    found = []
    for path in sorted(folder.glob("probe-*.json")):
        with suppress(OSError, ValueError):
            found.append(json.loads(path.read_text()))
    return found


def _done(folder: Path) -> bool:
    told = _told(folder)
    return bool(told) and all(each.get("done") for each in told)


def _worst(told: list[dict[str, Any]]) -> dict[str, Any]:
    """Of several ranks, the one with the least left."""

    def share(memory: dict[str, Any]) -> float:
        return float(memory.get("peak_bytes") or 0) / float(memory.get("capacity_bytes") or float("inf"))

    return max((dict(each["memory"]) for each in told), key=share, default={})


def _once(notes: list[str], note: str) -> None:
    if note not in notes:
        notes.append(note)
