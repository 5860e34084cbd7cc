"""The check of a GPU, run where there is none: its stages on a stand-in for torch.cuda and a made-up driver.

What is asserted of what they saw is that they judge it right, on a machine that does what CUDA promises; and which of
them cannot be played, so that nobody takes those for tried.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest

import benchmarks.gpu_check.__main__ as main
from benchmarks.gpu_check import checks
from benchmarks.gpu_check.__main__ import run_stage
from benchmarks.gpu_check.checks import FAIL, NOT_MEASURED, PASS, TABLE, NotMeasured, Results, Seen, Stage, run_checks
from benchmarks.gpu_check.rig import ROOT, Done, Recording, Rig
from benchmarks.gpu_check.stages import STAGES, commands, programs, windows
from support import cuda
from support.cuda import Machine, NotPlayed, installed
from support.fakes.driver import HEALTHY, FakeDriver, driver, library
from support.runs import ended
from support.warm import Process
from whyidle.record.run import create_run, describe_process

__all__ = ["driver", "library"]

TESTS = Path(cuda.__file__).parents[2]
DRIVER = HEALTHY + "gpm 28 10 0 10\n"
"""Its samples reach 18 s back, so that a sampler that is kept waiting finds those of the first second."""
NVIDIA_SMI = """#!/bin/sh
case "$*" in
    "") echo "| NVIDIA-SMI 580.95.05   Driver Version: 580.95.05   CUDA Version: 13.0 |" ;;
    dmon*) echo "# gpu  gpm-2"; for each in 1 2 3; do echo "    0     27"; done ;;
    *) for each in 1 2 3; do echo 36; done ;;
esac
"""
UNPLAYED = {
    "windows": {
        "busy union of Kineto": "Kineto",
        "graphs of a compiler and windows": "compile(mode='reduce-overhead')",
    },
    "tests": {
        "gpm and the driver see the share of time that events see": "the driver on a clock that it shares",
    },
    "compare": {"compare ssd": "commands that start trainings of their own"},
    "tune": {"tune a program": "commands that start trainings of their own"},
    "dali": {"dali makes the same batches": "DALI", "compare ssd with dali": "DALI"},
    "ranks": {"ddp without a current device": "NCCL", "fsdp2": "NCCL"},
}
"""Stage → what of it cannot be tried without a GPU, and for want of what."""


TAKE_LONG = ("tests", "errors", "tools", "run")
"""Stages that take a minute of processes, of which each is tried elsewhere."""
ON_STAND_IN = "from support.cuda.__main__ import main; main()"


class PlayedRig(Rig):
    """Commands of the stages are forked from a Python that has torch, where they are trainings."""

    def ended(self, command: Sequence[str], out: BinaryIO, err: BinaryIO, limit_s: float) -> int | None:
        recorded = list(command[1:4]) == ["-m", "whyidle", "run"]
        if not recorded and tuple(command[: len(self.python)]) != self.python:
            return super().ended(command, out, err, limit_s)
        kind, arguments = ("recorded", command[3:]) if recorded else ("program", command[1:])
        streams = (out.fileno(), out.fileno(), err.fileno())
        return Process("trainings", kind, list(arguments), streams, env=self.variables(), cwd=self.folder).wait()


@pytest.fixture
def rig(tmp_path: Path, driver: FakeDriver) -> Rig:
    driver.behave(DRIVER)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(NVIDIA_SMI)
    (programs / "nvidia-smi").chmod(0o755)
    environment = {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(TESTS),
        "GPU_TEST_STAND_IN": "1",
    }
    folder = tmp_path / "scratch"
    folder.mkdir()
    played = (sys.executable, "-c", ON_STAND_IN, "1")
    return PlayedRig(folder, played, environment | driver.environment, NotPlayed, played=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in TAKE_LONG)) for name in STAGES]
)
def test_each_stage_is_right_about_a_machine_that_does_what_cuda_promises(
    name: str, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(Machine(), monkeypatch)
    results = Results(tmp_path / "results")
    run_checks(STAGES[name], rig, results)
    log = gzip.decompress((tmp_path / "results" / checks.LOG).read_bytes()).decode()
    assert [(row["check"], row["seen"]) for row in results.rows if row["outcome"] == FAIL] == [], log[-8000:]
    unplayed = {row["check"]: row["seen"] for row in results.rows if row["outcome"] == NOT_MEASURED}
    expected = {check: f"the stand-in does not play {what}" for check, what in UNPLAYED.get(name, {}).items()}
    assert unplayed == expected
    assert {row["of"] for row in results.rows} == {check.name for check in STAGES[name].checks}


DIES = """
import os, sys
from pathlib import Path
from benchmarks.gpu_check.checks import Results, Seen, Stage, run_checks
from benchmarks.gpu_check.rig import Rig
stage = Stage("s", "", 60)
@stage.check("it works")
def first(rig): return Seen(True, "it worked", {"ms": 3})
@stage.check("it works")
def dies(rig): os._exit(9)
@stage.check("it works")
def fails(rig): raise ValueError("broken")
@stage.check("it works")
def last(rig): return Seen(True, "it worked")
run_checks(stage, Rig(Path()), Results(Path(sys.argv[1])), sys.argv[2:], stop_at_failure=True)
"""


def stage_of(*names: str) -> Stage:
    stage = Stage("s", "", 600)
    for name in names:
        run = lambda _rig: Seen(True, "")  # noqa: E731
        run.__name__ = name
        stage.check("it works")(run)
    return stage


def outcomes(results: Results) -> list[tuple[str, str, str]]:
    return [(row["check"], row["outcome"], row["seen"]) for row in results.rows]


def test_after_a_failure_and_a_crash_a_new_process_goes_on(tmp_path: Path) -> None:
    stage, results, began = stage_of("first", "dies", "fails", "last"), Results(tmp_path), []

    def worker(_stage: Stage, names: Sequence[str], folder: Path) -> list[str]:
        began.append(list(names))
        return [sys.executable, "-c", DIES, str(folder), *names]

    for _ in range(2):  # what an earlier call saw is seen anew
        began.clear()
        run_stage(stage, results, float("inf"), worker)
        assert outcomes(Results(tmp_path)) == [
            ("first", PASS, "it worked"),
            ("dies", FAIL, "its process ended with code 9"),
            ("fails", FAIL, "ValueError: broken"),
            ("last", PASS, "it worked"),
        ]
        assert began == [["first", "dies", "fails", "last"], ["fails", "last"], ["last"]]
    assert sorted(path.name for path in tmp_path.iterdir()) == [checks.LOG, checks.JSON, TABLE]
    assert "ValueError: broken" in gzip.decompress((tmp_path / checks.LOG).read_bytes()).decode()


def test_a_check_that_takes_too_long_has_failed_and_those_behind_it_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, results = stage_of("hangs", "last"), Results(tmp_path)

    def stopped(command: Sequence[str], until: float) -> None:
        Results(tmp_path).begin("s", "hangs", "it works")

    monkeypatch.setattr(main, "_run_worker", stopped)
    left = iter((0.0, 0.0, 1e9))
    monkeypatch.setattr(main.time, "monotonic", lambda: next(left))
    run_stage(stage, results, 600.0)
    assert outcomes(Results(tmp_path)) == [
        ("hangs", FAIL, "it was stopped: its stage took too long"),
        ("last", NOT_MEASURED, "no time was left for it"),
    ]


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(tmp_path: Path) -> None:
    rig, pipe = Rig(tmp_path), tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(TimeoutError, match="sh … did not end within 0 s"):
        rig.command(["sh", "-c", f"(sleep 3600 > {pipe}) & sleep 3600"], 0.01)
    assert "exit code -9" in rig.log.getvalue()
    os.set_blocking(reading, True)
    assert os.read(reading, 1) == b""  # nobody who could write is left
    os.close(reading)


def test_a_process_that_does_not_start_leaves_its_checks_not_measured(tmp_path: Path) -> None:
    results = Results(tmp_path)
    run_stage(stage_of("one", "two"), results, float("inf"), lambda *_: [sys.executable, "-c", "raise SystemExit(3)"])
    said = "no check began: its process ended with code 3"
    assert outcomes(results) == [("one", NOT_MEASURED, said), ("two", NOT_MEASURED, said)]
    run_stage(stage_of("one"), results, 0.0, lambda *_: [])
    assert outcomes(results) == [("one", NOT_MEASURED, "no time was left for it")]


def test_results_of_several_calls_lie_together_and_a_stage_that_is_run_again_replaces_its_own(
    tmp_path: Path, rig: Rig
) -> None:
    for stage, text in (("a", "1"), ("b", "2"), ("b", "3")):
        here = Stage(stage, "", 60)
        here.check("it")(lambda _rig, text=text: Seen(True, text))  # type: ignore[misc]
        run_checks(here, rig, Results(tmp_path))
    assert [(row["stage"], row["seen"]) for row in Results(tmp_path).rows] == [("a", "1"), ("b", "3")]
    assert "| b | <lambda> | it | 3 | pass |" in (tmp_path / TABLE).read_text()


def test_what_was_compared_and_tuned_is_judged_by_its_json(tmp_path: Path) -> None:
    kept = ROOT / "tests" / "golden" / "expected"
    compared = json.loads((kept / "compare-results" / "report.json").read_text())
    seen = commands.judged_cells(0, compared, len(compared["cells"]))
    assert seen.right, seen.text
    assert not commands.judged_cells(1, compared, len(compared["cells"])).right
    tuned = json.loads((kept / "tuned-script" / "report.json").read_text())
    seen = commands.judged_tuning(0, tuned)
    assert f"{tuned['speedup']:.2f} times as fast" in seen.text


def test_kinetos_busy_time_is_the_union_of_work_without_the_ranges_that_a_program_named() -> None:
    def event(where: str, begin: int, end: int, named: bool = False) -> Any:
        said = {"device_type": where, "start_ns": begin, "end_ns": end, "is_user_annotation": named}
        return SimpleNamespace(**{name: lambda value=value: value for name, value in said.items()})

    gpu = "DeviceType.CUDA"
    events = [event(gpu, 10, 20), event(gpu, 15, 30), event("DeviceType.CPU", 0, 99), event(gpu, 0, 99, named=True)]
    assert windows.kernels(events, 5).tolist() == [[5, 25]]
    with pytest.raises(NotMeasured):
        windows.kernels([], 0)


SHARES = {"compute_pct": 80.0, "input_pct": 17.0, "copy_pct": 0.0, "sync_pct": 1.0, "host_pct": 2.0}


def recorded(folder: Path, out: str, **shares: float) -> Recording:
    """A command as it comes back from `whyidle run`, with its report among what it said."""
    report = {"format": "whyidle-report", "breakdown": SHARES | shares, "quality": {"notes": []}}
    report |= {"run": {"device": {"kind": "cuda"}}, "verdict": {"cause": "none"}}
    return Recording(Done(0, out, "a warning\n" + json.dumps(report, indent=1) + "\n"), folder)


def test_ranks_are_judged_by_their_gpus_their_contexts_and_their_waits(tmp_path: Path) -> None:
    create_run(tmp_path / "run", {})
    for rank, name in enumerate(("cuda", "cuda:1")):
        describe_process(tmp_path / "run", rank, 100 + rank, {"device": {"kind": "cuda", "name": name}})
    own = "rank 0 holds a context on [True, False]\nrank 1 holds a context on [False, True]\n"
    both = own.replace("[False, True]", "[True, True]")
    for out, ranks_there, host_pct, right in (
        (own, 2, 2, True),
        (both, 2, 2, False),
        (own, 1, 2, False),
        (own, 2, 20, False),
    ):
        seen = recorded(tmp_path / "run", out, host_pct=host_pct)
        assert programs.judged_ranks(Done(0, own, ""), seen, ranks_there).right == right


@pytest.mark.slow
def test_without_a_gpu_the_script_says_that_nothing_was_measured(tmp_path: Path) -> None:
    environment = {"PYTHON": sys.executable, "OUT": str(tmp_path / "out"), "CUDA_VISIBLE_DEVICES": ""}
    done = ended("scripts/gpu_check.sh", "clocks", cwd=ROOT, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    results = Results(tmp_path / "out")
    assert len(results.rows) == len(STAGES["clocks"].checks)
    assert {row["outcome"] for row in results.rows} == {NOT_MEASURED}
    assert all("sees no CUDA device here" in row["seen"] for row in results.rows)
