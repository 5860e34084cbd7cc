from __future__ import annotations

from pathlib import Path

import pytest

from whyidle.errors import DataError
from whyidle.scenarios.voc.layout import CLASSES, class_index, find


def year(root: Path) -> Path:
    for part in ("JPEGImages", "Annotations", "ImageSets/Main"):
        (root / part).mkdir(parents=True)
    return root


@pytest.mark.parametrize("inside", ["", "VOC2012", "VOC2007", "VOCdevkit/VOC2012", "VOCdevkit/VOC2007"])
def test_finds_the_set_from_any_level(tmp_path: Path, inside: str) -> None:
    root = year(tmp_path / inside)
    assert find(tmp_path).root == root
    assert find(root).root == root


def test_of_several_years_the_newest_is_taken(tmp_path: Path) -> None:
    year(tmp_path / "VOCdevkit" / "VOC2007")
    newest = year(tmp_path / "VOCdevkit" / "VOC2012")
    assert find(tmp_path).root == newest
    (newest / "JPEGImages").rmdir()  # one that lacks a part is passed over
    assert find(tmp_path).root == newest.with_name("VOC2007")


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


def test_a_split_is_read_in_order_and_without_repeats(tmp_path: Path) -> None:
    layout = find(year(tmp_path / "VOC2012"))
    (layout.splits / "train.txt").write_text("b\n\n  a  1\nb\nc -1\n")
    assert layout.names("train") == ["b", "a", "c"]
    assert layout.image("a") == tmp_path / "VOC2012" / "JPEGImages" / "a.jpg"
    assert layout.annotation("a") == tmp_path / "VOC2012" / "Annotations" / "a.xml"


def test_a_missing_split_names_those_that_are_there(tmp_path: Path) -> None:
    layout = find(year(tmp_path / "VOC2012"))
    with pytest.raises(DataError, match=r"no split 'val' .*splits there: none"):
        layout.names("val")
    (layout.splits / "train.txt").write_text("a\n")
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
