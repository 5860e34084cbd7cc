"""Traps for a profiler on a real GPU: each with work of known length. Needs a GPU; not yet run on one.

Where a bound is in milliseconds of the device's own clock it is exact to launch latencies; shares have margins, since
the machine may be shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.gpu_check.spinning import cycles_per_ms
from whyidle.analyse.run.analysis import Analysis, analyse
from whyidle.capture.recording import recording
from whyidle.capture.session import Session
from whyidle.record.run import open_run
from whyidle.record.schema import PAUSE, STEP, PauseKind, StepFlag

pytestmark = pytest.mark.gpu

STEPS = 100


class Waiting(Dataset[torch.Tensor]):
    def __init__(self, samples: int, sleep_s: float, width: int = 16) -> None:
        self.samples, self.sleep_s, self.width = samples, sleep_s, width

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.sleep_s)
        return torch.full((self.width,), float(index))


def recorded(folder: Path) -> AbstractContextManager[Session]:
    return recording(folder, "cuda", sampler=False)


def train(loader: DataLoader[torch.Tensor], spin: int, then: Callable[[int, torch.Tensor], object], **to: bool) -> None:
    """A loop whose steps spin on the device between forward and backward."""
    net = torch.nn.Linear(loader.dataset.width, 1).cuda()  # type: ignore[attr-defined]
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    for number, batch in enumerate(loader):
        x = batch.to("cuda", **to)
        loss = net(x).square().mean()
        torch.cuda._sleep(spin)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        then(number, loss)


def nothing(_number: int, _loss: torch.Tensor) -> None: ...


def analysed(folder: Path) -> Analysis:
    analysis = analyse(open_run(folder))
    assert analysis.facts is not None
    assert analysis.facts.parts.unresolved_steps == 0
    return analysis


@pytest.mark.parametrize(("fetch_ms", "compute_ms"), [(20, 5), (12, 10), (4, 10)])
def test_exposed_input_is_what_the_device_waits_and_no_more(tmp_path: Path, fetch_ms: int, compute_ms: int) -> None:
    loader = DataLoader(Waiting(STEPS, fetch_ms / 1e3), batch_size=1)
    with recorded(tmp_path / "run"):
        train(loader, int(compute_ms * cycles_per_ms()), nothing)
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    assert analysis.facts.parts.share("input") == pytest.approx(max(0.0, 1 - compute_ms / fetch_ms), abs=0.05)


def test_reading_the_loss_in_every_step_does_not_flip_the_verdict_when_it_costs_nothing(tmp_path: Path) -> None:
    """The host waits in `.item()` for most of each step; the device idles for some launches, below 2 % of 40 ms."""
    loader = DataLoader(Waiting(STEPS, 0.0005), batch_size=1)
    with recorded(tmp_path / "run"):
        train(loader, int(40 * cycles_per_ms()), lambda _number, loss: loss.item())
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    steps = open_run(tmp_path / "run").records(STEP)
    assert steps["sync_ns"].sum() > 0.5 * analysis.facts.parts.wall_ns
    assert analysis.facts.parts.share("sync") < 0.02
    assert analysis.verdict.cause == "none"


def test_waits_that_bleed_into_the_fetch_are_not_blamed_on_it(tmp_path: Path) -> None:
    """A naive timer around the pageable copy and the fetch sees most of the step; the device idles a tenth of it."""
    naive = []
    loader = DataLoader(Waiting(STEPS, 0.002), batch_size=1)
    spin = int(18 * cycles_per_ms())
    net = torch.nn.Linear(16, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    with recorded(tmp_path / "run"):
        begin = time.monotonic()
        for batch in loader:
            x = batch.to("cuda")  # pageable: waits for all earlier work
            naive.append(time.monotonic() - begin)
            torch.cuda._sleep(spin)
            net(x).square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            begin = time.monotonic()
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    parts = analysis.facts.parts
    assert sum(naive[5:]) * 1e9 > 0.6 * parts.wall_ns
    assert parts.share("input") + parts.share("copy") + parts.share("host") < 0.2


@pytest.mark.parametrize("pinned", [False, True])
def test_copies_of_known_size_take_what_events_around_them_say(tmp_path: Path, large: int, pinned: bool) -> None:
    loader = DataLoader(Waiting(40, 0.0, large), batch_size=1, pin_memory=pinned)
    with recorded(tmp_path / "run"):
        train(loader, int(2 * cycles_per_ms()), nothing, non_blocking=pinned)
    steps = open_run(tmp_path / "run").records(STEP)[5:]
    assert (steps["copy_bytes"] == 4 * large).all()
    assert bool((steps["flags"] & StepFlag.PINNED).all()) == pinned
    took = np.median(steps["device_copy_end_ns"] - steps["device_copy_begin_ns"])
    speed = 4 * large / took  # bytes a ns: GB/s
    assert (8 if pinned else 0.5) < speed < 130


def test_a_copy_ahead_on_a_side_stream_costs_the_device_nothing(tmp_path: Path, large: int) -> None:
    width = large // 4
    loader = DataLoader(Waiting(60, 0.0, width), batch_size=1, pin_memory=True)
    side = torch.cuda.Stream()
    spin = int(10 * cycles_per_ms())
    net = torch.nn.Linear(width, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-9)
    with recorded(tmp_path / "run"):
        for batch in loader:
            with torch.cuda.stream(side):
                x = batch.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            x.record_stream(torch.cuda.current_stream())
            torch.cuda._sleep(spin)
            net(x).square().mean().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    assert (analysis.facts.window.steps["flags"] & StepFlag.COPIED_AHEAD).any()
    assert analysis.facts.parts.share("copy") < 0.02


def test_a_wait_in_the_midst_of_a_step_is_a_pause_of_known_length(tmp_path: Path) -> None:
    loader = DataLoader(Waiting(60, 0.0), batch_size=1)
    spin = int(30 * cycles_per_ms())
    net = torch.nn.Linear(16, 1).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-6)
    with recorded(tmp_path / "run"):
        for batch in loader:
            x = batch.to("cuda")
            torch.cuda._sleep(spin)
            loss = net(x).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if norm.item() >= 0:  # the device is idle from here on
                optimizer.step()
    pauses = open_run(tmp_path / "run").records(PAUSE)
    pauses = pauses[pauses["what"] == PauseKind.SYNC]
    assert len(pauses) == 60
    idle = (pauses["device_end_ns"] - pauses["device_begin_ns"])[5:]
    assert (idle >= 0).all()
    assert np.median(idle) < 1_000_000
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    assert analysis.facts.parts.share("compute") > 0.8


@pytest.mark.unplayed("the driver on a clock that it shares")
def test_gpm_and_the_driver_see_the_share_of_time_that_events_see(tmp_path: Path) -> None:
    loader = DataLoader(Waiting(400, 0.02), batch_size=1)
    folder = tmp_path / "run"
    with recording(folder, "cuda"):
        train(loader, int(10 * cycles_per_ms()), nothing)
    analysis = analysed(folder)
    assert analysis.facts is not None
    seen = analysis.facts.sampled
    assert seen.utilisation_pct is not None
    assert seen.utilisation_pct == pytest.approx(100 * analysis.facts.parts.stepping_share, abs=15)
    if seen.sm_active_pct is not None:
        # One thread of one multiprocessor: hardly anything, while the driver calls the device half busy.
        assert seen.sm_active_pct < 20


def test_the_hooks_count_less_than_sixty_microseconds_a_step_of_their_own(tmp_path: Path) -> None:
    """By their own stamps; what they cost by the wall clock the stage `cost` of the GPU check says."""
    loader = DataLoader(Waiting(600, 0.0), batch_size=1)
    with recorded(tmp_path / "run"):
        train(loader, int(3 * cycles_per_ms()), nothing)
    analysis = analysed(tmp_path / "run")
    assert analysis.facts is not None
    assert analysis.facts.overhead_ns < 2 * 60_000
