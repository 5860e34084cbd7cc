"""Which GPU a figure is of: a whole one, or an instance of one that is divided (MIG).

Of an instance the driver tells memory, processes and, from Hopper on, multiprocessor activity; of utilisation it tells
nothing. Power, clocks, temperature and what holds them down belong to the whole GPU and are asked of that.

This has run against a fake driver only, not yet on a divided GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pynvml

RING = "the utilisation ring"
RATES = "utilisation rates"
MEMORY = "device memory"
PROCESSES = "processes on the device"
POWER = "power draw"
GPM_MARK = "(GPM)"
"""How the name of every metric ends that comes from the performance monitors."""
GPM = f"multiprocessor activity {GPM_MARK}"
PCIE_SENT = "PCIe bytes sent"
PCIE_RECEIVED = "PCIe bytes received"

NOT_OF_AN_INSTANCE = frozenset({RING, RATES, PCIE_SENT, PCIE_RECEIVED})
NOT_OF_A_DIVIDED_GPU = NOT_OF_AN_INSTANCE | {MEMORY, PROCESSES, GPM}
"""What the driver would tell of all instances together says nothing about the one that the training uses."""


@dataclass(frozen=True)
class NvmlTarget:
    """What is asked about one device of the run."""

    handle: Any
    """The GPU, or the instance."""
    board: Any
    """The GPU, whole."""
    instance: int | None = None
    """Number of the GPU instance; `None` for a whole GPU."""
    divided: bool = False
    """The GPU is divided, and which instance the training uses is not known."""


def find(device: int, uuid: str | None) -> Any:
    """The handle of a GPU or an instance, by UUID or else by NVML's own number.

    CUDA gives the UUID of an instance without saying that it is one, so `GPU-` may stand for `MIG-`.

    Raises:
        pynvml.NVMLError: there is none.
    """
    if uuid is None:
        return pynvml.nvmlDeviceGetHandleByIndex(device)
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(uuid)
    except pynvml.NVMLError as error:
        if not uuid.startswith("GPU-"):
            raise
        try:
            return pynvml.nvmlDeviceGetHandleByUUID("MIG-" + uuid.removeprefix("GPU-"))
        except pynvml.NVMLError:
            raise error from None


def target_of(handle: Any) -> NvmlTarget:
    """A GPU that is divided stands for its instance, if this process can see one only."""
    is_instance = _quiet(lambda: pynvml.nvmlDeviceIsMigDeviceHandle(handle).value)
    if is_instance:
        board = _quiet(lambda: pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
        number = _quiet(lambda: pynvml.nvmlDeviceGetGpuInstanceId(handle))
        return NvmlTarget(handle, handle if board is None else board, number, divided=number is None)
    if not is_divided(handle):
        return NvmlTarget(handle, handle)
    found = _instances(handle)
    if len(found) == 1:
        number = _quiet(lambda: pynvml.nvmlDeviceGetGpuInstanceId(found[0]))
        if number is not None:
            return NvmlTarget(found[0], handle, number)
    return NvmlTarget(handle, handle, divided=True)


def is_divided(board: Any) -> bool:
    """Whether MIG is on, as far as the driver says."""
    mode = _quiet(lambda: pynvml.nvmlDeviceGetMigMode(board))
    return bool(mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE)


def sentence(device: int, target: NvmlTarget) -> str | None:
    """What a report must know about a device that is no whole GPU."""
    if target.divided:
        return (
            f"GPU {device} of the run is divided (MIG), and which instance the training uses is not known: "
            "utilisation, multiprocessor activity, memory, processes and PCIe traffic are not measured. Power, clocks, "
            "temperature and throttling are those of the whole GPU."
        )
    if target.instance is not None:
        return (
            f"GPU {device} of the run is a MIG instance: NVML gives neither utilisation nor PCIe traffic of it. "
            "Power, clocks, temperature and throttling are those of the whole GPU."
        )
    return None


def divided_meanwhile(device: int) -> str:
    """What a report must know about a GPU that was whole when the recording began."""
    return (
        f"GPU {device} of the run was divided (MIG) while it was recorded: utilisation, multiprocessor activity, "
        "memory, processes and PCIe traffic are not measured from here on. Power, clocks, temperature and throttling "
        "go on, of the whole GPU."
    )


def _instances(board: Any) -> list[Any]:
    """The instances of a GPU that this process can see."""
    count = _quiet(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(board)) or 0
    handles = (_quiet(partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, board, place)) for place in range(count))
    return [handle for handle in handles if handle is not None]


def _quiet(call: Callable[[], Any]) -> Any | None:
    """What a call returns; `None` from a driver or a `nvidia-ml-py` that knows nothing of MIG."""
    try:
        return call()
    except (pynvml.NVMLError, AttributeError):
        return None
