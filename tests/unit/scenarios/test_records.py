"""Photographs as raw records in LMDB: the same samples, whole or not there, in every process."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from unit.scenarios.conftest import photographs

from whyidle.errors import DataError, MissingExtra
from whyidle.pipelines.assemble import make_sample
from whyidle.pipelines.crops import Crop, Mirror
from whyidle.pipelines.protocol import PhotoFiles, Settings
from whyidle.pipelines.stages import Normalise, Resize
from whyidle.scenarios.datasets import records
from whyidle.scenarios.datasets.image_folder import ImageFolder, open_folder
from whyidle.scenarios.datasets.records import Records, open_records, store_bytes

lmdb = pytest.importorskip("lmdb")

SIDE = 40
STAGES = (Crop(32), Mirror(), Normalise())


@pytest.fixture
def photos(tmp_path: Path) -> ImageFolder:
    return open_folder(photographs(tmp_path / "set", ant=4, bee=4), (Resize(SIDE), *STAGES))


def opened(photos: ImageFolder, said: list[str] | None = None) -> Records:
    return open_records(photos, SIDE, STAGES, say=(said if said is not None else []).append)


def stores(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache").rglob("*.lmdb"))


def test_a_store_is_made_once_its_size_said_before_and_gives_the_samples_of_the_files(
    photos: ImageFolder, tmp_path: Path
) -> None:
    said: list[str] = []
    opened(photos, said)
    (file,) = stores(tmp_path)
    assert SIDE * SIDE * 3 * 8 < file.stat().st_size <= store_bytes(8, SIDE)
    before = file.stat().st_mtime_ns
    kept, settings = opened(photos, said), Settings(2)
    assert file.stat().st_mtime_ns == before
    assert ["8 records of 40 × 40 × 3 bytes" in each for each in said] == [True]
    for index in range(len(photos)):
        one, other = (make_sample(data, index, 1, settings) for data in (photos, kept))
        np.testing.assert_array_equal(one.image, other.image)
        assert int(one.targets) == int(other.targets)
        assert other.read_bytes == SIDE * SIDE * 3
    assert not isinstance(kept, PhotoFiles)
    with pytest.raises(DataError, match=r"Record 99 of .* is missing"):
        kept.read(99)


@pytest.mark.parametrize(
    ("full", "said"),
    [(True, r"records of 8 photographs take .* GB left\. Use --limit, or --store files"), (False, "cannot be read")],
)
def test_a_full_disk_or_a_photograph_that_cannot_be_read_leaves_no_half_of_a_store(
    photos: ImageFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: bool, said: str
) -> None:
    if full:
        monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(total=10**6, used=10**6, free=10**4))
    else:
        photos.path(5).unlink()
    with pytest.raises(DataError, match=said):
        opened(photos)
    assert not [*stores(tmp_path), *(tmp_path / "cache").rglob("*.part")]


def test_choices_of_as_many_photographs_have_stores_side_by_side(photos: ImageFolder, tmp_path: Path) -> None:
    # Another photograph in the place of one: as many of the same folder.
    few = open_folder(tmp_path / "set", photos.stages, limit=4)
    gone = photos.path(0)
    kept = gone.read_bytes()
    gone.unlink()
    others = open_folder(tmp_path / "set", photos.stages, limit=4)
    gone.write_bytes(kept)
    assert few.names.tolist() != others.names.tolist()
    for data in (few, others):
        for index in range(4):
            one, other = (make_sample(each, index, 1, Settings(2)) for each in (data, opened(data)))
            np.testing.assert_array_equal(one.image, other.image)
    assert len(stores(tmp_path)) == 2


@pytest.mark.parametrize("foreign", ["no store", "of another program", "of other photographs"])
def test_what_is_no_store_of_ours_is_refused(photos: ImageFolder, tmp_path: Path, foreign: str) -> None:
    opened(photos)
    (file,) = stores(tmp_path)
    records._OPENED.pop(file)[1].close()
    file.unlink()
    said = "not a store of records that whyidle made"
    if foreign == "no store":
        file.write_bytes(b"something else" * 1000)
    elif foreign == "of another program":
        with lmdb.open(str(file), subdir=False, lock=False) as environment, environment.begin(write=True) as written:
            written.put(b"00000000", b"a datum")
    else:
        opened(open_folder(tmp_path / "set", photos.stages, limit=4))
        (few,) = stores(tmp_path)
        records._OPENED.pop(few)[1].close()
        few.replace(file)
        said = r"holds other records than those of.*Remove it"
    with pytest.raises(DataError, match=said):
        opened(photos)


def test_a_forked_process_reads_what_its_parent_reads_and_harms_nothing(photos: ImageFolder) -> None:
    kept = opened(photos)
    first = kept.read(1)
    assert pickle.loads(pickle.dumps(kept)).read(1) == opened(photos).read(1) == first
    child = os.fork()
    if child == 0:
        os._exit(0 if kept.read(1) == first and kept.read(2) != first else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.read(1) == first


def test_without_lmdb_the_message_says_what_to_install(photos: ImageFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lmdb", None)
    with pytest.raises(MissingExtra, match=r"pip install 'whyidle\[studies\]'"):
        opened(photos)
