"""Whatever becomes of the files of a recording while it is made, the training is what it is without."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.runs import WITHOUT_COMPILER
from whyidle.record.run import open_run
from whyidle.record.schema import STEP

HALF = """
import sys
import time
import torch
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(128, 8), torch.randn(128, 1))
    loader = DataLoader(data, batch_size=16, num_workers=int(sys.argv[1]), multiprocessing_context=sys.argv[2] or None)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(8):
        if epoch == 4:
            print("half", flush=True)
            sys.stdin.readline()
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = ((model(inputs) - targets) ** 2).mean()
            loss.backward()
            optimizer.step()
            time.sleep(0.005)
    print("all", loss.item(), flush=True)
    sys.exit(7)

if __name__ == "__main__":
    main()
"""
"""Says when it has trained for half its time, and waits for a line. Arguments: workers, how they start. Ends with 7."""
STEPS = 64


@contextmanager
def hanging(folder: Path) -> Iterator[tuple[Path, int]]:
    """A folder of a FUSE file system, and the process whose stop makes it hang. Skips the test where there is none:
    it needs bindfs."""
    behind, mount = folder / "behind", folder / "mount"
    behind.mkdir()
    mount.mkdir()
    if shutil.which("bindfs") is None:
        pytest.skip("a folder that hangs needs bindfs (Debian: apt install bindfs)")
    server = subprocess.Popen(["bindfs", "-f", str(behind), str(mount)], stderr=subprocess.DEVNULL)
    try:
        while not os.path.ismount(mount):
            if server.poll() is not None:
                pytest.skip("bindfs cannot mount here")
        yield mount, server.pid
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGCONT)
        subprocess.run(["umount", "-l", str(mount)], capture_output=True)
        server.kill()
        server.wait()


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(b"\xff" * 5000)


def replaced(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"of somebody else")
    other.replace(path)


SPOILT = {"truncated": lambda path: os.truncate(path, 0), "overwritten": overwritten, "replaced": replaced}
SPOILT |= {"removed": Path.unlink}


class Half:
    """A training that waits half way."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout.readline() == "half\n"

    def goes_on(self) -> str:
        """Its last line."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


@contextmanager
def training(tmp_path: Path, run: Path | None, pure: bool = False, workers: int = 0, start: str = "") -> Iterator[Half]:
    program = tmp_path / "half.py"
    program.write_text(WITHOUT_COMPILER + HALF)
    command = [sys.executable, str(program), str(workers), start]
    if run is not None:
        command = [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", str(run), "--", *command]
    environment = os.environ | {"WHYIDLE_PURE": "1" if pure else "0"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:
        yield Half(process)
        process.communicate()


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the training says last without whyidle."""
    with training(tmp_path_factory.mktemp("alone"), None) as half:
        said = half.goes_on()
    assert half.process.returncode == 7
    assert said.startswith("all ")
    return said


@pytest.mark.parametrize(
    ("spoil", "pure", "workers"),
    [
        ("truncated", False, 0),
        *(
            pytest.param(spoil, pure, workers, marks=pytest.mark.slow)
            for spoil in SPOILT
            for pure in (False, True)
            for workers in ((0, 2) if spoil == "truncated" else (0,))
            if (spoil, pure, workers) != ("truncated", False, 0)
        ),
    ],
)
def test_a_training_whose_record_files_are_spoilt_ends_as_it_would_have(
    tmp_path: Path, alone: str, spoil: str, pure: bool, workers: int
) -> None:
    with training(tmp_path, tmp_path / "run", pure, workers) as half:
        paths = [path for path in (tmp_path / "run").iterdir() if path.is_file()]
        for path in paths:
            SPOILT[spoil](path)
        said = half.goes_on()
    assert len(paths) > 5
    assert (said, half.process.returncode) == (alone, 7)


@pytest.mark.parametrize(
    ("pure", "workers", "start"),
    [
        (False, 2, "fork"),
        pytest.param(True, 2, "fork", marks=pytest.mark.slow),
        pytest.param(False, 2, "spawn", marks=pytest.mark.slow),
        pytest.param(True, 0, "", marks=pytest.mark.slow),
    ],
)
def test_a_folder_that_hangs_holds_up_no_step(tmp_path: Path, alone: str, pure: bool, workers: int, start: str) -> None:
    """Workers are started anew in each epoch, so the second half has all that a training ever asks of the folder."""
    with hanging(tmp_path) as (folder, server):
        with training(tmp_path, folder / "run", pure, workers, start) as half:
            os.kill(server, signal.SIGSTOP)
            said = half.goes_on()
            # It has trained to its end, and the folder has not answered since half of it.
            os.kill(server, signal.SIGCONT)
        assert (said, half.process.returncode) == (alone, 7)
        assert len(open_run(folder / "run").records(STEP)) == STEPS


def test_a_training_whose_sampler_is_killed_keeps_all_its_records(tmp_path: Path, alone: str) -> None:
    run = tmp_path / "run"
    with training(tmp_path, run, workers=2) as half:
        for entry in Path("/proc").iterdir():
            command = entry / "cmdline"
            with_run = entry.name.isdigit() and command.exists() and command.read_bytes().split(b"\0")
            if with_run and b"whyidle.capture.sampler" in with_run and os.fsencode(run) in with_run:
                os.kill(int(entry.name), signal.SIGKILL)
        said = half.goes_on()
    assert (said, half.process.returncode) == (alone, 7)
    opened = open_run(run)
    assert opened.records(STEP)["step"].tolist() == list(range(STEPS))
    assert opened.dropped() == 0
