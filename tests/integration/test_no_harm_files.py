"""No fault of ours leaves a command alone, and nothing of the user's is written over, through a link or at all."""

from __future__ import annotations

import json
import os
import shlex
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import whyidle.commands.run as run_command
from support.runs import WHYIDLE, ended, mistaken, run
from whyidle.commands.main import main
from whyidle.record import scalars
from whyidle.record.files import read_json
from whyidle.record.notices import Notices
from whyidle.record.run import create_run
from whyidle.record.schema import NOT_MEASURED
from whyidle.record.secret import LEFT_OUT
from whyidle.record.stacks import Call, Names, StackNames
from whyidle.scenarios.planted import Step, train

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root may take rights from a process")
PRECIOUS = "precious\n"


@pytest.fixture
def precious(tmp_path: Path) -> Iterator[Path]:
    """A file that nobody may have changed."""
    file = tmp_path / "precious.py"
    file.write_text(PRECIOUS)
    yield file
    assert file.read_text() == PRECIOUS


# What happens between the start of a command and its end


@pytest.mark.parametrize(
    ("broken", "error"),
    [
        *((broken, KeyboardInterrupt) for broken in ("note_latest", "start_sampler", "Thread", "Notices", "_beside")),
        # Once it has ended; that Ctrl-C then loses nothing that is written, `test_run_begins_and_ends` shows.
        *((broken, KeyboardInterrupt) for broken in ("_say_what_was_missed", "_report")),
        *(("start_sampler", error) for error in (RuntimeError, MemoryError, SystemExit)),
    ],
)
def test_whatever_is_raised_the_command_is_waited_for(
    broken: str, error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error("of ours")

    owner = threading if broken == "Thread" else run_command
    monkeypatch.setattr(owner, broken, fail)
    ended = tmp_path / "ended"
    command = ["sh", "-c", f"sleep 0.3; echo yes > {shlex.quote(str(ended))}; exit 3"]
    folder = tmp_path / "run"
    assert main(["run", "--no-live", "--out", str(folder), "--", *command]) == 3
    assert ended.exists()
    assert read_json(folder / "run.json")["ended"]["exit_code"] == 3


def without_home(user: int, *command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """As a user that no file of the system names, who may read what root may: this Python is root's."""
    caps = "+dac_read_search"
    become = [f"--reuid={user}", f"--regid={user}", "--clear-groups", f"--inh-caps={caps}", f"--ambient-caps={caps}"]
    environment = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_STATE_HOME")}
    return ended("setpriv", *become, *command, env=environment, cwd=cwd, timeout=250, stdin=subprocess.DEVNULL)


@pytest.fixture
def anyones() -> Iterator[Path]:
    """A folder that another user may write to."""
    with tempfile.TemporaryDirectory(dir="/tmp") as made:
        Path(made).chmod(0o777)
        yield Path(made)


NOBODYS = 54321


@ROOT_ONLY
def test_without_a_home_a_command_is_recorded_and_its_end_handed_on(anyones: Path) -> None:
    done = without_home(NOBODYS, *WHYIDLE, "run", "--out", "r", "--", "sh", "-c", "sleep 0.2; exit 3", cwd=anyones)
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert read_json(anyones / "r" / "run.json")["ended"]["exit_code"] == 3


@ROOT_ONLY
@pytest.mark.parametrize("verb", ["report", "live"])
def test_without_a_home_no_recording_is_the_newest(verb: str, anyones: Path) -> None:
    done = without_home(NOBODYS, *WHYIDLE, verb, *(["--once"] if verb == "live" else []), cwd=anyones)
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") <= 1
    if verb == "report":
        assert done.returncode == 2
        assert "no recording was made on this machine yet" in done.stderr


@ROOT_ONLY
@pytest.mark.parametrize("most", [3, 5, 6, 9])
def test_without_threads_or_processes_to_be_had_the_end_is_handed_on(most: int, anyones: Path) -> None:
    """As a cgroup or a limit of the user's forbids them. Where not even the command can be started, that is said."""
    # The shell's own commands, which take no process.
    lasts = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done; echo ended; exit 3"
    command = ["run", "--no-live", "--out", "r", "--", "sh", "-c", lasts]
    done = without_home(NOBODYS + most, "prlimit", f"--nproc={most}", *WHYIDLE, *command, cwd=anyones)
    if "sh cannot be run" in done.stderr:
        assert (done.returncode, done.stdout) == (2, "")
        assert not (anyones / "r").exists()
    else:
        assert (done.returncode, done.stdout) == (3, "ended\n"), done.stderr


@ROOT_ONLY
def test_without_proc_a_command_runs(tmp_path: Path) -> None:
    inner = shlex.join(
        [*WHYIDLE, "run", "--no-live", "--out", str(tmp_path / "r"), "--", "sh", "-c", "echo alive; exit 3"]
    )
    done = ended("unshare", "-m", "sh", "-c", f"mount -t tmpfs none /proc && {inner}", timeout=250)
    if "unshare failed" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no file system may be mounted here")
    assert (done.returncode, done.stdout) == (3, "alive\n"), done.stderr


@pytest.mark.parametrize("ignored", [True, False])
def test_a_shells_ignored_signals_stay_ignored_and_no_others(ignored: bool, tmp_path: Path) -> None:
    tells = "kill -PIPE $$; kill -XFSZ $$; echo alive"
    inner = shlex.join([*WHYIDLE, "run", "--no-live", "--out", str(tmp_path / "r"), "--", "sh", "-c", tells])
    begin = "trap '' PIPE XFSZ; " if ignored else ""
    # More than one command, or a shell puts the last in its own place.
    done = subprocess.run(["sh", "-c", f"{begin}{inner}; echo $?"], capture_output=True, text=True, timeout=250)
    assert done.stdout == ("alive\n0\n" if ignored else f"{128 + signal.SIGPIPE}\n"), done.stderr


def test_an_old_python_keeps_its_own_sitecustomize(tmp_path: Path) -> None:
    pythons = sorted(Path.home().glob(".pyenv/versions/[23].*/bin/python"))
    old = [path for path in pythons if not path.parents[1].name.startswith(("3.11", "3.12", "3.13", "3.14"))]
    if not old:
        pytest.skip("there is no old Python here")
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = __file__\n")
    tells = "import sys; print(sys.own, sys.version_info[:2])"
    command = "; ".join(shlex.join([str(path), "-c", tells]) for path in [*old, *old])
    done = run(tmp_path / "r", "sh", "-c", command, env=os.environ | {"PYTHONPATH": str(tmp_path)})
    assert done.stdout.count(f"{tmp_path}/sitecustomize.py") == 2 * len(old), done.stdout + done.stderr
    notices = (tmp_path / "r" / "training-notices.txt").read_text().splitlines()
    assert len(notices) == len(set(notices))
    assert sum("is older than 3.11" in line for line in notices) == len({path.parents[1].name[:4] for path in old})


# What is written where


@pytest.mark.parametrize("held", ["link", "dangling", "file"])
def test_a_page_takes_the_place_of_a_page_only(
    held: str, tmp_path: Path, precious: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "a"
    train(folder, [[Step()] * 40])
    page = folder / "report.html"
    if held == "file":
        page.write_text("notes of the user's")
    else:
        page.symlink_to(precious if held == "link" else tmp_path / "new")
    if held == "dangling":
        assert main(["report", str(folder), "--format", "html"]) == 0
        assert not page.is_symlink()
        assert not (tmp_path / "new").exists()
        return
    before = page.read_text()
    assert "is not a page that whyidle wrote" in mistaken(capsys, "report", folder, "--format", "html")
    assert page.read_text() == before
    # Elsewhere it may be written, twice too, but not over what is none.
    for _ in range(2):
        assert main(["report", str(folder), "--format", "html", "-o", str(tmp_path / "page.html")]) == 0
    capsys.readouterr()
    assert "is not a page" in mistaken(capsys, "report", folder, "--format", "html", "-o", precious)


def test_prometheus_refuses_what_it_did_not_write_before_anything_starts(
    tmp_path: Path, precious: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "link.prom").symlink_to(precious)
    started = ["--", "touch", str(tmp_path / "started")]
    for file in (precious, tmp_path / "link.prom"):
        said = mistaken(capsys, "run", "--out", tmp_path / "r", "--prometheus", file, *started)
        assert "not a file of figures that whyidle wrote" in said
    assert not (tmp_path / "started").exists()
    assert not (tmp_path / "r").exists()
    # Its own, an empty one and none.
    (tmp_path / "own.prom").write_text("# HELP whyidle_steps Steps.\n")
    (tmp_path / "empty.prom").touch()
    for name in ("own", "empty", "none"):
        options = ("--no-live", "--prometheus", str(tmp_path / f"{name}.prom"))
        done = run(tmp_path / name, "true", options=options)
        assert (done.returncode, "holds no figures" in done.stderr) == (0, False)


@pytest.mark.parametrize(
    "name",
    ["names.tsv", "report.html", "process-0-1.json", "sampler-notices.txt", "step-0-1.rec", "tuning.orders"],
)
@pytest.mark.parametrize("link", [False, True])
def test_a_folder_with_a_file_by_a_name_of_ours_is_refused(
    name: str, link: bool, tmp_path: Path, precious: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("")
    if link:
        (folder / name).symlink_to(precious)
    else:
        (folder / name).write_text(PRECIOUS)
    before = sorted(os.listdir(folder))
    said = mistaken(capsys, "run", "--out", folder, "--", "touch", tmp_path / "started")
    assert f"{folder} already holds {name}" in said
    assert sorted(os.listdir(folder)) == before
    assert (folder / name).read_text() == PRECIOUS
    assert not (tmp_path / "started").exists()


def test_a_folder_of_the_users_own_may_hold_anything_else(tmp_path: Path, precious: Path) -> None:
    assert run(tmp_path, "true").returncode == 0
    assert read_json(tmp_path / "run.json")["ended"]["exit_code"] == 0
    assert stat.S_IMODE(tmp_path.stat().st_mode) != 0o600


@pytest.mark.parametrize("at", ["file", "nothing"])
def test_links_put_into_a_run_folder_are_not_written_through(at: str, tmp_path: Path, precious: Path) -> None:
    """By a program that it records, say. What would have been written there is lost, or takes the link's place."""
    folder = create_run(tmp_path / "r", {})
    to = precious if at == "file" else tmp_path / "new"
    for name in ("training-notices.txt", "names.tsv", "stacks.jsonl", "scalars.json"):
        (folder / name).symlink_to(to)
    Notices(folder / "training-notices.txt")("A sentence.")
    assert Names(folder).number("a name") == NOT_MEASURED
    assert StackNames(folder).number([Call("f", "/a.py", 1)]) == NOT_MEASURED
    scalars.tell(folder, scalars.Told(1, {}, {}))
    assert not (folder / "scalars.json").is_symlink()
    assert not (tmp_path / "new").exists()


# Secrets


def test_recordings_are_their_owners_and_hold_no_secret_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--hf-token", "ARGSECRET1", "--password=ARGSECRET2", "HF_TOKEN=ARGSECRET3", "--max-tokens", "512"]
    script = tmp_path / "train.py"
    script.write_text("")
    folder = tmp_path / "r"
    done = run(folder, sys.executable, script, *given)
    assert done.returncode == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert read_json(folder / "run.json")["command"][2:] == [
        *("--hf-token", LEFT_OUT, f"--password={LEFT_OUT}", f"HF_TOKEN={LEFT_OUT}", "--max-tokens", "512")
    ]
    told = {}
    for form in ("text", "json", "html", "markdown"):
        assert main(["report", str(folder), "--format", form, "-o", str(tmp_path / form)]) == 0
        told[form] = (tmp_path / form).read_text()
        assert "3 values" in told[form], form
    assert json.loads(told["json"])["quality"]["left_out"] == 3
    for text in (done.stderr, *told.values(), *(path.read_text(errors="replace") for path in folder.iterdir())):
        assert "ARGSECRET" not in text
