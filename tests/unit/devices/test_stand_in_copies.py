"""The stand-in's copies, and what tensors on its devices let one do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torchvision import tv_tensors

from support.cuda import MS, GpuSpec, Machine
from support.cuda.gpu import PEER
from support.cuda.machine import COPY
from support.cuda.memory import MALLOC_NS

SLOW = GpuSpec(pinned_bytes_per_s=4e6, pageable_bytes_per_s=2e6)
"""40 kB take 10 ms from page-locked memory, 20 ms from other."""


@pytest.fixture
def slow(machine_of: Callable[..., Machine]) -> Machine:
    machine = machine_of(SLOW)
    torch.cuda.synchronize()
    torch.zeros(10_000, device="cuda")  # what the copies allocate is there from here on
    torch.cuda.synchronize()
    return machine


def batch(pinned: bool = False) -> torch.Tensor:
    made = torch.zeros(10_000)
    return made.pin_memory() if pinned else made


def took(machine: Machine, call: Callable[[], object]) -> float:
    """Milliseconds of the host."""
    began = machine.now_ns
    call()
    return (machine.now_ns - began) / MS


@pytest.mark.parametrize("non_blocking", [False, True])
def test_from_pageable_memory_the_host_waits_for_the_stream_and_then_for_the_copy(
    slow: Machine, non_blocking: bool
) -> None:
    torch.cuda._sleep(30 * MS)
    assert took(slow, lambda: batch().to("cuda", non_blocking=non_blocking)) == pytest.approx(50, abs=0.2)


def test_a_call_that_copies_lasts_from_the_search_for_memory_to_the_end_of_its_waits(slow: Machine) -> None:
    torch.cuda._sleep(30 * MS)
    began = slow.now_ns
    assert took(slow, torch.zeros(20_000).cuda) > 40
    copying = [(begin, end) for what, begin, end in slow.spans if what == COPY]
    assert copying[-1][0] - began < MALLOC_NS
    assert copying[-1][1] == slow.now_ns
    assert slow.gpu.memory.mallocs == 2


def test_from_pinned_memory_the_copy_is_queued(slow: Machine) -> None:
    tensor = batch(pinned=True)
    torch.cuda._sleep(30 * MS)
    assert took(slow, lambda: tensor.to("cuda", non_blocking=True)) < 0.2
    assert took(slow, torch.cuda.synchronize) == pytest.approx(40, abs=0.2)


def test_unless_asked_not_to_the_host_waits_for_a_pinned_copy_too(slow: Machine) -> None:
    tensor = batch(pinned=True)
    torch.cuda._sleep(30 * MS)
    assert took(slow, tensor.cuda) == pytest.approx(40, abs=0.2)


def test_a_pinned_copy_on_a_side_stream_runs_beside_the_computation(slow: Machine) -> None:
    tensor, side = batch(pinned=True), torch.cuda.Stream()
    torch.cuda._sleep(30 * MS)
    with torch.cuda.stream(side):
        tensor.to("cuda", non_blocking=True)
    assert took(slow, side.synchronize) == pytest.approx(10, abs=0.2)


def between_devices(machine_of: Callable[..., Machine]) -> tuple[Machine, torch.Tensor]:
    """Two devices, and a tensor on the first whose copy to the other takes 10 ms."""
    machine = machine_of(GpuSpec(peer_bytes_per_s=4e6), GpuSpec())
    tensor = batch().cuda()
    tensor.to("cuda:1")  # what this allocates is there from here on
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    return machine, tensor


@pytest.mark.parametrize("non_blocking", [False, True])
def test_a_copy_between_devices_waits_for_both_and_the_host_for_neither(
    machine_of: Callable[..., Machine], non_blocking: bool
) -> None:
    machine, tensor = between_devices(machine_of)
    with torch.cuda.device(1):
        torch.cuda._sleep(30 * MS)
    assert took(machine, lambda: tensor.to("cuda:1", non_blocking=non_blocking)) < 0.1
    peer = machine.gpus[0].works[-1]
    assert (peer.what, peer.end_ns - peer.begin_ns) == (PEER, pytest.approx(10 * MS, abs=MS / 10))
    assert took(machine, torch.cuda.current_stream(0).synchronize) == pytest.approx(40, abs=0.2)


def test_the_current_stream_of_the_device_copied_to_waits_for_the_copy_and_others_do_not(
    machine_of: Callable[..., Machine],
) -> None:
    machine, tensor = between_devices(machine_of)
    side = torch.cuda.Stream(1)
    tensor.to("cuda:1")
    assert took(machine, side.synchronize) < 0.1
    assert took(machine, torch.cuda.current_stream(1).synchronize) == pytest.approx(10, abs=0.2)


def test_a_gradient_goes_back_to_the_device_that_its_tensor_was_copied_from(machine: Machine) -> None:
    weight = torch.ones(3, device="cuda", requires_grad=True)
    (weight * 2).to("cuda:1").sum().backward()
    assert weight.grad is not None
    assert weight.grad.device == weight.device
    assert [gpu.index for gpu in machine.gpus for work in gpu.works if work.what == PEER] == [0, 1]


def test_one_optimizer_serves_two_devices(machine: Machine) -> None:
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        weights = [torch.ones(3, device=f"cuda:{index}", requires_grad=True) for index in (0, 1, 0)]
        for weight in weights:
            weight.grad = torch.ones(3, device=weight.device)
        kind(weights, lr=0.1).step()
        assert all(weight.max() < 1 for weight in weights)


def test_copies_of_one_direction_share_an_engine_and_the_other_direction_has_its_own(slow: Machine) -> None:
    tensor, on_device = batch(pinned=True), torch.zeros(10_000, device="cuda")
    torch.cuda.synchronize()
    sides = [torch.cuda.Stream() for _ in range(3)]
    began = slow.now_ns
    for side in sides[:2]:
        with torch.cuda.stream(side):
            tensor.to("cuda", non_blocking=True)
    with torch.cuda.stream(sides[2]):
        back = on_device.to("cpu", non_blocking=True)
    assert back.is_pinned()
    for side, until in zip(sides, (10, 20, 10), strict=True):
        side.synchronize()
        assert (slow.now_ns - began) / MS == pytest.approx(max(until, (slow.now_ns - began) // MS), abs=0.3)


@pytest.mark.parametrize("read", ["item", "tolist", "cpu", "__float__", "__int__", "__bool__", "nonzero"])
def test_who_reads_a_value_waits_for_what_is_queued(slow: Machine, read: str) -> None:
    tensor = torch.ones(1, device="cuda").sum() if read != "nonzero" else torch.ones(3, device="cuda")
    torch.cuda._sleep(30 * MS)
    assert took(slow, getattr(tensor, read)) == pytest.approx(30, abs=0.3)


def test_a_tensor_on_the_device_is_no_numpy_array(machine: Machine) -> None:
    with pytest.raises(TypeError, match="can't convert cuda:0 device type tensor to numpy"):
        torch.ones(3, device="cuda").numpy()
    assert torch.ones(3, device="cuda").cpu().numpy().sum() == 3


def test_operators_want_their_tensors_on_one_device_numbers_aside(machine: Machine) -> None:
    tensor = torch.ones(3, device="cuda")
    assert (tensor * torch.tensor(2.0)).is_cuda
    for other in (torch.ones(3), torch.ones(3, device="cuda:1")):
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            tensor + other


def test_a_tensor_says_where_it_is_and_its_views_and_results_are_there_too(machine: Machine) -> None:
    tensor = torch.ones(4, 4).to("cuda:1")
    for each in (tensor, tensor.T, tensor[0], tensor + 1, torch.zeros_like(tensor), tensor.new_zeros(2), tensor.half()):
        assert type(each) is torch.Tensor
        assert each.device == torch.device("cuda", 1)
        assert each.is_cuda
        assert each.get_device() == 1
    assert tensor.cpu().device == torch.device("cpu")
    assert tensor.to("cuda:1") is tensor


def test_a_default_device_is_where_tensors_are_made(machine: Machine) -> None:
    with torch.device("cuda:1"):
        made = torch.zeros(3) + torch.ones(3)
    assert made.device == torch.device("cuda", 1)
    assert made.tolist() == [1, 1, 1]


def test_kernels_go_to_the_current_stream_of_their_tensors_device(machine: Machine) -> None:
    tensor, side = torch.ones(3, device="cuda:1"), torch.cuda.Stream(1)
    machine.durations["mul"] = 10 * MS
    torch.cuda.synchronize(0)
    with torch.cuda.stream(side):
        tensor * 2
    assert machine.gpus[1].works[-1].stream == side.stream_id
    began = machine.now_ns
    torch.cuda.synchronize(0)
    assert machine.now_ns - began < MS


def test_a_backward_pass_runs_on_the_streams_of_the_forward_pass_and_joins_the_current_one(machine: Machine) -> None:
    weight, side = torch.ones(3, device="cuda", requires_grad=True), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        loss = weight.exp().sum()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    machine.gpu.works.clear()
    machine.durations["mul"] = 10 * MS
    loss.backward()
    streams = {work.name: work.stream for work in machine.gpu.works}
    assert streams["mul"] == side.stream_id
    began = machine.now_ns
    torch.cuda.current_stream().synchronize()
    assert machine.now_ns - began == pytest.approx(10 * MS, abs=MS / 5)


def test_a_model_trains_on_the_device_with_torchs_own_autograd_and_optimizers(machine: Machine) -> None:
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to("cuda")
        optimizer = kind(model.parameters(), lr=0.001)
        losses = []
        for _ in range(20):
            loss = (model(torch.ones(3, 4, device="cuda")) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        assert losses[-1] < losses[0]
        assert all(p.is_cuda and p.grad is not None and p.grad.is_cuda for p in model.parameters())
    assert "mm" in {work.name for work in machine.gpu.works}


def test_subclasses_of_tensors_look_their_overrides_up_by_name_as_torchs_core_does(machine: Machine) -> None:
    image = tv_tensors.Image(torch.ones(3, 4, 4))
    assert type(image.to("cuda")) is tv_tensors.Image
    assert image.to("cuda").is_cuda
    asked = []

    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            asked.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    original = torch.Tensor.to
    replaced = lambda self, *args, **kwargs: original(self, *args, **kwargs)  # noqa: E731
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "to", replaced)
        torch.ones(3).as_subclass(Told).to("cuda")
        # torch/csrc/utils/python_arg_parser.cpp, `handle_torch_function`: the attribute of that name.
        assert asked[0] is replaced


def test_gradients_are_clipped_where_they_are(machine: Machine) -> None:
    """Many tensors at once: core is asked where they are, and nothing is copied or waited for."""
    parameter = torch.nn.Parameter(torch.ones(3, device="cuda"))
    parameter.grad = torch.full((3,), 4.0, device="cuda")
    waited = machine.synchronised
    torch.nn.utils.clip_grad_norm_([parameter], 1.0)
    assert machine.synchronised == waited
    assert parameter.grad.norm().item() == pytest.approx(1.0, abs=1e-3)
