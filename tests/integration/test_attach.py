"""`whyidle attach` beside real trainings: its shares against the trainings' own clocks, and all its ends."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from known_answer import MODES, WAITING
from whyidle.capture.attach.spy import find_py_spy
from whyidle.commands.main import main
from whyidle.record.run import open_run
from whyidle.record.schema import HOST

PROGRAM = Path(__file__).parents[1] / "known_answer.py"
OBSERVED_S = 8.0
RATE = 40
"""A share of 50 % of 320 looks is off by 2.8 points, one in three times."""
POINTS = 0.10

pytestmark = pytest.mark.skipif(find_py_spy() is None, reason="py-spy is not installed")


def attach(pid: int, *options: str, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*wrapper, sys.executable, "-m", "whyidle", "attach", str(pid), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def start(mode: str, result: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(PROGRAM), mode, str(result)])


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def wait_for(path: Path, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.05)


@dataclass
class Answer:
    """What one known-answer program measured of itself in the time it was observed, and what attach says."""

    truth: dict[str, float]
    report: dict[str, Any]
    text: str

    @property
    def trainer(self) -> dict[str, Any]:
        (trainer,) = self.report["trainers"]
        return dict(trainer)

    def seen(self, name: str) -> float:
        shares = self.trainer["shares"]
        names = ("data wait", "data making") if name == "data" else (name,)
        return float(sum(shares[n]["share"] for n in names if n in shares))


def truth_of(result: Path, folder: Path) -> dict[str, float]:
    """Shares between the first and the last look of the sampler."""
    stamps = open_run(folder).records(HOST)["t_ns"]
    steps = [s for s in json.loads(result.read_text()) if stamps.min() <= s[0] <= stamps.max()]
    (begin, before), (end, after) = steps[0], steps[-1]
    return {name: (after[name] - before.get(name, 0)) / (end - begin) for name in after}


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """All programs, two or three at a time: they share two CPUs, and so do their observers."""
    folder = tmp_path_factory.mktemp("attach")
    found = {}
    for group in (("workers", "compute", "serial"), ("python", "checkpoint")):
        results = {mode: folder / f"{mode}.json" for mode in group}
        programs = {mode: start(mode, results[mode]) for mode in group}
        for result in results.values():
            wait_for(result)
        options = ("--duration", str(OBSERVED_S), "--rate", str(RATE))
        observers = {m: attach(p.pid, *options, "--json", "--out", str(folder / m)) for m, p in programs.items()}
        outputs = {mode: observer.communicate(timeout=120)[0] for mode, observer in observers.items()}
        for mode, program in programs.items():
            assert state(program.pid) in "RSD"
            program.terminate()
            assert program.wait(60) == 0
            with redirect_stdout(io.StringIO()) as text:
                assert main(["report", str(folder / mode)]) == 0
            found[mode] = Answer(truth_of(results[mode], folder / mode), json.loads(outputs[mode]), text.getvalue())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_shares_are_within_ten_points_of_the_programs_own_clocks(answers: dict[str, Answer], mode: str) -> None:
    answer = answers[mode]
    for name, share in answer.truth.items():
        assert abs(answer.seen(name) - share) <= POINTS, (name, share, answer.trainer["shares"])
    assert answer.trainer["looks"] > OBSERVED_S * RATE / 2
    assert answer.trainer["main_thread"]


CAUSES = {
    "workers": "input.too_few_workers",
    "serial": "input.serial",
    "compute": "none",
    "checkpoint": "host.boundary",
    "python": "host.step_gap",
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_the_verdict_names_what_was_planted_and_the_report_says_the_same(answers: dict[str, Answer], mode: str) -> None:
    answer = answers[mode]
    assert answer.report["verdict"]["cause"] == CAUSES[mode]
    head = next(line for line in answer.text.splitlines() if line.startswith("Verdict"))
    assert CAUSES[mode] in head
    assert answer.report["verdict"]["title"][:40] in answer.text
    places = [entry["where"] for entries in answer.trainer["top"].values() for entry in entries]
    if mode == "serial":
        assert any(place.startswith("decode (tests/known_answer.py:") for place in places)
        assert answer.trainer["data_making"].keys() <= {"decode", "sample", "collate"}
    workers = answer.trainer["workers"]
    if mode == "workers":
        assert workers["seen"] == 1
        assert workers["busy"] > 0.8
        assert workers["cpu"]["running"] < 0.5
    else:
        assert workers is None


@pytest.fixture(params=[WAITING])
def training(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A training with one worker, in its loop."""
    process = start(request.param, tmp_path / "result.json")
    wait_for(tmp_path / "result.json")
    yield process
    process.kill()
    process.wait()


def observed(folder: Path) -> None:
    """Until the recording has begun in earnest."""
    wait_for(folder / "run.json")
    time.sleep(2)


def children_of(pid: int) -> list[str]:
    text = subprocess.run(["ps", "-o", "args=", "--ppid", str(pid)], capture_output=True, text=True, check=False).stdout
    return text.splitlines()


def test_one_ctrl_c_reports_and_a_second_one_quits_and_nothing_is_left_running_or_stopped(
    training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    first = attach(training.pid, "--out", str(tmp_path / "a"), "--json")
    observed(tmp_path / "a")
    helpers = children_of(first.pid)
    assert any("py-spy record --nonblocking" in line for line in helpers)
    first.send_signal(signal.SIGINT)
    out, _ = first.communicate(timeout=30)
    assert first.returncode == 0
    content = json.loads(out)
    assert content["run"]["ended_by"] == "user"
    assert content["trainers"][0]["looks"] > 5
    second = attach(training.pid, "--out", str(tmp_path / "b"))
    observed(tmp_path / "b")
    second.send_signal(signal.SIGINT)
    time.sleep(0.02)
    second.send_signal(signal.SIGINT)
    out, err = second.communicate(timeout=30)
    # The second may come when all is over already.
    assert second.returncode in (0, 130)
    assert "Traceback" not in err
    marks = [str(tmp_path / "a"), str(tmp_path / "b")]
    everything = subprocess.run(["ps", "-eo", "args="], capture_output=True, text=True, check=True).stdout
    assert not [line for line in everything.splitlines() if any(mark in line for mark in marks)]
    assert state(training.pid) in "RSD"
    assert sorted(p.name for p in (tmp_path / "a").iterdir() if p.name.startswith(".")) == []


def test_a_training_that_ends_meanwhile_is_reported(training: subprocess.Popen[bytes], tmp_path: Path) -> None:
    observer = attach(training.pid, "--out", str(tmp_path / "run"), "--json")
    observed(tmp_path / "run")
    training.terminate()
    # The one who waits for it.
    assert training.wait(30) == 0
    content = json.loads(observer.communicate(timeout=30)[0])
    assert observer.returncode == 0
    assert content["run"]["ended_by"] == "target"
    assert "The process ended while it was observed." in content["quality"]["notes"]
    assert content["trainers"][0]["looks"] > 5


def test_a_training_that_is_stopped_stays_stopped_and_goes_on_when_told(
    training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    training.send_signal(signal.SIGSTOP)
    observer = attach(training.pid, "--duration", "1.5", "--out", str(tmp_path / "run"), "--json")
    content = json.loads(observer.communicate(timeout=30)[0])
    assert observer.returncode == 0
    assert state(training.pid) == "T"
    assert any("whyidle stops no process and leaves it so" in note for note in content["quality"]["notes"])
    training.send_signal(signal.SIGCONT)
    training.terminate()
    assert training.wait(30) == 0


@pytest.mark.parametrize("training", ["workers"], indirect=True)
@pytest.mark.skipif(os.geteuid() != 0, reason="the right can only be given up by whoever has it")
def test_without_the_right_the_rest_is_reported_with_the_ways_to_get_it(
    training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    drop = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    observer = attach(training.pid, "--duration", "4", "--out", str(tmp_path / "run"), "--json", wrapper=drop)
    content = json.loads(observer.communicate(timeout=30)[0])
    assert observer.returncode == 0
    (note,) = [note for note in content["quality"]["notes"] if "ptrace" in note]
    for way in (f"sudo whyidle attach {training.pid}", "SYS_PTRACE", "whyidle run"):
        assert way in note
    assert content["verdict"]["cause"] is None
    (trainer,) = content["trainers"]
    assert trainer["cpu"]["running"] > 0.2
    assert trainer["workers"]["seen"] == 1
    assert content["host"]["tree_cpus"] > 0.2
    assert state(training.pid) in "RSD"


def test_the_ranks_of_a_launcher_are_found_behind_it(tmp_path: Path) -> None:
    modes = {"0": "compute", "1": "workers"}
    launcher = (
        "import os, subprocess, sys\n"
        f"for rank, mode in {modes}.items():\n"
        f"    command = [sys.executable, {str(PROGRAM)!r}, mode, {str(tmp_path)!r} + '/result' + rank]\n"
        "    subprocess.Popen(command, env=os.environ | {'RANK': rank})\n"
        "while True:\n"
        "    os.wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", launcher], start_new_session=True) as process:
        try:
            for rank in modes:
                wait_for(tmp_path / f"result{rank}")
            observer = attach(process.pid, "--duration", "3", "--rate", "20", "--out", str(tmp_path / "run"), "--json")
            content = json.loads(observer.communicate(timeout=60)[0])
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert [t["rank"] for t in content["trainers"]] == [0, 1]
    compute, loading = content["trainers"]
    assert compute["workers"] is None
    assert loading["workers"]["seen"] == 1
    assert loading["shares"]["data wait"]["share"] > 0.2
    assert compute["shares"].get("data wait", {"share": 0})["share"] < 0.1
    assert process.pid in [other["pid"] for other in content["others"]]


def test_a_users_mistake_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for pid, told in (("4194305", "there is no process"), ("x", "not a process id"), ("0", "not a process id")):
        try:
            code = main(["attach", pid])
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        assert told in err
        assert "Traceback" not in err
