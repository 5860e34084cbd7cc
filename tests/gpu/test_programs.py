"""Programs whose ways with a GPU have led profilers astray, each with waits and work of known length.

Not yet run on a GPU. A step computes for 10 ms and its batch takes the host longer, so what is left of the time is
spent waiting for data, whatever else a program does.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from support import gpu_programs
from support.gpu_programs import MS, WAITS, Learner, loader, moved, plain
from whyidle.analyse.run.facts import Facts, facts_of
from whyidle.capture.recording import recording
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run, processes
from whyidle.record.schema import PAUSE, STEP, PauseKind, StepFlag

pytestmark = pytest.mark.gpu

COMPUTE_MS = 10
NEAR = 0.05

Program = Callable[[object], object]
Record = Callable[..., Facts]


@pytest.fixture
def record(tmp_path: Path, spins: Callable[[float], None]) -> Record:
    """Records a program as the API does that is told a device, or finds it; no hook may have failed."""

    def record(program: Program, device: str = "auto") -> Facts:
        spins(COMPUTE_MS)
        with recording(tmp_path / "run", device, sampler=False):
            program(None)
        assert read_notices(tmp_path / "run") == []
        facts = facts_of(open_run(tmp_path / "run"))
        assert facts is not None
        assert facts.parts.unresolved_steps == 0
        return facts

    return record


def runs_out_of_memory(_: object) -> None:
    learner = Learner()
    for number, batch in enumerate(loader(60, 20 * MS)):
        if number == 20:
            with pytest.raises(torch.OutOfMemoryError):
                there = torch.cuda.get_device_properties(0).total_memory
                torch.empty(there + 2**30, dtype=torch.uint8, device="cuda")
        learner.step(*moved(batch))


@pytest.mark.parametrize(
    ("program", "parts"),
    [
        (gpu_programs.looks_at_a_batch_first, {"input": 50 / 60}),
        (gpu_programs.computes_on_another_stream, {"input": 10 / 20}),
        (gpu_programs.all_on_another_stream, {"input": 50 / 60}),
        # The scaler reads whether a gradient overflowed: it waits for the device.
        (gpu_programs.scaled, {"input": 70 / 80, "sync": 0.0}),
        # The capture is not spoilt. Two graphs that compute as long as a step are replayed behind two of three.
        (gpu_programs.captures_among_its_steps, {"input": 1 - 10 * (20 + 3 * 40) / 60 / 60}),
        (gpu_programs.replays_whole_steps, {"input": 50 / 60}),
        (gpu_programs.accumulates, {"input": 20 / 30}),
        # Augmenting or packing behind the loader: 10 ms in which the device idles, and nothing is fetched.
        (lambda _: plain(20 * MS, before_ns=10 * MS, waits=WAITS["cuda"]), {"compute": 10 / 40, "host": 10 / 40}),
        (runs_out_of_memory, {"input": 10 / 20}),
    ],
)
def test_where_the_time_of_a_program_goes(record: Record, program: Program, parts: dict[str, float]) -> None:
    facts = record(program)
    assert {part: facts.parts.share(part) for part in parts} == pytest.approx(parts, abs=NEAR)
    assert facts.window.count >= (15 if program is gpu_programs.accumulates else 50)


def test_a_device_that_the_api_is_told_is_the_one_that_it_finds(record: Record) -> None:
    facts = record(gpu_programs.looks_at_a_batch_first, "cuda")
    assert facts.parts.share("input") == pytest.approx(50 / 60, abs=NEAR)


def test_tensors_of_a_class_of_their_own_keep_it(record: Record) -> None:
    tv_tensors = pytest.importorskip("torchvision.tv_tensors")

    def program(_: object) -> None:
        learner = Learner()
        for images, labels in loader(60, 20 * MS):
            boxes = tv_tensors.BoundingBoxes(torch.ones(1, 4), format="XYXY", canvas_size=(4, 4))
            for tensor, options in ((tv_tensors.Image(images), {}), (boxes, {"non_blocking": True})):
                assert type(tensor.to("cuda", **options)) is type(tensor)
            learner.step(*moved([images, labels]))

    record(program)


def test_the_model_is_on_the_second_gpu_and_the_current_device_stays(record: Record, tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    before = torch.cuda.current_device()
    facts = record(lambda _: plain(20 * MS, device="cuda:1"))
    assert torch.cuda.current_device() == before
    assert facts.parts.share("input") == pytest.approx(10 / 20, abs=NEAR)
    assert [process.device["name"] for process in processes(tmp_path / "run")] == ["cuda:1"]


@pytest.mark.parametrize("wait", WAITS)
def test_calls_that_wait_for_the_device_are_told(record: Record, tmp_path: Path, wait: str) -> None:
    record(lambda _: plain(20 * MS, waits=WAITS[wait]))
    pauses = open_run(tmp_path / "run").records(PAUSE)
    waits = pauses[pauses["what"] == PauseKind.SYNC][5:]
    assert len(waits) == pytest.approx(55, abs=3)
    assert np.median(waits["end_ns"] - waits["begin_ns"]) > 0.8e6 * COMPUTE_MS


def test_an_idle_device_is_seen_to_be_idle_when_a_batch_is_asked_for(record: Record, tmp_path: Path) -> None:
    record(lambda _: plain(20 * MS, 2 * MS, waits=WAITS["item"]))
    flags = open_run(tmp_path / "run").records(STEP)["flags"][5:]
    for seen in (StepFlag.DRAINED_KNOWN, StepFlag.DRAINED_AT_ENTRY):
        assert ((flags & seen) != 0).mean() > 0.9
