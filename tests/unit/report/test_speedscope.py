"""The looks at stacks as profiles that speedscope opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.crafted import train_on_cpu
from support.jobs import START as JOB_START
from support.jobs import Rank, record
from support.planted_stacks import DECODING, FETCHING, FORWARD, OPENING, WORKER, look
from whyidle.commands.main import main
from whyidle.record.run import AGAIN
from whyidle.record.stacks import Call
from whyidle.scenarios.planted import MS, START

PROFILE = {"type", "name", "unit", "startValue", "endValue", "samples", "weights"}
"""Keys of a sampled profile in https://www.speedscope.app/file-format-schema.json, all required."""


def written(runs: list[Path], file: Path) -> Any:
    assert main(["report", *map(str, runs), "--format", "speedscope", "-o", str(file)]) == 0
    made = json.loads(file.read_text())
    assert made.keys() == {"$schema", "exporter", "name", "activeProfileIndex", "profiles", "shared"}
    for profile in made["profiles"]:
        assert profile.keys() == PROFILE
        assert (profile["type"], profile["unit"]) == ("sampled", "seconds")
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == pytest.approx(profile["endValue"] - profile["startValue"])
        frames = range(len(made["shared"]["frames"]))
        assert all(place in frames for sample in profile["samples"] for place in sample)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return train_on_cpu(tmp_path / "run", [{"fetch": 40}] * 50)


def test_what_speedscope_asks_of_a_profile_holds(run: Path, tmp_path: Path) -> None:
    look(run, range(START, START + 3000 * MS, 7 * MS), lambda number, _: (FETCHING, FORWARD, None)[number % 3])
    look(run, range(START, START + 3000 * MS, 90 * MS), lambda number, _: (OPENING, DECODING)[number % 2], WORKER)
    # The look at a call without a line, in a thread of its own.
    look(run, [START], lambda *_: (Call("", "", 0), Call("f", "/home/me/a.py", 0)), WORKER + 1)
    frames = written([run], tmp_path / "made.json")["shared"]["frames"]
    assert all({"name"} <= frame.keys() <= {"name", "file", "line"} for frame in frames)
    assert {"name": "?"} in frames
    assert {"name": "f", "file": "/home/me/a.py"} in frames
    assert len({str(frame) for frame in frames}) == len(frames)


def test_ranks_are_named_and_hosts_begin_by_their_own_clocks(tmp_path: Path) -> None:
    job = record(tmp_path, [Rank(), Rank(host="beta")], apart=True, shifts={"beta": 10**15})
    for folder, begin in zip(job.folders, (JOB_START, JOB_START + 10**15), strict=True):
        (name,) = (path.name for path in folder.glob("process-*.json"))
        pid = int(name.removesuffix(".json").split("-")[2]) % AGAIN
        look(folder, range(begin, begin + 100 * MS, 10 * MS), lambda *_: FORWARD, pid)
    profiles = written(list(job.folders), tmp_path / "made.json")["profiles"]
    named = [(each["name"], each["startValue"]) for each in profiles]
    assert named == [("rank 0: training", 0.0), ("rank 1: training", 0.0)]
    assert [sum(each["weights"]) for each in profiles] == pytest.approx([0.1, 0.1])


def test_a_run_without_looks_is_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), "--format", "speedscope", "-o", str(run.parent / "made.json")]) == 2
    assert "no stack samples of a training" in capsys.readouterr().err
    assert not (run.parent / "made.json").exists()
