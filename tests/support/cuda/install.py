"""Puts a machine below torch: from then on `torch.cuda` is what runs on it, and the project's clock is its clock."""

from __future__ import annotations

import sys
import time
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import _C

from whyidle.capture import active
from whyidle.capture.hooks import device_calls
from whyidle.capture.workers import hook
from whyidle.devices import choose, cpu, cuda, emulated

from .. import gpu_programs
from . import clock, operations
from . import machine as machines
from .machine import Machine, Queue
from .streams import CUDA, CUDAGraph, Event, Stream, refusing

_PRELOADED = (active, device_calls, hook, choose, emulated, cpu, cuda)
"""What takes the clock's functions by name is there before they are replaced."""
_KEPT = ("_cuda_getCompiledVersion", "_cuda_getArchFlags")
_OTHER_STREAMS = ("ExternalStream", "get_stream_from_external")


def installed(machine: Machine, patch: pytest.MonkeyPatch) -> Machine:
    """Run torch on this machine from here on, in this thread, until `patch` is undone."""
    patch.setattr(clock, "_installed", machine.clock)
    patch.setattr(machines, "_installed", machine)
    patch.setattr(gpu_programs, "spend", machine.host)
    _replace_clock(patch)
    _replace_cuda(machine, patch)
    _replace_tensors(machine, patch)
    patch.setattr(_OfThread(), "included", True)
    patch.setattr(_OfThread(), "threads", 1)
    return machine


class _OfThread:
    """What torch keeps elsewhere than in attributes, as something that a `MonkeyPatch` undoes."""

    @property
    def included(self) -> bool:
        """Whether operators come by `operations`."""
        return bool(_C._dispatch_tls_is_dispatch_key_included(operations.KEY))

    @included.setter
    def included(self, included: bool) -> None:
        operations.include(included)

    @property
    def threads(self) -> int:
        """For operators on small tensors, more of them than one are in each other's way."""
        return torch.get_num_threads()

    @threads.setter
    def threads(self, threads: int) -> None:
        torch.set_num_threads(threads)


def _replace_clock(patch: pytest.MonkeyPatch) -> None:
    for name, virtual in clock.VIRTUAL.items():
        patch.setattr(time, name, virtual)
    real = {id(clock.REAL[name]): virtual for name, virtual in clock.VIRTUAL.items()}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "whyidle" or module is None:
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in real:
                patch.setattr(module, attribute, real[id(value)])
    for owner in (cuda.CudaDevice, cpu.CpuDevice, emulated.Clock):
        patch.setattr(owner, "now", staticmethod(clock.VIRTUAL["monotonic_ns"]))


def _replace_cuda(machine: Machine, patch: pytest.MonkeyPatch) -> None:
    played = _played(machine)
    for name in dir(_C):
        if name.startswith(("_cuda_", "_accelerator_")) and name not in _KEPT and callable(getattr(_C, name)):
            patch.setattr(_C, name, played.pop(name, None) or refusing(f"torch._C.{name}"))
    for name, function in played.items():
        patch.setattr(_C, name, function, raising=False)
    for owner in (torch.cuda, torch.cuda.streams):
        patch.setattr(owner, "Stream", Stream)
        patch.setattr(owner, "Event", Event)
        for name in _OTHER_STREAMS:
            patch.setattr(owner, name, refusing(f"torch.cuda.{name}"), raising=False)
    for owner in (torch.cuda, torch.cuda.graphs):
        patch.setattr(owner, "CUDAGraph", CUDAGraph)
    for name in ("make_graphed_callables", "MemPool"):
        patch.setattr(torch.cuda, name, refusing(f"torch.cuda.{name}"), raising=False)
    # Taken by name where torch was imported.
    patch.setattr(torch.cuda.graphs, "_cuda_isCurrentStreamCapturing", _C._cuda_isCurrentStreamCapturing)
    patch.setattr(torch.cuda.graphs.graph, "default_capture_stream", None)
    patch.setattr(torch.cuda, "_exchange_device", machine.exchange_device)
    patch.setattr(torch.cuda, "_maybe_exchange_device", machine.maybe_exchange_device)
    patch.setattr(torch.cuda, "_get_device_properties", partial(_properties, machine), raising=False)
    patch.setattr(torch.cuda, "_initialized", False)
    patch.setattr(torch.cuda, "_is_in_bad_fork", _C._cuda_isInBadFork)
    patch.setattr(torch.cuda, "_cached_device_count", None)
    patch.setattr(torch.cuda, "_queued_calls", [])
    patch.setattr(torch.cuda, "_device_count_nvml", lambda: -1)
    patch.setattr(torch.cuda, "default_generators", tuple(torch.Generator() for _ in machine.gpus))
    patch.setattr(torch.cuda, "_cudart", SimpleNamespace(cudaMemGetInfo=partial(_memory_info, machine)))


def _played(machine: Machine) -> dict[str, Any]:
    """What torch's Python calls of its core, played."""

    def numbers(queue: Queue) -> tuple[int, int, int]:
        return queue.number, queue.gpu.index, CUDA

    def synchronise(index: int = -1) -> None:
        gpu = machine.of(index)
        gpu.touch()
        machine.synchronise(gpu, gpu.empty_ns())

    def capturing() -> bool:
        gpu = machine.of(-1)
        gpu.check()
        return machine.queue().capture is not None

    def in_bad_fork() -> bool:
        """A forked child cannot use what its parent has initialised (torch/cuda/__init__.py, `_lazy_init`)."""
        return machine.clock.forked and torch.cuda._initialized

    return {
        "_cuda_isInBadFork": in_bad_fork,
        "_cuda_init": lambda: None,
        "_cuda_getDeviceCount": lambda: len(machine.gpus),
        "_cuda_getDevice": lambda: machine.device,
        "_cuda_setDevice": machine.set_device,
        "_cuda_exchangeDevice": machine.exchange_device,
        "_cuda_maybeExchangeDevice": machine.maybe_exchange_device,
        "_cuda_hasPrimaryContext": lambda index: machine.of(index).has_context,
        "_cuda_getCurrentStream": lambda index: numbers(machine.queue(index)),
        "_cuda_getDefaultStream": lambda index: numbers(machine.of(index).queues[0]),
        "_cuda_setStream": lambda stream_id, device_index, device_type: machine.set_queue(
            machine.of(device_index).queues[stream_id]
        ),
        "_cuda_getCurrentRawStream": lambda index: machine.queue(index).handle,
        "_cuda_synchronize": synchronise,
        "_cuda_memoryStats": lambda index: machine.of(index).statistics(),
        "_cuda_emptyCache": lambda: [gpu.cached.clear() for gpu in machine.gpus],
        "_cuda_resetPeakMemoryStats": lambda index: machine.of(index).reset_peak(),
        "_cuda_getAllocatorBackend": lambda: "native",
        "_cuda_isCurrentStreamCapturing": capturing,
        "_cuda_sleep": lambda cycles: operations.launch(machine, machine.queue(), "_sleep", lambda: None, cycles),
        "_graph_pool_handle": lambda: (0, 1),
        "_host_emptyCache": lambda: None,
        "_accelerator_getAccelerator": lambda: torch.device("cuda"),
        "_accelerator_getDeviceIndex": lambda: machine.device,
        "_accelerator_setDeviceIndex": machine.set_device,
        "_accelerator_exchangeDevice": machine.exchange_device,
        "_accelerator_maybeExchangeDevice": machine.maybe_exchange_device,
        "_accelerator_getStream": lambda index: Stream(stream_id=machine.queue(index).number, device_index=index),
        "_accelerator_synchronizeDevice": synchronise,
    }


def _properties(machine: Machine, index: int) -> SimpleNamespace:
    """Without making a context (docs, `cudaGetDeviceProperties`)."""
    memory_bytes, uuid = machine.of(index).spec.memory_bytes, uuid_of(index)
    told = {"name": "Stand-in", "total_memory": memory_bytes, "uuid": uuid, "multi_processor_count": 1}
    return SimpleNamespace(**told, major=9, minor=0)


def uuid_of(index: int) -> str:
    """As the made-up driver has it (`support/fakes/nvml.c`)."""
    return f"fake-{index}"


def _memory_info(machine: Machine, index: int) -> tuple[int, int]:
    """What is free, and all there is; asking makes a context (docs, `cudaMemGetInfo`)."""
    gpu = machine.of(index)
    gpu.touch()
    return gpu.free, gpu.spec.memory_bytes


def _replace_tensors(machine: Machine, patch: pytest.MonkeyPatch) -> None:
    """Tensors say where they are, and what reads their memory without an operator waits or refuses."""
    base: Any = _C.TensorBase
    place_of = operations.place_of

    def device(self: torch.Tensor) -> torch.device:
        gpu = place_of(self)
        return base.device.__get__(self) if gpu is None else torch.device("cuda", gpu.index)

    def get_device(self: torch.Tensor) -> int:
        gpu = place_of(self)
        return base.get_device(self) if gpu is None else gpu.index

    def tolist(self: torch.Tensor) -> Any:
        # Copied to the host first (torch/csrc/utils/tensor_list.cpp).
        return base.tolist(self if place_of(self) is None else self.detach().to("cpu"))

    def numpy(self: torch.Tensor, *, force: bool = False) -> Any:
        if place_of(self) is not None and not force:
            raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() first.")
        return base.numpy(self.detach().to("cpu") if place_of(self) is not None else self, force=force)

    def record_stream(self: torch.Tensor, stream: Stream) -> None:
        if place_of(self) is None:
            raise RuntimeError("record_stream of a tensor that is not on a device")

    grouped_by_place = _C._group_tensors_by_device_and_dtype

    def group(lists: Any, with_indices: bool = False) -> Any:
        """What works on many tensors at once asks core where they are."""
        where: dict[torch.device, list[int]] = {}
        for index, each in enumerate(lists[0]):
            where.setdefault(torch.device("cpu") if each is None else device(each), []).append(index)
        found = {}
        for place, indices in where.items():
            parts = [[each[index] for index in indices] if each else [] for each in lists]
            for (_, dtype), (tensors, within) in grouped_by_place(parts, with_indices).items():
                found[place, dtype] = tensors, [indices[index] for index in within]
        return found

    patch.setattr(_C, "_group_tensors_by_device_and_dtype", group)
    patch.setattr(torch.Tensor, "device", property(device), raising=False)
    patch.setattr(torch.Tensor, "is_cuda", property(lambda self: place_of(self) is not None), raising=False)
    patch.setattr(torch.Tensor, "is_cpu", property(lambda self: device(self).type == "cpu"), raising=False)
    for name, function in (
        ("get_device", get_device), ("tolist", tolist), ("numpy", numpy), ("record_stream", record_stream)
    ):  # fmt: skip
        patch.setattr(torch.Tensor, name, function)
