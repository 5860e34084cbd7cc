"""`whyidle roofline`: of folders, runs and scenarios, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from whyidle.commands.main import main
from whyidle.record.image_files import write_image_files
from whyidle.record.run import create_run
from whyidle.scenarios import roofline
from whyidle.scenarios.voc.generate import compose


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    compose(folder, 8, 0)
    return folder


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline.measured, "__defaults__", (0.0,))


@pytest.mark.parametrize("augmented", [True, False])
def test_of_a_folder_every_part_is_told(photos: Path, augmented: bool, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--size", "32", "--rounds", "2", "--device", "cpu", *([] if augmented else ["--no-augment"])]
    assert main(["roofline", str(photos), *options, "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["format"], told["size"], told["dataset"]["samples"]) == ("whyidle-roofline", 32, 8)
    assert told["place"] == {"net": None, "store": "files", "augment": augmented}
    making = [part for part in told["parts"] if part["kind"] == "making"]
    assert [part["name"] for part in making] == ["read", "decode", "draw", "colours", "resize", "normalise"]
    assert told["limit"] == pytest.approx(1 / sum(1 / part["all_cores"]["median"] for part in making))
    assert main(["roofline", str(photos), *options]) == 0
    assert "Limit: " in capsys.readouterr().out


def test_of_a_run_it_is_of_its_files(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    create_run(run, {})
    assert main(["roofline", str(run)]) == 2
    assert "no JPEG files are known" in capsys.readouterr().err
    write_image_files(run, [str(path) for path in sorted(photos.rglob("*.jpg"))[:5]])
    assert main(["roofline", str(run), "--rounds", "1", "--device", "cpu", "--json", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text())["dataset"]["samples"] == 5


def test_of_a_scenario_it_is_of_its_samples_as_augmented(photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["roofline", "ssd", "--data", str(photos), "--rounds", "1", "--device", "cpu", "--json", "-"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["place"]["augment"] is True
    assert "colours" in [part["name"] for part in told["parts"]]
    assert told["dataset"]["stand_in"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere/photos"], "nowhere/photos does not exist"),
        (["no-such"], "unknown scenario 'no-such'"),
        (["ssd", "--size", "32"], "--size is an option of folders"),
        (["{photos}", "--net", "a"], "--net is an option of scenarios"),
        (["{empty}"], "hold no JPEG files"),
        (["ssd", "--store", "tape"], "no store 'tape'"),
    ],
)
def test_a_mistake_is_said_in_a_line(
    arguments: list[str], said: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [each.format(photos=photos, empty=tmp_path) for each in arguments]
    assert main(["roofline", *given]) == 2
    assert said in capsys.readouterr().err
