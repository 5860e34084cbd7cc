"""What one training step of an SSD net costs, counted rather than timed: work, memory and operations.

Counting runs the real net and loss through autograd on torch's meta device, which computes shapes and no values,
so even SSD512 takes a second or two on any machine. `docs/ssd-net.md` has the figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from .loss import multibox_loss
from .net import SsdNet, build


def count(name: str, classes: int = 21, device: str = "meta") -> dict[str, int]:
    """Counts for one fp32 training step (net and loss; not the optimiser) of the net `name`:

    - `parameters`: learnt numbers; `priors`: predictions per image.
    - `forward_macs`, `backward_macs`: multiply-adds of the convolutions, per sample. Backward is a little under
      twice forward, since no gradient of the images is needed.
    - `activation_bytes`: what autograd keeps from forward to backward, per sample (the step from batch 1 to 2):
      every storage once, parameters left out, the images themselves included. `net_activation_bytes` is the
      net's share, the loss has the rest. Not the peak: gradients in flight and cuDNN's workspace come on top.
    - `forward_ops`, `backward_ops`: dispatched ATen operations that compute (views and bare allocations do not),
      at batch 1. About one kernel each, but a convolution's backward is one operation and two or three kernels.

    `device="cpu"` really computes, for checking. `WhyidleError` for an unknown name.
    """
    with torch.device(device):
        net = build(name, classes)
    one, two = (_saved_bytes(net, _inputs(net, batch)) for batch in (1, 2))
    images, targets = _inputs(net, 1)
    with FlopCounterMode(display=False) as forward_flops, _Operations() as forward:
        locations, confidences = net(images)
        loss = multibox_loss(locations, confidences, targets, net.priors).total
    with FlopCounterMode(display=False) as backward_flops, _Operations() as backward:
        loss.backward()  # type: ignore[no-untyped-call]
    return {
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "priors": len(net.priors),
        "forward_macs": forward_flops.get_total_flops() // 2,
        "backward_macs": backward_flops.get_total_flops() // 2,
        "net_activation_bytes": two[0] - one[0],
        "activation_bytes": two[1] - one[1],
        "forward_ops": forward.count,
        "backward_ops": backward.count,
    }


def _inputs(net: SsdNet, batch: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Images, and one object each: how many there are changes nothing that is counted."""
    device = net.priors.device
    images = torch.zeros(batch, 3, net.size, net.size, device=device)
    targets = torch.tensor([[float(image), 1.0, 0.1, 0.1, 0.6, 0.6] for image in range(batch)], device=device)
    return images, targets


def _saved_bytes(net: SsdNet, inputs: tuple[torch.Tensor, torch.Tensor]) -> tuple[int, int]:
    """Bytes kept for backward by the net alone, and by net and loss."""
    images, targets = inputs
    # A storage is one Python object for as long as somebody holds it, as these lists do. That tells storages
    # apart where there are no addresses (meta).
    own = [tensor.untyped_storage() for tensor in (*net.parameters(), *net.buffers())]
    known = {id(storage) for storage in own}
    kept: list[torch.UntypedStorage] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if id(storage) not in known:
            known.add(id(storage))
            kept.append(storage)
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        locations, confidences = net(images)
        of_net = sum(storage.nbytes() for storage in kept)
        multibox_loss(locations, confidences, targets, net.priors)
    return of_net, sum(storage.nbytes() for storage in kept)


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the ATen operations that reach the dispatcher and compute something."""

    # Besides views: bare allocations, and the view that does not declare itself one.
    _FREE = frozenset({"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "_unsafe_view"})

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if not func.is_view and func.overloadpacket.__name__ not in self._FREE:
            self.count += 1
        return func(*args, **(kwargs or {}))
