"""DALI with samples that are no files: arrays handed in, labels that stay with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
import torch

from whyidle.pipelines import registry
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.protocol import Batch, Image, Settings, Targets
from whyidle.pipelines.stages import Flip, plain_stages
from whyidle.pipelines.standardise import Standardise

pytestmark = pytest.mark.skipif(registry.unavailable("dali-cpu") is not None, reason="DALI is not installed")

SETTINGS = Settings(batch_size=5, workers=2, shuffle=False)


def epoch(name: str, dataset: Any, copier: Any, settings: Settings = SETTINGS) -> list[Batch]:
    loader = registry.factory(name)(dataset, settings, copier)
    made = list(loader.epoch(0))
    loader.close()
    return made


@dataclass(frozen=True)
class Gray:
    """Small images in memory, with labels."""

    images: Any
    stages: Any = ()

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int) -> bytes:
        data: bytes = self.images[index].tobytes()
        return data

    def decode(self, data: bytes | memoryview, index: int) -> Image:
        pixels: Image = np.frombuffer(data, np.uint8).reshape(self.images.shape[1:])
        return pixels

    def targets(self, index: int) -> Targets:
        return np.array(index % 10)


def gray(count: int = 20, *stages: Any, channels: tuple[int, ...] = ()) -> Gray:
    """Smooth blobs, so that a nearest pixel one further is nearly the same."""
    rows, columns = np.indices((28, 28))
    blobs = [120 + 100 * np.sin(rows / (5 + n % 7)) * np.cos(columns / (4 + n % 5)) for n in range(count)]
    images = np.stack(blobs).astype(np.uint8)
    if channels:
        images = np.broadcast_to(images[..., None], (*images.shape, *channels)).copy()
    return Gray(images, stages)


@pytest.mark.parametrize("channels", [(), (3,)], ids=["gray", "colour"])
def test_arrays_are_handed_in_and_standardised_as_elsewhere(channels: tuple[int, ...], copier: Any) -> None:
    dataset: Any = gray(20, Standardise(0.3, 0.4), channels=channels)
    ours, reference = epoch("dali-cpu", dataset, copier), epoch("naive", dataset, copier)
    assert [batch.indices for batch in ours] == [batch.indices for batch in reference]
    for mine, other in zip(ours, reference, strict=True):
        assert torch.allclose(mine.inputs, other.inputs, atol=1e-5)
        assert torch.equal(mine.targets, other.targets)


def test_arrays_without_stages_arrive_as_they_are(copier: Any) -> None:
    dataset: Any = gray()
    for mine, other in zip(epoch("dali-cpu", dataset, copier), epoch("naive", dataset, copier), strict=True):
        assert torch.equal(mine.inputs, other.inputs)


def test_an_affine_stage_that_moves_nothing_leaves_every_pixel(copier: Any) -> None:
    dataset: Any = gray(20, Affine(0, 0, 0, 0), Standardise())
    for mine, other in zip(epoch("dali-cpu", dataset, copier), epoch("naive", dataset, copier), strict=True):
        assert torch.allclose(mine.inputs, other.inputs, atol=1e-5)


@pytest.mark.parametrize(
    "stage",
    [Affine(60, 0, 0, 0), Affine(0, 0.3, 0, 0), Affine(0, 0, 0.9, 0), Affine(0, 0, 0, 0.6)],
    ids=["rotation", "shift", "shear", "zoom"],
)
def test_each_part_of_the_affine_stage_moves_as_much_as_elsewhere(stage: Affine, copier: Any) -> None:
    """The mean of many draws of one image, pixel by pixel: what each part does shows in it."""
    corner = np.zeros((1, 28, 28), np.uint8)
    corner[0, 4:16, 8:14] = 255
    dataset: Any = Gray(np.repeat(corner, 1000, axis=0), (stage, Standardise()))
    settings = Settings(batch_size=500, workers=2)
    [ours, reference] = (
        torch.cat([batch.inputs for batch in epoch(name, dataset, copier, settings)]).mean(dim=0)
        for name in ("dali-cpu", "naive")
    )
    assert float((ours - reference).abs().max()) < 0.1
    assert float((reference - torch.from_numpy(corner / 255)).abs().max()) > 0.2


def test_a_stage_without_a_counterpart_is_told_beforehand() -> None:
    unfit = registry.unfit("dali-cpu", cast("Any", gray(20, Flip())))
    assert unfit is not None
    assert "no counterpart for Flip" in unfit
    assert registry.unfit("dali-cpu", cast("Any", gray(20, Affine(), Standardise()))) is None


def test_labels_of_photographs_stay_with_their_samples(photos: Any, copier: Any) -> None:
    class Labelled(type(photos)):  # type: ignore[misc]
        def targets(self, index: int) -> Targets:
            return np.array(index % 4)

    dataset = Labelled(photos.files, plain_stages(32))
    settings = Settings(batch_size=5, workers=2, shuffle=True)
    for batch in epoch("dali-cpu", dataset, copier, settings):
        assert batch.inputs.shape == (5, 3, 32, 32)
        assert batch.targets.tolist() == [index % 4 for index in batch.indices]
