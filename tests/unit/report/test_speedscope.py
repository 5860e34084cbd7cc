"""The looks at stacks as profiles that speedscope opens."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from support.crafted import train_on_cpu
from support.jobs import START as JOB_START
from support.jobs import Rank, record
from support.planted_stacks import DECODING, FETCHING, FORWARD, OPENING, WORKER, look
from whyidle.commands.main import main
from whyidle.record.run import AGAIN
from whyidle.record.stacks import Call
from whyidle.scenarios.planted import MS, START


class Frame(msgspec.Struct, forbid_unknown_fields=True):
    """As speedscope's schema has it: https://www.speedscope.app/file-format-schema.json"""

    name: str
    file: str | msgspec.UnsetType = msgspec.UNSET
    line: int | msgspec.UnsetType = msgspec.UNSET


class Sampled(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    type: Literal["sampled"]
    name: str
    unit: Literal["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"]
    start_value: float
    end_value: float
    samples: list[list[int]]
    weights: list[float]


class Shared(msgspec.Struct, forbid_unknown_fields=True):
    frames: list[Frame]


class File(msgspec.Struct, forbid_unknown_fields=True, rename={"schema": "$schema", "active": "activeProfileIndex"}):
    schema: str
    shared: Shared
    profiles: list[Sampled]
    name: str
    active: int
    exporter: str


def written(run: Path, file: Path) -> File:
    assert main(["report", str(run), "--format", "speedscope", "-o", str(file)]) == 0
    return msgspec.json.decode(file.read_bytes(), type=File)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return train_on_cpu(tmp_path / "run", [{"fetch": 40}] * 50)


def test_what_speedscope_asks_of_a_profile_holds(run: Path, tmp_path: Path) -> None:
    look(run, range(START, START + 3000 * MS, 7 * MS), lambda number, _: (FETCHING, FORWARD, None)[number % 3])
    look(run, range(START, START + 3000 * MS, 90 * MS), lambda number, _: (OPENING, DECODING)[number % 2], WORKER)
    # The look at a call without a line, in a thread of its own.
    look(run, [START], lambda *_: (Call("", "", 0), Call("f", "/home/me/a.py", 0)), WORKER + 1)
    made = written(run, tmp_path / "made.json")
    for profile in made.profiles:
        assert profile.unit == "seconds"
        assert len(profile.samples) == len(profile.weights)
        assert sum(profile.weights) == pytest.approx(profile.end_value - profile.start_value)
        assert all(0 <= place < len(made.shared.frames) for sample in profile.samples for place in sample)
    frames = [msgspec.to_builtins(frame) for frame in made.shared.frames]
    assert {"name": "?"} in frames
    assert {"name": "f", "file": "/home/me/a.py"} in frames
    assert len({str(frame) for frame in frames}) == len(frames)


def test_ranks_are_named_and_hosts_begin_by_their_own_clocks(tmp_path: Path) -> None:
    job = record(tmp_path, [Rank(), Rank(host="beta")], apart=True, shifts={"beta": 10**15})
    for folder, begin in zip(job.folders, (JOB_START, JOB_START + 10**15), strict=True):
        (name,) = (path.name for path in folder.glob("process-*.json"))
        pid = int(name.removesuffix(".json").split("-")[2]) % AGAIN
        look(folder, range(begin, begin + 100 * MS, 10 * MS), lambda *_: FORWARD, pid)
    assert main(["report", *map(str, job.folders), "--format", "speedscope", "-o", str(tmp_path / "made.json")]) == 0
    made = msgspec.json.decode((tmp_path / "made.json").read_bytes(), type=File)
    assert [(each.name, each.start_value) for each in made.profiles] == [
        ("rank 0: training", 0.0),
        ("rank 1: training", 0.0),
    ]
    assert [sum(each.weights) for each in made.profiles] == pytest.approx([0.1, 0.1])


def test_a_run_without_looks_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--format", "speedscope", "-o", str(run.parent / "made.json")]) == 2
    assert "no stack samples of a training" in capsys.readouterr().err
    assert not (run.parent / "made.json").exists()
