"""`whyidle tune` as a user runs it: real programs, real loaders, an emulated device."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from runs import WHYIDLE, WITHOUT_COMPILER, report, short_folder
from whyidle.commands.main import main
from whyidle.tune.leftovers import members

TRAIN = (
    WITHOUT_COMPILER
    + """
import sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, index):
        time.sleep({sample_s})
        return torch.rand(16), index % 4

def main():
    torch.set_num_threads(1)
    model = nn.Linear(16, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(1000):
        for images, labels in DataLoader(Slow(), batch_size=4, shuffle=True):
            time.sleep({step_s})
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            {each}
    print("done")

if __name__ == "__main__":
    main()
"""
)


def written(sample_s: float = 0.0, step_s: float = 0.0, each: str = "pass") -> str:
    return TRAIN.replace("{sample_s}", str(sample_s)).replace("{step_s}", str(step_s)).replace("{each}", each)


def program(folder: Path, sample_s: float, step_s: float, each: str = "pass") -> Path:
    path = folder / "train.py"
    path.write_text(written(sample_s, step_s, each))
    return path


def tune(*arguments: object) -> subprocess.CompletedProcess[str]:
    """The command in this process, as starting one takes longer than its own work. Trainings are processes anyway."""
    words = ["tune", *map(str, arguments)]
    with redirect_stdout(io.StringIO()) as shown, redirect_stderr(io.StringIO()) as said:
        code = main(words)
    return subprocess.CompletedProcess(words, code, shown.getvalue(), said.getvalue())


def nothing_is_left(folder: Path) -> None:
    """Of the trainings recorded there."""
    for run in folder.glob("training-*"):
        assert not members(f"WHYIDLE_RUN={run.resolve()}")
        assert not [path for path in run.iterdir() if path.is_fifo()]


@dataclass(frozen=True)
class Tuned:
    """A tuning that was stopped by Ctrl-C, and what it came to when it was resumed."""

    folder: Path
    stopped: dict[str, Any]
    shown: str
    said: str
    blocks: int
    resumed: dict[str, Any]
    after: subprocess.CompletedProcess[str]

    @property
    def out(self) -> Path:
        return self.folder / "out"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """A loader without workers whose samples take time, started through a shell script."""
    folder = tmp_path_factory.mktemp("tune")
    script = folder / "train.sh"
    script.write_text(f"#!/bin/sh\n{sys.executable} {program(folder, 0.004, 0.002)}\necho ended\n")
    script.chmod(0o755)
    with short_folder() as temporary:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        out = folder / "out"
        words = [*WHYIDLE, "tune", "--budget", "100", "--max-workers", "3", "--out", str(out), "--json", "r.json"]
        running = subprocess.Popen(
            [*words, "--", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            env=environment,
            # In the background of a shell SIGINT is ignored, which is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        until = time.monotonic() + 90
        while time.monotonic() < until and running.poll() is None and blocks_in(out) < 3:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        shown, said = running.communicate(timeout=60)
        assert running.returncode == 130, said
        assert "Traceback" not in said
        nothing_is_left(out)
        blocks = blocks_in(out)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(temporary))
            after = tune("--resume", out, "--budget", "40", "--json", folder / "again.json")
        assert after.returncode == 0, after.stderr
        assert "Traceback" not in after.stderr
        nothing_is_left(out)
        assert not list(temporary.glob("pymp-*"))
    results = [json.loads((folder / name).read_text()) for name in ("r.json", "again.json")]
    return Tuned(folder, results[0], shown, said, blocks, results[1], after)


def blocks_in(folder: Path) -> int:
    try:
        return len(json.loads((folder / "tune.json").read_text())["history"])
    except (OSError, ValueError):
        return 0


def test_a_loader_without_workers_is_given_some(tuned: Tuned) -> None:
    result = tuned.resumed
    assert result["baseline"]["settings"]["num_workers"] == 0
    assert result["best"]["settings"]["num_workers"] >= 2
    assert result["best"]["settings"]["batch_size"] == 4
    assert result["speedup"] > 1.5
    assert 1 < result["speedup_low"] <= result["speedup"] <= result["speedup_high"]
    assert result["headroom"] > 0.5
    best = next(trial for trial in result["trials"] if trial["settings"] == result["best"]["settings"])
    assert best["blocks"] >= 2


def test_ctrl_c_gives_the_best_so_far_and_resuming_goes_on_from_there(tuned: Tuned) -> None:
    assert tuned.stopped["ended"] == "stopped"
    assert any(words in tuned.shown for words in ("so far", "promising"))
    assert f"whyidle tune --resume {tuned.out}" in tuned.said
    assert blocks_in(tuned.out) > tuned.blocks >= 3
    assert [result["cost"]["sittings"] for result in (tuned.stopped, tuned.resumed)] == [1, 2]
    assert tuned.resumed["cost"]["steps"] > tuned.stopped["cost"]["steps"] > 60
    assert tuned.resumed["cost"]["starts"] == 2


def test_it_says_beforehand_what_happens_and_afterwards_what_to_change(tuned: Tuned) -> None:
    before = tuned.said.partition("[1/")[0]
    assert "ended without finishing" in before
    assert "--overwrite" in before
    assert str(tuned.out / "training-1" / "output.txt") in before
    workers = tuned.resumed["best"]["settings"]["num_workers"]
    lines = [line.strip() for line in tuned.after.stdout.splitlines()]
    assert "- DataLoader(…, num_workers=0)" in lines
    assert any(line.startswith(f"+ DataLoader(…, num_workers={workers}") for line in lines)
    assert "times as fast (95 % interval" in lines[0]


def test_the_first_stretch_is_a_run_of_its_own(tuned: Tuned) -> None:
    told = report(tuned.out / "first-stretch")
    assert told["verdict"]["cause"] == "input.serial"
    assert 60 <= told["window"]["steps"] + told["window"]["warmup_steps"] < 600


def test_a_training_that_does_not_wait_for_its_loader_is_left_as_it_is(tmp_path: Path) -> None:
    path = program(tmp_path, 0.0, 0.06)
    done = tune("--budget", "20", "--json", "-", "--out", tmp_path / "out", "--", sys.executable, path)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["ended"] == "nothing_to_gain"
    assert result["best"] == result["baseline"]
    assert result["speedup"] == pytest.approx(1)
    assert result["headroom"] < 0.03
    nothing_is_left(tmp_path / "out")


def test_a_scenario_on_an_emulated_device(images: Path, tmp_path: Path) -> None:
    done = tune(
        *("ssd", "--device", "emulated:h200", "--data", images, "--pipelines", "workers", "--no-augment"),
        *("--budget", "20", "--batch-sizes", "none", "--max-workers", "2", "--out", tmp_path / "out"),
        *("--json", tmp_path / "r.json"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["scenario"] == "ssd"
    assert result["device"]["kind"] == "emulated"
    assert result["baseline"]["settings"]["pipeline"] == "workers"
    assert result["baseline"]["settings"]["batch_size"] == 8
    assert result["headroom"] > 0.5
    assert any(trial["settings"]["num_workers"] > 0 and trial["samples_per_s"] for trial in result["trials"])
    assert "emulated" in done.stdout.splitlines()[0]
    nothing_is_left(tmp_path / "out")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('no training here')", "exit code 0"),
        ("raise ValueError('planted')", "planted"),
        (written().replace("range(1000)", "range(1)").replace("4000", "40"), "ended after 10 steps"),
    ],
    ids=["no training", "crash", "ten steps"],
)
def test_a_program_that_cannot_be_tuned_is_one_message(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(text)
    done = tune("--out", tmp_path / "out", "--", sys.executable, path)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert done.stdout == ""
    nothing_is_left(tmp_path / "out")


def test_an_existing_file_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "model.txt"
    kept.write_text("mine")
    os.utime(kept, (1e9, 1e9))
    path = program(tmp_path, 0.0, 0.0, f"open({str(kept)!r}, 'w').write('theirs')")
    # What lies in the folder for temporary files is not guarded.
    with short_folder() as temporary:
        monkeypatch.setenv("TMPDIR", str(temporary))
        done = tune("--out", tmp_path / "out", "--", sys.executable, path)
    assert done.returncode == 2, done.stderr
    assert f"overwrite {kept}" in done.stderr
    assert kept.read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "nothing to tune is named"),
        (["nothing"], "unknown scenario 'nothing'"),
        (["train.py"], "whyidle tune -- python train.py"),
        (["--", "nothing"], "there is no program 'nothing' that could be run"),
        (["--", "no-such-program", "x"], "there is no program 'no-such-program' that could be run"),
        (["--budget", "5", "--", "true"], "20 s at least"),
        (["--device", "cpu", "--", "python", "x.py"], "--device is an option of scenarios"),
        (["ssd", "--device", "emulated:nothing"], "nothing"),
        (["ssd", "--pipelines", "naive", "--device", "emulated:v100"], "has nothing to tune"),
        (["--json", "no/such/r.json", "--", "true", "x"], "there is no folder"),
        (["--resume", "nowhere"], "holds no tuning"),
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
    monkeypatch.setattr(sys, "argv", ["whyidle", "tune", *arguments])
    # In this process: importing torch takes longer than saying it. Of some, argparse says it.
    with pytest.raises(SystemExit) as ended:
        sys.exit(main())
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    # Nothing was started, so nothing is left.
    assert not list(tmp_path.iterdir())
