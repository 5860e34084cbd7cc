"""One recording of a running process: stacks, states, and the sampler, into a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...interrupts import held
from ...record.attached import Thread, write_stacks, write_states
from ...record.run import create_run, update_run
from ..sampler.schedule import NS_PER_S
from ..sampler.start import start_sampler
from .spy import Spy
from .states import States
from .target import Target, device_kind

TICK_S = 0.05


@dataclass(frozen=True)
class Progress:
    """Where a recording stands."""

    seconds: float
    processes: int
    threads: list[Thread]
    fresh: bool
    """Stacks have come in since the last time."""


def record(
    target: Target,
    folder: Path,
    rate: float,
    seconds: float | None,
    spy_program: str | None,
    tell: Callable[[Progress], None],
) -> str:
    """Record until `seconds` are over, the process ends or Ctrl-C comes; returns which: `duration`, `target`, `user`.

    Raises:
        RecordError: the run folder cannot be written.
        KeyboardInterrupt: Ctrl-C came a second time.
    """
    states = States(target.pid, rate)
    states.tick(time.monotonic_ns(), last=True)
    spy = Spy(folder, target.pid, rate, spy_program, lambda: states.pids)
    # Ctrl-C ends the watching, a second one the wait for py-spy.
    # Neither comes between starting a program and knowing of it.
    with held(expected=1, then=spy.kill) as interrupts:
        create_run(folder, _description(target, rate, states.pids))
        sampler = start_sampler(folder, target.pid)
        begin_ns = time.monotonic_ns()
        why = "user"
        try:
            why = _watch(target, folder, seconds, states, spy, tell, begin_ns, interrupts)
            # Of a process that has ended the stacks stay; its counters are those of the last look.
            states.tick(time.monotonic_ns(), last=True)
        finally:
            # Whatever happens, nothing of ours is left running.
            spy.finish()
            sampler.stop()
            _keep(folder, states, spy)
            recorded_s = (time.monotonic_ns() - begin_ns) / NS_PER_S
            notes = [*target.notes, *spy.notes, *([sampler.error] if sampler.error else []), *_left(target, why)]
            update_run(
                folder,
                {
                    "ended": {"status": "ok", "error": None, "exit_code": None},
                    "attach": _facts(target, rate)
                    | {"seconds": recorded_s, "why": why, "errors": spy.errors, "behind": spy.behind}
                    | {"refused": spy.refused},
                    "notices": notes,
                },
            )
    return why


def _watch(
    target: Target,
    folder: Path,
    seconds: float | None,
    states: States,
    spy: Spy,
    tell: Callable[[Progress], None],
    begin_ns: int,
    interrupts: list[int],
) -> str:
    """Returns why it ended; a signal in `interrupts` is the user's wish."""
    while not interrupts:
        now_ns = time.monotonic_ns()
        elapsed = (now_ns - begin_ns) / NS_PER_S
        fresh = spy.tick(now_ns)
        states.tick(now_ns)
        if fresh:
            _keep(folder, states, spy)
        tell(Progress(elapsed, len(states.pids), spy.threads, fresh))
        if seconds is not None and elapsed >= seconds:
            return "duration"
        if not target.alive:
            return "target"
        time.sleep(TICK_S)
    return "user"


def _keep(folder: Path, states: States, spy: Spy) -> None:
    try:
        write_states(folder, states.result(spy.missed))
        write_stacks(folder, spy.threads)
    except OSError as error:
        note = f"What was seen could not be written in full: {error.strerror}."
        if note not in spy.notes:
            spy.notes.append(note)


def _left(target: Target, why: str) -> list[str]:
    """A process that stands still at the end. Nothing here stops one, so nothing here sets one going again."""
    if why != "target" and target.state in "Tt":
        return [
            f"Process {target.pid} is stopped, by a signal or a debugger; whyidle stops no process and leaves it so."
        ]
    return []


def _facts(target: Target, rate: float) -> dict[str, Any]:
    return {"pid": target.pid, "name": target.name, "rate": rate}


def _description(target: Target, rate: float, pids: list[int]) -> dict[str, Any]:
    kind = device_kind(pids)
    device: dict[str, Any] | None = None
    if kind == "cpu":
        device = {"kind": "cpu", "title": "the CPU", "count": 1}
    elif kind == "cuda":
        uuids = _gpus_of(set(pids))
        title = "GPU" if len(uuids) < 2 else f"{len(uuids)} GPUs"
        device = {"kind": "cuda", "title": title, "count": max(1, len(uuids))}
        device |= {"uuids": uuids} if uuids else {}
    return {
        "attach": _facts(target, rate) | {"seconds": None, "why": None},
        "command": list(target.command),
        "python": None,
        **({"device": device} if device else {}),
    }


def _gpus_of(pids: set[int]) -> list[str]:
    """UUIDs of the GPUs on which one of these processes has a context; none where the driver does not tell.

    In a container the driver may give the host's process ids, which match none: then nothing is known.
    """
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:
        return []
    found = []
    for index in range(_or(0, pynvml.nvmlDeviceGetCount)):
        handle = _or(None, pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue
        if any(process.pid in pids for process in _or([], pynvml.nvmlDeviceGetComputeRunningProcesses, handle)):
            uuid = _or(None, pynvml.nvmlDeviceGetUUID, handle)
            if uuid is not None:
                found.append(uuid.decode() if isinstance(uuid, bytes) else str(uuid))
    return found


def _or(otherwise: Any, call: Any, *arguments: Any) -> Any:
    """What the driver answers, or something else where it refuses."""
    try:
        return call(*arguments)
    except Exception:
        return otherwise
