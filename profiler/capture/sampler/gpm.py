"""GPM: what the multiprocessors of a Hopper or newer GPU did between two samples.

Two samples at least 100 ms apart give exact averages over the time between them; each sample ends one window and
begins the next, so windows neither overlap nor leave gaps.

This has run against a fake driver only, not yet on a GPU.
"""

from __future__ import annotations

import math
import time
from typing import Any

import pynvml

from .nvml import GPM, GPM_MARK, Gateway

METRICS = {2: "sm_active_pct", 3: "sm_occupancy_pct", 5: "tensor_active_pct", 10: "dram_active_pct"}
"""NVML_GPM_METRIC_… number → DEVICE field."""
SHORTEST_WINDOW_NS = 100_000_000
"""The driver refreshes its counters this often."""


class Gpm:
    """GPM windows of one GPU."""

    def __init__(self, gateway: Gateway, device: int, handle: Any) -> None:
        self._gateway = gateway
        self._device = device
        self._handle = handle
        self._since_ns: int | None = None
        """When the older of the two samples was taken."""
        support = gateway.read(device, GPM, lambda: pynvml.nvmlGpmQueryDeviceSupport(handle), prepares=True)
        self._older = self._newer = None
        if support is not None and support.isSupportedDevice:
            self._older = gateway.read(device, GPM, pynvml.nvmlGpmSampleAlloc, prepares=True)
            self._newer = gateway.read(device, GPM, pynvml.nvmlGpmSampleAlloc, prepares=True)
        # Large, so made once.
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)

    def sample(self) -> dict[str, float | None] | None:
        """DEVICE fields of the window that ends now; `None` where there is none yet, or GPM is not to be had."""
        now_ns = time.monotonic_ns()
        since_ns = self._since_ns
        if self._newer is None or (since_ns is not None and now_ns - since_ns < SHORTEST_WINDOW_NS):
            return None
        newer = self._newer
        if self._gateway.read(self._device, GPM, lambda: pynvml.nvmlGpmSampleGet(self._handle, newer)) is None:
            return None
        window = None if since_ns is None else self._compare(since_ns, now_ns)
        self._older, self._newer = self._newer, self._older
        self._since_ns = now_ns
        return window

    def _compare(self, begin_ns: int, end_ns: int) -> dict[str, float | None] | None:
        request = self._request
        request.sample1, request.sample2 = self._older, self._newer
        for place, number in enumerate(METRICS):
            request.metrics[place].metricId = number
        if self._gateway.read(self._device, GPM, lambda: pynvml.nvmlGpmMetricsGet(request)) is None:
            return None
        window: dict[str, float | None] = {"t_ns": end_ns, "window_ns": end_ns - begin_ns}
        for place, field in enumerate(METRICS.values()):
            metric = request.metrics[place]
            if metric.nvmlReturn != pynvml.NVML_SUCCESS:
                self._refused(field, metric.nvmlReturn)
            elif math.isfinite(metric.value):
                self._gateway.answered(self._device, f"{field} {GPM_MARK}")
                window[field] = metric.value
        return window if any(field in window for field in METRICS.values()) else None

    def _refused(self, field: str, code: int) -> None:
        name = f"{field} {GPM_MARK}"
        if self._gateway.readable(self._device, name):
            self._gateway.failed(self._device, name, code)
