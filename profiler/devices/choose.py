"""From `--device` to a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import WhyidleError
from .protocol import Device

EMULATED = "emulated:"


def choose(name: str) -> Device:
    """`auto`, `cpu`, `cuda`, `cuda:N`, `emulated:NAME` or `emulated:PATH` of a recorded profile.

    Raises:
        WhyidleError: no such device here.
    """
    if (gpu := _gpu(name)) is not None:
        from .cuda import CudaDevice

        return CudaDevice(gpu)
    if name in ("auto", "cpu"):
        from .cpu import CpuDevice

        return CpuDevice()
    if name.startswith(EMULATED):
        from .emulated import EmulatedDevice
        from .profiles import load

        which = name.removeprefix(EMULATED)
        device = EmulatedDevice((accelerator := load(which)).spec(), profile=accelerator)
        # A profile of the user's own goes by its path: its name may be that of a built-in one.
        device.name = EMULATED + (str(Path(which).resolve()) if Path(which).is_file() else which)
        return device
    raise WhyidleError(
        f"unknown device {name!r}. Choose auto, cpu, cuda, or emulated:NAME (`whyidle scenarios` lists the names)."
    )


def describe(name: str) -> dict[str, Any]:
    """What `choose(name).describe()` would say, without taking hold of a GPU.

    Raises:
        WhyidleError: no such device here.
    """
    if (gpu := _gpu(name)) is not None:
        from .cuda import describe_gpu

        return describe_gpu(gpu)
    return choose(name).describe()


def _gpu(name: str) -> int | None:
    """The number of the GPU that is meant; `None` where it is another device, or `auto` without a GPU."""
    if name not in ("auto", "cuda") and not name.startswith("cuda:"):
        return None
    import torch

    if not torch.cuda.is_available():
        if name == "auto":
            return None
        raise WhyidleError(
            "--device cuda: torch sees no CUDA device here. Use --device cpu, or an emulated one such as "
            "--device emulated:v100."
        )
    number = name.partition(":")[2] or "0"
    if not number.isdigit() or int(number) >= torch.cuda.device_count():
        raise WhyidleError(
            f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices, numbered from 0."
        )
    return int(number)
