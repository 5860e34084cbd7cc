"""The NVIDIA driver and each GPU it shows: what it gives, what it refuses, and how it is connected."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from ...record.check import Check
from ...record.schema import DEVICE
from ..limits import in_container
from ..sampler.nvml import GPM_MARK, SHORTEST_WINDOW_NS, Gateway, NvmlSource, words
from ..sampler.schedule import NS_PER_S

GROUP = "Accelerator"
DRIVER = "NVIDIA driver"
LOST = "Accelerator figures: utilisation, memory, power, clocks, PCIe. Steps and waits are recorded without them."
REFUSALS = {
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "Library and kernel module have different versions ({why}; module {module}).",
        "The driver was updated: reload its modules or reboot. In a container: restart the container.",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        "The driver refuses this user ({why}).",
        "Give the user access to /dev/nvidia* (often group video or render); in a container --gpus all.",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        "The library is there; the kernel module is not loaded ({why}).",
        "Run sudo modprobe nvidia; if it fails, the kernel log says why (secure boot, a missing module).",
    ),
}
"""NVML's error → what it says and the way out; others share one sentence."""
NO_ANSWER = (
    "The driver does not answer ({why}).",
    "In a container: restart it, which restores /dev/nvidia*. Otherwise see the kernel log.",
)
LATER_NS = 6 * NS_PER_S
"""By then link and processes have come due on the sampler's schedule."""


def driver(root: Path = Path("/")) -> Check:
    """Check whether the driver is there, answers, and shows a GPU. Leaves NVML open where it could be opened."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _no_driver(error.value, root)
    count = int(_or(0, pynvml.nvmlDeviceGetCount))
    version = _or(None, pynvml.nvmlSystemGetDriverVersion)
    cuda = _or(None, pynvml.nvmlSystemGetCudaDriverVersion_v2)
    runs = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    says = f"Driver {version}" if version else "A driver of unknown version"
    says += f", for CUDA up to {runs}" if runs else ""
    found = partial(Check, GROUP, DRIVER, values={"version": version, "cuda": runs, "gpus": count})
    if count == 0:
        fix = "Start the container with --gpus all." if in_container(root) else "See `nvidia-smi` and the kernel log."
        return found("missing", f"{says}; it shows no GPU here.", LOST, fix)
    return found("ok", f"{says}; it shows {count} GPU{'' if count == 1 else 's'}.")


def _no_driver(code: int, root: Path) -> Check:
    module = None
    with contextlib.suppress(OSError):
        told = (root / "proc/driver/nvidia/version").read_text(errors="replace").split()
        module = next((word for word in told if "." in word and word.replace(".", "").isdigit()), "of unknown version")
    values = {"nvml_error": code, "kernel_module": module, "gpus": None}
    if code != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        says, fix = REFUSALS.get(code, NO_ANSWER)
        says = says.format(why=words(code), module=module or "unknown")
    elif module is not None:
        says, fix = f"The kernel module {module} is there; libnvidia-ml.so.1 is missing.", ""
    elif _on_the_bus(root):
        says, fix = "An NVIDIA GPU is on the bus, but no driver is installed.", ""
    else:
        says = "No NVIDIA driver, and no NVIDIA GPU on this machine's bus."
        fix = "Nothing to do on a machine without a GPU."
        if in_container(root):
            fix = "If the host has one, start the container with --gpus all."
    if not fix:
        fix = "Install the driver of this GPU."
        if in_container(root):
            fix = "Start the container with --gpus all (NVIDIA Container Toolkit), which brings the library."
    return Check(GROUP, DRIVER, "missing", says, LOST, fix, values)


def _on_the_bus(root: Path) -> bool:
    for vendor in (root / "sys/bus/pci/devices").glob("*/vendor"):
        with contextlib.suppress(OSError):
            # 0x03….: display; NVIDIA also makes audio and network devices.
            display = (vendor.parent / "class").read_text().strip().startswith("0x03")
            if display and vendor.read_text().strip() == "0x10de":
                return True
    return False


def _or(otherwise: Any, call: Callable[[], Any]) -> Any:
    with contextlib.suppress(pynvml.NVMLError, AttributeError):
        return call()
    return otherwise


def gpus() -> list[Check]:
    """Check each GPU that the driver shows with the sampler's own eyes, in 0.2 s. None without a driver."""
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return []
    looks = [_Look(number) for number in range(count)]
    for after_ns in (0, LATER_NS):
        if after_ns:
            time.sleep(1.2 * SHORTEST_WINDOW_NS / 1e9)
        for look in looks:
            look.again(after_ns)
    return [check for look in looks for check in look.checks()]


class _Look:
    """One GPU. Its gateway is its own, so that what could not be read is known to be of this one."""

    def __init__(self, number: int) -> None:
        self._name = f"GPU {number}"
        self._said: list[str] = []
        self._handle = _or(None, lambda: pynvml.nvmlDeviceGetHandleByIndex(number))
        uuid = _or(None, lambda: pynvml.nvmlDeviceGetUUID(self._handle))
        self._start = time.monotonic_ns()
        self._source = NvmlSource(Gateway(self._said.append), [uuid], self._start) if uuid else None
        self._seen: dict[str, float] = {}

    def again(self, after_ns: int) -> None:
        for row in [] if self._source is None else self._source.sample(self._start + after_ns):
            self._seen |= DEVICE.measured(row)

    def checks(self) -> list[Check]:
        if self._source is None:
            lost = "All figures of this GPU."
            return [Check(GROUP, self._name, "missing", "The driver shows it, but does not open it.", lost)]
        said = list(dict.fromkeys(self._said))
        return [
            self._whole([each for each in said if GPM_MARK not in each]),
            self._activity(next((each for each in said if GPM_MARK in each), None)),
            self._link(),
        ]

    def _whole(self, refused: list[str]) -> Check:
        model = _or(None, lambda: pynvml.nvmlDeviceGetName(self._handle)) or "Unknown model"
        memory, used, processes = map(self._seen.get, ("memory_total_bytes", "utilisation_pct", "processes"))
        says = model + (f", {memory / 2**30:.0f} GiB" if memory else "")
        says += f", {processes:.0f} process{'' if processes == 1 else 'es'} on it." if processes else "."
        values = {"name": model, "memory_bytes": memory, "utilisation_pct": used}
        found = partial(Check, GROUP, self._name, values=values)
        if not self._seen:
            return found("missing", f"{says} {' '.join(refused)}", "All figures of this GPU.")
        # The metrics that are not to be had in one sentence; what else was said, as it was.
        start = "Not measured: "
        metrics = [each.removeprefix(start).partition(". ")[0] for each in refused if each.startswith(start)]
        lost = [f"Not reported: {', '.join(metrics)}."] * bool(metrics)
        lost += [each for each in refused if not each.startswith(start)]
        return found("limited" if refused else "ok", says, " ".join(lost))

    def _activity(self, refused: str | None) -> Check:
        active = self._seen.get("sm_active_pct")
        found = partial(Check, GROUP, f"{self._name}: SM activity", values={"sm_active_pct": active})
        if active is not None:
            return found("ok", "Read from the GPU's own counters (GPM).")
        lost = "How much of the GPU its kernels use; utilisation says only whether any kernel ran."
        if refused is None:
            return found("limited", "This GPU has no GPM counters (Hopper and newer have).", lost)
        if "refuses" not in refused:
            return found("missing", refused, lost)
        fix = "Load the driver with NVreg_RestrictProfilingToAdminUsers=0 (modprobe.d), or run as root."
        return found("missing", "The driver refuses it to this user.", lost, fix)

    def _link(self) -> Check:
        names = ("generation", "width", "max_generation", "max_width")
        at = [self._seen.get(f"pcie_{name}") for name in names]
        generation, width, most, widest = at
        found = partial(Check, GROUP, f"{self._name}: PCIe link", values=dict(zip(names, at, strict=True)))
        if generation is None or width is None:
            lost = "Whether copies run at the speed the slot is made for (copy.link)."
            return found("missing", "The driver reports no generation and width.", lost)
        says = f"Generation {generation:.0f} × {width:.0f}"
        says += f", of generation {most:.0f} × {widest:.0f} at most." if most and widest else "."
        if widest and width < widest:
            lost = f"Copies to the device run at {100 * width / widest:.0f} % of the speed it is made for, or less."
            fix = "Try another slot, riser or bifurcation setting; in a virtual machine, ask its provider."
            return found("limited", says, lost, fix)
        if most and generation < most:
            # An idle GPU saves power that way.
            says += " An idle GPU lowers its generation; a recording reads it again under load."
        return found("ok", says)
