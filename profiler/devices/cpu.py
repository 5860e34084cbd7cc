"""The processor as the accelerator: nothing is queued, so host stamps are the device's."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .protocol import Copy, Event, Stream


class CpuDevice:
    kind = "cpu"
    name = "cpu"
    asynchronous = False
    torch_device = torch.device("cpu")
    now = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self.title = _processor_name()

    def record(self, stream: Stream = None) -> Event:
        return _Passed(time.monotonic_ns())

    def release(self, event: Event) -> None:
        pass

    def side_stream(self) -> Stream:
        return None

    def pin(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return list(tensors)

    def copy(
        self, tensors: Sequence[torch.Tensor], *, pinned: bool = False, stream: Stream = None
    ) -> tuple[list[torch.Tensor], Copy]:
        now = time.monotonic_ns()
        return list(tensors), Copy(now, now, 0, pinned, stream is not None, None, None)

    def wait_for(self, copy: Copy, tensors: Sequence[torch.Tensor]) -> None:
        pass

    def synchronize(self) -> None:
        pass

    def captures(self) -> bool:
        return False

    def settle(self, mark: Event, limit_ns: int) -> None:
        pass

    def arrival_ns(self) -> int:
        return 0

    def clock_uncertainty_ns(self) -> int | None:
        return 0

    def operations(self) -> int:
        return 0

    def memory_used(self) -> int | None:
        return None

    def allocation_retries(self) -> int | None:
        return None

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "title": self.title, "count": 1, "uuids": []}


class _Passed:
    """A mark that was reached when it was made."""

    __slots__ = ("_at",)
    stream = None

    def __init__(self, at_ns: int) -> None:
        self._at = at_ns

    def done(self) -> bool:
        return True

    def time_ns(self) -> int:
        return self._at


def _processor_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        return platform.machine()
    return platform.machine()
