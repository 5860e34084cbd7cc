"""Workers of a loader that died: which, of what, and why, by limits and memory."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass

import numpy as np

from ...record.reader import Records, measured
from ...record.schema import NOT_MEASURED, EventKind
from .memory_growth import FULL_BYTES, FULL_LIMIT, OWNERS, kills_of

LOOKED_AT_NS = 10_000_000_000
"""How long before a death looks at the host may tell what it died of."""
SHM_FULL = 0.9
"""Share of /dev/shm in use from which it may have been full for a batch that did not fit."""
SMALL_SHM_BYTES = 1 << 30
_ALONE = "set `num_workers=0`: the training then runs the same code and names the line (`python -X faulthandler`)"
_MEMORY = (
    "use fewer workers, a smaller `prefetch_factor` or batch, or workers that keep less (input.memory); or get more "
    "memory for the job: `docker run --memory`, Kubernetes `resources.limits.memory`, `--mem` of `sbatch`"
)
_SHM = (
    "enlarge /dev/shm: `docker run --shm-size=8g` (or `--ipc=host`), in Kubernetes an emptyDir of medium Memory; or "
    "use fewer workers, or a smaller `prefetch_factor` or batch"
)


@dataclass(frozen=True)
class WorkerDeath:
    """One worker process that ended in the midst of its work."""

    pid: int
    worker: int | None
    """Its number in its loader, from 0; `None`: not known."""
    exit_code: int | None
    """Negative: the signal that killed it; `None`: not known."""
    at_s: float
    """Since the recording of the training began."""
    likely: str
    """The likely reason, half a sentence."""
    way_out: str

    @property
    def signal(self) -> str | None:
        """Name of the signal that killed it, such as `SIGKILL`; `None` where none did, or that is not known."""
        if self.exit_code is None or self.exit_code >= 0:
            return None
        with contextlib.suppress(ValueError):
            return signal.Signals(-self.exit_code).name
        return f"signal {-self.exit_code}"

    @property
    def said(self) -> str:
        """All of it in two sentences."""
        who = f"process {self.pid}" if self.worker is None else f"worker {self.worker} (process {self.pid})"
        if self.signal is not None:
            how = f"was killed by {self.signal}"
        else:
            how = "ended" if self.exit_code is None else f"ended with exit code {self.exit_code}"
        return f"{who} {how} {self.at_s:.0f} s after the training began: {self.likely}. What to do: {self.way_out}."


def deaths_of(events: Records, host: Records, limits: Records) -> tuple[WorkerDeath, ...]:
    """Those that the training was told of.

    Args:
        events: of one training process.
        host: HOST records.
        limits: MEMORY records.
    """
    died = events[events["what"] == EventKind.WORKER_DIED]
    who = events[events["what"] == EventKind.DIED_WORKER]
    begins = events["t_ns"][events["what"] == EventKind.TRAINING_BEGIN]
    found = []
    for death, told in zip(died, who, strict=False):
        t_ns, number = int(death["t_ns"]), int(told["value"]) >> 32
        code = None if death["value"] == NOT_MEASURED else int(death["value"])
        before = host[(host["t_ns"] <= t_ns) & (host["t_ns"] > t_ns - LOOKED_AT_NS)]
        likely, way_out = _reason(code, before, limits)
        since_ns = int(begins[0]) if len(begins) else int(events["t_ns"][0])
        pid = int(told["value"]) & 0xFFFF_FFFF
        found.append(WorkerDeath(pid, number - 1 if number else None, code, (t_ns - since_ns) / 1e9, likely, way_out))
    return tuple(found)


def said_of(deaths: tuple[WorkerDeath, ...]) -> str:
    """The first of them, and how many followed."""
    more = "" if len(deaths) == 1 else f" {len(deaths) - 1} more died with it or later."
    first = deaths[0].said
    return f"{first[0].upper()}{first[1:]}{more}"


def _reason(code: int | None, before: Records, limits: Records) -> tuple[str, str]:
    """(likely reason, way out). `before`: looks at the host shortly before."""
    if code is None:
        return "how it ended is not known", _ALONE
    if code >= 0:
        return "the program, or a library, ended the process (sys.exit, os._exit)", _ALONE
    if code == -signal.SIGKILL:
        return _killed(before, limits)
    if code == -signal.SIGBUS:
        return _bus_error(before)
    if code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
        return "somebody, or a batch system at its time limit, ended it", "ask who sends signals to the job"
    return "compiled code of a library crashed in it", _ALONE


def _killed(before: Records, limits: Records) -> tuple[str, str]:
    kills, left = kills_of(limits), measured(before["memory_available_bytes"])
    limited = limits[limits["whose"] != NOT_MEASURED][-1:]
    limit = int(limited["limit_bytes"][0]) if len(limited) else None
    of = ""
    if limit is not None:
        of = f" at the limit of {OWNERS.get(int(limited['whose'][0]), 'its control group')}, {_size(limit)}"
    if kills:
        counted = "1 process was" if kills == 1 else f"{kills} processes were"
        return f"the kernel killed it for lack of memory{of} ({counted} killed for that meanwhile)", _MEMORY
    full = FULL_BYTES if limit is None else min(FULL_BYTES, FULL_LIMIT * limit)
    if not np.isnan(left).all() and np.nanmin(left) < full:
        return f"lack of memory{of}: {_size(float(np.nanmin(left)))} were left shortly before", _MEMORY
    if kills == 0:
        return (
            "not lack of memory, since the kernel counted no such kill: somebody, or a batch system, killed it",
            "ask who sends signals to the job",
        )
    return "usually the kernel does this for lack of memory, which was not measured here", _MEMORY


def _bus_error(before: Records) -> tuple[str, str]:
    known = before[(before["shm_used_bytes"] != NOT_MEASURED) & (before["shm_total_bytes"] > 0)]
    if not len(known):
        return "usually a full /dev/shm, through which batches are handed over", _SHM
    used, total = int(known["shm_used_bytes"].max()), int(known["shm_total_bytes"][-1])
    of = f"{_size(used)} of its {_size(total)} were in use shortly before"
    if used >= SHM_FULL * total:
        return f"/dev/shm was full, through which batches are handed over ({of})", _SHM
    if total < SMALL_SHM_BYTES:
        return f"/dev/shm is small for batches that are handed over through it ({of})", _SHM
    return (
        f"a file that is mapped into memory was cut short, or cannot be read; /dev/shm was not full ({of})",
        _ALONE,
    )


def _size(count: float) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 1 << 30 else f"{count / 2**20:.0f} MiB"
