"""Without workers: every batch is made by the training process when it is asked for."""

from __future__ import annotations

import numpy as np

from .protocol import RUN_AHEAD
from .rows import DrawnTimes
from .workload import Times, Workload


def serial(workload: Workload, drawn: DrawnTimes, step_scale: float = 1.0) -> tuple[Times, Times]:
    """(when each step is done, how long it waited for its indices and its batch), ns, [sequence, step]."""
    limits = workload.limits
    share = min(1.0, limits.cpus)
    part = min(1.0, workload.main_cpus)
    own = 1 / (part * max(1.0, workload.main_cpus / limits.cpus) + 1 - part)
    reads = min(1.0, limits.storage_parallel or 1.0)
    making = workload.scale * (drawn.read / reads + drawn.wait + drawn.cpu / share) + workload.drawing_ns / share
    host = step_scale * drawn.host / own
    if drawn.device is None:
        return np.cumsum(making + host, axis=1), making
    ends, stalls = np.zeros_like(host), np.zeros_like(host)
    now, device = np.zeros(len(host)), np.zeros(len(host))
    for step in range(host.shape[1]):
        begin = now + making[:, step]
        stalls[:, step] = np.maximum(0.0, begin - device)
        now = begin + host[:, step]
        device = np.maximum(np.maximum(begin, device) + step_scale * drawn.device[:, step], now)
        ends[:, step] = device
        if workload.synchronous:
            now = device
        elif step >= RUN_AHEAD:
            now = np.maximum(now, ends[:, step - RUN_AHEAD])
    return ends, stalls
