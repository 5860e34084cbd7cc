"""What came before a recording: when the process began and what it imported, timed without being seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from whyidle.capture import imports as startup
from whyidle.capture.bootstrap import environment
from whyidle.capture.imports import armed, record_before
from whyidle.capture.session import Session
from whyidle.devices.cpu import CpuDevice
from whyidle.record.run import create_run, open_run
from whyidle.record.schema import EVENT, NOT_MEASURED, EventKind

MS = 1_000_000


class Imports:
    """A stand-in for Python's import function that was timed already."""

    def __init__(self, *spans: tuple[int, int]) -> None:
        self.spans = list(spans)
        self.ended = 0

    def end(self) -> None:
        self.ended += 1


@pytest.fixture(autouse=True)
def _not_armed() -> Iterator[None]:
    yield
    armed(None)


def python(folder: Path, code: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a program of the folder, which holds modules of its own."""
    (folder / "program.py").write_text(code)
    command = [sys.executable, "-W", "default", "program.py"]
    return subprocess.run(command, cwd=folder, env=env or dict(os.environ), capture_output=True, text=True, timeout=120)


def watched(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """The same as `whyidle run` would start it."""
    (folder / "run").mkdir(exist_ok=True)
    return python(folder, code, environment(folder / "run", os.environ, {}))


def test_the_begin_of_the_process_and_its_imports_are_events_of_the_recording(tmp_path: Path) -> None:
    now = time.monotonic_ns()
    before_fork, short, long = (5, 6), (now - 3 * MS, now - 3 * MS + 10), (now - 2 * MS, now)
    imports = Imports(before_fork, short, long)
    armed(imports)
    session = Session(create_run(tmp_path / "run", {}), CpuDevice())
    session.finish()
    session.finish()
    events = open_run(tmp_path / "run").records(EVENT)
    assert imports.ended == 1
    (began,) = events["t_ns"][events["what"] == EventKind.PROCESS_BEGIN]
    assert began < now
    spans = events[events["what"] == EventKind.IMPORT]
    assert list(zip(spans["t_ns"].tolist(), spans["end_ns"].tolist(), strict=True)) == [long]
    assert (events["what"] == EventKind.IMPORTS_TIMED).sum() == 1


def test_imports_are_timed_until_the_first_step_is_over(tmp_path: Path) -> None:
    imports = Imports()
    armed(imports)
    session = Session(create_run(tmp_path / "run", {}), CpuDevice())
    assert session.steps.on_step is not None
    session.steps.on_step(0, 1)
    assert imports.ended == 0
    session.steps.on_step(1, 2)
    session.steps.on_step(2, 3)
    assert imports.ended == 1
    assert session.steps.on_step == session._between_steps
    session.finish()


@pytest.mark.parametrize("interactive", ["ps1", "IPython"])
def test_where_somebody_types_the_time_before_is_no_start(monkeypatch: pytest.MonkeyPatch, interactive: str) -> None:
    armed(Imports())
    if interactive == "ps1":
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    else:
        monkeypatch.setitem(sys.modules, "IPython", sys)
    assert record_before(lambda *_event, **_when: None) is None


def test_a_system_that_does_not_tell_when_processes_began_records_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    armed(Imports())
    monkeypatch.setattr(startup, "START_FIELD", 10**6)
    assert record_before(lambda *_event, **_when: None) is None


def test_errors_and_warnings_of_imports_read_as_they_do_without_us(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import deeper\n")
    (tmp_path / "deeper.py").write_text("raise ValueError('no')\n")
    (tmp_path / "old.py").write_text("import warnings\nwarnings.warn('old is old', DeprecationWarning, stacklevel=2)\n")
    (tmp_path / "syntax.py").write_text("def (:\n")
    code = (
        "import traceback, importlib\n"
        "import old\n"
        "for name in ('missing', 'broken', 'syntax', 'old.nothing'):\n"
        "    try:\n"
        "        importlib.import_module(name)\n"
        "    except Exception:\n"
        "        traceback.print_exc()\n"
        "import broken\n"
    )
    bare, seen = python(tmp_path, code), watched(tmp_path, code)
    assert "program.py:2: DeprecationWarning: old is old" in bare.stderr
    assert (seen.returncode, seen.stdout, seen.stderr) == (bare.returncode, bare.stdout, bare.stderr)


def test_an_import_within_another_is_part_of_it_and_those_of_other_threads_are_not_timed(tmp_path: Path) -> None:
    (tmp_path / "outer.py").write_text("import inner\n")
    (tmp_path / "inner.py").write_text("import time\nWHEN = time.monotonic_ns()\n")
    (tmp_path / "aside.py").write_text("import time\nWHEN = time.monotonic_ns()\n")
    code = (
        "import json, gc, threading, sys\n"
        "timed = next(o for o in gc.get_objects() if type(o).__name__ == '_Imports')\n"
        "known = len(timed.spans)\n"
        "import outer\n"
        "thread = threading.Thread(target=lambda: __import__('aside'))\n"
        "thread.start(); thread.join()\n"
        "mine = timed.spans[known:]\n"
        "timed.end()\n"
        "found = {name: sum(b <= sys.modules[name].WHEN <= e for b, e in mine) for name in ('inner', 'aside')}\n"
        "import fractions\n"
        "print(json.dumps([found, len(mine), len(timed.spans) - known]))\n"
    )
    done = watched(tmp_path, code)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [{"inner": 1, "aside": 0}, 1, 1]


def test_a_begin_that_is_not_known_is_no_time(tmp_path: Path) -> None:
    session = Session(create_run(tmp_path / "run", {}), CpuDevice())
    session.finish()
    events = open_run(tmp_path / "run").records(EVENT)
    assert EventKind.PROCESS_BEGIN not in events["what"]
    assert (events["t_ns"] != NOT_MEASURED).all()
