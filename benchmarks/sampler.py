"""What the sampler costs: `python -m benchmarks.sampler`. What starting adds otherwise, `benchmarks.overhead` says.

Target: under 2 % of a core at 5 samples a second beside a tree of five processes.

NVML is the made-up library of `tests/support/fakes/nvml.c`, where there is a C compiler: the figure with it is the cost
of our side of the calls, not that of a driver.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import machine
from whyidle.capture.sampler.start import start_sampler
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import DEVICE, HOST, Kind

SECONDS = 30.0
RATE = 5.0
ROUNDS = 9
FAKE = Path(__file__).parents[1] / "tests" / "support" / "fakes" / "nvml.c"
DRIVER = """
memory 5000000000 80000000000
util 37 21
state 312500 1755 2619 64 4 5 16 2
gpm 61 12 8 33
field 74 3 500 100
field 269 3 1000 10
field 270 3 5 1
field 197 3 7000000000 1000
field 198 3 4000000000 1000
"""
"""A GPU that answers everything."""
TREE = """
import os, sys, time
for _ in range(4):
    if os.fork() == 0:
        break
print(flush=True)
# As busy as it takes to change every counter between two samples.
while os.getppid() != 1:
    sum(range(1000))
    time.sleep(0.05)
"""


@contextmanager
def tree_of_five() -> Iterator[int]:
    """Five processes; the pid of the root."""
    process = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    try:
        yield process.pid
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def made_up_driver(folder: Path) -> bool:
    """Put the made-up NVML in the place of the driver's, for processes started from now on; false if it cannot."""
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        return False
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / "libnvidia-ml.so.1"), str(FAKE)], check=True)
    (folder / "script").write_text(DRIVER)
    # The library notes every call in a file beside its script; a driver does not.
    (folder / "script.log").symlink_to("/dev/null")
    os.environ["FAKE_NVML"] = str(folder / "script")
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return True


def sampling_cost(device: dict[str, object], pid: int) -> tuple[list[float], float]:
    """CPU in percent of a core for each second of sampling, and in seconds for the whole life of the sampler."""
    with tempfile.TemporaryDirectory() as name:
        folder = create_run(Path(name) / "run", {"device": device})
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with start_sampler(folder, pid, RATE):
            time.sleep(SECONDS)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        records = open_run(folder).records(HOST)
    cpu, stamps = records["sampler_cpu_ns"], records["t_ns"]
    edges = np.arange(stamps[0], stamps[-1], 1e9)
    percent = np.diff(np.interp(edges, stamps, cpu)) / 1e7
    whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return percent.tolist(), whole


def start_cost(device: dict[str, object], kind: Kind) -> tuple[float, float]:
    """Seconds that the call to start the sampler took, and until its first record of a kind could be read."""
    with tempfile.TemporaryDirectory() as name:
        folder = create_run(Path(name) / "run", {"device": device})
        begin = time.monotonic()
        with start_sampler(folder, os.getpid(), RATE):
            called = time.monotonic()
            while not any(folder.glob(f"{kind.name}-*.rec")) or len(open_run(folder).records(kind)) == 0:
                time.sleep(0.002)
            found = time.monotonic()
    return called - begin, found - begin


def line(what: str, values: Sequence[float], unit: str, digits: int = 3) -> None:
    low, median, high = np.quantile(values, (0.05, 0.5, 0.95))
    print(f"{what:52} {median:8.{digits}f} {unit:2} ({low:.{digits}f} to {high:.{digits}f})")


def main() -> None:
    print(machine())
    print(f"load before: {os.getloadavg()[0]:.1f}; median and 5 to 95 % interval")
    with tempfile.TemporaryDirectory() as folder:
        faked = made_up_driver(Path(folder))
        if not faked:
            print("no C compiler (cc, gcc, clang): nothing is measured with NVML")
        cases: list[tuple[str, dict[str, object], Kind]] = [("no accelerator", {"kind": "cpu"}, HOST)]
        cases += [("made-up NVML", {"kind": "cuda", "uuids": []}, DEVICE)] * faked
        starts: dict[str, list[tuple[float, float]]] = {name: [] for name, _, _ in cases}
        # Interleaved, so that a slow stretch of the machine hits all.
        for _ in range(ROUNDS):
            for name, device, kind in cases:
                starts[name].append(start_cost(device, kind))
        calls = [1000 * call for found in starts.values() for call, _ in found]
        line("the call that starts the sampler", calls, "ms", 2)
        for name, found in starts.items():
            line(f"from that call to the first record, {name}", [first for _, first in found], "s")
        with tree_of_five() as pid:
            for name, device, _ in cases:
                percent, whole = sampling_cost(device, pid)
                line(f"sampling at {RATE:g} Hz, five processes, {name}", percent, "%", 2)
                mean = np.mean(percent)
                print(f"    mean {mean:.2f} % of a core; {whole:.2f} s of CPU for {SECONDS:g} s, with its start")


if __name__ == "__main__":
    main()
