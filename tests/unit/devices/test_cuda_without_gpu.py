"""The CUDA device's own logic on a stand-in for torch.cuda: anchors, event pool, memory. `tests/gpu` has the rest."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from stallscope.devices import cuda

MS = 1_000_000


class Gpu:
    """A clock that moves a little whenever it is read, and streams that may be behind."""

    def __init__(self) -> None:
        self.now_ns = 10**15
        self.clock_stream_late_ns = 0
        self.events_made = 0
        self.asked_memory = 0

    def monotonic_ns(self) -> int:
        self.now_ns += 1_000
        return self.now_ns


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()

    class Stream:
        def __init__(self, index: int = 0, priority: int = 0) -> None:
            self.clock = priority < 0

    computing = Stream()

    class Event:
        def __init__(self, enable_timing: bool = False) -> None:
            assert enable_timing
            gpu.events_made += 1
            self.at = -1

        def record(self, stream: Stream) -> None:
            self.at = gpu.now_ns + 3_000 + (gpu.clock_stream_late_ns if stream.clock else 0)

        def query(self) -> bool:
            return gpu.monotonic_ns() >= self.at

        def synchronize(self) -> None:
            gpu.now_ns = max(gpu.now_ns, self.at)

        def elapsed_time(self, other: Event) -> float:
            return float(np.float32((other.at - self.at) / 1e6))

    def memory_reserved(index: int) -> int:
        gpu.asked_memory += 1
        return 12345

    properties = SimpleNamespace(name="Stand-in", total_memory=8 * 10**9, uuid="1234")
    fake = SimpleNamespace(
        Stream=Stream,
        Event=Event,
        stream=lambda s: nullcontext(),
        current_stream=lambda i: computing,
        set_device=lambda i: None,
        get_device_properties=lambda i: properties,
        memory_reserved=memory_reserved,
    )
    monkeypatch.setattr(cuda, "torch", SimpleNamespace(cuda=fake, device=torch.device, version=torch.version))
    monkeypatch.setattr(cuda, "time", SimpleNamespace(monotonic_ns=gpu.monotonic_ns))
    return gpu


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
    for _ in range(200):
        event.time_ns()
    assert gpu.events_made - made == 2  # the event itself and one try at an anchor
    assert gpu.now_ns - before < 2 * cuda.ANCHOR_LIMIT_NS
    assert event.time_ns() == pytest.approx(event.event.at, abs=5_000)


def test_a_device_whose_first_anchor_is_late_waits_once_and_starts(gpu: Gpu) -> None:
    gpu.clock_stream_late_ns = 50 * MS
    device = cuda.CudaDevice()
    gpu.clock_stream_late_ns = 0
    event = device.record()
    assert event.time_ns() == pytest.approx(event.event.at, abs=26 * MS)  # half the wait: said by the bracket


def test_memory_is_asked_for_once_in_many_steps(gpu: Gpu) -> None:
    device = cuda.CudaDevice()
    assert {device.memory_used() for _ in range(40)} == {12345}
    assert gpu.asked_memory == 2


def test_the_description_has_the_uuid_that_the_sampler_looks_for(gpu: Gpu) -> None:
    described = cuda.describe_gpu(1)
    assert (described["kind"], described["name"], described["uuids"]) == ("cuda", "cuda:1", ["GPU-1234"])
    assert cuda.CudaDevice(1).describe() == described
