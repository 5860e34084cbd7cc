"""What a hook may ask a tensor without the training noticing.

The attributes of a tensor go through `__torch_function__`, of its class and of every mode that is active: the device
that `torch.set_default_device` sets is such a mode. The question whether memory is page-locked is an operator, which
modes for operators see.
"""

from __future__ import annotations

from typing import Any

import torch

_modes = torch._C._len_torch_function_stack
_unseen = torch._C.DisableTorchFunction
_operator_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


def device_of(tensor: Any) -> str:
    """The type of the device that a tensor is on."""
    if type(tensor) is torch.Tensor and not _modes():
        return tensor.device.type
    with _unseen():
        return str(tensor.device.type)


def is_on(tensor: Any, device: torch.device) -> bool:
    """Whether a tensor is on this device; on any of its type, where it has no number."""
    with _unseen():
        there: torch.device = tensor.device
        return there.type == device.type and (device.index is None or there.index == device.index)


def has_plain_memory(tensor: Any) -> bool:
    """Whether a tensor is one block of memory: neither sparse, nested or opaque, nor made of other tensors."""
    if type(tensor) is not torch.Tensor and type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH:
        return False
    with _unseen():
        return tensor.layout is torch.strided and not tensor.is_nested


def shape_of(tensor: Any) -> tuple[torch.Size, torch.dtype, int]:
    """(shape, type, bytes) of a tensor that has plain memory."""
    with _unseen():
        return tensor.shape, tensor.dtype, tensor.numel() * tensor.itemsize


def ask_pinned(tensor: Any) -> bool | None:
    """Whether a tensor's memory is page-locked, a question to the driver; `None` where asking could be seen."""
    if _operator_modes():
        return None
    with _unseen():
        return bool(tensor.is_pinned())
