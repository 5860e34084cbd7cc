"""Loaders by name, what holds for every one (same order, same samples, honest traces, clean ends), and their parts.

Of the fused ones also the memory that batches share with workers, and files and stages that they cannot take apart.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image as PillowImage
from unit.pipelines.conftest import made

from whyidle.errors import DataError, MissingExtra, WhyidleError
from whyidle.pipelines import assemble, fused, registry
from whyidle.pipelines import photos as photos_module
from whyidle.pipelines.background import Background
from whyidle.pipelines.caffe import CaffePipeline, Codec
from whyidle.pipelines.order import batches, count, epoch_order, randomness
from whyidle.pipelines.protocol import Batch, Image, Settings, Targets
from whyidle.pipelines.ring import Ring
from whyidle.pipelines.stages import Distort, Expand, Normalise, RandomCrop, Resize, plain_stages, ssd_stages
from whyidle.pipelines.standardise import Standardise
from whyidle.scenarios.datasets.arrays import Arrays

HERE = [name for name in registry.NAMES if registry.unavailable(name) is None]
OURS = ["caffe", "workers", "threads", "prefetch"]
"""Loaders that must agree with `naive` bit for bit."""
FUSED = [name for name in HERE if name.startswith("fused")]
"""Loaders of the same samples and boxes, whose pixels are nearly those."""
QUEUED = {"caffe": 3, "workers": 4, "threads": 2, "prefetch": 6} | dict.fromkeys(FUSED, 4)
"""Capacity with two workers and two batches ahead."""
SETTINGS = Settings(batch_size=4, workers=2, prefetch=2, seed=7)


def assert_packed(batch: Batch, dataset: Any) -> None:
    """The targets of an unaugmented batch are the annotated ones, in order."""
    expected = [
        np.column_stack((np.full(len(rows), place), rows))
        for place, rows in enumerate(dataset.targets(index) for index in batch.indices)
    ]
    assert np.array_equal(batch.targets.numpy(), np.concatenate(expected).astype(np.float32))


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("name", HERE)
def test_two_epochs_come_in_the_common_order(name: str, drop_last: bool, photos: Any, copier: Any) -> None:
    settings = replace(SETTINGS, drop_last=drop_last)
    found = made(name, photos, copier, settings, (0, 1))
    expected = [tuple(group) for epoch in (0, 1) for group in batches(len(photos), settings, epoch)]
    assert [batch.indices for batch in found] == expected
    assert {batch.samples for batch in found} == ({4} if drop_last else {4, 2})
    for batch in found:
        assert batch.inputs.shape == (batch.samples, 3, 64, 64)
        assert batch.inputs.dtype == batch.targets.dtype == torch.float32
        assert batch.inputs.is_contiguous()
        assert_packed(batch, photos)


@pytest.mark.parametrize("stages", [plain_stages(64), ssd_stages(64)], ids=["plain", "augmented"])
@pytest.mark.parametrize("name", OURS)
def test_samples_equal_those_of_naive_bit_for_bit(name: str, stages: Any, photos: Any, copier: Any) -> None:
    settings, dataset = replace(SETTINGS, drop_last=False), photos.staged(*stages)
    ours, theirs = (made(each, dataset, copier, settings, (0, 3)) for each in (name, "naive"))
    for one, other in zip(ours, theirs, strict=True):
        assert torch.equal(one.targets, other.targets)
        if name != "caffe" or len(stages) == 2:  # which loses a little in every JPEG it writes
            assert torch.equal(one.inputs, other.inputs)


@pytest.mark.parametrize("name", FUSED)
def test_fused_samples_are_those_of_naive_with_nearly_their_pixels(name: str, photos: Any, copier: Any) -> None:
    augmented = photos.staged(*ssd_stages(64))
    found = made(name, augmented, copier, SETTINGS, (3, 4, 5, 6))
    reference = made("naive", augmented, copier, SETTINGS, (3, 4, 5, 6))
    for ours, theirs in zip(found, reference, strict=True):
        assert torch.equal(ours.targets, theirs.targets)
    away = torch.cat(
        [(ours.inputs - theirs.inputs).abs().flatten() for ours, theirs in zip(found, reference, strict=True)]
    )
    if name == "fused-exact":
        assert (away <= 1).float().mean() > 0.999
    assert away.mean() < 8


@pytest.mark.parametrize("name", HERE)
def test_traces_lie_in_order_and_add_up_and_what_cannot_be_told_is_not_made_up(
    name: str, photos: Any, copier: Any
) -> None:
    begin = time.monotonic_ns()
    found = made(name, photos, copier, replace(SETTINGS, drop_last=False), (0, 1))
    end = time.monotonic_ns()
    for batch in found:
        trace = batch.trace
        if name.startswith("dali"):
            assert trace is None
            continue
        assert trace is not None
        parts = (trace.read_ns, trace.decode_ns, trace.transform_ns, trace.collate_ns)
        assert all(part is not None and part > 0 for part in (*parts, trace.cpu_ns))
        assert begin <= trace.begin_ns <= trace.end_ns <= end
        assert trace.read_bytes == sum(photos.path(index).stat().st_size for index in batch.indices)
        assert trace.minor_faults is not None
        if name in ("naive", "workers", "prefetch", *FUSED):  # one thread made it
            assert sum(part or 0 for part in parts) <= trace.end_ns - trace.begin_ns
    if name == "workers":
        assert [batch.trace.worker for batch in found if batch.trace] == [0, 1, 0] * 2


@pytest.mark.parametrize("name", HERE)
def test_the_queue_fills_to_its_capacity_and_not_beyond(name: str, photos: Any, copier: Any, until: Any) -> None:
    loader = registry.factory(name)(photos.times(5), SETTINGS, copier)
    queue = loader.queue
    assert (queue is not None) == (name in QUEUED)
    if queue is None:
        loader.close()
        return
    assert queue.capacity == QUEUED[name]
    assert queue.ready() == 0
    running = loader.epoch(0)
    seen = set()
    if name == "prefetch":
        next(running)  # what is handed out is out of the queue
    assert until(lambda: seen.add(queue.ready()) or queue.ready() == queue.capacity)
    for _ in running:
        seen.add(queue.ready())
    assert queue.ready() == 0
    assert min(seen) >= 0
    assert max(seen) == queue.capacity
    loader.close()
    assert queue.ready() == 0


@pytest.mark.parametrize("name", HERE)
def test_an_abandoned_epoch_leaves_nothing_running(name: str, photos: Any, copier: Any, nothing_left: Any) -> None:
    many = photos.times(5)
    unused = registry.factory(name)(photos, replace(SETTINGS, batch_size=10), copier)
    assert len(unused) == 1
    unused.close()
    # What libraries start once and keep is there from here on.
    assert [batch.samples for batch in made(name, photos, copier, replace(SETTINGS, batch_size=10))] == [10]
    nothing_left()
    loader = registry.factory(name)(many, SETTINGS, copier)
    next(loader.epoch(0))
    following = [batch.indices for batch in loader.epoch(1)]
    assert following == [tuple(group) for group in batches(len(many), SETTINGS, 1)]
    unfinished = loader.epoch(2)
    next(unfinished)
    loader.close()
    loader.close()


@dataclass(frozen=True)
class Faulty:
    """A stage with a programming mistake, or one that kills the process it runs in, unless that is the one given."""

    spared: int | None = None

    def __call__(self, image: Image, targets: Targets, random: np.random.Generator) -> tuple[Image, Targets]:
        if self.spared is None:
            raise ZeroDivisionError("in a stage")
        assert os.getpid() != self.spared
        os.kill(os.getpid(), signal.SIGKILL)
        return image, targets


FAULTS: dict[str, tuple[list[str], type[Exception], str]] = {
    "truncated": (HERE, DataError, r"bad one\.jpg cannot be decoded"),
    "missing": (HERE, DataError, r"bad one\.jpg cannot be read"),
    "mistake": (["naive", *OURS, *FUSED], ZeroDivisionError, "in a stage"),
    "death": (["workers", "prefetch", *FUSED], WhyidleError, r"loader process died.*fewer workers"),
}
"""What goes wrong: in which loaders, what they raise, and what they say."""


@pytest.mark.parametrize(("fault", "name"), [(fault, name) for fault, (names, *_) in FAULTS.items() for name in names])
def test_what_goes_wrong_is_told_and_leaves_nothing_running(
    fault: str, name: str, photos: Any, copier: Any, tmp_path: Path, nothing_left: Any
) -> None:
    _, error, said = FAULTS[fault]
    bad = tmp_path / "bad one.jpg"
    if fault == "truncated":
        bad.write_bytes(photos.path(0).read_bytes()[:1500])
    stages = {"mistake": [Faulty()], "death": [Faulty(os.getpid())]}.get(fault)
    dataset = replace(photos, files=(*photos.files, bad)) if stages is None else photos.staged(*stages)
    nothing_left()
    loader = registry.factory(name)(dataset, replace(SETTINGS, drop_last=False), copier)
    with pytest.raises(error, match=said) as caught:
        list(loader.epoch(0))
    assert stages or "Traceback" not in str(caught.value)
    loader.close()


@pytest.mark.parametrize("name", ["workers", "threads", "caffe", *FUSED])
def test_pinning_when_asked_happens_off_the_training_thread(name: str, photos: Any, copier: Any) -> None:
    found = made(name, photos, copier, replace(SETTINGS, pin_memory=True))
    assert copier.of("pin") == [batch.indices for batch in found]
    assert threading.get_ident() not in {thread for _, _, thread in copier.calls}
    made(name, photos, copier, SETTINGS)
    assert len(copier.calls) == len(found)


def test_prefetch_starts_each_copy_one_batch_ahead_from_the_training_thread(
    photos: Any, copier: Any, until: Any
) -> None:
    loader = registry.factory("prefetch")(photos.times(3), SETTINGS, copier)
    order = [tuple(group) for group in batches(len(photos) * 3, SETTINGS, 0)]
    started = []
    for batch in loader.epoch(0):
        assert batch.copy == "under way"
        started.append(len(copier.of("start")))
        # While this batch computes the next one to copy is pinned: then its copy can be started in time.
        left = len(order) - started[-1]
        assert until(lambda: loader._workers.pinned() >= min(2, left))  # noqa: B023  (called before the next round)
    loader.close()
    assert started[1:] == [min(n, len(order)) for n in range(3, len(order) + 2)]
    assert copier.of("start") == copier.of("pin") == order
    threads = {what: {thread for call, _, thread in copier.calls if call == what} for what in ("pin", "start")}
    assert threads["start"] == {threading.get_ident()}
    assert not threads["pin"] & threads["start"]


def test_prefetch_does_not_keep_a_batch_back_for_a_later_one(photos: Any, copier: Any) -> None:
    gate = threading.Event()
    pin = copier.pin

    def held(batch: Any) -> Any:
        if copier.of("pin"):
            gate.wait()  # everything after the first batch
        return pin(batch)

    copier.pin = held
    loader = registry.factory("prefetch")(photos.times(3), SETTINGS, copier)
    first = next(iterator := iter(loader.epoch(0)))
    assert (len(copier.of("start")), first.copy) == (1, "under way")
    gate.set()
    assert len(list(iterator)) == len(loader) - 1
    loader.close()


def test_the_names_are_those_of_the_contract_and_each_leads_to_a_loader_and_one_line() -> None:
    names = "naive caffe workers threads prefetch fused fused-exact dali-cpu dali-gpu"
    assert tuple(names.split()) == registry.NAMES
    for name in registry.NAMES:
        assert registry.factory(name).name == name  # type: ignore[attr-defined]
        line = registry.describe(name)
        assert 10 < len(line) < 100
        assert "\n" not in line


@pytest.mark.parametrize("ask", [registry.factory, registry.describe, registry.unavailable])
def test_an_unknown_name_is_answered_with_the_known_ones(ask: Any) -> None:
    with pytest.raises(WhyidleError, match=r"no loader 'wokers'.*naive, caffe, workers, threads"):
        ask("wokers")


@pytest.mark.parametrize(
    ("name", "module", "install"),
    [("dali-cpu", "nvidia.dali", "whyidle[dali]"), ("threads", "spdl.pipeline", "whyidle[studies]")],
)
def test_a_missing_library_says_what_to_install(
    name: str, module: str, install: str, photos: Any, copier: Any, monkeypatch: Any
) -> None:
    def no_parent(wanted: str) -> None:
        raise ModuleNotFoundError(wanted)

    monkeypatch.setitem(sys.modules, module, None)  # what makes an import fail
    with pytest.raises(MissingExtra) as caught:
        registry.factory(name)(photos, Settings(batch_size=4), copier)
    assert f"pip install '{install}'" in str(caught.value)
    for find in (lambda wanted: None, no_parent):
        monkeypatch.setattr(registry, "find_spec", find)
        assert f"pip install '{install}'" in (registry.unavailable(name) or "")


@pytest.mark.skipif(registry.unavailable("dali-cpu") is not None, reason="DALI is not installed")
def test_dali_on_a_gpu_needs_one(photos: Any, copier: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "CUDA device" in (registry.unavailable("dali-gpu") or "")
    with pytest.raises(WhyidleError, match=r"needs a CUDA device.*dali-cpu"):
        registry.factory("dali-gpu")(photos, Settings(batch_size=4), copier)


OF_EIGHT = Settings(batch_size=8, seed=1)


class Counting(Codec):
    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def decode(self, data: bytes, path: Path) -> Image:
        self.done["decoded"] += 1
        return super().decode(data, path)

    def encode(self, image: Image) -> bytes:
        self.done["encoded"] += 1
        return super().encode(image)


@pytest.mark.parametrize(
    ("stages", "encodes"),
    [
        (None, 2.5),  # as the study augments: each JPEG written is read again, and the file once
        ((), 0),
        ((Distort(probability=0.0),), 1),
        ((RandomCrop(min_ious=()),), 1),
        ((Expand(probability=0.0),), 0),
        ((Expand(probability=1.0),), 1),
        ((Resize(80),), 0),
    ],
)
def test_which_steps_write_a_jpeg(stages: Any, encodes: float, photos: Any, copier: Any) -> None:
    codec, number = Counting(), 1 if stages is not None else 5
    all_stages = ssd_stages(64) if stages is None else (*stages, *plain_stages(64))
    loader = CaffePipeline(photos.staged(*all_stages).times(4), OF_EIGHT, copier, codec)
    samples = sum(batch.samples for epoch in range(number) for batch in loader.epoch(epoch))
    loader.close()
    assert samples == number * 4 * len(photos)
    assert codec.done["decoded"] == samples + codec.done["encoded"]
    assert codec.done["encoded"] / samples == pytest.approx(encodes, abs=0.0 if stages is not None else 0.1)


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


def test_a_batch_holds_the_samples_in_the_order_asked_for(photos: Any) -> None:
    batch = assemble.make_batch(photos, [5, 0, 2], 0, SETTINGS, worker=0)
    assert batch.indices == (5, 0, 2)
    assert batch.inputs.dtype == batch.targets.dtype == torch.float32
    for position, index in enumerate(batch.indices):
        alone = assemble.make_batch(photos, [index], 0, SETTINGS, worker=0)
        assert torch.equal(batch.inputs[position], alone.inputs[0])
        rows = batch.targets[batch.targets[:, 0] == position]
        assert np.array_equal(rows[:, 1:].numpy(), photos.targets(index))


ANY = st.builds(
    Settings,
    batch_size=st.integers(1, 12),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**40),
)


@given(st.integers(0, 60), ANY, st.integers(0, 1000))
def test_an_epoch_visits_every_sample_once_and_batches_are_its_order_cut_up(
    samples: int, settings: Settings, epoch: int
) -> None:
    order, groups = epoch_order(samples, settings, epoch), batches(samples, settings, epoch)
    assert sorted(order) == list(range(samples))
    assert settings.shuffle or order == sorted(order)
    joined = [index for group in groups for index in group]
    assert joined == order[: len(joined)]
    assert len(groups) == count(samples, settings)
    assert all(len(group) == settings.batch_size for group in groups[:-1])
    assert samples - len(joined) == (samples % settings.batch_size if settings.drop_last else 0)


def test_seeds_and_epochs_shuffle_differently_and_augmentation_depends_on_the_index_besides() -> None:
    every = list(product(range(3), range(3)))
    orders = [tuple(epoch_order(50, Settings(4, seed=seed), epoch)) for seed, epoch in every]
    assert len(set(orders)) == 9
    assert orders[5] == tuple(epoch_order(50, Settings(4, seed=1), 2))
    assert orders[3] != tuple(randomness(Settings(4, seed=1), 0, 0).permutation(50).tolist())

    def drawn(seed: int, epoch: int, index: int, batch_size: int = 4) -> float:
        return randomness(Settings(batch_size=batch_size, seed=seed), epoch, index).random()

    assert len({drawn(*each, index) for each in every for index in range(3)}) == 27
    assert drawn(1, 2, 0) == drawn(1, 2, 0, batch_size=9)


def test_a_thread_that_works_ahead_gives_an_exception_after_the_good_items_and_once() -> None:
    def source() -> Iterator[int]:
        yield from (1, 2)
        raise KeyError("spoilt")

    thread = Background(source(), 5, "test")
    assert [next(thread), next(thread)] == [1, 2]
    with pytest.raises(KeyError, match="spoilt"):
        next(thread)
    assert list(thread) == []
    thread.close()


ALONE = Settings(batch_size=2, workers=1, shuffle=False, drop_last=False)
needs_fused = pytest.mark.skipif(not FUSED, reason="simplejpeg is not installed")


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


@pytest.mark.parametrize("name", FUSED)
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


@needs_fused
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


@pytest.mark.parametrize("name", FUSED)
def test_samples_of_several_sizes_are_refused_in_words(name: str, photos: Any, copier: Any) -> None:
    with pytest.raises(ValueError, match="must have one shape"):
        made(name, photos.staged(Normalise()), copier, ALONE)


@needs_fused
def test_batches_that_are_kept_keep_their_pixels(photos: Any, copier: Any) -> None:
    many = photos.times(6).staged(*ssd_stages(64))
    kept = made("fused", many, copier, ALONE)
    copies = []
    loader = registry.factory("fused")(many, ALONE, copier)
    for batch in loader.epoch(0):
        copies.append(batch.inputs.clone())
        del batch  # its memory is used again from here on
    loader.close()
    assert all(torch.equal(one.inputs, other) for one, other in zip(kept, copies, strict=True))


@pytest.mark.parametrize("name", FUSED)
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
@pytest.mark.parametrize("name", FUSED)
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
