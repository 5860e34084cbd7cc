"""DALI against the other loaders: same pixels up to rounding, same kind of augmentation, arrays handed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest
import torch
from unit.pipelines.conftest import Photos, made

from whyidle.errors import WhyidleError
from whyidle.pipelines import registry
from whyidle.pipelines.affine import Affine
from whyidle.pipelines.protocol import Batch, Image, Settings, Stage, Targets
from whyidle.pipelines.stages import Distort, Expand, Flip, Normalise, RandomCrop, Resize, plain_stages, ssd_stages
from whyidle.pipelines.standardise import Standardise

pytestmark = pytest.mark.skipif(registry.unavailable("dali-cpu") is not None, reason="DALI is not installed")

SETTINGS = Settings(batch_size=5, workers=2, shuffle=False)
STILL = Affine(0, 0, 0, 0)
GRAY = (Normalise(mean=(0.0, 0.0, 0.0)),)
"""Resized levels as they are."""


def epoch(name: str, dataset: Any, copier: Any, settings: Settings = SETTINGS, epochs: int = 1) -> list[Batch]:
    return made(name, dataset, copier, settings, range(epochs))


def share_within(level: float, ours: list[Batch], reference: list[Batch]) -> float:
    """Share of values that differ by at most this much."""
    near = [((a.inputs.cpu() - b.inputs).abs() <= level).double().mean() for a, b in zip(ours, reference, strict=True)]
    return float(torch.stack(near).mean())


HALVED = Distort(brightness=0.0, contrast=(0.5, 0.5), saturation=(1.0, 1.0), hue=0.0, probability=1.0)


@pytest.mark.parametrize(
    ("stages", "within", "share"),
    [
        *(
            (plain_stages(size), within, share)
            for size in (64, 50, 300)
            for within, share in ((1.0, 0.999), (0.0, 0.75))
        ),
        *((stages, 1.0, 0.999) for stages in ((Resize(64), Flip(1.0), *GRAY), (Flip(1.0), Resize(64), *GRAY))),
        ((HALVED, Resize(64), *GRAY), 2.0, 0.99),
    ],
)
def test_pixels_agree_with_pillow_and_boxes_with_the_stages(
    stages: Any, within: float, share: float, photos: Any, copier: Any
) -> None:
    dataset = photos.staged(*stages)
    ours, reference = epoch("dali-cpu", dataset, copier), epoch("naive", dataset, copier)
    assert share_within(within, ours, reference) >= share
    for one, other in zip(ours, reference, strict=True):
        torch.testing.assert_close(one.targets, other.targets)


def test_tensors_keep_their_content_while_dali_goes_on_and_after_it(photos: Any, copier: Any) -> None:
    loader = registry.factory("dali-cpu")(photos.times(4), SETTINGS, copier)
    held = [(batch.inputs, batch.inputs.clone()) for number in range(3) for batch in loader.epoch(number)]
    loader.close()
    assert len(held) == 24
    assert all(torch.equal(tensor, copied) for tensor, copied in held)


def assert_valid(batch: Batch) -> None:
    """Targets are sorted by place, inside the image and not empty."""
    rows = batch.targets
    assert rows.shape[1] == 6
    assert (rows[:, 0].diff() >= 0).all()
    assert ((rows[:, 1] >= 1) & (rows[:, 1] <= 20) & (rows[:, 1] == rows[:, 1].round())).all()
    assert ((rows[:, 2:] >= 0) & (rows[:, 2:] <= 1)).all()
    assert (rows[:, 4:] >= rows[:, 2:4]).all()


def test_augmented_targets_stay_valid_and_repeat_with_the_seed(photos: Any, copier: Any) -> None:
    dataset = photos.staged(*ssd_stages(48))
    found, again = epoch("dali-cpu", dataset, copier, epochs=6), epoch("dali-cpu", dataset, copier, epochs=2)
    kept = annotated = 0
    for batch in found:
        assert batch.inputs.shape == (5, 3, 48, 48)
        assert -125 <= batch.inputs.min() < batch.inputs.max() <= 152
        assert_valid(batch)
        for place, index in enumerate(batch.indices):
            rows = batch.targets[batch.targets[:, 0] == place]
            before = dataset.targets(index)
            assert set(rows[:, 1].tolist()) <= set(before[:, 0].tolist())
            kept, annotated = kept + len(rows), annotated + len(before)
    assert 0.3 * annotated < kept < annotated
    assert all(torch.equal(a.inputs, b.inputs) for a, b in zip(found, again, strict=False))
    other = epoch("dali-cpu", dataset, copier, Settings(batch_size=5, shuffle=False, seed=1))
    assert not any(torch.equal(found[0].inputs, each.inputs) for each in (found[2], other[0]))


class Framed(Photos):
    """Each photograph is one object, so that its box says where it is seen."""

    def targets(self, index: int) -> Targets:
        return np.array([[1, 0, 0, 1, 1]], np.float32)


@pytest.mark.parametrize("mirrored", [False, True])
def test_what_is_seen_of_an_expanded_and_cropped_photograph_is_where_its_box_says(
    mirrored: bool, photos: Any, copier: Any
) -> None:
    fill, side = (7, 200, 90), 96
    stages = (Expand(3.0, 1.0, fill), RandomCrop(min_ious=(None,)), Resize(side), Flip(float(mirrored)), *GRAY)
    framed = Framed(photos.files, stages)
    partly = 0
    for batch in epoch("dali-cpu", framed, copier, epochs=6):
        picture = ((batch.inputs - torch.tensor(fill)[:, None, None]).abs() > 1).any(dim=1)
        for row in batch.targets.numpy():
            seen = picture[int(row[0])]
            columns, rows = (np.flatnonzero(seen.any(dim=axis)) for axis in (0, 1))
            edges = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]) / side
            assert np.allclose(edges, row[2:], atol=0.04)
            partly += 0.1 < float(seen.float().mean()) < 0.9
    assert partly > 10


@pytest.mark.parametrize("between", [(Flip(1.0),), (Distort(0.0, (1.0, 1.0), (1.0, 1.0), 0.0, 1.0),)])
def test_stages_in_another_order_find_the_pixels_made(between: tuple[Stage, ...], photos: Any, copier: Any) -> None:
    """What is cropped and then mirrored or coloured, and cropped again, cannot wait for the resizing."""
    whole = RandomCrop(min_ious=(None,), scale=(1.0, 1.0), aspect=(1.0, 1.0))
    plain = epoch("dali-cpu", photos.staged(*between, Resize(64), *GRAY), copier)
    found = epoch("dali-cpu", photos.staged(whole, *between, whole, Resize(64), *GRAY), copier)
    assert share_within(1.0, found, plain) >= 0.99


@pytest.mark.gpu
@pytest.mark.skipif(registry.unavailable("dali-gpu") is not None, reason="needs DALI and a CUDA device")
def test_the_gpu_decodes_and_augments_like_the_cpu(photos: Any, copier: Any) -> None:
    found = epoch("dali-gpu", photos, copier, epochs=2)
    assert {batch.inputs.device.type for batch in found} == {"cuda"}
    reference = epoch("naive", photos, copier, epochs=2)
    assert share_within(4.0, found, reference) >= 0.99
    assert all(torch.equal(a.targets, b.targets) for a, b in zip(found, reference, strict=True))
    for batch in epoch("dali-gpu", photos.staged(*ssd_stages(48)), copier, epochs=3):
        assert batch.inputs.shape == (5, 3, 48, 48)
        assert bool(torch.isfinite(batch.inputs).all())
        assert_valid(batch)


# Samples that are no files: arrays handed in, labels that stay with them.


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


def gray(*stages: Any, colours: int = 0) -> Gray:
    """Smooth blobs, so that a nearest pixel one further is nearly the same."""
    rows, columns = np.indices((28, 28))
    blobs = [120 + 100 * np.sin(rows / (5 + n % 7)) * np.cos(columns / (4 + n % 5)) for n in range(20)]
    images = np.stack(blobs).astype(np.uint8)
    return Gray(np.stack([images] * colours, axis=-1) if colours else images, stages)


SHADES = Standardise(0.3, 0.4)


@pytest.mark.parametrize(
    "dataset",
    [gray(SHADES), gray(SHADES, colours=3), gray(), gray(STILL, Standardise())],
    ids=["gray", "colour", "no stages", "an affine stage that moves nothing"],
)
def test_arrays_are_handed_in_and_made_as_elsewhere(dataset: Any, copier: Any) -> None:
    ours, reference = epoch("dali-cpu", dataset, copier), epoch("naive", dataset, copier)
    assert [batch.indices for batch in ours] == [batch.indices for batch in reference]
    for mine, other in zip(ours, reference, strict=True):
        assert torch.allclose(mine.inputs, other.inputs, atol=1e-5)
        assert torch.equal(mine.targets, other.targets)


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


class Sharpen:
    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        return image, targets

    def __repr__(self) -> str:
        return "Sharpen()"


def test_a_stage_without_a_counterpart_is_refused_by_name_and_one_of_arrays_told_beforehand(
    photos: Any, copier: Any
) -> None:
    arrays, files = cast("Any", gray(Flip(), Standardise())), photos.staged(Sharpen(), *plain_stages(64))
    for dataset, name in ((arrays, "Flip"), (files, "Sharpen")):
        with pytest.raises(WhyidleError, match=rf"cannot do the stage {name}\(.*workers or threads"):
            registry.factory("dali-cpu")(dataset, SETTINGS, copier)
    assert "cannot do the stage Flip" in (registry.unfit("dali-cpu", arrays) or "")
    assert registry.unfit("dali-cpu", cast("Any", gray(Affine(), Standardise()))) is None
