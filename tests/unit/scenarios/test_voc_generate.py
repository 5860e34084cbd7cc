from __future__ import annotations

import errno
import hashlib
import io
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from whyidle.errors import DataError
from whyidle.scenarios.output import counted
from whyidle.scenarios.voc import paint as module
from whyidle.scenarios.voc.annotation import parse
from whyidle.scenarios.voc.generate import compose
from whyidle.scenarios.voc.layout import Layout
from whyidle.scenarios.voc.paint import paint
from whyidle.scenarios.voc.read import VocDataset


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of 40 images of seed 7, which no test may change."""
    out = tmp_path_factory.mktemp("made") / "set"
    compose(out, 40, 7, workers=1)
    return out


def year(out: Path) -> Path:
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
    assert (420 < facts["mean_width"] < 500, 340 < facts["mean_height"] < 440) == (True, True)
    assert dataset.sizes.max() == 500
    assert (dataset.sizes == (500, 375)).all(axis=1).mean() > 0.4
    assert (dataset.sizes == (375, 500)).all(axis=1).any()
    assert dataset.file_bytes.std() > 15e3
    # A fifth is for validation: drawn, not cut off.
    train, val, both = (Layout(year(made)).names(split) for split in ("train", "val", "trainval"))
    assert (len(train), len(val)) == (32, 8)
    assert both == sorted({*train, *val})
    assert val != both[-8:]


def test_boxes_are_exact_to_the_pixel_of_what_is_visible(made: Path) -> None:
    layout = Layout(year(made))
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


def test_owners_are_where_the_picture_was_painted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects painted in a colour no image has must show exactly where `owner` says, and nowhere else."""
    monkeypatch.setattr(module, "hsv_to_rgb", lambda *_: (90.0, 90.0, 90.0))
    monkeypatch.setattr(module, "_photograph", lambda random, canvas: canvas.max(axis=2) > 400)
    for index in range(8):
        painting = module.paint(3, index)
        np.testing.assert_array_equal(painting.image, painting.owner >= 0)
    objects = [placed for index in range(12) for placed in paint(11, index).objects]
    assert {(placed.occluded, placed.truncated) for placed in objects} >= {(True, False), (False, True), (False, False)}
    assert len({placed.name for placed in objects}) > 10


def test_an_image_depends_on_seed_and_number_only(made: Path, tmp_path: Path) -> None:
    compose(tmp_path / "fewer", 5, 7, workers=2)
    fewer, all_of_it = contents(year(tmp_path / "fewer")), contents(year(made))
    images = [file for file in fewer if not file.startswith("ImageSets")]
    assert len(images) == 10
    assert {file: fewer[file] for file in images} == {file: all_of_it[file] for file in images}
    compose(tmp_path / "other", 5, 8, workers=1)
    other = contents(year(tmp_path / "other"))
    assert not {other[file] for file in images if file.endswith(".jpg")} & set(fewer.values())


def test_a_set_composed_under_the_earlier_name_is_known_as_composed_and_left_as_it_is(tmp_path: Path) -> None:
    compose(tmp_path / "set", 5, 7, workers=1)
    marker = tmp_path / "set" / "whyidle-data.json"
    assert "whyidle-voc" in marker.read_text()
    (tmp_path / "set" / "stallscope-data.json").write_text(marker.read_text().replace("whyidle-", "stallscope-"))
    marker.unlink()
    before = contents(tmp_path / "set")
    assert Layout(year(tmp_path / "set")).is_composed
    compose(tmp_path / "set", 5, 7, workers=1)
    assert contents(tmp_path / "set") == before


def test_an_interrupted_set_is_continued(tmp_path: Path) -> None:
    compose(tmp_path / "whole", 8, 3, workers=1)

    def interrupt(done: int, of: int) -> None:
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compose(tmp_path / "set", 8, 3, interrupt, workers=1)
    images = year(tmp_path / "set") / "JPEGImages"
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
    images = year(out) / "JPEGImages"
    assert sorted(file.name for file in images.iterdir()) == ["2012_000001.jpg", "2012_000002.jpg"]
    monkeypatch.undo()
    compose(out, 4, 0, workers=1)
    assert len(Layout(year(out)).names("trainval")) == 4
    # In a worker process it is the same message.
    (year(out) / "Annotations" / "2012_000002.xml").unlink()
    (images / "2012_000002.jpg").unlink()
    (images / "2012_000002.jpg").mkdir()
    with pytest.raises(DataError, match=r"Cannot write the images to .*: Is a directory"):
        compose(out, 4, 0, workers=2)
