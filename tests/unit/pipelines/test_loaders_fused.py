"""The memory that batches share with workers, and files and stages that the fused loaders cannot take apart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from unit.pipelines.conftest import made

from whyidle.pipelines import fused
from whyidle.pipelines.protocol import Image, Settings, Targets
from whyidle.pipelines.registry import factory
from whyidle.pipelines.ring import Ring
from whyidle.pipelines.stages import Normalise, Resize, ssd_stages
from whyidle.pipelines.standardise import Standardise
from whyidle.scenarios.datasets.arrays import Arrays

pytest.importorskip("simplejpeg")

ALONE = Settings(batch_size=2, workers=1, shuffle=False, drop_last=False)


def lent(ring: Ring, slot: int, level: float) -> torch.Tensor:
    array = ring.lend(slot, (4, 5), np.float32)
    array[:] = level
    return torch.from_numpy(array)


def test_memory_is_used_again_only_when_no_tensor_of_it_is_left() -> None:
    ring = Ring()
    first, second = (lent(ring, ring.take(), level) for level in (1.0, 2.0))
    part = first[2:, 1:]
    del first
    third = lent(ring, ring.take(), 3.0)
    assert part.unique().tolist() == [1.0], "a part of a batch still uses its memory"
    assert second.unique().tolist() == [2.0]
    del part
    fourth = ring.take()
    assert fourth == 0
    assert third.unique().tolist() == [3.0]
    ring.close()
    assert second.unique().tolist() == [2.0], "what is lent outlives the ring"


def test_slots_that_were_never_lent_come_back_and_take_larger_batches_than_before() -> None:
    ring = Ring()
    taken = [ring.take() for _ in range(3)]
    kept = lent(ring, taken[1], 1.0)
    ring.take_back()
    assert {ring.take(), slot := ring.take()} == {taken[0], taken[2]}
    assert ring.take() == 3
    assert kept.unique().tolist() == [1.0]
    assert ring.lend(slot, (3000, 3000), np.float32)[-1, -1] == 0.0


def write(ring: Ring, slot: int) -> None:
    ring.array(slot, (6,), np.int64)[:] = 41


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_another_process_writes_what_this_one_reads(method: str) -> None:
    ring = Ring()
    ring.take()
    process = get_context(method).Process(target=write, args=(ring, slot := ring.take()))
    process.start()
    process.join()
    assert ring.lend(slot, (6,), np.int64).tolist() == [41] * 6


@pytest.mark.parametrize("name", ["fused", "fused-exact"])
@pytest.mark.parametrize("mode", ["CMYK", "L", "progressive", "trailing", "exif"])
def test_odd_files_are_seen_as_pillow_sees_them(name: str, mode: str, photos: Any, copier: Any, tmp_path: Any) -> None:
    picture = PillowImage.open(photos.path(0)).convert("RGB").resize((64, 64))
    file = tmp_path / "odd.jpg"
    if mode == "exif":
        turned = PillowImage.Exif()
        turned[0x0112] = 6  # to be turned by 90 degrees, which boxes know nothing of
        picture.save(file, exif=turned, quality=95)
    else:
        picture = picture.convert(mode) if mode in ("CMYK", "L") else picture
        picture.save(file, quality=95, progressive=mode == "progressive")
    if mode == "trailing":
        file.write_bytes(file.read_bytes() + b"what an editor left here" * 9)
    dataset = replace(photos, files=(file,)).staged(Resize(64), Normalise())
    (ours,), (theirs,) = made(name, dataset, copier, ALONE), made("naive", dataset, copier, ALONE)
    away = (ours.inputs - theirs.inputs).abs()
    assert (away.max() <= 1) if name == "fused-exact" else (away.mean() < 3)


@dataclass(frozen=True)
class Inverted:
    """A stage that only says what it does to pixels."""

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        return 255 - image, targets + np.float32(random.random())


@pytest.mark.parametrize("place", [0, 2, 5, 6])
def test_a_stage_that_has_to_see_pixels_sees_them_wherever_it_stands(place: int, photos: Any, copier: Any) -> None:
    stages = list(ssd_stages(64))
    stages.insert(place, Inverted())
    dataset = photos.staged(*stages)
    for ours, theirs in zip(
        made("fused-exact", dataset, copier, ALONE), made("naive", dataset, copier, ALONE), strict=True
    ):
        assert torch.equal(ours.targets, theirs.targets)
        assert ((ours.inputs - theirs.inputs).abs() <= 1).float().mean() > 0.995


@pytest.mark.parametrize("name", ["fused", "fused-exact"])
def test_samples_of_several_sizes_are_refused_in_words(name: str, photos: Any, copier: Any) -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        made(name, photos.staged(Normalise()), copier, ALONE)


def test_batches_that_are_kept_keep_their_pixels(photos: Any, copier: Any) -> None:
    many = photos.times(6).staged(*ssd_stages(64))
    kept = made("fused", many, copier, ALONE)
    copies = []
    loader = factory("fused")(many, ALONE, copier)
    for batch in loader.epoch(0):
        copies.append(batch.inputs.clone())
        del batch  # its memory is used again from here on
    loader.close()
    assert all(torch.equal(one.inputs, other) for one, other in zip(kept, copies, strict=True))


@pytest.mark.parametrize("name", ["fused", "fused-exact"])
def test_pixels_stay_small_on_the_way_to_a_device_with_memory_of_its_own(name: str, photos: Any, copier: Any) -> None:
    dataset = photos.staged(*ssd_stages(64)[:-1], Normalise(deviation=(58.0, 57.0, 57.5)))
    here = made(name, dataset, copier, ALONE)
    there = made(name, dataset, replace(copier, own_memory=True), ALONE)
    for one, other in zip(here, there, strict=True):
        assert one.on_device is None
        assert other.inputs.dtype == torch.uint8
        assert other.nbytes < one.nbytes / 2
        finished = other.on_device(other.inputs)
        assert finished.is_contiguous()
        torch.testing.assert_close(finished, one.inputs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(28, 28), (6, 5, 3)])
@pytest.mark.parametrize("name", ["fused", "fused-exact"])
def test_rows_of_an_array_are_made_a_batch_at_a_time_bit_for_bit(
    name: str, shape: tuple[int, ...], copier: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)
    rows = random.integers(256, size=(53, *shape), dtype=np.uint8)
    dataset = Arrays(rows, random.integers(10, size=53), "image", None, (Standardise(0.3, 0.7),))
    settings = replace(ALONE, batch_size=8, shuffle=True, workers=2)
    expected = made("naive", dataset, copier, settings)
    monkeypatch.setattr(fused._Maker, "make", None)
    for batch, plain in zip(made(name, dataset, copier, settings), expected, strict=True):
        assert batch.indices == plain.indices
        assert torch.equal(batch.inputs, plain.inputs)
        assert batch.inputs.is_contiguous()
        assert torch.equal(batch.targets, plain.targets)
        assert batch.targets.dtype == plain.targets.dtype
        assert batch.trace.read_bytes == plain.trace.read_bytes
        assert batch.trace.begin_ns <= batch.trace.end_ns
