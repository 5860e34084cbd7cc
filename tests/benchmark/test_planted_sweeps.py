"""`whyidle-bench batch-sizes` without its trainings: arguments, and what becomes of a stand-in's runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.virtual_trials import VirtualServer
from whyidle.matrix.trial import TrialOutcome
from whyidle.scenarios.planted import MS, Step, train
from whyidle_bench import batch_sizes
from whyidle_bench.__main__ import main
from whyidle_bench.cases.case import CONTROL, Case, Plan
from whyidle_bench.cases.truth import Stamp, write_truth
from whyidle_bench.sweeps.registry import SWEEPS

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


def measured(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON."""
    folder.mkdir(exist_ok=True)
    result = folder / "result.json"
    code = main(["batch-sizes", "--out", str(folder / "made"), "--json", str(result), *arguments])
    return code, json.loads(result.read_text())


def test_a_sweep_is_judged_beside_what_was_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = measured(tmp_path, "--cases", f"{GROWS},{FLAT}", "--repeats", "2")
    assert code == 0
    assert (told["format"], told["version"], told["scenario"]) == ("whyidle-compare", 1, "batch-sizes")
    assert [(cell["pipeline"], cell["batch_size"], cell["status"]) for cell in told["cells"]] == [
        *((GROWS, size, "ok") for size in (4, 16)),
        *((FLAT, size, "ok") for size in (4, 8, 16)),
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
    assert shown.err.splitlines()[0].startswith("10 runs of about ")
    # What was kept is judged again with the same result.
    again = tmp_path / "again.json"
    assert main(["batch-sizes", "--from", str(tmp_path / "made"), "--json", str(again)]) == 0
    assert capsys.readouterr().out == shown.out
    assert json.loads(again.read_text()) == told


def test_a_sweep_that_is_not_as_planted_is_called_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(globals(), "step_of", lambda sweep, batch: Step(fetch_ns=0, compute_ns=2 * batch * MS))
    code, told = measured(tmp_path, "--cases", GROWS)
    assert code == 0
    assert (told["sweeps"][GROWS]["right"], told["sweeps"][GROWS]["named"]["cause"]) == (False, "saturated")
    shown = capsys.readouterr().out
    assert "Cause and term as planted: 0 of 1." in shown
    assert f"| {GROWS} | compute | **saturated** |" in shown


def test_a_size_that_fails_leaves_its_sweep_unjudged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SERVER.then = lambda spec: TrialOutcome("failed", "no fork") if spec.sweep == GROWS else None
    assert measured(tmp_path / "alone", "--cases", GROWS)[0] == 1
    assert f"| {GROWS} | compute | not judged |" in capsys.readouterr().out
    SERVER.ran.clear()
    code, told = measured(tmp_path, "--cases", f"{GROWS},{FLAT}")
    assert code == 0
    assert {spec.repetition for spec in SERVER.ran} == set(range(5))
    assert (told["sweeps"][GROWS]["named"], told["sweeps"][GROWS]["growth_pct"]) == (None, None)
    assert told["sweeps"][FLAT]["right"]
    assert len([spec for spec in SERVER.ran if spec.sweep == GROWS]) == 2
    shown = capsys.readouterr().out
    assert f"- {GROWS}, batch 4: failed: no fork" in shown
    assert "Cause and term as planted: 1 of 2." in shown
