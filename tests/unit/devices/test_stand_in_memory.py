"""The stand-in's contexts, memory, and failures."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
import torch
import torchvision.ops  # noqa: F401 - its operators

from support.cuda import MS, GpuSpec, Machine, NotPlayed
from support.cuda.memory import MALLOC_NS

MB = 10**6

TOUCHES: dict[str, Callable[[], object]] = {
    "an event": lambda: torch.cuda.Event().record(torch.cuda.current_stream(1)),
    "a stream": lambda: torch.cuda.Stream(1),
    "a tensor": lambda: torch.ones(3, device="cuda:1"),
    "a copy": lambda: torch.ones(3).to("cuda:1"),
    "set_device": lambda: torch.cuda.set_device(1),
    "with device": lambda: torch.cuda.device(1).__enter__(),
    "synchronize": lambda: torch.cuda.synchronize(1),
    "mem_get_info": lambda: torch.cuda.mem_get_info(1),
}
LEAVES: dict[str, Callable[[], object]] = {
    "device_count": torch.cuda.device_count,
    "is_available": torch.cuda.is_available,
    "current_device": torch.cuda.current_device,
    "properties": lambda: torch.cuda.get_device_properties(1),
    "current_stream": lambda: torch.cuda.current_stream(1),
    "an unrecorded event": lambda: torch.cuda.Event().query(),
    "memory_reserved": lambda: torch.cuda.memory_reserved(1),
    "the handle": lambda: torch._C._cuda_getCurrentRawStream(1),
}


@pytest.mark.parametrize("how", TOUCHES)
def test_what_touches_a_device_makes_a_context_there_and_nowhere_else(machine: Machine, how: str) -> None:
    before = machine.now_ns
    torch.cuda.init()
    TOUCHES[how]()
    assert [gpu.has_context for gpu in machine.gpus] == [False, True]
    assert machine.gpus[1].memory.used >= machine.gpus[1].spec.context_bytes
    assert machine.now_ns - before >= machine.gpus[1].spec.context_ns


@pytest.mark.parametrize("how", LEAVES)
def test_what_only_asks_leaves_devices_alone(machine: Machine, how: str) -> None:
    torch.cuda.init()
    LEAVES[how]()
    assert not any(gpu.has_context for gpu in machine.gpus)


def test_nothing_is_initialised_before_a_device_is_used(machine: Machine) -> None:
    assert torch.cuda.is_available()
    assert torch.ones(3).sum() == 3
    assert not torch.cuda.is_initialized()
    torch.ones(3).cuda()
    assert torch.cuda.is_initialized()


def test_page_locked_memory_makes_a_context_on_the_current_device_unless_there_is_one(machine: Machine) -> None:
    torch.cuda.synchronize(1)
    torch.ones(3).pin_memory()
    assert [gpu.has_context for gpu in machine.gpus] == [False, True]


def test_page_locked_memory_makes_the_first_context(machine: Machine) -> None:
    torch.ones(3).pin_memory()
    assert [gpu.has_context for gpu in machine.gpus] == [True, False]


def test_a_device_of_another_process_alone_refuses(machine_of: Callable[..., Machine]) -> None:
    machine_of(GpuSpec(exclusive_to_another=True))
    with pytest.raises(torch.AcceleratorError, match="busy or unavailable"):
        torch.cuda.Event().record()


def test_a_full_device_has_no_room_for_a_context(machine_of: Callable[..., Machine]) -> None:
    machine_of(GpuSpec(memory_bytes=1000 * MB, used_by_others=600 * MB))
    with pytest.raises(torch.AcceleratorError, match="out of memory"):
        torch.cuda.set_device(0)


def test_tensors_take_memory_and_the_allocator_keeps_what_they_give_back(machine: Machine) -> None:
    tensor = torch.zeros(1024, device="cuda")
    assert torch.cuda.memory_allocated() == torch.cuda.memory_reserved() == 4096
    view = tensor[:10]
    del tensor
    assert torch.cuda.memory_allocated() == 4096
    del view
    assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (0, 4096)
    before = machine.now_ns
    again = torch.zeros(1024, device="cuda")
    assert machine.now_ns - before < MALLOC_NS
    assert torch.cuda.max_memory_allocated() == again.nbytes
    del again
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == 0


def test_before_memory_runs_out_the_cache_is_given_back_and_a_retry_counted(machine_of: Callable[..., Machine]) -> None:
    machine_of(GpuSpec(memory_bytes=10 * MB, context_bytes=MB))
    torch.zeros(MB, device="cuda")  # 4 MB, and gone
    kept = torch.zeros(2 * MB, device="cuda")  # 8 MB: more than is left beside what is cached
    assert torch.cuda.memory_stats()["num_alloc_retries"] == 1
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory\. Tried to allocate"):
        torch.zeros(MB, device="cuda")
    assert torch.cuda.memory_stats()["num_ooms"] == 1
    del kept
    torch.zeros(MB, device="cuda")


def test_an_assertion_of_the_programs_is_looked_at_on_the_device(machine: Machine) -> None:
    torch._assert_async(torch.ones(1, device="cuda"))
    torch.cuda.synchronize()
    torch._assert_async(torch.zeros(1, device="cuda"))
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        torch.cuda.synchronize()


def test_a_failed_assert_is_heard_of_when_the_device_has_come_to_it_and_then_by_every_call(machine: Machine) -> None:
    tensor = torch.ones(3, device="cuda")
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    machine.assert_on_device(after_ns=10 * MS)
    tensor * 2
    machine.host(20 * MS)
    calls: list[Callable[[], object]] = [
        lambda: tensor * 2,
        event.query,
        event.record,
        lambda: event.elapsed_time(event),
        tensor.cpu,
        torch.cuda.synchronize,
        torch.cuda.Stream,
        torch.cuda.is_current_stream_capturing,
        lambda: torch.ones(3).to("cuda"),
    ]
    for call in calls * 2:
        with pytest.raises(torch.AcceleratorError, match="device-side assert triggered"):
            call()
    torch.cuda.synchronize(1)  # another device's


def test_who_waits_for_a_device_that_fails_hears_of_it(machine: Machine) -> None:
    torch.cuda.synchronize()
    machine.assert_on_device(after_ns=10 * MS)
    began = machine.now_ns
    with pytest.raises(torch.AcceleratorError, match="device-side assert"):
        torch.cuda.synchronize()
    assert machine.now_ns - began == pytest.approx(10 * MS, abs=MS / 10)


def in_child(call: Callable[[], object]) -> bool:
    """Whether it raises in a forked child."""
    child = os.fork()
    if child == 0:
        try:
            call()
        except RuntimeError:
            os._exit(1)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_forked_child_cannot_use_what_its_parent_has_initialised(machine: Machine) -> None:
    assert not in_child(torch.cuda.device_count)
    event = torch.cuda.Event()
    event.record()
    for call in (event.query, event.record, lambda: torch.ones(3, device="cuda"), torch.cuda.synchronize):
        assert in_child(call)
    assert not in_child(lambda: torch.ones(3).sum().item())


@pytest.mark.parametrize(
    "call",
    [
        torch.cuda.ipc_collect,
        lambda: torch.cuda.set_sync_debug_mode("warn"),
        lambda: torch.cuda.ExternalStream(0),
        lambda: torch.cuda.Event(interprocess=True),
        lambda: torch.cuda.memory_snapshot(),
        lambda: torch.cuda.make_graphed_callables(None, ()),
        lambda: torch.ops.torchvision.nms(torch.zeros(2, 4, device="cuda"), torch.zeros(2), 0.5),
    ],
)
def test_what_is_not_played_says_so(machine: Machine, call: Callable[[], object]) -> None:
    with pytest.raises(NotPlayed, match="the stand-in does not play torch"):
        call()


def test_without_a_machine_torch_is_what_it_was() -> None:
    assert torch.ones(3).device == torch.device("cpu")
    assert "device" not in vars(torch.Tensor)
