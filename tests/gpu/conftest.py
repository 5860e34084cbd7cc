"""Tests of a GPU. Where `GPU_TEST_STAND_IN` is set they run on the stand-in for torch.cuda: a check of the tests."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.gpu_check.checks import REPORTS
from benchmarks.gpu_check.spinning import cycles_per_ms
from support import gpu_programs

PLAYED = bool(os.environ.get("GPU_TEST_STAND_IN"))
if PLAYED:  # nothing of it is near a GPU
    from support.cuda import GpuSpec, Machine, NotPlayed, installed


@pytest.fixture(autouse=True)
def gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is one, or what stands in for it."""
    if PLAYED:
        unplayed = request.node.get_closest_marker("unplayed")
        if unplayed is not None:
            pytest.skip(f"the stand-in does not play {unplayed.args[0]}")
        installed(Machine(GpuSpec(), GpuSpec()), monkeypatch)
    elif not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")


@pytest.fixture
def spins(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Has each forward pass of a `Learner` take the device so many milliseconds."""
    return lambda ms: monkeypatch.setattr(gpu_programs, "spin_cycles", int(ms * cycles_per_ms()))


@pytest.fixture
def large() -> int:
    """Values of a tensor whose copy takes long: 16 million; of few where it is only played that it takes long."""
    return 1 << (16 if PLAYED else 24)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    try:
        return (yield)
    except BaseException as missing:
        if PLAYED and isinstance(missing, NotPlayed):
            pytest.skip(str(missing))
        raise


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """What became of each test, for whoever asked for it: the call, or what kept it from being made."""
    file = os.environ.get(REPORTS)
    if not file or (report.when != "call" and report.passed):
        return
    said = [f"{name} {value}" for name, value in report.user_properties]
    if report.skipped and isinstance(report.longrepr, tuple):
        said.append(report.longrepr[2].removeprefix("Skipped: "))
    elif report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        said.append(str(report.longrepr if crash is None else crash.message).strip().splitlines()[0])
    row = {
        "test": report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " "),
        "right": None if report.skipped else report.passed,
        "seen": "; ".join(said) or "it holds",
    }
    with Path(file).open("a") as rows:
        rows.write(json.dumps(row) + "\n")
