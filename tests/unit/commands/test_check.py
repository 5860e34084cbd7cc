"""Limits that a run is held to: each passes and fails, and nothing that was not measured passes."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console

import support.recent_runs as recent_runs
from support.crafted import add, amend
from support.jobs import Rank, record
from support.pairs import crowded, noisy
from whyidle.analyse.diff import regression
from whyidle.analyse.diff.difference import difference
from whyidle.analyse.diff.limits import LimitCheck
from whyidle.analyse.diff.sides import Side, side_of
from whyidle.analyse.run.analysis import analyse
from whyidle.analyse.statistics import Estimate
from whyidle.commands.main import main
from whyidle.record.comparison import write_comparison
from whyidle.record.files import read_json, write_json
from whyidle.record.reader import Records
from whyidle.record.run import Run, create_run, open_run, update_run
from whyidle.record.schema import DEVICE
from whyidle.report.contract import run as contract
from whyidle.report.documents.check import check_document
from whyidle.report.export.ci import junit_xml, workflow_commands
from whyidle.report.render.markdown import markdown
from whyidle.report.render.text import print_document
from whyidle.scenarios.planted import MS, START, Step, train
from whyidle.terminal.console import json_text

SOME = np.random.default_rng


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step: data for 3 ms, a pageable copy of 2 ms, computing for 10 ms with a reading call, 2 ms of the loop's."""
    folder = tmp_path_factory.mktemp("check") / "run"
    step = Step(
        fetch_ns=3 * MS, copy_bytes=10_000_000, pinned=False, sync_within=True, within_ns=MS, sync=True, host_ns=2 * MS
    )
    train(folder, [[*[step] * 39, Step(boundary_ns=40 * MS)]] * 2)
    rows = [{"t_ns": START + n * 100 * MS, "device": 0, "utilisation_pct": 60.0} for n in range(1, 14)]
    add(folder, DEVICE, rows)
    return folder


@pytest.fixture(autouse=True)
def _no_ci(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    monkeypatch.chdir(tmp_path)


def check(*words: str | Path) -> int:
    return main(["check", *map(str, words)])


def told(capsys: pytest.CaptureFixture[str], *words: str | Path) -> dict[str, dict[str, object]]:
    """The checks by name."""
    check(*words, "--json")
    found = json.loads(capsys.readouterr().out)
    assert (found["format"], found["version"]) == ("whyidle-check", 1)
    return {each["name"]: each for each in found["checks"]}


@pytest.mark.parametrize(
    ("flag", "low", "high"),
    [
        ("max-stall", 5, 80),
        ("max-input", 5, 40),
        ("max-copy", 2, 40),
        ("max-sync", 1, 40),
        ("max-host", 1, 40),
        ("max-boundary", 1, 20),
        ("min-samples-per-s", 1, 10_000),
        ("min-utilisation", 50, 70),
        ("min-busy", 20, 90),
        ("min-au", 20, 99),
        ("min-steps", 30, 1000),
    ],
)
def test_every_limit_passes_and_fails(
    planted: Path, flag: str, low: float, high: float, capsys: pytest.CaptureFixture[str]
) -> None:
    passing, failing = (high, low) if flag.startswith("max") else (low, high)
    assert check(planted, f"--{flag}", str(passing)) == 0
    assert "PASS" in capsys.readouterr().out
    assert check(planted, f"--{flag}", str(failing)) == 1
    said = capsys.readouterr().out
    assert "FAIL" in said
    assert f"checks fail: {flag}" in said
    measured = told(capsys, planted, f"--{flag}", str(failing))[flag]["measured"]
    assert isinstance(measured, float)
    assert low < measured < high


def test_hooks_that_cost_too_much_fail(tmp_path: Path) -> None:
    run = noisy(tmp_path / "run", SOME(1))
    assert check(run, "--max-overhead", "1") == 0

    def cost(steps: Records) -> None:
        steps["overhead_ns"] = 5 * MS

    amend(run, cost)
    assert check(run, "--max-overhead", "1") == 1


def test_records_that_were_lost_fail(planted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(planted, "--max-dropped", "0") == 0
    monkeypatch.setattr(Run, "dropped", lambda self: 3)
    assert check(planted, "--max-dropped", "0") == 1
    assert check(planted, "--max-dropped", "3") == 0


def test_a_cause_is_forbidden_by_its_name_or_its_family(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = noisy(tmp_path / "slow", SOME(1), workers=0, fetch_ms=30)
    assert check(slow, "--forbid", "input.serial") == 1
    assert check(slow, "--forbid", "input") == 1
    assert check(slow, "--forbid", "copy,input.storage") == 0
    assert check(slow, "--max-severity", "major") == 1
    fast = noisy(tmp_path / "fast", SOME(1), workers=0, fetch_ms=0.1)
    assert check(fast, "--forbid", "input.serial") == 0
    assert check(slow, "--max-severity", "none") == 1
    capsys.readouterr()


def test_a_run_with_few_steps_does_not_pass_unless_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = noisy(tmp_path / "short", SOME(1), steps=20)
    assert check(short, "--max-boundary", "50") == 1
    assert "too few to tell anything" in capsys.readouterr().out
    assert check(short, "--max-boundary", "50", "--allow-short") == 0
    assert check(short, "--max-boundary", "50", "--min-steps", "10") == 0
    assert check(short, "--forbid", "input", "--min-steps", "10") == 1
    assert "No verdict" in capsys.readouterr().out


def test_what_was_not_measured_does_not_pass_unless_that_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = noisy(tmp_path / "run", SOME(1))
    assert check(run, "--min-utilisation", "1") == 1
    assert "not measured, at least 1 %" in capsys.readouterr().out
    assert check(run, "--min-utilisation", "1", "--allow-missing") == 0
    assert "SKIP" in capsys.readouterr().out
    found = told(capsys, run, "--min-utilisation", "1")["min-utilisation"]
    assert (found["measured"], found["status"]) == (None, "not measured")
    unknown = noisy(tmp_path / "unknown", SOME(1), samples=None)
    assert check(unknown, "--min-samples-per-s", "1") == 1


def test_a_run_without_steps_fails_every_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = create_run(tmp_path / "run", {"ended": {"status": "ok"}})
    assert check(run, "--max-stall", "100", "--allow-short") == 1
    assert "not measured" in capsys.readouterr().out


def test_a_regression_beyond_noise_fails_and_one_that_healthy_runs_show_passes_with_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = noisy(tmp_path / "base", SOME(1), run_noise=0)
    slower = noisy(tmp_path / "slower", SOME(2), run_noise=0, compute_ms=40)
    little = noisy(tmp_path / "little", SOME(3), run_noise=0, compute_ms=21)
    faster = noisy(tmp_path / "faster", SOME(3), run_noise=0, compute_ms=5)
    ask = ("--max-regression", "3", "--against", base)
    assert check(slower, *ask) == 1
    assert "surely slower than the limit" in capsys.readouterr().out
    assert check(little, *ask) == 0
    assert "by no more than healthy runs differ by" in capsys.readouterr().out
    assert check(little, *ask, "--noise", "0.5") == 1
    capsys.readouterr()
    assert check(faster, *ask) == 0
    said = capsys.readouterr().out
    assert re.search(r"none \([0-9.]+ % more throughput\)", said)
    assert "surely within the limit" in said
    assert check(slower, "--max-regression", "60", "--against", base) == 0


def lost(low: float, mean: float, high: float, limit: float = 5.0, allow_noisy: bool = False) -> LimitCheck:
    """`usual` is 7 %: what one run against one shows by chance."""
    return regression.check_of(Estimate(mean, low, high), limit, "runs/main", 7.0, allow_noisy)


@pytest.mark.parametrize(
    ("low", "mean", "high", "status"),
    [
        (60, 70, 80, "failed"),
        (-20, 70, 90, "unclear"),
        (2, 12, 20, "unclear"),
        (6, 12, 18, "failed"),
        (-5, 6.5, 16, "passed"),
        (-8, 3, 13, "passed"),
        (-300, 3, 80, "unclear"),
        (-300, -238, -100, "passed"),
        (-900, -238, 70, "unclear"),
        (-5, 1, 4, "passed"),
    ],
)
def test_what_noise_leaves_open_is_no_pass(low: float, mean: float, high: float, status: str) -> None:
    found = lost(low, mean, high)
    assert (found.status, found.holds) == (status, status == "passed")
    assert ("--allow-noisy" in found.note and "repeat" in found.note) == (status == "unclear")
    allowed = lost(low, mean, high, allow_noisy=True)
    assert allowed.holds == (status != "failed")
    assert allowed.status == status


def test_a_loss_that_a_busy_machine_may_have_made_is_unclear(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, slower = crowded(tmp_path / "base", SOME(1)), crowded(tmp_path / "slower", SOME(2), compute_ms=40)
    ask = (slower, "--max-regression", "5", "--against", base)
    assert check(*ask, "--junit", "check.xml", "--github") == 1
    said = capsys.readouterr().out
    assert "1 of 3 checks fail: max-regression (unclear)." in said
    assert "UNCLEAR throughput lost" in said
    assert "::error title=whyidle check max-regression::" in said
    (failure,) = ElementTree.parse("check.xml").iter("failure")
    assert failure.get("type") == "unclear"
    found = told(capsys, *ask)["max-regression"]
    assert (found["status"], found["allowed"]) == ("unclear", False)
    assert check(*ask, "--allow-noisy") == 0
    assert "SKIP" in capsys.readouterr().out
    assert check(*ask, "--noise", "2") == 1
    assert "FAIL  throughput lost" in capsys.readouterr().out


def test_healthy_pairs_rarely_fail_and_regressions_rarely_pass(tmp_path: Path) -> None:
    """Runs of one setting that differ by 3 %, and the same at two thirds of the speed."""
    rng = SOME(5)
    healthy = [side_of("A", [noisy(tmp_path / f"h{n}", rng, steps=60, run_noise=0.03)]) for n in range(40)]
    slow = [side_of("B", [noisy(tmp_path / f"s{n}", rng, steps=60, run_noise=0.03, compute_ms=40)]) for n in range(10)]

    def passes(a: Side, b: Side) -> bool:
        found = difference(a, b)
        return regression.against_runs(found, 5.0, "A", None, allow_missing=False, allow_noisy=False).holds

    alarms = [not passes(a, b) for a, b in zip(healthy[::2], healthy[1::2], strict=True)]
    alarms += [not passes(b, a) for a, b in zip(healthy[::2], healthy[1::2], strict=True)]
    assert sum(alarms) <= 0.1 * len(alarms)
    assert not any(passes(a, b) for a, b in zip(healthy, slow, strict=False))


@pytest.mark.parametrize(
    ("ended", "said"), [(None, "it still runs, or it was killed"), ({"status": "failed"}, "did not end well (failed)")]
)
def test_a_run_that_has_not_ended_fails_in_words(
    tmp_path: Path, ended: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = noisy(tmp_path / "run", SOME(1))
    assert check(run, "--max-stall", "99") == 0
    update_run(run, {"ended": ended})
    capsys.readouterr()
    assert check(run, "--max-stall", "99") == 1
    told_so = capsys.readouterr().out
    assert "checks fail: ended." in told_so
    assert said in told_so
    assert check(run, "--max-stall", "99", "--allow-short") == 1
    assert check(run, "--max-stall", "99", "--allow-unfinished") == 0
    other = noisy(tmp_path / "other", SOME(2))
    capsys.readouterr()
    assert check(other, run, "--max-stall", "99") == 1
    assert f"{run}: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("ranks", "world_size", "said"),
    [
        ([Rank(), Rank(steps=40)], 2, "rank 1 did not end the recording: killed, or left by os._exit"),
        ([Rank(steps=40)], None, "rank 0 did not end the recording: killed, or left by os._exit"),
        ([Rank(), Rank()], 4, "nothing of ranks 2 and 3 was recorded"),
        ([Rank(), Rank(), Rank()], 3, "no step of rank 2 was recorded"),
    ],
)
def test_a_job_without_one_of_its_ranks_does_not_pass(
    tmp_path: Path, ranks: list[Rank], world_size: int | None, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Though the command ended well."""
    record(tmp_path / "job", ranks, steps=60, world_size=world_size)
    for third in (tmp_path / "job").glob("step-2-*.rec"):
        third.unlink()
    assert check(tmp_path / "job", "--max-stall", "99") == 1
    told_so = capsys.readouterr().out
    assert "checks fail: ended." in told_so
    assert said in told_so
    assert check(tmp_path / "job", "--max-stall", "99", "--allow-unfinished") == 0


def test_that_the_other_side_did_not_end_well_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, other = noisy(tmp_path / "run", SOME(1)), noisy(tmp_path / "other", SOME(2))
    saved = tmp_path / "saved.json"
    for code, noted in ((0, False), (3, True)):
        update_run(other, {"ended": {"status": "failed" if code else "ok", "exit_code": code}})
        assert main(["report", str(other), "--json", "-o", str(saved)]) == 0
        for against in (other, saved):
            assert check(run, "--max-regression", "90", "--against", against) == 0
            assert (f"{against}: it did not end well" in capsys.readouterr().out) == noted


def leaving(job: Path, command: list[str], argv: list[str], said: dict[str, object] | None = None) -> Path:
    """The run's command ended with 0; its trainings, of which all are told to have these arguments, ended nothing."""
    update_run(job, {"command": command, "ended": {"status": "ok", "error": None, "exit_code": 0}})
    for file in job.glob("process-*.json"):
        write_json(file, read_json(file) | {"command": argv} | (said or {}))
    return job


PYTHON = "/usr/bin/python3.11"


@pytest.mark.parametrize(
    ("command", "argv", "said", "passes"),
    [
        ([PYTHON, "train.py", "a"], ["train.py", "a"], {}, True),
        ([PYTHON, "-u", "train.py"], ["train.py"], {}, True),
        ([PYTHON, "-m", "train", "a"], ["/there/train.py", "a"], {}, True),
        (["./train.py", "a"], ["./train.py", "a"], {}, True),
        (["torchrun", "train.py"], ["train.py"], {"local_rank": 0}, True),
        (["bash", "-c", "python train.py; true"], ["train.py"], {}, False),
        ([PYTHON, "-m", "launcher", "train.py"], ["train.py"], {}, False),
        ([PYTHON, "launcher.py"], ["train.py"], {}, False),
    ],
)
def test_a_training_that_leaves_by_os_exit_ended_where_its_command_tells_so(
    tmp_path: Path,
    command: list[str],
    argv: list[str],
    said: dict[str, object],
    passes: bool,
) -> None:
    record(tmp_path / "run", [Rank(steps=60)], steps=60, world_size=None)
    run = leaving(tmp_path / "run", command, argv, said)
    assert check(run, "--max-stall", "99") == (0 if passes else 1)
    notes = analyse(open_run(run)).notes
    assert any("did not end the recording: killed, or left by os._exit" in note for note in notes) == (not passes)


def test_ranks_that_leave_by_os_exit_ended_where_none_ran_fewer_steps(tmp_path: Path) -> None:
    for name, last, code in (("left", 60, 0), ("stopped", 40, 1)):
        record(tmp_path / name, [Rank(steps=60), Rank(steps=last)], steps=60)
        leaving(tmp_path / name, ["torchrun", "train.py"], ["train.py"])
        assert check(tmp_path / name, "--max-stall", "99") == code


@pytest.mark.parametrize(("said", "passes"), [({}, True), ({"local_rank": 0}, False)])
def test_a_single_training_lacks_no_rank_that_only_its_environment_tells_of(
    tmp_path: Path, said: dict[str, object], passes: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "run", [Rank()], steps=60, world_size=4)
    run = leaving(tmp_path / "run", [PYTHON, "train.py"], ["train.py"], said)
    assert check(run, "--max-stall", "99") == (0 if passes else 1)
    assert ("name the folder around the hosts' run folders" in capsys.readouterr().out) == (not passes)
    assert main(["report", str(run)]) == 0
    assert "4 ranks" in capsys.readouterr().out


@pytest.mark.parametrize("ended", [None, {"status": "failed"}])
def test_a_job_of_several_hosts_ended_when_all_of_them_did(
    tmp_path: Path, ended: object, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job"
    record(job, [Rank(host="n0"), Rank(host="n1")], steps=60, apart=True)
    assert check(job, "--max-stall", "99") == 0
    update_run(job / "n1", {"ended": ended})
    capsys.readouterr()
    assert check(job, "--max-stall", "99") == 1
    assert f"({job / 'n1'}: " in capsys.readouterr().out
    assert check(job, "--max-stall", "99", "--allow-unfinished") == 0
    other = tmp_path / "other"
    record(other, [Rank(host="n0"), Rank(host="n1")], steps=60, apart=True)
    assert check(other, job, "--max-stall", "99") == 1


def test_figures_of_a_job_are_those_of_its_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = recent_runs.training(tmp_path / "job", 1, seconds=8)
    report = json.loads(json_text(contract.report(analyse(open_run(job)))))
    limits = {
        "min-busy": report["device"]["busy_pct"],
        "min-au": report["device"]["au_pct"],
        "min-utilisation": report["device"]["utilisation_pct"],
        "max-overhead": report["quality"]["overhead_pct"],
    }
    found = told(capsys, job, *(word for name in limits for word in (f"--{name}", "50")))
    assert {name: found[name]["measured"] for name in limits} == pytest.approx(limits)
    ranks = report["ranks_detail"]
    assert len({rank["device"]["au_pct"] for rank in ranks}) == 2


def test_a_repeat_without_a_step_fails_and_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, crashed = noisy(tmp_path / "good", SOME(1)), tmp_path / "crashed"
    create_run(crashed, {"ended": {"status": "failed"}})
    ask = ("--max-stall", "99")
    assert check(good, *ask) == 0
    for runs in ((good, crashed), (crashed, good), (crashed,)):
        assert check(*runs, *ask, "--max-regression", "50", "--against", noisy(tmp_path / f"b{runs}", SOME(2))) == 1
    capsys.readouterr()
    assert check(good, crashed, *ask) == 1
    said = capsys.readouterr().out
    assert "2 of 3 checks fail: ended, min-steps." in said
    assert f"{crashed}: it did not end well (failed)" in said
    assert f"{crashed}: too few to tell anything" in said
    update_run(crashed, {"ended": {"status": "ok"}})
    assert check(good, crashed, *ask) == 1
    assert check(good, crashed, *ask, "--allow-short") == 0
    assert check(good, crashed, *ask, "--min-steps", "1") == 1


def test_a_run_of_a_few_steps_is_nothing_to_compare_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, short = noisy(tmp_path / "run", SOME(1)), noisy(tmp_path / "short", SOME(2), steps=20)
    ask = (run, "--max-regression", "5", "--against", short)
    found = told(capsys, *ask)["max-regression"]
    assert (found["status"], found["measured"]) == ("not measured", None)
    assert f"{short} has 19 steps" in str(found["note"])
    assert check(*ask, "--allow-missing") == 1
    assert check(*ask, "--allow-short") == 0
    assert check(*ask, "--min-steps", "10") == 0
    saved = tmp_path / "short.json"
    assert main(["report", str(short), "--json", "-o", str(saved)]) == 0
    ask = (run, "--max-regression", "5", "--against", saved)
    capsys.readouterr()
    assert f"{saved} has 19 steps" in str(told(capsys, *ask)["max-regression"]["note"])
    assert check(*ask, "--allow-short") == 0


def test_a_run_to_compare_with_that_did_not_end_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, base = noisy(tmp_path / "run", SOME(1)), noisy(tmp_path / "base", SOME(2))
    update_run(base, {"ended": {"status": "failed"}})
    assert check(run, "--max-regression", "30", "--against", base) == 0
    assert f"{base}: it did not end well (failed)" in capsys.readouterr().out


def test_the_run_to_check_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert check("--max-stall", "99") == 2
    assert "`whyidle check runs/ci --max-stall 10" in capsys.readouterr().err


def test_causes_keep_their_names_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = noisy(tmp_path / "run", SOME(1), steps=20)
    assert check(run, "--forbid", "input.worker_restart", "--junit", "check.xml", "--github") == 1
    said = capsys.readouterr().out
    assert "min-steps, forbid input.worker_restart." in said
    assert "title=whyidle check forbid input.worker_restart::" in said
    names = [case.get("name") for case in ElementTree.parse("check.xml").iter("testcase")]
    assert names == ["ended", "min-steps", "forbid input.worker_restart"]
    assert list(told(capsys, run, "--forbid", "input.worker_restart")) == names


def test_repeats_count_for_a_regression_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = [noisy(tmp_path / f"base{n}", SOME(n), run_noise=0) for n in range(3)]
    slower = [noisy(tmp_path / f"slower{n}", SOME(9 + n), run_noise=0, compute_ms=22.5) for n in range(3)]
    against = [word for run in base for word in ("--against", run)]
    ask = ("--max-regression", "3")
    assert check(slower[0], *ask, *against[:2]) == 0
    assert check(*slower, *ask, *against) == 1
    assert check(*base[:2], *ask, "--against", base[0]) == 2
    assert "itself" in capsys.readouterr().err


def test_a_saved_report_is_as_good_to_compare_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = noisy(tmp_path / "base", SOME(1), run_noise=0)
    slower = noisy(tmp_path / "slower", SOME(2), run_noise=0, compute_ms=40)
    saved = tmp_path / "base.json"
    assert main(["report", str(base), "--json", "-o", str(saved)]) == 0
    assert check(slower, "--max-regression", "5", "--against", saved) == 1
    assert check(base, "--max-regression", "5", "--against", saved) == 0
    saved.write_text(saved.read_text().replace('"samples_per_s":', '"was":'))
    assert check(slower, "--max-regression", "5", "--against", saved) == 1
    assert "not measured" in capsys.readouterr().out
    saved.write_text(json.dumps({"format": "whyidle-report", "run": {"device": {"kind": "emulated"}}}))
    assert check(slower, "--max-regression", "5", "--against", saved) == 2
    assert "emulated and measured times are not compared" in capsys.readouterr().err


def test_against_a_report_no_more_is_claimed_than_against_its_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, slower = (noisy(tmp_path / name, SOME(n), run_noise=0, compute_ms=n) for name, n in (("a", 20), ("b", 22)))
    saved = tmp_path / "base.json"
    assert main(["report", str(base), "--json", "-o", str(saved)]) == 0
    reach = []
    for against in (base, saved):
        note = told(capsys, slower, "--max-regression", "5", "--against", against)["max-regression"]["note"]
        ends = re.findall(r"([0-9.]+) % (less|more)", str(note))[:2]
        low, high = (float(value) * (1 if way == "less" else -1) for value, way in ends)
        reach.append(high - low)
    assert reach[1] >= 0.8 * reach[0]


@pytest.mark.parametrize("rate", [math.nan, 1e301, True, "80", None])
def test_a_report_without_a_rate_is_no_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: object) -> None:
    run = noisy(tmp_path / "run", SOME(1), run_noise=0)
    saved = tmp_path / "strange.json"
    saved.write_text(json.dumps({"format": "whyidle-report", "run": "x", "window": {"samples_per_s": rate}}))
    assert check(run, "--max-regression", "5", "--against", saved) == 1
    assert "not measured" in capsys.readouterr().out


def test_a_report_of_another_device_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = noisy(tmp_path / "base", SOME(1), run_noise=0)
    saved = tmp_path / "base.json"
    assert main(["report", str(base), "--json", "-o", str(saved)]) == 0
    content = json.loads(saved.read_text())
    content["run"]["device"]["name"] = "Another One"
    saved.write_text(json.dumps(content))
    assert check(base, "--max-regression", "5", "--against", saved) == 0
    assert "Its device was Another One" in capsys.readouterr().out


def test_a_comparison_is_checked_cell_by_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(2):
        noisy(tmp_path / f"naive-b8-r{number}", SOME(number), run_noise=0)
    noisy(tmp_path / "workers-b8-r0", SOME(5), run_noise=0)
    write_comparison(tmp_path, {}, [])
    assert check(tmp_path, "--max-stall", "100") == 2
    assert "comparison of 2 cells" in capsys.readouterr().err
    assert check(tmp_path / "naive-b8", "--max-stall", "100") == 0


def test_nothing_that_a_run_holds_begins_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """In GitHub's log a line of `::` would be a command."""
    print_document(check_document("run\n::a::", "device\n::b::", hostile_checks()), Console(highlight=False))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(hostile_checks())
    assert not any(line.startswith("::") for line in lines)


def test_the_configuration_holds_and_flags_win(planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.whyidle.check]\nmax-stall = 1\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert check(planted) == 1
    assert check(planted, "--max-stall", "90") == 0
    other = tmp_path / "other.toml"
    other.write_text('[tool.whyidle.check]\nmax-stall = 90\nforbid = ["rank"]\n')
    assert check(planted, "--config", other) == 0


def test_a_run_of_the_configuration_is_found_from_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy(tmp_path / "base", SOME(1), run_noise=0)
    slower = noisy(tmp_path / "slower", SOME(2), run_noise=0, compute_ms=40)
    (tmp_path / "pyproject.toml").write_text('[tool.whyidle.check]\nmax-regression = 5\nagainst = "base"\n')
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    assert check(slower) == 1
    assert "throughput lost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("max-stal = 1", "'max-stal' is not known. Known: max-stall"),
        ('max-stall = "1"', "'1' is not a number from 0 to 100"),
        ("max-stall = 101", "101 is not a number from 0 to 100"),
        ("max-stall = true", "True is not a number"),
        ("max-stall = nan", "nan is not a number"),
        ("forbid = [1]", "[1] is no list of causes"),
        ('forbid = ["input.serail"]', "input.serail is not known"),
        ('max-severity = "critical"', "'critical' is none of none, minor, major"),
        ("max-regression = 5", "needs --against RUN"),
        ('against = "base"', "needs --max-regression PCT"),
        ("max-stall = 1\nallow-short = 1", "1 is neither true nor false"),
        ("max-stall = 1\nnoise = 0", "above 0"),
        ("max-stall", "is no TOML"),
        ("", "nothing to check"),
    ],
)
def test_a_mistake_in_the_configuration_is_said(
    planted: Path, tmp_path: Path, table: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.whyidle.check]\n{table}\n")
    assert check(planted) == 2
    assert said in capsys.readouterr().err


def test_nothing_asked_is_a_mistake_with_an_example(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert check(planted) == 2
    assert "--max-stall 10" in capsys.readouterr().err


HOSTILE = 'r<u>&"n\x1b[31m\x00\ud800'


def hostile_checks() -> list[LimitCheck]:
    return [
        LimitCheck("max-stall", HOSTILE, 12.0, 10.0, "%", False, True, "a, b: 50 %\n::error::forged"),
        LimitCheck("min-au", "AU", None, 10.0, "%", None, False, HOSTILE),
        LimitCheck("min-busy", "busy", None, 10.0, "%", None, False, "", True),
        LimitCheck("max-copy", "copy", 1.0, 10.0, "%", True, True),
    ]


def test_junit_is_well_formed_whatever_a_run_holds() -> None:
    text = junit_xml(HOSTILE, hostile_checks(), {"device": HOSTILE})
    suites = ElementTree.fromstring(text.encode())
    suite = suites.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "2", "1")
    cases = {case.get("name"): [child.tag for child in case] for case in suite.findall("testcase")}
    assert cases == {
        "max-stall": ["failure"],
        "min-au": ["failure"],
        "min-busy": ["skipped"],
        "max-copy": ["system-out"],
    }
    properties = {each.get("name"): each.get("value") for each in suite.iter("property")}
    assert properties["device"] == 'r<u>&"n?[31m??'


def test_annotations_hold_one_command_a_line() -> None:
    lines = list(workflow_commands("run", hostile_checks()))
    assert [line.split(" ", 1)[0] for line in lines] == ["::error", "::error", "::warning"]
    assert "%0A::error::forged" in lines[0]
    assert "50 %25" in lines[0]
    assert all("\n" not in line for line in lines)


def test_markdown_shows_no_markup_of_a_run() -> None:
    text = markdown(check_document("run|<b>", None, hostile_checks()))
    assert "<u>" not in text
    assert "<b>" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(row.replace("\\|", "").count("|") == 6 for row in rows)


def test_markdown_makes_no_link_of_a_note_and_shows_all_of_it() -> None:
    note = f"@torvalds #12 GH-12 http://a.b www.c.d {'word ' * 100}the way out"
    ended = LimitCheck("ended", "ended", "no", "yes", "", False, False, note)
    text = markdown(check_document("run", None, [ended]))
    assert not re.search(r"@\w|(?<!&)#\d|GH-\d|://|www\.", text)
    assert "the way out" in text


def test_github_gets_annotations_and_a_summary_by_itself(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert check(planted, "--max-stall", "1") == 1
    assert "::error title=whyidle check max-stall::" in capsys.readouterr().out
    assert summary.read_text().startswith("before\n###")
    assert "| FAIL | exposed stall" in summary.read_text()
    assert check(planted, "--max-stall", "1", "--json") == 1
    both = capsys.readouterr()
    assert json.loads(both.out)["passed"] is False
    assert "::error" in both.err


def test_a_junit_file_is_written_beside_the_text(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "check.xml"
    assert check(planted, "--max-stall", "1", "--junit", file) == 1
    failures = [
        case.get("name") for case in ElementTree.parse(file).iter("testcase") if case.find("failure") is not None
    ]
    assert failures == ["max-stall"]
    assert check(planted, "--max-stall", "1", "--junit", tmp_path / "no" / "check.xml") == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_junit_file_takes_the_place_of_an_earlier_one_and_of_nothing_else(
    planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, mine = tmp_path / "check.xml", tmp_path / "notes.xml"
    file.touch()
    assert check(planted, "--max-stall", "1", "--junit", file) == 1
    assert check(planted, "--max-stall", "90", "--junit", file) == 0
    assert not any(case.find("failure") is not None for case in ElementTree.parse(file).iter("testcase"))
    mine.write_text("<notes/>")
    for other in (mine, planted / "run.json"):
        before = other.read_text()
        assert check(planted, "--max-stall", "90", "--junit", other) == 2
        assert "is no JUnit of an earlier check" in capsys.readouterr().err
        assert other.read_text() == before


def test_an_emulated_device_is_called_so(planted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(planted, "--max-stall", "90")
    assert "EMULATED" in capsys.readouterr().out


def test_control_characters_of_a_run_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = noisy(tmp_path / "run", SOME(1), device={"kind": "cpu", "title": "x\x1b[2Jy"})
    update_run(run, {"command": ["python", "a\x1b[2J.py"]})
    other = noisy(tmp_path / "other", SOME(2))
    check(run, "--max-stall", "90", "--max-regression", "5", "--against", other)
    main(["diff", str(run), str(other)])
    assert "\x1b" not in capsys.readouterr().out
