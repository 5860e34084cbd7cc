"""Which image files a training reads, and how fast they could be decoded, on one core and on all at once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from whyidle.capture.all_cores import AllCores
from whyidle.capture.hooks.loop import MOST, image_files
from whyidle.errors import WhyidleError
from whyidle.matrix.ceilings import decoding_of
from whyidle.record.run import IMAGE_FILES, ImageDecoding, read_image_files, write_image_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(200):
        (tmp_path / f"{number:03}.jpg").write_bytes(b"")
    return tmp_path


def held(**attributes: Any) -> SimpleNamespace:
    return SimpleNamespace(**attributes)


def test_paths_in_a_list_in_rows_or_below_a_root_are_found(folder: Path) -> None:
    every = sorted(folder.iterdir())
    names = [path.name for path in every]
    expected = {str(path) for path in every}
    for data in (
        held(files=every),
        held(samples=[(str(path), 3) for path in every]),
        held(root=str(folder), names=np.array(names)),
        held(dataset=held(transform=None, dataset=held(root=folder, images=tuple(names)))),
    ):
        found = image_files(data)
        assert MOST / 2 < len(found) <= MOST
        assert set(found) <= expected
        assert int(Path(found[-1]).stem) > 150  # from all of them


def test_what_lists_no_files_that_are_there_tells_none(folder: Path) -> None:
    for data in (
        None,
        [1, 2],
        held(),
        held(files=[]),
        held(files=["gone.jpg"]),
        held(files=[str(folder / "a.png")]),
        held(labels=[1, 2, 3], classes=["a", "b"]),
        held(table={"a.jpg": 1}),
        held(rows=np.arange(10)),
        3,
    ):
        assert image_files(data) == ()


def test_no_code_of_the_data_set_runs_for_it(folder: Path) -> None:
    class Lazy(list[str]):
        def __getitem__(self, index: Any) -> Any:
            raise AssertionError("a list of its own is asked for an entry")

    class Data:
        def __init__(self) -> None:
            self.files = Lazy([str(folder / "000.jpg")])

        @property
        def samples(self) -> list[str]:
            raise AssertionError("a property is asked for")

        def __len__(self) -> int:
            raise AssertionError("its length is asked for")

        def __bool__(self) -> bool:
            raise AssertionError("it is asked whether it is true")

    assert image_files(Data()) == ()


def test_they_are_recorded_and_read_again(tmp_path: Path) -> None:
    assert read_image_files(tmp_path) == []
    there = [str(tmp_path / name) for name in ("a.jpg", "b.jpg")]
    for name in there:
        Path(name).touch()
    write_image_files(tmp_path, [*there, str(tmp_path / "gone.jpg")])
    assert read_image_files(tmp_path) == there


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": [3, null]}', '{"file'])
def test_a_torn_file_tells_none(tmp_path: Path, text: str) -> None:
    (tmp_path / IMAGE_FILES).write_text(text)
    assert read_image_files(tmp_path) == []


def test_decoding_is_what_run_json_has_or_nothing() -> None:
    found = ImageDecoding(96, "simplejpeg", 2, 1000.0, 1900.0)
    assert ImageDecoding.of(found.told()) == found
    told = found.told()["image_decoding"]
    for wrong in ({}, {"one_core": 0}, {"all_cores": float("nan")}, {"decoder": None}, {"cores": 0}, {"files": "x"}):
        assert ImageDecoding.of({"image_decoding": (told | wrong) if wrong else 7}) is None


def test_files_that_are_gone_broken_or_too_few_are_not_measured(folder: Path) -> None:
    assert decoding_of([], 1) is None
    assert decoding_of([str(folder / "000.jpg")], 2) is None
    assert decoding_of([str(folder / "gone.jpg")], 1) is None
    assert decoding_of([str(folder / "000.jpg")], 1) is None  # empty


def naps(process: int) -> dict[str, Callable[[], object]]:
    return {"nap": lambda: time.sleep(0.01), "nothing": lambda: None}


def test_rates_are_of_one_process_and_of_all_together_which_end_with_it() -> None:
    with AllCores(naps, 3) as bench:
        assert bench.names == ("nap", "nothing")
        rates = bench.measure("nap", 0.1)
        started = list(bench._processes)
    # Sleeping takes no core: each does at most 100 a second, whatever else the machine does.
    assert 0 < rates.one <= 100
    assert rates.all <= 300
    bench.close()
    assert [process.is_alive() for process in started] == [False] * 3


def test_each_process_is_told_its_number() -> None:
    with AllCores(lambda process: {str(process): lambda: None}, 2) as bench:
        assert bench.names == ("0",)
        with pytest.raises(WhyidleError, match="'0'"):
            bench.measure("0", 0.01)  # the second has no such part


def test_what_fails_in_a_process_is_said_in_a_line() -> None:
    def broken(process: int) -> dict[str, Callable[[], object]]:
        raise WhyidleError("photo 7 breaks off")

    with pytest.raises(WhyidleError, match="This machine's limits were not measured: photo 7 breaks off"):
        AllCores(broken, 2)


def test_a_process_that_dies_is_no_hang() -> None:
    def dies(process: int) -> dict[str, Callable[[], object]]:
        return {"dies": lambda: os.kill(os.getpid(), signal.SIGKILL)}

    with AllCores(dies, 1) as bench, pytest.raises(WhyidleError, match="a process died"):
        bench.measure("dies", 1.0)
