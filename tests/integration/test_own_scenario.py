"""The page on a scenario of one's own: its example, run as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from support.runs import mistaken
from whyidle.commands.main import main

PAGE = Path(__file__).parents[2] / "docs" / "scenarios" / "your-own.md"
ROWS = """
from pathlib import Path

import torch

from whyidle.scenarios.scenario import Scenario


class Table(Scenario):
    name, study, question = "table", "numbers", "which loader?"
    nets = cpu_nets = ("linear",)
    data = "rows.npy and labels.npy"
    batch_sizes = (8,)

    def find_data(self, net, say):
        raise AssertionError("--data was given")

    def open_data(self, request):
        rows = Rows(request.folder / "rows.npy", request.folder / "labels.npy")
        rows.stages = (add_noise,) if request.augment else ()
        return rows

    def build(self, net, data):
        return torch.nn.Linear(16, 3)


SCENARIO = Table()
"""


def _examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def _pictures(folder: Path) -> Path:
    random = np.random.default_rng(0)
    for name in ("rose", "tulip"):
        (folder / name).mkdir(parents=True)
        for number in range(12):
            Image.fromarray(random.integers(0, 255, (70, 90, 3), np.uint8)).save(folder / name / f"{number}.jpg")
    return folder


def _compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *words: str) -> dict[str, dict[str, object]]:
    monkeypatch.chdir(tmp_path)
    assert main(["compare", *words, "--no-live", "--repeats", "1", "--json", "table.json"]) == 0
    cells = json.loads(Path("table.json").read_text())["cells"]
    return {f"{cell['pipeline']} {cell['feed']}": cell for cell in cells}


@pytest.mark.slow
def test_the_pages_example_compares_loaders_on_a_folder_of_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flowers.py").write_text(_examples()[0])
    pictures = _pictures(tmp_path / "pictures")
    cells = _compared(
        tmp_path,
        monkeypatch,
        *("flowers.py", "--data", str(pictures), "--batch-sizes", "4", "--pipelines", "naive,workers"),
        *("--feed", "real,synthetic", "--iterations", "5"),
    )
    assert {name: cell["status"] for name, cell in cells.items()} == {
        "naive real": "ok",
        "workers real": "ok",
        "synthetic synthetic": "ok",
    }
    assert all(cell["net"] == "mobilenet_v3_small" for cell in cells.values())


@pytest.mark.slow
def test_a_dataset_that_is_no_photographs_goes_through_every_loader_that_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, rows, stage = _examples()
    (tmp_path / "table_of_mine.py").write_text(rows + stage + ROWS)
    random = np.random.default_rng(0)
    np.save(tmp_path / "rows.npy", random.normal(size=(64, 16)).astype(np.float32))
    np.save(tmp_path / "labels.npy", random.integers(0, 3, 64))
    cells = _compared(
        tmp_path,
        monkeypatch,
        *("table_of_mine.py", "--data", str(tmp_path), "--pipelines", "naive,caffe,workers,threads"),
    )
    assert {name: cell["status"] for name, cell in cells.items()} == {
        "naive real": "ok",
        "caffe real": "skipped",
        "workers real": "ok",
        "threads real": "ok",
    }
    assert "JPEG" in str(cells["caffe real"]["error"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SCENARIO = 3", "defines no SCENARIO"),
        ("import nothing_of_that_name", "could not be run: ModuleNotFoundError"),
        (None, "there is no file"),
    ],
)
def test_a_file_that_is_no_scenario_is_one_clear_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, said: str
) -> None:
    file = tmp_path / f"broken_{abs(hash(text))}.py"
    if text is not None:
        file.write_text(text)
    assert said in mistaken(capsys, "compare", file)
