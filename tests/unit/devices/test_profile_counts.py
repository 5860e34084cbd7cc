"""What nets.toml says of nets, counted again from torchvision without running one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from support.accelerators import BENCHMARKS, FASHION, NETS, PRICED, SCALED
from whyidle.devices.profiles.load import nets


class TestCounts:
    """nets.toml, counted again from torchvision without running a net."""

    @pytest.mark.parametrize(
        "name",
        [
            *(pytest.param(name, marks=pytest.mark.slow) for name in SCALED),
            *(*NETS, *FASHION, *PRICED, "alexnet-forward-backward", "cifar10"),
        ],
    )
    def test_macs_parameters_activations_and_kernels(self, name: str) -> None:
        counted = count(name)
        net = nets().nets[name]
        assert counted["forward_macs"] == net.forward_macs.value
        assert counted["parameters"] == net.parameters.value
        assert counted["activation_bytes"] == net.activation_bytes.value
        assert counted["forward"] == net.kernels.forward
        assert counted["backward"] == net.kernels.backward
        assert counted["optimizer"] == net.kernels.optimizer
        assert net.kernels.total == counted["forward"] + counted["backward"] + counted["optimizer"]

    def test_a_forward_pass_alone_keeps_nothing_for_a_backward_one(self) -> None:
        alone, both = (nets().nets[name] for name in BENCHMARKS)
        assert (alone.forward_macs.value, alone.parameters.value) == (both.forward_macs.value, both.parameters.value)
        assert (alone.kernels.forward, alone.kernels.total) == (both.kernels.forward, both.kernels.forward)
        assert alone.activation_bytes.value == 2 * 64 * 56 * 56 * 4


def count(name: str) -> dict[str, float]:
    """MACs, parameters, activations kept for backward, and kernels of a net on the meta device."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        body, *shape = build(name)
        parameters = list(body.parameters())
        # Two at least: batch norm of vectors takes no single sample.
        with torch.no_grad(), FlopCounterMode(display=False) as flops:
            body(torch.empty(2, *shape))
        two, three = (saved_bytes(body, torch.empty(n, *shape)) for n in (2, 3))
        forward, backward = count_kernels(body, torch.empty(2, *shape))
    return {
        "forward_macs": flops.get_total_flops() / 4,
        "parameters": sum(p.numel() for p in parameters),
        "activation_bytes": three - two,
        "forward": forward,
        "backward": backward,
        "optimizer": 0 if name in BENCHMARKS else len(parameters),
    }


def build(name: str) -> tuple[Any, int, int, int]:
    """A net as a module that returns a tensor or a list of them, and the channels, height and width of its input."""
    import torch
    from torchvision.models import vgg16
    from torchvision.models.detection import ssd

    from whyidle.scenarios.convnets import nets as convnet_nets
    from whyidle.scenarios.cost import nets as cost_nets
    from whyidle.scenarios.fashion_mnist import nets as fashion_nets

    if name in PRICED:
        return cost_nets.build(name, 0), *((3, 32, 32) if name == "cifar10-cnn" else (1, 28, 28))
    if name in convnet_nets.NETS:
        side = convnet_nets.INPUT_SIZE[name]
        return convnet_nets.build(name, 10 if name == "cifar10" else convnet_nets.CLASSES), 3, side, side
    if name in FASHION:
        return fashion_nets.build(name.removeprefix("fashion-")), 1, 28, 28
    if name == "vgg16":
        return vgg16(), 3, 224, 224
    size = {"ssd300": 300, "ssd512": 512}[name]
    backbone = ssd._vgg_extractor(vgg16(), highres=size == 512, trainable_layers=5)
    channels = [512, 1024, 512, *[256] * (3 if size == 300 else 4)]
    anchors = [4, 6, 6, 6, 4, 4] if size == 300 else [4, 6, 6, 6, 6, 4, 4]
    head = ssd.SSDHead(channels, anchors, num_classes=21)

    class Detector(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = backbone, head

        def forward(self, images: torch.Tensor) -> list[torch.Tensor]:
            return list(self.head(list(self.backbone(images).values())).values())

    return Detector(), 3, size, size


def saved_bytes(body: Any, images: Any) -> int:
    """Storages autograd keeps for the backward pass, parameters aside."""
    import torch

    own = {p.untyped_storage()._cdata for p in body.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        body(images)
    return sum(storage.nbytes() for storage in kept.values())


def count_kernels(body: Any, images: Any) -> tuple[int, int]:
    """Operators that compute, forward and backward: 2 for a convolution with bias, 3 for its backward."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Kernels(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.operators: Counter[str] = Counter()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            is_view = any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns)
            name = func.overloadpacket.__name__
            if not is_view and name not in {"detach", "_unsafe_view", "empty_like"}:
                self.operators[name] += {"convolution": 2, "convolution_backward": 3}.get(name, 1)
            return func(*args, **(kwargs or {}))

    with Kernels() as forward:
        outputs = body(images)
    loss = sum(o.sum() for o in (outputs if isinstance(outputs, list | tuple) else [outputs]))
    with Kernels() as backward:
        loss.backward()
    return forward.operators.total(), backward.operators.total()
