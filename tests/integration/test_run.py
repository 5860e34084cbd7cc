"""`whyidle run`: a training runs as it would without, and is recorded.

The input, signals, exit codes, environment and outputs of commands of any kind stay theirs. `whyidle.log_to` and
`--prometheus` give the figures that the command computes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import support.warm as warm
from support.fakes.driver import wait_for
from support.runs import WHYIDLE, WITHOUT_COMPILER, report, run, steps_of
from whyidle.record.notices import read_notices
from whyidle.record.run import open_run
from whyidle.record.schema import HOST

TRAIN = """
import hashlib, random, sys, numpy, torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, index):
        # Random augmentation, from every generator there is.
        noise = torch.rand(3, 8, 8) + random.random() + float(numpy.random.rand())
        return noise * (index + 1), index % 4

def seed(worker):
    random.seed(worker + torch.initial_seed() % 1000); numpy.random.seed(worker)

def main(workers, *methods):
    # Workers are started in each epoch, in each as told.
    workers = int(workers)
    print("----")
    torch.manual_seed(3); random.seed(4); numpy.random.seed(5); torch.set_num_threads(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Images(), batch_size=8, shuffle=True, num_workers=workers, worker_init_fn=seed)
    checking = DataLoader(Images(), batch_size=16)
    for epoch in range(2):
        if workers:
            loader.multiprocessing_context = methods[epoch]
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            print(loss.item().hex())
        with torch.no_grad():
            print(sum(model(images).sum().item() for images, _ in checking).hex())
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    print(hashlib.sha256(weights).hexdigest(), torch.rand(1).item(), random.random(), numpy.random.rand())
    print("done", file=sys.stderr)

if __name__ == "__main__":
    for training in " ".join(sys.argv[1:]).split(" / "):
        main(*training.split())
"""
STEPS = 2 * 96 // 8


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(WITHOUT_COMPILER + TRAIN)
    return path


def bare(program: Path, training: str) -> str:
    """What a training prints without us."""
    # What a worker draws does not depend on how it was started.
    done = warm.bare(program, *training.replace("spawn forkserver", "fork fork").split())
    assert (done.returncode, done.stderr) == (0, "done\n")
    return done.stdout


@pytest.mark.parametrize(
    ("training", "started"),
    [
        ("0", False),
        ("2 fork fork", False),
        # With torch's compiler as it is imported.
        pytest.param("0", True, marks=pytest.mark.slow),
        # Workers that are started begin as the training's own Python does: it is started, too.
        pytest.param("1 spawn forkserver", True, marks=pytest.mark.slow),
    ],
)
def test_a_seeded_training_is_the_same_to_the_last_bit(
    tmp_path: Path, program: Path, training: str, started: bool
) -> None:
    expected = bare(program, training)
    if started and training == "0":
        program.write_text(TRAIN)
    record = run if started else warm.run
    recorded = record(tmp_path / "run", sys.executable, program, *training.split())
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout == expected
    # What it wrote to stderr stands there whole, before our report.
    assert recorded.stderr.startswith("done\n")
    assert steps_of(tmp_path / "run") == STEPS
    seen = report(tmp_path / "run")
    assert seen["window"]["batch_size"] == 8
    assert seen["run"]["exit_code"] == 0
    assert seen["breakdown"]["boundary_pct"] > 0
    # The loader counts as one with workers only if it has some.
    assert seen["input"]["workers"] in ((None, 0) if training == "0" else (int(training[0]),))


RAISES = """
import torch
from torch.utils.data import DataLoader
class Images(torch.utils.data.Dataset):
    def __len__(self):
        return 99
    def __getitem__(self, index):
        if index == 50:
            raise ValueError("no image 50")
        return torch.rand(4)
class Broken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum()
    @staticmethod
    def backward(ctx, grad):
        raise ValueError("no gradient")
weight = torch.zeros(4, requires_grad=True)
optimizer = torch.optim.SGD([weight], 0.1)
import traceback
try:
    for batch in DataLoader(Images(), batch_size=4, num_workers={workers}):
        (batch * weight).sum().backward()
        optimizer.step()
except ValueError:
    traceback.print_exc()
Broken.apply(weight).backward()
"""


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_tracebacks_read_as_without_us(tmp_path: Path, workers: int) -> None:
    path = tmp_path / "train.py"
    path.write_text(WITHOUT_COMPILER + RAISES.replace("{workers}", str(workers)))
    bare = warm.bare(path)
    assert "no image 50" in bare.stderr
    assert "no gradient" in bare.stderr
    recorded = warm.run(tmp_path / "run", sys.executable, path)
    assert recorded.returncode == 1
    assert recorded.stderr.startswith(bare.stderr)


WATCHED = "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.02)\n"
LOOKS = 3
"""Of the sampler, by which the CPUs that a command used are known."""


@pytest.mark.parametrize("flag", [*(pytest.param(flag, marks=pytest.mark.slow) for flag in ("-I", "-E")), "-S"])
def test_a_python_that_ignores_its_environment_is_told(tmp_path: Path, flag: str, program: Path) -> None:
    run, seen_enough = tmp_path / "run", tmp_path / "seen"
    words = ["0"]
    if flag != "-I":
        # Without site the packages of an environment are not found at all, and -I is -E and more: one training will do.
        program.write_text(WATCHED)
        words = [str(seen_enough)]

    def release() -> None:
        wait_for(lambda: any(run.glob("host-*.rec")) and len(open_run(run).records(HOST)) >= LOOKS)
        seen_enough.touch()

    with ThreadPoolExecutor() as beside:
        released = beside.submit(release)
        done = warm.run(run, sys.executable, flag, program, *words, options=("--no-live", "--full"), training=False)
        released.result()
    assert done.returncode == 0
    assert "hooks were not loaded" in done.stderr
    assert "CPUs used by the command" in done.stderr
    seen = report(run)
    assert seen["verdict"]["cause"] is None
    assert seen["window"]["steps"] in (0, None)


def test_python_is_found_behind_a_shell_script_and_the_users_own_sitecustomize_still_runs(
    tmp_path: Path, program: Path
) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("DONE = __file__\n")
    environment = dict(os.environ, PYTHONPATH=str(tmp_path / "theirs"))
    program.write_text(program.read_text() + "    import sitecustomize\n    print(sitecustomize.DONE)\n")
    wrapper = tmp_path / "start.sh"
    wrapper.write_text(f"#!/bin/sh\ncd {tmp_path}\n{sys.executable} -m train 0 | tail -1\n")
    wrapper.chmod(0o755)
    done = warm.run(tmp_path / "run", wrapper, env=environment, training=False)
    assert (done.returncode, done.stdout) == (0, f"{tmp_path}/theirs/sitecustomize.py\n"), done.stderr
    assert steps_of(tmp_path / "run") == STEPS


FORKED = """
import os, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
def train(batches):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data = TensorDataset(torch.rand(8 * batches, 4))
    for (x,) in DataLoader(data, batch_size=8):
        model(x).sum().backward()
        optimizer.step()
train(40)
child = os.fork()
if child == 0:
    train(60)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_that_trains_has_a_recording_of_its_own(tmp_path: Path) -> None:
    done = warm.run(tmp_path / "run", sys.executable, "-c", WITHOUT_COMPILER + FORKED)
    assert done.returncode == 0
    assert len(list((tmp_path / "run").glob("step-*.rec"))) == 2
    # The figures are those of the process that ran most steps.
    assert steps_of(tmp_path / "run") == 60


@pytest.mark.slow
def test_a_notebook_that_is_executed_is_recorded(tmp_path: Path, program: Path) -> None:
    cells = [WITHOUT_COMPILER + TRAIN.partition("if __name__")[0], "main(0)"]
    notebook = {
        "cells": [
            {"cell_type": "code", "metadata": {}, "source": cell, "outputs": [], "execution_count": None}
            for cell in cells
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    (tmp_path / "train.ipynb").write_text(json.dumps(notebook))
    command = [sys.executable, "-m", "nbconvert", "--execute", "--to", "notebook", "--stdout"]
    done = warm.run(tmp_path / "run", *command, tmp_path / "train.ipynb", training=False)
    assert done.returncode == 0, done.stderr
    assert steps_of(tmp_path / "run") == STEPS


CLOSES = """
main(0)
if {fork} and os.fork():
    os._exit(os.waitstatus_to_exitcode(os.wait()[1]))
os.closerange(3, 200)
files = [open(sys.argv[1] + str(i), "wb") for i in range(30)]
for file in files:
    file.write(b"12345")
main(0)
for file in files:
    file.flush()
if {fork}:
    os._exit(0)
"""


@pytest.mark.parametrize("fork", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_files_of_a_program_that_closes_ours_come_to_no_harm(tmp_path: Path, fork: bool) -> None:
    parts = "import os\n", WITHOUT_COMPILER, TRAIN.partition("if __name__")[0], CLOSES.replace("{fork}", str(fork))
    (tmp_path / "daemon.py").write_text("".join(parts))
    done = warm.run(tmp_path / "run", sys.executable, tmp_path / "daemon.py", tmp_path / "file")
    assert done.returncode == 0, done.stderr
    assert [path.read_bytes() for path in tmp_path.glob("file*")] == [b"12345"] * 30
    assert steps_of(tmp_path / "run") == (STEPS if fork else 2 * STEPS)


@pytest.mark.slow
def test_a_program_that_replaces_itself_is_recorded_twice(tmp_path: Path, program: Path) -> None:
    again = "import os; os.execv(sys.executable, [sys.executable, *sys.argv, 'fork', 'again'])"
    program.write_text(WITHOUT_COMPILER + TRAIN + f"    if len(sys.argv) < 4:\n        {again}\n")
    done = warm.run(tmp_path / "run", sys.executable, program, "0")
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "run").glob("step-*.rec"))) == 2
    assert steps_of(tmp_path / "run") == STEPS
    assert "File exists" not in done.stderr


def python(folder: Path, code: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """A program of Python, recorded into `folder / "run"`."""
    return warm.run(folder / "run", sys.executable, "-c", code, training=False, **more)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(3)", 3),
        pytest.param("raise ValueError('no')", 1, marks=pytest.mark.slow),
        ("os.kill(os.getpid(), 9)", -9),
        pytest.param("os.kill(os.getpid(), 15)", -15, marks=pytest.mark.slow),
        pytest.param("os._exit(77)", 77, marks=pytest.mark.slow),
    ],
)
def test_the_exit_code_is_the_commands(tmp_path: Path, ending: str, code: int) -> None:
    done = python(tmp_path, f"import os, sys\nprint('out')\nsys.stdout.flush()\n{ending}")
    assert done.returncode == code
    assert done.stdout == "out\n"
    assert report(tmp_path / "run")["run"]["exit_code"] == code
    assert "did not end well" in done.stderr


def test_input_goes_to_the_command(tmp_path: Path) -> None:
    done = python(tmp_path, "print(input()[::-1])", input="abc\n")
    assert (done.returncode, done.stdout) == (0, "cba\n")


SIGNALLED = """
import os, signal, sys, time
caught = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
    signal.signal(number, lambda n, _: caught.append(n))
open(sys.argv[1], "w").close()
while len(caught) < 5:
    time.sleep(0.02)
# One that comes twice does so within this time, or is not noticed here.
time.sleep(0.5)
print(sorted(caught))
sys.exit(9)
"""


def test_every_signal_reaches_the_command_once(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    with (tmp_path / "out").open("w") as out, Path(os.devnull).open("r+") as nothing:
        arguments = ["run", "--no-live", "--out", str(tmp_path / "run")]
        arguments += ["--", sys.executable, "-c", SIGNALLED, str(ready)]
        streams = (nothing.fileno(), out.fileno(), nothing.fileno())
        process = warm.Process("trainings", "whyidle", arguments, streams)
    wait_for(ready.exists)
    sent = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
    for number in sent:
        process.send_signal(number)
    assert process.wait(120) == 9
    assert (tmp_path / "out").read_text() == f"{sorted(int(n) for n in sent)}\n"


def test_modules_of_ours_stay_out_of_a_program_without_torch(tmp_path: Path) -> None:
    code = "import sys, json, random; print([m for m in sys.modules if 'whyidle' in m]); print(sys.path)"
    done = python(tmp_path, code)
    without = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    # The path is what it would have been, too. (Ours is installed editable here, which Python itself looks up.)
    assert done.stdout == without.stdout
    assert "saw no torch" in done.stderr
    assert "saw no training" not in done.stderr


def test_an_error_in_the_users_sitecustomize_is_told_as_python_tells_it(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("raise ValueError('broken')\n")
    environment = dict(os.environ, PYTHONPATH=str(tmp_path / "theirs"))
    without = subprocess.run([sys.executable, "-c", "print(1)"], capture_output=True, text=True, env=environment)
    done = python(tmp_path, "print(1)", env=environment)
    assert done.stdout == without.stdout == "1\n"
    assert done.stderr.startswith(without.stderr)
    assert "broken" in without.stderr


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ((), "no command given"),
        (("no-such-program",), "there is no program 'no-such-program'"),
        (("train.py",), "whyidle run -- python train.py"),
    ],
)
def test_a_wrong_command_is_one_sentence(tmp_path: Path, command: tuple[str], said: str) -> None:
    done = warm.run(tmp_path / "run", *command, training=False)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


SLOW_PATHS = [pytest.param(path, marks=pytest.mark.slow) for path in (":", "/x:", "/x", "")]


@pytest.mark.parametrize("path", [":/x", "rel:/x", None, *SLOW_PATHS])
def test_the_module_path_stays_what_it_would_be(tmp_path: Path, path: str | None) -> None:
    (tmp_path / "in_this_folder.py").write_text("")
    code = "import sys; print(sys.path); import os; print(os.environ['PYTHONPATH'].partition(os.pathsep)[2:])"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {} if path is None else {"PYTHONPATH": path}
    alone = [sys.executable, "-c", "import sys; print(sys.path)"]
    without = subprocess.run(alone, capture_output=True, text=True, env=environment, cwd=tmp_path)
    done = python(tmp_path, code, env=environment, cwd=tmp_path)
    shown, inherited = done.stdout.splitlines()
    assert shown == without.stdout.strip()
    assert inherited == repr((path or "",))


def test_closed_outputs_stay_the_commands(tmp_path: Path) -> None:
    ours = " ".join(map(str, WHYIDLE))
    code = "import sys; print(1); print(sys.stderr)"
    command = f"{ours} run --out {tmp_path}/run -- {sys.executable} -c '{code}' 2>&-"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "1\nNone\n")
    assert (tmp_path / "run" / "bootstrap-loaded").exists()


def test_a_script_without_a_first_line_runs_in_a_shell(tmp_path: Path) -> None:
    script = tmp_path / "start"
    script.write_text("echo from the script\n")
    script.chmod(0o755)
    done = warm.run(tmp_path / "run", script, training=False)
    assert (done.returncode, done.stdout) == (0, "from the script\n")


def test_a_folder_of_any_name_will_do(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/d\xff x"
    os.mkdir(folder)  # noqa: PTH102
    command = [*WHYIDLE, "run", "--no-live", "--", sys.executable, "-c", "print(1)"]
    done = subprocess.run(command, capture_output=True, cwd=folder)
    assert (done.returncode, done.stdout) == (0, b"1\n"), done.stderr


PROGRAM = Path(__file__).with_name("programs") / "logs_to.py"


def test_a_training_gets_the_figures_that_the_command_computes(tmp_path: Path) -> None:
    textfile, program = tmp_path / "whyidle.prom", tmp_path / "train.py"
    _, _, rest = PROGRAM.read_text().partition("from __future__ import annotations\n")
    program.write_text(f"from __future__ import annotations\n{WITHOUT_COMPILER}{rest}")
    options = ("--no-live", "--prometheus", str(textfile))
    done = warm.run(tmp_path / "run", sys.executable, program, tmp_path / "said", options=options)

    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    said = json.loads((tmp_path / "said").read_text())
    (_, first), (figures, step), *_ = said["calls"]
    # The second may come at the last step of all.
    assert 0 < first < step <= said["steps"]
    told = report(tmp_path / "run")
    assert 0 < figures["whyidle/input_pct"] < 100
    assert 0 < told["breakdown"]["input_pct"] < 100
    assert figures["whyidle/samples_per_s"] > 0
    text = textfile.read_text()
    assert 'of="recent"' in text
    assert "whyidle_time_share_ratio{" in text
    # The logger that failed was called once, which only a notice tells.
    assert said["failures"] == [first]
    assert "Traceback" not in done.stderr
    (note,) = (note for note in read_notices(tmp_path / "run") if "log_to" in note)
    assert "ConnectionError: the server is away" in note
