"""Where sets in VOC's layout lie, and what is read of them."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from support.voc_sets import VocMaker, names
from whyidle.errors import DataError
from whyidle.pipelines.stages import Normalise, Resize
from whyidle.scenarios.voc.layout import CLASSES, class_index, find
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
