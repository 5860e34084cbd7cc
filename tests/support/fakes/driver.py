"""Fixtures that put the library made from `nvml.c` in the driver's place.

Each test runs a process of its own, because a process loads NVML once: what the sampler has for devices, on a virtual
clock.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from whyidle.record.run import create_run
from whyidle.record.schema import DEVICE

FAKE = Path(__file__).with_name("nvml.c")
HEALTHY = """
memory 5000000000 80000000000
util 37 21
state 312500 1755 2619 64 4 5 16 2
field 74 3 500 100
field 269 3 1000 10
field 270 3 5 1
field 197 3 7000000000 1000
field 198 1 4000000000 3000000000
"""
Named = dict[str, Any]


@dataclass
class FakeDriver:
    """A script for the fake library, and the environment that makes a process use it."""

    library: Path
    script: Path
    environment: dict[str, str] = field(default_factory=dict)

    def behave(self, script: str) -> None:
        self.script.write_text(script)
        paths = [str(self.library), os.environ.get("LD_LIBRARY_PATH", "")]
        self.environment = {
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths)),
            "FAKE_NVML": str(self.script),
        }

    def calls(self) -> list[tuple[str, int]]:
        """(function, GPU) of every call about a GPU, in order."""
        log = self.script.with_name(self.script.name + ".log")
        lines = log.read_text().splitlines() if log.exists() else []
        return [(name, int(gpu)) for name, gpu in (line.split() for line in lines)]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)
    if compiler is None:
        pytest.skip("the fake NVML library needs a C compiler, and there is none (cc, gcc, clang)")
    folder = tmp_path_factory.mktemp("nvml")
    target = str(folder / "libnvidia-ml.so.1")
    subprocess.run([compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-o", target, str(FAKE)], check=True)
    return folder


@pytest.fixture
def driver(library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(library, tmp_path / "script")


NAMES = tuple(f.name for f in DEVICE.fields[1:])

VIRTUAL = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from whyidle.capture.sampler import nvml
from whyidle.capture.sampler.devices import Devices
folder, steps = json.loads(sys.argv[1])
said, rows, start = [], [], 10**15
shown = start
nvml.time = SimpleNamespace(monotonic_ns=lambda: shown)
# Each sentence once, as the sampler's notices do.
say = lambda sentence: sentence in said or said.append(sentence)
devices = Devices(Path(folder), say, start)
for step in steps:
    # Samples are there at the first look, too.
    shown = start + round(step * 1e9) + 20_000_000
    rows.append(devices.sample(start + round(step * 1e9)))
print(json.dumps([said, rows]))
"""


@pytest.fixture
def looks(driver: FakeDriver, tmp_path: Path) -> Callable[..., tuple[list[str], list[list[Named]]]]:
    """Samples the devices of the run in `run`, in a process, on a virtual clock.

    Returns the notices, and the measured fields of the records of each look.
    """

    def run(script: str, steps: list[float], uuids: tuple[str, ...] = ()) -> tuple[list[str], list[list[Named]]]:
        driver.behave(script)
        folder = create_run(tmp_path / "run", {"device": {"kind": "cuda", "uuids": uuids}})
        command = [sys.executable, "-c", VIRTUAL, json.dumps([str(folder), steps])]
        done = subprocess.run(command, env=os.environ | driver.environment, capture_output=True, text=True, check=True)
        said, rows = json.loads(done.stdout)
        return said, [[DEVICE.measured(body) for body in look] for look in rows]

    return run


def wait_for(condition: Callable[[], object], what: str = "it", seconds: float = 120.0) -> None:
    """Until it holds. The time-out is for what never comes, on a machine that is as busy as it may be."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.01)
