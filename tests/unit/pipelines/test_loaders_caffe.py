"""How often Caffe's data layer decodes and encodes, and what its reader holds."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whyidle.pipelines.caffe import PREFETCH_COUNT, CaffePipeline, Codec
from whyidle.pipelines.protocol import Image, Settings
from whyidle.pipelines.stages import Distort, Expand, RandomCrop, Resize, plain_stages, ssd_stages

SETTINGS = Settings(batch_size=8, seed=1)


class Counting(Codec):
    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def decode(self, data: bytes, path: Path) -> Image:
        self.done["decoded"] += 1
        return super().decode(data, path)

    def encode(self, image: Image) -> bytes:
        self.done["encoded"] += 1
        return super().encode(image)


def counts(dataset: Any, copier: Any, epochs: int) -> tuple[float, float]:
    """(decodes, encodes) per image."""
    codec = Counting()
    loader = CaffePipeline(dataset, SETTINGS, copier, codec)
    samples = sum(batch.samples for epoch in range(epochs) for batch in loader.epoch(epoch))
    loader.close()
    assert samples == epochs * len(dataset)
    return codec.done["decoded"] / samples, codec.done["encoded"] / samples


def test_an_augmented_image_is_decoded_3_5_and_encoded_2_5_times_on_average(photos: Any, copier: Any) -> None:
    decodes, encodes = counts(photos.staged(*ssd_stages(64)).times(4), copier, epochs=5)
    assert decodes == encodes + 1  # each JPEG written is read again, and the file once
    assert encodes == pytest.approx(2.5, abs=0.1)


@pytest.mark.parametrize(
    ("stages", "encodes"),
    [
        ((), 0),
        ((Distort(probability=0.0),), 1),
        ((RandomCrop(min_ious=()),), 1),
        ((Expand(probability=0.0),), 0),
        ((Expand(probability=1.0),), 1),
        ((Resize(80),), 0),
    ],
)
def test_which_steps_write_a_jpeg(stages: Any, encodes: int, photos: Any, copier: Any) -> None:
    dataset = photos.staged(*stages, *plain_stages(64)).times(4)
    assert counts(dataset, copier, epochs=1) == (1 + encodes, encodes)


def test_a_jpeg_between_steps_costs_little_quality(photos: Any) -> None:
    codec = Codec()
    image = codec.decode(photos.path(0).read_bytes(), photos.path(0))
    again = codec.decode(codec.encode(image[:, ::-1]), photos.path(0))
    assert again.shape == image.shape
    assert np.abs(again.astype(int) - image[:, ::-1]).mean() < 4


def test_it_works_three_batches_ahead_and_no_further(photos: Any, copier: Any, until: Any) -> None:
    codec = Counting()
    loader = CaffePipeline(photos.times(10), SETTINGS, copier, codec)
    running = loader.epoch(0)
    for taken in range(2):
        assert until(lambda: loader.queue is not None and loader.queue.ready() == PREFETCH_COUNT)
        assert codec.done["decoded"] == (PREFETCH_COUNT + taken) * SETTINGS.batch_size
        next(running)
    loader.close()
