"""The scenario: its split, its experiments, what it predicts, and that it trains."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from support.idx_files import make_set
from whyidle.analyse.predict.predict import predict
from whyidle.analyse.predict.workload import MachineLimits, Workload
from whyidle.devices.cpu import CpuDevice
from whyidle.devices.profiles.load import load
from whyidle.errors import DataError, WhyidleError
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.assemble import make_batch
from whyidle.pipelines.protocol import Settings
from whyidle.record.tuning import LoaderSettings
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


BATCH, TRAINED, VALIDATED = 512, 48_000 // 512, 12_000 // 512
KERAS = 4_900
"""Augmented images a second from the study's one worker: 116 batches in the 12.1 s of an epoch on the V100."""
IN_MEMORY = 1_000_000
"""Without augmentation the notebook trained on arrays."""
PUBLISHED_S = {("k80", False): 44.7, ("k80", True): 44.0, ("v100", False): 8.1, ("v100", True): 12.1}
"""Of an epoch of cnn5: the chart's minutes, divided among its epochs."""


@cache
def steps_s(accelerator: str, net: str) -> tuple[float, float]:
    """What the device takes for a batch, trained on and validated on."""
    profile = load(accelerator)
    train = profile.step_ns(f"fashion-{net}", BATCH) / 1e9
    return train, train * profile.phases(f"fashion-{net}", BATCH).forward


@cache
def replayed_s(accelerator: str, net: str, images_per_s: float) -> float:
    """An epoch, batch by batch, with one worker that has two batches under way; then its validation likewise."""
    loader = LoaderSettings(1, 2, persistent_workers=True)
    seconds = 0.0
    for batches, device_s in zip((TRAINED, VALIDATED), steps_s(accelerator, net), strict=True):
        # All equal: 16 recorded batches say as much as an epoch.
        same = np.ones(16)
        workload = Workload(
            settings=loader,
            batch_size=BATCH,
            cpu_ns=same * BATCH / images_per_s * 1e9,
            wait_ns=same * 0,
            read_ns=same * 0,
            collate_ns=same * 0,
            slowest_ns=same * np.nan,
            host_ns=same * 2e5,
            device_ns=same * device_s * 1e9,
            synchronous=False,
            limits=MachineLimits(8.0),
        )
        [said] = predict(workload, [loader])
        seconds += batches * BATCH / said.samples_per_s
    return seconds


@pytest.mark.parametrize(("accelerator", "augmented"), PUBLISHED_S)
def test_the_largest_net_takes_what_the_study_published(accelerator: str, augmented: bool) -> None:
    rate = KERAS if augmented else IN_MEMORY
    assert replayed_s(accelerator, "cnn5", rate) == pytest.approx(PUBLISHED_S[accelerator, augmented], rel=0.1)
