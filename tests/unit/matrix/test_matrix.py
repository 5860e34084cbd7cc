"""Cells by rounds, with a stand-in for the trainings; what a budget has room for; what is named is used."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from support.virtual_trials import VirtualServer
from whyidle.analyse.cells.comparison import Cell
from whyidle.capture.sampler.start import NO_STACKS, StackOptions
from whyidle.errors import RecordError, WhyidleError
from whyidle.matrix.experiment import require_used
from whyidle.matrix.matrix import Matrix, PlannedCell, free_folder, pending
from whyidle.matrix.trial import TrialOutcome
from whyidle.record.comparison import read_comparison
from whyidle.scenarios.planted import MS, Step, train
from whyidle.scenarios.registry import NAMES, scenario
from whyidle.scenarios.scenario import ExperimentRequest
from whyidle.scenarios.variant import plain

TARGET = "module:function"


def leave(folder: Path, spec: tuple[str, int], description: dict[str, Any]) -> None:
    name, number = spec
    assert folder.name == f"{name}-r{number}"
    train(folder, [[Step(fetch_ns=10 * MS, compute_ns=5 * MS)] * description["steps"]], samples=8)


SERVER = VirtualServer(TARGET, leave)


class Told(nullcontext[Any]):
    """What progress is told."""

    def __init__(self) -> None:
        super().__init__(self)
        self.began: list[str] = []
        self.ended: list[tuple[str, str]] = []

    def begin(self, folder: Path) -> None:
        self.began.append(folder.name)

    def tick(self) -> None:
        pass

    def end(self, title: str, cell: Cell) -> None:
        self.ended.append((title, cell.status))


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    SERVER.stand_in(monkeypatch)


def made(folder: Path, *cells: PlannedCell, repeats: int = 2) -> Matrix:
    return Matrix(folder, cells, TARGET, {"scenario": "none"}, repeats=repeats)


def cell(name: str, steps: int = 40, unmet: str | None = None, **more: Any) -> PlannedCell:
    def trial(number: int, folder: Path) -> tuple[Any, dict[str, Any]]:
        return (name, number), {"steps": steps}

    return PlannedCell(name, name.upper(), pending(name, 8, unmet), trial, **more)


def test_rounds_have_every_cell_once_and_first_cells_have_all_theirs_before(tmp_path: Path) -> None:
    looked = cell("b", stacks=StackOptions(rate=5.0))
    table = made(tmp_path, cell("a"), looked, cell("c", first=True), cell("d", unmet="no such thing here"))
    assert table.runs_ahead == 6
    told = Told()
    assert not table.run(told)
    assert SERVER.ran[:2] == [("c", 0), ("c", 1)]
    assert {(name, looked) for (name, _), looked in zip(SERVER.ran, SERVER.stacks, strict=True)} == {
        *(("a", NO_STACKS), ("b", StackOptions(rate=5.0)), ("c", NO_STACKS))
    }
    assert [{name for name, _ in SERVER.ran[at : at + 2]} for at in (2, 4)] == [{"a", "b"}] * 2
    assert told.ended == [(name.upper(), "ok") for name, _ in SERVER.ran]
    assert told.began == [f"{name}-r{number}" for name, number in SERVER.ran]
    assert [(each.status, each.error, [row.round for row, _ in each.counted]) for each in table.cells] == [
        *[("ok", None, [0, 1])] * 3,
        ("skipped", "no such thing here", []),
    ]


def test_the_folder_names_each_run_before_it_runs(tmp_path: Path) -> None:
    def look(spec: tuple[str, int]) -> None:
        name, number = spec
        [kept] = [record for record in read_comparison(tmp_path)[1] if record.pipeline == name]
        assert kept.runs[-1] == f"{name}-r{number}"
        assert kept.status == ("ok" if number else "pending")

    SERVER.then = look
    made(tmp_path, cell("a"), cell("b")).run(Told())
    setting, records = read_comparison(tmp_path)
    assert setting == {"scenario": "none"}
    assert [(record.status, record.runs) for record in records] == [("ok", (f"{n}-r0", f"{n}-r1")) for n in "ab"]


@pytest.mark.parametrize("why", ["failed", "full", "short"])
def test_a_cell_that_fails_is_not_tried_again_and_the_others_go_on(tmp_path: Path, why: str) -> None:
    def spoil(name: str, number: int) -> TrialOutcome | None:
        if name == "a" and why == "full":
            raise RecordError("no space left on device")
        return TrialOutcome("failed", "no fork") if name == "a" and why == "failed" else None

    SERVER.then = lambda spec: spoil(*spec)
    table = made(tmp_path, cell("a", steps=1 if why == "short" else 40), cell("b"))
    assert not table.run(Told())
    assert SERVER.ran == [("a", 0), ("b", 0), ("b", 1)]
    assert [each.status for each in table.cells] == ["failed", "ok"]
    said = {"failed": "no fork", "full": "no space left on device", "short": "it ran fewer than 2 steps: choose more"}
    assert str(table.cells[0].error).startswith(said[why])


@pytest.mark.parametrize(("steps", "counts"), [(40, True), (1, False)])
def test_ctrl_c_keeps_what_was_measured_and_says_what_was_not(tmp_path: Path, steps: int, counts: bool) -> None:
    def stop(name: str, number: int) -> None:
        if name == "b":
            raise KeyboardInterrupt

    SERVER.then = lambda spec: stop(*spec)
    table = made(tmp_path, cell("a"), cell("b", steps), cell("c"))
    assert table.run(Told())
    assert [(each.status, each.error) for each in table.cells] == [
        ("ok", None),
        ("ok" if counts else "skipped", "stopped by Ctrl-C"),
        ("skipped", "not run: stopped by Ctrl-C"),
    ]
    assert [record.status for record in read_comparison(tmp_path)[1]] == [each.status for each in table.cells]


def test_a_folder_that_is_in_use_is_none_to_measure_into(tmp_path: Path) -> None:
    made(tmp_path / "kept", cell("a")).run(Told())
    with pytest.raises(WhyidleError, match=r"already holds a comparison\. Choose another folder with --out"):
        free_folder(tmp_path / "kept", "ssd")
    with pytest.raises(WhyidleError, match="is not empty"):
        free_folder(tmp_path, "ssd")
    assert free_folder(tmp_path / "new", "ssd") == tmp_path / "new"
    assert str(free_folder(None, "ssd")).startswith("runs/ssd-")


def checked(name: str, experiment: str, kind: str = "emulated", **named: Any) -> set[Any]:
    """The variants, if all that was named is used."""
    devices = {"emulated": ("emulated:v100",), "cpu": ("cpu",)}[kind]
    given: dict[str, Any] = {"devices": devices, "pipelines": ("naive", "workers"), "cpus": 2} | named
    asked = ExperimentRequest(kind=kind, **given)
    chosen = scenario(name).experiment(experiment)
    variants = list(dict.fromkeys(plain(each) for each in chosen.variants(asked)))
    require_used(asked, variants, chosen.name, name)
    return set(variants)


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_takes_every_option_with_its_loaders(name: str) -> None:
    lists: dict[str, Any] = {"ranks": (1, 2), "threads": (1, 3), "batch_sizes": (4, 8)}
    lists["feeds"] = ("real", "synthetic", "loader-only")
    made = checked(name, "loaders", "cpu", **lists, pipelines_asked=True, workers=3, augment=False, iterations=7)
    real = [each for each in made if each.feed == "real"]
    assert {(each.ranks, each.threads) for each in real} == {(1, 1), (1, 3), (2, 1), (2, 3)}
    assert {each.ranks for each in checked(name, "loaders", ranks=(2,), interconnects=("pcie3",))} == {2}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_runs_as_it_is(name: str) -> None:
    for experiment in scenario(name).experiments:
        kind = "cpu" if (name, experiment.name) == ("ssd", "accuracy") else "emulated"
        assert checked(name, experiment.name, kind)


@pytest.mark.parametrize(
    ("name", "experiment", "named", "said"),
    [
        ("fashion-mnist", "plan", {"ranks": (2,)}, "plan of fashion-mnist does not use --ranks 2"),
        ("fashion-mnist", "plan", {"epochs": 3}, "not use --epochs 3"),
        ("fashion-mnist", "plan", {"iterations": 30}, "not use --iterations 30"),
        ("fashion-mnist", "plan", {"feeds": ("synthetic",)}, "not use --feed synthetic"),
        ("fashion-mnist", "plan", {"augment": False}, "not use --no-augment"),
        ("cost", "threads", {"ranks": (1, 2)}, "not use --ranks 2"),
        ("convnets", "placement", {"pipelines": ("threads",), "pipelines_asked": True}, "not use --pipelines threads"),
        ("convnets", "forward", {"threads": (1, 2)}, "not use --threads 2"),
        ("cost", "loaders", {"interconnects": ("pcie3",)}, "not use --interconnect pcie3.*several --ranks"),
    ],
)
def test_what_has_no_place_is_refused(name: str, experiment: str, named: dict[str, Any], said: str) -> None:
    with pytest.raises(WhyidleError, match=f"{said}.*Leave it out or choose another --experiment"):
        checked(name, experiment, **named)


def test_a_batch_from_memory_has_no_loader_to_complain_of() -> None:
    made = checked("fashion-mnist", "loaders", feeds=("synthetic",), pipelines_asked=True, workers=3)
    assert {each.workers for each in made} == {0}
