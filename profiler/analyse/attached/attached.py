"""A recording from outside as a whole: who trains, what else runs, what the sampler saw, and notes on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...record.notices import read_notices
from ...record.run import ProcessStates, Run, read_states
from ...record.schema import DEVICE, HOST, STEP
from ...record.secret import left_out_note
from ...record.stacks import left_out_of
from ..run.resource_usage import Sampled, quality_notes, sampled
from ..run.window import Window, measured_or, or_nan, or_none
from ..where.looks import Looks, all_looks
from .trainers import Trainer, is_worker, threads_of, trainers_of

STILL = "Tt"
"""The kernel's letters of a stopped process."""
MOST_MISSED = 0.1
MOST_STOPPED = 0.05

UNKNOWN = (
    "which waits the device noticed: a wait is hidden while the device still has queued work",
    "time per step, batch size, samples per second",
    "whether batches are in pinned memory, and what their copies overlap with",
    "what a validation computes apart from what training does, where both run the same functions",
    "work of threads without Python (autograd's, NCCL's, a loader's in C++)",
)
"""What no look from outside tells."""


@dataclass(frozen=True)
class Attached:
    """Everything a report says."""

    info: dict[str, Any]
    seconds: float
    trainers: tuple[Trainer, ...]
    others: tuple[ProcessStates, ...]
    """Processes of the tree that neither train nor prepare batches."""
    sampled: Sampled | None
    foreign_cpus: float | None
    notes: tuple[str, ...] = ()
    stacks_read: bool = True
    training_seen: bool = True
    looks: Looks | None = None
    """All stack samples of the tree."""

    @property
    def device_kind(self) -> str | None:
        """`cpu` or `cuda`; `None` where that could not be read."""
        return (self.info.get("device") or {}).get("kind")

    @property
    def leading(self) -> Trainer | None:
        """Of several ranks the one the others wait for: it is held up most by what is its own."""
        return max(self.trainers, key=lambda t: (t.own, -t.share("ranks")), default=None)


def is_attached(run: Run) -> bool:
    """Whether the run was recorded from outside."""
    return isinstance(run.info.get("attach"), dict)


def attached(run: Run) -> Attached:
    """Summarise a recording from outside, finished or not.

    Raises:
        RecordError: a file of it is damaged.
    """
    facts = run.info["attach"]
    processes = [p for p in read_states(run.folder) if not p.ours]
    known = {p.pid for p in processes}
    looks = all_looks(run)
    threads = [t for t in threads_of(looks) if t.pid in known or not processes]
    host, device = run.records(HOST), run.records(DEVICE)
    window = _window(host)
    seen = None if window is None else sampled(window, device, host)
    foreign = _foreign(seen, run.info)
    on_cpu = (run.info.get("device") or {}).get("kind") == "cpu"
    trainers, training_seen = trainers_of(threads, processes, int(facts["pid"]), on_cpu)
    members = {t.pid for t in trainers} | {p.pid for p in processes if is_worker(p, threads)}
    told = facts.get("seconds")
    seconds = float(told) if isinstance(told, int | float) else max((p.seconds for p in processes), default=0.0)
    return Attached(
        info=run.info,
        seconds=seconds,
        trainers=tuple(trainers),
        others=tuple(p for p in processes if p.pid not in members),
        sampled=seen,
        foreign_cpus=foreign,
        notes=tuple(_notes(run, seen, window, foreign, processes, trainers)),
        stacks_read=bool(threads),
        looks=looks,
        training_seen=training_seen,
    )


def _window(host: Any) -> Window | None:
    if len(host) < 2:
        return None
    none = np.empty(0, dtype=STEP.dtype)
    return Window(int(host["t_ns"].min()), int(host["t_ns"].max()), none, 0, none)


def _foreign(seen: Sampled | None, info: dict[str, Any]) -> float | None:
    """CPUs that processes outside the tree kept busy."""
    cpus = (info.get("host") or {}).get("cpus")
    if seen is None or not isinstance(cpus, int):
        return None
    return or_none(seen.foreign_cpus(cpus, measured_or(seen.sampler_cpus)))


def _notes(
    run: Run,
    seen: Sampled | None,
    window: Window | None,
    foreign: float | None,
    processes: list[ProcessStates],
    trainers: list[Trainer],
) -> list[str]:
    facts, kind = run.info["attach"], (run.info.get("device") or {}).get("kind")
    # A training on the processor misses no driver.
    notices = [n for n in read_notices(run.folder) if kind != "cpu" or not n.startswith("No NVIDIA driver here")]
    notes = [*run.damaged, *(str(n) for n in run.info.get("notices", []) or []), *notices]
    if run.info.get("ended") is None:
        notes.append("The recording was not ended: it still runs, or it was killed.")
    if facts.get("why") == "target":
        notes.append("The process ended while it was observed.")
    stopped = max((_stopped(p) for p in processes), default=0.0)
    if stopped >= MOST_STOPPED:
        notes.append(f"A process of the tree was stopped from outside for {100 * stopped:.0f} % of the time.")
    missed = [t.by for t in trainers if t.by.missed > MOST_MISSED * (t.looks + t.by.missed)]
    if missed:
        share = max(t.missed / (t.looks + t.missed) for t in missed)
        notes.append(
            f"{100 * share:.0f} % of the training's stack samples failed, because the stack changed while it was read. "
            "They count as time in which the training ran, divided like its other running time."
        )
    if seen is None or window is None:
        notes.append("The sampler recorded nothing: utilisation and CPU figures are missing.")
    else:
        notes += quality_notes(
            seen,
            window,
            device_kind=str(kind or "cpu"),
            foreign_cpus=or_nan(foreign),
            own_processes=max(1, len(trainers)),
        )
    commands = [run.info.get("command"), *(each.command for each in processes)]
    notes += left_out_note(left_out_of(run.folder, commands))
    return list(dict.fromkeys(notes))


def _stopped(process: ProcessStates) -> float:
    return sum(process.states.get(letter, 0) for letter in STILL) / process.looks if process.looks else 0.0
