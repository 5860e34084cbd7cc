"""What torch's operators do on a machine: they run on the host, at once, and are charged to a stream of a device.

A kernel for all operators stands at a dispatch key of torch's own for such purposes, above autograd, where the thread
includes it. So forward passes, backward passes and optimizers come by here, an operator at a time, in whatever way they
were called; and no mode is active that a program or a hook could see. A tensor is on the device that its storage says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import _C
from torch.library import Library, fallthrough_kernel

from .machine import D2H, H2D, Block, Gpu, Machine, Queue, index_of, not_played, playing, the

KEY = "TESTING_ONLY_GenericMode"
_UNSEEN = ("detach", "alias")
"""What torch calls while it makes a tensor's Python object; both leave the tensor where it is."""
_TO = ("aten::to", "aten::_to_copy")
_READS = ("item", "is_nonzero", "_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2", "unique_dim")
"""Operators whose result, or its shape, the host has to see."""
_QUEUE = "stream of the stand-in"
_HOSTS = ("profiler", "prim")
"""Namespaces of operators that do nothing on a device."""
_MIXES = ("copy_", "index", "index_put_", "index_put", "_foreach_copy_", "set_", "_has_compatible_shallow_copy_type")
"""Operators that take tensors of several devices."""


def place_of(tensor: torch.Tensor) -> Gpu | None:
    """The device that a tensor is on; `None`: in the host's memory, or nothing that has a storage."""
    try:
        block: Block | None = getattr(_storage(tensor), "_block", None)
    except (RuntimeError, NotImplementedError):
        return None
    return None if block is None else block.gpu


def is_pinned(tensor: torch.Tensor) -> bool:
    return bool(getattr(_storage(tensor), "_pinned", False))


def put(tensor: torch.Tensor, gpu: Gpu) -> None:
    """Have a tensor that was just made be on a device: its storage holds the memory, and gives it back with its end."""
    storage = _storage(tensor)
    storage._block = gpu.take(storage.nbytes())


def pin(tensor: torch.Tensor) -> None:
    _storage(tensor)._pinned = True


def _storage(tensor: torch.Tensor) -> Any:
    with _C.DisableTorchFunctionSubclass():
        return _C.TensorBase.untyped_storage(tensor)


def include(included: bool) -> None:
    """Have this thread's operators come by here, or not."""
    _C._dispatch_tls_set_dispatch_key_included(KEY, included)


def _kernel(op: Any, *args: Any, **kwargs: Any) -> Any:
    include(False)
    try:
        if not playing():
            return op(*args, **kwargs)
        if op.namespace != "aten":
            if op.namespace not in _HOSTS and any(place_of(each) is not None for each in _tensors((args, kwargs))):
                not_played(f"torch.ops.{op}")
            return op(*args, **kwargs)
        return _operate(the(), op, args, kwargs)
    finally:
        include(True)


_LIBRARY = Library("_", "IMPL")
_LIBRARY.fallback(_kernel, KEY)
_ATEN = Library("aten", "IMPL")
for _name in _UNSEEN:
    _ATEN.impl(_name, fallthrough_kernel, KEY)


def _operate(machine: Machine, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    schema = op._schema
    name = schema.name.removeprefix("aten::")
    tensors = list(_tensors((args, kwargs)))
    places = {gpu.index: gpu for each in tensors if (gpu := place_of(each)) is not None}
    if schema.name in _TO:
        return _to(machine, op, args, kwargs, tensors[0])
    target = _asked_for(args, kwargs)
    if name in _SPECIAL and (places or name in ("pin_memory", "is_pinned")):
        return _SPECIAL[name](machine, op, args, kwargs)
    if not places:
        if target is not None:
            return _made(machine, op, args, kwargs, index_of(target))
        made = op(*args, **kwargs)
        if kwargs.get("pin_memory"):
            machine.touch_for_pinned()
            pin(made)
        under_way = machine.backward
        if under_way is not None and under_way.task == _C._current_graph_task_id() and not tensors:
            # Autograd makes gradients where the tensor is; it took ours to be in the host's memory.
            put(made, under_way.queue.gpu)
        return made
    gpu = next(iter(places.values()))
    if name not in _MIXES:
        _on_one_device(tensors, places, name)
    if target is not None:
        gpu = machine.of(index_of(target))
    args, kwargs = _on_host(args), _on_host(kwargs)
    queue = queue_of(machine, gpu)
    gpu.touch()
    result = op(*args, **kwargs)
    fresh = [each for each in _tensors(result) if place_of(each) is None]
    for each in fresh:
        put(each, gpu)
    _remember(result, queue)
    if fresh or schema.is_mutable:
        launch(machine, queue, name, lambda: _again(op, args, kwargs, result, bool(fresh)))
    if name in _READS:
        machine.synchronise(gpu, queue.empty_ns)
    return result


@dataclass
class Backward:
    """A backward pass under way."""

    task: int
    """Autograd's number of it."""
    queue: Queue
    """The stream that it used last."""


def queue_of(machine: Machine, gpu: Gpu) -> Queue:
    """The stream that an operator goes to: the current one of its device; of a backward pass, the one that its forward
    operator went to, which waits for what the pass did elsewhere. At its end the current stream of each device waits
    for all of that (docs of torch, "stream semantics of backward passes"; engine.cpp, `exec_post_processing`)."""
    task = _C._current_graph_task_id()
    current = machine.queue(gpu.index)
    if task < 0:
        return current
    under_way = machine.backward
    if under_way is None or under_way.task != task:
        under_way = machine.backward = Backward(task, current)
        torch.autograd.Variable._execution_engine.queue_callback(lambda: _joins(current, under_way.queue))
    node = _C._current_autograd_node()
    queue = under_way.queue if node is None else node.metadata.get(_QUEUE, under_way.queue)
    if queue is not under_way.queue:
        _joins(queue, under_way.queue)
        under_way.queue = queue
    return queue


def _joins(queue: Queue, other: Queue) -> None:
    if queue.capture is not other.capture:
        not_played("a capture of several streams")
    queue.empty_ns = max(queue.empty_ns, other.empty_ns)


def _remember(result: Any, queue: Queue) -> None:
    """Tell autograd's nodes where their forward operator went."""
    for each in _tensors(result):
        if each.grad_fn is not None:
            each.grad_fn.metadata.setdefault(_QUEUE, queue)


def launch(
    machine: Machine, queue: Queue, name: str, run: Callable[[], object], duration_ns: int | None = None
) -> None:
    """A kernel in a stream; in one that is captured, it is written down."""
    gpu = queue.gpu
    gpu.touch()
    duration = machine.durations.get(name, gpu.spec.kernel_ns) if duration_ns is None else duration_ns
    if queue.capture is not None:
        gpu.clock.pass_ns(gpu.spec.launch_ns)
        queue.capture.nodes.append((name, duration, run))
    else:
        gpu.launch(queue, name, duration)


def _again(op: Any, args: Any, kwargs: Any, result: Any, into: bool) -> None:
    """Compute once more what a graph captured, into the same memory."""
    before = _C._dispatch_tls_is_dispatch_key_included(KEY)
    include(False)
    try:
        with torch.no_grad():
            again = op(*args, **kwargs)
            if into:
                for old, new in zip(_tensors(result), _tensors(again), strict=True):
                    old.detach().copy_(new)
    finally:
        include(before)


def _tensors(things: Any) -> Iterator[torch.Tensor]:
    if isinstance(things, torch.Tensor):
        yield things
    elif isinstance(things, list | tuple):
        for each in things:
            yield from _tensors(each)
    elif isinstance(things, dict):
        yield from _tensors(tuple(things.values()))


def _asked_for(args: Sequence[Any], kwargs: dict[str, Any]) -> torch.device | None:
    """The CUDA device that an operator is asked for. (Torch's own bindings ask for the processor where a new tensor
    shall be where another one is, which they take to be there.)"""
    devices = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.device))
    return next((each for each in devices if each.type == "cuda"), None)


def _on_host(things: Any) -> Any:
    """Arguments as the operator takes them that runs: its device is the processor."""
    if isinstance(things, torch.device):
        return torch.device("cpu") if things.type == "cuda" else things
    if isinstance(things, tuple):
        return tuple(_on_host(each) for each in things)
    if isinstance(things, dict):
        return {name: _on_host(each) for name, each in things.items()}
    return things


def _on_one_device(tensors: list[torch.Tensor], places: dict[int, Gpu], name: str) -> None:
    """An operator takes tensors of one device; numbers in the host's memory go with any (ATen, `TensorIterator`).
    What autograd makes by itself is not held to it here."""
    if _C._current_graph_task_id() >= 0:
        return
    found = {f"cuda:{index}" for index in places}
    if any(place_of(each) is None and each.dim() > 0 for each in tensors):
        found.add("cpu")
    if len(found) > 1:
        raise RuntimeError(
            f"Expected all tensors to be on the same device, but found at least two devices, {found}! (in {name})"
        )


def _made(machine: Machine, op: Any, args: Any, kwargs: Any, index: int) -> Any:
    """A tensor made on a device."""
    torch.cuda._lazy_init()
    gpu = machine.of(index)
    gpu.touch()
    made = op(*_on_host(args), **_on_host(kwargs))
    for each in _tensors(made):
        put(each, gpu)
    launch(machine, machine.queue(gpu.index), op._schema.name.removeprefix("aten::"), lambda: None)
    return made


def _named(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    return dict(zip((each.name for each in op._schema.arguments), args, strict=False)) | kwargs


def _to(machine: Machine, op: Any, args: Any, kwargs: Any, tensor: torch.Tensor) -> Any:
    given = _named(op, args, kwargs)
    source = place_of(tensor)
    if "other" in given:
        target = place_of(given["other"])
    else:
        device = given.get("device")
        if device is not None and device.type not in ("cpu", "cuda"):
            return op(*args, **kwargs)
        target = source if device is None else machine.of(index_of(device)) if device.type == "cuda" else None
    # Autograd, which takes all to be in the host's memory, does not say where the gradient of a conversion goes.
    if target is source or _C._current_graph_task_id() >= 0:
        moved = op(*_on_host(args), **_on_host(kwargs))
        if source is not None and place_of(moved) is None:
            put(moved, source)
            queue = queue_of(machine, source)
            _remember(moved, queue)
            launch(machine, queue, "to", lambda: _again(op, _on_host(args), _on_host(kwargs), moved, True))
        return moved
    torch.cuda._lazy_init()
    dtype = given.get("dtype") or (given["other"].dtype if "other" in given else tensor.dtype)
    moved = torch.ops.aten.to.dtype(tensor, dtype, False, True, given.get("memory_format"))
    lazily = bool(given.get("non_blocking"))
    with machine.copies():
        # The memory that it goes to is looked for in the same call.
        if target is not None:
            put(moved, target)
        elif lazily:
            pin(moved)
        _transfer(machine, tensor, moved, lazily)
    return moved


def _transfer(machine: Machine, tensor: torch.Tensor, into: torch.Tensor, lazily: bool) -> None:
    """Copy between the host's memory and a device.

    From or to pageable memory the host waits until the stream has nothing left to do, and then for the copy, whatever
    it asked for (docs, "API synchronization behavior": "a stream sync is performed before the copy is initiated"). From
    or to page-locked memory the copy is queued, and the host waits for it unless it asked not to (c10/cuda,
    `memcpy_and_sync`).
    """
    source, target = place_of(tensor), place_of(into)
    gpu = target or source
    assert gpu is not None
    if source is not None and target is not None:
        not_played("a copy between two devices")
    pinned = is_pinned(tensor if source is None else into)
    queue = machine.queue(gpu.index)
    gpu.touch()
    with machine.copies():
        if not pinned:
            machine.synchronise(gpu, queue.empty_ns)
        if queue.capture is not None:
            not_played("a copy that is captured")
        what = H2D if source is None else D2H
        gpu.launch(queue, what, gpu.copy_ns(max(tensor.nbytes, into.nbytes), pinned), what)
        if not pinned or not lazily:
            machine.synchronise(gpu, queue.empty_ns)


def _copy_(machine: Machine, op: Any, args: Any, kwargs: Any) -> Any:
    given = _named(op, args, kwargs)
    into, tensor = given["self"], given["src"]
    result = op(*args, **kwargs)
    gpu = place_of(into)
    if gpu is not None and gpu is place_of(tensor):
        launch(machine, machine.queue(gpu.index), "copy_", lambda: _again(op, args, kwargs, None, False))
    elif gpu is not place_of(tensor):
        _transfer(machine, tensor, into, bool(given.get("non_blocking")))
    return result


def _pin_memory(machine: Machine, op: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if place_of(tensor) is not None:
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    if is_pinned(tensor):
        return tensor
    torch.cuda._lazy_init()
    machine.touch_for_pinned()
    pinned = torch.ops.aten.clone.default(tensor)
    pin(pinned)
    return pinned


def _is_pinned(machine: Machine, op: Any, args: Any, kwargs: Any) -> bool:
    """A question to the driver (`cudaPointerGetAttributes`)."""
    machine.clock.pass_ns(machine.gpu.spec.call_ns)
    return place_of(args[0]) is None and is_pinned(args[0])


def _assert_async(machine: Machine, op: Any, args: Any, kwargs: Any) -> None:
    """An assertion that the device looks at when it comes to it; where it does not hold, nothing works any longer
    (aten/src/ATen/native/cuda/TensorCompare.cu, `_assert_async_cuda_kernel`)."""
    gpu = place_of(args[0])
    assert gpu is not None
    if bool(torch.ops.aten._local_scalar_dense.default(args[0])):
        launch(machine, machine.queue(gpu.index), "_assert_async", lambda: None)
    else:
        machine.assert_on_device(gpu.index)


_SPECIAL: dict[str, Callable[[Machine, Any, Any, Any], Any]] = {
    "_assert_async": _assert_async,
    "copy_": _copy_,
    "pin_memory": _pin_memory,
    "is_pinned": _is_pinned,
}
