"""The floor from its command to its report: net alone, loader alone and both, really run on emulated devices."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.idx_files import make_set
from whyidle.commands.main import main

DEVICES = ("emulated:k80", "emulated:v100")


@dataclass(frozen=True)
class Compared:
    folder: Path
    printed: str
    result: dict[str, Any]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """The smallest net and the largest, on a few images that are nobody's."""
    folder = tmp_path_factory.mktemp("floor")
    data = make_set(folder / "set", images=1600)
    words = ["--device", ",".join(DEVICES), "--net", "cnn1,cnn5", "--batch-sizes", "32", "--iterations", "36"]
    words += ["--no-augment", "--no-live", "--data", str(data), "--out", str(folder / "runs")]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["compare", "fashion-mnist", *words, "--json", str(folder / "floor.json")]) == 0
    return Compared(folder, printed.getvalue(), json.loads((folder / "floor.json").read_text()))


def test_every_training_is_held_against_the_slower_of_its_two_partners(compared: Compared) -> None:
    """That it is as long as that: test_an_epoch_is_as_long_as_the_slower_of_net_and_loader, on a virtual clock."""
    found = {(each["net"], each["device"]): each for each in compared.result["differential"]}
    assert set(found) == {(net, device) for net in ("cnn1", "cnn5") for device in DEVICES}
    for each in found.values():
        sides = {"net": each["net_alone"]["median"], "loader": each["loader_alone"]["median"]}
        assert each["expected"]["median"] == pytest.approx(min(sides.values()))
        # Where they are nearly alike, both limit it.
        assert each["limit"] == "both" or sides[each["limit"]] == min(sides.values())
        assert each["measured"]["median"] > 0
        assert each["overlaps"]


def test_a_foreign_set_is_named_in_all_outputs(compared: Compared, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(compared.folder / "runs")]) == 0
    for shown in (compared.printed, capsys.readouterr().out):
        text = "".join(shown.split())
        assert "1280images" in text
        assert "set,notFashion-MNIST" in text
        assert text.index("isnotthepublishedfileofFashion-MNIST") < text.index("samples/s")
    assert len(compared.result["notices"]) == 4
    run = next((compared.folder / "runs").glob("*/run.json"))
    assert json.loads(run.read_text())["dataset"]["set"].endswith("set, not Fashion-MNIST")
