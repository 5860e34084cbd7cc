"""Critical errors that the driver reports about the GPUs of a run: Xid, ECC, a GPU that falls out.

The driver queues them for whoever has registered, so polling seldom loses none. Each is one sentence.

This has run against a fake driver only, not yet on a GPU.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

import pynvml

from .nvml import DRIVER_GONE, Gateway, words
from .schedule import NS_PER_S

ECC, XID, POISON, UNAVAILABLE, RECOVERY = 0x2, 0x8, 0x2000, 0x4000, 0x8000
"""nvmlEventType… bits; `nvidia-ml-py` names only some of them in its older releases."""
ALL_KINDS = ECC | XID | POISON | UNAVAILABLE | RECOVERY
MEANINGS = {
    ECC: "an uncorrectable memory error (ECC)",
    POISON: "poisoned data that it could not contain",
    UNAVAILABLE: "that it is no longer available",
    RECOVERY: "that it needs a reset or a reboot",
}
XIDS = {
    13: "exception in a kernel",
    31: "memory page fault of a kernel",
    43: "a program's channel was stopped",
    48: "uncorrectable memory error (ECC)",
    63: "memory row or page retired",
    64: "memory row or page could not be retired",
    74: "NVLink error",
    79: "the GPU has fallen off the bus",
    94: "memory error contained to one program",
    95: "memory error that was not contained",
    119: "the GPU's own processor (GSP) does not answer",
    120: "error of the GPU's own processor (GSP)",
}
"""The commonest of the numbers in NVIDIA's list of Xid errors."""
MOST_AT_ONCE = 16
MOST_SENTENCES = 20


class CriticalErrors:
    """Polls the driver's events, without waiting for any."""

    def __init__(self, gateway: Gateway, handles: Mapping[int, Any], start_ns: int) -> None:
        self._gateway = gateway
        self._start_ns = start_ns
        self._devices = {_address(handle): device for device, handle in handles.items()}
        self._said: set[tuple[int | None, int, int]] = set()
        self._events: Any | None = None
        if handles and not gateway.ended:
            self._register(list(handles.values()))

    def look(self, now_ns: int) -> None:
        """Say what the driver has reported since the last look."""
        for _ in range(MOST_AT_ONCE):
            if self._events is None or self._gateway.ended:
                return
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._events = None
                    self._unwatched("No longer watched", error.value)
                return
            self._tell(event, now_ns)

    def _tell(self, event: Any, now_ns: int) -> None:
        kind, number = int(event.eventType), int(event.eventData)
        device = self._devices.get(_address(event.device))
        what = f"Xid {number}{_meaning(number)}" if kind == XID else MEANINGS.get(kind, f"event {kind:#x}")
        key = device, kind, number
        if key in self._said or len(self._said) >= MOST_SENTENCES:
            return
        self._said.add(key)
        name = "A GPU of the run" if device is None else f"GPU {device} of the run"
        seconds = (now_ns - self._start_ns) / NS_PER_S
        self._gateway.say(f"{name} reported {what}, {seconds:.0f} s after sampling began.")

    def _register(self, handles: list[Any]) -> None:
        """Ask for as many kinds as each GPU can report. Some containers refuse it."""
        try:
            events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            self._unwatched("Not watched", error.value)
            return
        for handle in handles:
            try:
                kinds = ALL_KINDS & pynvml.nvmlDeviceGetSupportedEventTypes(handle)
                if not kinds:
                    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
                pynvml.nvmlDeviceRegisterEvents(handle, kinds, events)
                self._events = events
            except pynvml.NVMLError as error:
                self._unwatched("Not watched", error.value)

    def _unwatched(self, verb: str, code: int) -> None:
        if code not in DRIVER_GONE:
            # Of a driver that has gone, whoever reads the next figure says so.
            self._gateway.say(
                f"{verb}: critical errors of the GPU (Xid, ECC). The driver does not report them here "
                f"({words(code)}); the kernel log has them."
            )


def _address(handle: Any) -> int | None:
    """NVML's handles are pointers: the same device has the same."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def _meaning(number: int) -> str:
    return f" ({XIDS[number]})" if number in XIDS else ""
