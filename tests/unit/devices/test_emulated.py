"""The emulated accelerator on a virtual clock, exact to the nanosecond, and from `--device` to a device."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from whyidle.devices.choose import choose
from whyidle.devices.conditions import Conditions
from whyidle.devices.emulated import COMPUTE, COPY, EmulatedDevice, EmulatedSpec, VirtualClock
from whyidle.errors import DeviceOutOfMemory, WhyidleError

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

    def __init__(self, **changes: Any) -> None:
        self.spans: list[tuple[int, int, int]] = []
        spec = EmulatedSpec(**{**SPEC.__dict__, **changes})
        super().__init__(spec, VirtualClock())
        self.sink = lambda _d, _s, what, b, e, _n: self.spans.append((what, b, e))


def batch(nbytes: int) -> list[torch.Tensor]:
    # One byte, seen so many times: what is in it is copied nowhere.
    return [torch.zeros(1, dtype=torch.uint8).expand(nbytes)]


def test_work_is_queued_and_an_event_is_reached_when_the_work_before_it_ends() -> None:
    device = Recorded()
    device.compute(3 * MS)
    event = device.record()
    device.compute(2 * MS)
    assert (device.now(), event.done()) == (0, False)
    device.clock.wait_until(LAUNCH + 3 * MS)
    assert (event.done(), event.time_ns()) == (True, LAUNCH + 3 * MS)
    device.clock.wait_until(10 * MS)
    device.compute(1 * MS)
    assert device.spans == [
        (COMPUTE, LAUNCH, LAUNCH + 3 * MS),
        (COMPUTE, LAUNCH + 3 * MS, LAUNCH + 5 * MS),
        (COMPUTE, LAUNCH + 10 * MS, LAUNCH + 11 * MS),
    ]


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

    both = Recorded()
    both.copy(batch(10_000_000), pinned=True, stream=both.side_stream())
    both.copy(batch(10_000_000), pinned=True)
    assert both.spans[1][1] == both.spans[0][2], "one copy engine serves all streams"

    late = Recorded()
    tensors, copy = late.copy(batch(100_000_000), pinned=True, stream=late.side_stream())
    late.wait_for(copy, tensors)
    late.compute(1 * MS)
    assert late.spans[1][1] == copy.end.time_ns()


def test_memory_beyond_the_capacity_raises_what_an_oom_would() -> None:
    device = Recorded()
    device.require_memory(600)
    device.require_memory(400)
    assert (device.memory_used(), device.peak_bytes) == (400, 600)
    with pytest.raises(DeviceOutOfMemory, match="Choose a smaller batch size"):
        device.require_memory(1001)
    assert device.memory_used() == 400
    device.allocate(500)
    with pytest.raises(DeviceOutOfMemory, match="Choose a smaller batch size"):
        device.allocate(601)
    assert (device.allocation_retries(), device.memory_used(), device.now()) == (0, 900, 0)


def took(**conditions: Any) -> list[int]:
    """How long a computation, a pinned and a pageable copy take."""
    device = Recorded(conditions=Conditions(**conditions))
    device.compute(3 * MS)
    for pinned in (True, False):
        device.copy(batch(10_000_000), pinned=pinned)
    return [end - begin for _, begin, end in device.spans]


@pytest.mark.parametrize(
    ("conditions", "slower", "link"),
    [
        ({}, 1, 1),
        ({"sm_clock": 0.5}, 2, 1),
        ({"others": 0.2}, 1.25, 1),
        ({"sm_clock": 0.5, "others": 0.2}, 2.5, 1),
        ({"pcie_generation": 3}, 1, 2),
        ({"pcie_width": 4}, 1, 4),
        ({"pcie_generation": 2, "pcie_width": 8}, 1, 8),
    ],
)
def test_clocks_and_other_processes_make_computation_longer_and_the_link_makes_bytes_slower(
    conditions: dict[str, float], slower: float, link: int
) -> None:
    assert took(**conditions) == [3 * MS * slower, link * MS + 10_000, link * 2 * MS + 10_000]


def test_conditions_reach_run_json_and_come_back_and_impossible_ones_are_refused() -> None:
    conditions = Conditions(sm_clock=0.7, throttle_reasons=0x20, pcie_width=4, others=0.3, processes=2)
    told = json.loads(json.dumps(Recorded(conditions=conditions).describe()))["conditions"]
    assert Conditions(**told) == conditions
    assert "conditions" not in Recorded().describe()
    wrong: list[dict[str, Any]] = [*({"sm_clock": share} for share in (0, 1.1)), *({"others": s} for s in (1, -0.1))]
    wrong += [{"pcie_width": 0}, {"pcie_generation": 5}, {"processes": -1}, {"throttle_reasons": -1}]
    for each in wrong:
        with pytest.raises(ValueError, match=f"{next(iter(each)).split('_')[0]}|PCIe"):
            Conditions(**each)


def test_a_cached_block_is_used_again_and_where_none_fits_the_device_is_waited_for_and_the_cache_freed() -> None:
    device = Recorded()
    for nbytes in (300, 500, 200, 450, 100):
        device.allocate(nbytes)
    # Two blocks were ever taken: the smaller ones served the smaller requests.
    assert (device.allocation_retries(), device.memory_used(), device.peak_bytes, device.now()) == (0, 800, 800, 0)
    device = Recorded(retry_ns=7 * MS)
    device.require_memory(100)
    device.allocate(500)
    device.compute(3 * MS)
    device.allocate(600)
    assert device.now() == LAUNCH + 3 * MS + 7 * MS
    assert (device.allocation_retries(), device.memory_used()) == (1, 700)
    device.allocate(550)
    assert (device.allocation_retries(), device.now()) == (1, LAUNCH + 10 * MS)
    retries = []
    for memory_bytes in (500, 1000, 5000):  # growing requests retry near the limit and with room never
        device = Recorded(memory_bytes=memory_bytes)
        for nbytes in range(200, 280, 10):
            device.allocate(nbytes)
        retries.append(device.allocation_retries())
        assert device.now() == retries[-1] * 5 * MS
    assert retries == [4, 2, 0]


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


def test_a_device_is_chosen_by_its_name_and_an_unknown_one_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose("auto").kind == "cpu"
    device = choose("emulated:v100")
    assert isinstance(device, EmulatedDevice)
    assert "emulated" in device.title
    assert device.describe()["kind"] == "emulated"
    assert device.profile is not None
    for name in ("cuda", "tpu", "emulated:nosuch", "emulated:/no/such/file.toml", ""):
        with pytest.raises(WhyidleError, match="sees no CUDA device" if name == "cuda" else None) as error:
            choose(name)
        assert "\n" not in str(error.value)


def test_on_the_cpu_nothing_is_copied_and_every_event_is_done() -> None:
    device, tensor = choose("cpu"), torch.ones(3)
    (moved,), copy = device.copy([tensor], pinned=False)
    assert (moved is tensor, copy.nbytes) == (True, 0)
    event = device.record()
    assert event.done()
    assert event.time_ns() <= device.now()
