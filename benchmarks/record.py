"""What a stored record costs, and how fast records are read: `make benchmarks`.

Targets: under 3 µs a record stored, also with a busy Python thread beside it; 10 million records read and
summed by column in under 2 s and under 1.5 GB.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import machine
from whyidle.record.reader import RecordFile
from whyidle.record.schema import BATCH, HEADER_BYTES, STEP, Kind
from whyidle.record.segment import RecordWriter

RECORDS = 10_000_000
BLOCK = 2_000
BLOCKS = 100


@contextmanager
def beside(busy: bool) -> Iterator[RecordWriter]:
    """What stores, with a busy Python thread beside it or none."""
    stop = threading.Event()

    def spin() -> None:
        while not stop.is_set():
            pass

    thread = threading.Thread(target=spin)
    with tempfile.TemporaryDirectory() as folder:
        if busy:
            thread.start()
        writer = RecordWriter(Path(folder), STEP)
        yield writer
        stop.set()
        if busy:
            thread.join()
        writer.close()


def store_cost(busy: bool) -> tuple[float, float, float]:
    """Median, 5 % and 95 % quantile over blocks, in µs a record (CPU time of the storing thread)."""
    row, costs = STEP.missing(), []
    with beside(busy) as writer:
        for _ in range(BLOCKS):
            begin = time.thread_time_ns()
            for _ in range(BLOCK):
                writer.append(*row)
            costs.append((time.thread_time_ns() - begin) / BLOCK / 1e3)
    low, median, high = np.quantile(costs, (0.05, 0.5, 0.95))
    return float(median), float(low), float(high)


def wall_cost_beside_a_busy_thread() -> tuple[float, float]:
    """Median and 99 % quantile of single stores by the wall clock, in µs: does a store give up the GIL?"""
    row, costs = STEP.missing(), []
    with beside(True) as writer:
        for _ in range(BLOCK * 20):
            begin = time.perf_counter_ns()
            writer.append(*row)
            costs.append(time.perf_counter_ns() - begin)
    return float(np.quantile(costs, 0.5)) / 1e3, float(np.quantile(costs, 0.99)) / 1e3


def read_cost(kind: Kind) -> None:
    """Write `RECORDS` records at once, then read them in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        writer = RecordWriter(Path(folder), kind)
        writer.close()
        block = np.zeros(100_000, dtype=kind.dtype)
        with writer.path.open("r+b") as file:
            file.seek(HEADER_BYTES)
            for first in range(0, RECORDS, len(block)):
                block["seq"] = np.arange(first + 1, first + len(block) + 1)
                file.write(block.tobytes())
        subprocess.run([sys.executable, "-m", __spec__.name, "--read", str(writer.path)], check=True)


def read(path: Path) -> None:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        for chunk in RecordFile(path).chunks():
            chunk.view("<i8").sum()
        times.append(time.perf_counter() - begin)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    size = path.stat().st_size / 1e9
    print(
        f"{RECORDS / 1e6:.0f} million records of {path.name} ({size:.2f} GB) read and summed: "
        f"median {sorted(times)[1]:.2f} s ({min(times):.2f} to {max(times):.2f}), peak memory {peak:.2f} GB"
    )


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        read(Path(sys.argv[2]))
        return
    print(machine())
    # Interleaved, so that a slow stretch of the machine hits both.
    rounds = [(store_cost(False), store_cost(True)) for _ in range(3)]
    for name, place in (("alone", 0), ("beside a busy Python thread", 1)):
        median, low, high = sorted(r[place] for r in rounds)[1]
        print(f"a record stored, {name}: median {median:.2f} µs of CPU (90 % of blocks {low:.2f} to {high:.2f})")
    median, p99 = wall_cost_beside_a_busy_thread()
    print(f"a record stored beside a busy thread, wall clock: median {median:.2f} µs, 99 % below {p99:.2f} µs")
    for kind in (BATCH, STEP):
        read_cost(kind)


if __name__ == "__main__":
    main()
