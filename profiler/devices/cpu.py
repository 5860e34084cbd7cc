"""The processor as the accelerator: nothing is queued, so host stamps are the device's."""

from __future__ import annotations

import platform
import time
from pathlib import Path

import torch

from .protocol import Device


class CpuDevice(Device):
    kind = "cpu"
    name = "cpu"
    torch_device = torch.device("cpu")
    now = staticmethod(time.monotonic_ns)

    def __init__(self) -> None:
        self.title = platform.machine()
        try:
            for line in Path("/proc/cpuinfo").read_text().splitlines():
                if line.startswith("model name"):
                    self.title = line.split(":", 1)[1].strip()
                    break
        except OSError:
            pass
