"""Which GPU a program computes on: nothing in it says so before it has learnt something.

The current device does not tell. `model.to("cuda:1")` and DDP without `set_device` leave it at GPU 0, where to look at
anything makes a context of half a gigabyte. So only devices are taken that the program itself has used.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import torch


def first_guess() -> int | None:
    """The GPU that this process holds a context on, the current one of several; `None`: none, or none that stands out.

    CUDA is not initialised for that, which would break the program's own fork of workers.
    """
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    current = torch.cuda.current_device()
    if has_context is None or has_context(current):
        return int(current)
    held = [index for index in range(torch.cuda.device_count()) if has_context(index)]
    return held[0] if len(held) == 1 else None


def of_parameters(optimizer: Any) -> int | None:
    """The GPU of the first parameter that is on one; `None`: none is."""
    with contextlib.suppress(AttributeError, KeyError, TypeError):
        return of_tensors(each for group in optimizer.param_groups for each in group["params"])
    return None


def of_tensors(tensors: Any) -> int | None:
    """The GPU of the first of some tensors that is on one, as `torch.autograd.backward` takes them; `None`: none is."""
    several: Iterable[Any] = (tensors,) if isinstance(tensors, torch.Tensor) else tensors
    with contextlib.suppress(AttributeError, TypeError), torch._C.DisableTorchFunction():
        for tensor in several:
            if tensor.device.type == "cuda":
                return int(tensor.device.index)
    return None
