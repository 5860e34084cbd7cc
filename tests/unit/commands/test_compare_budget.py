"""`whyidle compare SCENARIO --budget SECONDS` without its trainings: a stand-in's runs on a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.virtual_trials import VirtualServer
from whyidle.commands.main import main
from whyidle.matrix import experiment, matrix
from whyidle.scenarios.planted import MS, Step, train
from whyidle.scenarios.voc.generate import compose


class TimedServer(VirtualServer):
    """Lets the clock go on."""

    now = 0.0
    start_s = 5.0
    run_s: Callable[[Any], float] = staticmethod(lambda spec: 10.0)

    def __init__(self) -> None:
        super().__init__(experiment.TARGET, self.leave)

    def __call__(self, target: str) -> VirtualServer:
        self.now += self.start_s
        return super().__call__(target)

    def leave(self, folder: Path, spec: Any, _: dict[str, Any]) -> None:
        train(folder, [[Step(fetch_ns=10 * MS, compute_ns=5 * MS)] * 40], samples=spec.batch_size)
        self.now += self.run_s(spec)

    @property
    def cells(self) -> list[tuple[str, int]]:
        return [(spec.pipeline, spec.batch_size) for spec in self.ran]


@pytest.fixture(autouse=True)
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> TimedServer:
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    server = TimedServer()
    server.stand_in(monkeypatch)
    monkeypatch.setattr(matrix, "clock", lambda: server.now)
    return server


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("voc")
    compose(folder, 40, 0)
    return folder


@pytest.fixture
def compared(images: Path, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    def run(*words: str) -> tuple[int, dict[str, Any]]:
        result = tmp_path / "result.json"
        asked = ["--device", "emulated:v100", "--batch-sizes", "4,8", "--epochs", "2", "--no-roofline"]
        asked += ["--pipelines", "naive,caffe,workers", *words, "--out", str(tmp_path / "made")]
        code = main(["compare", "ssd", "--data", str(images), *asked, "--json", str(result)])
        return code, json.loads(result.read_text())

    return run


def runs(told: dict[str, Any]) -> dict[tuple[str, int], int]:
    return {(cell["pipeline"], cell["batch_size"]): cell["repeats"] for cell in told["cells"]}


Compared = Callable[..., tuple[int, dict[str, Any]]]


def test_runs_begin_while_they_fit_and_what_was_left_out_is_said(
    compared: Compared, capsys: pytest.CaptureFixture[str], tmp_path: Path, server: TimedServer
) -> None:
    code, told = compared("--budget", "50")
    # 5 s for the server; then four runs of 10 s, since a fifth would end at 55 s.
    assert code == 0
    assert server.cells == [("naive", 4), ("naive", 8), ("caffe", 4), ("caffe", 8)]
    assert told["budget"] == {"seconds": 50, "runs_left_out": 14}
    [notice] = [text for text in told["notices"] if "budget" in text]
    assert notice == (
        "The budget of 50 s was used up, and 14 of 18 runs were left out. A larger --budget runs more of them; without "
        "--budget all run."
    )
    shown = capsys.readouterr().out
    assert "at most 3 runs a cell" in shown
    assert notice in " ".join(shown.split())
    assert "workers at batch 4; workers at batch 8: skipped: not run: the budget of 50 s was used up" in shown
    assert main(["report", str(tmp_path / "made")]) == 0
    assert capsys.readouterr().out.strip() in shown


def test_loaders_that_come_first_have_their_rounds_and_the_top(compared: Compared, server: TimedServer) -> None:
    _, told = compared("--budget", "85", "--first", "workers,caffe", "--repeats", "2")
    first = [(name, size) for name in ("caffe", "workers") for size in (4, 8)]
    assert server.cells[:4] == first
    assert sorted(server.cells[4:]) == first
    assert list(runs(told).items()) == [*((each, 2) for each in first), (("naive", 4), 0), (("naive", 8), 0)]
    assert told["batch_verdicts"]["caffe"]["runs"] == {"4": 2, "8": 2}


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        # In the second round caffe does not fit any more, what is shorter does; in the third one run of naive.
        ("150", {"naive": 5, "caffe": 2, "workers": 4}),
        # A cell that never ran is taken to need what the others did: caffe begins, and ends late.
        ("30", {"naive": 2, "caffe": 1, "workers": 0}),
        # The first run is never left out.
        ("1", {"naive": 1, "caffe": 0, "workers": 0}),
    ],
)
def test_a_run_begins_if_it_fits_by_the_latest_of_its_cell_or_the_median_of_others(
    compared: Compared, server: TimedServer, budget: str, expected: dict[str, int]
) -> None:
    server.run_s = lambda spec: {"naive": 5.0, "caffe": 40.0, "workers": 10.0}[spec.pipeline]
    _, told = compared("--budget", budget)
    assert {name: sum(n for (of, _), n in runs(told).items() if of == name) for name in expected} == expected


@pytest.mark.parametrize(("words", "seconds"), [(("--budget", "185"), 10), (("--first", "workers"), 1e6)])
def test_with_room_for_all_nothing_is_left_out_or_said(
    compared: Compared, server: TimedServer, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], seconds: float
) -> None:
    server.run_s = lambda spec: seconds
    _, told = compared(*words)
    assert set(runs(told).values()) == {3}
    assert told.get("budget") == ({"seconds": 185, "runs_left_out": 0} if "--budget" in words else None)
    assert "--first" not in words or {name for name, _ in server.cells[:6]} == {"workers"}
    shown = " ".join(capsys.readouterr().out.split())
    assert "budget" not in shown
    assert ", 3 runs a cell in interleaved rounds," in shown
