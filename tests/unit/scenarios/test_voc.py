"""Sets in VOC's layout: where they lie, what is read of them, what a user's may have wrong; and composed ones."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from whyidle.errors import DataError
from whyidle.pipelines.stages import Normalise, Resize
from whyidle.scenarios.output import counted
from whyidle.scenarios.voc import check
from whyidle.scenarios.voc.annotation import parse
from whyidle.scenarios.voc.generate import compose
from whyidle.scenarios.voc.jpeg import JpegError, verify
from whyidle.scenarios.voc.layout import CLASSES, Layout, find
from whyidle.scenarios.voc.paint import noise, paint
from whyidle.scenarios.voc.read import VocDataset

Box = tuple[str, float, float, float, float]


class VocMaker:
    """A set that is written file by file. Images are 100 × 80."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "VOCdevkit" / "VOC2012"
        for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
            (self.root / part).mkdir(parents=True)

    def image(self, name: str, size: tuple[int, int] = (100, 80)) -> Path:
        random = np.random.default_rng(len(name))
        stream = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (size[1], size[0], 3), np.uint8)).save(stream, "JPEG", quality=90)
        file = self.root / "JPEGImages" / f"{name}.jpg"
        file.write_bytes(stream.getvalue())
        return file

    def annotation(self, name: str, *boxes: Box) -> Path:
        objects = "".join(
            f"<object><name>{label}</name><part><name>head</name><bndbox><xmin>1</xmin><ymin>1</ymin><xmax>2</xmax>"
            f"<ymax>2</ymax></bndbox></part><bndbox><xmax>{x2}</xmax><xmin>{x1}</xmin><ymax>{y2}</ymax>"
            f"<ymin>{y1}</ymin></bndbox></object>"
            for label, x1, y1, x2, y2 in boxes
        )
        return self.text(name, f"<annotation><size><width>9</width></size>{objects}</annotation>")

    def text(self, name: str, text: str) -> Path:
        file = self.root / "Annotations" / f"{name}.xml"
        file.write_text(text)
        return file

    def sample(self, name: str, *boxes: Box) -> None:
        self.image(name)
        self.annotation(name, *(boxes or (("dog", 11, 21, 60, 40),)))

    def split(self, *names: str, split: str = "trainval") -> None:
        (self.root / "ImageSets" / "Main" / f"{split}.txt").write_text("\n".join(names))

    def open(self, split: str = "trainval", limit: int | None = None) -> VocDataset:
        return VocDataset.open(self.folder, split, limit=limit)


def names(dataset: VocDataset) -> list[str]:
    """Of its images, in their order."""
    return [dataset.path(i).stem for i in range(len(dataset))]


@pytest.fixture
def maker(tmp_path: Path) -> VocMaker:
    """Of a set in VOC's layout, which is empty as yet."""
    return VocMaker(tmp_path / "data")


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
    for name in ("a", "bb"):
        maker.sample(name)
    maker.split("a", "bb")
    maker.split("bb", split="val")
    assert (names(maker.open("val")), names(maker.open(limit=1))) == (["bb"], ["a"])
    assert list(maker.open().stages) == [Resize(300), Normalise()]
    assert VocDataset.open(maker.folder, stages=()).stages == ()


def test_other_classes_have_the_same_number_in_every_split(maker: VocMaker) -> None:
    maker.sample("a", ("zebra", 1, 1, 9, 9))
    maker.sample("b", ("apple", 1, 1, 9, 9), ("cat", 1, 1, 9, 9))
    maker.split("a", "b")
    maker.split("a", split="train")
    assert maker.open("train").targets(0)[0, 0] == 22
    assert maker.open(limit=1).targets(0)[0, 0] == 22
    assert maker.open().class_names == (*CLASSES, "apple", "zebra")


@pytest.fixture
def good(maker: VocMaker) -> VocMaker:
    """Two good images; tests add a bad one, `bad`."""
    for name in ("first", "second"):
        maker.sample(name)
    maker.split("first", "bad", "second")
    return maker


HOSTILE = '<!DOCTYPE annotation [<!ENTITY x SYSTEM "file:///etc/hostname">]><annotation>&x;</annotation>'
ABROAD = '<!DOCTYPE annotation SYSTEM "http://example.org/a.dtd"><annotation/>'


@pytest.mark.parametrize(
    ("image", "annotation", "kind", "file", "message"),
    [
        (lambda whole: whole[:1500], "dog", "image corrupt", "bad.jpg", "truncated"),
        (lambda whole: whole[:3000] + b"\xff\xd9", "dog", "image corrupt", "bad.jpg", "end too early"),
        (lambda whole: b"404", "dog", "image corrupt", "bad.jpg", "it is not a JPEG"),
        ("folder", "dog", "image corrupt", "bad.jpg", "cannot be read"),
        (None, "dog", "annotation without image", "bad.xml", "bad.jpg does not exist"),
        (None, "stray", "annotation without image", "stray.xml", ""),
        (bytes, None, "image without annotation", "bad.jpg", "bad.xml does not exist"),
        (None, None, "image missing", "bad.jpg", ""),
        *(
            (bytes, text, "annotation malformed", "bad.xml", message)
            for text, message in (
                ("<annotation><object>", "not well-formed"),
                ("", "not well-formed"),
                ("\x00\x01", "not well-formed"),
                ("<?xml version='1.0' encoding='klingon'?><annotation/>", "not well-formed"),
                ("<svg/>", "root is <svg>"),
                (HOSTILE, "DOCTYPE"),
                (ABROAD, "DOCTYPE"),
                ("<annotation>&unknown;</annotation>", "not well-formed"),
            )
        ),
    ],
)
def test_what_is_spoilt_or_lacks_its_other_half_is_left_out_and_named(
    good: VocMaker, image: Any, annotation: str | None, kind: str, file: str, message: str
) -> None:
    """`image`: made of a whole one, none, or a folder in its place; `annotation`: of a dog, or this text."""
    if image is not None:
        path = good.image("bad")
        whole = path.read_bytes()
        path.unlink()
        path.mkdir() if image == "folder" else path.write_bytes(image(whole))
    if annotation in ("dog", "stray"):
        good.annotation("bad" if annotation == "dog" else annotation, ("dog", 1, 1, 9, 9))
    elif annotation is not None:
        good.text("bad", annotation)
    if annotation == "stray":
        good.split("first", "second")
    dataset = good.open()
    assert names(dataset) == ["first", "second"]
    (finding,) = dataset.findings
    assert (finding.kind, finding.file.name) == (kind, file)
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of 40 images of seed 7, which no test may change."""
    out = tmp_path_factory.mktemp("made") / "set"
    compose(out, 40, 7, workers=1)
    return out


def year_of(out: Path) -> Path:
    return out / "VOCdevkit" / "VOC2012"


def contents(out: Path) -> dict[str, str]:
    return {
        str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(out.rglob("*"))
        if file.is_file()
    }


def test_a_terminal_shows_a_bar_beside_the_same_items(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(shown, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    assert list(counted(iter([3, 1]), "checking images", 2)) == [3, 1]
    assert "checking images" in shown.getvalue()


def test_what_is_composed_can_be_read_without_findings_and_is_like_voc(made: Path) -> None:
    dataset = VocDataset.open(made)
    assert (len(dataset), dataset.findings, dataset.classes) == (40, [], 20)
    for i in range(len(dataset)):
        with Image.open(dataset.path(i)) as image:
            assert (image.size, image.mode) == (tuple(dataset.sizes[i]), "RGB")
        targets = dataset.targets(i)
        assert 1 <= len(targets) <= 8
        assert (targets[:, 1:3] < targets[:, 3:]).all()
        assert 0 <= targets[:, 1:].min() <= targets[:, 1:].max() <= 1
    facts = dataset.describe()
    assert facts["stand_in"] == "Pascal VOC's photographs: images composed by whyidle"
    assert 80e3 < facts["mean_bytes"] < 120e3
    assert 340 < facts["mean_height"] < 440 < facts["mean_width"] < dataset.sizes.max() == 500
    # A fifth is for validation: drawn, not cut off.
    train, val, both = (Layout(year_of(made)).names(split) for split in ("train", "val", "trainval"))
    assert (len(train), len(val)) == (32, 8)
    assert both == sorted({*train, *val})
    assert val != both[-8:]


def test_boxes_are_exact_to_the_pixel_of_what_is_visible(made: Path) -> None:
    layout = Layout(year_of(made))
    for index, name in enumerate(layout.names("trainval")[:20]):
        painting = paint(7, index)
        annotated = parse(layout.annotation(name)).objects
        assert len(annotated) == len(painting.objects) == painting.owner.max() + 1
        for number, one in enumerate(annotated):
            mask = painting.owner == number
            rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
            assert (one.x_min, one.x_max) == (columns[0] + 1, columns[-1] + 1)
            assert (one.y_min, one.y_max) == (rows[0] + 1, rows[-1] + 1)
            assert mask.sum() >= 120
    objects = [placed for index in range(12) for placed in paint(11, index).objects]
    assert {(placed.occluded, placed.truncated) for placed in objects} >= {(True, False), (False, True), (False, False)}
    assert len({placed.name for placed in objects}) > 10


def test_an_image_depends_on_seed_and_number_only(made: Path, tmp_path: Path) -> None:
    compose(tmp_path / "fewer", 5, 7, workers=2)
    fewer, all_of_it = contents(year_of(tmp_path / "fewer")), contents(year_of(made))
    images = [file for file in fewer if not file.startswith("ImageSets")]
    assert len(images) == 10
    assert {file: fewer[file] for file in images} == {file: all_of_it[file] for file in images}
    compose(tmp_path / "other", 5, 8, workers=1)
    other = contents(year_of(tmp_path / "other"))
    assert not {other[file] for file in images if file.endswith(".jpg")} & set(fewer.values())


def test_a_set_composed_under_the_earlier_name_is_known_as_composed_and_left_as_it_is(tmp_path: Path) -> None:
    compose(tmp_path / "set", 5, 7, workers=1)
    marker = tmp_path / "set" / "whyidle-data.json"
    assert "whyidle-voc" in marker.read_text()
    (tmp_path / "set" / "stallscope-data.json").write_text(marker.read_text().replace("whyidle-", "stallscope-"))
    marker.unlink()
    before = contents(tmp_path / "set")
    assert Layout(year_of(tmp_path / "set")).is_composed
    compose(tmp_path / "set", 5, 7, workers=1)
    assert contents(tmp_path / "set") == before


def test_an_interrupted_set_is_continued(tmp_path: Path) -> None:
    compose(tmp_path / "whole", 8, 3, workers=1)

    def interrupt(done: int, of: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compose(tmp_path / "set", 8, 3, interrupt, workers=1)
    images = year_of(tmp_path / "set") / "JPEGImages"
    assert len(list(images.iterdir())) == 5
    (images / "2012_000001.jpg").unlink()
    (images / "2012_000006.jpg.99999.part").write_bytes(b"half a file of a killed process")

    calls: list[int] = []
    compose(tmp_path / "set", 8, 3, lambda done, of: calls.append(done), workers=1)
    assert calls == [4, 5, 6, 7, 8]
    assert contents(tmp_path / "set") == contents(tmp_path / "whole")


def test_a_foreign_folder_and_another_set_are_not_touched(made: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "whyidle-data.json").write_text("{")
    before = contents(made), contents(tmp_path)
    for out, images, seed, said in (
        (tmp_path, 2, 0, "whyidle did not make it, so nothing was written"),
        (tmp_path / "thesis.tex", 2, 0, "whyidle did not make it"),
        (tmp_path / "odd", 2, 0, "holds another set"),
        (tmp_path / "set", 0, 0, "at least 1"),
        (tmp_path / "set", 1, -1, "seed -1 cannot be used"),
        *((made, *set_, "holds another set than {} images of seed {}".format(*set_)) for set_ in ((39, 7), (40, 8))),
    ):
        with pytest.raises(DataError, match=said):
            compose(out, images, seed)
    assert (contents(made), contents(tmp_path)) == before
    assert not (tmp_path / "set").exists()


def test_what_cannot_be_written_is_one_message_and_leaves_no_half_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, out = Path.write_bytes, tmp_path / "set"

    def full(file: Path, data: bytes) -> int:
        if "2012_000003.jpg" in file.name:
            real(file, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        return real(file, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(DataError, match=f"{out}.*No space left on device.*Run the same command again"):
        compose(out, 4, 0, workers=1)
    images = year_of(out) / "JPEGImages"
    assert sorted(file.name for file in images.iterdir()) == ["2012_000001.jpg", "2012_000002.jpg"]
    monkeypatch.undo()
    compose(out, 4, 0, workers=1)
    assert len(Layout(year_of(out)).names("trainval")) == 4
    # In a worker process it is the same message.
    (year_of(out) / "Annotations" / "2012_000002.xml").unlink()
    (images / "2012_000002.jpg").unlink()
    (images / "2012_000002.jpg").mkdir()
    with pytest.raises(DataError, match=r"Cannot write the images to .*: Is a directory"):
        compose(out, 4, 0, workers=2)
