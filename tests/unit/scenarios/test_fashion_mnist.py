"""The scenario: its split, its experiments, what it predicts, and that it trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.idx_files import make_set
from whyidle.devices.cpu import CpuDevice
from whyidle.errors import DataError, WhyidleError
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.fashion_mnist.study import SCENARIO
from whyidle.scenarios.scenario import DataRequest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return make_set(tmp_path / "set")


def opened(folder: Path, net: str = "cnn5", **rest: Any) -> Any:
    return SCENARIO.open_data(DataRequest(folder=folder, net=net, **rest))


class TestData:
    def test_four_fifths_train_and_the_rest_validates(self, folder: Path) -> None:
        train, held_back = opened(folder), opened(folder, split="validation")
        assert (len(train), len(held_back), len(opened(folder, split="test"))) == (48, 12, 20)
        images = [image.tobytes() for part in (train, held_back) for image in part.images]
        assert len(set(images)) == 60

    def test_the_split_is_the_same_every_time_and_a_limit_takes_its_beginning(self, folder: Path) -> None:
        few = opened(folder, limit=7)
        assert len(few) == 7
        assert np.array_equal(few.images, opened(folder).images[:7])
        assert len(opened(folder, split="test", limit=7)) == 7

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

    def test_augmentation_is_one_stage_more(self, folder: Path) -> None:
        plain, augmented = opened(folder), opened(folder, augment=True)
        assert augmented.stages == (Affine(), *plain.stages)
        assert augmented.describe() == plain.describe()

    def test_all_outputs_name_the_set_and_that_it_is_not_the_published_one(self, folder: Path) -> None:
        told = opened(folder).describe()
        assert told["samples"] == 48
        assert told["unit"] == "image"
        assert told["set"] == f"{folder}, not Fashion-MNIST"
        assert told["test"] == 20
        assert len(opened(folder).notices()) == 4

    def test_what_is_wrong_with_the_test_images_is_said_before_a_training(self, folder: Path) -> None:
        file = folder / "t10k-images-idx3-ubyte"
        file.write_bytes(file.read_bytes()[:-1])
        with pytest.raises(DataError, match="t10k-images-idx3-ubyte is cut off"):
            opened(folder)

    def test_a_split_there_is_not(self, folder: Path) -> None:
        with pytest.raises(WhyidleError, match="no split 'dev': train, validation or test"):
            opened(folder, split="dev")

    def test_a_folder_without_it(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match="has no train-images-idx3-ubyte"):
            opened(tmp_path)


@pytest.mark.usefixtures("one_thread")
def test_it_learns(folder: Path) -> None:
    torch.manual_seed(0)
    training: Any = SCENARIO.training("cnn1", CpuDevice(), 16, opened(folder, "cnn1"))
    data = opened(folder, "cnn1")
    losses = []
    for step in range(40):
        rows = [(16 * step + offset) % 48 for offset in range(16)]
        training.step(make_batch(data, rows, 0, Settings(16), 0))
        losses.append(training.read_loss())
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) / 1.5
    held_out = opened(folder, "cnn1", split="test")
    said = training.evaluate(lambda net: SCENARIO.evaluate(net, "cnn1", held_out, CpuDevice()))
    assert np.array(said["confusion"]).shape == (10, 10)
    assert np.array(said["confusion"]).sum(axis=1).tolist() == [2] * 10
    assert said["accuracy"] > 0.2
