"""Sets in VOC's layout: where they lie, what is read of them, what a user's may have wrong, and damaged JPEG files."""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from support.voc_sets import Box, VocMaker, names
from whyidle.errors import DataError
from whyidle.pipelines.stages import Normalise, Resize
from whyidle.scenarios.voc import check
from whyidle.scenarios.voc.check import SetProblem
from whyidle.scenarios.voc.jpeg import JpegError, verify
from whyidle.scenarios.voc.layout import CLASSES, class_index, find
from whyidle.scenarios.voc.paint import noise
from whyidle.scenarios.voc.read import VocDataset


def year(root: Path) -> Path:
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / part).mkdir(parents=True)
    return root


@pytest.mark.parametrize("inside", ["", "VOC2012", "VOC2007", "VOCdevkit/VOC2012", "VOCdevkit/VOC2007"])
def test_finds_the_set_from_any_level(tmp_path: Path, inside: str) -> None:
    root = year(tmp_path / inside)
    assert find(tmp_path).root == find(root).root == root
    if inside == "VOCdevkit/VOC2007":  # of several years the newest is taken that lacks no part
        newest = year(root.with_name("VOC2012"))
        assert find(tmp_path).root == newest
        (newest / "JPEGImages").rmdir()
        assert find(tmp_path).root == root


def test_what_is_not_a_set_is_named_with_what_was_looked_for(tmp_path: Path) -> None:
    empty, other, file = tmp_path / "empty", tmp_path / "other", tmp_path / "file"
    empty.mkdir()
    (other / "pictures").mkdir(parents=True)
    file.write_text("")
    for folder, fact in (
        (tmp_path / "nowhere", "does not exist"),
        (empty, "is empty"),
        (other, "holds no Pascal-VOC set"),
        (file, "is not a folder"),
    ):
        with pytest.raises(DataError) as caught:
            find(folder)
        message = str(caught.value)
        assert message.startswith(f"{folder} {fact}")
        assert "JPEGImages, Annotations, ImageSets/Main" in message
        assert "VOCdevkit/VOC2012" in message
        assert "whyidle data ssd --out DIR" in message


def test_a_split_is_read_in_order_without_repeats_and_a_missing_one_names_those_that_are_there(tmp_path: Path) -> None:
    layout = find(year(tmp_path / "VOC2012"))
    with pytest.raises(DataError, match=r"no split 'val' .*splits there: none"):
        layout.names("val")
    (layout.splits / "train.txt").write_text("b\n\n  a  1\nb\nc -1\n")
    assert layout.names("train") == ["b", "a", "c"]
    (layout.splits / "test.txt").write_text("a\n")
    with pytest.raises(DataError, match=r"no split 'val' .*splits there: test, train"):
        layout.names("val")
    (layout.splits / "val.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"val\.txt names no image"):
        layout.names("val")


def test_classes_of_voc_come_first_and_others_in_alphabetic_order() -> None:
    index = class_index(["zebra", "person", "apple"])
    assert list(index) == [*CLASSES, "apple", "zebra"]
    assert list(index.values()) == [*range(1, 23)]
    assert (index["aeroplane"], index["person"], index["tvmonitor"]) == (1, 15, 20)


def test_boxes_become_shares_and_classes_numbers_and_the_set_says_how_much_there_is(maker: VocMaker) -> None:
    maker.sample("a", ("dog", 11, 21, 60, 40), ("aeroplane", 1, 1, 100, 80))
    maker.image("bb", (50, 40))
    maker.annotation("bb", ("tvmonitor", 1, 1, 1, 1))
    maker.image("none")
    maker.text("none", "<annotation/>")
    maker.split("bb", "a", "none")

    dataset = maker.open()

    assert dataset.findings == []
    assert names(dataset) == ["bb", "a", "none"]
    assert dataset.targets(2).shape == (0, 5)
    assert dataset.targets(1).dtype == np.float32
    np.testing.assert_allclose(dataset.targets(0), [[20, 0, 0, 1 / 50, 1 / 40]], rtol=1e-6)
    np.testing.assert_allclose(dataset.targets(1), [[12, 0.1, 0.25, 0.6, 0.5], [1, 0, 0, 1, 1]], rtol=1e-6)
    np.testing.assert_array_equal(dataset.targets(-2), dataset.targets(1))
    np.testing.assert_array_equal(dataset.sizes, [(50, 40), (100, 80), (100, 80)])
    np.testing.assert_array_equal(dataset.file_bytes, [dataset.path(i).stat().st_size for i in range(3)])
    assert dataset.name == "VOC2012 trainval"
    assert dataset.classes == 20
    size = sum(file.stat().st_size for file in (maker.root / "JPEGImages").iterdir())
    assert dataset.describe() == {
        **{"samples": 3, "unit": "image", "stand_in": None, "images": 3, "objects": 3, "classes": 3},
        **{"mean_bytes": size / 3, "mean_width": pytest.approx(250 / 3), "mean_height": pytest.approx(200 / 3)},
    }
    copied = pickle.loads(pickle.dumps(dataset))  # as it goes to workers
    assert copied.path(1) == dataset.path(1)
    np.testing.assert_array_equal(copied.targets(1), dataset.targets(1))
    with pytest.raises(IndexError):
        dataset.targets(3)


def test_splits_limit_and_stages(maker: VocMaker) -> None:
    for name in ("a", "bb", "ccc"):
        maker.sample(name)
    maker.split("a", "bb", "ccc")
    maker.split("ccc", split="val")
    assert names(maker.open("val")) == ["ccc"]
    assert names(maker.open(limit=2)) == ["a", "bb"]
    assert list(maker.open().stages) == [Resize(300), Normalise()]
    stages = [Resize(64), Normalise()]
    assert VocDataset.open(maker.folder, stages=stages).stages is stages
    assert VocDataset.open(maker.folder, stages=()).stages == ()


def test_other_classes_have_the_same_number_in_every_split(maker: VocMaker) -> None:
    maker.sample("a", ("zebra", 1, 1, 9, 9))
    maker.sample("b", ("apple", 1, 1, 9, 9), ("cat", 1, 1, 9, 9))
    maker.split("a", "b")
    maker.split("a", split="train")
    assert maker.open("train").targets(0)[0, 0] == 22
    assert maker.open(limit=1).targets(0)[0, 0] == 22
    assert maker.open().class_names[20:] == ("apple", "zebra")


@pytest.fixture
def good(maker: VocMaker) -> VocMaker:
    """Two good images; tests add a bad one, `bad`."""
    for name in ("first", "second"):
        maker.sample(name)
    maker.split("first", "bad", "second")
    return maker


def only_finding(maker: VocMaker) -> SetProblem:
    """The one thing wrong with a set of which the good images must all be used."""
    dataset = maker.open()
    assert names(dataset) == ["first", "second"]
    assert len(dataset.findings) == 1
    return dataset.findings[0]


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (lambda whole: whole[:1500], "truncated"),
        (lambda whole: whole[:3000] + b"\xff\xd9", "end too early"),
        (lambda whole: b"404", "it is not a JPEG"),
        (None, "cannot be read"),  # a folder
    ],
    ids=["truncated", "partly decodable", "something else", "a folder"],
)
def test_an_image_that_cannot_be_decoded_is_left_out(
    good: VocMaker, spoilt: Callable[[bytes], bytes] | None, message: str
) -> None:
    file = good.image("bad")
    good.annotation("bad", ("dog", 1, 1, 9, 9))
    whole = file.read_bytes()
    file.unlink()
    file.mkdir() if spoilt is None else file.write_bytes(spoilt(whole))
    finding = only_finding(good)
    assert (finding.kind, finding.file) == ("image corrupt", file)
    assert message in finding.message


@pytest.mark.parametrize(
    ("image", "annotation", "kind", "file", "message"),
    [
        (False, "bad", "annotation without image", "bad.xml", "bad.jpg does not exist"),
        (False, "stray", "annotation without image", "stray.xml", ""),
        (True, "", "image without annotation", "bad.jpg", "bad.xml does not exist"),
        (False, "", "image missing", "bad.jpg", ""),
    ],
)
def test_a_half_of_a_sample_is_left_out(
    good: VocMaker, image: bool, annotation: str, kind: str, file: str, message: str
) -> None:
    if image:
        good.image("bad")
    if annotation:
        good.annotation(annotation, ("dog", 1, 1, 9, 9))
    if annotation == "stray":
        good.split("first", "second")
    finding = only_finding(good)
    assert (finding.kind, finding.file.name) == (kind, file)
    assert message in finding.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<annotation><object>", "not well-formed"),
        ("", "not well-formed"),
        ("\x00\x01", "not well-formed"),
        ("<?xml version='1.0' encoding='klingon'?><annotation/>", "not well-formed"),
        ("<svg/>", "root is <svg>"),
        ('<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/hostname">]><annotation>&x;</annotation>', "DOCTYPE"),
        ('<!DOCTYPE annotation SYSTEM "http://example.org/a.dtd"><annotation/>', "DOCTYPE"),
        ("<annotation>&unknown;</annotation>", "not well-formed"),
    ],
)
def test_a_malformed_annotation_leaves_its_image_out(good: VocMaker, text: str, message: str) -> None:
    good.image("bad")
    file = good.text("bad", text)
    finding = only_finding(good)
    assert (finding.kind, finding.file) == ("annotation malformed", file)
    assert message in finding.message


@pytest.mark.parametrize(
    ("box", "kind"),
    [
        (("dog", 101, 1, 150, 20), "box outside image"),
        (("dog", -50, 10, 0, 20), "box outside image"),
        (("dog", 1, 500, 9, 600), "box outside image"),
        (("dog", 50, 50, 40, 60), "box empty"),
        (("dog", 50, 60, 60, 20), "box empty"),
        (("dog", float("nan"), 1, 5, 5), "object malformed"),
        (("dog", float("inf"), 1, 5, 5), "object malformed"),
        (("", 1, 1, 5, 5), "object malformed"),
        (("dog", "one", 1, 5, 5), "object malformed"),
    ],
)
def test_a_useless_box_is_left_out_and_its_image_used(good: VocMaker, box: Box, kind: str) -> None:
    good.image("bad")
    file = good.annotation("bad", box, ("cat", 11, 21, 60, 40))
    dataset = good.open()
    assert len(dataset) == 3
    np.testing.assert_allclose(dataset.targets(1), [[8, 0.1, 0.25, 0.6, 0.5]], rtol=1e-6)
    assert [(finding.kind, finding.file) for finding in dataset.findings] == [(kind, file)]


def test_a_box_partly_outside_is_cut_at_the_border(good: VocMaker) -> None:
    good.image("bad")
    file = good.annotation("bad", ("dog", -20, 41, 50, 300))
    dataset = good.open()
    told = dataset.findings[0].message
    np.testing.assert_allclose(dataset.targets(1), [[12, 0, 0.5, 0.5, 1]], rtol=1e-6)
    assert [(finding.kind, finding.file) for finding in dataset.findings] == [("box partly outside image", file)]
    good.annotation("bad", ("dog", 0, 0, 100, 80))  # counted from 0
    assert good.open().findings == []
    assert "(-20, 41, 50, 300) of a dog in an image of 100 × 80" in told


def test_nothing_usable_or_readable_is_one_error_with_the_reason(maker: VocMaker) -> None:
    for name in ("a", "b"):
        maker.image(name).write_bytes(b"")
        maker.annotation(name)
    maker.split("a", "b")
    with pytest.raises(DataError, match=r"^None of the 2 images of ") as caught:
        maker.open()
    for said in ("image corrupt: 2, left out; first: ", "whyidle data ssd --out DIR"):
        assert said in str(caught.value)
    split = maker.root / "ImageSets" / "Main" / "trainval.txt"
    split.unlink()
    split.mkdir()
    with pytest.raises(DataError, match=f"Cannot read {split}: Is a directory"):
        maker.open()


def opened(maker: VocMaker, monkeypatch: pytest.MonkeyPatch) -> tuple[VocDataset, int]:
    """The dataset, and how many images opening it decoded."""
    count = 0
    real = check.verify

    def counting(data: bytes) -> tuple[int, int]:
        nonlocal count
        count += 1
        return real(data)

    with monkeypatch.context() as patch:
        patch.setattr(check, "verify", counting)
        dataset = maker.open()
    return dataset, count


def test_what_was_decoded_once_is_remembered(good: VocMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = good.image("bad")
    good.annotation("bad", ("dog", 1, 1, 9, 9))
    bad.write_bytes(bad.read_bytes()[:1000])

    first, decoded_first = opened(good, monkeypatch)
    again, decoded_again = opened(good, monkeypatch)
    assert (decoded_first, decoded_again) == (3, 0)
    assert again.findings == first.findings != []
    np.testing.assert_array_equal(again.sizes, first.sizes)

    good.image("bad")  # mended
    mended, decoded_mended = opened(good, monkeypatch)
    assert decoded_mended == 1
    assert names(mended) == ["first", "bad", "second"]
    assert mended.findings == []


OTHER_ENTRIES = [{"version": 1, "images": {"first": entry}} for entry in ([1, 2], [1, 2, 3, "4", ""], "text")]


@pytest.mark.parametrize(
    "content",
    [
        *("", "[]", '{"version": 99, "images": {}}', '{"version": 1, "images": []}', *map(json.dumps, OTHER_ENTRIES)),
        None,  # and none can be written
    ],
)
def test_a_broken_cache_is_as_good_as_none(
    good: VocMaker, cache_folder: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    good.split("first", "second")
    if content is None:
        cache_folder.write_text("a file where the folder should be")
    else:
        opened(good, monkeypatch)
        (file,) = (cache_folder / "whyidle" / "verified").iterdir()
        file.write_text(content)
    dataset, decoded = opened(good, monkeypatch)
    assert (len(dataset), decoded) == (2, 2)
    assert opened(good, monkeypatch)[1] == (2 if content is None else 0)


def photograph(width: int = 160, height: int = 120) -> Image.Image:
    random = np.random.default_rng(1)
    planes = [noise(random, height, width, 0.7) * 40 + 128 for _ in range(3)]
    return Image.fromarray(np.stack(planes, axis=-1).clip(0, 255).astype(np.uint8))


def encoded(image: Image.Image, **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", **{"quality": 95, **options})
    return stream.getvalue()


GOOD = encoded(photograph())
MIDDLE = len(GOOD) // 2


@pytest.mark.parametrize(
    "options",
    [{"quality": 5}, {"quality": 100, "subsampling": 0}, {"restart_marker_rows": 1}, {"progressive": True}],
    ids=str,
)
def test_good_images_of_all_kinds_pass(options: dict[str, Any]) -> None:
    assert verify(encoded(photograph(), **options) + b"appended by a camera" * 50) == (160, 120)
    for mode in ("CMYK", "L"):
        assert verify(encoded(photograph(97, 61).convert(mode), **options)) == (97, 61)
    for level, size in ((0, (1, 1)), (128, (8, 8)), (128, (500, 375)), (255, (500, 375))):
        assert verify(encoded(Image.new("RGB", size, (level, level, level)), **options)) == size
    half = photograph(400, 300)
    half.paste((128, 128, 128), (0, 100, 400, 300))  # ends in the grey of lost data
    assert verify(encoded(half, **options)) == (400, 300)


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        (b"", "is empty"),
        (b"<html>Not found</html>", "not a JPEG"),
        (GOOD[:100], "Truncated"),
        (GOOD[:MIDDLE], "truncated"),
        (GOOD[:-40], "truncated"),
        (GOOD[:MIDDLE] + b"\xff\xd9", "end too early"),
        (GOOD[:MIDDLE] + GOOD[MIDDLE + 2000 :], "end too early"),
        (GOOD[:MIDDLE] + GOOD[MIDDLE - 4000 :], "go on after the image"),
        (GOOD[:MIDDLE] + bytes(len(GOOD) - MIDDLE), "truncated|no end marker|end too early"),
        (GOOD[:MIDDLE] + b"\xff\xfe" + GOOD[MIDDLE:], "contain a marker|broken|end too early"),
    ],
    ids=["empty", "html", "header", "half", "end lost", "ended", "hole", "repeat", "zeros", "marker inside"],
)
def test_damage_is_found(damaged: bytes, message: str) -> None:
    with pytest.raises(JpegError, match=message):
        verify(damaged)
