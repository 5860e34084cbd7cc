"""The stand-in for torch.cuda keeps CUDA's rules for events and streams; each docstring says where a rule is from."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from support.cuda import MS, US, GpuSpec, Machine, S


def timed() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def spin(ms: float, stream: torch.cuda.Stream | None = None) -> None:
    """A kernel of so long."""
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(ms * MS))


def test_an_event_is_made_when_it_is_recorded_first_on_the_streams_device(machine: Machine) -> None:
    event = timed()
    assert event.device is None
    assert not any(gpu.has_context for gpu in machine.gpus)
    event.record(torch.cuda.current_stream(1))
    assert event.device == torch.device("cuda", 1)
    assert [gpu.has_context for gpu in machine.gpus] == [False, True]


def test_an_event_takes_streams_of_its_own_device_only(machine: Machine) -> None:
    event = timed()
    event.record(torch.cuda.current_stream(1))
    with pytest.raises(RuntimeError, match="Event device 1 does not match recording stream's device 0"):
        event.record(torch.cuda.current_stream(0))


def test_without_a_stream_an_event_is_recorded_where_the_thread_is(machine: Machine) -> None:
    torch.cuda.set_device(1)
    event = timed()
    event.record()
    assert event.device == torch.device("cuda", 1)


def test_an_event_that_was_never_recorded_is_done_and_waits_for_nothing(machine: Machine) -> None:
    event = timed()
    assert event.query()
    event.synchronize()
    event.wait()
    assert machine.synchronised == 0


def test_an_event_is_done_when_the_work_before_it_is(machine: Machine) -> None:
    spin(10)
    event = timed()
    event.record()
    assert not event.query()
    machine.host(9 * MS)
    assert not event.query()
    machine.host(2 * MS)
    assert event.query()


def test_a_mark_on_an_idle_stream_takes_a_moment_to_arrive(machine: Machine) -> None:
    torch.cuda.synchronize()
    event = timed()
    event.record()
    assert not event.query()
    machine.host(machine.gpu.spec.arrival_ns)
    assert event.query()


def test_a_mark_is_stamped_at_the_end_of_the_work_before_it(machine: Machine) -> None:
    first, second = timed(), timed()
    first.record()
    machine.host(MS)
    spin(10)
    second.record()
    second.synchronize()
    assert first.elapsed_time(second) == pytest.approx(11, abs=0.01)


def test_recorded_again_an_event_forgets_what_it_marked(machine: Machine) -> None:
    event, other = timed(), timed()
    event.record()
    other.record()
    machine.host(5 * MS)
    spin(20)
    event.record()
    assert not event.query()
    event.synchronize()
    assert other.elapsed_time(event) == pytest.approx(25, abs=0.1)


def test_elapsed_time_needs_events_with_timing(machine: Machine) -> None:
    plain, with_timing = torch.cuda.Event(), timed()
    for event in (plain, with_timing):
        event.record()
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        with_timing.elapsed_time(plain)


def test_elapsed_time_needs_recorded_events(machine: Machine) -> None:
    event = timed()
    event.record()
    torch.cuda.synchronize()
    with pytest.raises(ValueError, match="must be recorded"):
        event.elapsed_time(timed())


def test_elapsed_time_needs_events_that_are_done(machine: Machine) -> None:
    first, second = timed(), timed()
    first.record()
    spin(10)
    second.record()
    machine.host(MS)
    with pytest.raises(RuntimeError, match="must be completed"):
        first.elapsed_time(second)


def test_elapsed_time_needs_events_of_one_device(machine: Machine) -> None:
    first, second = timed(), timed()
    first.record(torch.cuda.current_stream(0))
    second.record(torch.cuda.current_stream(1))
    machine.host(MS)
    with pytest.raises(torch.AcceleratorError, match="invalid resource handle"):
        first.elapsed_time(second)


def test_elapsed_time_is_a_float32_of_milliseconds(machine: Machine) -> None:
    first, second = timed(), timed()
    first.record()
    machine.host(3600 * S + 1234 * US)
    second.record()
    machine.host(MS)
    told = first.elapsed_time(second)
    assert told == float(np.float32(told))
    assert told == pytest.approx(3_600_001.234, abs=0.13)


@pytest.mark.parametrize("negative", [True, False])
def test_elapsed_time_of_a_later_and_an_earlier_event_is_negative_or_an_error(
    machine_of: Callable[..., Machine], negative: bool
) -> None:
    machine = machine_of(GpuSpec(negative_elapsed=negative))
    first, second = timed(), timed()
    first.record()
    machine.host(7 * MS)
    second.record()
    machine.host(MS)
    if negative:
        assert second.elapsed_time(first) == pytest.approx(-7, abs=0.01)
    else:
        with pytest.raises(torch.AcceleratorError, match="invalid argument"):
            second.elapsed_time(first)


def test_stamps_are_told_in_steps_of_half_a_microsecond(machine: Machine) -> None:
    first, second = timed(), timed()
    first.record()
    machine.host(1_234_567)
    second.record()
    machine.host(MS)
    assert round(first.elapsed_time(second) * 1e6) % 500 == pytest.approx(0, abs=1)


def test_the_devices_clock_drifts_from_the_hosts(machine_of: Callable[..., Machine]) -> None:
    machine = machine_of(GpuSpec(drift=30e-6))
    first, second = timed(), timed()
    first.record()
    machine.host(100 * S)
    second.record()
    machine.host(MS)
    assert first.elapsed_time(second) - 100_000 == pytest.approx(3, abs=0.02)


def test_a_driver_may_tell_late_that_an_event_was_reached(machine_of: Callable[..., Machine]) -> None:
    machine = machine_of(GpuSpec(answer_late_ns=2 * MS))
    event = timed()
    event.record()
    machine.host(MS)
    assert not event.query()
    machine.host(2 * MS)
    assert event.query()


def test_work_of_one_stream_runs_in_order_and_that_of_two_side_by_side(machine: Machine) -> None:
    side = torch.cuda.Stream()
    began = machine.now_ns
    for stream in (None, None, side):
        spin(10, stream)
    side.synchronize()
    assert machine.now_ns - began == pytest.approx(10 * MS, abs=MS / 10)
    torch.cuda.synchronize()
    assert machine.now_ns - began == pytest.approx(20 * MS, abs=MS / 10)


def test_a_stream_waits_for_another_and_the_host_does_not(machine: Machine) -> None:
    side = torch.cuda.Stream()
    spin(10, side)
    began = machine.now_ns
    torch.cuda.current_stream().wait_stream(side)
    spin(5)
    assert machine.now_ns - began < MS
    torch.cuda.current_stream().synchronize()
    assert machine.now_ns - began == pytest.approx(15 * MS, abs=MS / 10)


def test_streams_of_different_devices_can_wait_for_each_other(machine: Machine) -> None:
    torch.cuda.synchronize(0)
    with torch.cuda.device(1):
        spin(10)
        event = timed()
        event.record()
    torch.cuda.current_stream(0).wait_event(event)
    began = machine.now_ns
    torch.cuda.current_stream(0).synchronize()
    assert machine.now_ns - began == pytest.approx(10 * MS, abs=MS / 10)


def test_the_current_device_and_the_current_stream_are_a_threads_own(machine: Machine) -> None:
    side = torch.cuda.Stream(1)
    with torch.cuda.stream(side):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream(1) == side
        assert torch.cuda.current_stream(0) != side
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


def test_the_33rd_stream_is_the_first_again(machine: Machine) -> None:
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert streams[32] == streams[0]
    assert len(set(streams)) == 32
    assert torch.cuda.Stream(priority=-1) not in streams


def test_the_raw_handle_tells_streams_apart_and_is_0_for_the_default_one(machine: Machine) -> None:
    side = torch.cuda.Stream()
    assert torch._C._cuda_getCurrentRawStream(0) == 0
    with torch.cuda.stream(side):
        assert torch._C._cuda_getCurrentRawStream(0) == side.cuda_stream != 0


def test_with_one_connection_a_mark_waits_until_what_was_queued_before_has_started(
    machine_of: Callable[..., Machine],
) -> None:
    machine = machine_of(GpuSpec(one_connection=True))
    side = torch.cuda.Stream()
    spin(10)
    spin(10)
    event = timed()
    event.record(side)
    machine.host(9 * MS)
    assert not event.query()
    machine.host(2 * MS)
    assert event.query()


def test_a_full_queue_makes_the_host_wait(machine_of: Callable[..., Machine]) -> None:
    machine = machine_of(GpuSpec(queue_depth=4))
    torch.cuda.synchronize()
    began = machine.now_ns
    for _ in range(5):
        spin(10)
    assert machine.now_ns - began == pytest.approx(10 * MS, abs=MS / 10)


def test_synchronising_waits_for_all_streams_of_one_device(machine: Machine) -> None:
    torch.cuda.synchronize(0)
    with torch.cuda.device(1):
        spin(50)
    spin(10, torch.cuda.Stream())
    began = machine.now_ns
    torch.cuda.synchronize(0)
    assert machine.now_ns - began == pytest.approx(10 * MS, abs=MS / 10)
    torch.accelerator.synchronize(1)
    assert machine.now_ns - began == pytest.approx(50 * MS, abs=MS / 10)
