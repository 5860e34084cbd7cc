"""Where accelerator figures come from: NVML, an emulated device's records, or nowhere."""

from __future__ import annotations

import contextlib
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ...devices.conditions import Conditions
from ...record.processes import processes
from ...record.run import RUN_JSON
from ...record.sampled_devices import note_devices
from .emulated import EmulatedSource
from .row import Row
from .schedule import NS_PER_S, Cadence

if TYPE_CHECKING:
    from .nvml import Gateway, Say

LOOK_PERIOD_NS = NS_PER_S
UNNAMED_NS = 10 * NS_PER_S
"""How long a run may leave open which devices it uses before all GPUs are sampled, in NVML's order."""


class DeviceSource(Protocol):
    """Samples the devices of one kind."""

    def sample(self, now_ns: int, last: bool = False) -> list[Row]: ...


@dataclass(frozen=True)
class RunDevice:
    """What the run says about its device. `kind` is `None` while it says nothing."""

    kind: str | None = None
    uuids: tuple[str, ...] = ()
    count: int = 1
    memory_bytes: int | None = None
    conditions: Conditions | None = None

    @classmethod
    def of(cls, info: Any) -> RunDevice:
        """Read leniently: the file is written by another process, perhaps of another version."""
        device = info.get("device") if isinstance(info, dict) else None
        if not isinstance(device, dict) or not isinstance(device.get("kind"), str):
            # Where nothing trains, nothing will name a device: all GPUs are looked at.
            return cls("cuda" if isinstance(info, dict) and info.get("watching") else None)
        uuids, count, memory = (device.get(key) for key in ("uuids", "count", "memory_bytes"))
        return cls(
            device["kind"],
            tuple(map(str, uuids)) if isinstance(uuids, list) else (),
            count if isinstance(count, int) and count > 0 else 1,
            memory if isinstance(memory, int) else None,
            Conditions.of(device.get("conditions")),
        )


class Devices:
    """Samples the accelerators of a run, whichever they turn out to be.

    Where run.json names no device, the training processes of this host do, some seconds after they started, when they
    have loaded torch. Nothing is sampled before: device numbers would mean something else.
    """

    def __init__(self, folder: Path, say: Say, start_ns: int) -> None:
        self._folder = folder
        self._say = say
        self._start_ns = start_ns
        self._look = Cadence(LOOK_PERIOD_NS)
        self._stamps: dict[Path, tuple[int, int]] = {}
        self._uuids: list[str] = []
        """Of the GPUs of training processes, in the order in which these told them: their numbers stay."""
        self._device = RunDevice()
        self._chosen: RunDevice | None = None
        self._source: DeviceSource | None = None
        self._gateway: Gateway | None = None

    def sample(self, now_ns: int, last: bool = False) -> list[Row]:
        """Bodies of DEVICE records."""
        if self._look.due(now_ns) or last:
            self._look_at_run()
            named = self._device.kind is not None or now_ns - self._start_ns >= UNNAMED_NS
            if named and self._device != self._chosen:
                # What a source recorded before the run named its devices anew is not recorded again.
                since_ns = self._start_ns if self._source is None else now_ns
                self._chosen = self._device
                self._source = self._choose(self._device, since_ns)
        return [] if self._source is None else self._source.sample(now_ns, last)

    def _look_at_run(self) -> None:
        """Read what is known by now. Files that are not written yet, or are being replaced, are looked at again."""
        with contextlib.suppress(OSError, ValueError):
            files = (self._folder / RUN_JSON, *self._folder.glob("process-*.json"))
            stamps = {path: (stat.st_mtime_ns, stat.st_ino) for path in files for stat in (path.stat(),)}
            if stamps == self._stamps:
                return
            device = RunDevice.of(json.loads((self._folder / RUN_JSON).read_text()))
            self._device = device if device.kind is not None else self._of_processes()
            self._stamps = stamps

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

    def _choose(self, device: RunDevice, since_ns: int) -> DeviceSource | None:
        if device.kind == "emulated":
            self._say("Accelerator figures are those of an emulated device, computed from its records.")
            return EmulatedSource(self._folder, device.count, device.memory_bytes, since_ns, device.conditions)
        if device.kind in ("cuda", None):
            # Loaded here only: most of what NVML costs at start is its binding.
            from .gpu import NvmlSource
            from .nvml import Gateway

            self._gateway = self._gateway or Gateway(self._say)
            source = NvmlSource(self._gateway, device.uuids, since_ns)
            with contextlib.suppress(OSError):  # a disk that is full: the figures then have numbers only
                note_devices(self._folder, source.devices, source.driver)
            return source
        return None
