"""Recordings of programs with a fault in their own code, kept in `tests/data/user_code/PROGRAM-FORM.tar.gz`.

Real runs, 45 to 75 KB each, so that what is said of them depends on no machine's speed. What names the machine they
were made on is replaced: the program lies in `/home/user/PROGRAM/`, packages and Python's library in
`/usr/lib/python3.11/`. After a change of a program or of what is recorded, in 25 s each on a machine that does nothing
else: `PYTHONPATH=tests .venv/bin/python -m support.recorded_programs PROGRAM-FORM …` (without a name: all). Whether it
is worth keeping is said by `tests/integration/test_user_code_reports.py`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import whyidle
from whyidle_bench.user_code.cases import PROGRAMS

KEPT = Path(__file__).parents[1] / "data" / "user_code"
HOME = "/home/user"
RECORDING = "run"
_LIBRARIES = (
    (re.compile(rf"\A{re.escape(str(Path(whyidle.__file__).parent))}/"), "/usr/lib/python3.11/site-packages/whyidle/"),
    (re.compile(r"\A.*/site-packages/"), "/usr/lib/python3.11/site-packages/"),
    (re.compile(r"\A.*/lib/python3\.\d+/"), "/usr/lib/python3.11/"),
)


def names() -> list[str]:
    """`PROGRAM-FORM` of each that is kept."""
    return sorted(path.name.removesuffix(".tar.gz") for path in KEPT.glob("*.tar.gz"))


def unpacked(name: str, to: Path) -> Path:
    """The recording of `PROGRAM-FORM`, of a program that lies in the folder `to`, as if it had run there."""
    program, _, form = name.rpartition("-")
    with tarfile.open(KEPT / f"{name}.tar.gz") as archive:
        archive.extractall(to, filter="data")
    shutil.copytree(PROGRAMS / program, to / program)
    stacks = to / RECORDING / "stacks.jsonl"
    stacks.write_text(stacks.read_text().replace(f"{HOME}/{program}/{form}.py", f"{to}/{program}/{form}.py"))
    return to / RECORDING


def keep(name: str) -> None:
    """Record `PROGRAM-FORM` on this machine, and keep that."""
    program, _, form = name.rpartition("-")
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        shutil.copytree(PROGRAMS / program, at / program)
        command = [sys.executable, "-m", "whyidle", "run", "--no-live", "--out", str(at / RECORDING), "--"]
        subprocess.run([*command, "python", str(at / program / f"{form}.py")], check=True, capture_output=True)
        _clean(at)
        KEPT.mkdir(exist_ok=True)
        with tarfile.open(KEPT / f"{name}.tar.gz", "w:gz") as archive:
            archive.add(at / RECORDING, RECORDING, filter=_of_nobody)


def _clean(at: Path) -> None:
    recording = at / RECORDING
    for path in (recording / "run.json", *recording.glob("process-*.json")):
        told = json.loads(path.read_text())
        told["command"] = [each.replace(str(at), HOME) for each in told["command"]]
        if "executable" in told:
            told |= {"executable": "/usr/bin/python3", "host": "example"}
        else:
            told["host"] |= {"name": "example"}
        path.write_text(json.dumps(told))
    stacks = recording / "stacks.jsonl"
    calls = [json.loads(line) for line in stacks.read_text().splitlines()]
    for call in calls:
        call["file"] = call["file"].replace(str(at), HOME)
        for library, plain in _LIBRARIES:
            call["file"] = library.sub(plain, call["file"])
    stacks.write_text("".join(json.dumps(call) + "\n" for call in calls))


def _of_nobody(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


if __name__ == "__main__":
    for each in sys.argv[1:] or names():
        keep(each)
