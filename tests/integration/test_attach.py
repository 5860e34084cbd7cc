"""`whyidle attach` beside real processes: what it sees of trainings that stay where they are, and all its ends.

How far its shares are from a training's own clock, `python -m benchmarks.attach` measures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from support.fakes.driver import wait_for
from support.held import MAKING, WAITING
from support.runs import mistaken
from whyidle.analyse.attached.causes import LEAST_LOOKS
from whyidle.capture.hidden import is_ours
from whyidle.commands.main import main
from whyidle.record.run import is_run, open_run
from whyidle.record.schema import HOST, STACK

PROGRAM = Path(__file__).parents[1] / "support" / "held.py"
WAIT_S = 120.0
"""For what comes in seconds."""
SLEEPING = """
import sys, time
def work():
    while True:
        time.sleep(0.01)
open(sys.argv[1], "w").close()
work()
"""


def attach(pid: int, *options: str, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*wrapper, sys.executable, "-m", "whyidle", "attach", str(pid), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@contextmanager
def started(ready: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A Python program whose last argument is the file that it makes when it is where it shall be."""
    process = subprocess.Popen([sys.executable, *command, str(ready)])
    try:
        wait_for(ready.exists, str(ready))
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Some program, of which nothing is asked but that it goes on."""
    with started(tmp_path / "ready", "-c", SLEEPING) as process:
        yield process


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with started(tmp_path / "ready", str(PROGRAM), WAITING) as process:
        yield process


def seen(folder: Path, *pids: int, looks: int = 1) -> None:
    """Until a thread of each process was seen so many times."""

    def so_often() -> bool:
        processes = open_run(folder).records(STACK)["process"].tolist() if is_run(folder) else []
        return all(processes.count(pid) >= looks for pid in pids)

    wait_for(so_often, f"{looks} looks at {pids}")


def observed(pid: int, folder: Path, *pids: int, looks: int = 1, rate: int = 20) -> dict[str, Any]:
    """What is said of a process after Ctrl-C, once threads of these, or else of itself, were seen so many times."""
    observer = attach(pid, "--rate", str(rate), "--json", "--out", str(folder))
    seen(folder, *(pids or (pid,)), looks=looks)
    return interrupted(observer)


def interrupted(observer: subprocess.Popen[str]) -> dict[str, Any]:
    """What it says after Ctrl-C."""
    observer.send_signal(signal.SIGINT)
    out, err = observer.communicate(timeout=WAIT_S)
    assert observer.returncode == 0, err
    return dict(json.loads(out))


@pytest.mark.slow
def test_a_training_that_makes_its_samples_itself_is_seen_at_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path / "ready", str(PROGRAM), MAKING) as training:
        told = observed(training.pid, tmp_path / "run", looks=LEAST_LOOKS, rate=40)
        assert state(training.pid) in "RSD"
    (trainer,) = told["trainers"]
    assert trainer["main_thread"]
    assert trainer["looks"] >= LEAST_LOOKS
    assert trainer["shares"].keys() == {"data making"}
    # It sleeps: nothing is decoded meanwhile.
    assert trainer["data_making"].keys() == {"wait"}
    places = [entry["where"] for entries in trainer["top"].values() for entry in entries]
    assert any(place.startswith("decode (support/held.py:") for place in places), places
    assert trainer["workers"] is None
    assert told["verdict"]["cause"] == "input.serial"
    # The report says the same.
    assert main(["report", str(tmp_path / "run")]) == 0
    text = capsys.readouterr().out
    assert "input.serial" in next(line for line in text.splitlines() if line.startswith("Verdict"))
    assert told["verdict"]["title"][:40] in text


def test_one_ctrl_c_reports_and_a_second_one_quits_and_nothing_is_left_running_or_stopped(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    first = attach(program.pid, "--out", str(tmp_path / "a"), "--json")
    seen(tmp_path / "a", program.pid)
    content = interrupted(first)
    assert content["run"]["ended_by"] == "user"
    assert content["trainers"][0]["looks"] > 0
    second = attach(program.pid, "--out", str(tmp_path / "b"))
    wait_for((tmp_path / "b" / "run.json").exists, "the second recording")
    second.send_signal(signal.SIGINT)
    time.sleep(0.02)
    second.send_signal(signal.SIGINT)
    _, err = second.communicate(timeout=WAIT_S)
    # The second may come when all is over already.
    assert second.returncode in (0, 130, -signal.SIGINT)
    assert "Traceback" not in err
    marks = [str(tmp_path / "a"), str(tmp_path / "b")]
    everything = [" ".join(each.info["cmdline"] or ()) for each in psutil.process_iter(["cmdline"])]
    assert not [command for command in everything if any(mark in command for mark in marks)]
    assert state(program.pid) in "RSD"


@pytest.mark.slow
def test_a_program_that_ends_meanwhile_is_reported(program: subprocess.Popen[bytes], tmp_path: Path) -> None:
    observer = attach(program.pid, "--out", str(tmp_path / "run"), "--json")
    seen(tmp_path / "run", program.pid)
    program.terminate()
    # The one who waits for it.
    assert program.wait(WAIT_S) == -signal.SIGTERM
    content = json.loads(observer.communicate(timeout=WAIT_S)[0])
    assert observer.returncode == 0
    assert content["run"]["ended_by"] == "target"
    assert "The process ended while it was observed." in content["quality"]["notes"]
    assert content["trainers"][0]["looks"] > 0


@pytest.mark.slow
def test_a_program_that_is_stopped_stays_stopped_and_goes_on_when_told(
    program: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    program.send_signal(signal.SIGSTOP)
    observer = attach(program.pid, "--duration", "1", "--out", str(tmp_path / "run"), "--json")
    content = json.loads(observer.communicate(timeout=WAIT_S)[0])
    assert observer.returncode == 0
    assert content["run"]["ended_by"] == "duration"
    assert state(program.pid) == "T"
    assert any("whyidle did not stop it and leaves it so" in note for note in content["quality"]["notes"])
    program.send_signal(signal.SIGCONT)
    wait_for(lambda: state(program.pid) in "RSD", "a process that goes on")


@pytest.mark.skipif(os.geteuid() != 0, reason="the right can only be given up by whoever has it")
def test_without_the_right_the_rest_is_reported_with_the_ways_to_get_it(
    waiting: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    drop = ("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace")
    folder = tmp_path / "run"
    observer = attach(waiting.pid, "--out", str(folder), "--json", wrapper=drop)
    wait_for(lambda: is_run(folder) and len(open_run(folder).records(HOST)) > 2, "the sampler's looks")
    content = interrupted(observer)
    (note,) = [note for note in content["quality"]["notes"] if "ptrace" in note]
    for way in (f"sudo whyidle attach {waiting.pid}", "SYS_PTRACE", "whyidle run"):
        assert way in note
    assert content["verdict"]["cause"] is None
    (trainer,) = content["trainers"]
    assert trainer["cpu"]["running"] is not None
    assert trainer["workers"]["seen"] == 1
    assert content["host"]["tree_cpus"] is not None
    assert state(waiting.pid) in "RSD"


@pytest.mark.slow
def test_the_ranks_of_a_launcher_are_found_behind_it(tmp_path: Path) -> None:
    modes = {"0": MAKING, "1": WAITING}
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
                wait_for((tmp_path / f"result{rank}").exists, f"rank {rank}")
            ranks = psutil.Process(process.pid).children()
            content = observed(process.pid, tmp_path / "run", *(rank.pid for rank in ranks))
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert [t["rank"] for t in content["trainers"]] == [0, 1]
    making, waiting = content["trainers"]
    assert making["workers"] is None
    assert waiting["workers"]["seen"] == 1
    assert making["shares"].keys() == {"data making"}
    assert waiting["shares"].keys() == {"data wait"}
    assert process.pid in [other["pid"] for other in content["others"]]


@pytest.mark.slow
def test_a_training_under_run_is_seen_without_any_frame_of_ours(tmp_path: Path) -> None:
    recording, seen_by = tmp_path / "run", tmp_path / "attached"
    command = ("-m", "whyidle", "run", "--out", str(recording), "--", sys.executable, str(PROGRAM), MAKING)
    with started(tmp_path / "ready", *command) as around:
        children = psutil.Process(around.pid).children()
        living = [each for each in children if each.status() != psutil.STATUS_ZOMBIE]
        (training,) = [each for each in living if PROGRAM.name in " ".join(each.cmdline())]
        try:
            told = observed(around.pid, seen_by, training.pid, looks=LEAST_LOOKS, rate=40)
        finally:
            training.kill()
    (trainer,) = told["trainers"]
    assert trainer["pid"] == training.pid
    assert trainer["shares"].keys() == {"data making"}
    assert told["verdict"]["where"][0]["file"] == str(PROGRAM)
    files = [json.loads(line)["file"] for line in (seen_by / "stacks.jsonl").read_text().splitlines()]
    assert str(PROGRAM) in files
    assert not [file for file in files if is_ours(file)]


def test_while_modules_are_imported_there_is_no_verdict_and_the_package_is_named(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "heavy"
    (package / "nn").mkdir(parents=True)
    (package / "__init__.py").write_text("import heavy.nn\n")
    (package / "nn" / "__init__.py").write_text(
        "import sys, time\ndef _call_impl():\n    time.sleep(1000)\nopen(sys.argv[1], 'w').close()\n_call_impl()\n"
    )
    code = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\nimport heavy\n"
    with started(tmp_path / "ready", "-c", code) as process:
        told = observed(process.pid, tmp_path / "run", looks=LEAST_LOOKS, rate=40)
    assert told["verdict"]["cause"] is None
    assert told["findings"] == []
    assert "importing heavy (100 % of" in told["verdict"]["title"]
    assert told["trainers"][0]["shares"].keys() == {"importing"}


def test_a_users_mistake_is_one_sentence_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    for pid, told in (("4194305", "there is no process"), ("x", "not a process id"), ("0", "not a process id")):
        assert told in mistaken(capsys, "attach", pid)
