"""`whyidle-bench faults` and `batch-sizes` without their trainings: arguments, and what becomes of planned runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support.virtual_trials import VirtualServer
from whyidle.commands.main import main as whyidle
from whyidle.matrix.trial import TrialOutcome
from whyidle.record.run import update_run
from whyidle.scenarios.planted import MS, Step, train
from whyidle_bench import batch_sizes, faults
from whyidle_bench.__main__ import main
from whyidle_bench.cases import machine
from whyidle_bench.cases.case import CONTROL as NOTHING_PLANTED
from whyidle_bench.cases.case import Case, Plan
from whyidle_bench.cases.registry import CASES
from whyidle_bench.cases.truth import Stamp, write_truth
from whyidle_bench.sweeps.registry import SWEEPS

STEPS = 60
FAULT = "input.serial-middle"
CONTROL = "control.compute"
PLANS = {
    # As planted: the loader takes 10 ms of 25; healthy.
    FAULT: Step(fetch_ns=10 * MS, compute_ns=15 * MS, sync=True),
    CONTROL: Step(fetch_ns=0, compute_ns=20 * MS),
}


def leave(folder: Path, spec: Any, _: dict[str, Any]) -> None:
    recorded = train(folder, [[PLANS[spec.case]] * STEPS])
    write_truth(folder, CASES[spec.case], [Stamp(what, begin, end) for what, begin, end in recorded.host])


SERVER = VirtualServer(faults.TARGET, leave)


SAMPLES = 800
GROWS = "compute_growth"
FLAT = "saturated"


def step_of(sweep: str, batch: int) -> Step:
    """The device takes 2 ms a sample; where that grows, 3 ms at the large size."""
    grows = sweep == GROWS and batch == max(SWEEPS[GROWS].sizes)
    return Step(fetch_ns=0, compute_ns=batch * (3 if grows else 2) * MS)


def leave_sweep(folder: Path, spec: Any, _: dict[str, Any]) -> None:
    recorded = train(folder, [[step_of(spec.sweep, spec.batch)] * (SAMPLES // spec.batch)], samples=spec.batch)
    stamps = [Stamp(what, begin, end) for what, begin, end in recorded.host]
    write_truth(folder, Case(spec.sweep, (), NOTHING_PLANTED, Plan()), stamps)


SWEPT = VirtualServer(batch_sizes.TARGET, leave_sweep)


@pytest.fixture(autouse=True)
def _virtual(monkeypatch: pytest.MonkeyPatch) -> None:
    SERVER.stand_in(monkeypatch)


@pytest.fixture
def swept(monkeypatch: pytest.MonkeyPatch) -> VirtualServer:
    SWEPT.stand_in(monkeypatch)
    return SWEPT


def measured(folder: Path, *arguments: str, command: str = "faults") -> tuple[int, dict[str, Any]]:
    """The exit code and the JSON."""
    folder.mkdir(exist_ok=True)
    result = folder / "result.json"
    code = main([command, "--out", str(folder / "made"), "--json", str(result), *arguments])
    told = json.loads(result.read_text())
    return code, told["chosen"] if command == "faults" else told


def test_a_case_is_a_cell_with_what_was_planted_and_named_and_judged_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = measured(tmp_path, "--cases", f"{FAULT},{CONTROL}", "--repeats", "2")
    assert code == 0
    assert (told["format"], told["version"], told["scenario"]) == ("whyidle-compare", 1, "faults")
    assert (told["best"], told["batch_verdicts"]) == (None, {})
    fault, control = told["cells"]
    which = ("case", "planted", "pipeline", "named_first")
    assert [fault[name] for name in which] == [FAULT, ["input.serial"], "naive", "input.serial"]
    assert [control[name] for name in which] == [CONTROL, [], "workers", "none"]
    assert (fault["status"], fault["repeats"], len(fault["runs"])) == ("ok", 2, 2)
    assert fault["share_pct"] == {"true": pytest.approx(40, abs=1), "reported": pytest.approx(40, abs=1)}
    assert told["matrix"]["named_for"] == {"input.serial": {"input.serial": 2}, "none": {"none": 2}}
    assert told["matrix"]["faults_named_first"]["hits"] == 2
    shown = capsys.readouterr()
    assert shown.err.splitlines()[0].startswith("4 runs of about 4 s")
    assert whyidle(["report", told["cells"][0]["runs"][0]]) == 0
    assert f"faults {FAULT} · " in capsys.readouterr().out
    assert "faults named first: 2 of 2" in shown.out
    assert "| input.serial | 2 | input.serial 2 |" in shown.out
    assert f"[4/4] {CONTROL}" in shown.err or f"[4/4] {FAULT}" in shown.err
    # What was kept is judged again with the same result.
    again = tmp_path / "again.json"
    assert main(["faults", "--from", str(tmp_path / "made"), "--json", str(again)]) == 0
    assert capsys.readouterr().out == shown.out
    assert json.loads(again.read_text()) == {"chosen": told}
    for words, why in (
        (["--cases", FAULT, "--out", str(tmp_path / "made")], "already holds a comparison"),
        (["--from", str(tmp_path)], "holds no such runs"),
    ):
        assert main(["faults", *words]) == 2
        assert why in capsys.readouterr().err


def test_what_the_machine_lacks_is_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "unmet", lambda needs: "no control group here" if "cgroup" in needs else None)
    code, told = measured(tmp_path, "--cases", f"input.cpu_quota,{FAULT}")
    assert code == 0
    assert {cell["error"] for cell in told["cells"] if cell["status"] == "skipped"} == {"no control group here"}
    (ran,) = [cell for cell in told["cells"] if cell["status"] == "ok"]
    assert ran["case"] == FAULT
    assert all(cell["share_pct"] == {"true": None, "reported": None} for cell in told["cells"] if cell is not ran)
    assert "skipped: no control group here" in capsys.readouterr().out


def test_a_run_that_fails_is_a_cell_that_says_so_and_the_others_go_on(tmp_path: Path) -> None:
    def spoil(spec: Any) -> TrialOutcome | None:
        if spec.case != FAULT:
            return None
        update_run(Path(spec.folder), {"ended": {"status": "failed", "error": "no fork"}})
        return TrialOutcome("failed", "no fork")

    SERVER.then = spoil
    code, told = measured(tmp_path, "--cases", f"{FAULT},{CONTROL}", "--repeats", "2")
    assert code == 0
    fault, control = told["cells"]
    assert (fault["status"], fault["error"], fault["named_first"]) == ("failed", "no fork", None)
    assert len(fault["runs"]) == 1
    assert (control["status"], control["repeats"]) == ("ok", 2)
    assert told["matrix"]["faults_named_first"]["of"] == 0


def test_a_case_that_ctrl_c_cut_short_too_early_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(spec: Any) -> None:
        if len(SERVER.ran) == 2:
            update_run(Path(spec.folder), {"ended": {"status": "stopped", "exit_code": 130}})
            for file in Path(spec.folder).glob("step-*"):
                file.unlink()
            raise KeyboardInterrupt

    SERVER.then = stop
    code, told = measured(tmp_path, "--cases", f"{FAULT},{CONTROL}", "--foreign-load")
    assert (code, told["foreign_load"], {spec.foreign for spec in SERVER.ran}) == (130, True, {1})
    second = SERVER.ran[1].case
    (cut,) = [cell for cell in told["cells"] if cell["case"] == second]
    assert (cut["status"], cut["error"], cut["named_first"]) == ("skipped", "stopped by Ctrl-C", None)
    assert f"| {second} | skipped: stopped by Ctrl-C |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--cases", "input.nothing"], "unknown case 'input.nothing'"),
        (["--cases", "input.serial-midle"], "Did you mean input.serial-middle or "),
        (["--cases", "host.gcc"], "Did you mean host.gc"),
        (["--cases", ","], "',' names no case"),
        (["--controls", "--cases", FAULT], "is of the kind asked for"),
        (["--cases", FAULT, "--json", "nowhere/at/all.json"], "there is no folder"),
        (["--cases", FAULT, "--repeats", "0"], "is not a whole number from 1 on"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    try:
        code = main(["faults", *arguments, "--out", str(tmp_path / "made")])
    except SystemExit as refused:  # by argparse
        code = int(str(refused.code))
    assert code == 2
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("swept")
def test_a_sweep_is_judged_beside_what_was_planted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, told = measured(tmp_path, "--cases", f"{GROWS},{FLAT}", "--repeats", "2", command="batch-sizes")
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


@pytest.mark.usefixtures("swept")
def test_a_sweep_that_is_not_as_planted_is_called_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(globals(), "step_of", lambda sweep, batch: Step(fetch_ns=0, compute_ns=2 * batch * MS))
    code, told = measured(tmp_path, "--cases", GROWS, command="batch-sizes")
    assert code == 0
    assert (told["sweeps"][GROWS]["right"], told["sweeps"][GROWS]["named"]["cause"]) == (False, "saturated")
    shown = capsys.readouterr().out
    assert "Cause and term as planted: 0 of 1." in shown
    assert f"| {GROWS} | compute | **saturated** |" in shown


def test_a_size_that_fails_leaves_its_sweep_unjudged(
    swept: VirtualServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    swept.then = lambda spec: TrialOutcome("failed", "no fork") if spec.sweep == GROWS else None
    assert measured(tmp_path / "alone", "--cases", GROWS, command="batch-sizes")[0] == 1
    assert f"| {GROWS} | compute | not judged |" in capsys.readouterr().out
    swept.ran.clear()
    code, told = measured(tmp_path, "--cases", f"{GROWS},{FLAT}", command="batch-sizes")
    assert code == 0
    assert {spec.repetition for spec in swept.ran} == set(range(5))
    assert (told["sweeps"][GROWS]["named"], told["sweeps"][GROWS]["growth_pct"]) == (None, None)
    assert told["sweeps"][FLAT]["right"]
    assert len([spec for spec in swept.ran if spec.sweep == GROWS]) == 2
    shown = capsys.readouterr().out
    assert f"- {GROWS}, batch 4: failed: no fork" in shown
    assert "Cause and term as planted: 1 of 2." in shown
