"""Which GPUs the sampler looks at: those that the training processes of this host say they compute on."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from whyidle.capture.sampler import nvml
from whyidle.capture.sampler.devices import UNNAMED_NS, Devices
from whyidle.record.files import write_json
from whyidle.record.run import create_run
from whyidle.record.schema import Row

S = 1_000_000_000
START = 10**15


class Sampled:
    """A sampler on a machine with eight GPUs, and those it was told to look at, one entry for each time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.devices = Devices(folder, lambda _: None, START)
        self.looked_at: list[tuple[list[str], int]] = []

    def process(self, rank: int, device: dict[str, Any], host: str | None = None) -> None:
        told = {"rank": rank, "pid": 100 + rank, "host": host or socket.gethostname(), "device": device}
        write_json(self.folder / f"process-{rank}-{100 + rank}.json", told)

    def look(self, seconds: float) -> None:
        self.devices.sample(START + round(seconds * S))


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampled:
    made = Sampled(create_run(tmp_path / "run", {"command": ["python", "train.py"]}))

    class Source:
        driver = None
        devices = ()

        def __init__(self, _gateway: object, uuids: Sequence[str], start_ns: int) -> None:
            made.looked_at.append((list(uuids), (start_ns - START) // S))

        def sample(self, now_ns: int, last: bool = False) -> list[Row]:
            return []

    monkeypatch.setattr(time, "thread_time_ns", lambda: 0)
    monkeypatch.setattr(nvml, "NvmlSource", Source)
    monkeypatch.setattr(nvml, "Gateway", lambda _say: None)
    return made


def on(*uuids: str) -> dict[str, Any]:
    return {"kind": "cuda", "uuids": list(uuids), "count": 1}


CPU = {"kind": "cpu", "uuids": [], "count": 1}
LATE = UNNAMED_NS / S


@pytest.mark.parametrize(
    ("happens", "looked_at"),
    [
        ([(0, on("GPU-5")), 0, 60], [(["GPU-5"], 0)]),
        ([0, (0, on("GPU-5")), 2], [(["GPU-5"], 0)]),  # it names its GPU later, and is looked at from its begin
        ([(0, on("GPU-there"), "another-host"), (1, on("GPU-here")), 0], [(["GPU-here"], 0)]),
        ([(1, on("GPU-1")), 0, (0, on("GPU-0")), 3], [(["GPU-1"], 0), (["GPU-1", "GPU-0"], 3)]),
        ([(0, CPU), 0, LATE + 60], []),
        ([(0, CPU), 0, (0, on("GPU-3")), 2], [(["GPU-3"], 0)]),
        ([(0, on()), 0], [([], 0)]),  # torch tells no UUIDs
        ([0, LATE - 1], []),
        ([0, LATE - 1, LATE + 1], [([], 0)]),
    ],
)
def test_looked_at_are_the_gpus_that_processes_of_this_host_name_or_else_all_after_a_while(
    sampled: Sampled, happens: list[Any], looked_at: list[Any]
) -> None:
    for each in happens:
        sampled.process(*each) if isinstance(each, tuple) else sampled.look(each)
    assert sampled.looked_at == looked_at
