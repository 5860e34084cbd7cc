"""The CUDA device against planted truth. Needs a GPU; not yet run on one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import torch

import whyidle
from benchmarks.gpu_check.spinning import cycles_per_ms
from whyidle.analyse.run.facts import facts_of
from whyidle.capture.active import recorded
from whyidle.devices.choose import choose
from whyidle.record.run import create_run, open_run
from whyidle.scenarios.training import EmulatedNet, EmulatedOptimizer

pytestmark = pytest.mark.gpu

MS = 1_000_000


def test_events_lie_between_the_host_stamps_around_them() -> None:
    device = choose("cuda")
    for _ in range(20):
        before = device.now()
        event = device.record()
        device.synchronize()
        after = device.now()
        assert event.done()
        assert before - 50_000 <= event.time_ns() <= after + 50_000
        device.release(event)


def test_pinned_copies_return_before_pageable_ones_and_arrive_whole() -> None:
    device = choose("cuda")
    tensor = torch.arange(64 * 1024 * 1024, dtype=torch.uint8)
    (pinned,) = device.pin([tensor])
    assert pinned.is_pinned()
    taken = {}
    for name, source in (("pageable", tensor), ("pinned", pinned)):
        torch.cuda._sleep(int(20 * cycles_per_ms()))
        (moved,), copy = device.copy([source], pinned=name == "pinned")
        taken[name] = copy.host_end_ns - copy.host_begin_ns
        device.synchronize()
        assert torch.equal(moved.cpu(), tensor)
        assert copy.begin is not None
        assert copy.end is not None
        assert copy.end.time_ns() > copy.begin.time_ns()
    # The pageable copy waits for the 20 ms of work before it.
    assert taken["pageable"] > 10 * MS
    assert taken["pinned"] < 5 * MS


@pytest.mark.parametrize(("fetch_ms", "compute_ms"), [(20, 10), (5, 10)])
def test_planted_waits_are_exposed_only_as_far_as_the_device_idles(
    tmp_path: Path, fetch_ms: int, compute_ms: int
) -> None:
    device = choose("cuda")
    spin = int(compute_ms * cycles_per_ms())

    def batches() -> Iterator[int]:
        for number in range(60):
            time.sleep(fetch_ms / 1e3)
            yield number

    net = EmulatedNet()
    optimizer = EmulatedOptimizer(net)
    with recorded(create_run(tmp_path / "run", {"device": device.describe()}), device):
        for _ in whyidle.watch(batches(), batch_size=8):
            net(partial(torch.cuda._sleep, spin), lambda: None).backward()
            optimizer.step(lambda: None)
        device.synchronize()
    facts = facts_of(open_run(tmp_path / "run"))
    assert facts is not None
    expected = max(0.0, 1 - compute_ms / fetch_ms)
    assert facts.parts.share("input") == pytest.approx(expected, abs=0.05)
    assert facts.parts.unresolved_steps == 0
