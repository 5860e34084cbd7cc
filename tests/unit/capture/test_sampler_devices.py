"""Which GPUs the sampler looks at: those that the training processes of this host say they compute on."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from whyidle.capture.sampler import gpu, nvml
from whyidle.capture.sampler.devices import UNNAMED_NS, Devices
from whyidle.capture.sampler.row import Row
from whyidle.record.files import write_json
from whyidle.record.run import create_run

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

    monkeypatch.setattr(gpu, "NvmlSource", Source)
    monkeypatch.setattr(nvml, "Gateway", lambda _say: None)
    return made


def on(*uuids: str) -> dict[str, Any]:
    return {"kind": "cuda", "uuids": list(uuids), "count": 1}


def test_of_eight_gpus_the_one_that_trains_is_looked_at_from_the_first_look_on(sampled: Sampled) -> None:
    sampled.process(0, on("GPU-5"))
    sampled.look(0)
    assert sampled.looked_at == [(["GPU-5"], 0)]
    sampled.look(60)
    assert len(sampled.looked_at) == 1


def test_a_training_that_names_its_gpu_later_is_looked_at_from_its_begin(sampled: Sampled) -> None:
    sampled.look(0)
    assert sampled.looked_at == []
    sampled.process(0, on("GPU-5"))
    sampled.look(2)
    assert sampled.looked_at == [(["GPU-5"], 0)]


def test_gpus_of_another_host_are_not_looked_for_here(sampled: Sampled) -> None:
    sampled.process(0, on("GPU-there"), host="another-host")
    sampled.process(1, on("GPU-here"))
    sampled.look(0)
    assert sampled.looked_at == [(["GPU-here"], 0)]


def test_a_rank_that_comes_later_changes_no_number(sampled: Sampled) -> None:
    sampled.process(1, on("GPU-1"))
    sampled.look(0)
    sampled.process(0, on("GPU-0"))
    sampled.look(3)
    assert sampled.looked_at == [(["GPU-1"], 0), (["GPU-1", "GPU-0"], 3)]


def test_no_driver_is_asked_for_a_training_on_the_processor_however_long_it_lasts(sampled: Sampled) -> None:
    sampled.process(0, {"kind": "cpu", "uuids": [], "count": 1})
    sampled.look(0)
    sampled.look(UNNAMED_NS / S + 60)
    assert sampled.looked_at == []


def test_a_training_that_moves_on_to_a_gpu_is_followed(sampled: Sampled) -> None:
    sampled.process(0, {"kind": "cpu", "uuids": [], "count": 1})
    sampled.look(0)
    sampled.process(0, on("GPU-3"))
    sampled.look(2)
    assert sampled.looked_at == [(["GPU-3"], 0)]


def test_where_torch_tells_no_uuids_all_gpus_are_looked_at(sampled: Sampled) -> None:
    sampled.process(0, on())
    sampled.look(0)
    assert sampled.looked_at == [([], 0)]


def test_where_nobody_says_anything_all_gpus_are_looked_at_after_a_while(sampled: Sampled) -> None:
    sampled.look(0)
    sampled.look(UNNAMED_NS / S - 1)
    assert sampled.looked_at == []
    sampled.look(UNNAMED_NS / S + 1)
    assert sampled.looked_at == [([], 0)]
