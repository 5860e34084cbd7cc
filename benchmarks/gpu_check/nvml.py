"""Asks the driver by which clock it stamps its samples: `python -m benchmarks.gpu_check.nvml`, a process of its own."""

from __future__ import annotations

import contextlib
import json
import time

import pynvml

EVERY_S = 0.2
TRIES = 15


def main() -> None:
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    newest, count = 0, 0
    for _ in range(TRIES):
        with contextlib.suppress(pynvml.NVMLError_NotFound):  # none since
            _, samples = pynvml.nvmlDeviceGetSamples(handle, pynvml.NVML_GPU_UTILIZATION_SAMPLES, newest)
            stamps = [int(sample.timeStamp) for sample in samples if sample.timeStamp]
            count += len(stamps)
            newest = max(stamps, default=newest)
        time.sleep(EVERY_S)
    clocks = {"epoch": time.CLOCK_REALTIME, "boot": time.CLOCK_BOOTTIME}
    behind = {name: time.clock_gettime_ns(clock) / 1e9 - newest / 1e6 for name, clock in clocks.items()}
    print(json.dumps({"samples": count, "seconds": TRIES * EVERY_S, "behind_s": behind}))


if __name__ == "__main__":
    main()
