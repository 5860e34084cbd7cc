"""One recording of a running process: looks at its stacks, states, and the sampler, into a run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...interrupts import held
from ...record.attached import write_states
from ...record.run import create_run, update_run
from ..sampler.schedule import NS_PER_S
from ..sampler.stack_looks import StackLooks
from ..sampler.stack_options import StackOptions
from ..sampler.start import start_sampler
from ..stacks.memory import Gone, Unreadable
from ..stacks.reader import RemotePython
from .states import States
from .target import Target, device_kind, is_python

TICK_S = 0.05
KEPT_EVERY_NS = 20 * NS_PER_S
"""How often the states are written: a crash of this command loses so much of them."""

REFUSED = (
    "No right to look into the process (ptrace), so its stacks were not read. Three ways to get it: run it as "
    "`sudo whyidle attach {pid}`; give the right (in a container `--cap-add SYS_PTRACE`, or "
    "`sysctl kernel.yama.ptrace_scope=0` for processes of your own); or start the training with `whyidle run`, which "
    "needs no right."
)
UNREADABLE = "Stacks were not read: {reason}."


@dataclass(frozen=True)
class Progress:
    """Where a recording stands."""

    seconds: float
    processes: int


def record(target: Target, folder: Path, rate: float, seconds: float | None, tell: Callable[[Progress], None]) -> str:
    """Record until `seconds` are over, the process ends or Ctrl-C comes; returns which: `duration`, `target`, `user`.

    Raises:
        RecordError: the run folder cannot be written.
        KeyboardInterrupt: Ctrl-C came a second time.
    """
    states = States(target.pid, rate)
    states.tick(time.monotonic_ns(), last=True)
    # Ctrl-C ends the watching. It does not come between starting a program and knowing of it.
    with held(expected=1) as interrupts:
        create_run(folder, _description(target, rate, states.pids))
        notes: list[str] = []
        looks = StackLooks(folder, target.pid, StackOptions(rate, within=False), notes.append, lambda: states.trainings)
        hindered = _hindered(states.pids)
        sampler = start_sampler(folder, target.pid)
        begin_ns = time.monotonic_ns()
        why = "user"
        try:
            why = _watch(target, folder, seconds, states, looks, tell, begin_ns, interrupts)
            # Of a process that has ended its counters are those of the last look.
            states.tick(time.monotonic_ns(), last=True)
        finally:
            # Whatever happens, nothing of ours is left running.
            looks.close()
            sampler.stop()
            notes += _keep(folder, states)
            if not looks.made:
                hindered = hindered or _hindered(states.pids)
                notes += _why_unread(target.pid, hindered)
            recorded_s = (time.monotonic_ns() - begin_ns) / NS_PER_S
            notes = [*target.notes, *notes, *([sampler.error] if sampler.error else []), *_left(target, why)]
            update_run(
                folder,
                {
                    "ended": {"status": "ok", "error": None, "exit_code": None},
                    "attach": _facts(target, rate)
                    | {"seconds": recorded_s, "why": why}
                    | {"refused": not looks.made and any(each.refused for each in hindered)},
                    "notices": list(dict.fromkeys(notes)),
                },
            )
    return why


def _watch(
    target: Target,
    folder: Path,
    seconds: float | None,
    states: States,
    looks: StackLooks,
    tell: Callable[[Progress], None],
    begin_ns: int,
    interrupts: list[int],
) -> str:
    """Returns why it ended; a signal in `interrupts` is the user's wish."""
    kept_ns = begin_ns
    while not interrupts:
        now_ns = time.monotonic_ns()
        elapsed = (now_ns - begin_ns) / NS_PER_S
        states.tick(now_ns)
        if looks.wait_ns(now_ns) == 0:
            looks.look(now_ns, states.members)
        if now_ns - kept_ns >= KEPT_EVERY_NS:
            kept_ns = now_ns
            _keep(folder, states)
        tell(Progress(elapsed, len(states.pids)))
        if seconds is not None and elapsed >= seconds:
            return "duration"
        if not target.alive:
            return "target"
        time.sleep(min(TICK_S, looks.wait_ns(time.monotonic_ns()) / NS_PER_S))
    return "user"


def _keep(folder: Path, states: States) -> list[str]:
    """Write the states; what is to be noted of that."""
    try:
        write_states(folder, states.result())
    except OSError as error:
        return [f"What was seen could not be written in full: {error.strerror}."]
    return []


def _hindered(pids: Iterable[int]) -> list[Unreadable]:
    """Why the stacks of these Python processes cannot be read, of those for which that is so."""
    reasons = []
    for pid in pids:
        if is_python(pid) is False:
            continue
        try:
            RemotePython(pid).close()
        except Unreadable as error:
            reasons.append(error)
        except Gone:
            pass
    return reasons


def _why_unread(pid: int, hindered: list[Unreadable]) -> list[str]:
    if any(each.refused for each in hindered):
        return [REFUSED.format(pid=pid)]
    return [UNREADABLE.format(reason=each.reason) for each in hindered[:1]]


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
