"""What making a sample consists of, each part alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from whyidle.errors import DataError
from whyidle.pipelines import ceilings
from whyidle.pipelines.ceilings import to_a_process, to_a_thread, uncached
from whyidle.pipelines.protocol import Settings
from whyidle.scenarios.datasets.loose_photos import LoosePhotos, jpeg_files
from whyidle.scenarios.voc.generate import compose


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    compose(folder, 12, 0)
    return sorted(jpeg_files(folder))


PARTS = ["read", "decode whole", "decode", "draw", "colours", "resize", "normalise", "collate"]


def test_each_part_of_a_photograph_is_done_alone_one_sample_after_the_other(photos: Sequence[Path]) -> None:
    data = LoosePhotos(photos, 64, augment=True)
    parts = ceilings.parts(data, range(len(data)), Settings(4))
    assert [name for name in parts if name in PARTS] == PARTS
    made: Any = {name: parts[name]() for name in ("decode", "normalise", "collate")}
    assert made["decode"].dtype == np.uint8
    assert (made["normalise"].shape, made["normalise"].dtype) == ((3, 64, 64), np.float32)
    assert made["collate"].shape == (4, 3, 64, 64)
    read = ceilings.parts(data, range(3), Settings(4))["read"]
    sizes = [data.path(index).stat().st_size for index in (0, 1, 2, 0)]
    assert [len(bytes(read())) for _ in sizes] == sizes  # type: ignore[call-overload]


def test_each_process_has_samples_of_its_own_from_all_of_the_data(photos: Sequence[Path]) -> None:
    data = LoosePhotos(photos, 64, augment=False)
    shares = [ceilings.chosen(data, process, 3) for process in range(3)]
    assert sorted(index for share in shares for index in share) == list(range(len(data)))
    assert all(max(share) - min(share) > len(data) / 2 for share in shares)
    assert ceilings.chosen(data, 20, 21) == [20 % len(data)]  # more processes than samples


def test_no_more_is_decoded_than_is_needed_and_stages_that_see_pixels_are_called(photos: Sequence[Path]) -> None:
    data = LoosePhotos(photos, 32, augment=False)
    parts = ceilings.parts(data, [0], Settings(1))
    small: Any = parts["decode"]()
    whole: Any = parts["decode whole"]()
    assert 32 <= min(small.shape[:2]) < min(whole.shape[:2]) / 2
    data.stages = [data.stages[0], lambda image, targets, random: (image + 1, targets), data.stages[-1]]
    names = list(ceilings.parts(data, [0, 1], Settings(2)))
    assert names.index("resize") < names.index("function") < names.index("normalise")


def test_files_in_memory_are_not_taken_for_stored_ones(photos: Sequence[Path]) -> None:
    """`/proc` keeps its own in memory; reading from it never waits."""
    assert uncached([Path("/proc/self/status")]) is None
    assert uncached([Path("/nowhere")]) is None
    read = uncached(photos)
    assert read is None or len(bytes(read())) == photos[0].stat().st_size  # type: ignore[call-overload]


def test_batches_are_handed_over_whole() -> None:
    batch = np.arange(5000, dtype=np.float32)
    assert to_a_thread(batch)() is batch
    seen = to_a_process(np.ones(3 * 4096, np.uint8))
    assert seen == 3  # a byte of each page


def test_a_folder_without_photographs_and_broken_ones_are_told(tmp_path: Path, photos: Sequence[Path]) -> None:
    with pytest.raises(DataError, match="hold no JPEG files"):
        jpeg_files(tmp_path)
    (tmp_path / "within").mkdir()
    (tmp_path / "within" / "a.JPG").write_bytes(photos[0].read_bytes()[:2000])
    with pytest.raises(DataError, match=r"None of the 1 JPEG files tried can be used; first: .*a\.JPG"):
        LoosePhotos(jpeg_files(tmp_path), 64, augment=True)
    (tmp_path / "b.jpeg").write_bytes(photos[0].read_bytes())
    data = LoosePhotos(jpeg_files(tmp_path), 64, augment=True)
    assert len(data) == 1
    assert len(data.faults) == 1
    assert "a.JPG" in data.faults[0]
