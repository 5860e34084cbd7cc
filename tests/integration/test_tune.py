"""`whyidle tune` as a user runs it: real programs, real loaders, an emulated device."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.runs import WHYIDLE, WITHOUT_COMPILER, called, mistaken, report, short_folder
from whyidle.terminal.progress import TuneProgress
from whyidle.tune.search import SearchProgress
from whyidle.tune.training import members

SLOW = (Path(__file__).with_name("programs") / "slow.py").read_text()


def written(sample_s: float = 0.0, step_s: float = 0.0, epochs: int = 1000, samples: int = 4000) -> str:
    loader = f"DataLoader(Slow({samples}, {sample_s}), batch_size=4, shuffle=True)"
    return f'{WITHOUT_COMPILER}{SLOW}\nif __name__ == "__main__":\n    train({epochs}, lambda: {loader}, {step_s})\n'


def program(folder: Path, sample_s: float, step_s: float) -> Path:
    path = folder / "train.py"
    path.write_text(written(sample_s, step_s))
    return path


def nothing_is_left(folder: Path) -> None:
    """Of the trainings recorded there."""
    for run in folder.glob("training-*"):
        assert not members(f"WHYIDLE_RUN={run.resolve()}")
        assert not [path for path in run.iterdir() if path.is_fifo()]


def test_ctrl_c_gives_the_best_so_far(tmp_path: Path) -> None:
    """A loader without workers whose samples take time, started through a shell script. What is found in a given time,
    `test_search` tests on a virtual clock, and `python -m benchmarks.tuning` measures."""
    script, out = tmp_path / "train.sh", tmp_path / "out"
    script.write_text(f"#!/bin/sh\n{sys.executable} {program(tmp_path, 0.004, 0.002)}\necho ended\n")
    script.chmod(0o755)
    with short_folder() as temporary, (tmp_path / "said.txt").open("w") as stderr:
        # It would go on for ten minutes.
        words = [*WHYIDLE, "tune", "--budget", "600", "--max-workers", "3", "--out", str(out), "--json", "r.json"]
        running = subprocess.Popen(
            [*words, "--", str(script)],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "TMPDIR": str(temporary)},
            # In the background of a shell SIGINT is ignored, which is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + 200
        while time.monotonic() < until and running.poll() is None:
            if "[3]" in (tmp_path / "said.txt").read_text():
                break
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        shown, _ = running.communicate(timeout=100)
        said = (tmp_path / "said.txt").read_text()
        assert running.returncode == 130, said
        assert "Traceback" not in said
        nothing_is_left(out)
        assert not list(temporary.glob("pymp-*"))
    stopped = json.loads((tmp_path / "r.json").read_text())

    before = said.partition("[1]")[0]
    assert "ended without finishing" in before
    assert "--overwrite" in before
    assert str(out / "training-1" / "output.txt") in before
    assert stopped["ended"] == "stopped"
    assert str(out) in shown
    assert stopped["cost"]["steps"] > 60
    assert stopped["cost"]["starts"] == 1
    assert stopped["baseline"]["settings"]["num_workers"] == 0
    assert stopped["best"]["settings"]["batch_size"] == 4
    tried = [trial["settings"] for trial in stopped["trials"]]
    assert all(stopped[which]["settings"] in tried for which in ("baseline", "best"))
    assert stopped["speedup_low"] <= stopped["speedup"] <= stopped["speedup_high"]
    told = report(out / "first-stretch")
    assert told["window"]["steps"] + told["window"]["warmup_steps"] >= 60
    assert told["input"]["workers"] in (None, 0)


@pytest.mark.slow
def test_a_scenario_on_an_emulated_device(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shows = TuneProgress.show

    def interrupted_once_workers_were_tried(progress: TuneProgress, now: SearchProgress) -> None:
        shows(progress, now)
        if now.entry is not None and now.entry.block is not None and now.entry.block.settings.num_workers:
            raise KeyboardInterrupt

    monkeypatch.setattr(TuneProgress, "show", interrupted_once_workers_were_tried)
    done = called(
        "tune",
        *("ssd", "--device", "emulated:h200", "--data", images, "--pipelines", "workers", "--no-augment"),
        *("--budget", "600", "--batch-sizes", "none", "--max-workers", "2", "--out", tmp_path / "out"),
        *("--json", tmp_path / "r.json"),
    )
    assert done.returncode == 130, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["scenario"] == "ssd"
    assert result["device"]["kind"] == "emulated"
    assert result["baseline"]["settings"]["pipeline"] == "workers"
    assert result["baseline"]["settings"]["batch_size"] == 8
    assert any(trial["settings"]["num_workers"] > 0 and trial["samples_per_s"] for trial in result["trials"])
    assert "emulated" in done.stdout.splitlines()[0]
    nothing_is_left(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('no training here')", "exit code 0"),
        ("raise ValueError('planted')", "planted"),
        (written(epochs=1, samples=40), "ended after 10 steps"),
    ],
    ids=["no training", "crash", "ten steps"],
)
def test_a_program_that_cannot_be_tuned_is_one_message(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    done = called("tune", "--out", tmp_path / "out", "--", sys.executable, path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    nothing_is_left(tmp_path / "out")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing"], "unknown scenario 'nothing'"),
        (["train.py"], "whyidle tune -- python train.py"),
        (["--", "nothing"], "there is no program 'nothing' to run"),
        (["--", "no-such-program", "x"], "there is no program 'no-such-program' to run"),
        (["--budget", "5", "--", "true"], "20 s at least"),
        (["--device", "cpu", "--", "python", "x.py"], "--device is an option of scenarios"),
        (["ssd", "--device", "emulated:nothing"], "nothing"),
        (["ssd", "--pipelines", "naive", "--device", "emulated:v100"], "has nothing to tune"),
        (["--json", "no/such/r.json", "--", "true", "x"], "there is no folder"),
        (["--prove", "ssd", "--device", "emulated:v100"], "--prove takes a command, not a scenario"),
        (["--patch", "no/such.patch", "--", "true", "x"], "there is no folder"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_mistake_is_one_message(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    words: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    # Whether there is a `--` is looked up there.
    monkeypatch.setattr(sys, "argv", ["whyidle", "tune", *arguments])
    assert words in mistaken(capsys, "tune", *arguments)
    # Nothing was started, so nothing is left.
    assert not list(tmp_path.iterdir())


def test_a_patch_is_not_written_over_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "fix.patch"
    kept.write_text("mine")
    said = mistaken(capsys, "tune", "--patch", kept, "--", "true", "x")
    assert f"--patch {kept} exists already. Name a new file" in said
    assert list(tmp_path.iterdir()) == [kept]
    assert kept.read_text() == "mine"


@pytest.mark.slow
def test_the_first_advice_is_tried_and_held_against_its_promise(tmp_path: Path) -> None:
    script = program(tmp_path, 0.01, 0.0)
    before = script.read_bytes()
    where = ["--out", tmp_path / "out", "--json", tmp_path / "proof.json", "--patch", tmp_path / "fix.patch"]
    done = called("tune", "--prove", "--budget", "30", "--no-live", *where, "--", sys.executable, script)
    assert done.returncode == 0, done.stderr
    told = json.loads((tmp_path / "proof.json").read_text())
    assert (told["format"], told["cause"], told["first"]) == ("whyidle-proof", "input.serial", True)
    assert told["advice"]["settings"]["num_workers"] == told["settings"]["num_workers"] >= 1
    assert told["baseline"]["num_workers"] == 0
    assert told["rounds"] >= 1
    assert told["kept"] in (True, False, None)
    assert "promised" in done.stdout
    assert "measured" in done.stdout
    assert "do not keep what it learned" in done.stderr
    assert script.read_bytes() == before
    # Whether it was faster is the machine's.
    assert (tmp_path / "fix.patch").exists() == (told["patch"] is not None and told["patch"]["diff"] != "")
    nothing_is_left(tmp_path / "out")
