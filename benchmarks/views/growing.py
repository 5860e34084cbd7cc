"""A recording that goes on growing, as a training of 20 ms a step on two devices with eight workers would write it.

As a program (`python -m benchmarks.views.growing FOLDER SECONDS`) it first writes the past, says so, and then the
present.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from pathlib import Path

from whyidle.record.run import create_run
from whyidle.record.schema import BATCH, DEVICE, EVENT, HOST, STEP, Kind
from whyidle.record.segment import RecordWriter

STEP_NS = 20_000_000
LOOK_NS = 200_000_000
WORKERS = 8
DEVICES = 2
PAST_S = 1200
EPOCH_STEPS = 2000


class Growing:
    """Appends what happened until a moment; the recording begins at `begin_ns`."""

    def __init__(self, folder: Path, begin_ns: int) -> None:
        device = {"kind": "cuda", "name": "synthetic", "title": "synthetic GPU", "count": DEVICES}
        create_run(folder, {"command": ["python", "train.py"], "device": device, "plan": {"steps": 10_000_000}})
        self._writers = {kind: RecordWriter(folder, kind) for kind in (STEP, BATCH, DEVICE, HOST, EVENT)}
        self._step_at = self._look_at = self._begin = begin_ns
        self._step = self._look = 0
        self._add(EVENT, {"t_ns": begin_ns, "what": 1, "value": 0})

    def until(self, now_ns: int) -> None:
        while self._step_at + STEP_NS <= now_ns:
            self._add_step()
        while self._look_at + LOOK_NS <= now_ns:
            self._add_look()
        for writer in self._writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _add_step(self) -> None:
        begin, step = self._step_at, self._step
        place = {"step": step, "loader": 1, "batch": step}
        made = STEP_NS * WORKERS * 8 // 10
        self._add(
            BATCH,
            place
            | {"worker": step % WORKERS, "samples": 32, "begin_ns": begin - made, "end_ns": begin, "read_ns": made // 3}
            | {"cpu_ns": made // 2, "run_queue_ns": made // 10, "skipped": 0, "skipped_ns": 0, "skipped_samples": 0},
        )
        wait = STEP_NS // (3 if step // 500 % 2 else 5)
        self._add(
            STEP,
            place
            | {"epoch": step // EPOCH_STEPS, "flags": int(step % EPOCH_STEPS == 0), "samples": 32, "skipped": 0}
            | {"skipped_samples": 0, "queue_ready": 1 + step % 3, "queue_capacity": 16, "overhead_ns": 20_000}
            | {"fetch_begin_ns": begin, "fetch_end_ns": begin + wait, "forward_begin_ns": begin + wait}
            | {"backward_begin_ns": begin + wait, "optimizer_begin_ns": begin + wait + 1000}
            | {"optimizer_end_ns": begin + wait + 10_000, "step_end_ns": begin + wait + 20_000}
            | {"device_begin_ns": begin + wait, "device_end_ns": begin + STEP_NS - 100_000},
        )
        self._step_at += STEP_NS
        self._step += 1

    def _add_look(self) -> None:
        self._look_at += LOOK_NS
        self._look += 1
        t, n = self._look_at, self._look
        for device in range(DEVICES):
            busy = 60 + (n * 7 + 13 * device) % 40
            self._add(
                DEVICE,
                {"t_ns": t, "device": device, "window_ns": LOOK_NS, "utilisation_pct": busy, "sm_active_pct": busy / 2}
                | {"memory_used_bytes": 30e9, "memory_total_bytes": 80e9, "power_mw": 400_000 + n % 1000}
                | {"sm_clock_mhz": 1755, "sm_clock_max_mhz": 1980, "temperature_c": 54, "pcie_generation": 4}
                | {"pcie_width": 16, "pcie_rx_bytes": n * 10**8, "pcie_tx_bytes": n * 10**6, "throttle_reasons": 0},
            )
        self._add(
            HOST,
            {"t_ns": t, "late_ns": 0, "cpus": 16_000, "machine_busy_pct": 40 + n % 20, "machine_iowait_pct": 1}
            | {"steal_pct": 0, "tree_cpu_ns": n * LOOK_NS * 9, "read_chars_bytes": n * 10**7}
            | {"read_storage_bytes": n * 10**6, "shm_used_bytes": 10**8, "shm_total_bytes": 10**10}
            | {"memory_available_bytes": 10**11, "tree_rss_bytes": 10**10, "throttled_us": 0},
        )

    def _add(self, kind: Kind, row: Mapping[str, float]) -> None:
        body = kind.missing()
        for number, each in enumerate(kind.fields[1:]):
            if each.name in row:
                value = row[each.name]
                body[number] = float(value) if each.type == "f8" else int(value)
        self._writers[kind].append(*body)


def main() -> None:
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2])
    begin = time.monotonic_ns()
    growing = Growing(folder, begin - PAST_S * 10**9)
    growing.until(begin)
    print("grown", flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        growing.until(time.monotonic_ns())
        time.sleep(STEP_NS / 1e9)
    growing.close()


if __name__ == "__main__":
    main()
