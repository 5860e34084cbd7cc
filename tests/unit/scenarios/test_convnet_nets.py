"""The nets of the scaling study: their sizes, TensorFlow's layers by their own formulas, and what is learnt in them."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import whyidle
from whyidle.capture.recording import recording
from whyidle.devices.emulated import EmulatedDevice
from whyidle.devices.profiles.load import load
from whyidle.errors import DeviceOutOfMemory
from whyidle.pipelines.protocol import Batch
from whyidle.record.run import open_run
from whyidle.record.schema import STEP
from whyidle.scenarios.convnets.benchmark import EmulatedForward, Forward, Gradients
from whyidle.scenarios.convnets.nets import NETS, AlexNetBenchmark, Cifar10Net, build, classification_loss, sgd
from whyidle.scenarios.training import Training

PARAMETERS = {
    "alexnet": 61_100_840,
    "googlenet": 13_004_888,
    "resnet50": 25_557_032,
    "inception_v3": 27_161_264,
    "cifar10": 1_068_298,
    "alexnet-forward": 2_469_696,
    "alexnet-forward-backward": 2_469_696,
}


def steps_seen(folder: Path, training: Training, batch: Batch, number: int) -> int:
    """How many steps the recording of so many has."""
    with recording(folder, "cpu", sampler=False):
        for each in whyidle.watch(iter([batch] * number)):
            training.step(each)
    return len(open_run(folder).records(STEP))


def batch_of(inputs: torch.Tensor) -> Batch:
    return Batch(inputs, torch.zeros(len(inputs), dtype=torch.int64), tuple(range(len(inputs))))


@pytest.mark.parametrize("net", NETS)
def test_a_net_has_the_parameters_of_the_study(net: str) -> None:
    with torch.device("meta"):
        model = build(net, 10 if net == "cifar10" else 1000)
        # Few classes leave a net as large as for ImageNet, more make it larger.
        further = [build(net, classes) for classes in (20, 1500)] if net in ("alexnet", "inception_v3") else []
    assert sum(p.numel() for p in model.parameters()) == PARAMETERS[net]
    assert model.training
    larger = [sum(p.numel() for p in each.parameters()) - PARAMETERS[net] for each in further]
    assert not larger or larger[0] == 0 < larger[1]


def test_the_benchmark_ends_in_pool5_and_its_first_convolution_pads_as_tensorflow_does() -> None:
    net = AlexNetBenchmark()
    assert net(torch.zeros(2, 3, 224, 224)).shape == (2, 256, 6, 6)
    # 56 windows of 11 at stride 4 over 224 pixels stick out by 7: by 3 on the left, by 4 on the right.
    padded = net.features[0](torch.ones(1, 3, 224, 224))
    assert padded.shape[-1] == 231
    assert (padded[0, 0, 100] == 0).nonzero().flatten().tolist() == [0, 1, 2, 227, 228, 229, 230]


@pytest.mark.parametrize(
    ("net", "radius", "alpha", "bias"),
    [("cifar10", 4, 0.001 / 9, 1.0), ("alexnet-forward", 5, 1e-4, 2.0)],
)
def test_responses_are_normalised_by_tensorflows_formula(net: str, radius: int, alpha: float, bias: float) -> None:
    with torch.device("meta"):  # the layer has no weights
        layer = build(net, 10).get_submodule("features.3")
    features = np.random.default_rng(0).normal(0, 20, 64).astype(np.float32)
    expected = [
        value / (bias + alpha * (features[max(at - radius, 0) : at + radius + 1] ** 2).sum()) ** 0.75
        for at, value in enumerate(features)
    ]
    normalised = layer(torch.from_numpy(features)[None, :, None, None]).flatten()
    np.testing.assert_allclose(normalised.numpy(), expected, rtol=1e-5)


def test_side_branches_count_for_a_part_of_the_loss() -> None:
    said, labels = torch.tensor([[2.0, -1.0]]), torch.tensor([0])
    alone = classification_loss(lambda images: said, said, labels)
    for branches, each in ((2, 0.3), (1, 0.4)):
        together = classification_loss(lambda images: (said,) * (1 + branches), said, labels)  # noqa: B023
        assert together.item() == pytest.approx(alone.item() * (1 + branches * each))


def test_only_the_hidden_layers_of_the_cifar_net_decay() -> None:
    net = Cifar10Net(10)
    decayed, others = sgd(net, "cifar10", 128).param_groups
    assert [tuple(p.shape) for p in decayed["params"]] == [(384, 2304), (192, 384)]
    assert (decayed["weight_decay"], others["weight_decay"]) == (0.004, 0)
    assert len(others["params"]) == 8
    assert decayed["lr"] == others["lr"] == 0.1


class TestBenchmark:
    @cached_property
    def net(self) -> torch.nn.Conv2d:
        return torch.nn.Conv2d(3, 4, 3)

    @cached_property
    def batch(self) -> Batch:
        return batch_of(torch.ones(2, 3, 8, 8))

    def test_a_forward_pass_alone_leaves_no_gradients_and_is_seen_as_a_step(self, tmp_path: Path) -> None:
        training = Forward(self.net)
        assert steps_seen(tmp_path / "run", training, self.batch, 3) == 3
        assert self.net.weight.grad is None
        assert training.read_loss() == pytest.approx(self.net(self.batch.inputs).square().sum().item() / 2)

    def test_gradients_are_those_of_half_the_squares_and_nothing_is_learnt(self, tmp_path: Path) -> None:
        before = self.net.weight.detach().clone()
        assert steps_seen(tmp_path / "run", Gradients(self.net), self.batch, 2) == 2
        assert torch.equal(self.net.weight, before)
        said = self.net(self.batch.inputs)
        (expected,) = torch.autograd.grad(said.square().sum() / 2, self.net.weight)
        assert self.net.weight.grad is not None
        torch.testing.assert_close(self.net.weight.grad, expected)

    def test_emulated_a_pass_takes_what_was_published(self, tmp_path: Path) -> None:
        titanx = load("titanx")
        queued: list[tuple[int, int]] = []
        device = SimpleNamespace(
            require_memory=lambda nbytes: None,
            compute=lambda duration_ns, kernels: queued.append((duration_ns, kernels)),
        )
        training = EmulatedForward(device, titanx, "alexnet-forward", 128)  # type: ignore[arg-type]
        assert steps_seen(tmp_path / "run", training, batch_of(torch.empty(128, 1)), 2) == 2
        assert queued == [(pytest.approx(70e6, rel=1e-4), 33)] * 2
        assert titanx.step_ns("alexnet-forward-backward", 128) == pytest.approx(244e6, rel=1e-4)
        with pytest.raises(DeviceOutOfMemory):
            EmulatedForward(EmulatedDevice(titanx.spec()), titanx, "alexnet-forward", 10_000)
