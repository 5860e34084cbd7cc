"""Where accelerator figures come from: NVML, an emulated device's records, or nowhere.

What a driver would show of an emulated device, computed from what its engines did. The device's spans are the
truth; the utilisation seen here is the coarse view of it that NVML gives of a GPU: windows of a sixth of a second,
the share of each in which anything computed, in whole percent.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...devices.conditions import Conditions
from ...errors import RecordError
from ...record.files import as_a, read_object
from ...record.reader import RecordFile, Rows
from ...record.run import RUN_JSON, note_devices, processes
from ...record.schema import DEVICE, NOT_MEASURED, SPAN, STEP, Kind, Row, SpanKind
from ...record.segment import EVERY_NS
from .schedule import NS_PER_S, Cadence

if TYPE_CHECKING:
    from .nvml import Gateway, NvmlSource, Say


WINDOW_NS = round(NS_PER_S / 6)
MARGIN_NS = 100_000_000 + EVERY_NS
"""How long after its end a window is written. A span is recorded before it begins, but the process that records it
may be held up between the two, and may write it to the file itself, now and then."""
PERIOD_NS, LOOK_SHARE = NS_PER_S, 0.002
"""How often is looked, and the share of a CPU that it may take to read which devices the run says it uses."""
UNNAMED_NS = 10 * NS_PER_S
"""How long a run may leave open which devices it uses before all GPUs are sampled, in NVML's order."""

Stamps = npt.NDArray[np.int64]


def busy_ns(begin: Stamps, end: Stamps, edges: Stamps) -> Stamps:
    """For each window between neighbouring edges: the time within it that at least one span covers.

    Spans may come in any order and overlap. `edges` must rise; the result is one shorter than it.
    """
    if len(begin) == 0:
        return np.zeros(len(edges) - 1, dtype=np.int64)
    order = np.argsort(begin, kind="stable")
    begin, end = begin[order], np.maximum.accumulate(end[order])
    opens = np.r_[True, begin[1:] > end[:-1]]
    merged_begin = begin[opens]
    merged_end = end[np.r_[opens[1:], True]]
    before = np.r_[0, np.cumsum(merged_end - merged_begin)]
    place = np.searchsorted(merged_begin, edges, side="right")
    beyond = np.maximum(0, merged_end[np.maximum(place - 1, 0)] - edges)
    covered: Stamps = before[place] - np.where(place > 0, beyond, 0)
    return covered[1:] - covered[:-1]


@dataclass(frozen=True)
class RunDevice:
    """What the run says about its device. `kind` is `None` while it says nothing."""

    kind: str | None = None
    uuids: tuple[str, ...] = ()
    count: int = 1
    memory_bytes: int | None = None
    conditions: Conditions | None = None
    """Under which it is emulated."""

    @classmethod
    def of(cls, info: dict[str, Any]) -> RunDevice:
        """Read the device that run.json, or a process of the training, names."""
        # Where nothing trains, nothing will name a device: all GPUs are looked at.
        return as_a(cls, info.get("device")) or cls("cuda" if info.get("watching") else None)


class EmulatedSource:
    """Follows the span and step records of a run on an emulated device. More devices than it says are noticed when
    they compute. `start_ns`: where the first window begins."""

    def __init__(self, folder: Path, device: RunDevice, start_ns: int) -> None:
        self._folder = folder
        self._run = device
        self._start_ns = self._next_ns = start_ns
        self._files: dict[Path, tuple[RecordFile, int]] = {}
        """Path → the record file, and how many of its records were taken in."""
        self._devices = set(range(device.count))
        self._open = np.empty(0, SPAN.dtype)
        """Spans of computing that reach into windows not written yet."""
        self._device_of: dict[int, int] = {}
        """Process → the device it computes on, as its spans say."""
        self._used: dict[int, int] = {}
        """Device → bytes in use."""
        self._cadence = Cadence(PERIOD_NS)

    def sample(self, now_ns: int, last: bool = False) -> list[Row]:
        """Bodies of DEVICE records: windows complete by now, and states."""
        if not (self._cadence.due(now_ns) or last):
            return []
        for spans, pid in self._fresh(SPAN):
            self._device_of[pid] = int(spans["device"].max())
            self._devices.update(spans["device"].tolist())
            computing = spans[(spans["what"] == SpanKind.COMPUTE) & (spans["end_ns"] > self._next_ns)]
            self._open = np.concatenate((self._open, computing))
        for steps, pid in self._fresh(STEP):
            told = steps["memory_bytes"][steps["memory_bytes"] != NOT_MEASURED]
            if len(told) and pid in self._device_of:
                self._used[self._device_of[pid]] = int(told[-1])
        conditions, total = self._run.conditions, self._run.memory_bytes
        state = {} if conditions is None else conditions.state(now_ns - self._start_ns)
        return self._windows(now_ns) + [
            DEVICE.row(
                t_ns=now_ns, device=each, memory_used_bytes=self._used.get(each), memory_total_bytes=total, **state
            )
            for each in sorted(self._devices)
        ]

    def _windows(self, now_ns: int) -> list[Row]:
        count = (now_ns - MARGIN_NS - self._next_ns) // WINDOW_NS
        if count < 1:
            return []
        edges = self._next_ns + np.arange(count + 1, dtype=np.int64) * WINDOW_NS
        self._next_ns = int(edges[-1])
        rows = []
        others = 0.0 if self._run.conditions is None else self._run.conditions.others
        for device in sorted(self._devices):
            mine = self._open[self._open["device"] == device]
            busy = busy_ns(mine["begin_ns"], mine["end_ns"], edges)
            # Any kernel of any program counts: those of others run on while the training's do not.
            busy = busy + others * (WINDOW_NS - busy)
            rows += [
                DEVICE.row(t_ns=int(end), device=device, window_ns=WINDOW_NS, utilisation_pct=percent)
                for end, percent in zip(edges[1:], np.rint(100 * busy / WINDOW_NS), strict=True)
            ]
        self._open = self._open[self._open["end_ns"] > self._next_ns]
        return rows

    def _fresh(self, kind: Kind) -> Iterator[tuple[Rows, int]]:
        """New records of each file of a kind, with the pid of its writer."""
        for path in self._folder.glob(f"{kind.name}-*.rec"):
            # Without those just being made, or already being removed.
            with contextlib.suppress(OSError, RecordError):
                if path not in self._files:
                    self._files[path] = RecordFile(path), 0
                file, seen = self._files[path]
                for records in file.chunks(seen):
                    seen += len(records)
                    self._files[path] = file, seen
                    yield records, file.pid


class Devices:
    """Samples the accelerators of a run, whichever they turn out to be.

    Where run.json names no device, the training processes of this host do, some seconds after they started, when they
    have loaded torch. Nothing is sampled before: device numbers would mean something else.
    """

    def __init__(self, folder: Path, say: Say, start_ns: int) -> None:
        self._folder = folder
        self._say = say
        self._start_ns = start_ns
        self._look = Cadence(PERIOD_NS, share=LOOK_SHARE)
        self._uuids: list[str] = []
        """UUIDs of the GPUs of training processes, in the order in which these named them: their numbers stay."""
        self._device = RunDevice()
        self._chosen: RunDevice | None = None
        self._source: EmulatedSource | NvmlSource | None = None
        self._gateway: Gateway | None = None

    def sample(self, now_ns: int, last: bool = False) -> list[Row]:
        """Bodies of DEVICE records."""
        if self._look.due(now_ns) or last:
            begin = time.thread_time_ns()
            if info := read_object(self._folder / RUN_JSON):
                device = RunDevice.of(info)
                self._device = device if device.kind is not None else self._of_processes()
            self._look.cost(now_ns, time.thread_time_ns() - begin)
            named = self._device.kind is not None or now_ns - self._start_ns >= UNNAMED_NS
            if named and self._device != self._chosen:
                # What a source recorded before the run named its devices anew is not recorded again.
                since_ns = self._start_ns if self._source is None else now_ns
                self._chosen = self._device
                self._source = self._choose(self._device, since_ns)
        return [] if self._source is None else self._source.sample(now_ns, last)

    def _of_processes(self) -> RunDevice:
        """The devices of the training processes on this host."""
        here = socket.gethostname()
        told = [RunDevice.of(each.info) for each in processes(self._folder) if each.host == here]
        known = [each for each in told if each.kind is not None]
        gpus = [each for each in known if each.kind == "cuda"]
        if not gpus:
            return known[0] if known else RunDevice()
        if not all(each.uuids for each in gpus):
            return RunDevice("cuda")  # a torch that tells no UUIDs: its GPUs are among all
        self._uuids += [uuid for each in gpus for uuid in each.uuids if uuid not in self._uuids]
        return RunDevice("cuda", tuple(self._uuids), len(self._uuids))

    def _choose(self, device: RunDevice, since_ns: int) -> EmulatedSource | NvmlSource | None:
        if device.kind == "emulated":
            self._say("Accelerator figures are those of an emulated device, computed from its records.")
            return EmulatedSource(self._folder, device, since_ns)
        if device.kind in ("cuda", None):
            # Loaded here only: most of what NVML costs at start is its binding.
            from .nvml import Gateway, NvmlSource

            self._gateway = self._gateway or Gateway(self._say)
            source = NvmlSource(self._gateway, device.uuids, since_ns)
            with contextlib.suppress(OSError):  # a disk that is full: the figures then have numbers only
                note_devices(self._folder, source.devices, source.driver)
            return source
        return None
