"""Each GPU, looked at with the sampler's own eyes: what it gives, what it refuses, and how it is connected."""

from __future__ import annotations

import time
from typing import Any

import pynvml

from ...record.check import Check
from ...record.schema import DEVICE, NOT_MEASURED
from ..sampler.gpu import SHORTEST_WINDOW_NS, NvmlSource
from ..sampler.nvml import GPM_MARK, Gateway
from ..sampler.schedule import NS_PER_S
from .driver import GROUP, _or, _text

Measured = dict[str, float]
_FIELDS = tuple(field.name for field in DEVICE.fields[1:])
_LATER_NS = 6 * NS_PER_S
"""By then link and processes have come due on the sampler's schedule."""


def gpus() -> list[Check]:
    """Of each GPU that the driver shows; takes 0.2 s. None without a driver."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return []
    looks = [_Look(number) for number in range(count)]
    for look in looks:
        look.again(0)
    time.sleep(1.2 * SHORTEST_WINDOW_NS / 1e9)
    for look in looks:
        look.again(_LATER_NS)
    return [check for look in looks for check in look.checks()]


class _Look:
    """One GPU. Its gateway is its own, so that what could not be read is known to be of this one."""

    def __init__(self, number: int) -> None:
        self._name = f"GPU {number}"
        self._said: list[str] = []
        self._handle = _or(None, lambda: pynvml.nvmlDeviceGetHandleByIndex(number))
        uuid = _text(_or(None, lambda: pynvml.nvmlDeviceGetUUID(self._handle)))
        self._start = time.monotonic_ns()
        self._source = NvmlSource(Gateway(self._say), [uuid], self._start) if uuid else None
        self._seen: Measured = {}

    def _say(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.append(sentence)

    def again(self, after_ns: int) -> None:
        if self._source is None:
            return
        for row in self._source.sample(self._start + after_ns):
            pairs = zip(_FIELDS, row, strict=True)
            self._seen |= {name: value for name, value in pairs if value != NOT_MEASURED and value == value}

    def checks(self) -> list[Check]:
        if self._source is None:
            lost = "All figures of this GPU."
            return [Check(GROUP, self._name, "missing", "The driver shows it, but does not open it.", lost)]
        return [self._whole(), self._activity(), self._link(), self._accounting()]

    def _whole(self) -> Check:
        seen = self._seen
        model = _text(_or(None, lambda: pynvml.nvmlDeviceGetName(self._handle))) or "Unknown model"
        memory = seen.get("memory_total_bytes")
        told = [model] + ([f"{memory / 2**30:.0f} GiB"] if memory else [])
        used = seen.get("utilisation_pct")
        processes = seen.get("processes")
        if processes:
            told.append(f"{processes:.0f} process{'' if processes == 1 else 'es'} on it")
        refused = [s for s in self._said if GPM_MARK not in s]
        values: dict[str, float | str | None] = {"name": model, "memory_bytes": memory, "utilisation_pct": used}
        if not seen:
            lost = "All figures of this GPU."
            return Check(GROUP, self._name, "missing", f"{', '.join(told)}. {' '.join(refused)}", lost, values=values)
        if refused:
            return Check(GROUP, self._name, "limited", f"{', '.join(told)}.", _in_short(refused), values=values)
        return Check(GROUP, self._name, "ok", f"{', '.join(told)}.", values=values)

    def _activity(self) -> Check:
        name, seen = f"{self._name}: SM activity", self._seen.get("sm_active_pct")
        values: dict[str, float | str | None] = {"sm_active_pct": seen}
        if seen is not None:
            return Check(GROUP, name, "ok", "Read from the GPU's own counters (GPM).", values=values)
        lost = "How much of the GPU its kernels use; utilisation says only whether any kernel ran."
        said = next((s for s in self._said if GPM_MARK in s), None)
        if said is None:
            says = "This GPU has no GPM counters (Hopper and newer have)."
            return Check(GROUP, name, "limited", says, lost, "", values)
        if "refuses" not in said:
            return Check(GROUP, name, "missing", said, lost, "", values)
        fix = "Load the driver with NVreg_RestrictProfilingToAdminUsers=0 (modprobe.d), or run as root."
        return Check(GROUP, name, "missing", "The driver refuses it to this user.", lost, fix, values)

    def _link(self) -> Check:
        name, seen = f"{self._name}: PCIe link", self._seen
        at = [seen.get(field) for field in ("pcie_generation", "pcie_width", "pcie_max_generation", "pcie_max_width")]
        generation, width, most, widest = at
        names = ("generation", "width", "max_generation", "max_width")
        values: dict[str, float | str | None] = dict(zip(names, at, strict=True))
        if generation is None or width is None:
            lost = "Whether copies run at the speed the slot is made for (copy.link)."
            return Check(GROUP, name, "missing", "The driver reports no generation and width.", lost, "", values)
        says = f"Generation {generation:.0f} × {width:.0f}"
        says += f", of generation {most:.0f} × {widest:.0f} at most." if most and widest else "."
        if widest and width < widest:
            lost = f"Copies to the device run at {100 * width / widest:.0f} % of the speed it is made for, or less."
            fix = "Try another slot, riser or bifurcation setting; in a virtual machine, ask its provider."
            return Check(GROUP, name, "limited", says, lost, fix, values)
        if most and generation < most:
            # An idle GPU saves power that way.
            says += " An idle GPU lowers its generation; a recording reads it again under load."
        return Check(GROUP, name, "ok", says, values=values)

    def _accounting(self) -> Check:
        name = f"{self._name}: process accounting"
        mode: Any = _or(None, lambda: pynvml.nvmlDeviceGetAccountingMode(self._handle))
        state = "not told" if mode is None else "on" if mode else "off"
        says = f"{'Unknown' if mode is None else state.capitalize()}; whyidle counts the processes itself."
        return Check(GROUP, name, "not applicable", says, values={"accounting": state})


def _in_short(sentences: list[str]) -> str:
    """The metrics that are not to be had, in one sentence; what else was said, as it was."""
    start = "Not measured: "
    metrics = [s.removeprefix(start).partition(". ")[0] for s in sentences if s.startswith(start)]
    others = [s for s in sentences if not s.startswith(start)]
    return " ".join([f"Not reported: {', '.join(metrics)}."] * bool(metrics) + others)
