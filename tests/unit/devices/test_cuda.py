"""The CUDA device's own logic on the stand-in for torch.cuda: clock, event pool, memory. `tests/gpu` has the rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
import torch

from support.cuda import MS, US, GpuSpec, Machine, S, installed
from support.cuda.install import uuid_of
from whyidle.devices import cuda

CLOCK = -1
"""Priority of the stream that brackets are put into."""


@pytest.fixture
def drifting(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Machine]:
    """A machine whose device's clock runs so much faster than the host's."""
    return lambda drift: installed(Machine(GpuSpec(context_ns=0, drift=drift)), monkeypatch)


@pytest.fixture
def machine(drifting: Callable[[float], Machine]) -> Machine:
    return drifting(0.0)


def ended(machine: Machine, device: cuda.CudaDevice, for_ns: int) -> list[int]:
    """How far the stamps of steps' ends are off."""
    return [abs(told - end) for _, end, _, told in steps(machine, device, for_ns)]


def reached_ns(mark: cuda.CudaEvent) -> int:
    """When the device came to it, in truth."""
    return mark.event._at_ns  # type: ignore[attr-defined,no-any-return]


def steps(
    machine: Machine, device: cuda.CudaDevice, for_ns: int, longest_ms: int = 900
) -> Iterator[tuple[int, int, int, int]]:
    """Steps of a training: when the device began and ended each, and what its stamps say."""
    draw = random.Random(7)
    until = machine.now_ns + for_ns
    while machine.now_ns < until:
        begin = device.record()
        machine.host(draw.randrange(2 * MS, longest_ms * MS))
        end = device.record()
        machine.host(MS)
        assert end.done()
        yield reached_ns(begin), reached_ns(end), begin.time_ns(), end.time_ns()
        device.release(begin)
        device.release(end)


def test_a_late_clock_stream_is_tried_once_a_period_and_the_old_anchor_kept(machine: Machine) -> None:
    device = cuda.CudaDevice()
    machine.gpu.late_ns[CLOCK] = cuda.ANCHOR_LIMIT_NS * 6 // 10  # slow answers cost no more than twice the limit
    mark = device.record()
    machine.host(6 * S)
    began = machine.now_ns
    mark.time_ns()
    assert machine.now_ns - began < 2 * cuda.ANCHOR_LIMIT_NS
    machine.gpu.late_ns[CLOCK] = 50 * MS
    machine.host(6 * S)
    made, before = machine.events_made, machine.now_ns
    event = device.record()
    machine.host(MS)
    for _ in range(200):
        event.time_ns()
    assert machine.events_made - made == 1  # a try at an anchor takes an event that was used before
    assert machine.now_ns - before < 2 * cuda.ANCHOR_LIMIT_NS
    assert event.time_ns() == pytest.approx(reached_ns(event), abs=5_000)


def test_eight_hours_without_a_bracket_round_steps_by_little_and_keep_no_events(machine: Machine) -> None:
    device = cuda.CudaDevice()
    machine.gpu.late_ns[CLOCK] = 20 * MS
    tries_began, for_ns = machine.gpu.marks[CLOCK], 8 * 3600 * S
    worst_length = worst_stamp = 0
    for begin, end, told_begin, told_end in steps(machine, device, for_ns):
        worst_length = max(worst_length, abs((told_end - told_begin) - (end - begin)))
        worst_stamp = max(worst_stamp, abs(told_end - end))
    assert worst_length < US
    # One float32 over eight hours rounds by up to 1 ms.
    assert worst_stamp < 20 * US
    # Whether the clocks ran alike is not known without brackets, and is said: 20 ppm of eight hours.
    assert device.clock_uncertainty_ns() == pytest.approx(for_ns * 20e-6, rel=0.01)
    # One a period, and some sooner in the first seconds.
    assert machine.gpu.marks[CLOCK] - tries_began <= for_ns / cuda.ANCHOR_PERIOD_NS + 4
    assert len(device._pool) == 1
    assert machine.synchronised == 0


def test_nothing_is_queued_behind_a_try_that_the_device_has_not_come_to(machine: Machine) -> None:
    device = cuda.CudaDevice()
    machine.gpu.late_ns[CLOCK] = 3600 * S
    before = machine.gpu.marks[CLOCK]
    ended(machine, device, 600 * S)
    assert machine.gpu.marks[CLOCK] - before == 1
    machine.gpu.late_ns[CLOCK] = 0
    ended(machine, device, 3600 * S)
    assert machine.gpu.marks[CLOCK] - before > 1000  # ten tries a period again
    assert (device.clock_uncertainty_ns() or S) < 100 * US  # the clocks had not drifted apart meanwhile


@pytest.mark.parametrize("drift", [30e-6, -30e-6])
def test_a_drift_of_30_ppm_is_corrected_and_goes_on_being_when_brackets_fail(
    drifting: Callable[[float], Machine], drift: float
) -> None:
    machine = drifting(drift)
    device = cuda.CudaDevice()
    learning = ended(machine, device, 60 * S)
    assert max(learning) < 200 * US
    known = ended(machine, device, 300 * S)
    assert max(known) < 6 * US  # half a bracket, and the slope of a line through brackets of some microseconds
    machine.gpu.late_ns[CLOCK] = 20 * MS
    alone = ended(machine, device, 600 * S)
    assert max(alone) < 100 * US  # 18 ms were it not for the rate
    uncertain = device.clock_uncertainty_ns()
    assert uncertain is not None
    assert max(learning + known + alone) <= uncertain < 2 * MS


def test_no_stamp_is_overtaken_by_a_later_one_and_none_changes_when_a_bracket_succeeds_at_last(
    drifting: Callable[[float], Machine],
) -> None:
    machine = drifting(30e-6)  # without brackets stamps get ahead of the host
    device = cuda.CudaDevice()
    machine.gpu.late_ns[CLOCK] = 20 * MS
    for *_, told_end in steps(machine, device, 600 * S):
        newest = told_end
    marks = []
    for _ in range(400):
        marks.append(device.record())
        machine.host(20 * US)
    before = [mark.time_ns() for mark in marks]
    off = before[-1] - reached_ns(marks[-1])
    assert off > 17 * MS
    machine.gpu.late_ns[CLOCK] = 0
    machine.host(6 * S)
    later = []
    for _ in range(4000):
        later.append(device.record())
        machine.host(100 * US)
        later[-1].time_ns()  # a bracket succeeds with the first of them
    told = [mark.time_ns() for mark in [*marks, *later]]
    assert told[: len(marks)] == pytest.approx(before, abs=US)
    assert newest < told[0]
    assert all(earlier < after for earlier, after in pairwise(told))
    assert told[-1] - reached_ns(later[-1]) < 20 * US
    # What was wrong until then is remembered when all is well again.
    assert off <= (device.clock_uncertainty_ns() or 0) < off + 2 * MS


@pytest.mark.parametrize(
    ("drift", "late_ns", "set_by_ns"),
    # Just within the limit, so that the middle of the bracket is off by 1 ms; or the clock was set.
    [(30e-6, 1_900 * US, 0), (0.0, 0, 3 * MS), (0.0, 0, 500 * MS)],
)
def test_a_wide_bracket_spoils_nothing_and_stamps_find_back_to_a_clock_that_was_set(
    drifting: Callable[[float], Machine], drift: float, late_ns: int, set_by_ns: int
) -> None:
    machine = drifting(drift)
    device = cuda.CudaDevice()
    ended(machine, device, 120 * S)
    machine.gpu.late_ns[CLOCK] = late_ns
    if set_by_ns:
        machine.gpu.set_at_ns, machine.gpu.set_by_ns = machine.now_ns, set_by_ns
        ended(machine, device, 30 * S)
    assert max(ended(machine, device, 120 * S)) < 10 * US


def test_marks_of_a_device_far_behind_are_told_as_exactly_as_others(machine: Machine) -> None:
    device = cuda.CudaDevice()
    marks = []
    for _ in range(60):
        marks.append(device.record())
        machine.host(1_000 * MS)
    for mark in marks:
        assert mark.time_ns() == pytest.approx(reached_ns(mark), abs=5 * US)
        device.release(mark)
    # No event serves twice: the reference is none that may be recorded anew.
    assert device._reference not in device._pool
    assert len({mark.event for mark in device._pool}) == len(device._pool)


def test_a_mark_of_long_ago_is_told_alike_before_and_after_a_bracket(machine: Machine) -> None:
    device = cuda.CudaDevice()
    marks = []
    for _ in range(5):
        marks.append(device.record())
        machine.host(12_345_678)
    machine.host(61 * S)
    told = [mark.time_ns() for mark in marks]
    tries = machine.gpu.marks[CLOCK]
    machine.host(6 * S)
    assert [mark.time_ns() for mark in reversed(marks)] == pytest.approx(told[::-1], abs=10)
    assert machine.gpu.marks[CLOCK] > tries


@pytest.mark.parametrize(("until_waited", "uncertain"), [(True, 0), (False, 25 * MS)])
def test_a_device_whose_first_bracket_is_late_waits_once_and_tries_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, until_waited: bool, uncertain: int
) -> None:
    machine.gpu.late_ns[CLOCK] = 50 * MS
    waited = torch.cuda.Event.synchronize

    def synchronize(event: torch.cuda.Event) -> None:
        waited(event)
        machine.gpu.late_ns[CLOCK] *= not until_waited

    monkeypatch.setattr(torch.cuda.Event, "synchronize", synchronize)
    device = cuda.CudaDevice()
    machine.gpu.late_ns[CLOCK] = 0
    event = device.record()
    machine.host(MS)
    assert event.time_ns() == pytest.approx(reached_ns(event), abs=uncertain + MS)
    assert device.clock_uncertainty_ns() == pytest.approx(uncertain, rel=0.1, abs=10 * US)
    assert machine.synchronised == 1


def test_settling_waits_for_a_mark_without_synchronising_and_for_no_longer_than_told(machine: Machine) -> None:
    device = cuda.CudaDevice()
    torch.cuda._sleep(30 * MS)
    until = machine.now_ns + 30 * MS
    device.settle(device.record(), 100 * MS)
    assert until <= machine.now_ns < until + 2 * MS
    assert 25 <= machine.clock.slept <= 31
    torch.cuda._sleep(10 * S)
    began = machine.now_ns
    device.settle(device.record(), 100 * MS)
    assert 100 * MS <= machine.now_ns - began < 102 * MS
    assert machine.synchronised == 0


def test_marks_go_to_the_current_stream_of_the_devices_own_gpu_and_captures_are_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    installed(Machine(GpuSpec(), GpuSpec()), monkeypatch)
    device = cuda.CudaDevice(1)
    side = torch.cuda.Stream(1)
    with torch.cuda.stream(side), torch.cuda.device(0):
        torch.cuda._sleep(10 * MS)
        mark, before = device.record(), side.query()
    assert mark.event.device == torch.device("cuda", 1)
    assert not before
    assert not device.captures()
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        assert device.captures()


def test_differentiable_operations_of_the_thread_change_the_number_and_others_do_not(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = cuda.CudaDevice()
    weight = torch.ones(3, requires_grad=True, device="cuda")
    before = device.operations()
    torch.ones(3, device="cuda") * 2
    with torch.no_grad():
        weight * 2
    assert device.operations() == before
    weight * 2
    assert device.operations() > before
    # Where torch does not number them, some are taken to have run.
    monkeypatch.delattr(torch._C._autograd, "_get_sequence_nr")
    device = cuda.CudaDevice()
    assert len({device.operations() for _ in range(5)}) == 5


def test_memory_is_asked_for_once_in_many_steps_and_retries_are_those_the_allocator_counts(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, asked = cuda.CudaDevice(), []
    kept = torch.zeros(1024, device="cuda")
    with monkeypatch.context() as patch:
        patch.setattr(torch._C, "_cuda_memoryStats", lambda index: asked.append(index) or machine.gpu.statistics())
        assert {device.memory_used() for _ in range(40)} == {kept.nbytes}
    assert asked == [0, 0]
    device = cuda.CudaDevice()
    assert device.allocation_retries() == 0
    machine.gpu.retries = 3
    assert device.allocation_retries() == 3
    for statistics in (lambda index: {"num_ooms": 0}, lambda index: {}["no statistics"]):
        device = cuda.CudaDevice()
        with monkeypatch.context() as patch:
            patch.setattr(torch._C, "_cuda_memoryStats", statistics)
            assert device.allocation_retries() is None
        assert device.allocation_retries() is None  # not asked again
    monkeypatch.setattr(torch._C, "_cuda_getAllocatorBackend", lambda: "cudaMallocAsync")
    assert cuda.CudaDevice().allocation_retries() is None


def test_the_description_has_the_uuid_that_the_sampler_looks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(Machine(GpuSpec(), GpuSpec()), monkeypatch)
    described = cuda.describe_gpu(1)
    assert (described["kind"], described["name"]) == ("cuda", "cuda:1")
    assert described["uuids"] == [f"GPU-{uuid_of(1)}"]
    assert cuda.CudaDevice(1).describe() == described
