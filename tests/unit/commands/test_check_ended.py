"""Runs that did not end, or of which a rank is missing, pass no limit unless that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.checks import check
from support.jobs import Rank, record
from support.pairs import SOME, noisy
from whyidle.analyse.run.analysis import analyse
from whyidle.commands.main import main
from whyidle.record.files import read_json, write_json
from whyidle.record.run import create_run, open_run, update_run

pytestmark = pytest.mark.usefixtures("own_folder")


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
    record(tmp_path / "job", ranks, steps=60, world_size=world_size)
    for third in (tmp_path / "job").glob("step-2-*.rec"):
        third.unlink()
    assert check(tmp_path / "job", "--max-stall", "99") == 1
    told_so = capsys.readouterr().out
    assert "checks fail: ended." in told_so
    assert said in told_so
    assert check(tmp_path / "job", "--max-stall", "99", "--allow-unfinished") == 0


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
    tmp_path: Path, command: list[str], argv: list[str], said: dict[str, object], passes: bool
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
def test_a_job_ended_when_all_hosts_did(tmp_path: Path, ended: object, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job"
    record(job, [Rank(host="n0"), Rank(host="n1")], steps=60, apart=True)
    assert check(job, "--max-stall", "99") == 0
    update_run(job / "n1", {"ended": ended})
    assert check(job, "--max-stall", "99") == 1
    assert f"({job / 'n1'}: " in capsys.readouterr().out
    assert check(job, "--max-stall", "99", "--allow-unfinished") == 0


def test_a_repeat_without_a_step_fails_and_is_no_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, crashed = noisy(tmp_path / "good", SOME(1)), tmp_path / "crashed"
    create_run(crashed, {"ended": {"status": "failed"}})
    ask = ("--max-stall", "99")
    base = noisy(tmp_path / "base", SOME(2))
    for runs in ((good, crashed), (crashed, good), (crashed,)):
        assert check(*runs, *ask, "--max-regression", "50", "--against", base) == 1
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
