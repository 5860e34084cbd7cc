"""Traps for a profiler on a real GPU: each with work of known length. Needs a GPU; not yet run on one.

Where a bound is in milliseconds of the device's own clock it is exact to launch latencies; shares have margins, since
the machine may be shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from benchmarks.gpu_check.spinning import cycles_per_ms
from support.gpu_programs import MS, WAITS, Learner, loader, moved, plain
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.run.facts import Facts
from whyidle.capture.recording import recording
from whyidle.record.run import open_run
from whyidle.record.schema import PAUSE, STEP, PauseKind, StepFlag

pytestmark = pytest.mark.gpu

Spins = Callable[[float], None]
Analysed = Callable[..., tuple[Facts, str]]


@pytest.fixture
def analysed(tmp_path: Path) -> Analysed:
    """Records a program into `run`; gives the facts of it and the cause that is named."""

    def analysed(program: Callable[[], object], sampler: bool = False) -> tuple[Facts, str]:
        with recording(tmp_path / "run", "cuda", sampler=sampler):
            program()
        analysis = analyse(open_run(tmp_path / "run"))
        assert analysis.facts is not None
        assert analysis.facts.parts.unresolved_steps == 0
        return analysis.facts, analysis.verdict.cause

    return analysed


@pytest.mark.parametrize(("fetch_ms", "compute_ms"), [(20, 5), (12, 10), (4, 10)])
def test_exposed_input_is_what_the_device_waits_and_no_more(
    analysed: Analysed, spins: Spins, fetch_ms: int, compute_ms: int
) -> None:
    spins(compute_ms)
    facts, _ = analysed(lambda: plain(fetch_ms * MS, steps=100))
    assert facts.parts.share("input") == pytest.approx(max(0.0, 1 - compute_ms / fetch_ms), abs=0.05)


def test_reading_the_loss_in_every_step_does_not_flip_the_verdict_when_it_costs_nothing(
    analysed: Analysed, spins: Spins, tmp_path: Path
) -> None:
    """The host waits in `.item()` for most of each step; the device idles for some launches, below 2 % of 40 ms."""
    spins(40)
    facts, cause = analysed(lambda: plain(MS // 2, steps=100, waits=WAITS["item"]))
    assert open_run(tmp_path / "run").records(STEP)["sync_ns"].sum() > 0.5 * facts.parts.wall_ns
    assert facts.parts.share("sync") < 0.02
    assert cause == "none"


def test_waits_that_bleed_into_the_fetch_are_not_blamed_on_it(analysed: Analysed, spins: Spins) -> None:
    """A naive timer around the pageable copy and the fetch sees most of the step; the device idles a tenth of it."""
    naive = []

    def program() -> None:
        learner, begin = Learner(), time.monotonic()
        for batch in loader(100, 2 * MS):
            images, labels = moved(batch)  # pageable: waits for all earlier work
            naive.append(time.monotonic() - begin)
            learner.step(images, labels)
            begin = time.monotonic()

    spins(18)
    parts = analysed(program)[0].parts
    assert sum(naive[5:]) * 1e9 > 0.6 * parts.wall_ns
    assert parts.share("input") + parts.share("copy") + parts.share("host") < 0.2


class Wide:
    """A net of one layer, and batches for it, which take long to copy."""

    def __init__(self, batches: int, width: int, spin_ms: float, pinned: bool) -> None:
        self.loader = DataLoader([torch.ones(width)] * batches, batch_size=1, pin_memory=pinned)  # type: ignore[arg-type, var-annotated]
        self._net, self._cycles = torch.nn.Linear(width, 1).cuda(), int(spin_ms * cycles_per_ms())
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=1e-9)

    def step(self, batch: torch.Tensor) -> None:
        torch.cuda._sleep(self._cycles)
        self._net(batch).square().mean().backward()
        self._optimizer.step()


@pytest.mark.parametrize("pinned", [False, True])
def test_copies_of_known_size_take_what_events_around_them_say(
    analysed: Analysed, tmp_path: Path, large: int, pinned: bool
) -> None:
    def program() -> None:
        training = Wide(40, large, 2, pinned)
        for batch in training.loader:
            training.step(batch.to("cuda", non_blocking=pinned))

    analysed(program)
    steps = open_run(tmp_path / "run").records(STEP)[5:]
    assert (steps["copy_bytes"] == 4 * large).all()
    assert bool((steps["flags"] & StepFlag.PINNED).all()) == pinned
    took = np.median(steps["device_copy_end_ns"] - steps["device_copy_begin_ns"])
    speed = 4 * large / took  # bytes a ns: GB/s
    assert (8 if pinned else 0.5) < speed < 130


def test_a_copy_ahead_on_a_side_stream_costs_the_device_nothing(analysed: Analysed, large: int) -> None:
    def program() -> None:
        training, side = Wide(60, large // 4, 10, pinned=True), torch.cuda.Stream()
        for batch in training.loader:
            with torch.cuda.stream(side):
                images = batch.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            images.record_stream(torch.cuda.current_stream())
            training.step(images)

    facts, _ = analysed(program)
    assert (facts.window.steps["flags"] & StepFlag.COPIED_AHEAD).any()
    assert facts.parts.share("copy") < 0.02


def test_a_wait_in_the_midst_of_a_step_is_a_pause_of_known_length(
    analysed: Analysed, spins: Spins, tmp_path: Path
) -> None:
    def program() -> None:
        learner = Learner()
        for batch in loader(60, 0):
            images, _labels = moved(batch)
            learner.model(images).square().mean().backward()
            norm = torch.nn.utils.clip_grad_norm_(learner.model.parameters(), 1.0)
            if norm.item() >= 0:  # the device is idle from here on
                learner.optimizer.step()

    spins(30)
    facts, _ = analysed(program)
    pauses = open_run(tmp_path / "run").records(PAUSE)
    pauses = pauses[pauses["what"] == PauseKind.SYNC]
    assert len(pauses) == 60
    idle = (pauses["device_end_ns"] - pauses["device_begin_ns"])[5:]
    assert (idle >= 0).all()
    assert np.median(idle) < MS
    assert facts.parts.share("compute") > 0.8


@pytest.mark.unplayed("the driver on a clock that it shares")
def test_gpm_and_the_driver_see_the_share_of_time_that_events_see(analysed: Analysed, spins: Spins) -> None:
    spins(10)
    facts, _ = analysed(lambda: plain(20 * MS, steps=400), sampler=True)
    seen = facts.sampled
    assert seen.utilisation_pct is not None
    assert seen.utilisation_pct == pytest.approx(100 * facts.parts.stepping_share, abs=15)
    if seen.sm_active_pct is not None:
        # One thread of one multiprocessor: hardly anything, while the driver calls the device half busy.
        assert seen.sm_active_pct < 20


def test_the_hooks_count_less_than_sixty_microseconds_a_step_of_their_own(analysed: Analysed, spins: Spins) -> None:
    """By their own stamps; what they cost by the wall clock the stage `cost` of the GPU check says."""
    spins(3)
    facts, _ = analysed(lambda: plain(0, steps=600))
    assert facts.overhead_ns < 2 * 60_000
