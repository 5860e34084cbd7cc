"""The stand-in for torch.cuda keeps CUDA's rules; each docstring there says where a rule is from."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch

from support.cuda import MS, GpuSpec, Machine, NotPlayed, installed

MB = 10**6
Call = Callable[[], object]


def marked(stream: torch.cuda.Stream | None = None, timed: bool = True) -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=timed)
    event.record(stream)
    return event


def spin(ms: float, stream: torch.cuda.Stream | None = None) -> None:
    with torch.cuda.stream(stream):
        torch.cuda._sleep(int(ms * MS))


def took(machine: Machine, call: Call) -> float:
    """Milliseconds of the host."""
    began = machine.now_ns
    call()
    return (machine.now_ns - began) / MS


@pytest.fixture
def machine_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Machine]:
    """Puts a machine with such devices below torch."""
    return lambda *specs: installed(Machine(*specs), monkeypatch)


@pytest.fixture
def machine(machine_of: Callable[..., Machine]) -> Machine:
    """One with two ordinary devices."""
    return machine_of(GpuSpec(), GpuSpec())


@pytest.fixture
def slow(machine_of: Callable[..., Machine]) -> Machine:
    """40 kB take 10 ms from page-locked memory, 20 ms from other; the device is at work for 30 ms."""
    machine = machine_of(GpuSpec(pinned_bytes_per_s=4e6, pageable_bytes_per_s=2e6))
    torch.zeros(10_000, device="cuda")  # what the copies allocate is there from here on
    torch.cuda.synchronize()
    spin(30)
    return machine


@pytest.mark.parametrize("non_blocking", [False, True])
@pytest.mark.parametrize("pinned", [False, True])
def test_the_host_waits_for_copies_but_for_pinned_ones_that_it_does_not_want_to_wait_for(
    slow: Machine, pinned: bool, non_blocking: bool
) -> None:
    batch, sides = torch.zeros(10_000), [torch.cuda.Stream() for _ in range(2)]
    batch = batch.pin_memory() if pinned else batch
    waited = 0 if pinned and non_blocking else 40 if pinned else 50
    assert took(slow, lambda: batch.to("cuda", non_blocking=non_blocking)) == pytest.approx(waited, abs=0.2)
    assert took(slow, torch.cuda.synchronize) == pytest.approx(40 if waited == 0 else 0, abs=0.2)
    if waited == 0:  # beside the computation, and one after another
        spin(30)
        for side in sides:
            with torch.cuda.stream(side):
                batch.to("cuda", non_blocking=True)
        assert [took(slow, side.synchronize) for side in sides] == pytest.approx([10, 10], abs=0.3)


@pytest.mark.parametrize("read", ["item", "tolist", "cpu", "__float__", "__bool__", "nonzero"])
def test_who_reads_a_value_waits_for_what_is_queued(slow: Machine, read: str) -> None:
    assert took(slow, getattr(torch.ones(1, device="cuda"), read)) == pytest.approx(30, abs=0.3)


def test_events_are_reached_when_the_work_before_them_is_done(machine: Machine) -> None:
    first = marked()
    machine.host(MS)
    spin(10)
    second = marked()
    machine.host(9 * MS)
    assert (torch.cuda.Event().query(), first.query(), second.query()) == (True, True, False)
    machine.host(2 * MS)
    assert second.query()
    assert first.elapsed_time(second) == pytest.approx(11, abs=0.01)
    assert second.elapsed_time(first) == -first.elapsed_time(second)
    first.record()
    assert not first.query()  # what it marked before is forgotten


def test_streams_work_side_by_side_until_one_is_told_to_wait(machine: Machine) -> None:
    side = torch.cuda.Stream()
    began = machine.now_ns
    for stream in (None, None, side):
        spin(10, stream)
    for waits, until in ((side, 10), (torch.cuda.current_stream(), 20)):
        waits.synchronize()
        assert (machine.now_ns - began) / MS == pytest.approx(until, abs=0.1)
    spin(10, side)
    torch.cuda.current_stream().wait_stream(side)
    spin(5)
    assert took(machine, torch.cuda.synchronize) == pytest.approx(15, abs=0.1)


TOUCHES: list[Call] = [
    lambda: torch.cuda.Event().record(torch.cuda.current_stream(1)),
    lambda: torch.cuda.Stream(1),
    lambda: torch.ones(3).to("cuda:1"),
    lambda: torch.cuda.set_device(1),
    lambda: torch.cuda.synchronize(1),
    lambda: torch.cuda.mem_get_info(1),
]
LEAVES: list[Call] = [
    torch.cuda.is_available,
    torch.cuda.current_device,
    lambda: torch.cuda.get_device_properties(1),
    lambda: torch.cuda.current_stream(1),
    lambda: torch.cuda.Event().query(),
    lambda: torch.cuda.memory_reserved(1),
    lambda: torch._C._cuda_getCurrentRawStream(1),
]


@pytest.mark.parametrize(("call", "touches"), [(call, call in TOUCHES) for call in (*TOUCHES, *LEAVES)])
def test_what_touches_a_device_makes_a_context_there_and_nowhere_else(
    machine: Machine, call: Call, touches: bool
) -> None:
    assert not torch.cuda.is_initialized()
    torch.cuda.init()
    call()
    assert [gpu.has_context for gpu in machine.gpus] == [False, touches]


def test_memory_is_kept_given_back_before_it_runs_out_and_then_out(machine_of: Callable[..., Machine]) -> None:
    machine_of(GpuSpec(memory_bytes=10 * MB, context_bytes=MB))
    torch.zeros(MB, device="cuda")  # 4 MB, and gone
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved() >= 4 * MB) == (0, True)
    kept = torch.zeros(2 * MB, device="cuda")  # 8 MB: more than is left beside what is cached
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 1
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate"):
        torch.zeros(MB, device="cuda")
    assert torch.cuda.max_memory_allocated() == kept.nbytes


def test_a_forked_child_cannot_use_what_its_parent_has_initialised(machine: Machine) -> None:
    for call in (marked().query, lambda: torch.ones(3, device="cuda")):
        child = os.fork()
        if child == 0:
            try:
                call()
            except RuntimeError:
                os._exit(1)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def other_device() -> torch.cuda.Stream:
    return torch.cuda.current_stream(1)


REFUSED: list[tuple[Call, type[BaseException], str]] = [
    (lambda: marked(other_device()).record(torch.cuda.current_stream()), RuntimeError, "does not match recording"),
    (lambda: marked().elapsed_time(marked(timed=False)), ValueError, "enable_timing=True"),
    (lambda: marked().elapsed_time(torch.cuda.Event(enable_timing=True)), ValueError, "must be recorded"),
    (lambda: (spin(1), marked().elapsed_time(marked())), RuntimeError, "must be completed"),
    (lambda: torch.ones(3, device="cuda") + torch.ones(3), RuntimeError, "to be on the same device"),
    (lambda: torch.ones(3, device="cuda") + torch.ones(3, device="cuda:1"), RuntimeError, "to be on the same device"),
    (lambda: torch.ones(3, device="cuda").numpy(), TypeError, "can't convert cuda:0"),
    (lambda: torch.cuda.CUDAGraph().capture_begin(), RuntimeError, "non-default stream"),
    (lambda: torch.cuda.CUDAGraph().replay(), RuntimeError, "without a preceding successful capture"),
    (torch.cuda.ipc_collect, NotPlayed, "the stand-in does not play torch"),
    (lambda: torch.ones(3, device="cuda").to("cuda:1"), NotPlayed, "between two devices"),
]


@pytest.mark.parametrize(("call", "error", "said"), REFUSED)
def test_what_cuda_refuses_is_refused(machine: Machine, call: Call, error: type[BaseException], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(1, device="cuda").item(),
        torch.cuda.synchronize,
        lambda: torch.ones(3).to("cuda"),
        lambda: marked().query(),
        lambda: marked(torch.cuda.default_stream()),
    ],
)
def test_in_a_capture_waiting_is_an_error_that_spoils_it(machine: Machine, call: Call) -> None:
    with (
        pytest.raises(torch.AcceleratorError, match="previous error during capture"),
        torch.cuda.graph(torch.cuda.CUDAGraph()),
    ):
        with pytest.raises(RuntimeError):
            call()
        assert torch.cuda.is_current_stream_capturing()
    assert not torch.cuda.is_current_stream_capturing()


def test_a_backward_pass_runs_on_the_streams_of_the_forward_pass_and_joins_the_current_one(machine: Machine) -> None:
    weight, side = torch.ones(3, device="cuda", requires_grad=True), torch.cuda.Stream()
    with torch.cuda.stream(side):
        loss = weight.exp().sum()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    machine.gpu.works.clear()
    machine.durations["mul"] = 10 * MS
    loss.backward()
    assert {work.name: work.stream for work in machine.gpu.works}["mul"] == side.stream_id
    assert took(machine, torch.cuda.current_stream().synchronize) == pytest.approx(10, abs=0.2)
