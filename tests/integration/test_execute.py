"""Commands of the benchmark of diagnosis: of what they start nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from whyidle_bench.execute import TOOK_TOO_LONG, execute

FORKS = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
"""A program that starts another, and says both numbers, each in one write: without buffers `print` makes two."""


def _gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"


def _said(output: Path) -> set[int]:
    return {int(number) for number in output.read_text().split("\n")[:-1]}


def _wait_until_gone(pids: set[int]) -> None:
    deadline = time.monotonic() + 120
    while not all(map(_gone, pids)):
        assert time.monotonic() < deadline, pids
        time.sleep(0.02)


def test_the_exit_code_and_what_was_printed(tmp_path: Path) -> None:
    program = "import os, sys; print(os.getcwd()); print('to stderr', file=sys.stderr); sys.exit(3)"
    command = [sys.executable, "-c", program]
    assert execute(command, tmp_path, tmp_path / "both.txt") == 3
    assert set((tmp_path / "both.txt").read_text().splitlines()) == {str(tmp_path), "to stderr"}
    assert execute(command, tmp_path, tmp_path / "output.txt", errors=subprocess.DEVNULL) == 3
    assert (tmp_path / "output.txt").read_text() == f"{tmp_path}\n"


@pytest.fixture
def ended_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException], None]:
    """Lets the wait for a command end with an error as soon as that has said which processes there are."""
    wait = subprocess.Popen.wait

    def end_by(error: BaseException) -> None:
        def ended(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
            if timeout is None:
                return wait(process)
            deadline = time.monotonic() + 120
            while len(_said(tmp_path / "output.txt")) < 2:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            raise error

        monkeypatch.setattr(subprocess.Popen, "wait", ended)

    return end_by


def test_what_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, ended_by: Callable[[BaseException], None]
) -> None:
    ended_by(subprocess.TimeoutExpired("python", 240))
    output = tmp_path / "output.txt"
    assert execute([sys.executable, "-c", FORKS], tmp_path, output) == TOOK_TOO_LONG
    _wait_until_gone(_said(output))


def test_ctrl_c_ends_what_was_started(tmp_path: Path, ended_by: Callable[[BaseException], None]) -> None:
    ended_by(KeyboardInterrupt())
    output = tmp_path / "output.txt"
    with pytest.raises(KeyboardInterrupt):
        execute([sys.executable, "-c", FORKS], tmp_path, output)
    _wait_until_gone(_said(output))


def test_a_benchmark_that_is_told_to_end_leaves_nothing_running(tmp_path: Path) -> None:
    adapter = tmp_path / "my_tool.py"
    adapter.write_text(
        "from whyidle_bench.rivals.tool import Said, Tool\n"
        f"forks = {FORKS!r}\n"
        "TOOL = Tool('mine', '', lambda python, case: [[str(python), '-c', forks]], lambda at: Said((), ''), {})\n"
    )
    command = [sys.executable, "-m", "whyidle_bench", "rivals", "--adapter", str(adapter)]
    command += ["--tools", "mine", "--cases", "input.serial-middle", "--rounds", "0", "--out", str(tmp_path / "out")]
    benchmark = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    output = tmp_path / "out" / "cases" / "input.serial-middle" / "mine-0" / "output-0.txt"
    deadline = time.monotonic() + 240
    while not output.exists() or len(_said(output)) < 2:
        assert benchmark.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(benchmark.pid, signal.SIGTERM)
    assert benchmark.wait(240) == 143
    _wait_until_gone(_said(output))
