"""`whyidle run` around a command: that it ends as the command did, its signals, and the figures it keeps."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.fakes.driver import wait_for
from support.recent_runs import training
from support.terminals import PROMPT, shell, usual_signals
from whyidle.analyse.recent import RecentReader
from whyidle.capture.sampler.start import Sampler
from whyidle.commands import run
from whyidle.commands.main import main
from whyidle.record import scalars as kept
from whyidle.record.latest import latest, note_latest
from whyidle.report.export import scalars
from whyidle.report.export.scalars import Figures
from whyidle.terminal import child


@pytest.fixture(autouse=True)
def no_sampler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(run, "start_sampler", lambda *_: Sampler(None))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def ran(folder: Path, *words: str | Path) -> int:
    return main(["run", "--no-live", "--out", str(folder), *map(str, words)])


def broken(*_: object, **__: object) -> None:
    raise ValueError("nobody thought of this")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A folder of the user's."""
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "model.pt").write_text("precious")
    return folder


def test_a_command_that_cannot_start_leaves_nothing(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    note_latest(results)
    for command in ("pyhton", tmp_path / "results" / "model.pt"):
        for folder in (results, tmp_path / "new"):
            assert ran(folder, "--", command, "train.py") == 2
    said = capsys.readouterr().err
    assert "there is no program 'pyhton'" in said
    assert "model.pt cannot be run: Permission denied" in said
    assert [path.name for path in results.iterdir()] == ["model.pt"]
    assert not (tmp_path / "new").exists()
    assert latest() == results


def test_without_a_place_for_figures_all_is_left(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for textfile, why in ((pipe, "no file"), (results, "no file"), (tmp_path / "no" / "x.prom", "no folder")):
        for folder in (results, tmp_path / "new"):
            assert ran(folder, "--prometheus", textfile, "--", "touch", tmp_path / "started") == 2
            said = capsys.readouterr().err
            assert said.startswith(f"whyidle: cannot write {textfile}: ")
            assert f"{why}. Name " in said
    assert [path.name for path in results.iterdir()] == ["model.pt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "results"]


@pytest.mark.parametrize("step", ["processes", "update_run", "RunResult", "console"])
def test_an_error_nobody_thought_of_leaves_the_commands_exit_code(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run, step, broken)
    assert ran(tmp_path / "run", "--", "sh", "-c", "exit 5") == 5
    said = capfd.readouterr().err
    assert said.count("ValueError: nobody thought of this.\n") == 1
    assert "Traceback" not in said


class Full(io.StringIO):
    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("command", ["exit 5", 'rm -r "$WHYIDLE_RUN"; exit 5'])
def test_a_full_disk_leaves_the_exit_code(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Full())
    assert ran(tmp_path / "run", "--", "sh", "-c", command) == 5


def test_what_we_show_may_fail_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = tmp_path / "looked"

    def look(_: object) -> None:
        with looked.open("a") as file:
            file.write("x")
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(run, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(run.Figures, "tick", look)
    often = f"until test -e {looked} && test $(wc -c < {looked}) -gt 2; do sleep 0.01; done; exit 7"
    assert ran(tmp_path / "run", "--", "sh", "-c", often) == 7


def test_what_a_shell_opened_for_the_command_the_command_gets(tmp_path: Path) -> None:
    ours, for_it = os.pipe(), os.pipe()
    # A shell's `<(echo hi)`, and a file that was opened here.
    os.set_inheritable(for_it[0], True)
    os.write(for_it[1], b"hi")
    os.close(for_it[1])
    said = tmp_path / "said"
    script = f"exec > {said}; cat <&{for_it[0]}; test -e /proc/self/fd/{ours[0]} || echo , and no more"
    with child.Signals() as signals:
        child.start(["bash", "-c", script], os.environ, signals).wait()
    for each in (*ours, for_it[0]):
        os.close(each)
    assert said.read_text() == "hi, and no more\n"


def test_ctrl_c_after_the_end_costs_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = run.update_run

    def interrupted_write(*arguments: object) -> None:
        signal.raise_signal(signal.SIGINT)
        writes(*arguments)

    def interrupted_report(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run, "update_run", interrupted_write)
    monkeypatch.setattr(run, "_report", interrupted_report)
    assert ran(tmp_path / "run", "--", "sh", "-c", "exit 9") == 9
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ended"]["exit_code"] == 9


def test_a_command_that_fails_is_seen_to_where_ends_of_children_were_ignored(tmp_path: Path) -> None:
    status = tmp_path / "status"
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        look = "import sys; open(sys.argv[1], 'w').write(open('/proc/self/status').read()); sys.exit(3)"
        assert ran(tmp_path / "run", "--", sys.executable, "-S", "-c", look, status) == 3
        assert signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["ended"]["status"] == "failed"
    # The command has what it would have without us.
    ignored = int(re.findall(r"SigIgn:\s*(\w+)", status.read_text())[0], 16)
    assert ignored >> signal.SIGCHLD - 1 & 1


def test_a_training_without_a_description_is_not_called_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(run, "Notices", lambda _: said.append)
    run._say_what_was_missed(tmp_path)
    (tmp_path / "step-0-17.rec").touch()
    run._say_what_was_missed(tmp_path)
    assert ["The hooks were not loaded" in each for each in said] == [True, False]
    assert "was the disk full?" in said[1]


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    return training(tmp_path / "run", 1, 10)


def test_figures_begin_as_soon_as_they_are_wanted_and_there_is_a_recording(recorded: Path, tmp_path: Path) -> None:
    later = tmp_path / "later"
    figures = Figures(later)
    figures.tick()
    recorded.rename(later)
    figures.tick()
    assert kept.told(later) is None
    kept.want(later, 1.0)
    figures.tick()
    assert kept.told(later) is not None


def test_figures_take_a_tenth_of_a_cpu(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now, used = [100.0], [0.0]
    looked: list[float] = []
    snapshot = RecentReader.snapshot

    def look(reader: RecentReader) -> object:
        looked.append(now[0])
        used[0] += 3.0
        return snapshot(reader)

    monkeypatch.setattr(RecentReader, "snapshot", look)
    monkeypatch.setattr(scalars.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(scalars.time, "process_time", lambda: used[0])
    kept.want(recorded, 1.0)
    figures = Figures(recorded)
    for _ in range(100):
        figures.tick()
        now[0] += 1
    assert looked == [100.0, 130.0, 160.0, 190.0]


def test_no_error_of_a_folder_or_file_and_no_endless_wish_costs_a_look(
    recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The system refuses so long a name, as it may any folder: EACCES, EIO, ESTALE.
    nowhere = tmp_path / ("x" * 300)
    Figures(nowhere, tmp_path / "nowhere.prom").tick()
    assert not (tmp_path / "nowhere.prom").exists()
    (recorded / kept.WANTED).write_text(f'{{"every_s": 1{"0" * 400}}}')
    Figures(recorded, tmp_path / "wish.prom").tick()
    # A pipe in the place of the file is not waited for.
    in_a_pipe = Figures(recorded, tmp_path / "pipe.prom")
    os.mkfifo(tmp_path / "pipe.prom")
    in_a_pipe.tick()
    assert (tmp_path / "pipe.prom").is_fifo()
    # Nor is the file without the figures that could not be told to the training.
    monkeypatch.delattr(scalars, "tell")
    kept.want(recorded, 1.0)
    Figures(recorded, tmp_path / "untold.prom").tick()
    for name in ("wish", "untold"):
        assert "whyidle_steps" in (tmp_path / f"{name}.prom").read_text()


HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP)

WAITS = """
import signal, sys, threading, time
from whyidle.terminal import child

# As a library's: it was there before, and takes all signals.
threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
told = "import os, signal, sys, time\\ncaught = []\\n"
told += "for each in (1, 2, 3, 10, 12, 15, 20): signal.signal(each, lambda number, _: caught.append(int(number)))\\n"
told += "open(sys.argv[1], 'w').close()\\nwhile len(caught) < 7: time.sleep(0.01)\\nprint(sorted(caught)); sys.exit(9)"
with child.Signals() as signals:
    code = child.wait(child.start([sys.executable, "-c", told, sys.argv[1]], {}, signals), signals)
raise SystemExit(code)
"""


def test_a_thread_that_takes_a_signal_keeps_it_not_from_the_command(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    command = [sys.executable, "-c", WAITS, ready]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True, preexec_fn=usual_signals)
    wait_for(ready.exists)
    for number in HANDLED:
        process.send_signal(number)
    said, _ = process.communicate()
    assert (process.returncode, said.decode()) == (9, f"{sorted(map(int, HANDLED))}\n")


def test_of_what_watches_a_command_only_the_main_thread_takes_signals(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    waits = f"touch {ready}; read line"
    command = [sys.executable, "-m", "whyidle", "run", "--out", tmp_path / "run", "--", "sh", "-c", waits]
    environment = dict(os.environ, OPENBLAS_NUM_THREADS="3")
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as process:
        wait_for(ready.exists)
        wait_for(lambda: len(list(Path(f"/proc/{process.pid}/task").iterdir())) > 1)
        for thread in Path(f"/proc/{process.pid}/task").iterdir():
            if thread.name == str(process.pid):
                continue  # what is waited for is not blocked meanwhile
            status = dict(line.split(":", 1) for line in (thread / "status").read_text().splitlines())
            # Ignored is what whoever runs these tests has ignored.
            left = int(status["SigBlk"], 16) | int(status["SigIgn"], 16)
            assert all(left >> number - 1 & 1 for number in HANDLED), thread
        process.communicate(b"\n")


STOPS_TWICE = """
import os, signal, sys, time
from whyidle.terminal import child

class FromAShell(child.Signals):
    # Where this process would stand still, a shell has it go on. The first time Ctrl-Z is typed again before the
    # program is looked at.
    stops = 0

    def stop(self):
        self.stops += 1
        print("stop", self.stops, flush=True)
        if self.stops == 1:
            while signal.SIGTSTP not in signal.sigpending():
                time.sleep(0.01)
        else:
            os.kill(program.pid, signal.SIGCONT)

with FromAShell() as signals:
    stops = "import os, signal; os.kill(os.getpid(), signal.SIGTSTP)"
    program = child.start([sys.executable, "-c", stops], {}, signals)
    code = child.wait(program, signals)
print("ended", code, "after", signals.stops)
"""


def test_ctrl_z_typed_as_soon_as_a_program_goes_on_stops_it_again(tmp_path: Path) -> None:
    """The shell's SIGCONT and the new Ctrl-Z lie so close that the program has had both when we look at it."""
    script = tmp_path / "stops.py"
    script.write_text(STOPS_TWICE)
    with shell() as terminal:
        terminal.type((shlex.join([sys.executable, str(script)]) + "\r").encode())
        terminal.until("stop 1")
        terminal.type(b"\x1a")
        terminal.until("ended")
        terminal.until(PROMPT, terminal.raw.index(b"ended"))
        assert "ended 0 after 2" in terminal.raw.decode()
