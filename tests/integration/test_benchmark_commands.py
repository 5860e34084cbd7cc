"""Commands of the benchmark of diagnosis: of what they start nothing is left; and a planted sweep over the batch size,
trained for real. Whether its reason is found, the benchmark itself measures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from support.terminals import alive
from whyidle_bench import batch_sizes as sweep_planted
from whyidle_bench.execute import TOOK_TOO_LONG, execute

FORKS = "import os, time; os.fork(); os.write(1, b'%d\\n' % os.getpid()); time.sleep(600)"
"""A program that starts another, and says both numbers, each in one write: without buffers `print` makes two."""


def _said(output: Path) -> set[int]:
    return {int(number) for number in output.read_text().split("\n")[:-1]}


def test_the_exit_code_and_what_was_printed(tmp_path: Path) -> None:
    program = "import os, sys; print(os.getcwd()); print('to stderr', file=sys.stderr); sys.exit(3)"
    command = [sys.executable, "-c", program]
    assert execute(command, tmp_path, tmp_path / "both.txt") == 3
    assert set((tmp_path / "both.txt").read_text().splitlines()) == {str(tmp_path), "to stderr"}
    assert execute(command, tmp_path, tmp_path / "output.txt", errors=subprocess.DEVNULL) == 3
    assert (tmp_path / "output.txt").read_text() == f"{tmp_path}\n"


@pytest.mark.parametrize("error", [subprocess.TimeoutExpired("python", 240), KeyboardInterrupt()], ids=repr)
def test_what_takes_too_long_or_is_interrupted_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    wait, output = subprocess.Popen.wait, tmp_path / "output.txt"

    def ended(process: subprocess.Popen[bytes], timeout: float | None = None) -> int:
        """With an error as soon as the command has said which processes there are."""
        if timeout is None:
            return wait(process)
        wait_for(lambda: len(_said(output)) == 2)
        raise error

    monkeypatch.setattr(subprocess.Popen, "wait", ended)
    command = [sys.executable, "-c", FORKS]
    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            execute(command, tmp_path, output)
    else:
        assert execute(command, tmp_path, output) == TOOK_TOO_LONG
    wait_for(lambda: not any(map(alive, _said(output))))


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
    wait_for(lambda: benchmark.poll() is not None or (output.exists() and len(_said(output)) == 2), seconds=240)
    os.kill(benchmark.pid, signal.SIGTERM)
    assert benchmark.wait(240) == 143
    wait_for(lambda: not any(map(alive, _said(output))))


NAME = "accounting.fast"
SIZES = ("4", "16")
BENCHMARK = [sys.executable, "-m", "whyidle_bench", "batch-sizes"]


@pytest.mark.slow
def test_a_sweep_is_trained_at_each_size_and_told_beside_its_truth_again_and_again(tmp_path: Path) -> None:
    out = tmp_path / "made"
    command = [*BENCHMARK, "--cases", NAME, "--repeats", "2", "--out", str(out), "--json", str(tmp_path / "told.json")]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert shown.returncode == 0, shown.stderr
    told = json.loads((tmp_path / "told.json").read_text())
    assert [cell["status"] for cell in told["cells"]] == ["ok", "ok"]
    sweep, verdict = told["sweeps"][NAME], told["batch_verdicts"][NAME]
    assert sweep["planted"]["cause"] is not None
    assert set(sweep["true_terms"]) == set(verdict["terms"]) == set(SIZES)
    # It is a larger batch that processes more samples.
    assert verdict["work"]["16"]["samples"] == 4 * verdict["work"]["4"]["samples"]
    assert sweep_planted.load(out).json()["sweeps"] == told["sweeps"]

    rows = subprocess.run([*BENCHMARK, "--from", str(out)], capture_output=True, text=True)
    assert rows.returncode == 0, rows.stderr
    # What was planted and named, and the terms at either size.
    assert len([line for line in rows.stdout.splitlines() if line.startswith(f"| {NAME} |")]) == 3
