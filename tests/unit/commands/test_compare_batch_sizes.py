"""`whyidle compare batch-sizes` without its trainings: arguments, and what becomes of a stand-in's runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.virtual_trials import VirtualServer
from whyidle.commands.main import main
from whyidle.diagnosis_benchmark import batch_sizes
from whyidle.matrix.trial import TrialOutcome
from whyidle.record.comparison import read_comparison
from whyidle.scenarios.faults.case import CONTROL, Case, Plan
from whyidle.scenarios.faults.truth import Stamp, write_truth
from whyidle.scenarios.planted import MS, Step, train
from whyidle.scenarios.sweeps.registry import SWEEPS

SAMPLES = 800
GROWS = "compute_growth"
FLAT = "saturated"


def step_of(sweep: str, batch: int) -> Step:
    """The device takes 2 ms a sample; where that grows, 3 ms at the large size."""
    grows = sweep == GROWS and batch == max(SWEEPS[GROWS].sizes)
    return Step(fetch_ns=0, compute_ns=batch * (3 if grows else 2) * MS)


def leave(folder: Path, spec: Any, _: dict[str, Any]) -> None:
    recorded = train(folder, [[step_of(spec.sweep, spec.batch)] * (SAMPLES // spec.batch)], samples=spec.batch)
    stamps = [Stamp(what, begin, end) for what, begin, end in recorded.host]
    write_truth(folder, Case(spec.sweep, (), CONTROL, Plan()), stamps)


SERVER = VirtualServer(batch_sizes.TARGET, leave)


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    SERVER.stand_in(monkeypatch)


def compare(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON."""
    result = folder / "result.json"
    code = main(["compare", "batch-sizes", "--out", str(folder / "made"), "--json", str(result), *arguments])
    return code, json.loads(result.read_text())


def test_a_sweep_is_judged_beside_what_was_planted_and_what_was_true(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = compare(tmp_path, "--cases", f"{GROWS},{FLAT}", "--batch-sizes", "4,16", "--repeats", "2")
    assert code == 0
    assert (told["format"], told["version"], told["scenario"]) == ("whyidle-compare", 1, "batch-sizes")
    assert [(cell["pipeline"], cell["batch_size"], cell["status"]) for cell in told["cells"]] == [
        *((GROWS, size, "ok") for size in (4, 16)),
        *((FLAT, size, "ok") for size in (4, 16)),
    ]
    grows, flat = told["sweeps"][GROWS], told["sweeps"][FLAT]
    assert grows["planted"] == grows["named"] == {"cause": GROWS, "grew": "compute"}
    assert flat["planted"] == flat["named"] == {"cause": FLAT, "grew": None}
    assert (grows["right"], flat["right"]) == (True, True)
    assert grows["growth_pct"] == {"true": pytest.approx(50, abs=1), "reported": pytest.approx(50, abs=1)}
    assert grows["true_terms"]["16"]["compute"] == pytest.approx(3000, rel=0.01)
    assert set(told["batch_verdicts"]) == {GROWS, FLAT}
    shown = capsys.readouterr()
    assert "Cause and term as planted: 2 of 2." in shown.out
    assert shown.err.splitlines()[0].startswith("8 runs of about ")


def test_the_report_of_such_a_folder_is_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = compare(tmp_path, "--cases", GROWS, "--repeats", "2")
    first = capsys.readouterr().out
    assert main(["report", str(tmp_path / "made")]) == 0
    again = capsys.readouterr().out
    assert again.splitlines() == first.splitlines()[: len(again.splitlines())]
    assert main(["report", str(tmp_path / "made"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == told


def test_rounds_are_interleaved_and_three_by_default(tmp_path: Path) -> None:
    compare(tmp_path, "--cases", GROWS, "--seed", "7")
    assert [spec.repetition for spec in SERVER.ran] == [0, 0, 1, 1, 2, 2]
    assert all({s.batch for s in SERVER.ran if s.repetition == number} == {4, 16} for number in range(3))
    assert {spec.seed for spec in SERVER.ran} == {7}
    assert (tmp_path / "made" / f"{GROWS}-b16-r2" / "run.json").is_file()


def test_a_sweep_that_is_not_as_planted_is_called_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(globals(), "step_of", lambda sweep, batch: Step(fetch_ns=0, compute_ns=2 * batch * MS))
    code, told = compare(tmp_path, "--cases", GROWS)
    assert code == 0
    assert (told["sweeps"][GROWS]["right"], told["sweeps"][GROWS]["named"]["cause"]) == (False, "saturated")
    shown = capsys.readouterr().out
    assert "Cause and term as planted: 0 of 1." in shown
    assert any(line.split()[:2] == ["✗", GROWS] for line in shown.splitlines())


def test_a_size_that_fails_leaves_its_sweep_unjudged_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    SERVER.then = lambda spec: TrialOutcome("failed", "no fork") if spec.sweep == GROWS else None
    code, told = compare(tmp_path, "--cases", f"{GROWS},{FLAT}", "--batch-sizes", "4,16")
    assert code == 0
    assert (told["sweeps"][GROWS]["named"], told["sweeps"][GROWS]["growth_pct"]) == (None, None)
    assert told["sweeps"][FLAT]["right"]
    assert len([spec for spec in SERVER.ran if spec.sweep == GROWS]) == 2
    shown = capsys.readouterr().out
    assert f"{GROWS}-b4: failed: no fork" in shown
    assert "Cause and term as planted: 1 of 1." in shown


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(spec: Any) -> None:
        if len(SERVER.ran) == 3:
            raise KeyboardInterrupt

    SERVER.then = stop
    code, told = compare(tmp_path, "--cases", f"{GROWS},{FLAT}", "--batch-sizes", "4,16")
    assert code == 130
    # In the third run Ctrl-C came after enough steps to count it.
    assert [cell["status"] for cell in told["cells"]] == ["ok", "ok", "ok", "skipped"]
    assert told["cells"][3]["error"] == "not run: stopped by Ctrl-C"
    assert told["sweeps"][GROWS]["right"]
    assert told["sweeps"][FLAT]["named"] is None
    assert "too few sizes" in capsys.readouterr().out
    assert [record.status for record in read_comparison(tmp_path / "made")[1]] == ["ok", "ok", "ok", "skipped"]


def test_nothing_judged_is_an_exit_code_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SERVER.then = lambda spec: TrialOutcome("failed", "no fork")
    code, _ = compare(tmp_path, "--cases", GROWS)
    assert code == 1
    assert "Nothing was judged" in capsys.readouterr().out


def test_a_picture_of_the_sweeps_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    code, _ = compare(tmp_path, "--cases", GROWS, "--plot", str(tmp_path / "sweeps.svg"))
    assert code == 0
    assert "<svg" in (tmp_path / "sweeps.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--device", "cpu", "--epochs", "2"], "--device, --epochs are options of other scenarios"),
        (["--foreign-load"], "--foreign-load is an option of other scenarios"),
        (["--controls"], "--controls is an option of other scenarios"),
        (["--no-augment"], "--no-augment is an option"),
        (["--cases", "pading"], "Did you mean padding?"),
        (["--cases", "input.serial"], "unknown case 'input.serial'"),
        (["--cases", ","], "--cases ',' names no case"),
        (["--batch-sizes", "4,16"], "accounting is planted at 8, 16"),
        (["--cases", GROWS, "--batch-sizes", "4"], f"{GROWS} is planted at 4, 16, and takes two of these"),
        (["--cases", GROWS, "--json", "nowhere/at/all.json"], "there is no folder"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compare", "batch-sizes", *arguments, "--out", str(tmp_path / "made")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "made").exists()


def test_choosing_and_reading_sweeps_brings_no_torch() -> None:
    code = (
        "import sys, whyidle.diagnosis_benchmark.batch_sizes, whyidle.scenarios.sweeps.registry, "
        "whyidle.scenarios.sweeps.truth; print('torch' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "False"
