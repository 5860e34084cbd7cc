"""The last stretch of a run that is being recorded (or has ended), for the live view."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import RecordError
from ..record.processes import AGAIN
from ..record.reader import Follower, Records, measured
from ..record.run import Writer, open_run
from ..record.schema import BATCH, DEVICE, EVENT, HOST, KERNEL, PAUSE, STEP, EventKind, Kind
from .diagnosis import LEAST_STEPS, findings_of, verdict_of
from .excise import excised
from .facts import Facts, judge
from .finding import Finding
from .headroom import cuts_of
from .window import Window, begin_of, resolved, warmup_steps

KEEP_STEPS = 2000
KEEP_SAMPLES = 4000
LATE_STEPS = 128
"""More than can wait for their device stamps at a time."""
PAUSES_A_STEP = 32
"""As many as have device stamps."""
ABOUT_AS_MANY = 0.9
"""Share of the most steps of any process that makes a process as good as that one."""
RECENT_NS = 10_000_000_000
"""Shares and throughput are of the last ten seconds, or of as many steps as a verdict needs."""


@dataclass(frozen=True)
class Snapshot:
    """What the live view shows. `None` and empty: not measured (yet)."""

    title: str
    device: str
    state: str
    """`starting`, `running`, or how the run ended: `ok`, `oom`, `failed`, `stopped`, `lost` (killed)."""
    steps: int = 0
    planned_steps: int | None = None
    elapsed_s: float | None = None
    left_s: float | None = None
    epoch: int | None = None
    batch_size: int | None = None
    samples_per_s: float | None = None
    rates: tuple[float, ...] = ()
    """Samples/s of successive seconds, oldest first."""
    shares: dict[str, float] = field(default_factory=dict)
    utilisation: tuple[float, ...] = ()
    """Utilisation windows in percent, oldest first."""
    queue_ready: float | None = None
    queue_capacity: int | None = None
    workers: int | None = None
    worker_busy_pct: float | None = None
    tree_cpus: float | None = None
    cpu_budget: float | None = None
    steal_pct: float | None = None
    memory_bytes: int | None = None
    verdict: Finding | None = None
    rank: int = 0
    """Whose figures these are, of a training of several ranks."""
    ranks: int = 1


class RecentReader:
    """Follows a run folder. `snapshot()` may be called as often as wanted; it reads only what is new.

    Raises:
        RecordError: not a run folder, or one of an unknown version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        open_run(folder)
        self._followers: dict[Path, Follower] = {}
        self._kept: dict[Path, Records] = {}
        self._first_ns: int | None = None

    def snapshot(self) -> Snapshot:
        """The state of the run now."""
        info = open_run(self.folder).info
        for kind in _FOLLOWED:
            self._read(kind)
        steps = self._records(STEP)
        if (info.get("device") or {}).get("kind", "cpu") != "cpu":
            steps = resolved(steps)
        ended = info.get("ended")
        if isinstance(ended, dict):
            state = str(ended.get("status"))
        else:
            state = "lost" if self._writer_is_gone(info) else ("running" if len(steps) else "starting")
        planned = (info.get("plan") or {}).get("steps")
        bare = Snapshot(_title(info), _device(info), state, planned_steps=planned, utilisation=self._utilisation())
        return bare if len(steps) == 0 else self._running(info, bare, steps, state not in ("running", "starting"))

    def _running(self, info: dict[str, Any], bare: Snapshot, steps: Records, ended: bool) -> Snapshot:
        last_ns = int(steps["step_end_ns"][-1])
        counted = steps[steps["step"] >= warmup_steps(bare.planned_steps or self._steps)]
        counted = counted if len(counted) else steps[-1:]
        late = int((counted["fetch_begin_ns"] >= last_ns - RECENT_NS).sum())
        recent = counted[-max(late, LEAST_STEPS) :]
        last_ns = max(last_ns, int(recent["device_end_ns"].max()))
        window = Window(begin_of(steps, len(steps) - len(recent)), last_ns, recent, 0, steps)
        facts = self._facts(info, window)
        until = last_ns if ended else time.monotonic_ns()
        elapsed = max(0.0, (until - (self._first_ns or until)) / 1e9)
        rate = window.count * 1e9 / window.wall_ns if window.wall_ns else None
        planned = bare.planned_steps
        left = (planned - self._steps) / rate if planned and rate and not ended else None
        findings = findings_of(facts)
        return replace(
            bare,
            steps=self._steps,
            elapsed_s=elapsed,
            left_s=max(0.0, left) if left is not None else None,
            epoch=int(steps["epoch"][-1]),
            batch_size=facts.batch_size,
            samples_per_s=facts.samples_per_s if facts.samples_known else None,
            rates=_rates(steps),
            shares=facts.shares,
            queue_ready=facts.loader.queue_ready_mean,
            queue_capacity=facts.loader.queue_capacity,
            workers=facts.loader.workers or None,
            worker_busy_pct=facts.loader.worker_busy_pct,
            tree_cpus=facts.sampled.tree_cpus,
            cpu_budget=facts.sampled.cpu_budget,
            steal_pct=facts.sampled.steal_pct,
            memory_bytes=facts.sampled.memory_peak_bytes,
            verdict=verdict_of(facts, findings),
            rank=self._mine[0] if self._mine else 0,
            ranks=len({self._writer(path)[0] for path in self._steps_files()}),
        )

    def _facts(self, info: dict[str, Any], window: Window) -> Facts:
        # Kernels are not followed: there may be very many.
        events = self._records(EVENT)
        return judge(
            window,
            events[events["what"] != EventKind.ACTIVITY_WINDOW],
            self._records(PAUSE),
            np.empty(0, dtype=KERNEL.dtype),
            self._records(BATCH),
            self._records(DEVICE),
            self._records(HOST),
            info,
        )

    def _writer_is_gone(self, info: dict[str, Any]) -> bool:
        """Whether the training was killed: its process is not there, and it was on this machine."""
        if (info.get("host") or {}).get("name") != socket.gethostname():
            return False
        pids = [f.header.pid for path, f in self._followers.items() if path.name.startswith(f"{STEP.name}-")]
        return bool(pids) and not any(Path(f"/proc/{pid % AGAIN}").exists() for pid in pids)

    def _utilisation(self) -> tuple[float, ...]:
        values = measured(self._records(DEVICE)["utilisation_pct"])
        return tuple(float(v) for v in values[~np.isnan(values)][-240:])

    def _read(self, kind: Kind) -> None:
        """Take in what is new in the files of a kind."""
        per_step = PAUSES_A_STEP if kind is PAUSE else 1
        limit = KEEP_SAMPLES if kind in (DEVICE, HOST) else KEEP_STEPS * per_step
        for path in sorted(self.folder.glob(f"{kind.name}-*.rec")):
            if path not in self._followers:
                try:
                    self._followers[path] = Follower(path, limit)
                except RecordError:
                    continue  # its header is being written; it is there at the next look
                self._kept[path] = np.empty(0, dtype=kind.dtype)
            follower = self._followers[path]
            fresh = follower.new()
            kept = np.concatenate((self._kept[path], fresh))[-limit:]
            if kind is STEP and len(kept) and self._first_ns is None:
                self._first_ns = int(follower.first()["fetch_begin_ns"][0])
            if kind in (STEP, PAUSE) and len(kept):
                # The device's stamps come later than the record.
                again = follower.latest(min(LATE_STEPS * per_step, len(kept)))
                kept = np.concatenate((kept[: len(kept) - len(again)], again))
            self._kept[path] = kept

    @property
    def _steps(self) -> int:
        """Steps that ran so far, as far as the last record tells."""
        steps = self._records(STEP)
        return int(steps["step"].max()) + 1 if len(steps) else 0

    def _records(self, kind: Kind) -> Records:
        """What is kept of a kind, without the stretches of `run --headroom`."""
        kept = self._kept_of(kind)
        return excised(kind, kept, cuts_of(kept if kind is STEP else self._kept_of(STEP), self._kept_of(EVENT)))

    def _kept_of(self, kind: Kind) -> Records:
        """Of the sampler, or of the training process that ran most steps."""
        parts = [
            kept
            for path, kept in self._kept.items()
            if path.name.startswith(f"{kind.name}-") and (kind in (DEVICE, HOST) or self._writer(path) == self._mine)
        ]
        return np.concatenate(parts) if parts else np.empty(0, dtype=kind.dtype)

    @property
    def _mine(self) -> Writer | None:
        """The lowest rank among the processes that ran about as many steps as any: ranks overtake each other."""
        steps = self._steps_files()
        most = max((self._followers[path].seen for path in steps), default=0)
        return min((self._writer(p) for p in steps if self._followers[p].seen >= ABOUT_AS_MANY * most), default=None)

    def _steps_files(self) -> list[Path]:
        return [path for path in self._followers if path.name.startswith(f"{STEP.name}-")]

    def _writer(self, path: Path) -> Writer:
        header = self._followers[path].header
        return header.rank, header.pid


_FOLLOWED = (STEP, BATCH, PAUSE, EVENT, DEVICE, HOST)


def _title(info: dict[str, Any]) -> str:
    trial = info.get("trial") or {}
    named = [str(trial[k]) for k in ("scenario", "net", "pipeline") if trial.get(k)]
    if trial.get("batch_size"):
        named.append(f"batch {trial['batch_size']}")
    return " · ".join(named) or " ".join(str(c) for c in info.get("command") or ["run"])


def _device(info: dict[str, Any]) -> str:
    device = info.get("device") or {}
    return str(device.get("title") or device.get("name") or "")


def _rates(steps: Records) -> tuple[float, ...]:
    """Samples/s of whole seconds."""
    seconds = (steps["step_end_ns"] - steps["step_end_ns"][0]) // 1_000_000_000
    counts = np.bincount(seconds.astype(np.int64), weights=steps["samples"] + steps["skipped_samples"])
    return tuple(float(c) for c in counts[:-1][-120:])
