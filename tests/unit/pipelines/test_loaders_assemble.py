"""Making samples and batches, and the stamps on them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from whyidle.errors import DataError
from whyidle.pipelines import assemble
from whyidle.pipelines import photos as photos_module
from whyidle.pipelines.protocol import Settings, Trace

SETTINGS = Settings(batch_size=4)


class Clock:
    """Stands still but for what is told to take time."""

    def __init__(self) -> None:
        self.now = 1_000_000

    def taking(self, ns: int, work: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            self.now += ns
            return work(*arguments)

        return timed


def test_each_part_of_a_trace_holds_its_own_time_and_nothing_else(photos: Any, monkeypatch: Any) -> None:
    clock = Clock()
    monkeypatch.setattr(assemble.time, "monotonic_ns", lambda: clock.now)
    monkeypatch.setattr(photos_module, "read", clock.taking(1_000, photos_module.read))
    monkeypatch.setattr(photos_module, "decode", clock.taking(20, photos_module.decode))
    monkeypatch.setattr(assemble, "stack", clock.taking(7, assemble.stack))
    stages = [clock.taking(300, stage) for stage in photos.stages]
    samples = [assemble.make_sample(photos.staged(*stages), index, 0, SETTINGS) for index in (2, 0, 5)]
    trace = assemble.collate(samples, worker=3, join=assemble.stack).trace
    assert trace is not None
    assert (trace.read_ns, trace.decode_ns, trace.transform_ns, trace.collate_ns) == (3_000, 60, 1_800, 7)
    assert (trace.begin_ns, trace.end_ns, trace.worker) == (1_000_000, 1_004_867, 3)


def test_a_trace_counts_bytes_cpu_time_and_faults(photos: Any) -> None:
    batch = assemble.make_batch(photos, [1, 4], 0, SETTINGS, worker=0)
    trace = batch.trace
    assert isinstance(trace, Trace)
    assert trace.read_bytes == sum(photos.path(index).stat().st_size for index in (1, 4))
    assert None not in (trace.cpu_ns, trace.minor_faults)
    assert 0 < trace.cpu_ns <= trace.end_ns - trace.begin_ns + 1_000_000  # type: ignore[operator]
    assert 0 <= trace.minor_faults < 10_000  # type: ignore[operator]


def test_a_batch_holds_the_samples_in_the_order_asked_for(photos: Any) -> None:
    batch = assemble.make_batch(photos, [5, 0, 2], 0, SETTINGS, worker=0)
    assert batch.indices == (5, 0, 2)
    assert batch.inputs.dtype == batch.targets.dtype == torch.float32
    for position, index in enumerate(batch.indices):
        alone = assemble.make_batch(photos, [index], 0, SETTINGS, worker=0)
        assert torch.equal(batch.inputs[position], alone.inputs[0])
        rows = batch.targets[batch.targets[:, 0] == position]
        assert np.array_equal(rows[:, 1:].numpy(), photos.targets(index))


def test_a_gray_image_has_three_equal_planes_before_the_mean(photos: Any) -> None:
    image = photos_module.decode(photos.path(3).read_bytes(), photos.path(3))
    assert Image.open(photos.path(3)).mode == "L"
    assert image.shape == (64, 64, 3)
    assert (image == image[..., :1]).all()


@given(st.lists(st.integers(0, 4), min_size=1, max_size=8))
def test_packed_rows_know_their_place_in_the_batch(objects: list[int]) -> None:
    targets = [np.full((n, 5), place, np.float32) for place, n in enumerate(objects)]
    packed = assemble.pack(targets)
    assert packed.shape == (sum(objects), 6)
    assert packed.dtype == np.float32
    assert np.array_equal(packed[:, 0], packed[:, 3])
    assert np.bincount(packed[:, 0].astype(int), minlength=len(objects)).tolist() == objects


@pytest.mark.parametrize("content", [b"", b"no image at all", None], ids=["empty", "text", "truncated"])
def test_a_broken_file_is_named(photos: Any, tmp_path: Path, content: bytes | None) -> None:
    broken = tmp_path / "broken.jpg"
    broken.write_bytes(photos.path(0).read_bytes()[:700] if content is None else content)
    with pytest.raises(DataError, match=r"broken\.jpg cannot be decoded"):
        photos_module.decode(photos_module.read(broken), broken)


def test_a_missing_file_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.jpg cannot be read: No such file"):
        photos_module.read(tmp_path / "gone.jpg")
