"""Whatever a recording holds, a command that reads it comes to an end, says what it has to say in words that act on
nobody, and touches nothing outside of its folder.

Recordings of each kind are altered at random and read by every command that reads such ones, each in a process of its
own. `WHYIDLE_ALTERED` says how many, `WHYIDLE_ALTERED_SEED` which.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import sysconfig
import traceback
import unicodedata
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

import whyidle
from golden.output import ran
from golden.recordings import RECORDINGS
from support.altered import alter, linked_away
from whyidle.commands import main

ALTERED = int(os.environ.get("WHYIDLE_ALTERED", "600"))
SEED = int(os.environ.get("WHYIDLE_ALTERED_SEED", "34"))
AT_A_TIME = 2
CPU_SECONDS = 20
WALL_SECONDS = 300
"""For what waits for ever; a busy machine may take long."""
MEMORY = 4 << 30
SECRET = "the-secret-outside-8d1f"

OUT = ("-o", "out")
OF_RUN = (
    *(("report", "run"), ("report", "run", "--json"), ("report", "run", "--price", "2"), ("live", "run", "--once")),
    *(("report", "run", "--format", form) for form in ("html", "markdown", "csv")),
    *(("report", "run", "--format", form, *OUT) for form in ("trace", "speedscope", "html")),
    *(("report", "run", "--format", "csv", "--table", name) for name in ("host", "batches", "events", "pauses")),
    ("report", "run", "--format", "csv", "-o", "tables/"),
    *(("live", "run", "--once", "--json"), ("diff", "run", "sound")),
    *(("diff", "sound", "run", "--json"), ("compare", "run", "sound"), ("compare", "sound", "run", "--json", "-")),
    ("check", "run", "--max-stall", "60", "--min-busy", "10", "--max-regression", "5", "--against", "sound"),
    ("check", "sound", "--max-regression", "5", "--against", "run", "--json"),
    ("check", "run", "--max-stall", "60", "--junit", "junit.xml", "--github"),
)
OF_TABLE = (
    *(("report", "table"), ("report", "table", "--json"), ("report", "table", "--price", "2")),
    *(("report", "table", "--format", form) for form in ("html", "markdown", "csv")),
    *(("report", "table", "--format", "html", "--with-runs"), ("live", "table", "--once")),
    ("diff", "table/0-workers-b8", "table/1-naive-b8"),
)
OF_TUNING = (
    ("report", "tuned"),
    ("report", "tuned", "--json"),
    *(("report", "tuned", "--format", f) for f in ("html", "markdown")),
)
OF_ATTACHED = (
    *(("report", "run"), ("report", "run", "--json"), ("live", "run", "--once"), ("live", "run", "--once", "--json")),
    *(("report", "run", "--format", form) for form in ("html", "markdown")),
    *(("report", "run", "--format", "speedscope", *OUT), ("report", "run", "--format", "csv", "--table", "host")),
)
OF_HOSTS = (
    ("report", "job"),
    ("report", "job", "--json"),
    ("report", "job/beta", "job/alpha"),
    ("report", "job", "--format", "html"),
)
KINDS: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    "with-stacks": ("run", OF_RUN),
    "too-few-workers": ("run", OF_RUN),
    "several-causes": ("run", OF_RUN),
    "ranks-late-for-data": ("run", OF_RUN),
    "ranks-two-hosts": ("job", OF_HOSTS),
    "compare-loaders": ("table", OF_TABLE),
    "tuned-script": ("tuned", OF_TUNING),
    "tuned-by-a-search": ("tuned", OF_TUNING),
    "attached-workers": ("run", OF_ATTACHED),
}
_COMMAND = re.compile(r"^\s*::(?!(error|warning|notice) title=whyidle check)|##\[|##vso\[", re.MULTILINE)
_PYTHON = tuple({os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())})
_SYSTEM = ("/proc/", "/sys/", "/dev/null", "/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo", "/usr/share/locale")
_OF_FILES = {
    "open",
    "os.listdir",
    "os.scandir",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.truncate",
    "os.chmod",
    "os.utime",
}
_OF_TWO = {"os.rename", "os.link", "os.symlink"}
_NEVER = {
    "subprocess.Popen",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "socket.connect",
    "socket.bind",
    "socket.sendto",
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind of recording, which holds it, and a sound run to compare it with."""
    base = tmp_path_factory.mktemp("recorded")
    for kind, (name, _) in KINDS.items():
        (base / kind).mkdir()
        RECORDINGS[kind].build(base / kind)
        if name == "run":
            shutil.copytree(base / kind / name, base / kind / "sound")
    # What is imported once need not be by each process; and all that is altered can be read before.
    for kind, (_, commands) in KINDS.items():
        shutil.copytree(base / kind, base / "warm")
        for argv in commands:
            done = ran(argv, base / "warm", {})
            assert "damaged" not in done.err, (argv, done.err)
        shutil.rmtree(base / "warm")
    return base


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_whatever_a_recording_holds_it_is_read_in_peace(recorded: Path, tmp_path: Path) -> None:
    workers = [_forked(_all_of, recorded, tmp_path, first) for first in range(AT_A_TIME)]
    ended = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in workers]
    assert ended == [0] * AT_A_TIME
    told = [
        json.loads(line) for path in sorted(tmp_path.glob("told-*.jsonl")) for line in path.read_text().splitlines()
    ]
    assert len(told) == ALTERED
    # What is altered is mostly read all the same, or called damaged: neither of them alone would be a test.
    codes = Counter(each["code"] for each in told)
    assert codes[0] > ALTERED // 10
    assert codes[2] > ALTERED // 10
    wrong = [each for each in told if each["wrong"]]
    assert not wrong, f"{len(wrong)} of {ALTERED}:\n" + "\n".join(json.dumps(each, indent=1) for each in wrong[:20])


def _forked(work: Any, *arguments: Any) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(*arguments)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def _all_of(recorded: Path, base: Path, first: int) -> None:
    with (base / f"told-{first}.jsonl").open("w") as told:
        for number in range(first, ALTERED, AT_A_TIME):
            told.write(json.dumps(_one(recorded, base / f"at-{first}", number)) + "\n")
            told.flush()


def _one(recorded: Path, base: Path, number: int) -> dict[str, Any]:
    """What became of the recording of this number."""
    chance = random.Random(f"{SEED}-{number}")
    kind = chance.choice(sorted(KINDS))
    name, commands = KINDS[kind]
    shutil.rmtree(base, ignore_errors=True)
    outside = base / "outside"
    shutil.copytree(recorded / kind, base / "at")
    outside.mkdir()
    (outside / "secret.txt").write_text(f"{SECRET}\n1\t{SECRET}\n")
    done = alter(base / "at" / name, outside, chance)
    argv = chance.choice(commands)
    if name == "table" and chance.random() < 0.05:
        run = chance.choice(sorted(path for path in (base / "at" / name).iterdir() if path.is_dir()))
        linked_away(run, outside)
        done.append(f"{run.name} is a link")
    before = _content(outside)
    pid = _forked(_command, base, argv)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    result = base / "result.json"
    told = json.loads(result.read_text()) if result.is_file() else {"code": code, "wrong": [f"it ended with {code}"]}
    if _content(outside) != before:
        told["wrong"].append("something outside was written")
    if any(SECRET.encode() in path.read_bytes() for path in _files(base / "at")):
        told["wrong"].append("what lies outside is in a file within")
    return {"number": number, "kind": kind, "argv": " ".join(argv), "done": done} | told


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30:
            yield path


def _content(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in _files(folder)}


def _command(base: Path, argv: tuple[str, ...]) -> None:
    """Run it in this process, which is for nothing else, watched."""
    at = base / "at"
    home = at / ".home"
    home.mkdir()
    os.chdir(at)
    for each in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "TMPDIR"):
        os.environ[each] = str(home)
    for each in ("GITHUB_STEP_SUMMARY", "GITHUB_ACTIONS", "FORCE_COLOR", "WHYIDLE_DEBUG"):
        os.environ.pop(each, None)
    sys.argv = ["whyidle"]
    wrong: list[str] = []
    _watch(at, wrong)
    # The kernel's own limits: what computes without end inside of a call is ended too.
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CPU_SECONDS + 1, int(used) + CPU_SECONDS + 1))
    signal.alarm(WALL_SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        try:
            code: object = main.main(argv)
        except SystemExit as ended:
            code = ended.code
        except BaseException:
            code = None
            wrong.append(traceback.format_exc()[-3000:])
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    wrong += _wrong_of(code, printed, said, is_data="--json" in argv or "csv" in argv)
    (base / "result.json").write_text(json.dumps({"code": code, "wrong": wrong, "said": said[-300:]}))


def _wrong_of(code: object, printed: str, said: str, is_data: bool) -> list[str]:
    wrong = []
    if code not in (0, 1, 2):
        wrong.append(f"exit code {code}")
    if "Traceback" in said or "Warning" in said:
        wrong.append(said[-2000:])
    messages = [line for line in said.splitlines() if line.startswith("whyidle: ")]
    if len(messages) > 1 or (code == 2 and len(messages) != 1):
        wrong.append(f"{len(messages)} messages: {said[:500]}")
    for text in (printed, said):
        if acting := [c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp") and c not in "\n\t"]:
            wrong.append(f"signs that act on a terminal: {acting[:5]!a}")
        if not is_data and (found := _COMMAND.search(text)):
            wrong.append(f"a command to a CI service: {text[found.start() : found.end() + 60]!a}")
        if SECRET in text:
            wrong.append("what lies outside is shown")
    return wrong


def _watch(at: Path, wrong: list[str]) -> None:
    """Note what is touched that lies neither in the folder nor in Python's installation or ours."""
    allowed = (str(at), str(at.resolve()), *_PYTHON, str(Path(whyidle.__file__).parents[1]))

    def touched(path: object) -> None:
        if isinstance(path, (str, bytes, os.PathLike)):
            whole = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
            if not whole.startswith((*(f"{each}/" for each in allowed), *_SYSTEM)) and whole not in allowed:
                wrong.append(f"touches {whole}")

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NEVER:
            wrong.append(f"{event} {arguments!r:.200}")
        elif event in _OF_FILES:
            touched(arguments[0])
        elif event in _OF_TWO:
            touched(arguments[0])
            touched(arguments[1])

    sys.addaudithook(hook)
