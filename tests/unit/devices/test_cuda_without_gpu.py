"""The CUDA device's own logic on a stand-in for torch.cuda: clock, event pool, memory. `tests/gpu` has the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from whyidle.devices import cuda

US = 1_000
MS = 1_000_000
S = 1_000_000_000


class Gpu:
    """A host's clock that moves a little whenever it is read, a device's that drifts, streams that may be behind."""

    def __init__(self) -> None:
        self.began_ns = self.now_ns = 10**15
        self.drift = 0.0
        """How much faster than the host's clock the device's runs."""
        self.set_at_ns = self.set_by_ns = 0
        """When the device's clock jumped, and by how much."""
        self.clock_stream_late_ns = 0
        self.computing_until_ns = 0
        self.events_made = 0
        self.clock_events = 0
        self.synchronised = 0
        self.slept = 0
        self.asked_memory = 0
        self.allocator = "native"
        self.retries = 0
        self.statistics: dict[str, object] | None = {}
        self.capturing = False
        self.failed = False
        self.asked_streams: list[int] = []

    def device_ns(self, host_ns: int) -> int:
        set_by = self.set_by_ns if host_ns >= self.set_at_ns else 0
        return host_ns + round((host_ns - self.began_ns) * self.drift) + set_by

    def sleep(self, seconds: float) -> None:
        self.slept += 1
        self.now_ns += round(seconds * 1e9)

    def current_stream(self, index: int) -> object:
        self.asked_streams.append(index)
        return self.computing

    def monotonic_ns(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()

    class Stream:
        def __init__(self, index: int = 0, priority: int = 0) -> None:
            self.clock = priority < 0

    gpu.computing = Stream()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            assert enable_timing
            gpu.events_made += 1
            self.at = -1

        def record(self, stream: Stream) -> None:
            if gpu.failed:
                raise RuntimeError("CUDA error: device-side assert triggered")
            gpu.clock_events += stream.clock
            free = gpu.now_ns + gpu.clock_stream_late_ns if stream.clock else gpu.computing_until_ns
            self.at = max(gpu.now_ns + 3_000, free)

        def query(self) -> bool:
            return gpu.monotonic_ns() >= self.at

        def synchronize(self) -> None:
            gpu.synchronised += 1
            gpu.now_ns = max(gpu.now_ns, self.at)

        def elapsed_time(self, other: Event) -> float:
            assert max(self.at, other.at) <= gpu.now_ns, "an event was read that the device has not reached"
            return float(np.float32((gpu.device_ns(other.at) - gpu.device_ns(self.at)) / 1e6))

    def memory_reserved(index: int) -> int:
        gpu.asked_memory += 1
        return 12345

    def memory_stats_as_nested_dict(index: int) -> dict[str, object]:
        if gpu.statistics is None:
            raise RuntimeError("this allocator has no statistics")
        return {"num_alloc_retries": gpu.retries} if gpu.statistics == {} else gpu.statistics

    properties = SimpleNamespace(name="Stand-in", total_memory=8 * 10**9, uuid="1234")
    fake = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        stream=lambda s: nullcontext(),
        current_stream=gpu.current_stream,
        is_current_stream_capturing=lambda: gpu.capturing,
        set_device=lambda i: None,
        get_device_properties=lambda i: properties,
        memory_reserved=memory_reserved,
        memory_stats_as_nested_dict=memory_stats_as_nested_dict,
        get_allocator_backend=lambda: gpu.allocator,
    )
    monkeypatch.setattr(cuda, "torch", SimpleNamespace(cuda=fake, device=torch.device, version=torch.version))
    monkeypatch.setattr(cuda, "time", SimpleNamespace(monotonic_ns=gpu.monotonic_ns, sleep=gpu.sleep))
    return gpu


def steps(gpu: Gpu, device: cuda.CudaDevice, for_ns: int, longest_ms: int = 900) -> Iterator[tuple[int, int, int, int]]:
    """Steps of a training: when the device began and ended each, and what its stamps say."""
    draw = random.Random(7)
    until = gpu.now_ns + for_ns
    while gpu.now_ns < until:
        begin = device.record()
        gpu.now_ns += draw.randrange(2 * MS, longest_ms * MS)
        end = device.record()
        gpu.now_ns += MS
        assert end.done()
        yield begin.event.at, end.event.at, begin.time_ns(), end.time_ns()
        device.release(begin)
        device.release(end)


def test_events_are_told_on_the_hosts_clock_before_and_after_an_anchor(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    early = device.record()
    gpu.now_ns += 7_000 * MS  # past the anchor's period: the next look renews it
    late = device.record()
    gpu.now_ns += MS
    assert late.done()
    # The bracket around an anchor is some microseconds wide here, float32 adds half a microsecond at 7 s.
    assert late.time_ns() == pytest.approx(late.event.at, abs=5_000)
    assert early.time_ns() == pytest.approx(early.event.at, abs=5_000)
    assert early.time_ns() < late.time_ns()


def test_released_events_are_used_again_and_only_those(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    made = gpu.events_made
    held = device.record()
    for _ in range(100):
        event = device.record()
        assert event is not held
        device.release(event)
    assert gpu.events_made - made == 2


def test_a_late_clock_stream_is_tried_once_a_period_and_the_old_anchor_kept(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 50 * MS
    gpu.now_ns += 6_000 * MS
    made, before = gpu.events_made, gpu.now_ns
    event = device.record()
    gpu.now_ns += MS
    for _ in range(200):
        event.time_ns()
    assert gpu.events_made - made == 1  # a try at an anchor takes an event that was used before
    assert gpu.now_ns - before < 2 * cuda.ANCHOR_LIMIT_NS
    assert event.time_ns() == pytest.approx(event.event.at, abs=5_000)


def test_eight_hours_without_a_bracket_round_no_step_by_a_microsecond_and_all_by_few(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 20 * MS
    worst_length = worst_stamp = 0
    for begin, end, told_begin, told_end in steps(gpu, device, 8 * 3600 * S):
        worst_length = max(worst_length, abs((told_end - told_begin) - (end - begin)))
        worst_stamp = max(worst_stamp, abs(told_end - end))
    assert worst_length < US
    # One float32 over eight hours rounds by up to 1 ms.
    assert worst_stamp < 20 * US
    # Whether the clocks ran alike is not known without brackets, and is said: 20 ppm of eight hours.
    assert device.clock_uncertainty_ns() == pytest.approx(8 * 3600 * S * 20e-6, rel=0.01)


def test_eight_hours_without_a_bracket_make_no_events_but_tries_and_never_synchronise(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 20 * MS
    made, seconds, tries_began = gpu.events_made, 3600, gpu.clock_events
    for _ in steps(gpu, device, seconds * S):
        pass
    tries = gpu.clock_events - tries_began
    assert tries <= seconds * S / cuda.ANCHOR_PERIOD_NS + 4  # one a period, and some sooner in the first seconds
    assert gpu.events_made - made == 2
    assert len(device._pool) == 2
    assert gpu.synchronised == 0


def test_nothing_is_queued_behind_a_try_that_the_device_has_not_come_to(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 3600 * S
    before = gpu.clock_events
    for _ in steps(gpu, device, 600 * S):
        pass
    assert gpu.clock_events - before == 1
    gpu.clock_stream_late_ns = 0
    for _ in steps(gpu, device, 3600 * S):
        pass
    assert gpu.clock_events - before > 1000  # ten tries a period again
    uncertain = device.clock_uncertainty_ns()
    assert uncertain is not None
    assert uncertain < 100 * US  # and the bracket told that the clocks had not drifted apart meanwhile


@pytest.mark.parametrize("drift", [30e-6, -30e-6])
def test_a_drift_of_30_ppm_is_corrected_and_goes_on_being_when_brackets_fail(gpu: Gpu, drift: float) -> None:
    gpu.drift = drift
    device = cuda.CudaDevice()
    learning = [abs(told - end) for _, end, _, told in steps(gpu, device, 60 * S)]
    assert max(learning) < 200 * US
    known = [abs(told - end) for _, end, _, told in steps(gpu, device, 300 * S)]
    assert max(known) < 6 * US  # half a bracket, and the slope of a line through brackets of some microseconds
    gpu.clock_stream_late_ns = 20 * MS
    alone = [abs(told - end) for _, end, _, told in steps(gpu, device, 600 * S)]
    assert max(alone) < 100 * US  # 18 ms were it not for the rate
    uncertain = device.clock_uncertainty_ns()
    assert uncertain is not None
    assert max(learning + known + alone) <= uncertain < 2 * MS


def test_no_stamp_is_overtaken_by_a_later_one_and_none_changes_when_a_bracket_succeeds_at_last(gpu: Gpu) -> None:
    gpu.drift = 30e-6  # without brackets stamps get ahead of the host
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 20 * MS
    for *_, told_end in steps(gpu, device, 600 * S):
        newest = told_end
    marks = []
    for _ in range(400):
        marks.append(device.record())
        gpu.now_ns += 20 * US
    before = [mark.time_ns() for mark in marks]
    off = before[-1] - marks[-1].event.at
    assert off > 17 * MS
    gpu.clock_stream_late_ns = 0
    gpu.now_ns += 6 * S
    later = []
    for _ in range(4000):
        later.append(device.record())
        gpu.now_ns += 100 * US
        later[-1].time_ns()  # a bracket succeeds with the first of them
    told = [mark.time_ns() for mark in [*marks, *later]]
    assert told[: len(marks)] == pytest.approx(before, abs=US)
    assert newest < told[0]
    assert all(earlier < after for earlier, after in pairwise(told))
    assert told[-1] - later[-1].event.at < 20 * US
    # What was wrong until then is remembered when all is well again.
    assert off <= (device.clock_uncertainty_ns() or 0) < off + 2 * MS


def test_a_wide_bracket_does_not_spoil_what_narrow_ones_told(gpu: Gpu) -> None:
    gpu.drift = 30e-6
    device = cuda.CudaDevice()
    for _ in steps(gpu, device, 120 * S):
        pass
    gpu.clock_stream_late_ns = 1_900 * US  # just within the limit: the middle of the bracket is off by 1 ms
    off = [abs(told - end) for _, end, _, told in steps(gpu, device, 120 * S)]
    assert max(off) < 10 * US


def test_slow_answers_cost_a_renewal_no_more_than_twice_the_limit(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = cuda.ANCHOR_LIMIT_NS * 6 // 10
    mark = device.record()
    gpu.now_ns += 6 * S
    began = gpu.now_ns
    mark.time_ns()
    assert gpu.now_ns - began < 2 * cuda.ANCHOR_LIMIT_NS


@pytest.mark.parametrize("by_ns", [3 * MS, 500 * MS])
def test_after_a_clock_was_set_stamps_find_back_to_it(gpu: Gpu, by_ns: int) -> None:
    device = cuda.CudaDevice()
    for _ in steps(gpu, device, 60 * S):
        pass
    gpu.set_at_ns, gpu.set_by_ns = gpu.now_ns, by_ns
    list(steps(gpu, device, 30 * S))
    off = [abs(told - end) for _, end, _, told in steps(gpu, device, 60 * S)]
    assert max(off) < 10 * US


def test_marks_of_a_device_far_behind_are_told_as_exactly_as_others(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    marks = []
    for _ in range(60):
        marks.append(device.record())
        gpu.now_ns += 1_000 * MS
    for mark in marks:
        assert mark.time_ns() == pytest.approx(mark.event.at, abs=5 * US)
        device.release(mark)
    # No event serves twice: the reference is none that may be recorded anew.
    assert len({mark.event for mark in device._pool} | {device._reference}) == len(marks) + 1


def test_a_mark_of_long_ago_is_told_alike_before_and_after_a_bracket(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    marks = []
    for _ in range(5):
        marks.append(device.record())
        gpu.now_ns += 12_345_678
    gpu.now_ns += 61 * S
    told = [mark.time_ns() for mark in marks]
    tries = gpu.clock_events
    gpu.now_ns += 6 * S
    assert [mark.time_ns() for mark in reversed(marks)] == pytest.approx(told[::-1], abs=10)
    assert gpu.clock_events > tries


def test_after_an_hour_without_marks_or_brackets_the_marks_of_a_step_still_agree(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 20 * MS
    gpu.now_ns += 3600 * S
    ((begin, end, told_begin, told_end),) = steps(gpu, device, 1)
    assert abs((told_end - told_begin) - (end - begin)) < US
    # One float32 over the hour: the step as a whole may be off by an eighth of a millisecond.
    assert abs(told_begin - begin) < 130 * US


def test_the_first_bracket_is_tried_again_when_the_device_has_become_idle(gpu: Gpu, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    gpu.clock_stream_late_ns = 50 * MS
    waited = cuda.torch.cuda.Event.synchronize

    def synchronize(event: object) -> None:
        waited(event)
        gpu.clock_stream_late_ns = 0

    monkeypatch.setattr(cuda.torch.cuda.Event, "synchronize", synchronize)
    device = cuda.CudaDevice()
    assert (device.clock_uncertainty_ns() or 0) < 10 * US
    assert gpu.synchronised == 1


def test_settling_waits_for_a_mark_without_synchronising_and_for_no_longer_than_told(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    gpu.computing_until_ns = gpu.now_ns + 30 * MS
    device.settle(device.record(), 100 * MS)
    assert gpu.computing_until_ns <= gpu.now_ns < gpu.computing_until_ns + 2 * MS
    assert 25 <= gpu.slept <= 31
    began = gpu.now_ns
    gpu.computing_until_ns = began + 10 * S
    device.settle(device.record(), 100 * MS)
    assert 100 * MS <= gpu.now_ns - began < 102 * MS
    assert gpu.synchronised == 0


def test_marks_go_to_the_current_stream_of_the_devices_own_gpu(gpu: Gpu) -> None:
    device = cuda.CudaDevice(3)
    device.record()
    assert gpu.asked_streams == [3]


def test_differentiable_operations_of_the_thread_change_the_number_and_others_do_not(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda.torch, "_C", torch._C, raising=False)
    device = cuda.CudaDevice()
    weight = torch.ones(3, requires_grad=True)
    before = device.operations()
    torch.ones(3) * 2
    with torch.no_grad():
        weight * 2
    assert device.operations() == before
    weight * 2
    assert device.operations() > before


def test_where_torch_does_not_number_its_operations_some_are_taken_to_have_run(gpu: Gpu) -> None:
    device = cuda.CudaDevice()  # the stand-in has no `torch._C`
    assert len({device.operations() for _ in range(5)}) == 5


def test_a_device_whose_first_anchor_is_late_waits_once_and_starts(gpu: Gpu) -> None:
    gpu.clock_stream_late_ns = 50 * MS
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 0
    event = device.record()
    gpu.now_ns += MS
    assert event.time_ns() == pytest.approx(event.event.at, abs=26 * MS)  # half the wait: said by the bracket
    assert device.clock_uncertainty_ns() == pytest.approx(25 * MS, rel=0.1)
    assert gpu.synchronised == 1


def test_memory_is_asked_for_once_in_many_steps(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    assert {device.memory_used() for _ in range(40)} == {12345}
    assert gpu.asked_memory == 2


def test_retries_of_the_allocator_are_those_it_counts(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    assert device.allocation_retries() == 0
    gpu.retries = 3
    assert device.allocation_retries() == 3


def test_retries_of_an_allocator_that_does_not_count_them_are_not_known(gpu: Gpu) -> None:
    gpu.allocator = "cudaMallocAsync"
    assert cuda.CudaDevice().allocation_retries() is None
    gpu.allocator = "native"
    for statistics in (None, {"num_ooms": 0}):
        gpu.statistics = statistics
        device = cuda.CudaDevice()
        assert device.allocation_retries() is None
        gpu.statistics = {}
        assert device.allocation_retries() is None  # not asked again


def test_the_description_has_the_uuid_that_the_sampler_looks_for(gpu: Gpu) -> None:
    described = cuda.describe_gpu(1)
    assert (described["kind"], described["name"], described["uuids"]) == ("cuda", "cuda:1", ["GPU-1234"])
    assert cuda.CudaDevice(1).describe() == described
