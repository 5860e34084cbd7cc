"""Whatever a recording holds, a command that reads it comes to an end, says what it has to say in words that act on
nobody, and touches nothing outside of its folder.

Recordings of each kind are altered at random and read by every command that reads such ones, each in a process of its
own. `WHYIDLE_ALTERED` says how many, `WHYIDLE_ALTERED_SEED` which.
"""

from __future__ import annotations

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import sys
import sysconfig
import traceback
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

import whyidle
from golden.output import ran
from golden.recordings import RECORDINGS
from whyidle.record.schema import HEADER_BYTES, KINDS

NUMBERS = (0, 1, -1, 2, 255, 1000, 2**31, 2**32 - 1, 10**9, 10**12, 2**53, 2**60, 2**62, 2**63 - 1, -(2**63), -(2**62))
FLOATS = (float("nan"), float("inf"), -float("inf"), 1e308, -1.0, 0.0, 5e-324)
TEXTS = (
    *("", "x", "\n::error::told", "::error file=a.py::told", "##[error]told", "##vso[task.complete result=Failed;]"),
    *("\x1b[31mred", "\x1b]0;title\x07", "\u2028::error::told", "\x85##[group]told", "\r::error::told", "\u202etold"),
    *("../../outside", "/etc/passwd", "\udce9", "=1+1", "<script>told</script>", "[red]", "a\tb", "7" * 5000),
)
SPARSE_BYTES = 1 << 43


def alter(folder: Path, outside: Path, random: Random) -> str:
    """Change something in a recording. Returns what was done, to be read. `outside`: where links lead to."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if path.stat().st_size < SPARSE_BYTES]
    if not files:
        return "nothing is left"
    by_kind: dict[str, list[Path]] = {}
    for path in files:
        by_kind.setdefault(path.name.partition("-")[0] + path.suffix, []).append(path)
    path = random.choice(by_kind[random.choice(sorted(by_kind))])
    own = {".rec": [_word, _word, _field, _field, _header], ".json": [_node] * 8}.get(path.suffix, [_line] * 3)
    way = random.choice([_bits, _cut, _doubled, _replaced, *own])
    if way in (_doubled, _replaced):
        told = way(path, outside, random)
    else:
        told, changed = way(bytearray(path.read_bytes()), path, random)
        path.write_bytes(changed)
    return f"{path.relative_to(folder)}: {way.__name__} {told}"


def _doubled(path: Path, _: Path, random: Random) -> str:
    raw = path.read_bytes()
    path.write_bytes(raw + raw)
    if random.random() < 0.5:
        name = path.name.replace("-0-", "-1-") if "-0-" in path.name else f"{path.stem}-2{path.suffix}"
        path.with_name(name).write_bytes(raw)
        return f"as {name}"
    return ""


def _replaced(path: Path, outside: Path, random: Random) -> str:
    """By what is no file, or by another one."""
    raw = path.read_bytes()
    path.unlink()

    def bound() -> None:
        with socket.socket(socket.AF_UNIX) as at, suppress(OSError):
            at.bind(str(path))

    def sparse() -> None:
        path.write_bytes(raw)
        os.truncate(path, SPARSE_BYTES)

    links = {"secret": outside / "secret.txt", "zeros": "/dev/zero", "dangling": outside / "no", "itself": path}
    ways: dict[str, Callable[[], object]] = {
        **{name: partial(path.symlink_to, to) for name, to in links.items()},
        **{"gone": lambda: None, "empty": path.touch, "pipe": partial(os.mkfifo, path), "folder": path.mkdir},
        **{"socket": bound, "sparse": sparse},
    }
    kind = random.choice(sorted(ways))
    ways[kind]()
    return kind


def _bits(raw: bytearray, _: Path, random: Random) -> tuple[str, bytes]:
    places = [random.randrange(len(raw)) for _ in range(random.randint(1, 20))] if raw else []
    for place in places:
        raw[place] ^= 1 << random.randrange(8)
    return str(places), raw


def _cut(raw: bytearray, _: Path, random: Random) -> tuple[str, bytes]:
    size = random.randint(0, len(raw))
    return str(size), raw[:size]


def _packed(random: Random) -> bytes:
    is_whole = random.random() < 0.7
    return struct.pack("<q", random.choice(NUMBERS)) if is_whole else struct.pack("<d", random.choice(FLOATS))


def _word(raw: bytearray, _: Path, random: Random) -> tuple[str, bytes]:
    if len(raw) < HEADER_BYTES + 8:
        return "nothing", raw
    place, value = random.randrange(HEADER_BYTES, len(raw) - 7, 8), _packed(random)
    raw[place : place + 8] = value
    return f"{place}: {value!r}", raw


def _field(raw: bytearray, path: Path, random: Random) -> tuple[str, bytes]:
    """One field of all records, or from one on."""
    kind = KINDS.get(path.name.partition("-")[0])
    if kind is None or len(raw) <= HEADER_BYTES:
        return "nothing", raw
    field, value = random.choice(kind.fields[1:]), _packed(random)
    first = random.choice((0, random.randrange(1 + len(raw) // kind.record_bytes)))
    begin = HEADER_BYTES + first * kind.record_bytes + kind.offset(field.name)
    for place in range(begin, len(raw) - 7, kind.record_bytes):
        raw[place : place + 8] = value
    return f"{field.name} from {first}: {value!r}", raw


def _header(raw: bytearray, _: Path, random: Random) -> tuple[str, bytes]:
    place, size = random.choice((*((at, 4) for at in range(8, 28, 4)), (32, 8), (40, 8), (48, 8)))
    value = random.choice(NUMBERS) % 2 ** (8 * size)
    raw[place : place + size] = value.to_bytes(size, "little")
    return f"{place}: {value}", raw


def _line(raw: bytearray, _: Path, random: Random) -> tuple[str, bytes]:
    lines = raw.decode(errors="replace").split("\n")
    text = random.choice(TEXTS)
    lines.insert(random.randrange(len(lines)), text)
    return ascii(text[:40]), "\n".join(lines).encode(errors="surrogateescape")


def _node(raw: bytearray, _: Path, random: Random) -> tuple[str, bytes]:
    """Another value at some place of a JSON."""
    places: list[tuple[Any, Any]] = []

    def walk(node: Any) -> None:
        for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
            places.append((node, key))
            walk(node[key])

    with suppress(ValueError):
        walk(content := json.loads(raw))
    if not places:
        return "nothing", raw
    within, key = random.choice(places)
    old = within[key]
    deep: Any = []
    for _each in range(500):
        deep = [deep]
    value = random.choice(
        (
            *(None, True, [], {}, [None], {"x": 1}, deep, random.choice(NUMBERS), random.choice(NUMBERS), 10**400),
            *(random.choice(FLOATS), random.choice(TEXTS), random.choice(TEXTS), str(old), [old], {"x": old}),
        )
    )
    if isinstance(within, dict) and random.random() < 0.15:
        del within[key]
    else:
        within[key] = value
    return f"{key!a:.60} {value!a:.60}", json.dumps(content).encode()


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
    *(("report", "run", "--format", form, *OUT) for form in ("trace", "html")),
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
OF_TUNING = tuple(
    ("report", "tuned", *form) for form in ((), ("--json",), *(("--format", f) for f in ("html", "markdown")))
)
OF_ATTACHED = (
    *(("report", "run"), ("report", "run", "--json"), ("live", "run", "--once"), ("live", "run", "--once", "--json")),
    *(("report", "run", "--format", form) for form in ("html", "markdown")),
    ("report", "run", "--format", "csv", "--table", "host"),
)
OF_HOSTS = (
    *(("report", "job"), ("report", "job", "--json"), ("report", "job/beta", "job/alpha")),
    ("report", "job", "--format", "html"),
)
READ_BY: dict[str, tuple[str, tuple[tuple[str, ...], ...]]] = {
    **dict.fromkeys(("with-stacks", "too-few-workers", "several-causes", "ranks-late-for-data"), ("run", OF_RUN)),
    "ranks-two-hosts": ("job", OF_HOSTS),
    "compare-loaders": ("table", OF_TABLE),
    **dict.fromkeys(("tuned-script", "tuned-by-a-search"), ("tuned", OF_TUNING)),
    "attached-workers": ("run", OF_ATTACHED),
}
_COMMAND = re.compile(r"^\s*::(?!(error|warning|notice) title=whyidle check)|##\[|##vso\[", re.MULTILINE)
_PYTHON = tuple({os.path.realpath(each) for each in (sys.prefix, sys.base_prefix, *sysconfig.get_paths().values())})
_SYSTEM = ("/proc/", "/sys/", "/dev/null", "/dev/urandom", "/etc/localtime", "/usr/share/zoneinfo", "/usr/share/locale")
_OF_FILES = {
    *("open", "os.listdir", "os.scandir", "os.remove", "os.rmdir"),
    *("os.mkdir", "os.truncate", "os.chmod", "os.utime"),
}
_OF_TWO = {"os.rename", "os.link", "os.symlink"}
_NEVER = {
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork"),
    *("socket.connect", "socket.bind", "socket.sendto"),
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each kind of recording, which holds it, and a sound run to compare it with."""
    base = tmp_path_factory.mktemp("recorded")
    for kind, (name, _) in READ_BY.items():
        (base / kind).mkdir()
        RECORDINGS[kind].build(base / kind)
        if name == "run":
            shutil.copytree(base / kind / name, base / kind / "sound")
    # What is imported once need not be by each process; and all that is altered can be read before.
    for kind, (_, commands) in READ_BY.items():
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
    lines = [line for path in sorted(tmp_path.glob("told-*.jsonl")) for line in path.read_text().splitlines()]
    told = [json.loads(line) for line in lines]
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
    kind = chance.choice(sorted(READ_BY))
    name, commands = READ_BY[kind]
    shutil.rmtree(base, ignore_errors=True)
    outside = base / "outside"
    shutil.copytree(recorded / kind, base / "at")
    outside.mkdir()
    (outside / "secret.txt").write_text(f"{SECRET}\n1\t{SECRET}\n")
    done = [alter(base / "at" / name, outside, chance) for _ in range(chance.choice((1, 1, 1, 2, 3)))]
    argv = chance.choice(commands)
    if name == "table" and chance.random() < 0.05:
        run = chance.choice(sorted(path for path in (base / "at" / name).iterdir() if path.is_dir()))
        shutil.move(run, outside / run.name)
        run.symlink_to(outside / run.name)
        done.append(f"{run.name} is a link")
    before = {path: path.read_bytes() for path in _files(outside)}
    pid = _forked(_command, base, argv)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    result = base / "result.json"
    told = json.loads(result.read_text()) if result.is_file() else {"code": code, "wrong": [f"it ended with {code}"]}
    if {path: path.read_bytes() for path in _files(outside)} != before:
        told["wrong"].append("something outside was written")
    if any(SECRET.encode() in path.read_bytes() for path in _files(base / "at")):
        told["wrong"].append("what lies outside is in a file within")
    return {"number": number, "kind": kind, "argv": " ".join(argv), "done": done} | told


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 30:
            yield path


def _command(base: Path, argv: tuple[str, ...]) -> None:
    """Run it in this process, which is for nothing else, watched."""
    at, wrong, done = base / "at", list[str](), None
    os.environ.pop("WHYIDLE_DEBUG", None)
    _watch(at, wrong)
    # The kernel's own limits: what computes without end inside of a call is ended too.
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + CPU_SECONDS + 1, int(used) + CPU_SECONDS + 1))
    signal.alarm(WALL_SECONDS)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    try:
        done = ran(argv, at, {"TMPDIR": str(at / ".home")})
    except BaseException:
        wrong.append(traceback.format_exc()[-3000:])
    else:
        wrong += _wrong_of(done.code, done.out, done.err, is_data="--json" in argv or "csv" in argv)
    told = {"code": done and done.code, "wrong": wrong, "said": done and done.err[-300:]}
    (base / "result.json").write_text(json.dumps(told))


def _wrong_of(code: int, printed: str, said: str, is_data: bool) -> list[str]:
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
