"""What a user's set may have wrong, built here from a good one; and that what was decoded once is remembered."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from support.voc_sets import Box, VocMaker, names
from whyidle.errors import DataError
from whyidle.scenarios.voc import check
from whyidle.scenarios.voc.check import SetProblem
from whyidle.scenarios.voc.read import VocDataset


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
