"""The one gateway to NVML: every call goes through it, and every failure becomes a sentence, never a 0.

Which failure means what, and what other tools do about it, is in `docs/sampler.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

Say = Callable[[str], None]

RATES = "utilisation rates"
MEMORY = "device memory"
PROCESSES = "processes on the device"
POWER = "power draw"
GPM_MARK = "(GPM)"
"""How the name of every metric ends that comes from the performance monitors."""
GPM = f"multiprocessor activity {GPM_MARK}"

NOT_READY, GPU_NOT_FOUND = 27, 28
"""Errors that `nvidia-ml-py` has no names for before 12.550."""
NOTHING_NEW = frozenset(
    {
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_INSUFFICIENT_SIZE,
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_IN_USE,
        pynvml.NVML_ERROR_NO_DATA,
        NOT_READY,
    }
)
NEVER_HERE = frozenset(
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
LOST = frozenset(
    {
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        GPU_NOT_FOUND,
    }
)
DRIVER_GONE = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_LIBRARY_NOT_FOUND,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
    }
)
DOUBTFUL = frozenset({pynvml.NVML_ERROR_OPERATING_SYSTEM, pynvml.NVML_ERROR_UNKNOWN})
"""One metric's trouble, or the loss of `/dev/nvidia*`: a second call tells."""


class Gateway:
    """Reads metrics of devices and remembers what cannot be read.

    A metric that is not supported is asked for once, a lost device is left alone, and so is a driver that has
    gone. `say` gets one sentence for each of these.
    """

    def __init__(self, say: Say) -> None:
        self.say = say
        self._handles: dict[int, Any] = {}
        self._lost: set[int] = set()
        self._never: set[tuple[int, str]] = set()
        self._answered: set[tuple[int, str]] = set()
        """Metrics that could be read at least once."""
        self._started = False
        self.ended = not self._start()

    def count(self) -> int:
        """How many GPUs the driver shows."""
        if self.ended:
            return 0
        try:
            count = int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            self._driver_failed(error.value)
            return 0
        if count == 0:
            self.say("The NVIDIA driver shows no GPU here, so there are no accelerator figures.")
        return count

    def open(self, device: int, uuid: str | None) -> Any | None:
        """NVML's handle of the run's device number `device`, by UUID or else by NVML's own number."""
        if self.ended:
            return None
        try:
            by_number, by_uuid = pynvml.nvmlDeviceGetHandleByIndex, pynvml.nvmlDeviceGetHandleByUUID
            self._handles[device] = by_number(device) if uuid is None else by_uuid(uuid)
        except pynvml.NVMLError as error:
            name = f"number {device}" if uuid is None else uuid
            self.say(f"The driver does not show the GPU {name} ({error}), so it is not recorded.")
            return None
        return self._handles[device]

    def read(self, device: int, metric: str, *calls: Callable[[], Any], prepares: bool = False) -> Any | None:
        """What the first call returns that the driver knows; `None` where the metric cannot be read (now).

        Several calls are the same question to newer and older drivers. One that only `prepares` yields no figure yet.
        """
        if not self.readable(device, metric):
            return None
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        for call in calls:
            try:
                value = call()
            except AttributeError:
                # This nvidia-ml-py is older than the call.
                code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
            except pynvml.NVMLError as error:
                code = error.value
                if code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                    break
            else:
                if not prepares:
                    self.answered(device, metric)
                return value
        self.failed(device, metric, code)
        return None

    def readable(self, device: int, metric: str) -> bool:
        """Whether it makes sense to ask for a metric."""
        return not (self.ended or device in self._lost or (device, metric) in self._never)

    def answered(self, device: int, metric: str) -> None:
        """A metric could be read."""
        self._answered.add((device, metric))

    def failed(self, device: int, metric: str, code: int) -> None:
        """A metric failed with an NVML error code: remember it and say it, as the code deserves."""
        if code in NOTHING_NEW:
            return
        if code in DRIVER_GONE or self._refuses_all(device, metric, code):
            self._driver_failed(code)
        elif code in LOST:
            self._lost.add(device)
            self.say(
                f"GPU {device} of the run no longer answers ({words(code)}): its figures end here. "
                "The kernel log names the Xid."
            )
        elif code in NEVER_HERE or code in DOUBTFUL:
            self._never.add((device, metric))
            self.say(_refusal(metric, code, (device, metric) in self._answered))
        else:
            self.say(f"Reading {metric} failed at least once ({words(code)}); those samples lack it.")

    def _start(self) -> bool:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            self._driver_failed(error.value)
            return False
        self._started = True
        return True

    def _refuses_all(self, device: int, metric: str, code: int) -> bool:
        """Whether it is not this metric that cannot be read, but the driver: what every driver tells fails as well."""
        if code not in DOUBTFUL and code != pynvml.NVML_ERROR_NO_PERMISSION:
            return False
        handle = self._handles[device]
        others = {
            MEMORY: lambda: pynvml.nvmlDeviceGetMemoryInfo(handle),
            POWER: lambda: pynvml.nvmlDeviceGetPowerUsage(handle),
        }
        others.pop(metric, None)
        alike = DOUBTFUL if code in DOUBTFUL else {code}
        return all(_code_of(call) in alike for call in others.values())

    def _driver_failed(self, code: int) -> None:
        self.ended = True
        why = words(code)
        here = "no accelerator figures from here on" if self._started else "no accelerator figures"
        if code == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            self.say(
                f"The NVIDIA driver was replaced while its old kernel module is still loaded ({why}): no "
                "accelerator figures from here on. Running CUDA programs go on; reload the module or "
                "reboot."
            )
        elif code in DOUBTFUL:
            self.say(
                f"The NVIDIA driver stopped answering ({why}): {here}. A container "
                "loses its /dev/nvidia* this way when systemd reloads on the host; restart the container."
            )
        elif code == pynvml.NVML_ERROR_NO_PERMISSION:
            self.say(f"The NVIDIA driver refuses this user ({why}): {here}.")
        elif self._started:
            self.say(f"The NVIDIA driver was unloaded ({why}): {here}.")
        else:
            self.say(f"No NVIDIA driver here ({why}): {here}.")


def _refusal(metric: str, code: int, read_before: bool) -> str:
    verb = "No longer measured" if read_before else "Not measured"
    if code != pynvml.NVML_ERROR_NO_PERMISSION:
        return f"{verb}: {metric}. This GPU or its driver does not give it ({words(code)})."
    way_out = "run as root"
    if metric.endswith(GPM_MARK):
        way_out += ", or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
    return f"{verb}: {metric}. The driver refuses it to this user ({words(code)}); {way_out}."


def words(code: int) -> str:
    """What NVML calls an error code."""
    return str(pynvml.NVMLError(code))


def _code_of(call: Callable[[], Any]) -> int:
    """The code with which a call fails; 0 if it does not."""
    try:
        call()
    except pynvml.NVMLError as error:
        return int(error.value)
    return 0


def number(value: Any, value_type: int) -> float | int | None:
    """The member of an NVML value union that its type names; `None` for a type unknown here."""
    member = _MEMBERS.get(value_type)
    return None if member is None else getattr(value, member[0])


def bits(value_type: int) -> int:
    """Width of an NVML value: the modulus at which a counter of that type wraps."""
    return _MEMBERS[value_type][1]


_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: ("dVal", 64),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: ("uiVal", 32),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: ("ulVal", 64),
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: ("ullVal", 64),
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: ("sllVal", 64),
    5: ("siVal", 32),
    6: ("usVal", 16),
}
