"""Faults of ours, planted one by one, and whatever becomes of a recording's files while it is made: the training ends
as it would have, and the report says what is missing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import support.runs as runs
import support.warm as warm
from support.fakes.driver import wait_for
from support.runs import WHYIDLE, WITHOUT_COMPILER, report, steps_of
from support.small_disk import small_disk
from support.warm import run
from whyidle.record.run import open_run
from whyidle.record.schema import STEP

TRAIN = """
import os, sys, time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)
torch.manual_seed(0)
class Sleeping(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((4,), float(index)), index % 2
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.001)
{before}
for epoch in range(2):
    for number, (x, y) in enumerate(DataLoader(Sleeping(), batch_size=4, num_workers={workers})):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch == 0 and number == 20:
            {within}
            pass
print(loss.item().hex())
sys.exit(5)
"""
STEPS = 80


def program(tmp_path: Path, before: str = "", within: str = "pass", workers: int = 0) -> list[str | Path]:
    path = tmp_path / "train.py"
    path.write_text(WITHOUT_COMPILER + TRAIN.format(before=before, within=within, workers=workers))
    return [sys.executable, path]


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the training prints without us."""
    command = program(tmp_path_factory.mktemp("bare"))
    done = warm.bare(*command[1:])
    assert done.returncode == 5, done.stderr
    return done.stdout


def as_without_us(truth: str, folder: Path, *command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    """A training that is recorded, and prints and ends as it does alone."""
    done = run(folder, *command, **more)
    assert (done.returncode, done.stdout) == (5, truth), done.stderr
    assert "Traceback" not in done.stderr
    return done


def notes_of(folder: Path) -> str:
    return " ".join(report(folder)["quality"]["notes"])


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_the_run_folder_vanishes(tmp_path: Path, truth: str, workers: int) -> None:
    # Whoever removes a folder that is written into meets files that have come meanwhile.
    remove = "import shutil; [shutil.rmtree(os.environ['WHYIDLE_RUN'], ignore_errors=True) for _ in range(9)]"
    done = as_without_us(truth, tmp_path / "run", *program(tmp_path, within=remove, workers=workers))
    assert "no report" in done.stderr


@pytest.mark.parametrize("what", ["*", pytest.param("run.json", marks=pytest.mark.slow)])
def test_the_run_folder_is_emptied(tmp_path: Path, truth: str, what: str) -> None:
    empty = f"from pathlib import Path; [p.unlink() for p in Path(os.environ['WHYIDLE_RUN']).glob('{what}')]"
    done = as_without_us(truth, tmp_path / "run", *program(tmp_path, within=empty, workers=2))
    assert "no report" in done.stderr


def test_the_disk_is_full(tmp_path: Path, truth: str) -> None:
    with small_disk(tmp_path / "disk", 272) as disk:
        fill = f"open({str(disk / 'filler')!r}, 'wb').write(bytes(10**6))"
        full = f"\ntry:\n    {fill}\nexcept OSError:\n    pass\n"
        done = as_without_us(truth, disk / "run", *program(tmp_path, before=full, workers=2))
        shown = " ".join(done.stderr.split())
        assert "No space left" in shown or "could not be written" in shown


WITHIN_A_STEP = {
    # The sampler is killed, as soon as it is there.
    """import psutil; words = ('whyidle.capture.sampler', os.environ['WHYIDLE_RUN'])
            named = lambda process: ' '.join(process.info['cmdline'] or ())
            samplers = lambda: [p for p in psutil.process_iter(['cmdline']) if all(w in named(p) for w in words)]
            while not samplers(): time.sleep(0.05)
            [sampler.kill() for sampler in samplers()]""": "sampler ended with exit code -9",
    # A hook raises.
    "from whyidle.capture import active; loop = active.current().hooks._loop; "
    "loop.fetch_begins = loop.fetch_ends = loop.learns = lambda *a: 1 / 0; loop.open = None": (
        "failed and was switched off"
    ),
    # Another recording of the same process begins.
    "from whyidle.capture.recording import recording; recording('inner').__enter__()": "is recorded once",
}
"""What happens within a step → what is noted of it."""


@pytest.mark.parametrize("within", WITHIN_A_STEP, ids=list(WITHIN_A_STEP.values()))
def test_what_happens_within_a_step_is_noted_and_the_training_goes_on(tmp_path: Path, truth: str, within: str) -> None:
    as_without_us(truth, tmp_path / "run", *program(tmp_path, within=within), cwd=tmp_path)
    noted = WITHIN_A_STEP[within]
    assert noted in notes_of(tmp_path / "run")
    assert "switched off" in noted or steps_of(tmp_path / "run") == STEPS
    assert not (tmp_path / "inner").exists()


def test_a_recording_cannot_begin(tmp_path: Path, truth: str) -> None:
    break_it = "import whyidle.capture.session as s; s.StepRecorder = None"
    path = program(tmp_path)[1]
    Path(path).write_text(break_it.join(("import torch\n", "\n")) + Path(path).read_text())
    as_without_us(truth, tmp_path / "run", sys.executable, path)
    assert "could not be recorded" in notes_of(tmp_path / "run")


@pytest.mark.slow
def test_the_hooks_cannot_be_set_up(tmp_path: Path, truth: str) -> None:
    path = tmp_path / "train.py"
    program(tmp_path)
    path.write_text("import sys; sys.modules['whyidle.capture.bootstrap.arm'] = None\n" + path.read_text())
    # Before torch is imported, which a Python that is started does.
    done = runs.run(tmp_path / "run", sys.executable, path)
    assert (done.returncode, done.stdout) == (5, truth)
    assert "could not be set up" in notes_of(tmp_path / "run")


def test_the_clock_goes_backwards(tmp_path: Path, truth: str) -> None:
    # By an hour, within a step: the machine's own cannot, but this must not matter.
    back = (
        "from whyidle.capture import active; import time; d = active.current(); "
        "jump = lambda: time.monotonic_ns() - 3600 * 10**9; "
        "d.session._now = d.session.steps._now = d.hooks._loop._now = jump"
    )
    as_without_us(truth, tmp_path / "run", *program(tmp_path, within=back))
    shares = report(tmp_path / "run")["breakdown"]
    if shares:
        known = [share for share in shares.values() if share is not None]
        assert not known or abs(sum(known) - 100) < 0.1
        assert all(share >= 0 for share in known)


@pytest.mark.slow
def test_a_run_within_a_run(tmp_path: Path, truth: str) -> None:
    inner = [*WHYIDLE, "run", "--no-live", "--out", tmp_path / "inner", "--", *program(tmp_path)]
    as_without_us(truth, tmp_path / "outer", *inner, training=False)
    assert steps_of(tmp_path / "inner") == STEPS
    assert report(tmp_path / "outer")["verdict"]["cause"] is None


@pytest.mark.slow
def test_dozens_of_workers_come_and_go(tmp_path: Path) -> None:
    code = TRAIN.replace("range(2)", "range(20)").replace("return 160", "return 8").replace("0.001", "0.0")
    path = tmp_path / "train.py"
    path.write_text(code.format(before="", within="pass", workers=2))
    done = run(tmp_path / "run", sys.executable, path)
    assert done.returncode == 5, done.stderr
    assert steps_of(tmp_path / "run") == 40
    # Files are taken over from workers that have ended: those of 40 workers would be as many more.
    assert len(list((tmp_path / "run").iterdir())) < 30


def test_the_command_that_records_is_killed(tmp_path: Path, truth: str) -> None:
    out, go = tmp_path / "out", tmp_path / "go"
    hold = f"while not os.path.exists({str(go)!r}): time.sleep(0.01)"
    command = ["run", "--no-live", "--out", str(tmp_path / "run"), "--", *map(str, program(tmp_path, within=hold))]
    with out.open("w") as file, Path(os.devnull).open("r+") as nothing:
        process = warm.Process("trainings", "recorded", command, (nothing.fileno(), file.fileno(), nothing.fileno()))
    wait_for(lambda: any((tmp_path / "run").glob("step-*.rec")))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    go.touch()
    wait_for(out.read_text)
    # The training went on by itself, and its recording with it, which its sampler writes to the end.
    assert out.read_text() == truth
    wait_for(lambda: steps_of(tmp_path / "run") == STEPS)
    assert "was not ended" in notes_of(tmp_path / "run")


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
HALF_STEPS = 64


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
        assert len(open_run(folder / "run").records(STEP)) == HALF_STEPS


def test_a_training_whose_sampler_is_killed_keeps_all_its_records(tmp_path: Path, alone: str) -> None:
    run = tmp_path / "run"
    with training(tmp_path, run, workers=2) as half:
        commands = {process: " ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])}
        (sampler,) = (each for each, told in commands.items() if "whyidle.capture.sampler" in told and str(run) in told)
        sampler.kill()
        said = half.goes_on()
    assert (said, half.process.returncode) == (alone, 7)
    opened = open_run(run)
    assert opened.records(STEP)["step"].tolist() == list(range(HALF_STEPS))
    assert opened.dropped() == 0
