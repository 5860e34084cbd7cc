"""The NVIDIA driver: whether it is there, answers, and shows a GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from ...record.check import Check
from ..sampler.nvml import words
from .container import in_container

GROUP = "Accelerator"
NAME = "NVIDIA driver"
LOST = "Accelerator figures: utilisation, memory, power, clocks, PCIe. Steps and waits are recorded without them."
_NVIDIA = "0x10de"


def driver(root: Path = Path("/")) -> Check:
    """Leaves NVML open where it could be opened."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return _refused(error.value, root)
    count = int(_or(0, pynvml.nvmlDeviceGetCount))
    version = _text(_or(None, pynvml.nvmlSystemGetDriverVersion))
    cuda = _or(None, pynvml.nvmlSystemGetCudaDriverVersion_v2)
    runs = None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}"
    named = f"Driver {version}" if version else "A driver of unknown version"
    named += f", for CUDA up to {runs}" if runs else ""
    values: dict[str, float | str | None] = {"version": version, "cuda": runs, "gpus": count}
    if count == 0:
        fix = "Start the container with --gpus all." if in_container(root) else "See `nvidia-smi` and the kernel log."
        return Check(GROUP, NAME, "missing", f"{named}; it shows no GPU here.", LOST, fix, values)
    gpus = "1 GPU" if count == 1 else f"{count} GPUs"
    return Check(GROUP, NAME, "ok", f"{named}; it shows {gpus}.", values=values)


def _refused(code: int, root: Path) -> Check:
    loaded = _loaded_module(root)
    on_bus = loaded is not None or _on_the_bus(root)
    values: dict[str, float | str | None] = {"nvml_error": code, "kernel_module": loaded, "gpus": None}
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        if not on_bus:
            says = "No NVIDIA driver, and no NVIDIA GPU on this machine's bus."
            fix = "Nothing to do on a machine without a GPU."
            if in_container(root):
                fix = "If the host has one, start the container with --gpus all."
            return Check(GROUP, NAME, "missing", says, LOST, fix, values)
        says = f"The kernel module{f' {loaded}' if loaded else ''} is there; libnvidia-ml.so.1 is missing."
        if loaded is None:
            says = "An NVIDIA GPU is on the bus, but no driver is installed."
        fix = "Install the driver of this GPU."
        if in_container(root):
            fix = "Start the container with --gpus all (NVIDIA Container Toolkit), which brings the library."
        return Check(GROUP, NAME, "missing", says, LOST, fix, values)
    why = words(code)
    if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
        says = f"Library and kernel module have different versions ({why}; module {loaded or 'unknown'})."
        fix = "The driver was updated: reload its modules or reboot. In a container: restart the container."
    elif code == pynvml.NVML_ERROR_NO_PERMISSION:
        says = f"The driver refuses this user ({why})."
        fix = "Give the user access to /dev/nvidia* (often group video or render); in a container --gpus all."
    elif code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        says = f"The library is there; the kernel module is not loaded ({why})."
        fix = "Run sudo modprobe nvidia; if it fails, the kernel log says why (secure boot, a missing module)."
    else:
        says = f"The driver does not answer ({why})."
        fix = "In a container: restart it, which restores /dev/nvidia*. Otherwise see the kernel log."
    return Check(GROUP, NAME, "missing", says, LOST, fix, values)


def _loaded_module(root: Path) -> str | None:
    """The version of the kernel module that is loaded."""
    with contextlib.suppress(OSError):
        text = (root / "proc/driver/nvidia/version").read_text(errors="replace")
        for word in text.split():
            if word.replace(".", "").isdigit() and "." in word:
                return word
        return "of unknown version"
    return None


def _on_the_bus(root: Path) -> bool:
    for vendor in (root / "sys/bus/pci/devices").glob("*/vendor"):
        with contextlib.suppress(OSError):
            kind = (vendor.parent / "class").read_text().strip()
            # 0x03….: display; NVIDIA also makes audio and network devices.
            if vendor.read_text().strip() == _NVIDIA and kind.startswith("0x03"):
                return True
    return False


def _or(otherwise: Any, call: Callable[[], Any]) -> Any:
    with contextlib.suppress(pynvml.NVMLError, AttributeError):
        return call()
    return otherwise


def _text(value: Any) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
