"""The emulated accelerator on a virtual clock: exact to the nanosecond."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from stallscope.devices.clock import VirtualClock
from stallscope.devices.emulated import COMPUTE, COPY, EmulatedDevice, EmulatedSpec
from stallscope.errors import DeviceOutOfMemory

MS = 1_000_000
LAUNCH = 5_000
SPEC = EmulatedSpec(
    name="test",
    title="Test",
    memory_bytes=1000,
    pinned_bytes_per_s=10e9,
    pageable_bytes_per_s=5e9,
    copy_latency_ns=10_000,
    launch_latency_ns=LAUNCH,
    queue_depth=10,
)


class Recorded(EmulatedDevice):
    """Keeps its spans."""

    def __init__(self, **changes: int) -> None:
        self.spans: list[tuple[int, int, int]] = []
        spec = EmulatedSpec(**{**SPEC.__dict__, **changes})
        super().__init__(spec, VirtualClock(), sink=lambda _d, _s, what, b, e, _n: self.spans.append((what, b, e)))


def batch(nbytes: int) -> list[torch.Tensor]:
    return [torch.zeros(nbytes, dtype=torch.uint8)]


def test_work_is_queued_and_the_host_goes_on() -> None:
    device = Recorded()
    device.compute(3 * MS)
    device.compute(2 * MS)
    assert device.now() == 0
    assert device.spans == [(COMPUTE, LAUNCH, LAUNCH + 3 * MS), (COMPUTE, LAUNCH + 3 * MS, LAUNCH + 5 * MS)]


def test_an_event_is_reached_when_the_work_before_it_ends() -> None:
    device = Recorded()
    device.compute(3 * MS)
    event = device.record()
    assert not event.done()
    device.clock.wait_until(LAUNCH + 3 * MS)
    assert event.done()
    assert event.time_ns() == LAUNCH + 3 * MS


def test_an_idle_device_starts_work_when_it_arrives() -> None:
    device = Recorded()
    device.compute(1 * MS)
    device.clock.wait_until(10 * MS)
    device.compute(1 * MS)
    assert device.spans[1] == (COMPUTE, 10 * MS + LAUNCH, 11 * MS + LAUNCH)


def test_the_host_blocks_while_the_launch_queue_is_full() -> None:
    device = Recorded()
    device.compute(4 * MS, kernels=5)
    device.compute(4 * MS, kernels=5)
    assert device.now() == 0
    device.compute(1 * MS)  # the eleventh launch: room only when the first five are done
    assert device.now() == LAUNCH + 4 * MS


def test_a_pinned_copy_returns_at_once_and_a_pageable_one_waits_for_the_stream() -> None:
    device = Recorded()
    device.compute(3 * MS)
    _, pinned = device.copy(batch(10_000_000), pinned=True)
    assert device.now() == 0
    assert (pinned.begin.time_ns(), pinned.end.time_ns()) == (LAUNCH + 3 * MS, LAUNCH + 4 * MS + 10_000)

    device = Recorded()
    device.compute(3 * MS)
    _, pageable = device.copy(batch(10_000_000), pinned=False)
    begin = LAUNCH + 3 * MS + LAUNCH
    assert device.spans[1] == (COPY, begin, begin + 2 * MS + 10_000)
    assert device.now() == begin + 2 * MS + 10_000
    # As on CUDA: the mark behind a copy that the host waited for arrives when the host goes on.
    assert (pageable.begin.time_ns(), pageable.end.time_ns()) == (LAUNCH + 3 * MS, device.now() + LAUNCH)


def test_a_copy_on_the_side_stream_runs_beside_computation_until_waited_for() -> None:
    device = Recorded()
    device.compute(3 * MS)
    tensors, copy = device.copy(batch(10_000_000), pinned=True, stream=device.side_stream())
    assert copy.ahead
    assert device.spans[1][:2] == (COPY, LAUNCH)
    device.compute(1 * MS)  # queued before the wait: it does not wait
    device.wait_for(copy, tensors)
    device.compute(1 * MS)
    assert device.spans[2][1] == LAUNCH + 3 * MS
    assert device.spans[3][1] == LAUNCH + 4 * MS

    late = Recorded()
    tensors, copy = late.copy(batch(100_000_000), pinned=True, stream=late.side_stream())
    late.wait_for(copy, tensors)
    late.compute(1 * MS)
    assert late.spans[1][1] == copy.end.time_ns()


def test_one_copy_engine_serves_all_streams() -> None:
    device = Recorded()
    device.copy(batch(10_000_000), pinned=True, stream=device.side_stream())
    device.copy(batch(10_000_000), pinned=True)
    first, second = device.spans
    assert second[1] == first[2]


def test_memory_beyond_the_capacity_raises_what_an_oom_would() -> None:
    device = Recorded()
    device.require_memory(600)
    device.require_memory(400)
    assert (device.memory_used(), device.peak_bytes) == (400, 600)
    with pytest.raises(DeviceOutOfMemory, match="Choose a smaller batch size"):
        device.require_memory(1001)
    assert device.memory_used() == 400


@given(
    st.lists(
        st.tuples(st.sampled_from(["host", "compute", "pinned", "pageable", "ahead", "sync"]), st.integers(1, 5 * MS)),
        max_size=60,
    )
)
def test_engines_never_overlap_themselves_and_time_never_runs_back(work: list[tuple[str, int]]) -> None:
    device = Recorded()
    before = 0
    for what, amount in work:
        if what == "host":
            device.clock.advance(amount)
        elif what == "compute":
            device.compute(amount, kernels=3)
        elif what == "sync":
            device.synchronize()
        else:
            stream = device.side_stream() if what == "ahead" else None
            _, copy = device.copy(batch(amount), pinned=what != "pageable", stream=stream)
            assert copy.host_begin_ns <= copy.host_end_ns
            device.wait_for(copy, [])
        assert device.now() >= before
        before = device.now()
    for kind in (COMPUTE, COPY):
        spans = [(b, e) for what, b, e in device.spans if what == kind]
        assert all(b <= e for b, e in spans)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))
    device.synchronize()
    assert all(e <= device.now() for _, _, e in device.spans)
