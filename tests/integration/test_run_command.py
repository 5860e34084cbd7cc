"""`whyidle run` with commands of any kind: their input, signals, exit codes, environment and outputs stay theirs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import support.warm as warm
from support.fakes.driver import wait_for
from support.runs import WHYIDLE, report


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
