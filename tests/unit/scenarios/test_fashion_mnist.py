"""The study's data, and its nets: parameters as Keras printed them, settings as Keras had them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from support.idx_files import make_set
from whyidle.errors import DataError, WhyidleError
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.fashion_mnist import nets as fashion_nets
from whyidle.scenarios.fashion_mnist.nets import NETS, build
from whyidle.scenarios.fashion_mnist.study import SCENARIO
from whyidle.scenarios.scenario import DataRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_set(tmp_path / "set")


def opened(folder: Path, net: str = "cnn5", **rest: Any) -> Any:
    return SCENARIO.open_data(DataRequest(folder=folder, net=net, **rest))


class TestData:
    def test_four_fifths_train_the_rest_validates_and_a_limit_takes_the_beginning(self, folder: Path) -> None:
        train, held_back = opened(folder), opened(folder, split="validation")
        assert (len(train), len(held_back), len(opened(folder, split="test"))) == (48, 12, 20)
        images = [image.tobytes() for part in (train, held_back) for image in part.images]
        assert len(set(images)) == 60
        few = opened(folder, limit=7)
        assert len(few) == len(opened(folder, split="test", limit=7)) == 7
        assert np.array_equal(few.images, train.images[:7])

    def test_pixels_are_standardised_with_the_training_images_whatever_the_part(self, folder: Path) -> None:
        train = opened(folder)
        settings = Settings(48, shuffle=False)
        inputs = make_batch(train, range(48), 0, settings, 0).inputs
        assert inputs.shape == (48, 1, 28, 28)
        assert inputs.dtype == torch.float32
        assert float(inputs.mean()) == pytest.approx(0, abs=1e-4)
        assert float(inputs.std(correction=0)) == pytest.approx(1, abs=1e-4)
        assert opened(folder, split="test").stages == train.stages

    def test_the_two_smallest_nets_take_shares_of_the_highest_level(self, folder: Path) -> None:
        batch = make_batch(opened(folder, "cnn1"), range(8), 0, Settings(8), 0)
        assert 0 <= float(batch.inputs.min()) < float(batch.inputs.max()) <= 1
        assert batch.targets.dtype == torch.int64

    def test_all_outputs_name_the_set_and_that_it_is_not_the_published_one(self, folder: Path) -> None:
        told = opened(folder).describe()
        assert told["samples"] == 48
        assert told["unit"] == "image"
        assert told["set"] == f"{folder}, not Fashion-MNIST"
        assert told["test"] == 20
        assert len(opened(folder).notices()) == 4
        augmented = opened(folder, augment=True)
        assert augmented.stages == (Affine(), *opened(folder).stages)
        assert augmented.describe() == told

    def test_what_is_wrong_is_said_before_a_training(self, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(WhyidleError, match=r"no split 'dev'\. Choose train, validation or test"):
            opened(folder, split="dev")
        with pytest.raises(DataError, match="has no train-images-idx3-ubyte"):
            opened(tmp_path)
        file = make_set(tmp_path / "cut") / "t10k-images-idx3-ubyte"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(DataError, match="t10k-images-idx3-ubyte is cut off"):
            opened(file.parent)


@pytest.mark.parametrize("net", NETS)
def test_nets_are_keras_with_its_defaults_and_as_many_parameters_as_it_printed(net: str) -> None:
    torch.manual_seed(0)
    model = build(net)
    # Keras counts the running means and variances of batch norm too.
    kept = [*model.parameters(), *(each for name, each in model.named_buffers() if "running" in name)]
    total = sum(each.numel() for each in kept)
    assert {"cnn5": 8_457_322, "mlp": 468_874}.get(net, total) == total
    assert model.eval()(torch.zeros(2, 1, 28, 28)).shape == (2, 10)
    assert not any(isinstance(part, nn.Softmax) for part in model.modules())
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            assert (part.momentum, part.eps) == (pytest.approx(0.01), 1e-3)
        if isinstance(part, nn.Conv2d | nn.Linear):
            assert part.bias is not None
            assert not part.bias.any()
            inputs, outputs = nn.init._calculate_fan_in_and_fan_out(part.weight)
            limit = (6 / (inputs + outputs)) ** 0.5
            assert 0.8 * limit < float(part.weight.detach().abs().max()) <= limit
    adam = fashion_nets.adam(build(net)).defaults
    assert (adam["lr"], adam["betas"], adam["eps"]) == (1e-3, (0.9, 0.999), 1e-8)
