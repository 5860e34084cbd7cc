"""What the commands print of recordings is what they printed before."""

from __future__ import annotations

import json
import os
import platform
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from golden.output import RENEW, Output, Ran, difference, ran
from golden.recordings import RECORDINGS

EXPECTED = Path(__file__).parent / "expected"
SHORT = ("report.txt", "diff.txt", "compare.txt")
SCREEN, HEALTHY = 40, 12
"""Lines of a short report at most; of one with nothing to change."""
CASES = [(name, output) for name, recording in RECORDINGS.items() for output in recording.outputs]
PID = 4711
"""Of this process while it makes recordings."""
BEGAN_NS = 1_767_225_600 * 10**9
"""Unix time of a recording's first run: 2026-01-01, 00:00 UTC. Each further one: a minute later."""
HOST = {"name": "alpha", "machine": "x86_64", "cpus": 8}
COMMAND = ["python", "train.py"]
_LATELY_S = 86_400.0


def settle(folder: Path) -> None:
    """All run folders in it, as if they had been recorded on another machine, at another time."""
    for number, path in enumerate(sorted(folder.rglob("run.json"))):
        _settle_run(path, number)
        for told in sorted(path.parent.glob("process-*.json")):
            _settle_process(told, number)


def _settle_run(path: Path, number: int) -> None:
    info = json.loads(path.read_text())
    began = BEGAN_NS + number * 60 * 10**9
    info["id"] = f"20260101-{number:06d}-abcdef"
    info["whyidle"] = "0.0.9"
    info["python"] = "3.12.1"
    info["started_at"] = time.strftime("%Y-%m-%dT%H:%M:%S+0000", time.gmtime(began // 10**9))
    if info.get("command") == sys.argv:
        info["command"] = COMMAND
    _settle_shared(info, began)
    path.write_text(json.dumps(info, indent=1))


def _settle_process(path: Path, number: int) -> None:
    info = json.loads(path.read_text())
    for name, value in (("python", "3.12.1"), ("executable", "/usr/bin/python3"), ("command", COMMAND)):
        if name in info:
            info[name] = value
    if info.get("host") == socket.gethostname():
        info["host"] = HOST["name"]
    _settle_shared(info, BEGAN_NS + number * 60 * 10**9)
    path.write_text(json.dumps(info, indent=1))


def _settle_shared(info: dict[str, Any], began: int) -> None:
    """The host and the clock, where they are this machine's and this moment's."""
    host, clock = info.get("host"), info.get("clock")
    if isinstance(host, dict) and host.get("machine") == platform.machine():
        info["host"] = HOST
    if isinstance(clock, dict) and abs(clock["time_ns"] - time.time_ns()) < _LATELY_S * 1e9:
        info["clock"] = {"time_ns": began, "monotonic_ns": 10**9}


Run = Callable[[str, Output], Ran]


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a command where a recording lies, which is made once; the same command runs once."""
    made: dict[str, Path] = {}
    known: dict[tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]], Ran] = {}

    def of(name: str, output: Output) -> Ran:
        if name not in made:
            made[name] = tmp_path_factory.mktemp("golden")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(os, "getpid", lambda: PID)
                RECORDINGS[name].build(made[name])
            settle(made[name])
        command = name, output.argv, tuple(sorted(output.environment.items()))
        if command not in known:
            known[command] = ran(output.argv, made[name], output.environment)
        return known[command]

    return of


@pytest.mark.parametrize(("name", "output"), CASES, ids=[f"{name}-{output.name}" for name, output in CASES])
def test_an_output_is_as_it_was(name: str, output: Output, run: Run, request: pytest.FixtureRequest) -> None:
    found = output.form(run(name, output))
    kept = EXPECTED / name / output.name
    if request.config.getoption("--renew-golden"):
        if not kept.is_file() or difference(output.name, kept.read_text(), found) is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(found)
        return
    command = " ".join(("whyidle", *output.argv))
    assert kept.is_file(), f"{name}: what `{command}` prints is not kept yet. Keep it with `{RENEW}`."
    told = difference(output.name, kept.read_text(), found)
    if told is not None:
        pytest.fail(f"`{command}` prints otherwise of {name}. Where that is meant: `{RENEW}`.\n{told}", pytrace=False)


def test_nothing_is_kept_that_no_recording_makes(request: pytest.FixtureRequest) -> None:
    made = {EXPECTED / name / output.name for name, output in CASES}
    left = sorted(path for path in EXPECTED.rglob("*") if path.is_file() and path not in made)
    if request.config.getoption("--renew-golden"):
        for path in left:
            path.unlink()
        return
    named = ", ".join(str(path.relative_to(EXPECTED)) for path in left)
    assert not left, f"no recording makes {named}. Remove them with `{RENEW}`."


def test_what_is_printed_without_full_fits_one_screen() -> None:
    printed = {path: path.read_text() for name in SHORT for path in EXPECTED.glob(f"*/{name}")}
    most = {
        path: HEALTHY if path.name == "report.txt" and "\nVerdict  none\n" in text else SCREEN
        for path, text in printed.items()
    }
    lines = {path: len(text.splitlines()) for path, text in printed.items()}
    assert {str(path): lines[path] for path in printed if lines[path] > most[path]} == {}


def test_every_output_has_a_file_of_its_own() -> None:
    names = [(name, output.name) for name, output in CASES]
    assert len(set(names)) == len(names)
